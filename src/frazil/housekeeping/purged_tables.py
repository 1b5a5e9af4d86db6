"""Deletes the files of tables that were dropped with purge, once their quarantine is over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from frazil.db.base import DatabaseUnavailable
from frazil.db.housekeeping_changes import StartDeletion
from frazil.db.housekeeping_rows import (
    DeletionState,
    ExpiredSnapshotRow,
    IntentRow,
    PurgedTableRow,
    RowsMoved,
    apply_housekeeping,
    database_now_ms,
    doomed_files,
    expired_snapshots,
    intents_of,
    live_leases,
    purged_table,
)
from frazil.db.rows import check_free
from frazil.db.sql import Statements
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.deletion.deleted_counts import DeletedFiles, SweepResult
from frazil.housekeeping.deletion.deletion_marks import RowsChanged
from frazil.housekeeping.deletion.due_rows import named_by_rows
from frazil.housekeeping.deletion.marked_files import chunked, delete_marked, kind_of_reason
from frazil.housekeeping.expiration_plan import gc_is_enabled
from frazil.housekeeping.own_files import own_files_of
from frazil.housekeeping.reachability import (
    CONTENT_KINDS,
    FileKind,
    FoundFile,
    KeptFiles,
    Named,
    Watch,
    named_by_table,
    tree_reader,
    unreachable_files,
)
from frazil.housekeeping.server_operations import ServerTools
from frazil.plan.plan_leases import PLAN_LEASE_PREFIX
from frazil.store.object_store import StoreError
from frazil.values.path_keys import PathKey, PathKeys, is_below
from frazil.wire.errors import Forbidden, FrazilError

logger = logging.getLogger("frazil.housekeeping")

_RETIRED_AT_ONCE: Final = 1_000_000
_MAX_PROBLEMS: Final = 20
_NOT_FOR_GC: Final = (FileKind.UNKNOWN, *CONTENT_KINDS)
"""As in Java's CatalogUtil.dropTableData, these stay if `gc.enabled` is false, because other tables
may refer to them."""


def sweep_purged(tools: ServerTools, uuid: str, dry_run: bool, watch: Watch) -> SweepResult:
    """Delete the files of a purged table, if its time has come. Raises RowsChanged if the table
    comes back meanwhile."""
    row = purged_table(tools.database, uuid)
    if row is None:
        return SweepResult()
    now_ms = database_now_ms(tools.database)
    intents = tuple(intents_of(tools.database, uuid))
    if row.state is DeletionState.QUARANTINED:
        if row.delete_after_ms > now_ms:
            return SweepResult()
        leases = [
            lease
            for lease in live_leases(tools.database, uuid, now_ms)
            # The plans of a table end when it is dropped.
            if not lease.lease_id.startswith(PLAN_LEASE_PREFIX)
        ]
        if leases or any(intent.is_live(now_ms) for intent in intents):
            return SweepResult(problems=("a reader or a writer still uses the purged table",))
    return _PurgedSweep(tools, row, intents, dry_run, watch).run()


@dataclass(slots=True)
class _PurgedSweep:
    tools: ServerTools
    row: PurgedTableRow
    intents: tuple[IntentRow, ...]
    dry_run: bool
    watch: Watch
    problems: list[str] = field(default_factory=list)
    _keys: PathKeys = field(default_factory=lambda: PathKeys(decode=True))

    def run(self) -> SweepResult:
        expired = expired_snapshots(self.tools.database, self.row.uuid)
        ids = tuple(row.snapshot_id for row in expired)
        metadata = self._metadata()
        files = iter(()) if metadata is None else self._files(metadata, expired)
        deleted = DeletedFiles()
        for chunk in chain(chunked(files), [()]):
            marked: Sequence[FoundFile] = chunk
            if not self.dry_run:
                marked = self._mark(chunk, ids)
                delete_marked(self.tools.database, self.tools.store, self.row.uuid, marked)
            ids = ()
            deleted = deleted + DeletedFiles.of(file.kind for file in marked)
        if not self.dry_run:
            self._forget(expired)
            self._remove_empty_folders()
        return SweepResult(
            deleted=deleted,
            expired_snapshots_count=len(expired),
            ended_intents_count=len(self.intents),
            problems=tuple(self.problems),
        )

    def _metadata(self) -> TableMetadata | None:
        """Return the metadata, or None if it was deleted before, as the last file."""
        try:
            return self.tools.catalog.metadata_at(self.row.metadata_location)
        except FrazilError as error:
            self._problem(f"the files of the purged table stay: {error.message}")
            return None

    def _files(
        self, metadata: TableMetadata, expired: Sequence[ExpiredSnapshotRow]
    ) -> Iterator[FoundFile]:
        reader = tree_reader(self.tools)
        is_own = own_files_of(self.tools.catalog.locations, metadata)
        named = named_by_table(metadata, self.row.metadata_location)
        rows = named_by_rows(expired)
        asked = {"uuid": self.row.uuid, "before_ms": 2**62, "limit": _RETIRED_AT_ONCE}
        retired = (row[0] for row in self.tools.database.fetch("retired_metadata", asked))
        everything = Named(
            (*rows.snapshots, *named.snapshots),
            (*rows.statistics, *named.statistics),
            (*retired, *named.metadata_files),
        )
        reached = unreachable_files(
            reader,
            everything,
            KeptFiles(reader),
            is_own,
            problem=self._problem,
            watch=self.watch,
        )
        found = chain(self._others(is_own), reached)
        if gc_is_enabled(metadata):
            return found
        return (file for file in found if file.kind not in _NOT_FOR_GC)

    def _others(self, is_own: Callable[[str], bool]) -> Iterator[FoundFile]:
        """Yield what no snapshot reaches: orphans that were found, and leftovers of writers."""
        for doomed in doomed_files(self.tools.database, self.row.uuid):
            if is_own(doomed.path):
                yield FoundFile(doomed.path, kind_of_reason(doomed.reason))
        for intent in self.intents:
            for info in self.tools.store.list(intent.prefix):
                if is_own(info.location):
                    yield FoundFile(info.location, FileKind.UNKNOWN)

    def _mark(
        self, files: Sequence[FoundFile], snapshot_ids: tuple[int, ...]
    ) -> Sequence[FoundFile]:
        """Mark files, unless another table owns their location by now."""

        def work(sql: Statements) -> Sequence[FoundFile]:
            # A table takes its locations under this lock.
            sql.fetch("hold_locations", {})
            if sql.fetch("relation_by_uuid", {"uuid": self.row.uuid}):
                raise RowsChanged
            taken = [
                self._keys.of_folder(own) for own in self.row.locations if self._is_taken(sql, own)
            ]
            free = [file for file in files if not self._is_in(file.path, taken)]
            rows = tuple((file.path, file.kind.value, None) for file in free)
            start = StartDeletion(self.row.uuid, rows, snapshot_ids, purged=True)
            apply_housekeeping(sql, (start,))
            return free

        try:
            return self.tools.database.run_rows(work)
        except RowsMoved:
            raise RowsChanged from None

    def _is_taken(self, sql: Statements, location: str) -> bool:
        try:
            check_free(sql, location, self.row.uuid, "a purged table")
        except Forbidden as error:
            self._problem(f"the files of the purged table stay: {error.message}")
            return True
        return False

    def _is_in(self, path: str, folders: Sequence[PathKey]) -> bool:
        key = self._keys.of(path) if folders else None
        return key is not None and any(is_below(key, folder) for folder in folders)

    def _forget(self, expired: Sequence[ExpiredSnapshotRow]) -> None:
        uuid = self.row.uuid

        def work(sql: Statements) -> None:
            rows = [{"uuid": uuid, "snapshot_id": row.snapshot_id} for row in expired]
            sql.execute_many("drop_expired_snapshot", rows)
            sql.execute("forget_removed_definitions", {"uuid": uuid})
            sql.execute_many("drop_intent", [{"intent_id": own.intent_id} for own in self.intents])
            sql.execute("drop_rows_of_purged", {"uuid": uuid})
            sql.execute("drop_retired_of_purged", {"uuid": uuid})
            sql.execute("drop_purged_table", {"uuid": uuid})

        self.tools.database.run_rows(work)

    def _remove_empty_folders(self) -> None:
        """Remove the folders. If this fails, they are harmless."""
        with suppress(FrazilError, StoreError, DatabaseUnavailable):
            for location in self.row.locations:
                # Another table may have this location by now, and its writers expect its folders.
                self.tools.database.check_location_is_free(location, self.row.uuid)
                self.tools.store.remove_empty_folders(location)

    def _problem(self, message: str) -> None:
        logger.warning("purge of %s: %s", self.row.name, message)
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(message)
