"""Stock readers return the same rows with and without server-side scan planning.

Each comparison also checks the server's log: one reader must have requested a plan, and the
other must not. If a reader does not support a feature, the test asserts its refusal. The test
then fails when the reader gains support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
from py4j.protocol import Py4JJavaError
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import parser
from pyspark.sql import SparkSession

from tests.stock_clients.declared import BY_PART, SCHEMA, Http, RealTable, rows
from tests.stock_clients.stock import duck_rows, pyiceberg_catalog, pyiceberg_ids, spark_rows
from tests.support.patience import wait_until
from tests.support.server import RunningServer

SERVER_SIDE = {"scan-planning-mode": "server"}
TABLE_SAYS_SO = {"frazil.scan-planning-mode": "server"}
WITH_DELETES = pytest.mark.parametrize("version", [2, 3])


@dataclass
class Readers:
    """Spark and PyIceberg, each with and without server-side planning."""

    spark: SparkSession
    server: RunningServer
    namespace: str
    local: Catalog
    planned: Catalog
    spark_local: str
    spark_planned: str
    table: str = "t"

    def plans(self) -> int:
        """Count the plans of the table that the server has returned."""
        name = f"table={self.namespace}.{self.table} status=200"
        lines = self.server.log.splitlines()
        return sum("operation=planTableScan" in line and name in line for line in lines)

    def _counted(self, read: Callable[[], list[Any]], wanted: int = 0) -> tuple[list[Any], int]:
        """Return the rows and the number of plans that the read requested.

        Wait for `wanted` plans, because the server logs a request just after it sends the
        answer.
        """
        before = self.plans()
        found = sorted(read(), key=repr)
        wait_until(lambda: self.plans() - before >= wanted, "a plan was not logged")
        return found, self.plans() - before

    def spark_reads(self, end: str = "", columns: str = "*") -> list[Any]:
        """Return Spark's rows after checking that both ways to plan give the same rows."""

        def read(catalog: str) -> list[Any]:
            name = f"{catalog}.{self.namespace}.{self.table}"
            return spark_rows(self.spark, f"SELECT {columns} FROM {name} {end}")

        own, none = self._counted(lambda: read(self.spark_local))
        planned, some = self._counted(lambda: read(self.spark_planned), 1)
        assert (none, some > 0) == (0, True), end
        assert repr(planned) == repr(own), end  # Compare texts, because NaN is not equal to itself.
        return planned

    def pyiceberg_reads(self, **scan: Any) -> list[Any]:
        """Do the same with PyIceberg, including the count that it computes from the plan alone."""

        def read(catalog: Catalog) -> list[Any]:
            found = catalog.load_table((self.namespace, self.table)).scan(**scan)
            content = [tuple(row.values()) for row in found.to_arrow().to_pylist()]
            assert found.count() == len(content)
            return content

        own, none = self._counted(lambda: read(self.local))
        planned, some = self._counted(lambda: read(self.planned), 2)
        assert (none, some) == (0, 2), scan
        assert repr(planned) == repr(own), scan
        return planned


@pytest.fixture(scope="package")
def planned_spark_catalog(spark: SparkSession, one_server: RunningServer) -> str:
    from tests.support.spark import add_catalog

    add_catalog(spark, "planned", one_server.url, **SERVER_SIDE)
    return "planned"


@pytest.fixture
def planned(catalog_server: RunningServer) -> Iterator[Catalog]:
    catalog = pyiceberg_catalog(catalog_server.url, **SERVER_SIDE)
    yield catalog
    catalog.close()


@pytest.fixture
def readers(
    sql: SparkSession,
    spark_catalog: str,
    planned_spark_catalog: str,
    catalog_server: RunningServer,
    iceberg: Catalog,
    planned: Catalog,
    namespace: str,
) -> Readers:
    return Readers(
        sql, catalog_server, namespace, iceberg, planned, spark_catalog, planned_spark_catalog
    )


@pytest.fixture
def new_table(catalog_server: RunningServer, namespace: str) -> Iterator[Callable[..., RealTable]]:
    http = Http(catalog_server.url)

    def make(**fields: Any) -> RealTable:
        table = RealTable(
            http,
            **{"namespace": namespace, "name": "t", "schema": SCHEMA, "spec": BY_PART} | fields,
        )
        table.create()
        return table

    yield make
    http.close()


# --- filters --------------------------------------------------------------------------------------

SQL_FILTERS = [
    "",
    "WHERE id = 7",
    "WHERE id >= 12 AND part = 'odd'",
    "WHERE part IN ('even', 'none') OR id = 5",
    "WHERE NOT (part = 'even')",
    "WHERE name LIKE 'row-1%'",
    "WHERE id IS NULL",
    "WHERE id BETWEEN 3 AND 9 AND name <> 'row-4'",
    "WHERE part = 'nowhere'",
]
FILTERS = [
    "id == 7",
    "id >= 12 and part == 'odd'",
    "part in ('even', 'none') or id == 5",
    "not (part == 'even')",
    "name like 'row-1%'",
    "id is null",
    "id > 3 and id < 9 and name != 'row-4'",
    "part == 'nowhere'",
]


def test_filters_over_partitions_and_columns(
    new_table: Callable[..., RealTable], readers: Readers
) -> None:
    table = new_table()
    for start in range(0, 20, 4):
        part = "even" if start % 8 == 0 else "odd"
        table.append(table.write(f"f{start}", *range(start, start + 4), part=part))
    found = [readers.spark_reads(end) for end in SQL_FILTERS]
    assert [len(one) for one in found] == [20, 1, 4, 13, 8, 11, 0, 6, 0]
    assert len(readers.pyiceberg_reads()) == 20
    found = [readers.pyiceberg_reads(row_filter=parser.parse(text)) for text in FILTERS]
    assert [len(one) for one in found] == [1, 4, 13, 8, 11, 0, 4, 0]
    assert len(readers.pyiceberg_reads(row_filter="ID == 7", case_sensitive=False)) == 1
    assert readers.pyiceberg_reads(selected_fields=("name",), row_filter="id == 7") == [("row-7",)]


def test_an_empty_table(new_table: Callable[..., RealTable], readers: Readers) -> None:
    new_table()
    assert readers.pyiceberg_reads() == []
    # Spark does not plan scans of a table without a snapshot, so it sends no request.
    assert spark_rows(readers.spark, f"SELECT * FROM planned.{readers.namespace}.t") == []


# --- deletes --------------------------------------------------------------------------------------


@WITH_DELETES
def test_position_deletes_and_vectors(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    table = new_table(version=version)
    a, b = table.write("a", 1, 2, 3), table.write("b", 4, 5, part="b")
    table.append(a, b, table.write("c", 6, 7, part="c"))
    table.overwrite(add_deletes=[table.write_deletes("da", a, 0, 2)])
    table.overwrite(add_deletes=[table.write_deletes("db", b, 1)])
    table.append(table.write("a2", 1, 9))
    wanted = sorted(rows(2, 1, 9) + rows(4, part="b") + rows(6, 7, part="c"), key=repr)
    assert readers.spark_reads() == wanted
    assert readers.pyiceberg_reads() == wanted
    assert readers.spark_reads("WHERE id = 1") == rows(1)
    assert readers.pyiceberg_reads(row_filter="id == 1") == rows(1)
    assert readers.spark_reads("WHERE part = 'b'") == rows(4, part="b")


@WITH_DELETES
def test_equality_deletes(
    new_table: Callable[..., RealTable], readers: Readers, version: int
) -> None:
    table = new_table(version=version)
    table.append(table.write("a", 1, 2, 3), table.write("b", 2, 4, part="b"))
    table.overwrite(add_deletes=[table.write_equality_deletes("e", 2, 3)])
    table.append(table.write("a2", 2))
    wanted = sorted(rows(1, 2) + rows(2, 4, part="b"), key=repr)
    assert readers.spark_reads() == wanted
    assert readers.spark_reads("WHERE id = 2", "id, part") == [(2, "a"), (2, "b")]
    for catalog in (readers.local, readers.planned):
        with pytest.raises((NotImplementedError, ValueError), match="equality deletes"):
            catalog.load_table((readers.namespace, "t")).scan().to_arrow()


def test_spark_deletes_and_merges_what_was_planned(readers: Readers, sql: SparkSession) -> None:
    """Row-level operations use a plan to read the rows that they then rewrite."""
    name = f"planned.{readers.namespace}.t"
    for mode in ("copy-on-write", "merge-on-read"):
        sql.sql(
            f"CREATE OR REPLACE TABLE {name} (id BIGINT, part STRING) USING iceberg "
            f"PARTITIONED BY (part) TBLPROPERTIES ('format-version'='2', "
            f"'write.delete.mode'='{mode}', 'write.merge.mode'='{mode}')"
        )
        sql.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'a'), (3, 'b'), (4, 'b')")
        before = readers.plans()
        sql.sql(f"DELETE FROM {name} WHERE id = 1 OR id = 3")
        sql.sql(
            f"MERGE INTO {name} t USING (SELECT 2L AS id, 'a' AS part) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET t.id = 20"
        )
        assert readers.plans() > before
        assert readers.spark_reads() == [(20, "a"), (4, "b")]


# --- history and evolution ------------------------------------------------------------------------


def test_time_travel(new_table: Callable[..., RealTable], readers: Readers) -> None:
    table = new_table()
    first = table.append(table.write("a", 1, 2))
    second = table.append(table.write("b", 3, part="b"))
    readers.spark.sql(
        f"ALTER TABLE {readers.namespace}.t CREATE TAG old AS OF VERSION {first['snapshot-id']}"
    )
    readers.spark.sql(f"ALTER TABLE {readers.namespace}.t CREATE BRANCH side")
    readers.spark.sql(f"ALTER TABLE {readers.namespace}.t RENAME COLUMN name TO label")
    table.load()
    table.delete(row_filter={"type": "eq", "term": "part", "value": "a"})
    for snapshot, wanted in ((first, 2), (second, 3)):
        number = snapshot["snapshot-id"]
        assert len(readers.spark_reads(f"VERSION AS OF {number}")) == wanted
        assert len(readers.spark_reads(f"VERSION AS OF {number} WHERE part = 'a'", "name")) == 2
        assert len(readers.pyiceberg_reads(snapshot_id=number)) == wanted
        found = readers.pyiceberg_reads(snapshot_id=number, selected_fields=("name",))
        assert found[0] == ("row-1",)
        found = readers.pyiceberg_reads(snapshot_id=number, row_filter="label == 'row-1'")
        assert len(found) == 1
    assert len(readers.spark_reads("VERSION AS OF 'old' WHERE id < 2")) == 1
    assert len(readers.spark_reads("VERSION AS OF 'side' WHERE id > 0")) == 3
    assert readers.spark_reads("WHERE label <> 'x'") == rows(3, part="b")
    assert len(readers.pyiceberg_reads()) == 1
    with pytest.raises(Py4JJavaError, match="Cannot find field 'name'"):
        # Java's client binds a residual to the table's current schema, whatever the snapshot's
        # schema.
        readers.spark_reads(f"VERSION AS OF {first['snapshot-id']} WHERE name = 'row-1'")


def test_evolved_schema_and_specs(readers: Readers, sql: SparkSession) -> None:
    sql.sql(
        "CREATE TABLE t (id INT, day DATE, at TIMESTAMP, price DECIMAL(9, 2), x FLOAT, "
        "s STRUCT<a: INT, b: STRING>, tags ARRAY<STRING>) USING iceberg "
        "PARTITIONED BY (day) TBLPROPERTIES ('format-version'='2')"
    )
    insert = (
        "INSERT INTO t VALUES "
        "({n}, DATE'2024-01-0{n}', TIMESTAMP'2024-01-0{n} 12:00:00', {n}.50, {x}, "
        "named_struct('a', {n}, 'b', 'b{n}'), array('t{n}'))"
    )
    sql.sql(insert.format(n=1, x="1.5"))
    sql.sql("ALTER TABLE t REPLACE PARTITION FIELD day WITH months(at)")
    sql.sql(insert.format(n=2, x="float('NaN')"))
    sql.sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
    sql.sql("ALTER TABLE t RENAME COLUMN price TO cost")
    sql.sql("ALTER TABLE t ADD PARTITION FIELD bucket(4, id)")
    sql.sql(insert.format(n=3, x="2.5"))
    sql.sql("ALTER TABLE t DROP PARTITION FIELD months(at)")
    sql.sql("ALTER TABLE t ADD PARTITION FIELD truncate(1, s.b)")
    sql.sql(insert.format(n=4, x="-1.0"))
    for end, wanted in {
        "": 4,
        "WHERE day = DATE'2024-01-01'": 1,
        "WHERE at < TIMESTAMP'2024-01-03 00:00:00'": 2,
        "WHERE id > 2": 2,
        "WHERE cost = 3.50": 1,
        "WHERE x < 0": 1,
        "WHERE isnan(x)": 1,
        "WHERE s.b = 'b4' AND s.a = 4": 1,
        "WHERE s.a IN (1, 3)": 2,
    }.items():
        assert len(readers.spark_reads(end)) == wanted, end
    for text, wanted in {
        "day == '2024-01-01'": 1,
        "at < '2024-01-03T00:00:00+00:00'": 2,
        "id > 2": 2,
        "x is nan": 1,
        "s.a in (1, 3)": 2,
    }.items():
        assert len(readers.pyiceberg_reads(row_filter=parser.parse(text))) == wanted, text


def test_null_partition_values(readers: Readers, sql: SparkSession) -> None:
    sql.sql("CREATE TABLE t (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part)")
    sql.sql("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, NULL)")
    assert readers.spark_reads("WHERE part IS NULL", "id") == [(2,), (3,)]
    assert readers.spark_reads("WHERE part = 'a'", "id") == [(1,)]
    assert readers.pyiceberg_reads(row_filter="part == 'a'") == [(1, "a")]
    with pytest.raises(ValidationError, match="partition"):
        # PyIceberg's response model does not allow null partition values.
        readers.planned.load_table((readers.namespace, "t")).scan().to_arrow()


# --- who says so ----------------------------------------------------------------------------------


def test_a_table_that_says_so_is_planned_by_the_server(
    new_table: Callable[..., RealTable], readers: Readers, duck: duckdb.DuckDBPyConnection
) -> None:
    """Java's client follows the table's config; PyIceberg and DuckDB ignore it."""
    table = new_table(properties=TABLE_SAYS_SO)
    table.append(table.write("a", 1, 2, 3), table.write("b", 4, 5, part="b"))
    name = f"{readers.spark_local}.{readers.namespace}.t"
    before = readers.plans()
    found = spark_rows(readers.spark, f"SELECT id FROM {name} WHERE part = 'b' ORDER BY id")
    assert found == [(4,), (5,)]
    assert readers.plans() > before
    before = readers.plans()
    assert duck_rows(duck, f"SELECT count(*) FROM ice.{readers.namespace}.t") == [(5,)]
    assert pyiceberg_ids(readers.local.load_table((readers.namespace, "t"))) == [1, 2, 3, 4, 5]
    assert readers.plans() == before
    readers.spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('frazil.scan-planning-mode')")
    before = readers.plans()
    assert len(spark_rows(readers.spark, f"SELECT id FROM {name}")) == 5
    assert readers.plans() == before
