"""One write: its folder, its commit, and the removal of files that were not committed.

Each write has a folder of its own, so that everything in it was written by that write. Files are
removed only on proof. Before the request is sent, and after a rejection, all files of the write are
removed. After an unknown outcome none are. After a commit only those are removed that lost attempts
of tasks have left behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import uuid4

from frazil.client.declare.table_verbs import Commit
from frazil.client.send.lease_calls import Intent
from frazil.datafiles.portable_table import FileTable
from frazil.datafiles.reading.file_storage import Storage, is_local, storage_of
from frazil.wire.conflicts import duplicate_paths
from frazil.wire.errors import CommitStateUnknown, FrazilError, ValidationError

DATA_PATH_PROPERTIES: Final = ("write.data.path", "write.folder-storage.path")
"""The second is the name in older tables."""
_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_LOGGER: Final = logging.getLogger("frazil.client")


Declare: TypeAlias = Callable[[str], Intent]
"""Returns the intent to write into a folder."""


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


def new_folder(table: FileTable, properties: Mapping[str, str] = _NO_PROPERTIES) -> WriteFolder:
    """Make the folder of a new write; once it is discarded, nothing can be written into it."""
    location = f"{data_location(table)}/{uuid4()}"
    storage = storage_of(properties, table.config)
    if is_local(location):
        storage.make_folder(location)
        storage = replace(storage, sealed_by=location)
    return WriteFolder(location, storage)


def data_location(table: FileTable) -> str:
    """Return where the table's data files belong, without a slash at the end."""
    for name in DATA_PATH_PROPERTIES:
        location = table.properties.get(name)
        if location:
            return location.rstrip("/")
    return f"{table.location.rstrip('/')}/data"


class _State(Enum):
    UNSENT = auto()
    SENT = auto()
    """The outcome is not known, and may never be."""
    REJECTED = auto()
    COMMITTED = auto()


class Write:
    """One write into a folder of its own."""

    def __init__(self, folder: WriteFolder) -> None:
        self.folder = folder
        self.is_clean = False
        """Whether only committed files are left in the folder, as far as this process has written
        any."""
        self._state = _State.UNSENT
        self._keep: frozenset[str] = frozenset()

    def commit(self, paths: Collection[str], submit: Callable[[], Commit]) -> Commit:
        """Send the change; `paths` are the files that it declares."""
        self._state, self.is_clean = _State.SENT, False
        try:
            commit = submit()
        except FrazilError as error:
            self.refused(error)
            raise
        self.committed(paths, commit)
        return commit

    def refused(self, error: FrazilError) -> None:
        """Note what the error of a commit proves about the files."""
        if isinstance(error, CommitStateUnknown):
            self._state = _State.SENT
            return
        self._state = _State.REJECTED
        if isinstance(error, ValidationError):
            # A path that is already live must stay, whoever has written it.
            self._keep = frozenset(duplicate_paths(error.conflicts))

    def committed(self, paths: Collection[str], commit: Commit) -> None:
        """Keep the files that were committed."""
        self._state = _State.COMMITTED
        with only_logged(self.folder):
            if not commit.already_committed:
                superseded = {
                    path for snapshot in commit.snapshots for path in snapshot.superseded_files
                }
                self.folder.keep_only(frozenset(paths) - superseded)
                self.is_clean = True
            elif commit.attempts == 1:
                # The request was sent once, so that an earlier run has committed its own files.
                self.folder.discard()
                self.is_clean = True

    @property
    def is_unsent(self) -> bool:
        return self._state is _State.UNSENT

    def fail(self) -> None:
        """Clean up after a write that was not committed, as far as that is known."""
        if self._state in (_State.UNSENT, _State.REJECTED):
            with only_logged(self.folder):
                self.folder.discard(self._keep)
                self.is_clean = True
        elif self._state is _State.SENT:
            _LOGGER.warning("outcome unknown: the files below %s are kept", self.folder.location)


@contextmanager
def committing(folder: WriteFolder, declare: Declare | None = None) -> Iterator[Write]:
    """Start a write; its files are removed if the block ends without a commit.

    With `declare`, such as `Table.intent`, the catalog knows the folder until the write is over:
    then nothing in it is taken for an orphan, and if this process dies, its files are not searched
    for. That takes two requests, so writes of a few rows do without.
    """
    write = Write(folder)
    with _declared(folder, declare, write):
        try:
            yield write
        except BaseException:
            write.fail()
            raise
        if write.is_unsent:
            write.fail()


@contextmanager
def _declared(folder: WriteFolder, declare: Declare | None, write: Write) -> Iterator[None]:
    """Hold an intent. A write goes on without, because its commit is checked in any case."""
    with ExitStack() as stack:
        if declare is not None:
            intent = declare(folder.location)
            try:
                stack.enter_context(intent)
            except FrazilError as error:
                _LOGGER.warning("%s is not declared: %s", folder.location, error.message)
            else:
                # The block ends before the intent.
                stack.callback(lambda: setattr(intent, "is_clean", write.is_clean))
        yield


@contextmanager
def only_logged(folder: WriteFolder) -> Iterator[None]:
    """Log errors of the clean-up, so that they do not hide the outcome of the write.

    Files that stay behind are left to the removal of orphan files.
    """
    try:
        yield
    except Exception:
        _LOGGER.warning("could not clean up below %s", folder.location, exc_info=True)
