"""The footer of a Parquet file: how many rows it has, and its columns in Iceberg's terms.

Read from the end of the file alone. pyarrow, which takes the footer apart, is loaded with the
first one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from frazil.format.declared.file_columns import FileColumn
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
from frazil.wire.errors import BadRequest

FIRST_READ_BYTES: Final = 64 << 10
MAX_FOOTER_BYTES: Final = 64 << 20
_MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"
_TAIL: Final = struct.Struct("<I4s")
_FIELD_ID: Final = b"PARQUET:field_id"


class InvalidParquet(ValueError):
    """The bytes are not the end of a Parquet file that can be read."""


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    row_count: int
    columns: tuple[FileColumn, ...]


def read_footer(read: Callable[[int, int], bytes], size: int) -> ParquetFooter:
    """The footer of a file of `size` bytes; `read` takes an offset and a length.

    Two reads at most: the last 64 KiB hold nearly every footer.
    """
    if size < len(_MAGIC) + _TAIL.size:
        raise InvalidParquet(f"{size} bytes are too few for a Parquet file")
    tail = read(max(0, size - FIRST_READ_BYTES), min(size, FIRST_READ_BYTES))
    length, magic = _TAIL.unpack(tail[-_TAIL.size :])
    if magic == _ENCRYPTED_MAGIC:
        raise InvalidParquet("its footer is encrypted")
    if magic != _MAGIC:
        raise InvalidParquet(f"a Parquet file ends with {_MAGIC!r}, this one with {magic!r}")
    if length > MAX_FOOTER_BYTES:
        raise InvalidParquet(f"its footer of {length} bytes is above {MAX_FOOTER_BYTES}")
    whole = length + _TAIL.size
    if whole > size - len(_MAGIC):
        raise InvalidParquet(f"a footer of {length} bytes does not fit into {size}")
    if whole > len(tail):
        tail = read(size - whole, whole)
    return _parse(tail[-whole:])


def check_installed() -> None:
    """Says in plain words what is missing, before any file is looked at."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise BadRequest(
            "properties.frazil.commit.verify-files: footer needs pyarrow, which is not installed "
            "on the server: install frazil[parquet], or set the property to exists"
        ) from None


def _parse(tail: bytes) -> ParquetFooter:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # A footer tells where it begins from its end, so that nothing else of the file is needed.
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
        leaves = (metadata.schema.column(n).physical_type for n in range(len(metadata.schema)))
        schema = metadata.schema.to_arrow_schema()
        columns = tuple(_column(field.name, field, leaves) for field in schema)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InvalidParquet(f"its footer cannot be read: {error}") from None
    return ParquetFooter(metadata.num_rows, columns)


# --- columns ----------------------------------------------------------------------------------


def _column(name: str, field: Any, leaves: Iterator[str]) -> FileColumn:
    """A column by its Arrow type; `leaves` are the physical types of those without parts."""
    field_id = _field_id(field)
    kind, parts = _parts(_plain(field.type))
    if kind is not None:
        columns = tuple(_column(part_name, part, leaves) for part_name, part in parts)
        return FileColumn(name, field_id, kind.value, kind=kind, parts=columns)
    readable_as = _readable_as(_plain(field.type), next(leaves, ""))
    return FileColumn(name, field_id, str(field.type), readable_as)


def _field_id(field: Any) -> int | None:
    found = (field.metadata or {}).get(_FIELD_ID)
    # Writers without ids of their own leave them out, or write a negative one.
    return None if found is None or int(found) < 0 else int(found)


def _plain(type_: Any) -> Any:
    """The type that is stored: without a dictionary around it, and without an extension."""
    import pyarrow as pa

    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    return _plain(type_.value_type) if pa.types.is_dictionary(type_) else type_


def _parts(type_: Any) -> tuple[TypeId | None, list[tuple[str, Any]]]:
    import pyarrow as pa

    if pa.types.is_struct(type_):
        fields = [type_.field(position) for position in range(type_.num_fields)]
        return TypeId.STRUCT, [(field.name, field) for field in fields]
    if pa.types.is_map(type_):
        return TypeId.MAP, [("key", type_.key_field), ("value", type_.item_field)]
    if (
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    ):
        return TypeId.LIST, [("element", type_.value_field)]
    return None, []


def _readable_as(type_: Any, physical_type: str) -> tuple[Type, ...]:
    """As Java's readers have it: text without its annotation is text too, and the old timestamps
    of 96 bits are either kind."""
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(type_):
        return _timestamps(type_, physical_type)
    if types.is_decimal(type_):
        fits = 1 <= type_.precision <= MAX_DECIMAL_PRECISION
        return (DecimalType(type_.precision, type_.scale),) if fits else ()
    if types.is_fixed_size_binary(type_):
        length: int = type_.byte_width
        return (FixedType(length), UUID) if length == 16 else (FixedType(length),)
    if types.is_time(type_):
        return () if type_.unit == "ns" else (TIME,)
    if types.is_binary(type_) or types.is_large_binary(type_):
        return (BINARY, STRING)
    if types.is_string(type_) or types.is_large_string(type_):
        return (STRING,)
    return _SIMPLE.get(str(type_), ())


_SIMPLE: Final[dict[str, tuple[Type, ...]]] = {
    "bool": (BOOLEAN,),
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), (INT,)),
    "int64": (LONG,),
    "float": (FLOAT,),
    "double": (DOUBLE,),
    "date32[day]": (DATE,),
    "null": (UNKNOWN,),
}
"""By Arrow's names. Unsigned numbers of 32 and 64 bits are no Iceberg type."""


def _timestamps(type_: Any, physical_type: str) -> tuple[Type, ...]:
    if physical_type == "INT96":
        return (TIMESTAMP, TIMESTAMPTZ)
    if type_.unit == "ns":
        return (TIMESTAMPTZ_NS,) if type_.tz else (TIMESTAMP_NS,)
    return (TIMESTAMPTZ,) if type_.tz else (TIMESTAMP,)
