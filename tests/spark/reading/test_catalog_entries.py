"""Plain `spark.sql` reads the catalog by its name, or says what to write instead."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from frazil.spark import connect
from frazil.spark.reading import catalog_entries
from frazil.spark.session import Session
from frazil.wire.errors import BadRequest
from tests.support.spark import add_catalog


@pytest.fixture
def lake(spark: SparkSession, server_url: str, namespace: str) -> Iterator[Session]:
    """Return a session whose catalog has a name of its own, with a table `t` in the namespace."""
    name = f"lake_{uuid.uuid4().hex[:8]}"
    with connect(spark, server_url, sql_catalog=name, token="secret-of-lake") as session:
        session.sql(f"CREATE TABLE {namespace}.t AS SELECT 1 AS id")
        yield session


def test_plain_spark_sql_reads_the_newest_rows(lake: Session, namespace: str) -> None:
    spark, table = lake.spark, f"{lake.context.settings.sql_catalog}.{namespace}.t"
    first = lake.client.load_table(f"{namespace}.t").head()
    assert spark.sql(f"SELECT id FROM {table}").collect() == [(1,)]
    lake.sql(f"INSERT INTO {table} VALUES (2)")
    assert spark.table(table).count() == 2
    assert lake.sql(f"SELECT {table}.id FROM {table}").count() == 2
    assert spark.sql(f"SELECT id FROM {table} VERSION AS OF {first}").collect() == [(1,)]
    assert "secret-of-lake" not in str(spark.sql("SET").collect())


def test_without_the_runtime_the_error_says_what_to_write(
    lake: Session, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, name = lake.spark, f"lake_{uuid.uuid4().hex[:8]}"
    with monkeypatch.context() as patch:
        patch.setattr(catalog_entries, "CATALOG_CLASS", "org.example.Nobody")
        connect(spark, lake.context.uri, client=lake.client, sql_catalog=name)
    with pytest.raises(Exception, match=r'Write session\.sql\("SELECT …"\)'):
        spark.sql(f"SELECT * FROM {name}.{namespace}.t")
    # A jar may have been added since.
    connect(spark, lake.context.uri, client=lake.client, sql_catalog=name)
    assert spark.sql(f"SELECT * FROM {name}.{namespace}.t").count() == 1


def test_a_catalog_of_the_user_is_left_alone(
    lake: Session, caplog: pytest.LogCaptureFixture
) -> None:
    spark, name = lake.spark, f"mine_{uuid.uuid4().hex[:8]}"
    add_catalog(spark, name, "http://127.0.0.1:1")
    with pytest.raises(BadRequest, match=f"already has a catalog {name}, with other properties"):
        connect(spark, lake.context.uri, sql_catalog=name)
    by_default = replace(lake.context, settings=replace(lake.context.settings, sql_catalog=None))
    before = spark.conf.get("spark.sql.catalog.frazil.uri", None)
    catalog_entries.register_catalog(replace(by_default, uri="http://127.0.0.1:2"))
    with caplog.at_level(logging.WARNING, "frazil.spark"):
        catalog_entries.register_catalog(replace(by_default, uri="http://127.0.0.1:3"))
    assert "with other properties" in caplog.text
    assert "secret-of-lake" not in caplog.text
    uri = spark.conf.get("spark.sql.catalog.frazil.uri")
    assert uri == (before or "http://127.0.0.1:2")
    # One with the same properties is ours, or as good.
    connect(
        spark,
        lake.context.uri,
        token="secret-of-lake",
        sql_catalog=lake.context.settings.sql_catalog,
    )


@pytest.mark.parametrize("name", ["spark_catalog", "a.b", "my lake", "1", "Spark_Catalog"])
def test_other_names_are_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(BadRequest, match=r"^sql_catalog: '.*' is not a name"):
        connect(spark, sql_catalog=name)


def test_the_name_may_be_a_setting_of_spark(spark: SparkSession, server_url: str) -> None:
    spark.conf.set("spark.frazil.sql-catalog", "not a name")
    try:
        with pytest.raises(BadRequest, match=r"^sql_catalog: 'not a name'"):
            connect(spark, server_url)
    finally:
        spark.conf.unset("spark.frazil.sql-catalog")
