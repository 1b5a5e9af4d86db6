"""Maintenance holds what it reads, and declares the folders that it writes to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil import Client, Table
from frazil.client.rows.write_folders import committing, new_folder
from frazil.maintenance import expire_snapshots, rewrite_data_files
from frazil.wire.errors import CommitStateUnknown, NotFound
from tests.maintenance.conftest import during_the_rewrite, everything, rows
from tests.support.server import RunningServer

NewTable = Callable[..., Table]


def stored(catalog: RunningServer, table: Table) -> list[tuple[str, str]]:
    """Return the prefix and the state of all intents of a table, also of those that have ended."""
    path = catalog.directory / "frazil.db"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return connection.execute(
            "SELECT prefix, state FROM intents WHERE uuid = ? ORDER BY created_ms", (table.uuid,)
        ).fetchall()


def test_a_rewrite_holds_its_snapshot_and_its_folder(
    client: Client,
    catalog: RunningServer,
    new_table: NewTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = new_table(3)
    folders: list[str] = []
    leased: set[int] = set()

    def look() -> None:
        folders.extend(intent.prefix for intent in client.intents.list(table.identifier))
        held = client.leases.list(table.identifier)
        leased.update(each.snapshot_id for each in held if not each.lease_id.startswith("plan:"))

    during_the_rewrite(monkeypatch, look)
    rewrite_data_files(table)
    (folder,) = folders
    files = {file.file_path for file in client.load_table(table.identifier).plan().files}
    assert all(path.startswith(f"{folder}/") for path in files)
    assert leased == {table.head()}
    # It has cleaned up, so nobody needs to look for leftovers.
    assert stored(catalog, table) == []
    held = client.leases.list(table.identifier)
    # The test itself has planned a snapshot.
    assert {lease.lease_id.partition(":")[0] for lease in held} == {"plan"}
    assert rows(client, table) == everything()


def test_an_expiry_beside_a_rewrite_leaves_the_history_since_its_base(
    client: Client, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(3)
    expired: list[int] = []

    def others() -> None:
        for _ in range(3):
            client.delete(table.identifier, "id = 1")
            client.append(table.identifier, [{"id": 1, "item": "again"}])
        now = datetime.now(UTC) + timedelta(seconds=1)
        fresh = client.load_table(table.identifier)
        result = expire_snapshots(fresh, older_than=now, retain_last=1)
        expired.append(result.expired_snapshots_count)

    during_the_rewrite(monkeypatch, others)
    result = rewrite_data_files(table, options={"rewrite-all": "true"})
    assert result.rewritten_data_files_count > 0
    assert result.failed_data_files_count == 0
    # Those before the base have expired.
    assert expired == [len(table.snapshots) - 1]
    fresh = client.load_table(table.identifier)
    now = datetime.now(UTC) + timedelta(seconds=1)
    assert expire_snapshots(fresh, older_than=now, retain_last=1).leased_snapshots_count == 0


def test_a_write_that_fails_leaves_no_intent(
    client: Client, catalog: RunningServer, new_table: NewTable
) -> None:
    table = new_table(2)
    folder = new_folder(table)
    with pytest.raises(ZeroDivisionError), committing(folder, table.intent):
        assert [state for _, state in stored(catalog, table)] == ["live"]
        _ = 1 / 0
    assert stored(catalog, table) == []


def test_a_write_with_an_unknown_outcome_is_swept_later(
    client: Client, catalog: RunningServer, new_table: NewTable
) -> None:
    """Its files may be committed, so nothing is removed here."""
    table = new_table(2)
    folder = new_folder(table)

    def lose_the_answer() -> None:
        raise CommitStateUnknown("lost")

    with pytest.raises(CommitStateUnknown), committing(folder, table.intent) as write:
        write.commit([], lose_the_answer)  # type: ignore[arg-type]
    assert stored(catalog, table) == [(folder.location, "ended")]


def test_a_write_whose_clean_up_fails_is_swept_later(
    client: Client, catalog: RunningServer, new_table: NewTable
) -> None:
    table = new_table(2)
    folder = new_folder(table)
    path = Path(folder.location.removeprefix("file://"))
    missing = [f"{folder.location}/a.parquet"]
    with committing(folder, table.intent) as write:
        (path / "b.parquet").write_bytes(b"x")
        # A committed file that is not found stops the clean-up.
        write.commit(missing, lambda: client.append(table.identifier, []))
    assert stored(catalog, table) == [(folder.location, "ended")]


def test_a_write_goes_on_without_an_intent(client: Client, new_table: NewTable) -> None:
    """A catalog that does not know intents answers 404."""
    table = new_table(2)
    client.rename_table(table.identifier, f"{table.identifier}_moved")
    with pytest.raises(NotFound):
        table.intent(f"{table.location}/data/x").__enter__()
    with committing(new_folder(table), table.intent) as write:
        pass
    assert write.is_clean
