"""How large rows may be, by a generous guess from their types."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BooleanType,
    DateType,
    NumericType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

SMALL_BYTES: Final = 64 << 20
_FLAT_BYTES: Final = 8
_OTHER_BYTES: Final = 40
_FLAT: Final = (NumericType, DateType, TimestampType, TimestampNTZType, BooleanType)


def is_small(schema: StructType, rows: int | None) -> bool:
    """Whether one process, or each of many, can hold so many rows; None is an unknown number."""
    if rows is None:
        return False
    row_bytes = sum(
        _FLAT_BYTES if isinstance(field.dataType, _FLAT) else _OTHER_BYTES
        for field in schema.fields
    )
    return rows * row_bytes <= SMALL_BYTES
