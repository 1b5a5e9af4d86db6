"""The data pipeline on Spark: Spark plans and writes the files, one request commits them.

    import frazil.spark

    session = frazil.spark.connect(spark, "http://127.0.0.1:8181")
    session.table("shop.orders").append(frame)
    session.sql("DELETE FROM shop.orders WHERE id = 7")

No Iceberg jar is needed; where Iceberg's runtime is on Spark's classpath, it reads.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.spark.session import Session, connect
    from frazil.spark.table import SparkTable

_HOMES = {
    "Session": "frazil.spark.session",
    "SparkTable": "frazil.spark.table",
    "connect": "frazil.spark.session",
}

__all__ = ["Session", "SparkTable", "connect"]


def __getattr__(name: str) -> Any:
    # Executors import modules of this room; what only a driver needs is loaded when it is used.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
