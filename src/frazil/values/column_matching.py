"""The columns of a file matched to the fields of its table, or refused with the reason.

Columns are found by field id, at every level below the field that their parent is (spec, "Column
Projection"). A type fits where it is the table's, or one that the table's may have been promoted
from (spec, "Schema Evolution").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from frazil.datafiles.footers.parquet_errors import FileDoesNotFit
from frazil.datafiles.footers.parquet_schema import SchemaField
from frazil.values.parquet_columns import FileColumn, Leaf, all_columns
from frazil.values.types import (
    DecimalType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
    TypeId,
)

FormerTypes = Callable[[int], Sequence[Type]]
"""The types that earlier schemas of the table gave to a field id."""

_PROMOTIONS: Final[Mapping[TypeId, frozenset[TypeId]]] = {
    TypeId.INT: frozenset({TypeId.LONG}),
    TypeId.FLOAT: frozenset({TypeId.DOUBLE}),
}
_PROMOTIONS_OF_V3: Final[Mapping[TypeId, frozenset[TypeId]]] = {
    **_PROMOTIONS,
    TypeId.DATE: frozenset({TypeId.TIMESTAMP, TypeId.TIMESTAMP_NS}),
}
_WELL_KNOWN_BINARY: Final = frozenset({TypeId.GEOMETRY, TypeId.GEOGRAPHY})


@dataclass(frozen=True, slots=True)
class MatchedColumn:
    """A leaf of the file that is a column of the table."""

    field_id: int
    name: str
    type: Type
    """The table's."""
    leaf: Leaf
    is_repeated: bool
    """Inside a list or a map."""
    may_be_null: bool
    """False where the field and everything that it is nested in is required."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """What a file is held against."""

    schema: StructType
    by_id: Mapping[int, SchemaField]
    format_version: int
    former_types: FormerTypes = field(default=lambda field_id: ())


def match_columns(
    columns: Sequence[FileColumn],
    table: TableColumns,
    path: str,
    from_partition: Collection[int] = (),
) -> tuple[MatchedColumn, ...]:
    """Every leaf that the table has a primitive field for.

    `from_partition` are fields whose value readers take from the partition where the file has no
    such column.
    """
    _refuse_ids_twice(columns, path)
    matcher = _Matcher(table, path, from_partition)
    matcher.struct(table.schema.fields, columns, "", is_repeated=False, may_be_null=False)
    return tuple(matcher.matched)


def own_columns(columns: Sequence[FileColumn], path: str) -> tuple[MatchedColumn, ...]:
    """The leaves that have field ids, as the file itself types them: there is no table."""
    _refuse_ids_twice(columns, path)
    matched: list[MatchedColumn] = []
    _own(columns, "", matched, is_repeated=False)
    return tuple(matched)


def _own(
    columns: Iterable[FileColumn], prefix: str, matched: list[MatchedColumn], *, is_repeated: bool
) -> None:
    for column in columns:
        name, leaf = f"{prefix}{column.name}", column.leaf
        if leaf is None:
            repeats = is_repeated or column.kind is not TypeId.STRUCT
            _own(column.parts, f"{name}.", matched, is_repeated=repeats)
        elif column.field_id is not None and leaf.readable_as:
            type_ = leaf.readable_as[0]
            matched.append(MatchedColumn(column.field_id, name, type_, leaf, is_repeated, True))


def _refuse_ids_twice(columns: Sequence[FileColumn], path: str) -> None:
    found: dict[int, str] = {}
    for column in all_columns(columns):
        if column.field_id is None:
            continue
        if column.field_id in found:
            raise FileDoesNotFit(
                path,
                f"has the field id {column.field_id}, which {found[column.field_id]} has too: "
                "write each column with an id of its own",
                column.name,
            )
        found[column.field_id] = column.name


class _Matcher:
    def __init__(self, table: TableColumns, path: str, from_partition: Collection[int]) -> None:
        self._table = table
        self._path = path
        self._from_partition = from_partition
        self._promotions = _PROMOTIONS_OF_V3 if table.format_version >= 3 else _PROMOTIONS
        self.matched: list[MatchedColumn] = []

    def struct(
        self,
        fields: Iterable[NestedField],
        columns: Sequence[FileColumn],
        prefix: str,
        *,
        is_repeated: bool,
        may_be_null: bool,
    ) -> None:
        by_id = {column.field_id: column for column in columns if column.field_id is not None}
        for wanted in fields:
            name = f"{prefix}{wanted.name}"
            column = by_id.pop(wanted.field_id, None)
            if column is None:
                self._missing(wanted, name, columns)
            else:
                self._field(wanted, name, column, is_repeated, may_be_null)
        for field_id, column in by_id.items():
            self._extra(field_id, column)

    def _field(
        self,
        wanted: NestedField,
        name: str,
        column: FileColumn,
        is_repeated: bool,
        may_be_null: bool,
    ) -> None:
        type_ = wanted.type
        if not self._fits(column, type_):
            raise self._misfit(
                name,
                f"the file has {column.shown} for field id {wanted.field_id}, which cannot be "
                f"read as {_named(type_)}",
            )
        may_be_null = may_be_null or not wanted.required
        if isinstance(type_, StructType):
            self.struct(
                type_.fields,
                column.parts,
                f"{name}.",
                is_repeated=is_repeated,
                may_be_null=may_be_null,
            )
        elif isinstance(type_, ListType):
            self._part(type_.element, name, column.parts[0])
        elif isinstance(type_, MapType):
            self._part(type_.key, name, column.parts[0])
            self._part(type_.value, name, column.parts[1])
        elif column.leaf is not None and type_.type_id is not TypeId.UNKNOWN:
            self.matched.append(
                MatchedColumn(wanted.field_id, name, type_, column.leaf, is_repeated, may_be_null)
            )

    def _part(self, wanted: NestedField, parent: str, column: FileColumn) -> None:
        """An element, key or value: there is no other column that it could be."""
        name = f"{parent}.{wanted.name}"
        if column.field_id != wanted.field_id:
            found = "none" if column.field_id is None else str(column.field_id)
            raise self._misfit(
                name, f"its field id must be {wanted.field_id}, but the file has {found}"
            )
        self._field(wanted, name, column, is_repeated=True, may_be_null=True)

    def _missing(self, wanted: NestedField, name: str, columns: Sequence[FileColumn]) -> None:
        """Readers put the initial default or null in its place, if there may be one."""
        is_replaced = wanted.field_id in self._from_partition
        if not wanted.required or wanted.initial_default is not None or is_replaced:
            return
        reason = f"is required, but the file has no column with field id {wanted.field_id}"
        if any(column.name == wanted.name and column.field_id is None for column in columns):
            reason += f"; its column {wanted.name} has no field id, write it with that one"
        raise self._misfit(name, reason)

    def _extra(self, field_id: int, column: FileColumn) -> None:
        """Readers do not look at a column that the schema does not have."""
        elsewhere = self._table.by_id.get(field_id)
        if elsewhere is not None:
            raise self._misfit(
                column.name,
                f"has the field id {field_id}, which is that of the table's column "
                f"{elsewhere.name} at another place: write it with an id of its own",
            )
        former = self._table.former_types(field_id)
        if former and not any(self._fits(column, type_) for type_ in former):
            raise self._misfit(
                column.name,
                f"is {column.shown}, but its field id {field_id} was that of a column of type "
                f"{_named(former[-1])}: write it with an id of its own",
            )

    # --- types ----------------------------------------------------------------------------------

    def _fits(self, column: FileColumn, type_: Type) -> bool:
        if type_.type_id is TypeId.UNKNOWN:
            return True
        if type_.type_id is TypeId.VARIANT:
            names = {part.name for part in column.parts}
            return column.kind is TypeId.STRUCT and "metadata" in names
        if type_.is_nested:
            return column.kind is type_.type_id
        return column.leaf is not None and any(
            self._reads(one, type_) for one in column.leaf.readable_as
        )

    def _reads(self, of_file: Type, of_table: Type) -> bool:
        if of_file == of_table or of_file.type_id is TypeId.UNKNOWN:
            return True
        if isinstance(of_file, DecimalType) and isinstance(of_table, DecimalType):
            return of_file.scale == of_table.scale and of_file.precision <= of_table.precision
        if of_table.type_id in _WELL_KNOWN_BINARY:
            return of_file.type_id is TypeId.BINARY
        return of_table.type_id in self._promotions.get(of_file.type_id, frozenset())

    def _misfit(self, column: str, reason: str) -> FileDoesNotFit:
        return FileDoesNotFit(self._path, reason, column)


def _named(type_: Type) -> str:
    return type_.type_id.value if type_.is_nested else str(type_)
