"""The data pipeline on Spark: Spark reads and writes the files, and one request commits them.

    import frazil.spark

    session = frazil.spark.connect(spark, "http://127.0.0.1:8181")
    session.table("shop.orders").append(frame)
    session.sql("DELETE FROM shop.orders WHERE id = 7")

No Iceberg jar is needed; if Iceberg's runtime is on Spark's classpath, it reads the tables.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.spark.session import Session, connect
    from frazil.spark.table import SparkTable

_MODULES = {
    "Session": "frazil.spark.session",
    "SparkTable": "frazil.spark.table",
    "connect": "frazil.spark.session",
}

__all__ = ["Session", "SparkTable", "connect"]


def __getattr__(name: str) -> Any:
    # Executors import modules of this package: code of the driver is only loaded when it is used.
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
