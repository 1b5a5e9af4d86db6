"""Calls Iceberg's Java library through PySpark's gateway.

Each Python thread uses its own JVM thread, so Java writers run truly concurrently.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.stock_clients.stock import id_name


class JavaCatalog:
    """`org.apache.iceberg.rest.RESTCatalog` of the runtime jar."""

    def __init__(self, spark: SparkSession, url: str, **properties: str) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._iceberg = jvm.org.apache.iceberg
        self._catalog = self._iceberg.rest.RESTCatalog()
        self._catalog.setConf(spark._jsc.hadoopConfiguration())
        self._catalog.initialize("java", jvm.java.util.HashMap({"uri": url, **properties}))

    def load(self, table: str) -> Any:
        return self._catalog.loadTable(self._iceberg.catalog.TableIdentifier.parse(table))

    def data_file(self, table: Any, *ids: int) -> Any:
        """Write a Parquet file of these ids into the table's folder; return its Java `DataFile`."""
        rows = with_field_ids(id_name(*ids, name="java"))
        folder = Path(table.location().removeprefix("file:").replace("///", "/")) / "data"
        path = folder / f"java-{'-'.join(map(str, ids))}.parquet"
        pq.write_table(rows, path)
        builder = self._iceberg.DataFiles.builder(table.spec())
        builder = builder.withPath(f"file://{path}").withFormat("parquet")
        size = path.stat().st_size
        return builder.withFileSizeInBytes(size).withRecordCount(len(ids)).build()

    def built(self, table: Any, update: Any) -> Callable[[], None]:
        """Build a snapshot on the current head; return a function that commits it later.

        `update.commit()` would load the head again just before it builds and sends, so no other
        commit could be made in between. The request is the same either way.
        """
        snapshot = update.apply()
        operations = table.operations()
        base = operations.current()
        builder = self._iceberg.TableMetadata.buildFrom(base)
        changed = builder.setBranchSnapshot(snapshot, "main").build()
        return lambda: operations.commit(base, changed)

    def close(self) -> None:
        self._catalog.close()


def with_field_ids(rows: pa.Table) -> pa.Table:
    """Set the field ids, because Iceberg finds a Parquet column by its field id."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)})
        for number, field in enumerate(rows.schema, 1)
    ]
    return rows.cast(pa.schema(fields))


def java_class(error: BaseException) -> str:
    """Return the class of the exception that Java threw."""
    thrown = getattr(error, "java_exception", None)
    return str(thrown.getClass().getSimpleName()) if thrown is not None else ""
