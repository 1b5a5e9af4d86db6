"""Both sides write and read tables of every type, and writes can change the schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import pytest
from pyspark.errors import PySparkException

from frazil.spark.schema.spark_types import spark_schema
from frazil.values import types as it
from frazil.values.type_json import struct_to_json
from frazil.values.types import (
    DecimalType,
    FixedType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
)
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.client.catalog_client import Client
    from frazil.spark.session import Session

TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"


def optional(*fields: tuple[int, str, Type]) -> tuple[NestedField, ...]:
    return tuple(NestedField(*field, required=False) for field in fields)


EVERYTHING = StructType(
    (
        NestedField(1, "id", it.LONG, True),
        *optional(
            (2, "b", it.BOOLEAN),
            (3, "i", it.INT),
            (4, "f", it.FLOAT),
            (5, "d", it.DOUBLE),
            (6, "small", DecimalType(9, 2)),
            (7, "middle", DecimalType(18, 2)),
            (8, "large", DecimalType(38, 2)),
            (9, "day", it.DATE),
            (10, "ntz", it.TIMESTAMP),
            (11, "tz", it.TIMESTAMPTZ),
            (12, "s", it.STRING),
            (13, "u", it.UUID),
            (14, "fixed", FixedType(2)),
            (15, "bin", it.BINARY),
            (16, "v", it.VARIANT),
            (17, "st", StructType(optional((18, "u", it.UUID), (19, "v", it.VARIANT)))),
            (20, "us", ListType(NestedField(21, "element", it.UUID, False))),
            (
                22,
                "ls",
                ListType(
                    NestedField(
                        23,
                        "element",
                        StructType((NestedField(24, "x", FixedType(2), True),)),
                        False,
                    )
                ),
            ),
            (
                25,
                "m",
                MapType(
                    NestedField(26, "key", it.STRING, True),
                    NestedField(27, "value", DecimalType(9, 2), False),
                ),
            ),
        ),
    )
)
QUERY = f"""
SELECT 1L AS id, true AS b, 1 AS i, CAST(1.5 AS FLOAT) AS f, 2.5D AS d, 1.25BD AS small,
  -1.25BD AS middle, 12345678901234567890.25BD AS large, DATE'1960-02-29' AS day,
  TIMESTAMP_NTZ'1960-01-01 00:00:00.000001' AS ntz, TIMESTAMP'2024-03-31 02:30:00' AS tz,
  'text' AS s, '{TEXT}' AS u, X'0001' AS fixed, X'FF' AS bin, parse_json('[1, "x"]') AS v,
  named_struct('u', '{TEXT}', 'v', parse_json('1')) AS st, array('{TEXT}', null) AS us,
  array(named_struct('x', X'0001'), null) AS ls, map('k', 1.25BD, 'n', null) AS m
UNION ALL SELECT 2L, null, null, null, null, null, null, null, null, null, null, null, null, null,
  null, null, null, null, null, null
"""


def rows_of(frame: Any) -> list[str]:
    return sorted(map(str, frame.collect()))


def test_every_type_is_written_and_read_by_both_sides(
    own_session: Session, spark: SparkSession, stock: str, client: Client, namespace: str
) -> None:
    name = f"{namespace}.everything"
    client.create_table(name, struct_to_json(EVERYTHING), properties={"format-version": "3"})
    frame = spark.sql(QUERY)
    own_session.table(name).append(frame)
    stored = spark.createDataFrame([], spark_schema(EVERYTHING)).unionByName(frame)
    expected = rows_of(stored)
    assert rows_of(own_session.table(name).scan()) == expected
    assert rows_of(spark.table(f"{stock}.{name}")) == expected
    stored.writeTo(f"{stock}.{name}").append()
    assert rows_of(own_session.table(name).scan()) == sorted(expected * 2)
    where = own_session.table(name).scan(f"u = '{TEXT}' AND small = 1.25", ["id"])
    assert [row["id"] for row in where.collect()] == [1, 1]


ORDERS = StructType(
    (
        NestedField(1, "id", it.LONG, True),
        NestedField(2, "n", it.INT, False, initial_default=1, write_default=7),
        NestedField(3, "place", StructType(optional((4, "x", it.INT))), False),
    )
)


def files_of(location: str) -> list[Path]:
    return sorted(Path(urlparse(location).path).rglob("*.parquet"))


def test_a_write_changes_the_schema_in_its_own_commit(
    session: Session, spark: SparkSession, stock: str, client: Client, namespace: str
) -> None:
    name = f"{namespace}.orders"
    client.create_table(name, struct_to_json(ORDERS), properties={"format-version": "3"})
    table = session.table(name)
    table.append(spark.sql("SELECT 1 AS id, named_struct('x', 5) AS place"))
    more = spark.sql(
        "SELECT named_struct('x', 6, 'y', array(1)) AS place, 3000000000L AS n, 2 AS id,"
        " 'l' AS late"
    )
    with pytest.raises(
        BadRequest, match=r"column late is not in the table.*column place\.y is not"
    ):
        table.append(more)
    before = client.load_table(name)
    table.append(more, merge_schema=True)
    after = client.load_table(name)
    # One commit added both the rows and the columns that they need.
    assert len(after.snapshots) == len(before.snapshots) + 1
    assert len(after.metadata["metadata-log"]) == len(before.metadata["metadata-log"]) + 1
    assert after.snapshot("main").schema_id == after.metadata["current-schema-id"]
    for frame in (table.scan(), spark.table(f"{stock}.{name}")):
        found = [row.asDict(recursive=True) for row in frame.orderBy("id").collect()]
        assert found == [
            {"id": 1, "n": 7, "place": {"x": 5, "y": None}, "late": None},
            {"id": 2, "n": 3_000_000_000, "place": {"x": 6, "y": [1]}, "late": "l"},
        ]
    first = table.scan(snapshot=before.snapshot("main").snapshot_id)
    assert [row.asDict(recursive=True) for row in first.collect()] == [
        {"id": 1, "n": 7, "place": {"x": 5}}
    ]


def test_rows_that_do_not_fit_leave_nothing_behind(
    session: Session, spark: SparkSession, client: Client, namespace: str
) -> None:
    name = f"{namespace}.orders"
    created = client.create_table(name, struct_to_json(ORDERS), properties={"format-version": "3"})
    for query in (
        "SELECT id, 1 AS n FROM VALUES (1L), (null) AS t(id)",
        "SELECT 1L AS id, 3000000000L AS n",
    ):
        with pytest.raises(PySparkException, match=r"column (id|n)"):
            session.table(name).append(spark.sql(query))
    assert client.load_table(name).snapshots == ()
    assert files_of(created.location) == []


def test_types_that_stock_spark_has_none_for_are_written_and_read(
    session: Session, spark: SparkSession, client: Client, namespace: str
) -> None:
    """The session selects other engines, because neither the jar nor Spark supports these types."""
    name = f"{namespace}.precise"
    schema = StructType(
        optional(
            (1, "id", it.INT),
            (2, "ntz", it.TIMESTAMP_NS),
            (3, "tz", it.TIMESTAMPTZ_NS),
            (4, "nothing", it.UNKNOWN),
            (5, "l", ListType(NestedField(6, "element", it.TIMESTAMP_NS, False))),
        )
    )
    client.create_table(name, struct_to_json(schema), properties={"format-version": "3"})
    frame = spark.sql(
        "SELECT 1 AS id, TIMESTAMP_NTZ'1960-01-01 00:00:00.000001' AS ntz,"
        " TIMESTAMP'2024-03-31 02:30:00' AS tz, null AS nothing,"
        " array(TIMESTAMP_NTZ'1960-01-01 00:00:00.000001', null) AS l"
    )
    table = session.table(name)
    table.append(frame)
    assert rows_of(table.scan()) == rows_of(frame)
    assert table.scan(columns=["nothing", "id"]).collect()[0].asDict() == {"nothing": None, "id": 1}
