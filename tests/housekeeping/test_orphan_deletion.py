"""Orphans that were found are deleted by the sweep, unless something names them before."""

from __future__ import annotations

import time

import pytest

from frazil.db.housekeeping_rows import DeletionState, doomed_parameters
from frazil.db.sql import Statements
from frazil.housekeeping import orphan_files
from frazil.housekeeping.server_operations import SERVER_OPERATIONS, JobRun
from frazil.housekeeping.sweep import sweep_table
from frazil.wire.errors import ValidationError
from frazil.wire.maintenance_operations import REMOVE_ORPHAN_FILES
from tests.commit.requests import name
from tests.housekeeping.orphan_shop import HOUR_MS, Shop


def let_quarantine_end(shop: Shop) -> None:
    """Move the time at which the recorded files are deleted into the past."""
    paths = sorted(shop.recorded())

    def work(sql: Statements) -> None:
        files = [(path, "orphan", None) for path in paths]
        rows = doomed_parameters(shop.uuid(), files, DeletionState.QUARANTINED, 1, 1)
        for row in rows:
            sql.execute("drop_doomed_file", {"uuid": shop.uuid(), "path_key": row["path_key"]})
        sql.execute_many("insert_doomed_file", rows)

    shop.database.run_rows(work)


def test_an_orphan_is_deleted_after_its_quarantine(any_shop: Shop) -> None:
    shop = any_shop
    shop.create()
    live, orphan = shop.append()[0], shop.orphan()
    shop.search()
    sweep_table(shop.tools, shop.uuid())
    assert shop.store.size(orphan) is not None
    let_quarantine_end(shop)
    sweep_table(shop.tools, shop.uuid())
    assert shop.store.size(orphan) is None
    assert shop.store.size(live) is not None
    assert not shop.recorded()
    assert not shop.found()


def test_without_quarantine_the_run_that_finds_an_orphan_deletes_it(
    any_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files in a bucket cannot be made to look old.
    monkeypatch.setattr(orphan_files, "COMMIT_MS", 0)
    shop = any_shop
    shop.create()
    shop.set_properties(**{"frazil_gc_quarantine__ms": "0"})
    live, orphans = shop.append(3), [shop.orphan() for _ in range(3)]
    assert shop.found() == set(orphans)
    result = shop.search()
    assert (result.orphan_files_count, result.deleted_files_count) == (3, 3)
    assert [shop.store.size(path) for path in orphans] == [None] * 3
    assert all(shop.store.size(path) for path in live)
    assert not shop.recorded()


def test_a_commit_that_names_a_recorded_file_takes_it_back(any_shop: Shop) -> None:
    shop = any_shop
    shop.create()
    orphan = shop.orphan()
    shop.search()
    spelled = orphan.replace("s3://", "s3a://").replace("file://", "file:")
    shop.commit(spelled)
    assert not shop.recorded()
    let_quarantine_end(shop)
    sweep_table(shop.tools, shop.uuid())
    assert shop.store.size(orphan) is not None
    assert not shop.found()


def test_a_commit_of_a_file_that_is_being_deleted_is_refused(any_shop: Shop) -> None:
    shop = any_shop
    shop.create()
    orphan = shop.orphan()
    shop.search()

    def work(sql: Statements) -> None:
        files = [(orphan, "orphan", None)]
        rows = doomed_parameters(shop.uuid(), files, DeletionState.DELETING, 1, 1)
        sql.execute_many("insert_doomed_file", rows)

    shop.database.run_rows(work)
    with pytest.raises(ValidationError, match="is being deleted"):
        shop.commit(orphan)


def test_a_recorded_file_that_a_stock_client_commits_stays(shop: Shop) -> None:
    """The server does not know the files of manifests that clients write, so the sweep decides."""
    shop.create()
    waiting = shop.orphan()
    shop.search()
    # As a stock client does: nobody has checked the declared path.
    shop.commit(waiting)
    row = doomed_parameters(
        shop.uuid(), [(waiting, "orphan", None)], DeletionState.QUARANTINED, 1, 1
    )
    shop.database.run_rows(lambda sql: sql.execute_many("insert_doomed_file", row))
    sweep_table(shop.tools, shop.uuid())
    assert shop.store.size(waiting) is not None
    assert not shop.recorded()


def test_the_search_is_a_job_of_the_server(shop: Shop) -> None:
    shop.create()
    shop.append()
    orphan = shop.orphan()
    soon = str(time.time_ns() // 1_000_000 + 1000)
    steps: list[tuple[int, int]] = []
    job = JobRun(
        identifier=name("t"),
        uuid=shop.uuid(),
        options={"older_than": soon, "allow_recent_files": "true"},
        dry_run=False,
        principal="p",
        progress=lambda done, total: steps.append((done, total)),
        cancelled=lambda: False,
    )
    SERVER_OPERATIONS[REMOVE_ORPHAN_FILES](shop.tools, job)
    assert shop.recorded() == {orphan}
    assert steps[-1] == (1, 1)


def test_new_files_wait_for_a_commit_that_has_begun(shop: Shop) -> None:
    """A commit writes manifests before its swap, and no intent protects those."""
    shop.create(properties={"frazil.gc.quarantine-ms": "0"})
    shop.append()
    manifest = shop.write(f"{shop.location()}/metadata/in-flight-m0.avro")
    old = shop.write(shop.new_path(), age_ms=2 * HOUR_MS)
    result = shop.search(max_orphan_share=1.0)
    assert result.orphan_files_count == 2
    assert result.deleted_files_count == 1
    assert shop.store.size(old) is None
    sweep_table(shop.tools, shop.uuid())
    assert shop.store.size(manifest) is not None
    assert shop.recorded() == {manifest}
