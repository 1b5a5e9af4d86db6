"""PyIceberg, DuckDB and Spark share one server, and each reads what the others wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from tests.stock_clients.stock import (
    ID_NAME,
    duck_rows,
    id_name,
    operations,
    pyiceberg_ids,
    sequence_numbers,
    spark_column,
    spark_rows,
)

Rows = list[tuple[int, str]]


@dataclass(frozen=True)
class Client:
    """The operations of a stock client on a table of `id` and `name` in the test's namespace."""

    name: str
    create: Callable[[str], object]
    append: Callable[[str, int], object]
    delete: Callable[[str, int], object]
    read: Callable[[str], Rows]


@pytest.fixture
def clients(
    iceberg: Catalog, duck: duckdb.DuckDBPyConnection, sql: SparkSession, namespace: str
) -> list[Client]:
    def pyiceberg_read(table: str) -> Rows:
        found = iceberg.load_table((namespace, table)).scan().to_arrow().to_pylist()
        return sorted((row["id"], row["name"]) for row in found)

    def duck_run(statement: str) -> Rows:
        return [(row[0], row[1]) for row in duck_rows(duck, statement)]

    def spark_run(statement: str) -> Rows:
        return [(row[0], row[1]) for row in spark_rows(sql, statement)]

    inside = f"ice.{namespace}"
    return [
        Client(
            "pyiceberg",
            lambda table: iceberg.create_table((namespace, table), ID_NAME),
            lambda table, number: iceberg.load_table((namespace, table)).append(
                id_name(number, name="pyiceberg")
            ),
            lambda table, number: iceberg.load_table((namespace, table)).delete(f"id = {number}"),
            pyiceberg_read,
        ),
        Client(
            "duckdb",
            lambda table: duck.execute(f"CREATE TABLE {inside}.{table} (id BIGINT, name VARCHAR)"),
            lambda table, number: duck.execute(
                f"INSERT INTO {inside}.{table} VALUES ({number}, 'duckdb-{number}')"
            ),
            lambda table, number: duck.execute(f"DELETE FROM {inside}.{table} WHERE id = {number}"),
            lambda table: duck_run(f"SELECT id, name FROM {inside}.{table} ORDER BY id"),
        ),
        Client(
            "spark",
            lambda table: sql.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg"),
            lambda table, number: sql.sql(
                f"INSERT INTO {table} VALUES ({number}, 'spark-{number}')"
            ),
            lambda table, number: sql.sql(f"DELETE FROM {table} WHERE id = {number}"),
            lambda table: spark_run(f"SELECT id, name FROM {table} ORDER BY id"),
        ),
    ]


def test_everybody_appends_everywhere_and_reads_the_same(
    clients: list[Client], iceberg: Catalog, namespace: str
) -> None:
    """Each client creates a table, all append to all tables, and all read the same rows."""
    wanted: dict[str, Rows] = {}
    for owner in clients:
        table = f"of_{owner.name}"
        owner.create(table)
        wanted[table] = []
        for round_number in (0, 1):
            for position, writer in enumerate(clients):
                number = 10 * round_number + position
                writer.append(table, number)
                wanted[table].append((number, f"{writer.name}-{number}"))
    for table, rows in wanted.items():
        for reader in clients:
            assert reader.read(table) == rows, f"{reader.name} reads {table}"
        loaded = iceberg.load_table((namespace, table))
        assert operations(loaded) == ["append"] * 6
        assert list(sequence_numbers(loaded)) == [1, 2, 3, 4, 5, 6]


def test_everybody_deletes_what_another_wrote(
    clients: list[Client], iceberg: Catalog, namespace: str
) -> None:
    """PyIceberg rewrites files, DuckDB writes position deletes, and Spark does either."""
    clients[2].create("t")
    for number in range(9):
        clients[number % 3].append("t", number)
    # Each client in turn deletes a row that the next client wrote.
    for position, client in enumerate(clients):
        client.delete("t", (position + 1) % 3)
    wanted = [(number, f"{clients[number % 3].name}-{number}") for number in range(3, 9)]
    for reader in clients:
        assert reader.read("t") == wanted, f"{reader.name} reads"
    assert len(iceberg.load_table((namespace, "t")).snapshots()) == 12


def test_a_schema_changed_by_one_is_seen_by_all(
    clients: list[Client],
    iceberg: Catalog,
    duck: duckdb.DuckDBPyConnection,
    sql: SparkSession,
    namespace: str,
) -> None:
    clients[0].create("t")
    clients[0].append("t", 1)
    sql.sql("ALTER TABLE t ADD COLUMN size INT")
    duck.execute(f"ALTER TABLE ice.{namespace}.t RENAME COLUMN name TO title")
    with iceberg.load_table((namespace, "t")).update_schema() as update:
        update.add_column("place", ID_NAME.find_type("name"))
    sql.sql("INSERT INTO t VALUES (2, 'b', 7, 'here')")
    wanted = [(1, "pyiceberg-1", None, None), (2, "b", 7, "here")]
    columns = "id, title, size, place"
    assert spark_rows(sql, f"SELECT {columns} FROM t ORDER BY id") == wanted
    assert duck_rows(duck, f"SELECT {columns} FROM ice.{namespace}.t ORDER BY id") == wanted
    found = iceberg.load_table((namespace, "t")).scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == wanted


def test_version_3_written_by_spark_and_duckdb_is_read_by_all(
    duck: duckdb.DuckDBPyConnection, sql: SparkSession, iceberg: Catalog, namespace: str
) -> None:
    sql.sql(
        "CREATE TABLE t (id BIGINT) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    sql.sql("INSERT INTO t SELECT /*+ COALESCE(1) */ id FROM range(6)")
    sql.sql("DELETE FROM t WHERE id = 1")
    duck.execute(f"DELETE FROM ice.{namespace}.t WHERE id = 2")
    duck.execute(f"INSERT INTO ice.{namespace}.t VALUES (10)")
    sql.sql("DELETE FROM t WHERE id = 3")
    wanted = [0, 4, 5, 10]
    assert spark_column(sql, "SELECT id FROM t ORDER BY id") == wanted
    found = duck_rows(duck, f"SELECT id FROM ice.{namespace}.t ORDER BY id")
    assert [row[0] for row in found] == wanted
    assert spark_column(sql, "SELECT _row_id FROM t ORDER BY id") == [0, 4, 5, 6]
    table = iceberg.load_table((namespace, "t"))
    assert table.metadata.next_row_id == 7  # type: ignore[union-attr]
    assert pyiceberg_ids(table) == wanted


def test_a_view_of_spark_is_seen_by_pyiceberg(
    sql: SparkSession, iceberg: Catalog, namespace: str
) -> None:
    sql.sql("CREATE VIEW v AS SELECT 1 AS id")
    assert iceberg.list_views(namespace) == [(namespace, "v")]
    assert iceberg.list_tables(namespace) == []
    assert iceberg.load_view((namespace, "v")).sql_for("spark") is not None
    iceberg.drop_view((namespace, "v"))
    # Other tests leave temporary views in the session, which SHOW VIEWS lists too.
    assert [row for row in spark_rows(sql, "SHOW VIEWS") if not row[2]] == []
