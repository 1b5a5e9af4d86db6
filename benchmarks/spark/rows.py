"""The rows of the benchmark: ten columns of usual kinds, made by Spark itself."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession

DAYS: Final = 30
CHANGED_PERCENT: Final = 1
MERGED_PERCENT: Final = 10

COLUMNS: Final = """
    id,
    pmod(xxhash64(id, 1), 1000000) AS user_id,
    timestamp_seconds(1704067200 + pmod(xxhash64(id, 2), 2592000)) AS ts,
    CAST(pmod(xxhash64(id, 3), 1000000) / 100 AS DECIMAL(12, 2)) AS amount,
    CAST(pmod(xxhash64(id, 4), 100) AS INT) AS qty,
    CAST(pmod(xxhash64(id, 5), 1000000) AS DOUBLE) / 7 AS price,
    CAST(pmod(xxhash64(id, 6), 1000) AS DOUBLE) / 3 AS score,
    concat('c', pmod(xxhash64(id, 7), 50)) AS country,
    concat(hex(xxhash64(id, 8)), hex(xxhash64(id, 9))) AS payload,
    pmod(xxhash64(id, 10), 2) = 0 AS flag
"""

SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"id": position, "name": name, "required": False, "type": kind}
        for position, (name, kind) in enumerate(
            {
                "id": "long",
                "user_id": "long",
                "ts": "timestamptz",
                "amount": "decimal(12, 2)",
                "qty": "int",
                "price": "double",
                "score": "double",
                "country": "string",
                "payload": "string",
                "flag": "boolean",
            }.items(),
            1,
        )
    ],
}
BY_DAY: Final = {
    "spec-id": 0,
    "fields": [{"source-id": 3, "field-id": 1000, "name": "ts_day", "transform": "day"}],
}


def source_rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(*_split(COLUMNS))


def changed(percent: int) -> str:
    """A condition that holds for so many rows of a hundred, spread over all files."""
    return f"pmod(xxhash64(id, 77), 100) < {percent}"


def merged_rows(rows: DataFrame, count: int) -> DataFrame:
    """Nine tenths are rows of the table with another amount, one tenth are new."""
    known = rows.where(changed(MERGED_PERCENT - 1))
    new = rows.where("pmod(xxhash64(id, 78), 100) < 1").withColumn("id", rows.id + count)
    other = "CAST(amount + 1 AS DECIMAL(12, 2))"
    return known.unionAll(new).selectExpr(
        *(f"{other} AS amount" if name == "amount" else name for name in rows.columns)
    )


def _split(columns: str) -> list[str]:
    """One expression a line; commas inside of them stay."""
    return [line.strip().removesuffix(",") for line in columns.strip().splitlines()]
