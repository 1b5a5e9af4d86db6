"""Reads the rows of a table about files to delete, as of one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from frazil.db.housekeeping_rows import (
    DeletionState,
    DoomedFileRow,
    ExpiredSnapshotRow,
    IntentRow,
    IntentState,
    database_now_ms,
    doomed_files,
    expired_snapshots,
    intents_of,
    live_leases,
)
from frazil.db.rows import Database
from frazil.db.sql import QueryName, Statements
from frazil.format.metadata.snapshots import parse_snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.reachability import Named
from frazil.wire.frazil_properties import quarantine_ms

_RETIRED_AT_ONCE: Final = 100_000


def named_by_rows(rows: Sequence[ExpiredSnapshotRow]) -> Named:
    """Return what expired snapshots name."""
    return Named(
        tuple(parse_snapshot(row.snapshot) for row in rows),
        tuple(path for row in rows for path in row.statistics),
    )


@dataclass(frozen=True, slots=True)
class DueRows:
    now_ms: int
    due: tuple[ExpiredSnapshotRow, ...]
    kept: tuple[ExpiredSnapshotRow, ...]
    """Expired snapshots whose files stay for now."""
    intents: tuple[IntentRow, ...]
    doomed: tuple[DoomedFileRow, ...]
    retired: tuple[str, ...]
    """Metadata files, and statistics files of snapshots that are still there."""

    @classmethod
    def read(cls, database: Database, uuid: str, metadata: TableMetadata) -> DueRows:
        now_ms = database_now_ms(database)
        leased = {lease.snapshot_id for lease in live_leases(database, uuid, now_ms)}
        due: list[ExpiredSnapshotRow] = []
        kept: list[ExpiredSnapshotRow] = []
        for row in expired_snapshots(database, uuid):
            (due if _is_due(row, metadata, leased, now_ms) else kept).append(row)
        before_ms = now_ms - quarantine_ms(metadata.properties)
        asked = {"uuid": uuid, "before_ms": before_ms, "limit": _RETIRED_AT_ONCE}
        return cls(
            now_ms=now_ms,
            due=tuple(due),
            kept=tuple(kept),
            intents=tuple(intents_of(database, uuid)),
            doomed=tuple(
                row
                for row in doomed_files(database, uuid)
                if row.state is DeletionState.DELETING or row.delete_after_ms <= now_ms
            ),
            retired=tuple(row[0] for row in database.fetch("retired_metadata", asked)),
        )

    @property
    def ended(self) -> list[IntentRow]:
        """The intents whose leftovers are not deleted yet."""
        return [
            intent
            for intent in self.intents
            if intent.state is not IntentState.SWEPT and not intent.is_live(self.now_ms)
        ]

    @property
    def are_old_metadata(self) -> bool:
        """Whether there is nothing to delete but old metadata files."""
        others = self.due or self.doomed or self.ended
        return not others and all(map(is_metadata_file, self.retired))

    @property
    def is_empty(self) -> bool:
        return not (self.due or self.doomed or self.retired or self.ended)


def _is_due(
    row: ExpiredSnapshotRow, metadata: TableMetadata, leased: set[int], now_ms: int
) -> bool:
    if row.snapshot_id in metadata.snapshots:
        return False
    if row.state is DeletionState.DELETING:
        return True
    return row.delete_after_ms <= now_ms and row.snapshot_id not in leased


def is_metadata_file(path: str) -> bool:
    return path.endswith((".metadata.json", ".metadata.json.gz"))


def forget_expired(database: Database, uuid: str, rows: DueRows) -> None:
    """Drop the rows of snapshots whose files are deleted."""
    gone = [{"uuid": uuid, "snapshot_id": row.snapshot_id} for row in rows.due]

    def work(sql: Statements) -> None:
        sql.execute_many("drop_expired_snapshot", gone)
        sql.execute("forget_removed_definitions", {"uuid": uuid})

    if gone:
        database.run_rows(work)


def run_many(database: Database, name: QueryName, parameters: Sequence[dict[str, Any]]) -> None:
    """Run one statement for many parameters, in one transaction."""
    if parameters:
        database.run_rows(lambda sql: sql.execute_many(name, parameters))
