"""Searches for orphan files as jobs of a server, from Python."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from frazil import Client, Table
from frazil.maintenance import remove_orphan_files
from frazil.maintenance.stored_file_list import stored_file_list
from frazil.wire.errors import BadRequest, Conflict

DAYS_S = 86_400


@pytest.fixture
def table(new_table: Callable[..., Table]) -> Table:
    return new_table(2, **{"frazil.gc.quarantine-ms": "0"})


def leave(table: Table, count: int, days: int = 4) -> list[str]:
    """Write files that a writer has forgotten so many days ago."""
    folder = local(table.location) / "data" / f"writer-{days}"
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.parquet" for number in range(count)]
    for path in paths:
        path.write_bytes(b"PAR1")
        os.utime(path, (time.time() - days * DAYS_S,) * 2)
    return [f"file://{path}" for path in paths]


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def test_orphans_are_shown_and_then_deleted(client: Client, table: Table) -> None:
    orphans, recent = leave(table, 3), leave(table, 1, days=2)
    shown = remove_orphan_files(table, dry_run=True)
    assert sorted(shown.orphan_file_locations) == orphans
    assert all(local(path).exists() for path in orphans)
    result = remove_orphan_files(table)
    assert (result.orphan_files_count, result.deleted_files_count) == (3, 3)
    assert not any(local(path).exists() for path in orphans)
    assert local(recent[0]).exists()
    assert client.scan(table.identifier).count() == 60


def test_options_reach_the_search(table: Table) -> None:
    leave(table, 30)
    with pytest.raises(Conflict, match="max_orphan_share"):
        remove_orphan_files(table, options={"max_orphan_share": "0.2"})
    with pytest.raises(BadRequest, match=r"options\.prefix_mismatch_mode"):
        remove_orphan_files(table, options={"prefix_mismatch_mode": "maybe"})
    with pytest.raises(BadRequest, match=r"options\.older_than"):
        remove_orphan_files(table, older_than=int(time.time() * 1000))
    folder = f"{table.location}/metadata"
    assert remove_orphan_files(table, location=folder).orphan_files_count == 0


def test_a_stored_listing_is_searched(client: Client, table: Table) -> None:
    orphans = leave(table, 3)
    files = [(path, 4, 1) for path in orphans[:2]]
    with stored_file_list(table, files) as location:
        result = remove_orphan_files(table, options={"file_list": location})
    assert result.deleted_files_count == 2
    assert [local(path).exists() for path in orphans] == [False, False, True]
    assert client.scan(table.identifier).count() == 60
