"""A compaction that has lost to deletes three times is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from frazil import Client, Table
from frazil.client.rows.write_folders import Write
from frazil.maintenance import rewrite_data_files
from tests.maintenance.conftest import everything, rows
from tests.support.patience import HANG_S
from tests.support.server import RunningServer

LOST = 3
ATTEMPTS = 5
UNTIL_ANOTHER_COMMITS_S = 0.2
"""Without the pause, a commit that was sent is applied in less time."""


class Race:
    """Deletes rows before each commit of a compaction."""

    def __init__(self, table: Table, url: str) -> None:
        self.table = table
        self.url = url
        self.commit = Write.commit
        self.rounds = 0
        self.is_ready = threading.Event()
        self.goes = threading.Event()
        self.last = threading.Thread(target=self.delete, args=(LOST,))

    def delete(self, number: int) -> None:
        with Client(self.url) as client:
            client.delete(self.table.identifier, f"id = {number}")

    def __call__(self, write: Write, *args: Any) -> Any:
        if threading.current_thread() is self.last:
            self.is_ready.set()
            assert self.goes.wait(HANG_S)
        elif threading.current_thread().name.startswith("frazil-rewrite"):
            self.rounds += 1
            self.before_a_round()
        return self.commit(write, *args)

    def before_a_round(self) -> None:
        if self.rounds <= LOST:
            other = threading.Thread(target=self.delete, args=(self.rounds - 1,))
            other.start()
            other.join()
        if self.rounds == LOST:
            self.last.start()
            assert self.is_ready.wait(HANG_S)
        if self.rounds == LOST + 1:
            self.goes.set()
            time.sleep(UNTIL_ANOTHER_COMMITS_S)


def test_a_delete_waits_for_a_compaction_that_lost_three_times(
    client: Client,
    new_table: Callable[..., Table],
    catalog: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = new_table(3)
    races: list[int] = []
    while len(races) < ATTEMPTS and LOST + 1 not in races:
        race = Race(table, catalog.url)
        with monkeypatch.context() as patch:
            patch.setattr(Write, "commit", lambda *args, race=race: race(*args))
            result = rewrite_data_files(
                client.load_table(table.identifier), options={"rewrite-all": "true"}
            )
            race.last.join()
        assert result.failed_data_files_count == 0
        assert rows(client, table) == everything(*range(LOST + 1))
        races.append(race.rounds)
        client.upsert(
            table.identifier,
            [{"id": id, "kind": "ab"[id % 2], "item": "old"} for id in range(LOST + 1)],
        )
    # A pause ends after half a second, so a machine that stands still may lose some races.
    assert LOST + 1 in races
