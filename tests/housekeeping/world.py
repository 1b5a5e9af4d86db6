"""What random steps have done to a catalog, and what must still be there.

A `World` has tables that one driver changes. After each step it reads the tables from disk with the
reachability oracle and compares: the rows of every branch are those of the model, and every file is
there that a snapshot, a lease, an intent or the quarantine protects.

Time passes without waiting: `pass_time` moves all times of the database and of the files back.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from frazil import Client, Table
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    CommitFailed,
    NotFound,
    ValidationError,
)
from tests.support.oracle_rows import rows_of
from tests.support.reachability_oracle import (
    Lost,
    Oracle,
    TableTree,
    files_below,
    local,
)

HOUR_MS = 3_600_000
MARGIN_MS = 120_000
"""What ends within this time may be gone or not."""
QUARANTINE_MS = 6 * HOUR_MS
ORPHAN_AGE_MS = 25 * HOUR_MS
SCHEMA = "id long not null, kind string, item string"
FIELD_IDS = (1, 2, 3)

Rows = Mapping[int, str]
"""The items of a table by id. Each item is written once, so that it identifies a row."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def kind_of(id: int) -> str:
    return "ab"[id % 2]


class HousekeepingClock(Protocol):
    """Moves the times of housekeeping in the database, and reads its events."""

    def shift(self, delta_ms: int) -> None: ...

    def events(self) -> list[tuple[str, int, str, bytes]]:
        """Return uuid, version, operation and JSON of each event, in their order."""
        ...


@dataclass(frozen=True)
class Protected:
    """Files that may not be deleted before a time."""

    files: frozenset[str]
    until_ms: int


@dataclass
class Intent:
    """Files that a writer has declared a folder for and not yet committed."""

    folder: str
    rows: dict[str, dict[int, str]]
    """By path."""
    until_ms: int


@dataclass
class TableModel:
    """What is known about one table."""

    identifier: str
    version: int
    quarantine_ms: int
    tree: TableTree
    location: str
    partitioned: bool = False
    heads: dict[str, Rows] = field(default_factory=lambda: {"main": {}})
    tags: dict[str, int] = field(default_factory=dict)
    aging: set[str] = field(default_factory=set)
    """Tags whose age may end at any time."""
    by_snapshot: dict[int, Rows] = field(default_factory=dict)
    """The rows of snapshots that were the head of a branch."""
    staged: dict[int, Rows] = field(default_factory=dict)
    """The rows that a staged snapshot adds; it is published at most once."""
    quarantined: dict[int, Protected] = field(default_factory=dict)
    fallen: list[Protected] = field(default_factory=list)
    """Metadata files that fell off the log, and statistics that were replaced."""
    leases: dict[str, tuple[int, Protected]] = field(default_factory=dict)
    intents: dict[str, Intent] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    """Files of dead writers, protected by their age alone."""
    lineage: dict[tuple[int, str], tuple[int | None, int | None]] = field(default_factory=dict)
    ambiguous: set[tuple[int, str]] = field(default_factory=set)
    """Rows that were added twice, so that they have several ids."""
    declared: dict[str, dict[int, str]] = field(default_factory=dict)
    """The rows of files that were committed by their path, by path."""
    unrecorded: set[str] = field(default_factory=set)
    """Files of snapshots that were removed in the mode that records nothing."""
    is_unrecorded: bool = False
    """Whether the next snapshots are removed in the mode that records nothing."""
    is_dropped: bool = False
    purged_until_ms: int = 0


class World:
    """The tables of one catalog, a client, and everything that the driver knows about them."""

    refusals = (ValidationError, BadRequest, NotFound, AlreadyExists, CommitFailed)

    def __init__(self, url: str, seed: int, clock: HousekeepingClock, namespace: str) -> None:
        self.url = url
        self.client = Client(url)
        self.seed = seed
        self.random = Random(seed)
        self.clock = clock
        self.namespace = namespace
        self.oracle = Oracle()
        self.tables: list[TableModel] = []
        self.canaries: set[str] = set()
        self.may_be_purged = False
        """Whether a table may be gone because a purge was interrupted after its commit."""
        self.log: list[str] = []
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)

    # --- tables ----------------------------------------------------------------------------------

    def create_table(
        self, version: int, *, quarantine_ms: int = QUARANTINE_MS, partitioned: bool = False
    ) -> TableModel:
        modes = {
            f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")
        }
        name = f"{self.namespace}.t{self.number()}"
        table = self.client.create_table(
            name,
            SCHEMA,
            identifier_fields=["id"],
            format_version=version,
            partition_by=["kind"] if partitioned else (),
            properties={
                **modes,
                "commit.retry.num-retries": "100",
                "commit.retry.min-wait-ms": "1",
                "commit.retry.max-wait-ms": "50",
                "write.metadata.previous-versions-max": "5",
                "frazil.gc.quarantine-ms": str(quarantine_ms),
            },
        )
        tree = self.oracle.table(table.metadata_location)
        model = TableModel(
            name, version, quarantine_ms, tree, tree.location, partitioned=partitioned
        )
        self.tables.append(model)
        # Its path begins like that of the table; it belongs to somebody else.
        self._plant(Path(f"{tree.location}_other/data/neighbor.parquet"))
        return model

    def _plant(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1 of somebody else")
        self.canaries.add(str(path))

    def live_tables(self) -> list[TableModel]:
        return [table for table in self.tables if not table.is_dropped]

    def load(self, table: TableModel) -> Table:
        return self.client.load_table(table.identifier)

    def number(self) -> int:
        return next(self._numbers)

    def new_rows(self, count: int) -> dict[int, str]:
        return {id: self.new_item() for id in itertools.islice(self._ids, count)}

    def new_item(self) -> str:
        return f"item-{self.number()}"

    # --- time ------------------------------------------------------------------------------------

    def pass_time(self, delta_ms: int) -> None:
        """Move every time that decides about deletions back."""
        self.clock.shift(delta_ms)
        for table in self.tables:
            for path in files_below(table.location):
                with suppress(FileNotFoundError):
                    status = os.stat(path)
                    moved = status.st_mtime_ns - delta_ms * 1_000_000
                    os.utime(path, ns=(moved, moved))
            table.quarantined = {
                id: _earlier(entry, delta_ms) for id, entry in table.quarantined.items()
            }
            table.fallen = [_earlier(entry, delta_ms) for entry in table.fallen]
            table.leases = {
                id: (snapshot, _earlier(entry, delta_ms))
                for id, (snapshot, entry) in table.leases.items()
            }
            for intent in table.intents.values():
                intent.until_ms -= delta_ms
            table.purged_until_ms -= delta_ms

    # --- observing -------------------------------------------------------------------------------

    def observe(self) -> None:
        """Read all tables again, and check that nothing is wrong or missing."""
        for table in self.live_tables():
            self._look(table)
        self.check_protected()

    def purge(self, table: TableModel) -> None:
        """Drop a table with its files, which stay until the quarantine has ended."""
        self.client.drop_table(table.identifier, purge=True)
        self.note_purge(table)

    def note_purge(self, table: TableModel) -> None:
        table.is_dropped = True
        table.purged_until_ms = now_ms() + table.quarantine_ms

    def _look(self, table: TableModel) -> None:
        if not self.client.table_exists(table.identifier):
            if not self.may_be_purged:
                raise Lost(f"the table {table.identifier} is gone")
            return self.note_purge(table)
        before = table.tree
        loaded = self.client.load_table(table.identifier, snapshots="refs")
        tree = table.tree = self.oracle.table(loaded.metadata_location)
        self.oracle.check(tree)
        self._note_removals(table, before, tree)
        self._check_tags(table, tree)
        for branch, rows in table.heads.items():
            self._check_rows(table, tree, branch, rows)

    def _check_tags(self, table: TableModel, tree: TableTree) -> None:
        for tag, snapshot_id in list(table.tags.items()):
            if tag in tree.refs:
                if tree.refs[tag]["snapshot-id"] != snapshot_id:
                    raise Lost(f"the tag {tag} of {table.identifier} has moved")
            elif tag in table.aging:
                del table.tags[tag]
            else:
                raise Lost(f"the tag {tag} of {table.identifier} is gone")

    def _note_removals(self, table: TableModel, before: TableTree, after: TableTree) -> None:
        until = 0 if table.is_unrecorded else now_ms() + table.quarantine_ms
        table.is_unrecorded = False
        for id, snapshot in before.snapshots.items():
            if id not in after.snapshots:
                own = {
                    local(each["statistics-path"])
                    for kind in ("statistics", "partition-statistics")
                    for each in before.metadata.get(kind) or []
                    if each["snapshot-id"] == id
                }
                table.quarantined[id] = Protected(snapshot.files | own, until)
                if until == 0:
                    table.unrecorded |= snapshot.files | own
                table.staged.pop(id, None)
        for id in after.snapshots:
            table.quarantined.pop(id, None)
        fallen = before.metadata_files - after.metadata_files
        if fallen:
            table.fallen.append(Protected(fallen, until))

    def _check_rows(self, table: TableModel, tree: TableTree, branch: str, rows: Rows) -> None:
        ref = tree.refs.get(branch)
        if ref is None:
            if branch == "main" and not rows:
                return
            raise Lost(f"the branch {branch} of {table.identifier} is gone")
        snapshot_id = ref["snapshot-id"]
        if table.by_snapshot.get(snapshot_id) == rows:
            return
        found = rows_of(tree.snapshots[snapshot_id], FIELD_IDS)
        expected = sorted((id, kind_of(id), item) for id, item in rows.items())
        if sorted(row.values for row in found) != expected:
            raise Lost(
                f"{branch} of {table.identifier} has {sorted(row.values for row in found)}, "
                f"not {expected}"
            )
        table.by_snapshot[snapshot_id] = dict(rows)
        if table.version < 3:
            return
        for row in found:
            if (row.values[0], row.values[2]) in table.ambiguous:
                continue
            known = table.lineage.setdefault(
                (row.values[0], row.values[2]), (row.row_id, row.last_updated)
            )
            if known != (row.row_id, row.last_updated):
                raise Lost(f"the lineage of {row} was {known}")

    def check_events(self) -> None:
        """Check that each change of a table is exactly one event, and each snapshot in one."""
        events = self.clock.events()
        for table in self.live_tables():
            own = [event for event in events if event[0] == table.tree.uuid]
            versions = [version for _, version, _, _ in own]
            if versions != list(range(1, len(own) + 1)):
                raise Lost(f"{table.identifier} has the events {versions}")
            payloads = [json.loads(bytes(payload)) for _, _, _, payload in own]
            if local(payloads[-1]["metadata-location"]) != table.tree.metadata_location:
                raise Lost(f"the last event of {table.identifier} is not about its metadata")
            made = [
                commit["snapshot-id"]
                for payload in payloads
                for commit in payload.get("committed", ())
                if "cherry-pick" not in payload["updates"]
            ]
            if len(set(made)) != len(made):
                raise Lost(f"a snapshot of {table.identifier} is in several events")
            known = set(table.by_snapshot) & set(table.tree.snapshots)
            picked = {
                commit["snapshot-id"]
                for payload in payloads
                for commit in payload.get("committed", ())
            }
            if not known <= picked:
                raise Lost(f"snapshots of {table.identifier} are in no event: {known - picked}")

    # --- what is protected -----------------------------------------------------------------------

    def check_protected(self) -> None:
        self.oracle.exist(self.canaries)
        for table in self.tables:
            for why, files in self.protections(table):
                try:
                    self.oracle.exist(files)
                except Lost as lost:
                    raise Lost(f"{table.identifier}, {why}: {lost}") from None

    def protections(self, table: TableModel) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield the files of a table that must be there now, and what protects them."""
        if table.is_dropped:
            if table.purged_until_ms > now_ms() + MARGIN_MS:
                yield "purged, in quarantine", table.tree.reached
            return
        yield "reached", table.tree.reached
        yield "too young to be orphans", self._young(table)
        for id, entry in table.quarantined.items():
            if self.is_held(entry):
                yield f"expired snapshot {id} in quarantine", entry.files
        for entry in table.fallen:
            if self.is_held(entry):
                yield "old metadata in quarantine", entry.files
        for id, entry in table.leases.values():
            if self.is_held(entry):
                yield f"leased snapshot {id}", entry.files
        for intent in table.intents.values():
            if intent.until_ms > now_ms() + MARGIN_MS:
                yield f"intent {intent.folder}", frozenset(intent.rows)

    def is_held(self, entry: Protected) -> bool:
        """Return whether the protection has surely not ended."""
        return entry.until_ms > now_ms() + MARGIN_MS

    def _young(self, table: TableModel) -> frozenset[str]:
        youngest_ms = now_ms() - ORPHAN_AGE_MS + MARGIN_MS
        return frozenset(
            path
            for path in table.loose
            if os.path.exists(path) and os.stat(path).st_mtime_ns // 1_000_000 > youngest_ms
        )

    def garbage(self, table: TableModel) -> frozenset[str]:
        """Return the files below a table's location that nothing reaches.

        Nobody lists the folder of a purged table, so that files stay of which there is no record.
        """
        if table.is_dropped:
            return self.files(table) - table.loose - table.unrecorded
        return self.files(table) - table.tree.reached

    def files(self, table: TableModel) -> frozenset[str]:
        return files_below(table.location)

    def by_age(self, table: TableModel, snapshot_ids: Iterable[int]) -> list[int]:
        """Return snapshots by their commits, an order that each run of a seed has."""
        ids = set(snapshot_ids)
        return [id for id in table.tree.snapshots if id in ids]

    def say(self, text: str) -> None:
        self.log.append(text)


def _earlier(entry: Protected, delta_ms: int) -> Protected:
    return Protected(entry.files, entry.until_ms - delta_ms)


def without(rows: Rows, ids: Iterable[int]) -> dict[int, str]:
    gone = set(ids)
    return {id: item for id, item in rows.items() if id not in gone}


def sent(rows: Rows) -> list[dict[str, Any]]:
    return [{"id": id, "kind": kind_of(id), "item": item} for id, item in rows.items()]
