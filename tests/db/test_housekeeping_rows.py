"""What a commit records and checks about leases, intents and files to delete."""

from __future__ import annotations

from frazil.db.base import Relation, SwapLost
from frazil.db.housekeeping_changes import (
    CheckAddedPaths,
    CheckUnleased,
    RecordDefinitions,
    RecordExpired,
    RecordPurge,
    RestorePurged,
    RestoreSnapshots,
    RetireMetadata,
    StartDeletion,
)
from frazil.db.housekeeping_rows import (
    DeletionState,
    IntentState,
    database_now_ms,
    doomed_file,
    doomed_files,
    doomed_parameters,
    expired_snapshots,
    intents_of,
    live_leases,
    path_key,
    purged_table,
)
from frazil.db.rows import Database
from frazil.db.sql import Statements
from frazil.wire.errors import ValidationError
from tests.db.helpers import commit, make, must, refusal, swap

FILE = "s3://bucket/t/data/w1/a.parquet"
LONG_FILE = f"s3://bucket/t/data/{'x' * 3000}.parquet"
HOUR_MS = 3_600_000


def expired(table: Relation, *ids: int, quarantine_ms: int = HOUR_MS) -> RecordExpired:
    rows = tuple((snapshot_id, b'{"snapshot-id":1}', ("s3://b/stats",)) for snapshot_id in ids)
    return RecordExpired(table.uuid, quarantine_ms, rows)


def lease(database: Database, table: Relation, snapshot_id: int, ttl_ms: int = HOUR_MS) -> None:
    def work(sql: Statements) -> None:
        now_ms = database_now_ms(sql)
        row = {
            "lease_id": f"{table.uuid}:{snapshot_id}",
            "uuid": table.uuid,
            "snapshot_id": snapshot_id,
            "principal": "p",
            "holder": "h",
            "now_ms": now_ms,
            "expires_ms": now_ms + ttl_ms,
        }
        sql.execute("store_lease", row)

    database.run_rows(work)


def intent(database: Database, table: Relation, prefix: str, ttl_ms: int) -> None:
    def work(sql: Statements) -> None:
        now_ms = database_now_ms(sql)
        row = {
            "intent_id": prefix,
            "uuid": table.uuid,
            "prefix": prefix,
            "principal": "p",
            "holder": "h",
            "now_ms": now_ms,
            "expires_ms": now_ms + ttl_ms,
        }
        sql.execute("insert_intent", row)

    database.run_rows(work)


def quarantine(database: Database, table: Relation, *paths: str) -> None:
    def work(sql: Statements) -> None:
        now_ms = database_now_ms(sql)
        state = DeletionState.QUARANTINED
        files = [(path, "orphan", 7) for path in paths]
        rows = doomed_parameters(table.uuid, files, state, now_ms, now_ms + HOUR_MS)
        sql.execute_many("insert_doomed_file", rows)

    database.run_rows(work)


def test_an_expired_snapshot_comes_back_once(database: Database) -> None:
    table = make(database)
    must(database, swap(table), housekeeping=(expired(table, 1, 2),))
    rows = expired_snapshots(database, table.uuid)
    assert [row.snapshot_id for row in rows] == [1, 2]
    assert rows[0].snapshot == b'{"snapshot-id":1}'
    assert rows[0].statistics == ("s3://b/stats",)
    assert rows[0].delete_after_ms == rows[0].expired_ms + HOUR_MS

    restore = RestoreSnapshots(table.uuid, (1,))
    must(database, housekeeping=(restore,))
    assert commit(database, housekeeping=(restore,)) == SwapLost(0)
    assert [row.snapshot_id for row in expired_snapshots(database, table.uuid)] == [2]


def test_a_snapshot_that_is_being_deleted_does_not_come_back(database: Database) -> None:
    table = make(database)
    must(database, swap(table), housekeeping=(expired(table, 1),))
    must(database, housekeeping=(StartDeletion(table.uuid, snapshot_ids=(1,)),))
    assert commit(database, housekeeping=(RestoreSnapshots(table.uuid, (1,)),)) == SwapLost(0)


def test_a_leased_snapshot_is_neither_expired_nor_deleted(database: Database) -> None:
    table = make(database)
    lease(database, table, 1)
    lease(database, table, 2, ttl_ms=-1)
    assert commit(
        database, swap(table), housekeeping=(expired(table, 1), CheckUnleased(table.uuid, (1, 2)))
    ) == SwapLost(0)
    assert not expired_snapshots(database, table.uuid)
    must(database, swap(table), housekeeping=(expired(table, 2), CheckUnleased(table.uuid, (2, 3))))
    lease(database, table, 2)
    deletion = StartDeletion(table.uuid, files=((FILE, "expired", None),), snapshot_ids=(2,))
    assert commit(database, housekeeping=(deletion,)) == SwapLost(0)
    assert not list(doomed_files(database, table.uuid))
    now_ms = database_now_ms(database)
    assert {row.snapshot_id for row in live_leases(database, table.uuid, now_ms)} == {1, 2}


def test_a_commit_releases_a_quarantined_file(database: Database) -> None:
    table, other = make(database), make(database, "other")
    quarantine(database, table, FILE, LONG_FILE, f"{FILE}2")
    quarantine(database, other, FILE)
    must(database, swap(table), housekeeping=(CheckAddedPaths(table.uuid, 0, (FILE, LONG_FILE)),))
    assert [row.path for row in doomed_files(database, table.uuid)] == [f"{FILE}2"]
    assert doomed_file(database, other.uuid, FILE) is not None


def test_a_commit_of_a_file_that_is_being_deleted_is_refused(database: Database) -> None:
    table = make(database)
    quarantine(database, table, FILE)
    files = ((FILE, "orphan", None), (LONG_FILE, "orphan", 3))
    must(database, housekeeping=(StartDeletion(table.uuid, files=files),))
    before = database.relation(table.identifier)
    paths = ("s3://bucket/t/data/w1/b.parquet", LONG_FILE, FILE)
    error = refusal(
        commit(database, swap(table), housekeeping=(CheckAddedPaths(table.uuid, 3, paths),))
    )
    assert isinstance(error, ValidationError)
    (found,) = error.conflicts
    assert (found["clause"], found["update"]) == ("file-being-deleted", 3)
    assert {file["file-path"] for file in found["files"]} == {FILE, LONG_FILE}
    assert database.relation(table.identifier) == before


def test_a_file_below_a_swept_intent_is_refused(database: Database) -> None:
    table = make(database)
    intent(database, table, "s3://bucket/t/data/w1", ttl_ms=-1)
    sweep = StartDeletion(table.uuid, intent_ids=("s3://bucket/t/data/w1",))
    must(database, swap(table), housekeeping=(CheckAddedPaths(table.uuid, 0, (FILE,)),))
    must(database, housekeeping=(sweep,))
    assert intents_of(database, table.uuid)[0].state is IntentState.SWEPT
    row = database.relation(table.identifier)
    assert row is not None
    error = refusal(
        commit(database, swap(row), housekeeping=(CheckAddedPaths(table.uuid, 0, (FILE,)),))
    )
    assert "being deleted" in error.message
    beside = CheckAddedPaths(table.uuid, 0, ("s3://bucket/t/data/w10/a.parquet",))
    must(database, swap(row), housekeeping=(beside,))


def test_another_spelling_of_a_path_is_the_same_file(database: Database) -> None:
    table = make(database)
    quarantine(database, table, FILE)
    respelled = "s3a://bucket/t//data/w1/a.parquet"
    must(database, swap(table), housekeeping=(CheckAddedPaths(table.uuid, 0, (respelled,)),))
    assert not list(doomed_files(database, table.uuid))
    row = database.relation(table.identifier)
    assert row is not None
    deletion = StartDeletion(table.uuid, files=((FILE, "orphan", None),))
    must(database, housekeeping=(deletion,))
    check = CheckAddedPaths(table.uuid, 0, (respelled,))
    assert "being deleted" in refusal(commit(database, swap(row), housekeeping=(check,))).message
    intent(database, table, "s3://bucket/t/data/w2", ttl_ms=-1)
    must(database, housekeeping=(StartDeletion(table.uuid, intent_ids=("s3://bucket/t/data/w2",)),))
    check = CheckAddedPaths(table.uuid, 0, ("s3n://bucket/t/data//w2/b.parquet",))
    assert "being deleted" in refusal(commit(database, swap(row), housekeeping=(check,))).message


def test_a_live_intent_is_not_swept(database: Database) -> None:
    table = make(database)
    intent(database, table, "s3://bucket/t/data/w1", ttl_ms=HOUR_MS)
    sweep = StartDeletion(table.uuid, intent_ids=("s3://bucket/t/data/w1",))
    assert commit(database, housekeeping=(sweep,)) == SwapLost(0)
    (row,) = intents_of(database, table.uuid)
    assert row.is_live(database_now_ms(database))


def test_a_purged_table_comes_back_once(database: Database) -> None:
    table = make(database)
    purge = RecordPurge(table.uuid, "ns", "t", table.metadata_location, ("s3://b/t",), HOUR_MS)
    must(database, housekeeping=(purge,))
    row = purged_table(database, table.uuid)
    assert row is not None
    assert (row.name, row.locations) == ("t", ("s3://b/t",))
    must(database, housekeeping=(RestorePurged(table.uuid),))
    assert commit(database, housekeeping=(RestorePurged(table.uuid),)) == SwapLost(0)


def test_the_tables_with_work_are_those_with_due_rows(database: Database) -> None:
    due, later, retired = make(database), make(database, "later"), make(database, "retired")
    must(database, housekeeping=(expired(due, 1, quarantine_ms=0), expired(later, 1)))
    definitions = RecordDefinitions(due.uuid, (("schema", 0, b"{}"),))
    must(database, housekeeping=(RetireMetadata(retired.uuid, ("s3://b/m.json",)), definitions))
    asked = {"now_ms": database_now_ms(database) + 1}
    found = {row[0] for row in database.fetch("tables_with_work", asked)}
    assert found == {due.uuid, retired.uuid}


def test_long_paths_have_short_keys() -> None:
    assert path_key(FILE) == FILE
    assert len(path_key(LONG_FILE)) < 100
    assert path_key(LONG_FILE) != path_key(LONG_FILE + "x")
