"""Settings of a Spark session that are borrowed for as long as something is written.

Some of what a write needs is no option of a single write: Spark takes it from the session. Several
threads may write at once, so the last of them gives back what the first has found.
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
"""Of Spark's own Parquet writer: timestamps to the microsecond, in the calendar of today, field
ids, and decimals as the format has them now."""


@dataclass
class _Borrowed:
    before: str | None
    users: int = 1


_borrowed: WeakKeyDictionary[SparkSession, dict[str, _Borrowed]] = WeakKeyDictionary()
_lock = Lock()


@contextmanager
def session_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Sets what is otherwise. What another thread has borrowed stays as that one wants it."""
    taken: list[str] = []
    try:
        for name, value in wanted.items():
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
