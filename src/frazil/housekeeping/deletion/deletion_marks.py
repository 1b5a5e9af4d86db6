"""Marks files of a table for deletion, if nothing needs them at that moment."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from frazil.db.base import Committed, DatabaseUnavailable, OutcomeUnknown, Refused, Transaction
from frazil.db.housekeeping_changes import StartDeletion
from frazil.db.housekeeping_rows import database_now_ms, intents_of, path_keys
from frazil.db.rows import Reads, Session
from frazil.housekeeping.deletion.due_rows import run_many
from frazil.housekeeping.deletion.marked_files import EmptiedFolders
from frazil.housekeeping.expiration_plan import gc_is_enabled
from frazil.housekeeping.own_files import OwnFiles, own_files_of
from frazil.housekeeping.path_hashes import HashSet
from frazil.housekeeping.reachability import FileKind, FoundFile, KeptFiles, named_by_table
from frazil.housekeeping.server_operations import ServerTools
from frazil.values.path_keys import PathKey, PathKeys, is_below

_LOCK_TIMEOUT_S: Final = 10.0
_MOVES_WITHOUT_LOCK: Final = 3
_NAMED_BY_METADATA: Final = (FileKind.MANIFEST_LIST, FileKind.METADATA)


class RowsChanged(Exception):
    """A lease, an intent, an undo or a drop came in between: begin again."""


class Marks:
    """Marks files in transactions that have seen the newest metadata of the table."""

    def __init__(
        self, tools: ServerTools, uuid: str, kept: KeptFiles, *, only_metadata: bool = False
    ) -> None:
        """Create marks of a table. With `only_metadata` they are asked about metadata files only,
        so that nobody has to read the lists of all snapshots."""
        self._tools = tools
        self._only_metadata = only_metadata
        self._uuid = uuid
        self.kept = kept
        self._own = OwnFiles(lambda path: False)
        self._seen = ""
        self._folders = EmptiedFolders(())
        self._marked = HashSet()
        """Files that were marked before, because several rows may lead to a file."""
        self._keys = PathKeys(decode=True)

    def is_own(self, path: str) -> bool:
        return self._own(path)

    def keep(self, metadata_location: str) -> None:
        """Keep everything that this metadata names."""
        metadata = self._tools.catalog.metadata_at(metadata_location)
        if not gc_is_enabled(metadata):
            raise RowsChanged
        named = named_by_table(metadata, metadata_location)
        self.kept.add(replace(named, snapshots=()) if self._only_metadata else named)
        self._own = own_files_of(self._tools.catalog.locations, metadata)
        if not self._seen:
            base = metadata.location
            self._folders = EmptiedFolders((base, f"{base}/data", f"{base}/metadata"))
        self._seen = metadata_location

    def mark(
        self,
        files: Sequence[FoundFile],
        snapshot_ids: tuple[int, ...] = (),
        intent_ids: tuple[str, ...] = (),
    ) -> list[FoundFile]:
        """Mark those of the files that nothing needs, and return them.

        Raises RowsChanged if a snapshot is leased or back, or if an intent is live again.
        """
        moves = 0
        while True:
            with self._tools.database.locked([self._uuid], _LOCK_TIMEOUT_S) as session:
                row = session.relation_by_uuid(self._uuid)
                if row is None:
                    raise RowsChanged
                location = row.metadata_location
                if location != self._seen and moves >= _MOVES_WITHOUT_LOCK:
                    self.keep(location)
                if location == self._seen:
                    marked = self.deletable(files, session)
                    self._commit(session, marked, snapshot_ids, intent_ids)
                    self._marked.add(self.kept.hashes(file.path for file in marked))
                    self._folders.add(marked)
                    return marked
            moves += 1
            self.keep(location)

    def deletable(self, files: Sequence[FoundFile], rows: Reads | None = None) -> list[FoundFile]:
        """Return the files that nothing needs."""
        if not files:
            return []
        live = self._live_prefixes(rows or self._tools.database)
        return [
            file
            for file, is_needed in zip(files, self._needed(files), strict=True)
            if not is_needed and self.is_own(file.path) and not self._is_below(file.path, live)
        ]

    def forget_needed(self, files: Sequence[FoundFile]) -> None:
        """Drop the rows of files that are needed, or that are not the table's own. Those of deleted
        files are gone already, and those below a live intent stay."""
        live = self._live_prefixes(self._tools.database)
        paths = [file.path for file in files if not self._is_below(file.path, live)]
        rows = [{"uuid": self._uuid, "path_key": key} for key in path_keys(paths)]
        run_many(self._tools.database, "drop_doomed_file", rows)

    def remove_empty_folders(self) -> None:
        live = self._live_prefixes(self._tools.database)
        self._folders.remove(self._tools.store, [str(key) for key in live])

    def _needed(self, files: Sequence[FoundFile]) -> list[bool]:
        """Return which files are kept, or were marked before."""
        hashes = self.kept.hashes(file.path for file in files)
        done = self._marked.has(hashes)
        # Manifests are read only if they may name one of the files.
        if all(file.kind in _NAMED_BY_METADATA for file in files):
            return list(map(bool, done | self.kept.has_named(hashes)))
        return list(map(bool, done | self.kept.has(hashes)))

    def _live_prefixes(self, rows: Reads) -> list[PathKey]:
        now_ms = database_now_ms(rows)
        intents = intents_of(rows, self._uuid)
        return [self._keys.of_folder(own.prefix) for own in intents if own.is_live(now_ms)]

    def _is_below(self, path: str, folders: Sequence[PathKey]) -> bool:
        if not folders:
            return False
        key = self._keys.of(path)
        return any(is_below(key, folder) for folder in folders)

    def _commit(
        self,
        session: Session,
        files: Sequence[FoundFile],
        snapshot_ids: tuple[int, ...],
        intent_ids: tuple[str, ...],
    ) -> None:
        rows = tuple((file.path, file.kind.value, None) for file in files)
        if not (rows or snapshot_ids or intent_ids):
            return
        start = StartDeletion(self._uuid, rows, snapshot_ids, intent_ids)
        transaction = Transaction(str(uuids.uuid4()), (), housekeeping=(start,))
        try:
            outcome = session.commit(transaction)
        except OutcomeUnknown as error:
            # Nothing is deleted now. If the marks are there, the next sweep goes on.
            raise DatabaseUnavailable(str(error)) from error
        if isinstance(outcome, Refused):
            raise outcome.error
        if not isinstance(outcome, Committed):
            raise RowsChanged
