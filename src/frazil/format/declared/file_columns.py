"""The columns of a data file beside the schema of its table: can a reader find and read them?

Columns are found by field id; in a file without ids by name, through the table's name mapping
(spec, "Column Projection" and "Name Mapping Serialization"). A type fits where it is the table's,
or one that the table's was promoted from (spec, "Schema Evolution").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.format.declared.declared_metrics import FIRST_RESERVED_ID
from frazil.format.metadata import json_object
from frazil.values.types import (
    DecimalType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
    TypeId,
)
from frazil.wire.errors import BadRequest

NAME_MAPPING_PROPERTY: Final = "schema.name-mapping.default"

_PROMOTIONS: Final[Mapping[TypeId, frozenset[TypeId]]] = {
    TypeId.INT: frozenset({TypeId.LONG}),
    TypeId.FLOAT: frozenset({TypeId.DOUBLE}),
    TypeId.DATE: frozenset({TypeId.TIMESTAMP, TypeId.TIMESTAMP_NS}),
}
_BY_KIND: Final = frozenset({TypeId.GEOMETRY, TypeId.GEOGRAPHY})
"""Their parameters are not in the file's type."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column, or a part of a nested one, as a file has it."""

    name: str
    field_id: int | None
    shown: str
    """The file's own name of the type."""
    readable_as: tuple[Type, ...] = ()
    """Of a column without parts: the Iceberg types that it can be read as by itself."""
    kind: TypeId | None = None
    """STRUCT, LIST or MAP where the column has parts: fields, the element, or key and value."""
    parts: tuple[FileColumn, ...] = ()


class ColumnMisfit(ValueError):
    """A file whose columns its table cannot read."""


def has_field_ids(columns: Iterable[FileColumn]) -> bool:
    return any(column.field_id is not None for column in _all(columns))


def check_columns(
    columns: Sequence[FileColumn],
    fields: Iterable[NestedField],
    *,
    last_column_id: int,
    from_partition: Collection[int] = (),
) -> None:
    """Refuses a file that does not have the fields, or not as something that can be read as them.

    `from_partition` are columns whose value readers take from the partition where the file has
    none. An id that the table has not given yet could later become another column's.
    """
    found: dict[int, FileColumn] = {}
    for column in _all(columns):
        if column.field_id is None:
            continue
        if column.field_id in found:
            raise ColumnMisfit(f"two columns have the field id {column.field_id}")
        if last_column_id < column.field_id < FIRST_RESERVED_ID:
            raise ColumnMisfit(
                f"the column {column.name} has the field id {column.field_id}, which no column of "
                "the table ever had"
            )
        found[column.field_id] = column
    for field in fields:
        _check_field(field, field.name, found, from_partition)


def _check_field(
    field: NestedField,
    name: str,
    found: Mapping[int, FileColumn],
    from_partition: Collection[int],
) -> None:
    column = found.get(field.field_id)
    if column is None:
        if (
            field.required
            and field.initial_default is None
            and field.field_id not in from_partition
        ):
            raise ColumnMisfit(f"the required column {name} (field id {field.field_id}) is missing")
        return
    if not _fits(column, field.type):
        raise ColumnMisfit(
            f"the column {name} (field id {field.field_id}) is {column.shown}, which cannot be "
            f"read as {_named(field.type)}"
        )
    for child in _children(field.type):
        _check_field(child, f"{name}.{child.name}", found, from_partition)


def _fits(column: FileColumn, type_: Type) -> bool:
    if type_.type_id is TypeId.UNKNOWN:
        return True
    if type_.type_id is TypeId.VARIANT:
        names = {part.name for part in column.parts}
        return column.kind is TypeId.STRUCT and "metadata" in names
    if type_.is_nested:
        return column.kind is type_.type_id
    return any(_reads(one, type_) for one in column.readable_as)


def _reads(of_file: Type, of_table: Type) -> bool:
    if of_file == of_table or of_file.type_id is TypeId.UNKNOWN:
        return True
    if isinstance(of_file, DecimalType) and isinstance(of_table, DecimalType):
        return of_file.scale == of_table.scale and of_file.precision <= of_table.precision
    if of_table.type_id in _BY_KIND:
        return of_file.type_id is TypeId.BINARY
    return of_table.type_id in _PROMOTIONS.get(of_file.type_id, frozenset())


def _named(type_: Type) -> str:
    return type_.type_id.value if type_.is_nested else str(type_)


def _children(type_: Type) -> tuple[NestedField, ...]:
    """The parts of a field whose presence its column decides: a list without an element, or a map
    without a key, is no column that a file can have."""
    if isinstance(type_, StructType):
        return type_.fields
    parts: tuple[NestedField, ...] = ()
    if isinstance(type_, ListType):
        parts = (type_.element,)
    elif isinstance(type_, MapType):
        parts = (type_.key, type_.value)
    return tuple(
        replace(part, required=True) for part in parts if part.type.type_id is not TypeId.UNKNOWN
    )


def _all(columns: Iterable[FileColumn]) -> Iterator[FileColumn]:
    for column in columns:
        yield column
        yield from _all(column.parts)


# --- name mapping -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MappedField:
    field_id: int | None
    parts: Mapping[str, _MappedField]


class NameMapping:
    """Field ids by the names that columns have in files without ids."""

    def __init__(self, fields: Mapping[str, _MappedField]) -> None:
        self._fields = fields

    def apply(self, columns: Iterable[FileColumn]) -> tuple[FileColumn, ...]:
        """The columns with the ids of their names; one without a name in the mapping has none."""
        return _mapped(columns, self._fields)


def parse_name_mapping(text: str) -> NameMapping:
    """Reads the property `schema.name-mapping.default`."""
    return NameMapping(_parse_fields(json_object.decode(text.encode(), NAME_MAPPING_PROPERTY)))


def _mapped(
    columns: Iterable[FileColumn], fields: Mapping[str, _MappedField]
) -> tuple[FileColumn, ...]:
    mapped = []
    for column in columns:
        field = fields.get(column.name)
        parts = _mapped(column.parts, {} if field is None else field.parts)
        field_id = None if field is None else field.field_id
        mapped.append(replace(column, field_id=field_id, parts=parts))
    return tuple(mapped)


def _parse_fields(value: Any) -> dict[str, _MappedField]:
    if not isinstance(value, list):
        raise _invalid("a list of objects with field-id and names")
    fields: dict[str, _MappedField] = {}
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("names"), list):
            raise _invalid("a list of objects with field-id and names")
        field_id = item.get("field-id")
        if field_id is not None and (isinstance(field_id, bool) or not isinstance(field_id, int)):
            raise _invalid("numbers in field-id")
        field = _MappedField(field_id, _parse_fields(item.get("fields") or []))
        for name in item["names"]:
            if not isinstance(name, str) or name in fields:
                raise _invalid("each name once")
            fields[name] = field
    return fields


def _invalid(expected: str) -> BadRequest:
    return BadRequest(f"properties.{NAME_MAPPING_PROPERTY}: must hold {expected}")
