"""The columns of a Parquet file as a tree, and the Iceberg types that each can be read as.

The tree and its field ids are taken from the Arrow form of the schema, because pyarrow shows the
groups of a Parquet schema in no other way. The types of the leaves are Parquet's own: the Arrow
schema that a writer may have stored beside them is nothing that other readers look at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from frazil.values.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    MAX_DECIMAL_PRECISION,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    TIMESTAMPTZ_NS,
    UNKNOWN,
    UUID,
    DecimalType,
    FixedType,
    Type,
    TypeId,
)

_FIELD_ID: Final = b"PARQUET:field_id"
_UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that holds values, as Parquet has it."""

    index: int
    """Its position among the leaves of the file."""
    physical_type: str
    logical_type: str
    """Parquet's name, such as `Timestamp`; `None` where there is none."""
    unit: str | None = None
    """`milliseconds`, `microseconds` or `nanoseconds` of times and timestamps."""
    can_be_null: bool = True
    """False where neither it nor anything that it is nested in can be null."""
    readable_as: tuple[Type, ...] = ()
    """The Iceberg types that it can be read as by itself; the first is the nearest."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column, or a part of a nested one."""

    name: str
    """Parts of lists and maps are called `element`, `key` and `value`, whatever the file says."""
    field_id: int | None
    shown: str
    """The type, as a message shows it."""
    leaf: Leaf | None = None
    kind: TypeId | None = None
    """STRUCT, LIST or MAP where it has parts."""
    parts: tuple[FileColumn, ...] = ()


def columns_of(metadata: Any) -> tuple[FileColumn, ...]:
    """The columns of a file from its `pyarrow.parquet.FileMetaData`."""
    schema = metadata.schema
    leaves = iter(range(len(schema)))
    return tuple(_column(field.name, field, schema, leaves) for field in schema.to_arrow_schema())


def all_columns(columns: Iterable[FileColumn]) -> Iterator[FileColumn]:
    for column in columns:
        yield column
        yield from all_columns(column.parts)


def _column(name: str, field: Any, schema: Any, leaves: Iterator[int]) -> FileColumn:
    field_id = _field_id(field)
    plain = _plain(field.type)
    kind, parts = _parts(plain)
    if kind is not None:
        columns = tuple(_column(part, child, schema, leaves) for part, child in parts)
        return FileColumn(name, field_id, kind.value, kind=kind, parts=columns)
    return FileColumn(name, field_id, str(plain), leaf=_leaf(schema, next(leaves)))


def _field_id(field: Any) -> int | None:
    found = (field.metadata or {}).get(_FIELD_ID)
    # Some writers give a negative id to columns that have none.
    return None if found is None or int(found) < 0 else int(found)


def _plain(type_: Any) -> Any:
    """The type that is stored: without a dictionary around it, and without an extension."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    return _plain(type_.value_type) if pa.types.is_dictionary(type_) else type_


def _parts(type_: Any) -> tuple[TypeId | None, list[tuple[str, Any]]]:
    types = pa.types
    if types.is_struct(type_):
        fields = [type_.field(position) for position in range(type_.num_fields)]
        return TypeId.STRUCT, [(field.name, field) for field in fields]
    if types.is_map(type_):
        return TypeId.MAP, [("key", type_.key_field), ("value", type_.item_field)]
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    views = (types.is_list_view, types.is_large_list_view)
    if any(is_one(type_) for is_one in (*lists, *views)):
        return TypeId.LIST, [("element", type_.value_field)]
    return None, []


def _leaf(schema: Any, index: int) -> Leaf:
    column = schema.column(index)
    logical: dict[str, Any] = json.loads(column.logical_type.to_json())
    return Leaf(
        index,
        column.physical_type,
        logical["Type"],
        logical.get("timeUnit"),
        column.max_definition_level > 0,
        _readable_as(column, logical),
    )


def _readable_as(column: Any, logical: dict[str, Any]) -> tuple[Type, ...]:
    """As Iceberg's Java readers have it (`BaseParquetReaders`)."""
    name = logical["Type"]
    if name in _BY_LOGICAL_TYPE:
        return _BY_LOGICAL_TYPE[name]
    if name == "Decimal":
        fits = 1 <= logical["precision"] <= MAX_DECIMAL_PRECISION
        return (DecimalType(logical["precision"], logical["scale"]),) if fits else ()
    if name == "Time":
        return () if logical["timeUnit"] == "nanoseconds" else (TIME,)
    if name == "Timestamp":
        return (_timestamp(logical),)
    if name == "Int":
        return _integer(logical)
    if name != "None":
        return ()
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        fixed = FixedType(column.length)
        return (fixed, UUID) if column.length == _UUID_BYTES else (fixed,)
    return _BY_PHYSICAL_TYPE.get(column.physical_type, ())


def _timestamp(logical: dict[str, Any]) -> Type:
    if logical["timeUnit"] == "nanoseconds":
        return TIMESTAMPTZ_NS if logical["isAdjustedToUTC"] else TIMESTAMP_NS
    return TIMESTAMPTZ if logical["isAdjustedToUTC"] else TIMESTAMP


def _integer(logical: dict[str, Any]) -> tuple[Type, ...]:
    """Unsigned numbers of 32 and 64 bits fit no Iceberg type: readers take them for signed."""
    width, is_signed = logical["bitWidth"], logical["isSigned"]
    if width == 64:
        return (LONG,) if is_signed else ()
    return (INT,) if is_signed or width < 32 else ()


_BY_LOGICAL_TYPE: Final[dict[str, tuple[Type, ...]]] = {
    "String": (STRING,),
    "Enum": (STRING,),
    "JSON": (STRING,),
    "BSON": (BINARY,),
    "Date": (DATE,),
    "UUID": (UUID,),
    "Null": (UNKNOWN,),
    # Well-known binary; which CRS a column has is the table's to say.
    "Geometry": (BINARY,),
    "Geography": (BINARY,),
}

_BY_PHYSICAL_TYPE: Final[dict[str, tuple[Type, ...]]] = {
    "BOOLEAN": (BOOLEAN,),
    "INT32": (INT,),
    "INT64": (LONG,),
    # Timestamps of old Impala and Spark: whether they have a zone, nobody wrote down.
    "INT96": (TIMESTAMPTZ, TIMESTAMP),
    "FLOAT": (FLOAT,),
    "DOUBLE": (DOUBLE,),
    # Text without its annotation is read as text too.
    "BYTE_ARRAY": (BINARY, STRING),
}
