"""Leases on snapshots, over HTTP and at the rows of both databases."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from frazil.db.base import Committed, SwapLost, SwapRelation, Transaction
from frazil.db.housekeeping_changes import CheckUnleased, RecordExpired
from frazil.db.rows import Database
from frazil.housekeeping.leases import Leases
from frazil.read.snapshot_leases import WantedLease, store_leases
from frazil.wire.errors import NotFound
from frazil.wire.leases import LEASE_TTL_MS, MAX_TTL_MS
from tests.commit.finegrained.requests import expire, set_ref
from tests.db.conftest import database_url, postgres_url, shared_postgres_database, sqlite_url
from tests.db.helpers import next_version, transaction
from tests.housekeeping.leasing import Leasing, error, opened_leasing
from tests.support.patience import HANG_S, wait_until

__all__ = ["database_url", "postgres_url", "shared_postgres_database", "sqlite_url"]


@pytest.fixture
def leasing(database_url: str, tmp_path: Path) -> Iterator[Leasing]:
    with opened_leasing(database_url, tmp_path / "warehouse") as found:
        yield found


@pytest.fixture
def sqlite_leasing(sqlite_url: str, tmp_path: Path) -> Iterator[Leasing]:
    """For what does not depend on the database."""
    with opened_leasing(sqlite_url, tmp_path / "warehouse") as found:
        yield found


def now_ms(leasing: Leasing) -> int:
    return int(leasing.world.database.fetch("now_ms", {})[0][0])


# --- requests -------------------------------------------------------------------------------------


def test_a_lease_is_taken_renewed_and_released(leasing: Leasing) -> None:
    before_ms = now_ms(leasing)
    lease = leasing.take(holder="nightly report")
    assert lease["snapshot-id"] == leasing.table.head_id
    assert before_ms + LEASE_TTL_MS <= lease["expires-at-ms"] <= now_ms(leasing) + LEASE_TTL_MS
    (listed,) = leasing.of("bob").leases()
    assert {name: listed[name] for name in lease} == lease
    assert (listed["principal"], listed["holder"]) == ("ann", "nightly report")

    renewed = leasing.renew(lease, ttl_ms=MAX_TTL_MS).body
    assert renewed["expires-at-ms"] >= before_ms + MAX_TTL_MS
    # A shorter time does not end it earlier.
    assert leasing.renew(lease, ttl_ms=1000).body == renewed

    assert leasing.release(lease).status == 204
    assert leasing.leases() == []
    assert leasing.release(lease).status == 404
    assert leasing.renew(lease).status == 404


def test_a_lease_names_a_snapshot_by_id_or_ref(leasing: Leasing) -> None:
    first = leasing.table.head_id
    leasing.table.commit(set_ref(first, "old", "tag"))
    leasing.table.append(leasing.table.data("second", "1"))
    assert leasing.take()["snapshot-id"] == leasing.table.head_id != first
    assert leasing.take(ref="old")["snapshot-id"] == first
    assert leasing.take(ref="main")["snapshot-id"] == leasing.table.head_id
    assert leasing.take(snapshot_id=first)["snapshot-id"] == first


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"snapshot-id": 1, "ref": "main"}, 400, "snapshot-id: cannot stand beside ref"),
        ({"snapshot-id": 1}, 404, "snapshot-id: the table has no snapshot 1"),
        ({"ref": "nope"}, 404, "ref: the table has no branch or tag 'nope'"),
        ({"ref": ""}, 400, "ref"),
        ({"ttl-ms": 999}, 400, "ttl-ms: expected int >= 1000"),
        ({"ttl-ms": MAX_TTL_MS + 1}, 400, "ttl-ms: expected int <= 604800000"),
        ({"holder": "x" * 201}, 400, "holder"),
        ({"holder": "a\0b"}, 400, "holder"),
        ({"snapshot": 1}, 400, "snapshot: unknown field"),
    ],
)
def test_bad_requests_name_the_field(
    sqlite_leasing: Leasing, body: Any, status: int, message: str
) -> None:
    answer = sqlite_leasing("POST", "leases", body)
    assert answer.status == status
    assert message in error(answer)[1]
    assert sqlite_leasing.leases() == []


def test_a_table_without_a_snapshot_has_nothing_to_lease(leasing: Leasing) -> None:
    leasing.table.name = f"{leasing.table.name}_empty"
    leasing.table.create()
    status, message = error(leasing("POST", "leases", {}))
    assert (status, message) == (404, "the table has no snapshot yet, so there is nothing to lease")


def test_leases_of_a_table_that_does_not_exist(leasing: Leasing) -> None:
    leasing.table.name = "nope"
    for method, what in [("POST", "leases"), ("GET", "leases"), ("DELETE", "leases/x")]:
        answer = leasing(method, what, {} if method == "POST" else None)
        assert answer.body["error"]["type"] == "NoSuchTableException"


def test_a_lease_belongs_to_its_principal(leasing: Leasing) -> None:
    lease = leasing.take()
    assert leasing.of("bob").renew(lease).status == 404
    assert leasing.of("reader").renew(lease).status == 404
    assert leasing.of("reader").release(lease).status == 404
    assert len(leasing.leases()) == 1
    # Whoever may change the table may end a lease that its holder has forgotten.
    assert leasing.of("bob").release(lease).status == 204


def test_a_read_only_token_may_lease(leasing: Leasing) -> None:
    reader = leasing.of("reader")
    lease = reader.take()
    assert reader.renew(lease).status == 200
    assert reader.release(lease).status == 204


def test_a_lease_of_another_table_is_not_found(leasing: Leasing) -> None:
    lease = leasing.take()
    name = leasing.table.name
    leasing.table.name = f"{name}_other"
    leasing.table.create()
    assert leasing.renew(lease).status == 404
    assert leasing.release(lease).status == 404
    leasing.table.name = name
    assert leasing.release(lease).status == 204


def test_a_lease_that_has_ended_is_not_renewed(leasing: Leasing) -> None:
    lease = leasing.take(ttl_ms=1000)
    wait_until(lambda: now_ms(leasing) > lease["expires-at-ms"], "the lease did not end")
    assert leasing.leases() == []
    assert leasing.renew(lease).status == 404
    assert leasing.release(lease).status == 404


def test_a_table_has_a_limit_of_leases(leasing: Leasing) -> None:
    leasing.world.app.leases = Leases(leasing.world.catalog, max_live=2)
    first, _ = leasing.take(), leasing.take()
    answer = leasing("POST", "leases", {})
    assert answer.status == 429
    assert "at most 2 are allowed: release some" in error(answer)[1]
    leasing.release(first)
    leasing.take()


def test_leases_follow_a_renamed_table(leasing: Leasing) -> None:
    lease = leasing.take()
    source = {"namespace": [leasing.table.namespace], "name": leasing.table.name}
    renaming = {"source": source, "destination": source | {"name": f"{leasing.table.name}_moved"}}
    assert leasing.table.call("POST", "/v1/tables/rename", renaming).status == 204
    leasing.table.name = f"{leasing.table.name}_moved"
    assert leasing.renew(lease).status == 200


# --- beside expiry --------------------------------------------------------------------------------


def expiring(leasing: Leasing, snapshot_id: int) -> Transaction:
    """Return the transaction of a commit that expires a snapshot, unless it is leased."""
    row = leasing.world.catalog.table_row(_identifier(leasing))
    new = next_version(row, leasing.table.metadata_location)
    return transaction(
        SwapRelation(row, new),
        housekeeping=(
            CheckUnleased(row.uuid, (snapshot_id,)),
            RecordExpired(row.uuid, 1000, ((snapshot_id, b"{}", ()),)),
        ),
    )


def _identifier(leasing: Leasing) -> Any:
    from frazil.wire.identifiers import Identifier

    return Identifier((leasing.table.namespace,), leasing.table.name)


def test_a_leased_snapshot_does_not_expire(leasing: Leasing) -> None:
    database, first = leasing.world.database, leasing.table.head_id
    lease = leasing.take(snapshot_id=first)
    assert isinstance(database.commit(expiring(leasing, first)), SwapLost)
    leasing.release(lease)
    assert database.commit(expiring(leasing, first)) == Committed()


def test_an_expired_snapshot_can_be_leased_while_it_is_in_quarantine(leasing: Leasing) -> None:
    first = leasing.table.head_id
    leasing.table.append(leasing.table.data("second", "1"))
    leasing.table.commit(expire(first))
    database, uuid = leasing.world.database, leasing.table.metadata["table-uuid"]
    row = {"uuid": uuid, "snapshot_id": first}
    recorded = {"snapshot": b"{}", "statistics": "[]", "now_ms": 1, "delete_after_ms": 2}
    database.execute("insert_expired_snapshot", {**row, **recorded})
    assert leasing.take(snapshot_id=first)["snapshot-id"] == first
    database.execute("delete_expired_snapshot", row)
    assert leasing("POST", "leases", {"snapshot-id": first}).status == 404


def test_a_lease_sees_a_commit_that_came_between(leasing: Leasing) -> None:
    """The table is loaded, a commit removes the snapshot, and only then the lease is stored."""
    first, catalog = leasing.table.head_id, leasing.world.catalog
    loaded = catalog.load_table(_identifier(leasing))
    leasing.table.append(leasing.table.data("second", "1"))
    leasing.table.commit(expire(first))
    database, uuid = leasing.world.database, leasing.table.metadata["table-uuid"]
    database.execute("delete_expired_snapshot", {"uuid": uuid, "snapshot_id": first})
    wanted = [WantedLease("late", first, "ann", "ann")]
    with pytest.raises(NotFound, match="has no snapshot"):
        store_leases(
            database,
            lambda: catalog.load_table(_identifier(leasing)),
            wanted,
            1000,
            loaded=loaded,
        )
    assert leasing.leases() == []


def test_a_lease_waits_for_the_commit_that_holds_the_row(postgres_url: str, tmp_path: Path) -> None:
    """Two connections: an expiry holds the row while a lease is asked for. The lease waits, and is
    refused, because the expiry was first."""
    import psycopg

    with opened_leasing(postgres_url, tmp_path / "warehouse") as leasing:
        first = leasing.table.head_id
        uuid = leasing.table.metadata["table-uuid"]
        leasing.table.append(leasing.table.data("second", "1"))
        with (
            ThreadPoolExecutor(1) as threads,
            psycopg.connect(postgres_url) as connection,
        ):
            connection.execute("UPDATE relations SET version = version WHERE uuid = %s", (uuid,))
            answer = threads.submit(leasing, "POST", "leases", {"snapshot-id": first})
            wait_until(lambda: _waits_for_lock(postgres_url, "FOR SHARE"), "no wait")
            assert not answer.done()
            connection.execute(
                "UPDATE relations SET metadata_location = %s WHERE uuid = %s",
                (_without(leasing, first), uuid),
            )
            connection.commit()
            assert answer.result(HANG_S).status == 404
        assert leasing.leases() == []


def _without(leasing: Leasing, snapshot_id: int) -> str:
    """Return the location of a metadata file that does not have the snapshot."""
    import json

    path = Path(leasing.table.load().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["snapshots"] = [s for s in metadata["snapshots"] if s["snapshot-id"] != snapshot_id]
    metadata["snapshot-log"] = metadata["snapshot-log"][-1:]
    other = path.with_name(f"00009-{snapshot_id}.metadata.json")
    other.write_text(json.dumps(metadata))
    return f"file://{other}"


def _waits_for_lock(url: str, statement: str) -> bool:
    import psycopg

    with psycopg.connect(url) as connection:
        waiting = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query LIKE %s AND datname = current_database()",
            (f"%{statement}%",),
        ).fetchone()
    return waiting is not None and waiting[0] > 0


def test_an_expiry_waits_for_the_lease_that_holds_the_row(
    postgres_url: str, tmp_path: Path
) -> None:
    """Two connections: a lease is stored and not yet committed while a commit expires the snapshot.
    The commit waits, and loses."""
    import psycopg

    with opened_leasing(postgres_url, tmp_path / "warehouse") as leasing:
        first = leasing.table.head_id
        uuid = leasing.table.metadata["table-uuid"]
        expiry = expiring(leasing, first)
        with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_url) as connection:
            connection.execute("SELECT 1 FROM relations WHERE uuid = %s FOR SHARE", (uuid,))
            connection.execute(
                "INSERT INTO leases VALUES ('l', %s, %s, 'ann', 'ann', 0, %s)",
                (uuid, first, now_ms(leasing) + 3_600_000),
            )
            outcome = threads.submit(leasing.world.database.commit, expiry)
            wait_until(lambda: _waits_for_lock(postgres_url, "UPDATE relations"), "no wait")
            assert not outcome.done()
            connection.commit()
            assert isinstance(outcome.result(HANG_S), SwapLost)


def test_leases_that_have_ended_are_forgotten(leasing: Leasing) -> None:
    ended, live = leasing.take(ttl_ms=1000), leasing.take()
    database = leasing.world.database
    wait_until(lambda: now_ms(leasing) > ended["expires-at-ms"], "the lease did not end")
    leasing.world.catalog._forget()
    assert database.fetch("lease", {"lease_id": ended["lease-id"]}) == []
    assert len(database.fetch("lease", {"lease_id": live["lease-id"]})) == 1


def test_either_the_lease_or_the_expiry_wins(leasing: Leasing) -> None:
    """Many rounds of both at once: never does a lease live on a snapshot that is gone."""
    database: Database = leasing.world.database
    uuid = leasing.table.metadata["table-uuid"]
    for _ in range(10):
        old = leasing.table.load().head_id
        leasing.table.append(leasing.table.data(f"f{time.monotonic_ns()}", "1"))
        start = threading.Barrier(2)

        def lease(snapshot_id: int = old, start: threading.Barrier = start) -> int:
            start.wait(HANG_S)
            return leasing("POST", "leases", {"snapshot-id": snapshot_id}).status

        def expiry(snapshot_id: int = old, start: threading.Barrier = start) -> bool:
            wanted = _expiry_of(leasing, snapshot_id)
            start.wait(HANG_S)
            return database.commit(wanted) == Committed()

        with ThreadPoolExecutor(2) as threads:
            leased, expired = threads.submit(lease), threads.submit(expiry)
            statuses = leased.result(HANG_S), expired.result(HANG_S)
        rows = database.fetch("expired_snapshot", {"uuid": uuid, "snapshot_id": old})
        assert statuses in {(200, False), (404, True), (200, True)}, statuses
        assert bool(rows) == statuses[1]
        if statuses == (200, True):
            # The lease came second, for a snapshot in quarantine.
            assert rows[0][3] == "quarantined"


def _expiry_of(leasing: Leasing, snapshot_id: int) -> Transaction:
    row = leasing.world.catalog.table_row(_identifier(leasing))
    new = next_version(row, _without(leasing, snapshot_id))
    return transaction(
        SwapRelation(row, new),
        housekeeping=(
            CheckUnleased(row.uuid, (snapshot_id,)),
            RecordExpired(row.uuid, 10_000, ((snapshot_id, b"{}", ()),)),
        ),
    )
