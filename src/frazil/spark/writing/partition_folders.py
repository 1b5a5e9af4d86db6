"""Encodes partition values for the names of folders that Spark's writer makes, and decodes them.

Only these names say which partition a file belongs to, so that they must be lossless. Spark writes
null and the empty text alike, and a Java whose locale is not UTF-8 writes question marks for other
letters: texts that could not be decoded are encoded first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote

from pyspark.sql import Column
from pyspark.sql import functions as fn

from frazil.spark.schema.partition_transforms import partition_column, unix_micros
from frazil.spark.schema.spark_types import FLOATS
from frazil.values import temporal
from frazil.values.partition_proof import PartitionField
from frazil.values.transforms import Void
from frazil.values.types import StructType, Type, TypeId

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
IN_FILE: Final = object()
"""Stands for a value too long for a folder's name, which must be read from the file."""

_MARK: Final = "~"
_HEX: Final = f"{_MARK}x"
_LONG: Final = f"{_MARK}h"
_MAX_TEXT_BYTES: Final = 90
"""File systems allow 255 bytes, and Spark writes some bytes as three."""
_TIMESTAMPS: Final = frozenset({TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ})


def folder_columns(
    fields: Sequence[PartitionField], schema: StructType, taken: Collection[str]
) -> dict[str, Column]:
    """Return columns to partition the output by, named after the partition's fields if possible.

    Spark leaves the columns that it partitions by out of the files, so that their names must not be
    among the table's own. Fields that are always null have no folder.
    """
    used = {name.lower() for name in taken}
    columns = {}
    for field in fields:
        if not _has_folder(field):
            continue
        name = field.name
        while name.lower() in used:
            name = f"{name}_"
        used.add(name.lower())
        assert field.result_type is not None
        columns[name] = _lossless(field.result_type, partition_column(field, schema))
    return columns


def folder_values(fields: Sequence[PartitionField], path: str) -> tuple[Any, ...] | None:
    """Return the partition of a file by its path below the folder of the write.

    None if the path has fewer folders, like that of the empty file which Spark writes for no rows.
    """
    *folders, _ = path.strip("/").split("/")
    if len(folders) != sum(map(_has_folder, fields)):
        return None
    names = iter(folders)
    return tuple(_value(field, next(names)) if _has_folder(field) else None for field in fields)


def _has_folder(field: PartitionField) -> bool:
    return field.source is not None and not isinstance(field.transform, Void)


# --- encoding -----------------------------------------------------------------------------------


def _lossless(type_: Type, column: Column) -> Column:
    if type_.type_id in _TIMESTAMPS:
        return unix_micros(type_, column)
    if type_.type_id in FLOATS:
        # Rows are sorted by the folder's name: as numbers, 0.0 and -0.0 would be mixed.
        return column.cast("string")
    if type_.type_id is TypeId.STRING:
        return _lossless_text(column)
    if type_.type_id is TypeId.BINARY:
        short = fn.octet_length(column) <= _MAX_TEXT_BYTES
        return fn.when(short, _hex(column)).otherwise(_digest(column))
    return column


def _lossless_text(column: Column) -> Column:
    size = fn.octet_length(column)
    is_plain = (
        (size > 0)
        & (size <= _MAX_TEXT_BYTES)
        & (size == fn.char_length(column))
        & (column != NULL_FOLDER)
        & ~column.startswith(_MARK)
        & ~column.contains("\0")
    )
    short = size <= _MAX_TEXT_BYTES
    return (
        fn.when(is_plain | column.isNull(), column)
        .when(short, _hex(column.cast("binary")))
        .otherwise(_digest(column))
    )


def _hex(column: Column) -> Column:
    return fn.concat(fn.lit(_HEX), fn.hex(column))


def _digest(column: Column) -> Column:
    return fn.concat(fn.lit(_LONG), fn.sha2(column.cast("binary"), 256))


# --- decoding -----------------------------------------------------------------------------------


def _value(field: PartitionField, folder: str) -> Any:
    text = unquote(folder.partition("=")[2])
    if text == NULL_FOLDER:
        return None
    if text.startswith(_LONG):
        return IN_FILE
    assert field.result_type is not None
    return _PARSERS[field.result_type.type_id](text)


def _text(text: str) -> str:
    return _bytes(text).decode() if text.startswith(_HEX) else text


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix(_HEX))


_PARSERS: Final[Mapping[TypeId, Callable[[str], Any]]] = {
    TypeId.BOOLEAN: lambda text: text == "true",
    TypeId.INT: int,
    TypeId.LONG: int,
    TypeId.FLOAT: float,
    TypeId.DOUBLE: float,
    TypeId.DECIMAL: Decimal,
    TypeId.DATE: temporal.days_from_date,
    TypeId.TIMESTAMP: int,
    TypeId.TIMESTAMPTZ: int,
    TypeId.STRING: _text,
    TypeId.BINARY: _bytes,
}
