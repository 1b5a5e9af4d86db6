"""Tables for comparisons with stock Spark: their partitioning, and how to compare rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from frazil.client.catalog_client import Client
from frazil.spark.session import Session

COPY_ON_WRITE: Final = "copy-on-write"
MERGE_ON_READ: Final = "merge-on-read"

COLUMNS: Final = "id BIGINT, category STRING, amount DECIMAL(10, 2), at TIMESTAMP, note STRING"
PARTITIONINGS: Final = {
    "unpartitioned": "",
    "identity": "PARTITIONED BY (category)",
    "bucket": "PARTITIONED BY (bucket(4, id))",
    "day": "PARTITIONED BY (days(at))",
    # The first rows are written with the first spec, the rest with the second.
    "evolved": "PARTITIONED BY (category)",
}

ROWS: Final = """
    SELECT id,
      CASE WHEN id % 7 = 0 THEN NULL ELSE concat('c/ ', id % 3) END AS category,
      CAST(id * 1.25 AS DECIMAL(10, 2)) AS amount,
      timestamp_seconds(1767225600 + id * 21600) AS at,
      CASE WHEN id % 5 = 0 THEN NULL ELSE concat('n', id) END AS note
    FROM range({start}, {end})
"""

OURS, THEIRS = "ours", "theirs"
"""The names of the two branches, which start from one snapshot."""


@dataclass(frozen=True)
class Pair:
    """One table with one branch for us and one for stock Spark."""

    spark: SparkSession
    session: Session
    name: str
    stock_name: str
    version: int

    @property
    def ours(self) -> str:
        return f"{self.name}.branch_{OURS}"

    @property
    def theirs(self) -> str:
        return f"{self.stock_name}.branch_{THEIRS}"

    @property
    def columns(self) -> str:
        lineage = ", _row_id, _last_updated_sequence_number" if self.version == 3 else ""
        return f"*{lineage}"

    def by_stock(self, branch: str) -> list[tuple[Any, ...]]:
        """Return the rows of a branch as Iceberg's own reader reads them."""
        return rows(self.spark.sql(f"SELECT * FROM {self.stock_name} VERSION AS OF '{branch}'"))

    def lineage(self, branch: str) -> dict[int, tuple[int, int]]:
        """Return each row's id and last updated sequence number, by key."""
        found = self.spark.sql(
            "SELECT id, _row_id, _last_updated_sequence_number"
            f" FROM {self.stock_name} VERSION AS OF '{branch}'"
        ).collect()
        return {row[0]: (row[1], row[2]) for row in found}


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows in an order that does not depend on the engine."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def table_properties(version: int, mode: str) -> str:
    modes = [f"'write.{command}.mode' = '{mode}'" for command in ("delete", "update", "merge")]
    return f"TBLPROPERTIES ('format-version' = '{version}', {', '.join(modes)})"


def make_pair(
    spark: SparkSession,
    session: Session,
    stock: str,
    name: str,
    *,
    version: int,
    partitioning: str,
    mode: str,
) -> Pair:
    """Create a table whose first rows stock Spark writes, and whose next rows we write."""
    stock_name = f"{stock}.{name}"
    spark.sql(
        f"CREATE TABLE {stock_name} ({COLUMNS}) USING iceberg {PARTITIONINGS[partitioning]}"
        f" {table_properties(version, mode)}"
    )
    spark.sql(f"INSERT INTO {stock_name} {ROWS.format(start=0, end=12)}")
    if partitioning == "evolved":
        spark.sql(f"ALTER TABLE {stock_name} REPLACE PARTITION FIELD category WITH bucket(2, id)")
    session.table(name).append(spark.sql(ROWS.format(start=12, end=20)))
    branch(session.client, name, (OURS, THEIRS))
    return Pair(spark, session, name, stock_name, version)


def branch(client: Client, name: str, names: Sequence[str]) -> None:
    for each in names:
        client.create_branch(name, each)
