"""PostgreSQL: the known outcome after a broken connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from frazil.db.base import (
    CommitIdTaken,
    Committed,
    DatabaseUnavailable,
    OutcomeUnknown,
    SwapLost,
    SwapRelation,
)
from frazil.db.postgres import PostgresDatabase
from tests.db.cutting_proxy import Cut, CuttingProxy
from tests.db.helpers import (
    commit,
    key_row,
    make,
    make_namespace,
    must,
    next_version,
    relation,
    swap,
    transaction,
)
from tests.support.patience import HANG_S, wait_until
from tests.support.postgres import PostgresServer

COMMIT = b"COMMIT\0"
"""The whole statement with its terminator, so that `READ COMMITTED` does not match."""


@pytest.fixture
def direct(postgres_url: str) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_url)
    database.migrate()
    make_namespace(database, "ns")
    yield database
    database.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(postgres_server.port)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def proxied(
    direct: PostgresDatabase,
    proxy: CuttingProxy,
    postgres_server: PostgresServer,
    postgres_url: str,
) -> Iterator[PostgresDatabase]:
    url = postgres_url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
    database = PostgresDatabase(url)
    yield database
    database.close()


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def slow_commit(admin: psycopg.Connection[tuple[object, ...]], seconds: float) -> None:
    """Make COMMIT slow enough to be interrupted, by a deferred trigger that runs inside it."""
    admin.execute(
        f"""CREATE FUNCTION rest_a_while() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END'""".encode()
    )
    admin.execute(
        """CREATE CONSTRAINT TRIGGER rest_a_while AFTER UPDATE ON relations
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rest_a_while()"""
    )


def backend_in_commit(admin: psycopg.Connection[tuple[object, ...]]) -> int:
    query = "SELECT pid FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event = 'PgSleep'"
    found: list[int] = []

    def is_there() -> bool:
        found.extend(int(str(pid)) for (pid,) in admin.execute(query).fetchall())
        return bool(found)

    wait_until(is_there, "no backend reached COMMIT")
    return found[0]


def test_a_lost_answer_to_a_commit_that_happened(
    direct: PostgresDatabase, proxied: PostgresDatabase, proxy: CuttingProxy
) -> None:
    table = make(direct)
    doubtful = transaction(SwapRelation(table, new := next_version(table)), keys=(key_row("k"),))
    proxy.cut_at(COMMIT, Cut.AFTER_ANSWER)
    with pytest.raises(OutcomeUnknown):
        proxied.commit(doubtful)
    assert proxied.resolve(doubtful.commit_id, [table.uuid], 10) is True
    assert proxied.resolve(doubtful.commit_id, [table.uuid], 10) is True
    assert proxied.relation(table.identifier) == new
    assert proxied.key("anna", "k") is not None


def test_a_commit_that_never_arrived(
    direct: PostgresDatabase, proxied: PostgresDatabase, proxy: CuttingProxy
) -> None:
    table = make(direct)
    doubtful = transaction(swap(table))
    proxy.cut_at(COMMIT, Cut.BEFORE)
    with pytest.raises(OutcomeUnknown):
        proxied.commit(doubtful)
    assert proxied.resolve(doubtful.commit_id, [table.uuid], 10) is False
    assert proxied.resolve(doubtful.commit_id, [table.uuid], 10) is False
    assert proxied.relation(table.identifier) == table
    with pytest.raises(CommitIdTaken):
        proxied.commit(doubtful)
    assert commit(proxied, swap(table)) == Committed()


@pytest.fixture
def failing_commit(direct: PostgresDatabase, postgres_url: str) -> Iterator[Callable[[str], None]]:
    """Return a function that makes COMMIT of every commit id fail with a SQLSTATE."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:

        def fail_with(sqlstate: str) -> None:
            connection.execute(
                "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION 'at COMMIT' USING ERRCODE = '{sqlstate}'; END $$;"
                "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON commits "
                "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()".encode()
            )

        yield fail_with
        connection.execute(b"DROP FUNCTION IF EXISTS fail CASCADE")


@pytest.mark.parametrize(
    ("sqlstate", "reason"),
    [("53100", "its disk is full"), ("57014", "it takes too long to answer")],
)
def test_a_commit_that_postgres_refuses_did_not_happen(
    direct: PostgresDatabase,
    failing_commit: Callable[[str], None],
    sqlstate: str,
    reason: str,
) -> None:
    table = make(direct)
    failing_commit(sqlstate)
    with pytest.raises(DatabaseUnavailable, match=r"at COMMIT.*; nothing was changed") as refused:
        direct.commit(transaction(swap(table)))
    assert refused.value.trouble.reason == reason
    assert direct.relation(table.identifier) == table
    direct.prove_writable()


@pytest.mark.parametrize("sqlstate", ["08006", "58030", "40003"])
def test_an_error_at_commit_that_a_pooler_may_have_sent_proves_nothing(
    direct: PostgresDatabase, failing_commit: Callable[[str], None], sqlstate: str
) -> None:
    table = make(direct)
    failing_commit(sqlstate)
    with pytest.raises(OutcomeUnknown):
        direct.commit(transaction(swap(table)))


def test_resolve_waits_for_a_commit_still_running(
    direct: PostgresDatabase,
    proxied: PostgresDatabase,
    proxy: CuttingProxy,
    admin: psycopg.Connection[tuple[object, ...]],
) -> None:
    table = make(direct)
    slow_commit(admin, 0.7)
    doubtful = transaction(SwapRelation(table, new := next_version(table)))
    proxy.cut_at(COMMIT, Cut.AFTER_SENDING)
    with pytest.raises(OutcomeUnknown):
        proxied.commit(doubtful)
    assert direct.relation(table.identifier) == table
    assert proxied.resolve(doubtful.commit_id, [table.uuid], 20) is True
    assert direct.relation(table.identifier) == new


def test_resolve_without_rows_waits_on_the_commit_id(
    direct: PostgresDatabase,
    proxied: PostgresDatabase,
    proxy: CuttingProxy,
    admin: psycopg.Connection[tuple[object, ...]],
) -> None:
    table = make(direct)
    slow_commit(admin, 0.7)
    doubtful = transaction(swap(table))
    proxy.cut_at(COMMIT, Cut.AFTER_SENDING)
    with pytest.raises(OutcomeUnknown):
        proxied.commit(doubtful)
    assert proxied.resolve(doubtful.commit_id, [], 20) is True


def test_resolve_gives_up_in_time(
    direct: PostgresDatabase,
    proxied: PostgresDatabase,
    proxy: CuttingProxy,
    admin: psycopg.Connection[tuple[object, ...]],
) -> None:
    table = make(direct)
    slow_commit(admin, 3)
    doubtful = transaction(swap(table))
    proxy.cut_at(COMMIT, Cut.AFTER_SENDING)
    with pytest.raises(OutcomeUnknown):
        proxied.commit(doubtful)
    with pytest.raises(DatabaseUnavailable, match="could not be found out"):
        direct.resolve(doubtful.commit_id, [table.uuid], 0.3)
    admin.execute("SELECT pg_terminate_backend(%s)", (backend_in_commit(admin),))
    assert direct.resolve(doubtful.commit_id, [table.uuid], 20) is False


def test_a_backend_killed_in_commit(
    direct: PostgresDatabase, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    table = make(direct)
    slow_commit(admin, HANG_S)
    doubtful = transaction(swap(table))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(direct.commit, doubtful)
        admin.execute("SELECT pg_terminate_backend(%s)", (backend_in_commit(admin),))
        with pytest.raises(OutcomeUnknown):
            running.result(HANG_S)
    assert direct.resolve(doubtful.commit_id, [table.uuid], 10) is False
    assert direct.relation(table.identifier) == table


def test_an_error_the_server_answers_to_commit_is_known(
    direct: PostgresDatabase, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    table = make(direct)
    slow_commit(admin, HANG_S)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(commit, direct, swap(table))
        admin.execute("SELECT pg_cancel_backend(%s)", (backend_in_commit(admin),))
        with pytest.raises(DatabaseUnavailable):
            running.result(HANG_S)
    assert direct.relation(table.identifier) == table


@pytest.mark.parametrize("statement", [b"INSERT INTO commits", b"UPDATE relations"])
def test_a_connection_lost_before_commit_is_known(
    direct: PostgresDatabase, proxied: PostgresDatabase, proxy: CuttingProxy, statement: bytes
) -> None:
    table = make(direct)
    proxy.cut_at(statement, Cut.AFTER_ANSWER)
    with pytest.raises(DatabaseUnavailable):
        commit(proxied, swap(table))
    assert not proxy.armed
    assert direct.relation(table.identifier) == table
    assert commit(proxied, swap(table)) == Committed()


def test_a_lost_answer_in_a_session(
    direct: PostgresDatabase, proxied: PostgresDatabase, proxy: CuttingProxy
) -> None:
    table = make(direct)
    doubtful = transaction(swap(table))
    with pytest.raises(OutcomeUnknown), proxied.locked([table.uuid], 5) as session:
        proxy.cut_at(COMMIT, Cut.AFTER_ANSWER)
        session.commit(doubtful)
    assert proxied.resolve(doubtful.commit_id, [table.uuid], 10) is True


def test_a_session_that_lost_its_connection_before_commit(
    direct: PostgresDatabase, proxied: PostgresDatabase, proxy: CuttingProxy
) -> None:
    table = make(direct)
    with pytest.raises(DatabaseUnavailable), proxied.locked([table.uuid], 5) as session:
        proxy.cut_at(b"UPDATE relations", Cut.BEFORE)
        session.commit(transaction(swap(table)))
    assert direct.relation(table.identifier) == table


def test_a_transaction_on_its_way_loses_to_resolve(
    direct: PostgresDatabase, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    """The id is claimed before the transaction begins, so the transaction fails when it arrives."""
    table = make(direct)
    late = transaction(swap(table))
    assert direct.resolve(late.commit_id, [table.uuid], 5) is False
    with pytest.raises(CommitIdTaken):
        direct.commit(late)
    with direct.locked([table.uuid], 5) as session, pytest.raises(CommitIdTaken):
        session.commit(late)
    assert direct.relation(table.identifier) == table


@pytest.mark.parametrize("statement", [b"INSERT INTO idempotency_keys", b"SELECT fingerprint"])
def test_finalise_and_reads_outlive_a_broken_connection(
    direct: PostgresDatabase, proxied: PostgresDatabase, proxy: CuttingProxy, statement: bytes
) -> None:
    proxied.ping()
    proxy.cut_at(statement, Cut.AFTER_ANSWER)
    row = key_row("k", status=404)
    assert proxied.finalise(row) == row
    assert proxied.key("anna", "k") == row
    assert not proxy.armed


def test_connections_that_broke_while_idle_are_replaced(
    direct: PostgresDatabase, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    table = make(direct)

    def kill_all() -> None:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'frazil'"
        )

    kill_all()
    assert direct.relation(table.identifier) == table
    kill_all()
    assert commit(direct, change := swap(table)) == Committed()
    kill_all()
    with direct.locked([table.uuid], 5) as session:
        assert session.relation_by_uuid(table.uuid) == change.new
    kill_all()
    direct.migrate()


def test_a_deadlock_is_run_again(
    direct: PostgresDatabase, admin: psycopg.Connection[tuple[object, ...]]
) -> None:
    """Another session locks the rows in the opposite order and PostgreSQL picks a victim. If our
    transaction is the victim, it runs again and sees the rows as they are then."""
    first, second = make(direct, "a"), make(direct, "b")
    admin.execute("SET deadlock_timeout = '10s'")
    admin.execute("BEGIN")
    admin.execute("SELECT 1 FROM relations WHERE uuid = %s FOR UPDATE", (second.uuid,))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(commit, direct, swap(first), swap(second))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with psycopg.connect(admin.info.dsn, autocommit=True) as watcher:
            wait_until(lambda: watcher.execute(waiting).fetchone(), "nobody waits for a lock")
        admin.execute("UPDATE relations SET version = 9 WHERE uuid = %s", (first.uuid,))
        admin.execute("COMMIT")
        assert running.result(HANG_S) == SwapLost(0)


def test_a_server_that_is_not_there(postgres_url: str) -> None:
    database = PostgresDatabase("postgresql://postgres@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseUnavailable, match="PostgreSQL could not be asked"):
        database.ping()
    with pytest.raises(DatabaseUnavailable):
        commit(database, swap(relation("t")))
    with pytest.raises(DatabaseUnavailable):
        database.resolve("id", [], 0.2)
    database.close()


def test_ping_before_and_after_migration(postgres_url: str) -> None:
    database = PostgresDatabase(postgres_url)
    with pytest.raises(DatabaseUnavailable):
        database.ping()
    database.migrate()
    database.ping()
    database.close()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        database.ping()


def test_more_callers_than_connections(direct: PostgresDatabase, postgres_url: str) -> None:
    table = make(direct)
    small = PostgresDatabase(postgres_url, pool_size=2)
    with ThreadPoolExecutor(12) as threads:
        found = list(threads.map(small.relation, [table.identifier] * 60))
    assert found == [table] * 60
    must(small, swap(table))
    small.close()
