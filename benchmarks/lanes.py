"""The work on each system: load a table, commit to it, append through a client."""

from __future__ import annotations

import os

from benchmarks.catalogs import HttpCatalog
from benchmarks.histories import NAMESPACE, Commit, History, Prepared, commits_for
from benchmarks.measure import Block
from benchmarks.systems import System


class WorkNotDone(Exception):
    """A system answered, but its table is not what it should be."""


class LoadLane:
    """Loads one table again and again."""

    def __init__(self, system: System, table: Prepared, snapshots: str) -> None:
        self.system = system.name
        self._catalog = system.catalog
        self._table = table
        self._snapshots = snapshots
        _check_loaded(system, table, snapshots)

    def run(self, most: int, limit_s: float) -> Block:
        return self._catalog.load(self._table.name, self._snapshots, most, limit_s)

    def finish(self) -> None:
        """Do nothing, because loads change nothing."""


def _check_loaded(system: System, table: Prepared, snapshots: str) -> None:
    if not isinstance(system.catalog, HttpCatalog):
        return
    found = len(system.catalog.loaded(table.name, snapshots)["snapshots"])
    refs_only = snapshots == "refs" and system.knows_refs_mode
    expected = 1 if refs_only else table.history.length
    if found != expected:
        raise WorkNotDone(f"{system.name}: {found} snapshots with {snapshots}, not {expected}")


class CommitLane:
    """Sends classic commits. After a few commits a new table is used, so that the history keeps
    its length. Creating that table is not measured.

    Each turn starts with a synced disk: some systems leave their files to be written later, and
    the next system that syncs its own would wait for them.
    """

    def __init__(self, system: System, history: History) -> None:
        self.system = system.name
        self._owner = system
        self._history = history
        self._table: Prepared | None = None
        self._waiting: list[Commit] = []
        self._done = 0
        self._head = 0

    def run(self, most: int, limit_s: float) -> Block:
        if self._table is None or not self._waiting:
            self._table = self._owner.new_table(self._history)
            self._waiting = list(self._table.commits())
            self._done = 0
        os.sync()
        sent = self._waiting[:most]
        block = self._owner.catalog.commit(self._table.name, sent, limit_s)
        count = len(block.seconds)
        self._head = int(sent[count - 1].snapshot["snapshot-id"])
        self._waiting = self._waiting[count:]
        self._done += count
        return block

    def finish(self) -> None:
        if self._table is None:
            return
        found = self._owner.catalog.snapshot_ids(self._table.name)
        if found != (self._history.length + self._done, self._head):
            raise WorkNotDone(f"{self.system}: after {self._done} commits it has {found}")
        rows = self._owner.client.rows(self._table.name)
        if rows != (1 + self._done) * self._history.seed.rows_an_append:
            raise WorkNotDone(f"{self.system}: after {self._done} commits it has {rows} rows")

    def metadata_file_bytes(self) -> int:
        """Return the size of the current table's newest metadata file."""
        if self._table is None:
            raise LookupError("nothing was committed yet")
        folder = self._owner.warehouse / NAMESPACE / self._table.name / "metadata"
        newest = max(folder.glob("*.metadata.json*"), key=lambda path: path.name)
        return newest.stat().st_size


class AppendLane:
    """Appends with stock PyIceberg, end to end: data file, manifest, manifest list and commit."""

    def __init__(self, system: System, history: History) -> None:
        self.system = system.name
        self._owner = system
        self._history = history
        self._table: Prepared | None = None
        self._done = 0

    def run(self, most: int, limit_s: float) -> Block:
        remaining = commits_for(self._history.length) - self._done
        if self._table is None or remaining == 0:
            self._table = self._owner.new_table(self._history)
            self._done, remaining = 0, commits_for(self._history.length)
        os.sync()
        block = self._owner.client.append(self._table.name, min(most, remaining), limit_s)
        self._done += len(block.seconds)
        return block

    def finish(self) -> None:
        if self._table is None:
            return
        rows = self._owner.client.rows(self._table.name)
        if rows != (1 + self._done) * self._history.seed.rows_an_append:
            raise WorkNotDone(f"{self.system}: after {self._done} appends it has {rows} rows")
