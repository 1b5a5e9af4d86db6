"""The rows that writers write: a small Arrow table, and keys that belong to one bucket each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

ROWS: Final = 100
"""The rows of one append."""
UPDATED_NAME: Final = "updated"


def small_table() -> pa.Table:
    """Return a few columns of different types, with the field ids that the table assigned to
    them."""
    return _table(
        id=pa.array(range(ROWS), pa.int64()),
        name=pa.array([f"row {number}" for number in range(ROWS)], pa.string()),
        amount=pa.array([number * 1.5 for number in range(ROWS)], pa.float64()),
        at=pa.array(range(ROWS), pa.timestamp("us", tz="UTC")),
    )


def keyed_table(keys: Sequence[int], name: str) -> pa.Table:
    """Return a table with a row for each key."""
    return _table(
        id=pa.array(keys, pa.int64()),
        name=pa.array([name] * len(keys), pa.string()),
    )


def _table(**columns: pa.Array) -> pa.Table:
    fields = [
        pa.field(name, column.type, metadata={b"PARQUET:field_id": str(number).encode()})
        for number, (name, column) in enumerate(columns.items(), start=1)
    ]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def keys_by_bucket(bucket_of: Callable[[int], Any], buckets: int, count: int) -> list[list[int]]:
    """Return `count` keys for each bucket, in order. The key ranges of all buckets overlap."""
    found: list[list[int]] = [[] for _ in range(buckets)]
    for key in _numbers_until(lambda: all(len(keys) >= count for keys in found)):
        found[bucket_of(key)].append(key)
    return [keys[:count] for keys in found]


def _numbers_until(is_enough: Callable[[], bool]) -> Iterator[int]:
    number = 0
    while not is_enough():
        yield number
        number += 1
