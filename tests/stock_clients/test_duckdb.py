"""Stock DuckDB with its iceberg extension, on local files."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.view.metadata import ViewVersion

from tests.stock_clients.stock import (
    ID_NAME,
    duck_rows,
    operations,
    pyiceberg_ids,
    sequence_numbers,
)
from tests.support.server import RunningServer


class Cycle:
    """Runs statements in the test's schema; `{s}` in a statement is the schema's full name."""

    def __init__(self, duck: duckdb.DuckDBPyConnection, namespace: str) -> None:
        self._duck = duck
        self.schema = f"ice.{namespace}"

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return duck_rows(self._duck, statement.replace("{s}", self.schema))

    def refused(self, statement: str, reason: str) -> None:
        """Check that DuckDB itself refuses; the table of clients quotes its error text."""
        with pytest.raises(duckdb.Error, match=re.escape(reason)):
            self.run(statement)


@pytest.fixture
def cycle(duck: duckdb.DuckDBPyConnection, namespace: str) -> Cycle:
    return Cycle(duck, namespace)


def test_rows_are_inserted_changed_merged_and_read_back(
    cycle: Cycle, iceberg: Catalog, namespace: str
) -> None:
    assert cycle.run("CREATE TABLE {s}.t (id BIGINT, name VARCHAR)") == []
    assert cycle.run("INSERT INTO {s}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')") == [(3,)]
    assert cycle.run("INSERT INTO {s}.t SELECT range, 'r' FROM range(10, 13)") == [(3,)]
    assert cycle.run("SELECT id FROM {s}.t WHERE id < 3 ORDER BY id") == [(1,), (2,)]
    assert cycle.run("DELETE FROM {s}.t WHERE id = 2") == [(1,)]
    assert cycle.run("DELETE FROM {s}.t WHERE id = 12345") == [(0,)]
    assert cycle.run("UPDATE {s}.t SET name = 'cc' WHERE id = 3") == [(1,)]
    merge = """
        MERGE INTO {s}.t USING (VALUES (1, 'm'), (99, 'new')) AS s(id, name) ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET name = s.name
        WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)
    """
    assert cycle.run(merge) == [(2,)]
    rows = [(1, "m"), (3, "cc"), (10, "r"), (11, "r"), (12, "r"), (99, "new")]
    assert cycle.run("SELECT * FROM {s}.t ORDER BY id") == rows
    assert cycle.run("SELECT count(*) FROM {s}.t WHERE name = 'r'") == [(3,)]

    table = iceberg.load_table((namespace, "t"))
    assert pyiceberg_ids(table) == [row[0] for row in rows]
    expected = ["append", "append", "delete", "overwrite", "overwrite", "append"]
    assert operations(table) == expected, "a delete of nothing commits nothing"
    assert list(sequence_numbers(table)) == [1, 2, 3, 4, 5, 6]
    assert len(table.history()) == 5, "MERGE makes two snapshots and moves main once"


def test_time_travel(cycle: Cycle) -> None:
    cycle.run("CREATE TABLE {s}.t (id BIGINT)")
    for number in (1, 2, 3):
        cycle.run(f"INSERT INTO {{s}}.t VALUES ({number})")
    found = cycle.run(
        "SELECT sequence_number, snapshot_id, timestamp_ms FROM iceberg_snapshots({s}.t) ORDER BY 1"
    )
    assert [row[0] for row in found] == [1, 2, 3]
    for count, (_, snapshot_id, committed_at) in enumerate(found, 1):
        at_version = f"SELECT count(*) FROM {{s}}.t AT (VERSION => {snapshot_id})"
        assert cycle.run(at_version) == [(count,)]
        at_time = f"SELECT count(*) FROM {{s}}.t AT (TIMESTAMP => TIMESTAMP '{committed_at}')"
        assert cycle.run(at_time) == [(count,)]
    assert len(cycle.run("SELECT * FROM iceberg_metadata('{s}.t')")) == 3
    assert len(cycle.run("SELECT * FROM iceberg_column_stats('{s}.t')")) == 3


def test_table_is_altered(cycle: Cycle, iceberg: Catalog, namespace: str) -> None:
    cycle.run("CREATE TABLE {s}.t (id INTEGER, name VARCHAR, gone DOUBLE)")
    cycle.run("INSERT INTO {s}.t VALUES (1, 'a', 1.5)")
    cycle.run("ALTER TABLE {s}.t ADD COLUMN extra INTEGER")
    cycle.run("ALTER TABLE {s}.t RENAME COLUMN extra TO more")
    cycle.run("ALTER TABLE {s}.t DROP COLUMN gone")
    cycle.run("ALTER TABLE {s}.t ALTER COLUMN id TYPE BIGINT")
    cycle.run("ALTER TABLE {s}.t SET PARTITIONED BY (name)")
    cycle.run("INSERT INTO {s}.t VALUES (2, 'b', 7)")
    cycle.run("ALTER TABLE {s}.t RESET PARTITIONED BY")
    cycle.run("ALTER TABLE {s}.t SET ('owner' = 'duck')")
    cycle.run("CALL set_iceberg_table_properties({s}.t, {'a': 'b', 'c': 'd'})")
    cycle.run("CALL remove_iceberg_table_properties({s}.t, ['a'])")
    properties = dict(cycle.run("SELECT * FROM iceberg_table_properties({s}.t)"))
    assert (properties["owner"], properties.get("a"), properties["c"]) == ("duck", None, "d")
    cycle.run("ALTER TABLE {s}.t RENAME TO renamed")
    assert cycle.run("SELECT * FROM {s}.renamed ORDER BY id") == [(1, "a", None), (2, "b", 7)]

    table = iceberg.load_table((namespace, "renamed"))
    assert table.schema().column_names == ["id", "name", "more"]
    assert [field.field_id for field in table.schema().fields] == [1, 2, 4]
    assert sorted(table.specs()) == [0, 1]
    assert table.spec().fields == ()
    assert not iceberg.table_exists((namespace, "t"))

    cycle.refused(
        "ALTER TABLE {s}.renamed ADD COLUMN s STRUCT(a INTEGER)",
        "ADD COLUMN for Nested Types not supported for Iceberg tables",
    )
    cycle.refused(
        "ALTER TABLE {s}.renamed ALTER COLUMN id SET NOT NULL",
        "Cannot change nullable column to non-nullable",
    )


def test_partitioned_tables(cycle: Cycle, iceberg: Catalog, namespace: str) -> None:
    cycle.run(
        "CREATE TABLE {s}.p (id BIGINT, region VARCHAR, ts TIMESTAMP)"
        " PARTITIONED BY (bucket(4, id), day(ts), truncate(1, region))"
    )
    cycle.run(
        "INSERT INTO {s}.p SELECT range, ['eu', 'us'][range % 2 + 1],"
        " TIMESTAMP '2024-01-01' + INTERVAL (range % 3) DAY FROM range(12)"
    )
    cycle.run("DELETE FROM {s}.p WHERE id IN (0, 5)")
    wanted = [(number,) for number in range(12) if number not in (0, 5)]
    assert cycle.run("SELECT id FROM {s}.p ORDER BY id") == wanted
    assert cycle.run("SELECT count(*) FROM {s}.p WHERE ts >= '2024-01-03'") == [(3,)]

    table = iceberg.load_table((namespace, "p"))
    names = [str(field.transform) for field in table.spec().fields]
    assert names == ["bucket[4]", "day", "truncate[1]"]
    assert pyiceberg_ids(table, row_filter="region = 'us'") == [1, 3, 7, 9, 11]
    day = table.spec().fields[1].name
    days = {row["partition"][day] for row in table.inspect.partitions().to_pylist()}
    assert days == {date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)}


def test_table_is_made_from_a_query(cycle: Cycle, iceberg: Catalog, namespace: str) -> None:
    made = cycle.run("CREATE TABLE {s}.c AS SELECT range AS id, 'x' AS name FROM range(10)")
    assert made == [(10,)]
    assert pyiceberg_ids(iceberg.load_table((namespace, "c"))) == list(range(10))
    cycle.run("CREATE TABLE IF NOT EXISTS {s}.c (other BIGINT)")
    assert cycle.run("TRUNCATE {s}.c") == [(10,)]
    assert cycle.run("SELECT count(*) FROM {s}.c") == [(0,)]
    cycle.refused(
        "CREATE OR REPLACE TABLE {s}.c AS SELECT 1 AS id",
        "CREATE OR REPLACE not supported in DuckDB-Iceberg",
    )
    cycle.run("DROP TABLE {s}.c")
    assert not iceberg.table_exists((namespace, "c"))
    cycle.run("DROP TABLE IF EXISTS {s}.c")
    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        cycle.run("DROP TABLE {s}.c")


def test_drop_purges_if_the_catalog_was_attached_so(
    duck: duckdb.DuckDBPyConnection,
    iceberg: Catalog,
    namespace: str,
    catalog_server: RunningServer,
) -> None:
    duck.execute(
        f"ATTACH '' AS purging (TYPE iceberg, ENDPOINT '{catalog_server.url}',"
        " AUTHORIZATION_TYPE 'none', PURGE_REQUESTED true)"
    )
    for catalog in ("ice", "purging"):
        duck.execute(f"CREATE TABLE {catalog}.{namespace}.{catalog} AS SELECT 1 AS id")
        table = iceberg.load_table((namespace, catalog))
        location = table.location()
        with table.transaction() as transaction:
            transaction.set_properties({"frazil.gc.quarantine-ms": "0"})
        duck.execute(f"DROP TABLE {catalog}.{namespace}.{catalog}")
        left = list(Path(location.removeprefix("file://")).rglob("*.parquet"))
        assert len(left) == (1 if catalog == "ice" else 0)


def test_transaction_over_two_tables(cycle: Cycle, iceberg: Catalog, namespace: str) -> None:
    for name in ("a", "b"):
        cycle.run(f"CREATE TABLE {{s}}.{name} (id BIGINT)")
        cycle.run(f"INSERT INTO {{s}}.{name} VALUES (1)")

    cycle.run("BEGIN")
    cycle.run("INSERT INTO {s}.a VALUES (2)")
    cycle.run("DELETE FROM {s}.b WHERE id = 1")
    cycle.run("INSERT INTO {s}.b VALUES (3)")
    assert pyiceberg_ids(iceberg.load_table((namespace, "a"))) == [1], "not yet committed"
    cycle.run("COMMIT")
    assert cycle.run("SELECT id FROM {s}.a ORDER BY id") == [(1,), (2,)]
    assert cycle.run("SELECT id FROM {s}.b ORDER BY id") == [(3,)]
    assert operations(iceberg.load_table((namespace, "b"))) == ["append", "delete", "append"]

    cycle.run("BEGIN")
    cycle.run("INSERT INTO {s}.a VALUES (4)")
    cycle.run("UPDATE {s}.b SET id = 5")
    cycle.run("DROP TABLE {s}.a")
    cycle.run("ROLLBACK")
    assert cycle.run("SELECT id FROM {s}.a ORDER BY id") == [(1,), (2,)]
    assert cycle.run("SELECT id FROM {s}.b ORDER BY id") == [(3,)]


def test_transaction_that_lost_the_race_changes_no_table(
    cycle: Cycle, iceberg: Catalog, namespace: str
) -> None:
    for name in ("a", "b"):
        cycle.run(f"CREATE TABLE {{s}}.{name} (id BIGINT)")
        cycle.run(f"INSERT INTO {{s}}.{name} VALUES (1)")
    cycle.run("BEGIN")
    cycle.run("DELETE FROM {s}.a WHERE id = 1")
    cycle.run("DELETE FROM {s}.b WHERE id = 1")
    iceberg.load_table((namespace, "b")).delete("id = 1")
    with pytest.raises(duckdb.Error, match="CommitFailedException"):
        cycle.run("COMMIT")
    first, second = (iceberg.load_table((namespace, name)) for name in ("a", "b"))
    assert (pyiceberg_ids(first), len(first.metadata.snapshots)) == ([1], 1)
    assert (pyiceberg_ids(second), len(second.metadata.snapshots)) == ([], 2)


def test_table_made_filled_and_altered_in_one_transaction(
    cycle: Cycle, iceberg: Catalog, namespace: str
) -> None:
    cycle.run("BEGIN")
    cycle.run("CREATE TABLE {s}.t (id BIGINT)")
    cycle.run("INSERT INTO {s}.t VALUES (1)")
    cycle.run("ALTER TABLE {s}.t ADD COLUMN x INTEGER")
    assert not iceberg.table_exists((namespace, "t"))
    cycle.run("COMMIT")
    assert cycle.run("SELECT * FROM {s}.t") == [(1, None)]
    assert pyiceberg_ids(iceberg.load_table((namespace, "t"))) == [1]


TYPES: dict[str, tuple[str, Any]] = {
    "BOOLEAN": ("true", True),
    "INTEGER": ("-5", -5),
    "BIGINT": ("9223372036854775807", 2**63 - 1),
    "FLOAT": ("1.5", 1.5),
    "DOUBLE": ("-2.25", -2.25),
    "DECIMAL(38, 9)": ("12345.123456789", Decimal("12345.123456789")),
    "DATE": ("DATE '1969-12-31'", date(1969, 12, 31)),
    "TIME": ("TIME '23:59:59'", time(23, 59, 59)),
    "TIMESTAMP": ("TIMESTAMP '2024-02-29 12:30:00.000001'", datetime(2024, 2, 29, 12, 30, 0, 1)),
    "TIMESTAMPTZ": (
        "TIMESTAMPTZ '2024-02-29 12:30:00+00'",
        datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    ),
    "VARCHAR": ("'fräzil ❄'", "fräzil ❄"),
    "BLOB": (r"'\x00\xFF'::BLOB", b"\x00\xff"),
    "UUID": (
        "'6f1ed5a2-1a1d-4f9a-8f2e-0d6a3a1f3a10'::UUID",
        UUID("6f1ed5a2-1a1d-4f9a-8f2e-0d6a3a1f3a10"),
    ),
    "VARCHAR[]": ("['a', NULL]", ["a", None]),
    "STRUCT(a INTEGER, b VARCHAR)": ("{'a': 1, 'b': 'x'}", {"a": 1, "b": "x"}),
    "MAP(VARCHAR, INTEGER)": ("MAP {'k': 1}", {"k": 1}),
}


def test_every_type_is_written_and_read_back(
    cycle: Cycle, iceberg: Catalog, namespace: str
) -> None:
    cycle.run("SET TimeZone = 'UTC'")
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    cycle.run(f"CREATE TABLE {{s}}.t ({columns})")
    cycle.run(f"INSERT INTO {{s}}.t VALUES ({', '.join(text for text, _ in TYPES.values())})")
    wanted = tuple(value for _, value in TYPES.values())
    # DuckDB's Python package needs pytz for a time with a zone, so read it as microseconds.
    instant = list(TYPES).index("TIMESTAMPTZ")
    (found,) = cycle.run(f"SELECT * REPLACE (epoch_us(c{instant}) AS c{instant}) FROM {{s}}.t")
    since_epoch_us = int(wanted[instant].timestamp() * 1_000_000)
    assert found == (*wanted[:instant], since_epoch_us, *wanted[instant + 1 :])
    (row,) = iceberg.load_table((namespace, "t")).scan().to_arrow().to_pylist()
    assert list(row.values())[:-1] == list(wanted)[:-1]
    assert row[f"c{len(TYPES) - 1}"] == [("k", 1)]

    for kind in ("UBIGINT", "TINYINT"):
        cycle.refused(f"CREATE TABLE {{s}}.x (c {kind})", "is not a valid Iceberg Type")


def test_version_3_with_deletion_vectors_and_row_lineage(
    cycle: Cycle, iceberg: Catalog, namespace: str
) -> None:
    cycle.run("CREATE TABLE {s}.t (id BIGINT, n INTEGER DEFAULT 3) WITH ('format-version' = 3)")
    cycle.run("INSERT INTO {s}.t (id) VALUES (1), (2), (3)")
    cycle.run("DELETE FROM {s}.t WHERE id = 2")
    cycle.run("UPDATE {s}.t SET n = 9 WHERE id = 1")
    cycle.run("ALTER TABLE {s}.t ADD COLUMN q INTEGER DEFAULT 7")
    assert cycle.run("SELECT * FROM {s}.t ORDER BY id") == [(1, 9, 7), (3, 3, 7)]
    assert cycle.run("SELECT _row_id, id FROM {s}.t ORDER BY id") == [(0, 1), (2, 3)]

    table = iceberg.load_table((namespace, "t"))
    assert table.format_version == 3
    assert table.metadata.next_row_id == 4  # type: ignore[union-attr]
    assert _delete_file_formats(table) == {"PUFFIN"}
    cycle.run("CREATE TABLE {s}.n (ts TIMESTAMP_NS) WITH ('format-version' = 3)")
    cycle.run("INSERT INTO {s}.n VALUES (TIMESTAMP_NS '2024-01-01 00:00:00.123456789')")
    assert cycle.run("SELECT ts::VARCHAR FROM {s}.n") == [("2024-01-01 00:00:00.123456789",)]


def _delete_file_formats(table: Table) -> set[str]:
    files = table.inspect.delete_files().to_pylist()
    return {row["file_format"] for row in files}


def test_schemas_and_nested_namespaces(cycle: Cycle, iceberg: Catalog, namespace: str) -> None:
    cycle.run('CREATE SCHEMA ice."NS.inner"'.replace("NS", namespace))
    assert iceberg.list_namespaces(namespace) == [(namespace, "inner")]
    cycle.run('CREATE TABLE ice."NS.inner".t AS SELECT 5 AS id'.replace("NS", namespace))
    assert pyiceberg_ids(iceberg.load_table((namespace, "inner", "t"))) == [5]
    cycle.run("CALL set_iceberg_schema_properties({s}, {'owner': 'duck'})")
    assert iceberg.load_namespace_properties(namespace)["owner"] == "duck"
    cycle.refused(
        'DROP SCHEMA ice."NS.inner" CASCADE'.replace("NS", namespace),
        "DROP SCHEMA <schema_name> CASCADE is not supported for Iceberg schemas currently",
    )
    cycle.run('DROP TABLE ice."NS.inner".t'.replace("NS", namespace))
    cycle.run('DROP SCHEMA ice."NS.inner"'.replace("NS", namespace))
    assert iceberg.list_namespaces(namespace) == []


def test_what_duckdb_declines_itself(cycle: Cycle) -> None:
    cycle.refused("CREATE VIEW {s}.v AS SELECT 1 AS id", "Not implemented Error: Create View")
    cycle.refused(
        "CREATE TABLE {s}.x (id INTEGER) SORTED BY (id)",
        "SORTED BY is not supported for tables in a iceberg catalog",
    )
    cycle.run("CREATE TABLE {s}.t (id INTEGER)")
    cycle.refused("COMMENT ON TABLE {s}.t IS 'x'", "Only ALTER TABLE is supported for Iceberg")
    cycle.refused(
        "ALTER TABLE {s}.t ADD COLUMN w INTEGER DEFAULT 5",
        "non-null DEFAULT values are not supported for <V3 tables",
    )
    cycle.refused(
        "SELECT * FROM {s}.t AT (VERSION => 'main')", "Could not convert string 'main' to INT64"
    )


def test_version_1_is_not_written_by_duckdb(cycle: Cycle, iceberg: Catalog, namespace: str) -> None:
    """DuckDB sends a sequence number, which version 1 does not allow (Java also rejects it)."""
    cycle.run("CREATE TABLE {s}.t (id BIGINT) WITH ('format-version' = 1)")
    cycle.refused("INSERT INTO {s}.t VALUES (1)", "must be 0 in format v1")
    cycle.refused("DELETE FROM {s}.t", "Delete from Iceberg V1 tables")
    table = iceberg.load_table((namespace, "t"))
    table.append(pa.table({"id": [7]}))
    assert cycle.run("SELECT * FROM {s}.t") == [(7,)]


def test_views_are_not_seen_by_duckdb(cycle: Cycle, iceberg: Catalog, namespace: str) -> None:
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT 1 AS id", "dialect": "duckdb"}],
        "default-namespace": [namespace],
    }
    iceberg.create_view((namespace, "v"), ID_NAME, ViewVersion.model_validate(version))
    cycle.refused("SELECT * FROM {s}.v", "Table with name v does not exist")
