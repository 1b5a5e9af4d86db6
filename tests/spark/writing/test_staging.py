"""A staged frame is evaluated once, whatever its columns are, and leaves no files behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.spark.core.context import Context, Settings
from frazil.spark.writing import staging
from frazil.spark.writing.staging import staged
from tests.support.touched_tables import make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = (
    "SELECT 1 AS id, 2 AS `ID`, 3 AS `a.b c`, null AS nothing, timestamp'2026-05-01 00:00:00' AS t,"
    " timestamp_ntz'2026-05-01 00:00:00' AS n, array(named_struct('x', 1)) AS l, map('k', 1) AS m,"
    " cast(1.5 AS decimal(38, 2)) AS d, interval '1' day AS i"
)


@pytest.fixture(params=["spark", "arrow"])
def context(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Context:
    if request.param == "arrow":
        # Pretend that Spark has no file system for the folder.
        monkeypatch.setattr(staging, "is_local", lambda path: False)
    return Context(spark, client, Settings(temp_dir=str(tmp_path / "temp")), "")


@pytest.fixture
def table(client: Client, namespace: str) -> Table:
    return make_table(client, namespace, 2)


def test_rows_are_those_of_the_first_time(context: Context, table: Table, tmp_path: Path) -> None:
    from pyspark.sql import functions as fn

    frame = context.spark.range(10).select("id", fn.rand().alias("chance"))
    with staged(context, frame, table) as stored:
        rows = stored.frame
        first = sorted(rows.collect())
        assert [row["id"] for row in first] == list(range(10))
        assert sorted(rows.collect()) == first
        assert list((tmp_path / "temp").iterdir()) != []
        joined = rows.alias("a").join(rows.alias("b"), "id").where("a.chance = b.chance")
        assert joined.count() == 10
    assert list((tmp_path / "temp").iterdir()) == []


def test_columns_may_be_of_any_name_and_type(context: Context, table: Table) -> None:
    frame = context.spark.sql(ODD)
    with staged(context, frame, table) as stored:
        rows = stored.frame
        assert rows.columns == frame.columns
        assert [field.dataType.simpleString() for field in rows.schema] == [
            field.dataType.simpleString() for field in frame.schema
        ]
        assert rows.collect() == frame.collect()


def test_microseconds_are_kept_whatever_the_session_says(context: Context, table: Table) -> None:
    name = "spark.sql.parquet.outputTimestampType"
    frame = context.spark.sql("SELECT timestamp'2026-05-01 00:00:00.123456' AS t")
    before = context.spark.conf.get(name)
    assert before is not None
    context.spark.conf.set(name, "TIMESTAMP_MILLIS")
    try:
        with staged(context, frame, table) as stored:
            assert stored.frame.collect() == frame.collect()
        assert context.spark.conf.get(name) == "TIMESTAMP_MILLIS"
    finally:
        context.spark.conf.set(name, before)


def test_no_rows_and_no_typed_columns(context: Context, table: Table, tmp_path: Path) -> None:
    with staged(context, context.spark.range(0), table) as stored:
        rows = stored.frame
        assert rows.columns == ["id"]
        assert rows.collect() == []
    nulls = context.spark.sql("SELECT null AS nothing FROM range(3)")
    with staged(context, nulls, table) as stored:
        assert [row["nothing"] for row in stored.frame.collect()] == [None] * 3
    assert list((tmp_path / "temp").glob("*")) == []


def test_a_failure_leaves_nothing(context: Context, table: Table, tmp_path: Path) -> None:
    broken = context.spark.sql("SELECT raise_error('bad row') AS x")
    with pytest.raises(Exception, match="bad row"), staged(context, broken, table):
        raise AssertionError("the frame was never evaluated")
    assert list((tmp_path / "temp").glob("*")) == []
