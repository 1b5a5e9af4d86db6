"""The columns of a Parquet file as a tree, and the Iceberg types that each can be read as.

Client and server use the same rules, so that the server accepts what the client declares. The tree
and its field ids come from the Arrow form of the schema, because pyarrow shows the groups of a
Parquet schema in no other way. The types of the leaves are Parquet's own: a writer may have stored
its Arrow schema too, but other readers ignore it.

pyarrow is imported inside functions, because client and server must start without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.values import types

FIELD_ID: Final = b"PARQUET:field_id"
_UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without parts, as Parquet stores it."""

    index: int
    """Its position among the leaves of the file."""
    physical_type: str
    logical_type: str
    """Parquet's name, such as `Timestamp`; `None` if there is none."""
    unit: str | None = None
    """`milliseconds`, `microseconds` or `nanoseconds` of times and timestamps."""
    can_be_null: bool = True
    """False if neither the column nor any of its parents can be null."""
    readable_as: tuple[types.Type, ...] = ()
    """The Iceberg types that it can be read as without promotion; the first is the nearest."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file, or a part of a nested one."""

    name: str
    """Parts of lists and maps are called `element`, `key` and `value`, whatever the file says."""
    field_id: int | None
    arrow_type: Any
    kind: types.TypeId | None = None
    """STRUCT, LIST or MAP if the column has parts."""
    parts: tuple[FileColumn, ...] = ()
    leaf: Leaf | None = None
    """Set for columns without parts, if the tree was made from a file's footer."""

    @property
    def type_name(self) -> str:
        """The stored type, for messages."""
        return str(_stored_type(self.arrow_type)) if self.kind is None else self.kind.value


# --- the tree -------------------------------------------------------------------------------------


def columns_of_footer(metadata: Any) -> tuple[FileColumn, ...]:
    """Return the columns of a file from its `pyarrow.parquet.FileMetaData`."""
    schema = metadata.schema
    indexes = iter(range(len(schema)))

    def with_leaves(columns: Iterable[FileColumn]) -> tuple[FileColumn, ...]:
        return tuple(
            replace(column, leaf=_leaf(schema.column(index := next(indexes)), index))
            if column.kind is None
            else replace(column, parts=with_leaves(column.parts))
            for column in columns
        )

    return with_leaves(columns_of_schema(schema.to_arrow_schema()))


def columns_of_schema(schema: Iterable[Any]) -> tuple[FileColumn, ...]:
    """Return the columns of a `pyarrow.Schema`, without what only a footer knows."""
    return tuple(_column(field.name, field) for field in schema)


def _column(name: str, field: Any) -> FileColumn:
    kind, parts = _parts(_stored_type(field.type))
    columns = tuple(_column(part_name, part) for part_name, part in parts)
    return FileColumn(name, field_id_of(field), field.type, kind, columns)


def field_id_of(field: Any) -> int | None:
    """Return the field id of a `pyarrow.Field`."""
    text = (field.metadata or {}).get(FIELD_ID)
    # Some writers give a negative id to columns that have none.
    return None if text is None or int(text) < 0 else int(text)


def _stored_type(type_: Any) -> Any:
    """Return the type without a dictionary or an extension around it."""
    import pyarrow as pa

    if isinstance(type_, pa.BaseExtensionType):
        return _stored_type(type_.storage_type)
    return _stored_type(type_.value_type) if pa.types.is_dictionary(type_) else type_


def _parts(type_: Any) -> tuple[types.TypeId | None, Sequence[tuple[str, Any]]]:
    import pyarrow as pa

    if pa.types.is_struct(type_):
        return types.TypeId.STRUCT, [(field.name, field) for field in type_]
    if pa.types.is_map(type_):
        return types.TypeId.MAP, [("key", type_.key_field), ("value", type_.item_field)]
    if is_list(type_):
        return types.TypeId.LIST, [("element", type_.value_field)]
    return None, []


def is_list(type_: Any) -> bool:
    """Whether a `pyarrow.DataType` is a list of any layout."""
    import pyarrow as pa

    checks = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(check(type_) for check in checks)


def all_columns(columns: Iterable[FileColumn]) -> Iterator[FileColumn]:
    for column in columns:
        yield column
        yield from all_columns(column.parts)


def has_field_ids(columns: Iterable[FileColumn]) -> bool:
    return any(column.field_id is not None for column in all_columns(columns))


# --- the types of leaves --------------------------------------------------------------------------


def _leaf(column: Any, index: int) -> Leaf:
    """Read a `pyarrow.parquet.ColumnSchema`."""
    logical: dict[str, Any] = json.loads(column.logical_type.to_json())
    return Leaf(
        index,
        column.physical_type,
        logical["Type"],
        logical.get("timeUnit"),
        column.max_definition_level > 0,
        _readable_as(column, logical),
    )


def _readable_as(column: Any, logical: dict[str, Any]) -> tuple[types.Type, ...]:
    """Return what Iceberg's Java readers accept (`BaseParquetReaders`)."""
    name = logical["Type"]
    if name in _BY_LOGICAL_TYPE:
        return _BY_LOGICAL_TYPE[name]
    if name == "Decimal":
        fits = 1 <= logical["precision"] <= types.MAX_DECIMAL_PRECISION
        return (types.DecimalType(logical["precision"], logical["scale"]),) if fits else ()
    if name == "Time":
        return () if logical["timeUnit"] == "nanoseconds" else (types.TIME,)
    if name == "Timestamp":
        return (_timestamp(logical),)
    if name == "Int":
        return _integer(logical)
    if name != "None":
        return ()
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        fixed = types.FixedType(column.length)
        return (fixed, types.UUID) if column.length == _UUID_BYTES else (fixed,)
    return _BY_PHYSICAL_TYPE.get(column.physical_type, ())


def _timestamp(logical: dict[str, Any]) -> types.Type:
    if logical["timeUnit"] == "nanoseconds":
        return types.TIMESTAMPTZ_NS if logical["isAdjustedToUTC"] else types.TIMESTAMP_NS
    return types.TIMESTAMPTZ if logical["isAdjustedToUTC"] else types.TIMESTAMP


def _integer(logical: dict[str, Any]) -> tuple[types.Type, ...]:
    """Refuse unsigned numbers of 32 and 64 bits, which readers would take for signed ones."""
    width, is_signed = logical["bitWidth"], logical["isSigned"]
    if width == 64:
        return (types.LONG,) if is_signed else ()
    return (types.INT,) if is_signed or width < 32 else ()


_BY_LOGICAL_TYPE: Final[dict[str, tuple[types.Type, ...]]] = {
    "String": (types.STRING,),
    "Enum": (types.STRING,),
    "JSON": (types.STRING,),
    "BSON": (types.BINARY,),
    "Date": (types.DATE,),
    "UUID": (types.UUID,),
    "Null": (types.UNKNOWN,),
    # Well-known binary; the table's schema knows the reference system.
    "Geometry": (types.BINARY,),
    "Geography": (types.BINARY,),
}

_BY_PHYSICAL_TYPE: Final[dict[str, tuple[types.Type, ...]]] = {
    "BOOLEAN": (types.BOOLEAN,),
    "INT32": (types.INT,),
    "INT64": (types.LONG,),
    # Timestamps of old Impala and Spark, which do not store whether they have a zone.
    "INT96": (types.TIMESTAMPTZ, types.TIMESTAMP),
    "FLOAT": (types.FLOAT,),
    "DOUBLE": (types.DOUBLE,),
    # Text without its annotation is read as text too.
    "BYTE_ARRAY": (types.BINARY, types.STRING),
}
