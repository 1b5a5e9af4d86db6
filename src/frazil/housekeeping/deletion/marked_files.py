"""Deletes files that are marked, and then their rows.

A file is deleted only after its row says so in a transaction that is committed. After a crash the
rows are still there, and the next sweep deletes the files again, which does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from frazil.db.housekeeping_rows import path_keys
from frazil.db.rows import Database
from frazil.db.sql import Statements
from frazil.housekeeping.reachability import FileKind, FoundFile
from frazil.store.object_store import Store
from frazil.values.path_keys import PathKeys, is_below

_CHUNK_FILES: Final = 10_000
"""The most files that one transaction marks, so that commits never wait long for it."""
T = TypeVar("T")

_BATCH_FILES: Final = 1_000
_MAX_FOLDERS: Final = 10_000
_RANKS: Final = {kind: rank for rank, kind in enumerate(FileKind)}


def chunked(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Yield the items in chunks that one transaction can mark."""
    rest = iter(items)
    while chunk := tuple(islice(rest, _CHUNK_FILES)):
        yield chunk


def in_order(files: Iterable[FoundFile]) -> list[FoundFile]:
    """Return the files in the order of deletion: those that lead to others come last."""
    return sorted(files, key=lambda file: _RANKS[file.kind])


def kind_of_reason(reason: str) -> FileKind:
    """Return the kind of a file from its row."""
    return FileKind(reason) if reason in _RANKS else FileKind.UNKNOWN


def delete_marked(database: Database, store: Store, uuid: str, files: Sequence[FoundFile]) -> None:
    """Delete files whose rows are marked and committed, then the rows."""
    ordered = in_order(files)
    for start in range(0, len(ordered), _BATCH_FILES):
        paths = [file.path for file in ordered[start : start + _BATCH_FILES]]
        store.delete(paths)
        rows = [{"uuid": uuid, "path_key": key} for key in path_keys(paths)]

        def work(sql: Statements, rows: Sequence[dict[str, str]] = rows) -> None:
            sql.execute_many("drop_doomed_file", rows)

        database.run_rows(work)


class EmptiedFolders:
    """Remembers the folders of deleted files, to remove those that are empty now."""

    def __init__(self, roots: Sequence[str]) -> None:
        """Create it with folders that always stay, such as that of the table."""
        self._keys = PathKeys(decode=False)
        self._roots = {self._keys.of_folder(root) for root in roots}
        self._folders: set[str] = set()

    def add(self, files: Iterable[FoundFile]) -> None:
        for file in files:
            if len(self._folders) >= _MAX_FOLDERS:
                return
            self._folders.add(file.path.rpartition("/")[0])

    def remove(self, store: Store, used: Sequence[str] = ()) -> None:
        """Remove the empty folders. Those that a writer has announced stay."""
        taken = [self._keys.of_folder(prefix) for prefix in used]
        inside: set[str] = set()
        for folder in self._folders:
            while folder not in inside and self._is_inside(folder):
                inside.add(folder)
                folder = folder.rpartition("/")[0]
        for folder in sorted(inside, key=len, reverse=True):
            key = self._keys.of_folder(folder)
            if not any(own == key or is_below(own, key) for own in taken):
                store.remove_empty_folders(folder)

    def _is_inside(self, folder: str) -> bool:
        key = self._keys.of_folder(folder)
        return key not in self._roots and any(is_below(key, root) for root in self._roots)
