"""PyIceberg, DuckDB, the client and the next scan read what Spark has written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession

from frazil.spark import connect
from frazil.spark.session import Session
from tests.spark.leftovers import strays
from tests.spark.stock_tables import (
    COLUMNS,
    COPY_ON_WRITE,
    MERGE_ON_READ,
    PARTITIONINGS,
    ROWS,
    rows,
    table_properties,
)
from tests.support.duck import attach
from tests.support.duck import connect as duck_connect

STATEMENTS = (
    f"INSERT INTO {{t}} {ROWS.format(start=20, end=24)}",
    "DELETE FROM {t} WHERE id % 9 = 4",
    "UPDATE {t} SET note = concat(note, '!'), category = 'c/ 9' WHERE id BETWEEN 5 AND 12",
    f"MERGE INTO {{t}} t USING (SELECT * FROM ({ROWS.format(start=18, end=30)})) s ON t.id = s.id"
    " WHEN MATCHED AND t.id = 19 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET amount = s.amount + 1"
    " WHEN NOT MATCHED AND s.id > 26 THEN INSERT *",
)


@pytest.fixture
def pyiceberg(server_url: str) -> Iterator[Catalog]:
    catalog = load_catalog("frazil", type="rest", uri=server_url)
    yield catalog
    catalog.close()


@pytest.fixture
def duck(server_url: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with duck_connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        attach(connection, server_url)
        yield connection


def plain(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Drop the time zones of timestamps, because each reader names them differently."""

    def value(one: Any) -> Any:
        return one.replace(tzinfo=None) if hasattr(one, "tzinfo") else one

    return sorted((tuple(map(value, row)) for row in found), key=repr)


def by_pyiceberg(catalog: Catalog, name: str) -> list[tuple[Any, ...]]:
    found = catalog.load_table(name).scan().to_arrow()
    return plain([tuple(row.values()) for row in found.to_pylist()])


def by_duckdb(duck: duckdb.DuckDBPyConnection, name: str) -> list[tuple[Any, ...]]:
    return plain(duck.execute(f"SELECT * FROM ice.{name}").fetchall())


@pytest.mark.parametrize(
    ("version", "mode", "partitioning"),
    [
        (2, COPY_ON_WRITE, "unpartitioned"),
        (2, MERGE_ON_READ, "identity"),
        (3, COPY_ON_WRITE, "identity"),
        (3, MERGE_ON_READ, "unpartitioned"),
        pytest.param(2, MERGE_ON_READ, "evolved", marks=pytest.mark.full),
        pytest.param(3, MERGE_ON_READ, "bucket", marks=pytest.mark.full),
        pytest.param(3, MERGE_ON_READ, "day", marks=pytest.mark.full),
    ],
)
def test_others_read_what_statements_have_written(
    spark: SparkSession,
    session: Session,
    pyiceberg: Catalog,
    duck: duckdb.DuckDBPyConnection,
    namespace: str,
    version: int,
    mode: str,
    partitioning: str,
) -> None:
    name = f"{namespace}.t"
    session.sql(
        f"CREATE TABLE {name} ({COLUMNS}) {PARTITIONINGS[partitioning]}"
        f" {table_properties(version, mode)}"
    )
    session.table(name).append(spark.sql(ROWS.format(start=0, end=20)))
    if partitioning == "evolved":
        session.sql(f"ALTER TABLE {name} REPLACE PARTITION FIELD category WITH bucket(2, id)")
    for statement in STATEMENTS:
        session.sql(statement.format(t=name))
    expected = plain(rows(session.table(name).scan()))
    assert len(expected) == 20 + 4 - 3 - 1 + 3
    assert by_duckdb(duck, name) == expected
    assert by_pyiceberg(pyiceberg, name) == expected
    by_client = session.client.scan(name).to_pylist()
    assert plain([tuple(row.values()) for row in by_client]) == expected
    assert strays(session, name) == set()


@pytest.mark.parametrize("times", [15, pytest.param(100, marks=pytest.mark.full)])
def test_the_next_scan_sees_what_was_written(
    spark: SparkSession, server_url: str, namespace: str, times: int
) -> None:
    """This holds for both readers, and for one that has read the table before."""
    with (
        connect(spark, server_url, reader="jar") as by_jar,
        connect(spark, server_url, reader="own") as by_own,
    ):
        name = f"{namespace}.t"
        by_jar.sql(f"CREATE TABLE {name} (id BIGINT)")
        for number in range(times):
            by_jar.table(name).append(spark.range(number, number + 1, 1, 1))
            expected = list(range(number + 1))
            for session in (by_jar, by_own):
                assert sorted(row[0] for row in session.table(name).scan().collect()) == expected


@pytest.mark.parametrize("mode", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_merge_right_after_a_new_column(
    spark: SparkSession, each_session: Session, stock: str, namespace: str, mode: str
) -> None:
    """The scanned snapshot has an older schema than the table."""
    name = f"{namespace}.t"
    each_session.sql(f"CREATE TABLE {name} (id BIGINT, note STRING) {table_properties(3, mode)}")
    each_session.table(name).append(spark.range(4).selectExpr("id", "'old' AS note"))
    each_session.sql(f"ALTER TABLE {name} ADD COLUMN size INT")
    each_session.sql(f"ALTER TABLE {name} RENAME COLUMN note TO remark")
    each_session.sql(
        f"MERGE INTO {name} t USING (SELECT id + 2 AS id, 7 AS size FROM range(4)) s"
        " ON t.id = s.id"
        " WHEN MATCHED AND t.size IS NULL THEN UPDATE SET size = s.size"
        " WHEN NOT MATCHED THEN INSERT (id, size) VALUES (s.id, s.size + 1)"
    )
    expected = [
        (0, "old", None),
        (1, "old", None),
        (2, "old", 7),
        (3, "old", 7),
        (4, None, 8),
        (5, None, 8),
    ]
    assert rows(each_session.table(name).scan()) == expected
    assert rows(spark.table(f"{stock}.{name}")) == expected
