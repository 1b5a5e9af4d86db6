"""The committed data files: ten columns with bounds, paths of 120 bytes, no Parquet.

A file is identified by its number. Every system gets the same data in its own format: REST JSON
for Frazil, and the classes of PyIceberg and Java (`pyiceberg_writer`, `Writers.java`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from frazil.format.metadata.content_files import DataFile

PATH_BYTES: Final = 120
PARTITIONS: Final = 100
"""The number of partitions of a tree. The files fill them one after another, like days."""
ROWS: Final = 1_000

PART: Final = 1
LONGS: Final = (2, 3, 4, 5, 6)
DOUBLES: Final = (7, 8)
TEXT: Final = 9
TIME: Final = 10
COLUMN_IDS: Final = tuple(range(1, 11))
TYPES: Final[Mapping[int, str]] = {
    PART: "int",
    **dict.fromkeys(LONGS, "long"),
    **dict.fromkeys(DOUBLES, "double"),
    TEXT: "string",
    TIME: "timestamptz",
}
SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": n, "name": "part" if n == PART else f"c{n}", "required": False, "type": TYPES[n]}
        for n in COLUMN_IDS
    ],
}
SPEC: Final = {
    "spec-id": 0,
    "fields": [{"source-id": PART, "field-id": 1000, "name": "part", "transform": "identity"}],
}

_MASK: Final = (1 << 64) - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def file_path(folder: str, number: int, writer: int = 0) -> str:
    """Return a path of exactly 120 bytes, if the folder is short enough for that."""
    start = f"{folder}/{writer:03}-{number:010}-{_mixed(number, 11):016x}{_mixed(number, 12):016x}"
    return start.ljust(PATH_BYTES - len(".parquet"), "a") + ".parquet"


def _mixed(number: int, column: int) -> int:
    """Return a pseudo-random number, because regular values would compress unrealistically well."""
    mixed = (number * 31 + column) * 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & _MASK
    return (mixed ^ mixed >> 32) >> 1


def size_bytes(number: int) -> int:
    return 64_000 + number % 1_000


def bounds(number: int, partition: int) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the lower and the upper bounds in Iceberg's internal representation."""
    lower: dict[int, Any] = {PART: partition}
    upper: dict[int, Any] = {PART: partition}
    for n in LONGS:
        lower[n] = _mixed(number, n) >> 24
        upper[n] = lower[n] + (_mixed(number, n + 20) >> 28)
    for n in DOUBLES:
        lower[n] = (_mixed(number, n) >> 30) / 1000
        upper[n] = lower[n] + (_mixed(number, n + 20) >> 30) / 1000
    lower[TEXT] = f"a{_mixed(number, TEXT):015x}"[:16]
    upper[TEXT] = f"z{_mixed(number, TEXT + 20):015x}"[:16]
    lower[TIME], upper[TIME] = number * 60_000_000, (number + 1) * 60_000_000 - 1
    return lower, upper


def content_file(folder: str, number: int, partition: int) -> DataFile:
    """Return the file as a manifest describes it."""
    lower, upper = bounds(number, partition)
    return DataFile(
        file_path=file_path(folder, number),
        file_format="PARQUET",
        partition=(partition,),
        record_count=ROWS,
        file_size_in_bytes=size_bytes(number),
        column_sizes=dict.fromkeys(COLUMN_IDS, 6_000),
        value_counts=dict.fromkeys(COLUMN_IDS, ROWS),
        null_value_counts=dict.fromkeys(COLUMN_IDS, 0),
        nan_value_counts=dict.fromkeys(DOUBLES, 0),
        lower_bounds=binary(lower),
        upper_bounds=binary(upper),
        split_offsets=[4],
        sort_order_id=0,
    )


def binary(values: Mapping[int, Any]) -> dict[int, bytes]:
    return {n: _binary(TYPES[n], value) for n, value in values.items()}


def _binary(type_name: str, value: Any) -> bytes:
    if type_name == "string":
        return str(value).encode()
    return struct.pack({"int": "<i", "double": "<d"}.get(type_name, "<q"), value)


def declared(folder: str, number: int, partition: int, writer: int = 0) -> dict[str, Any]:
    """Return the file as a request declares it."""
    lower, upper = bounds(number, partition)
    return {
        "content": "data",
        "spec-id": 0,
        "partition": [partition],
        "file-path": file_path(folder, number, writer),
        "file-format": "parquet",
        "file-size-in-bytes": size_bytes(number),
        "record-count": ROWS,
        "split-offsets": [4],
        "sort-order-id": 0,
        "column-sizes": _counts(COLUMN_IDS, 6_000),
        "value-counts": _counts(COLUMN_IDS, ROWS),
        "null-value-counts": _counts(COLUMN_IDS, 0),
        "nan-value-counts": _counts(DOUBLES, 0),
        "lower-bounds": _values(lower),
        "upper-bounds": _values(upper),
    }


def _counts(columns: tuple[int, ...], value: int) -> dict[str, Any]:
    return {"keys": list(columns), "values": [value] * len(columns)}


def _values(values: Mapping[int, Any]) -> dict[str, Any]:
    return {
        "keys": list(values),
        "values": [_time(value) if n == TIME else value for n, value in values.items()],
    }


def _time(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
