"""The planned data files: ten columns with bounds, paths of 120 bytes, no Parquet.

A file is identified by its number in its table. In a clustered table, the partition and the
filtered long and string follow the numbers, as after a sorted write. In a scattered table, every
manifest has files of all partitions, and every file spans a hundredth of the values. With fine
partitions there is one partition for every ten files, instead of a hundred in total.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, Final

from benchmarks.commit.files import file_path
from frazil.format.metadata.content_files import DataFile

CLUSTERED: Final = "clustered"
SCATTERED: Final = "scattered"
FINE: Final = "clustered, fine partitions"
PARTITIONS: Final = 100
FILES_OF_A_FINE_ONE: Final = 10
ROWS: Final = 1_000
"""The rows of each file, and the distance from one file's longs to the next file's."""
SPANNED_SHARE: Final = 100
"""A scattered file spans one of this many parts of all values."""

DAY: Final = 1
ID: Final = 2
NAME: Final = 9
TYPES: Final[Mapping[int, str]] = {
    DAY: "date",
    ID: "long",
    3: "long",
    4: "long",
    5: "double",
    6: "double",
    7: "timestamp",
    8: "timestamp",
    NAME: "string",
    10: "string",
}
NAMES: Final[Mapping[int, str]] = {
    **{n: f"c{n}" for n in TYPES},
    DAY: "day",
    ID: "id",
    NAME: "name",
}
DOUBLES: Final = (5, 6)
SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": n, "name": NAMES[n], "required": False, "type": kind} for n, kind in TYPES.items()
    ],
}
SPEC: Final = {
    "spec-id": 0,
    "fields": [{"source-id": DAY, "field-id": 1000, "name": "day", "transform": "identity"}],
}

_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY: Final = (date(2026, 1, 1) - _EPOCH).days
_DAY_MICROS: Final = 86_400_000_000
_MASK: Final = (1 << 64) - 1
_PACKED: Final = {
    "date": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "double": struct.Struct("<d"),
    "timestamp": struct.Struct("<q"),
}


def partition_day(partition: int) -> date:
    return _EPOCH + timedelta(days=_FIRST_DAY + partition)


def name_at(place: int, tail: str) -> str:
    """Return sixteen characters, the length to which writers truncate bounds. Names sort by
    `place`."""
    return f"n{place:09}-{tail}"


def _mixed(number: int, salt: int) -> int:
    """Return a pseudo-random number, because regular values would compress unrealistically well."""
    mixed = (number * 31 + salt) * 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & _MASK
    return (mixed ^ mixed >> 32) >> 1


def partition_of(number: int, files: int, layout: str) -> int:
    if layout == CLUSTERED:
        return number * PARTITIONS // files
    if layout == FINE:
        return number // FILES_OF_A_FINE_ONE
    return _mixed(number, DAY) % PARTITIONS


def bounds(number: int, files: int, layout: str) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the lower and the upper bounds in Iceberg's internal representation."""
    partition = partition_of(number, files, layout)
    day = _FIRST_DAY + partition
    id_place, name_place, span = number, number, 0
    if layout == SCATTERED:
        id_place, name_place = _mixed(number, ID) % files, _mixed(number, NAME) % files
        span = files // SPANNED_SHARE
    lower: dict[int, Any] = {DAY: day, ID: id_place * ROWS}
    upper: dict[int, Any] = {DAY: day, ID: (id_place + span + 1) * ROWS - 1}
    for n in (3, 4):
        lower[n] = _mixed(number, n) >> 24
        upper[n] = lower[n] + (_mixed(number, n + 20) >> 28)
    for n in DOUBLES:
        lower[n] = (_mixed(number, n) >> 30) / 1000
        upper[n] = lower[n] + (_mixed(number, n + 20) >> 30) / 1000
    for n in (7, 8):
        lower[n] = day * _DAY_MICROS + _mixed(number, n) % (_DAY_MICROS // 2)
        upper[n] = lower[n] + _mixed(number, n + 20) % (_DAY_MICROS // 2)
    lower[NAME] = name_at(name_place, "00000")
    upper[NAME] = name_at(name_place + span, "zzzzz")
    lower[10] = f"a{_mixed(number, 10):015x}"[:16]
    upper[10] = f"z{_mixed(number, 30):015x}"[:16]
    return lower, upper


def content_file(folder: str, number: int, files: int, layout: str) -> DataFile:
    """Return the file as a manifest describes it."""
    lower, upper = bounds(number, files, layout)
    return DataFile(
        file_path=file_path(folder, number),
        file_format="PARQUET",
        partition=(lower[DAY],),
        record_count=ROWS,
        file_size_in_bytes=64_000 + number % 1_000,
        column_sizes={n: 6_000 + _mixed(number, n) % 1_000 for n in TYPES},
        value_counts=dict.fromkeys(TYPES, ROWS),
        null_value_counts=dict.fromkeys(TYPES, 0),
        nan_value_counts=dict.fromkeys(DOUBLES, 0),
        lower_bounds=binary(lower),
        upper_bounds=binary(upper),
        split_offsets=[4],
        sort_order_id=0,
    )


def binary(values: Mapping[int, Any]) -> dict[int, bytes]:
    return {
        n: value.encode() if isinstance(value, str) else _PACKED[TYPES[n]].pack(value)
        for n, value in values.items()
    }
