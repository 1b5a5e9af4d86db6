"""Matches the columns of a Parquet file to the fields of its table, or refuses the file.

The client checks each file that it declares by these rules, and so does the server if the table
asks for it. Columns are found by field id, at every level below the field that their parent is
(spec, "Column Projection"). A type fits if it is the table's, or one that the table's may have been
promoted from (spec, "Schema Evolution").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from frazil.values import types
from frazil.values.name_mapping import (
    NAME_MAPPING_PROPERTY,
    NameMapping,
    apply_name_mapping,
    name_mapping_of,
)
from frazil.values.parquet_columns import FileColumn, Leaf, all_columns, has_field_ids

FormerTypes = Callable[[int], Sequence[types.Type]]
"""Returns the types that earlier schemas of the table gave to a field id."""

_PROMOTIONS: Final[Mapping[types.TypeId, frozenset[types.TypeId]]] = {
    types.TypeId.INT: frozenset({types.TypeId.LONG}),
    types.TypeId.FLOAT: frozenset({types.TypeId.DOUBLE}),
}
_PROMOTIONS_SINCE_V3: Final[Mapping[types.TypeId, frozenset[types.TypeId]]] = {
    **_PROMOTIONS,
    types.TypeId.DATE: frozenset({types.TypeId.TIMESTAMP, types.TypeId.TIMESTAMP_NS}),
}
_STORED_AS_BINARY: Final = frozenset({types.TypeId.GEOMETRY, types.TypeId.GEOGRAPHY})


class ColumnMisfit(ValueError):
    """The table cannot read a file, or not as what it is declared to be."""

    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason if column is None else f"column {column}: {reason}")
        self.reason = reason
        self.column = column
        """The full name of the column, such as `location.latitude`; None for the whole file."""


@dataclass(frozen=True, slots=True)
class MatchedColumn:
    """A leaf of the file that is a column of the table."""

    field_id: int
    name: str
    type: types.Type
    """The table's type."""
    leaf: Leaf
    is_repeated: bool
    """Whether it is inside a list or a map."""
    may_be_null: bool
    """False if the field and all its parents are required."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table, which files are matched with."""

    schema: types.StructType
    by_id: Mapping[int, types.SchemaField]
    format_version: int
    former_types: FormerTypes = field(default=lambda field_id: ())


# --- files of each kind ---------------------------------------------------------------------------


def match_columns(
    columns: Sequence[FileColumn], table: TableColumns, from_partition: Collection[int] = ()
) -> tuple[MatchedColumn, ...]:
    """Return every leaf that the table has a primitive field for.

    `from_partition` are fields whose value readers take from the partition if the file has no
    such column.
    """
    _refuse_duplicate_ids(columns)
    matcher = _Matcher(table, from_partition)
    matcher.struct(table.schema.fields, columns, "", is_repeated=False, may_be_null=False)
    return tuple(matcher.matched)


def match_equality_deletes(
    columns: Sequence[FileColumn], table: TableColumns, equality_ids: Iterable[int]
) -> tuple[MatchedColumn, ...]:
    """Match a file of equality deletes, which must have the columns that are compared.

    Such a file need not have the other columns, and a null in it deletes nulls.
    """
    matched = match_columns(columns, replace(table, schema=_all_optional(table.schema)))
    is_repeated = {column.field_id: column.is_repeated for column in matched}
    for field_id in equality_ids:
        if field_id not in table.by_id:
            continue
        name = table.by_id[field_id].name
        if field_id not in is_repeated:
            raise ColumnMisfit(
                f"rows are deleted by it, but the file has no column with field id {field_id}", name
            )
        if is_repeated[field_id]:
            raise ColumnMisfit("rows cannot be deleted by a column inside a list or map", name)
    return matched


def _all_optional(struct: types.StructType) -> types.StructType:
    return types.StructType(
        tuple(
            replace(
                field,
                required=False,
                type=_all_optional(field.type)
                if isinstance(field.type, types.StructType)
                else field.type,
            )
            for field in struct.fields
        )
    )


DELETE_FILE_PATH_ID: Final = 2147483546
DELETE_POS_ID: Final = 2147483545
_POSITION_DELETE_FIELDS: Final = types.StructType(
    (
        types.NestedField(DELETE_FILE_PATH_ID, "file_path", types.STRING, required=True),
        types.NestedField(DELETE_POS_ID, "pos", types.LONG, required=True),
    )
)
_POSITION_DELETE_COLUMNS: Final = TableColumns(
    _POSITION_DELETE_FIELDS, types.fields_by_id(_POSITION_DELETE_FIELDS), 2
)
_POSITION_DELETE_IDS: Final = {"file_path": DELETE_FILE_PATH_ID, "pos": DELETE_POS_ID}


def match_position_deletes(columns: Sequence[FileColumn]) -> tuple[MatchedColumn, ...]:
    """Match a file of position deletes; one without field ids is matched by the spec's names."""
    if not has_field_ids(columns):
        columns = [
            replace(column, field_id=_POSITION_DELETE_IDS.get(column.name)) for column in columns
        ]
    return match_columns(columns, _POSITION_DELETE_COLUMNS)


def own_columns(columns: Sequence[FileColumn]) -> tuple[MatchedColumn, ...]:
    """Return the leaves that have field ids, with the file's own types, if there is no table."""
    _refuse_duplicate_ids(columns)
    matched: list[MatchedColumn] = []
    _add_own(columns, "", matched, is_repeated=False)
    return tuple(matched)


def _add_own(
    columns: Iterable[FileColumn], prefix: str, matched: list[MatchedColumn], *, is_repeated: bool
) -> None:
    for column in columns:
        name, leaf = f"{prefix}{column.name}", column.leaf
        if leaf is None:
            repeats = is_repeated or column.kind is not types.TypeId.STRUCT
            _add_own(column.parts, f"{name}.", matched, is_repeated=repeats)
        elif column.field_id is not None and leaf.readable_as:
            type_ = leaf.readable_as[0]
            matched.append(MatchedColumn(column.field_id, name, type_, leaf, is_repeated, True))


# --- field ids ------------------------------------------------------------------------------------


def with_field_ids(
    columns: Sequence[FileColumn], mapping: NameMapping | None, schema: types.StructType
) -> Sequence[FileColumn]:
    """Return the columns with their own field ids, or with those of the table's name mapping.

    Java gives the columns of a file without ids those of their positions, which is a guess; other
    readers refuse the file.
    """
    if has_field_ids(columns):
        return columns
    if mapping is not None:
        return apply_name_mapping(columns, mapping)
    raise ColumnMisfit(
        "its columns have no field ids, and the table has no name mapping, so that no reader could "
        "find them. Either write the file with the table's ids, "
        'pa.field(name, type, metadata={"PARQUET:field_id": "1"}), or set the table\'s property '
        f"{NAME_MAPPING_PROPERTY} to {name_mapping_of(schema)}"
    )


def _refuse_duplicate_ids(columns: Sequence[FileColumn]) -> None:
    names: dict[int, str] = {}
    for column in all_columns(columns):
        if column.field_id is None:
            continue
        if column.field_id in names:
            raise ColumnMisfit(
                f"has the field id {column.field_id}, which {names[column.field_id]} has too: "
                "write each column with an id of its own",
                column.name,
            )
        names[column.field_id] = column.name


# --- fields ---------------------------------------------------------------------------------------


class _Matcher:
    def __init__(self, table: TableColumns, from_partition: Collection[int]) -> None:
        self._table = table
        self._from_partition = from_partition
        self._promotions = _PROMOTIONS_SINCE_V3 if table.format_version >= 3 else _PROMOTIONS
        self.matched: list[MatchedColumn] = []

    def struct(
        self,
        fields: Iterable[types.NestedField],
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
                self._check_missing(wanted, name, columns)
            else:
                self._field(wanted, name, column, is_repeated, may_be_null)
        for field_id, column in by_id.items():
            self._check_extra(field_id, column)

    def _field(
        self,
        wanted: types.NestedField,
        name: str,
        column: FileColumn,
        is_repeated: bool,
        may_be_null: bool,
    ) -> None:
        type_ = wanted.type
        if not self._fits(column, type_):
            raise ColumnMisfit(
                f"the file has {column.type_name} for field id {wanted.field_id}, which cannot be "
                f"read as {type_.short_name}",
                name,
            )
        may_be_null = may_be_null or not wanted.required
        if isinstance(type_, types.StructType):
            self.struct(
                type_.fields,
                column.parts,
                f"{name}.",
                is_repeated=is_repeated,
                may_be_null=may_be_null,
            )
        elif isinstance(type_, types.ListType):
            self._part(type_.element, name, column.parts[0])
        elif isinstance(type_, types.MapType):
            self._part(type_.key, name, column.parts[0])
            self._part(type_.value, name, column.parts[1])
        elif column.leaf is not None and type_.type_id is not types.TypeId.UNKNOWN:
            self.matched.append(
                MatchedColumn(wanted.field_id, name, type_, column.leaf, is_repeated, may_be_null)
            )

    def _part(self, wanted: types.NestedField, parent: str, column: FileColumn) -> None:
        """Match an element, key or value: there is no other column that it could be."""
        name = f"{parent}.{wanted.name}"
        if column.field_id != wanted.field_id:
            actual = "none" if column.field_id is None else str(column.field_id)
            raise ColumnMisfit(
                f"its field id must be {wanted.field_id}, but the file has {actual}", name
            )
        self._field(wanted, name, column, is_repeated=True, may_be_null=True)

    def _check_missing(
        self, wanted: types.NestedField, name: str, columns: Sequence[FileColumn]
    ) -> None:
        """Refuse the file if readers have neither an initial default nor null to put in place."""
        is_replaced = wanted.field_id in self._from_partition
        if not wanted.required or wanted.initial_default is not None or is_replaced:
            return
        reason = f"is required, but the file has no column with field id {wanted.field_id}"
        if any(column.name == wanted.name and column.field_id is None for column in columns):
            reason += f"; its column {wanted.name} has no field id, write it with that one"
        raise ColumnMisfit(reason, name)

    def _check_extra(self, field_id: int, column: FileColumn) -> None:
        """Refuse a column whose id belongs, or belonged, to another column of the table.

        Readers ignore a column that the schema does not have.
        """
        elsewhere = self._table.by_id.get(field_id)
        if elsewhere is not None:
            raise ColumnMisfit(
                f"has the field id {field_id}, which is that of the table's column "
                f"{elsewhere.name} at another level: write it with an id of its own",
                column.name,
            )
        former = self._table.former_types(field_id)
        if former and not any(self._fits(column, type_) for type_ in former):
            raise ColumnMisfit(
                f"is {column.type_name}, but its field id {field_id} was that of a column of type "
                f"{former[-1].short_name}: write it with an id of its own",
                column.name,
            )

    # --- types ----------------------------------------------------------------------------------

    def _fits(self, column: FileColumn, type_: types.Type) -> bool:
        if type_.type_id is types.TypeId.UNKNOWN:
            return True
        if type_.type_id is types.TypeId.VARIANT:
            names = {part.name for part in column.parts}
            return column.kind is types.TypeId.STRUCT and "metadata" in names
        if type_.is_nested:
            return column.kind is type_.type_id
        return column.leaf is not None and any(
            self._can_read(stored, type_) for stored in column.leaf.readable_as
        )

    def _can_read(self, stored: types.Type, type_: types.Type) -> bool:
        if stored == type_ or stored.type_id is types.TypeId.UNKNOWN:
            return True
        if isinstance(stored, types.DecimalType) and isinstance(type_, types.DecimalType):
            return stored.scale == type_.scale and stored.precision <= type_.precision
        if type_.type_id in _STORED_AS_BINARY:
            return stored.type_id is types.TypeId.BINARY
        return type_.type_id in self._promotions.get(stored.type_id, frozenset())
