"""Sets configuration of a Spark session for the duration of a write.

Spark takes some options of a write from the session only. Several threads may write at once: the
first one changes a setting, and the last one restores the value from before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

PARQUET_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""For Spark's Parquet writer: timestamps in microseconds, the proleptic Gregorian calendar, field
ids, and today's encoding of decimals."""


@dataclass
class _Borrowed:
    before: str | None
    users: int = 1


_borrowed: WeakKeyDictionary[SparkSession, dict[str, _Borrowed]] = WeakKeyDictionary()
_lock = Lock()


@contextmanager
def session_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set the values for the block; a setting that another thread has borrowed stays as it is."""
    taken: list[str] = []
    try:
        for name, value in values.items():
            _take(spark, name, value)
            taken.append(name)
        yield
    finally:
        for name in taken:
            _give_back(spark, name)


def _take(spark: SparkSession, name: str, value: str) -> None:
    with _lock:
        borrowed = _borrowed.setdefault(spark, {})
        if name in borrowed:
            borrowed[name].users += 1
            return
        before = spark.conf.get(name, None)
        if before != value:
            spark.conf.set(name, value)
        borrowed[name] = _Borrowed(before)


def _give_back(spark: SparkSession, name: str) -> None:
    with _lock:
        borrowed = _borrowed[spark]
        borrowed[name].users -= 1
        if borrowed[name].users:
            return
        before = borrowed.pop(name).before
        if before is None:
            spark.conf.unset(name)
        elif spark.conf.get(name, None) != before:
            spark.conf.set(name, before)
