"""The data pipeline on Spark: Spark reads and writes the files, and one request commits them.

    import frazil.spark

    session = frazil.spark.connect(spark, "http://127.0.0.1:8181")
    session.table("shop.orders").append(frame)
    session.sql("DELETE FROM shop.orders WHERE id = 7")

No Iceberg jar is needed; if Iceberg's runtime is on Spark's classpath, it reads the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.lazy_names import lazy_names

if TYPE_CHECKING:
    from frazil.spark.session import Session, connect
    from frazil.spark.table import SparkTable

__all__ = ["Session", "SparkTable", "connect"]

# Executors import modules of this package: code of the driver is only loaded when it is used.
__getattr__ = lazy_names(
    __name__,
    {
        "Session": "frazil.spark.session",
        "SparkTable": "frazil.spark.table",
        "connect": "frazil.spark.session",
    },
    extra="spark-local",
)
