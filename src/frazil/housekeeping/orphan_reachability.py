"""What a table needs, for a search for orphan files: everything that snapshots reach, and what is
recorded for deletion already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import numpy as np

from frazil.db.base import Relation
from frazil.db.housekeeping_rows import (
    DeletionState,
    database_now_ms,
    doomed_files,
    expired_snapshots,
    intents_of,
)
from frazil.db.sql import Fetch
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.deletion.due_rows import named_by_rows
from frazil.housekeeping.file_lists import ListedFile
from frazil.housekeeping.orphan_guards import Place, check_gc_enabled, purged_tables_in
from frazil.housekeeping.orphan_options import OrphanOptions
from frazil.housekeeping.path_hashes import Hashes, HashSet, path_hashes
from frazil.housekeeping.reachability import KeptFiles, TreeReader, Watch, named_by_table
from frazil.housekeeping.server_operations import ServerTools
from frazil.values.path_keys import PathKey, PathKeys, is_below
from frazil.wire.errors import NoSuchTable

BATCH: Final = 5_000

_MAX_FOLDERS: Final = 100_000
_TOTAL_BYTES: Final = "total-files-size"
_MAX_DIGITS: Final = 20
_EVER_MS: Final = 2**62
_NO_LIMIT: Final = 2**62


class NotingReader(TreeReader):
    """Reads the tree of the table, and notes where the named files lie."""

    def __init__(self, tools: ServerTools, options: OrphanOptions, place: Place) -> None:
        super().__init__(tools.store, tools.catalog.locations.check_readable)
        self.keys = PathKeys(
            decode=True,
            equal_schemes=options.schemes(),
            equal_authorities=options.equal_authorities,
        )
        self.roots = place.keys(self.keys)
        self._inside: set[str] = set()
        """Folders inside the place, of files that the table names."""
        self.has_outside = False
        self._other_prefixes: dict[str, HashSet] = {}

    def hashes(self, paths: Iterable[str]) -> Hashes:
        named = list(paths)
        self._note(named)
        return path_hashes(self.keys, named)

    def _note(self, paths: Sequence[str]) -> None:
        """Note in which folders the files lie."""
        folders = {path.rpartition("/")[0] for path in paths}
        if len(self._inside) > _MAX_FOLDERS:
            self._inside = {next(iter(self._inside))}
        for folder in folders - self._inside:
            if not folder:
                continue
            key = self.keys.of_folder(folder)
            if self.is_inside(key) or key in self.roots:
                self._inside.add(folder)
                continue
            self.has_outside = True
            if key.prefix not in {root.prefix for root in self.roots}:
                elsewhere = [path for path in paths if path.rpartition("/")[0] == folder]
                hashes = _hashes_of([self.keys.of(path).path for path in elsewhere])
                self._other_prefixes.setdefault(key.prefix, HashSet()).add(hashes)

    @property
    def has_inside(self) -> bool:
        return bool(self._inside)

    def is_inside(self, key: PathKey) -> bool:
        return any(is_below(key, root) for root in self.roots)

    def listed_hashes(self, paths: Iterable[str]) -> Hashes:
        """Return the hashes of files that the table need not name."""
        return path_hashes(self.keys, paths)

    def other_prefix(self, path: str) -> str | None:
        """Return another scheme and authority under which the table names the same path."""
        own = _hashes_of([self.keys.of(path).path])
        for prefix, known in self._other_prefixes.items():
            if known.has(own)[0]:
                return prefix
        return None


def _bytes_of(metadata: TableMetadata) -> int:
    snapshot = metadata.current_snapshot
    text = "" if snapshot is None else snapshot.summary.get(_TOTAL_BYTES, "")
    return int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else 0


def _hashes_of(texts: Sequence[str]) -> Hashes:
    return np.array([hash(text) for text in texts], np.int64)


class Needed:
    """Everything that must stay, and what is to be deleted already."""

    def __init__(
        self, tools: ServerTools, row: Relation, place: Place, reader: NotingReader, watch: Watch
    ) -> None:
        self._tools = tools
        self._place = place
        self._reader = reader
        self.uuid = row.uuid
        self.identifier = row.identifier
        self.kept = KeptFiles(reader, watch)
        self.metadata_location = ""
        self.recorded = HashSet()
        self.intents: tuple[PathKey, ...] = ()
        self.named_files = 0
        """How many files the table named at first."""
        self.table_bytes = 0
        """The size of the files of its current snapshot, if their writers have counted it."""
        self.read()
        for purged in purged_tables_in(place, row.uuid, tools.database):
            if purged.state is DeletionState.QUARANTINED:
                metadata = tools.catalog.metadata_at(purged.metadata_location)
                self.kept.add(named_by_table(metadata, purged.metadata_location))

    def read(self) -> None:
        """Add what the table needs now. What was needed before stays in the set.

        The pointer is read first. Whoever moves a snapshot between the metadata and the quarantine
        moves the pointer too, and the recording transaction compares it.
        """
        database = self._tools.database
        row = database.relation_by_uuid(self.uuid)
        if row is None:
            raise NoSuchTable(f"Table does not exist: {self.identifier}")
        metadata = self._tools.catalog.metadata_at(row.metadata_location)
        check_gc_enabled(metadata)
        self.kept.add(named_by_table(metadata, row.metadata_location))
        self.named_files = self.named_files or len(self.kept)
        self.table_bytes = _bytes_of(metadata)
        quarantined = [
            expired
            for expired in expired_snapshots(database, self.uuid)
            if expired.state is DeletionState.QUARANTINED
        ]
        self.kept.add(named_by_rows(quarantined), in_quarantine=True)
        self._read_recorded()
        self.intents = self.live_intents(database)
        self.metadata_location = row.metadata_location

    def _read_recorded(self) -> None:
        database, hashes = self._tools.database, self._reader.listed_hashes
        doomed = (row.path for row in doomed_files(database, self.uuid))
        while paths := list(islice(doomed, BATCH)):
            self.recorded.add(hashes(paths))
        asked = {"uuid": self.uuid, "before_ms": _EVER_MS, "limit": _NO_LIMIT}
        retired = [path for path, _ in database.fetch("retired_metadata", asked)]
        self.recorded.add(hashes(retired))

    def live_intents(self, sql: Fetch) -> tuple[PathKey, ...]:
        now_ms = database_now_ms(sql)
        rows = intents_of(sql, self.uuid)
        keys = self._reader.keys
        return tuple(keys.of_folder(row.prefix) for row in rows if row.is_live(now_ms))

    def key(self, path: str) -> PathKey:
        return self._reader.keys.of(path)

    def still_orphans(self, files: Sequence[ListedFile]) -> list[ListedFile]:
        """Return the files that nothing needs by now."""
        hashes = self._reader.listed_hashes(file.location for file in files)
        gone = self.kept.has(hashes) | self.recorded.has(hashes)
        return [files[at] for at in np.flatnonzero(~gone).tolist()]
