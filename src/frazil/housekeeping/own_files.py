"""Decides which files may be deleted with a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from frazil.commit.snapshot.table_locations import TableLocations
from frazil.format.metadata.table_metadata import TableMetadata

_MAX_FOLDERS: Final = 100_000
_REWRITTEN: Final = frozenset("%?#\\")


class OwnFiles:
    """Asks once for each folder whether its files are the table's own."""

    def __init__(self, belongs: Callable[[str], bool]) -> None:
        """Create the check. `belongs` is called with folders, and with files of unusual names."""
        self._belongs = belongs
        self._folders: dict[str, bool] = {}

    def __call__(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        usual = name.isascii() and name.isprintable() and _REWRITTEN.isdisjoint(name)
        if not usual or name in ("", ".", ".."):
            return bool(name) and self._belongs(path)
        known = self._folders.get(folder)
        if known is None:
            if len(self._folders) >= _MAX_FOLDERS:
                self._folders.clear()
            known = self._folders[folder] = self._belongs(folder)
        return known


def own_files_of(locations: TableLocations, metadata: TableMetadata) -> OwnFiles:
    """Return the check for the files of a table."""
    return OwnFiles(lambda path: locations.belongs_to(metadata, path))
