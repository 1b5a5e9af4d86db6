"""How often tables are read and changed is counted by the hour."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.db.housekeeping_rows import database_now_ms
from frazil.db.rows import Database
from tests.commit.finegrained.requests import append
from tests.commit.finegrained.tables import Table
from tests.db.conftest import database_url, postgres_url, shared_postgres_database, sqlite_url
from tests.housekeeping.leasing import Leasing, opened_leasing

__all__ = ["database_url", "postgres_url", "shared_postgres_database", "sqlite_url"]

HOUR_MS = 3_600_000


@pytest.fixture
def leasing(database_url: str, tmp_path: Path) -> Iterator[Leasing]:
    with opened_leasing(database_url, tmp_path / "warehouse") as found:
        yield found


def stored(leasing: Leasing) -> tuple[int, int]:
    """Return the scans and commits that are stored after a flush."""
    leasing.world.catalog.activity.flush()
    return counts(leasing.world.database, leasing.table)


def counts(database: Database, table: Table) -> tuple[int, int]:
    asked = {"uuid": table.metadata["table-uuid"], "since_ms": 0}
    scans, commits = database.fetch("activity_of", asked)[0]
    return int(scans or 0), int(commits or 0)


def report(kind: str) -> dict[str, Any]:
    common = {"table-name": "t", "snapshot-id": 1, "metrics": {}}
    scan = {"filter": True, "schema-id": 0, "projected-field-ids": [], "projected-field-names": []}
    commit = {"sequence-number": 1, "operation": "append"}
    return {"report-type": kind, **common, **(scan if kind == "scan-report" else commit)}


def test_plans_reports_and_commits_are_counted(leasing: Leasing) -> None:
    table = leasing.table
    assert stored(leasing) == (0, 1)
    for _ in range(2):
        assert table.call("POST", f"{table.path}/plan", {}).status == 200
    assert table.call("POST", f"{table.path}/metrics", report("scan-report")).status == 204
    assert stored(leasing) == (3, 1)
    # The server has counted the commit itself.
    assert table.call("POST", f"{table.path}/metrics", report("commit-report")).status == 204
    table.append(table.data("second", "1"))
    change = {
        "identifier": {"namespace": [table.namespace], "name": table.name},
        "requirements": [],
        "updates": [append(table.data("third", "1"))],
    }
    body = {"table-changes": [change]}
    assert table.call("POST", "/v1/transactions/commit", body).status == 204
    assert stored(leasing) == (3, 3)


def test_a_commit_that_was_refused_is_not_counted(leasing: Leasing) -> None:
    table = leasing.table
    body = {"requirements": [{"type": "assert-table-uuid", "uuid": "nope"}], "updates": []}
    assert table.call("POST", table.path, body).status == 409
    assert stored(leasing) == (0, 1)


def test_counts_are_stored_by_the_hour_and_forgotten(leasing: Leasing) -> None:
    assert stored(leasing) == (0, 1)
    database, uuid = leasing.world.database, leasing.table.metadata["table-uuid"]
    hour_ms = database_now_ms(database) // HOUR_MS * HOUR_MS
    old = {"uuid": uuid, "hour_ms": hour_ms - 32 * 24 * HOUR_MS, "scans": 7, "commits": 0}
    database.execute("add_activity", old)
    assert stored(leasing) == (7, 1)
    (row,) = database.fetch("activity", {"since_ms": hour_ms - HOUR_MS})
    assert (row[0], int(row[1]), int(row[2])) == (uuid, 0, 1)
    leasing.world.catalog.activity.forget()
    assert stored(leasing) == (0, 1)


def test_counts_are_stored_when_the_server_ends(database_url: str, tmp_path: Path) -> None:
    from frazil.db.connect import connect

    with opened_leasing(database_url, tmp_path / "warehouse") as leasing:
        table = leasing.table
    database = connect(database_url)
    try:
        assert counts(database, table) == (0, 1)
    finally:
        database.close()
