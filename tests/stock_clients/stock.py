"""Small helpers for tests with unmodified clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

ID_NAME = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)


def pyiceberg_catalog(url: str, **properties: str) -> Catalog:
    """Return the catalog as a user opens it, with only the server's address configured."""
    return load_catalog("frazil", type="rest", uri=url, **properties)


def id_name(*ids: int, name: str = "row") -> pa.Table:
    """Build rows of `ID_NAME`: each id with a name derived from it."""
    names = [f"{name}-{number}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


def pyiceberg_ids(table: Table, **scan: Any) -> list[int]:
    """Return the sorted ids that PyIceberg reads, including duplicates."""
    found = table.scan(selected_fields=("id",), **scan).to_arrow()
    return cast("list[int]", sorted(found["id"].to_pylist()))


def duck_rows(duck: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return duck.execute(query).fetchall()


def spark_rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


def spark_column(spark: SparkSession, query: str) -> list[Any]:
    """Return the first column of the result, in the query's order."""
    return [row[0] for row in spark.sql(query).collect()]


def operations(table: Table) -> list[str]:
    """Return the operation of each snapshot of the table, oldest first."""
    snapshots = sorted(table.metadata.snapshots, key=lambda found: found.sequence_number or 0)
    return [found.summary.operation.value for found in snapshots if found.summary is not None]


def sequence_numbers(table: Table) -> Iterable[int]:
    return sorted(found.sequence_number or 0 for found in table.metadata.snapshots)
