"""The folder that each write has for itself.

What lies in it was written by that write and by nobody else: after a commit whatever was not
committed can go, and after a proven failure everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import uuid4

from frazil.datafiles.reading.file_storage import Storage, is_local, storage_of
from frazil.spark.core.context import Context

DATA_PATH_PROPERTIES: Final = ("write.data.path", "write.folder-storage.path")
"""The second is what older tables call it."""


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
        """After a proven failure: everything but `keep`."""
        if keep:
            self.keep_only(keep)
        else:
            self.storage.delete_folder(self.location)

    def keep_only(self, paths: Collection[str]) -> None:
        """After a commit: what lost attempts of tasks have left behind goes."""
        wanted = frozenset(paths)
        found = self.storage.list(self.location)
        unseen = [path for path in wanted.difference(found) if path.startswith(self.location)]
        if unseen:
            # Where a committed file is not found by its name, others could be deleted by mistake.
            raise FileNotFoundError(f"{unseen[0]} is committed and not found below {self.location}")
        self.storage.delete(path for path in found if path not in wanted)
        self.storage.delete_empty_folders(self.location)


def new_folder(context: Context, table: _Located) -> WriteFolder:
    """The folder of a write that begins now; once it is discarded, nothing gets into it again."""
    location = f"{data_location(table)}/{uuid4()}"
    storage = storage_of(context.properties, table.config)
    if is_local(location):
        storage.make_folder(location)
        storage = replace(storage, sealed_by=location)
    return WriteFolder(location, storage)


def data_location(table: _Located) -> str:
    """Where the table's data files belong, without a slash at the end."""
    for name in DATA_PATH_PROPERTIES:
        found = table.properties.get(name)
        if found:
            return found.rstrip("/")
    return f"{table.location.rstrip('/')}/data"
