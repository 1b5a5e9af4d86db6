"""`session.sql` runs CREATE, DROP, SHOW, DESCRIBE, USE and CALL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    NamespaceNotEmpty,
    NoSuchNamespace,
    NoSuchTable,
    NotFound,
)

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.spark.session import Session


def _rows(session: Session, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.sql(text).collect()]


def test_namespaces(session: Session, namespace: str) -> None:
    name = f"{namespace}.inner"
    session.sql(f"CREATE NAMESPACE {name} COMMENT 'c' WITH PROPERTIES ('k' = 'v')")
    session.sql(f"CREATE SCHEMA IF NOT EXISTS {name}")
    with pytest.raises(AlreadyExists):
        session.sql(f"CREATE DATABASE {name}")
    session.sql(f"ALTER NAMESPACE {name} SET PROPERTIES ('k' = 'w')")
    shown = dict(_rows(session, f"DESCRIBE NAMESPACE {name}"))
    assert (shown["Namespace Name"], shown["comment"], shown["k"]) == (name, "c", "w")
    assert _rows(session, f"SHOW NAMESPACES IN {namespace} LIKE '*.in*'") == [(name,)]
    session.sql(f"CREATE TABLE {name}.t (a INT)")
    with pytest.raises(NamespaceNotEmpty):
        session.sql(f"DROP NAMESPACE {name}")
    session.sql(f"DROP NAMESPACE {name} CASCADE")
    session.sql(f"DROP NAMESPACE IF EXISTS {name}")
    with pytest.raises(NoSuchNamespace):
        session.sql(f"DROP NAMESPACE {name}")


def test_use(session: Session, namespace: str) -> None:
    with pytest.raises(BadRequest, match="USE ns"):
        session.sql("CREATE TABLE t (a INT)")
    with pytest.raises(NoSuchNamespace):
        session.sql("USE nowhere")
    session.sql(f"USE frazil.{namespace}")
    session.sql("CREATE TABLE t (a INT)")
    assert _rows(session, "SHOW TABLES LIKE 'T|x'") == [(namespace, "t", False)]
    session.sql("USE frazil")
    with pytest.raises(BadRequest, match="USE ns"):
        session.sql("SHOW TABLES")


def test_a_table_and_how_it_is_shown(session: Session, namespace: str, client: Client) -> None:
    session.sql(
        f"""CREATE TABLE {namespace}.t (
          id BIGINT NOT NULL COMMENT 'it''s the key',
          `odd name` STRUCT<a: ARRAY<INT>, b: MAP<STRING, DOUBLE>>,
          n INT DEFAULT 1 + 1,
          ts TIMESTAMP)
        USING iceberg PARTITIONED BY (days(ts), bucket(4, id), truncate(10, id))
        COMMENT 'all' TBLPROPERTIES ('format-version' = '3', 'k' = 'v')"""
    )
    table = client.load_table(f"{namespace}.t")
    assert [str(field) for field in table.schema.fields] == [
        "1: id: required long",
        "2: odd name: optional "
        "struct<5: a: optional list<int>, 6: b: optional map<string, double>>",
        "3: n: optional int",
        "4: ts: optional timestamptz",
    ]
    assert table.schema.fields[2].write_default == 2
    assert table.schema.fields[2].initial_default is None
    assert [field["name"] for field in table.spec()["fields"]] == [
        "ts_day",
        "id_bucket",
        "id_trunc",
    ]
    shown = _rows(session, f"DESCRIBE TABLE EXTENDED {namespace}.t")
    assert shown[:2] == [
        ("id", "bigint", "its the key"),
        ("odd name", "struct<a:array<int>,b:map<string,double>>", None),
    ]
    assert ("Part 1", "bucket(4, id)", "") in shown
    assert ("Location", table.location, "") in shown
    assert _rows(session, f"SHOW TBLPROPERTIES {namespace}.t ('k')") == [("k", "v")]
    assert ("current-snapshot-id", "none") in _rows(session, f"SHOW TBLPROPERTIES {namespace}.t")

    ((statement,),) = _rows(session, f"SHOW CREATE TABLE {namespace}.t")
    session.sql(f"DROP TABLE {namespace}.t")
    session.sql(statement.replace(table.location, f"{table.location}-2"))
    again = client.load_table(f"{namespace}.t")
    assert (again.schema, again.spec()) == (table.schema, table.spec())
    assert again.properties == table.properties


def test_create_and_drop(session: Session, namespace: str) -> None:
    session.sql(f"CREATE TABLE {namespace}.t (a INT)")
    session.sql(f"CREATE TABLE IF NOT EXISTS {namespace}.t (b INT)")
    with pytest.raises(AlreadyExists):
        session.sql(f"CREATE TABLE {namespace}.t (a INT)")
    session.sql(f"DROP TABLE {namespace}.t PURGE")
    session.sql(f"DROP TABLE IF EXISTS {namespace}.t")
    with pytest.raises(NoSuchTable):
        session.sql(f"DROP TABLE {namespace}.t")
    with pytest.raises(BadRequest, match="twice"):
        session.sql(f"CREATE TABLE {namespace}.t (a INT, A INT)")
    with pytest.raises(BadRequest, match="partitioned_by: there is no column 'b'"):
        session.sql(f"CREATE TABLE {namespace}.t (a INT) PARTITIONED BY (b)")
    with pytest.raises(BadRequest, match="column a: DEFAULT"):
        session.sql(f"CREATE TABLE {namespace}.t (a INT DEFAULT nope)")


# --- CALL -----------------------------------------------------------------------------------------


@pytest.fixture
def history(session: Session, namespace: str, client: Client) -> list[int]:
    """Create a table t in the current namespace; return its snapshots of one row each."""
    session.sql(f"USE {namespace}")
    session.sql("CREATE TABLE t (id BIGINT)")
    for number in range(3):
        session.sql(f"INSERT INTO t VALUES ({number})")
    return [snapshot.snapshot_id for snapshot in client.load_table(f"{namespace}.t").snapshots]


def test_calls_that_move_main(session: Session, namespace: str, history: list[int]) -> None:
    first, second, third = history
    call = "CALL system."
    assert _rows(session, f"{call}rollback_to_snapshot('{namespace}.t', {first})") == [
        (third, first)
    ]
    answer = session.sql(f"CALL frazil.system.set_current_snapshot('t', {second + 0}L)")
    assert answer.columns == ["previous_snapshot_id", "current_snapshot_id"]
    assert [tuple(row) for row in answer.collect()] == [(first, second)]
    session.sql(f"ALTER TABLE t CREATE BRANCH ahead AS OF VERSION {third}")
    assert _rows(session, f"{call}fast_forward(table => 't', branch => 'main', to => 'ahead')") == [
        ("main", second, third)
    ]
    session.sql(f"ALTER TABLE t CREATE TAG one AS OF VERSION {first}")
    assert _rows(session, f"{call}set_current_snapshot(table => 't', ref => 'one')") == [
        (third, first)
    ]
    assert _rows(session, "SELECT * FROM t") == [(0,)]


def test_rollback_to_timestamp_goes_to_what_was_before_it(
    session: Session, namespace: str, client: Client, history: list[int]
) -> None:
    snapshots = client.load_table(f"{namespace}.t").snapshots
    moment = f"timestamp_millis({snapshots[-1].timestamp_ms})"
    ((previous, current),) = _rows(session, f"CALL system.rollback_to_timestamp('t', {moment})")
    before = [one for one in snapshots if one.timestamp_ms < snapshots[-1].timestamp_ms]
    assert (previous, current) == (history[-1], before[-1].snapshot_id)


def test_staged_changes_are_published(
    session: Session, namespace: str, client: Client, history: list[int]
) -> None:
    table = session.table(f"{namespace}.t")
    staged = [
        table.append(
            session.spark.range(number, number + 1),
            stage_only=True,
            summary={"wap.id": f"w{number}"},
        ).snapshot_id
        for number in (7, 8)
    ]
    ((source, current),) = _rows(session, "CALL system.publish_changes('t', 'w7')")
    assert source == staged[0]
    assert current == client.load_table(f"{namespace}.t").head()
    ((source, current),) = _rows(session, f"CALL system.cherrypick_snapshot('t', {staged[1]})")
    assert (source, current) == (staged[1], client.load_table(f"{namespace}.t").head())
    assert _rows(session, "SELECT * FROM t ORDER BY id") == [(0,), (1,), (2,), (7,), (8,)]
    with pytest.raises(NotFound, match="w9"):
        session.sql("CALL system.publish_changes('t', 'w9')")


def test_register_table(
    session: Session, namespace: str, client: Client, history: list[int]
) -> None:
    location = client.load_table(f"{namespace}.t").metadata_location
    session.sql("DROP TABLE t")
    assert _rows(session, f"CALL system.register_table('{namespace}.u', '{location}')") == [
        (history[-1], 3, 3)
    ]


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("nope('t')", "fast_forward"),
        ("rollback_to_snapshot('t')", "snapshot_id is missing"),
        ("rollback_to_snapshot('t', 1, 2)", "takes only"),
        ("rollback_to_snapshot(table => 't', nope => 1)", "no argument nope"),
        ("rollback_to_snapshot('t', table => 't')", "given twice"),
        ("rollback_to_snapshot('ns.t', NULL)", "is null"),
        ("set_current_snapshot('ns.t')", "either"),
    ],
)
def test_calls_that_are_wrong(session: Session, call: str, part: str) -> None:
    with pytest.raises(BadRequest, match=part):
        session.sql(f"CALL system.{call}")
