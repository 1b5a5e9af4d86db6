"""The folder that each write has for itself.

Everything in it was written by that write only: after a commit the files that were not committed
can be removed, and after a proven failure all files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import uuid4

from frazil.datafiles.reading.file_storage import Storage, is_local, storage_of
from frazil.spark.core.context import Context

DATA_PATH_PROPERTIES: Final = ("write.data.path", "write.folder-storage.path")
"""The second is the name in older tables."""


class _Located(Protocol):
    @property
    def location(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def config(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class WriteFolder:
    location: str
    storage: Storage

    def discard(self, keep: Collection[str] = ()) -> None:
        """Remove everything but `keep`, after a proven failure."""
        if keep:
            self.keep_only(keep)
        else:
            self.storage.delete_folder(self.location)

    def keep_only(self, paths: Collection[str]) -> None:
        """Remove what lost attempts of tasks have written, after a commit of `paths`."""
        committed = frozenset(paths)
        existing = self.storage.list(self.location)
        unseen = [path for path in committed.difference(existing) if path.startswith(self.location)]
        if unseen:
            # If a committed file is not listed by its name, others could be removed by mistake.
            raise FileNotFoundError(f"{unseen[0]} is committed and not found below {self.location}")
        self.storage.delete(path for path in existing if path not in committed)
        self.storage.delete_empty_folders(self.location)


def new_folder(context: Context, table: _Located) -> WriteFolder:
    """Make the folder of a new write; once it is discarded, nothing can be written into it."""
    location = f"{data_location(table)}/{uuid4()}"
    storage = storage_of(context.properties, table.config)
    if is_local(location):
        storage.make_folder(location)
        storage = replace(storage, sealed_by=location)
    return WriteFolder(location, storage)


def data_location(table: _Located) -> str:
    """Return where the table's data files belong, without a slash at the end."""
    for name in DATA_PATH_PROPERTIES:
        location = table.properties.get(name)
        if location:
            return location.rstrip("/")
    return f"{table.location.rstrip('/')}/data"
