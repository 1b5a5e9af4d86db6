"""What applying a request may look at beside the metadata: manifests, places, files, the clock."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from frazil.commit.snapshot.declared_paths import OwnFolders, check_places
from frazil.commit.snapshot.file_verification import verify_files
from frazil.commit.snapshot.file_writer import PendingStore
from frazil.commit.snapshot.stream_epochs import LoadStream
from frazil.commit.snapshot.table_locations import Territory
from frazil.db.base import Database, StreamRow
from frazil.format.metadata.content_files import DataFile, DeleteFile
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.store.object_store import Store


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def no_stream(branch: str, stream_id: str) -> StreamRow | None:
    """For a table that has not been there before."""
    return None


@dataclass(frozen=True, slots=True)
class Environment:
    """For one request in one round of a commit."""

    store: Store
    """Sees the files that the round has made and not yet written."""
    pending: dict[str, bytes]
    """Those files."""
    check_readable: Callable[[str], None]
    """Raises where the server must not read a location named inside a client's files."""
    manifests: ManifestCache
    reader: ManifestReader
    check_places: Callable[[TableMetadata, Sequence[str], str], None]
    verify_files: Callable[[TableMetadata, Sequence[DataFile], Sequence[DeleteFile], str], None]
    now_ms: int
    load_stream: LoadStream = no_stream
    """What the streams of the table have committed, with what this round adds to it."""
    table_uuid: str = ""
    """The uuid of the table's row."""
    commit_uuid: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    """Drawn once for a request: its snapshot ids follow from it, however often it is applied."""

    place: str = ""
    """Where the table's updates stand in the request, such as `table-changes[1].`."""

    def of(self, commit_uuid: bytes, time_ms: int) -> Environment:
        """The same for another request of the round."""
        return replace(self, commit_uuid=commit_uuid, now_ms=time_ms)


class Environments:
    """Makes the environment of each round."""

    def __init__(
        self,
        database: Database,
        store: Store,
        territory: Territory,
        cache: ManifestCache,
        executor: Executor,
    ) -> None:
        self._database = database
        self._store = store
        self._territory = territory
        self._cache = cache
        self._executor = executor
        self._own_folders = OwnFolders()

    def round(self, table_uuid: str = "", load_stream: LoadStream = no_stream) -> Environment:
        pending: dict[str, bytes] = {}
        store = PendingStore(self._store, pending)
        return Environment(
            store=store,
            pending=pending,
            check_readable=self._territory.check_readable,
            manifests=self._cache,
            reader=ManifestReader(self._cache, store, self._territory.check_readable),
            check_places=self._check_places,
            verify_files=self._verify_files,
            now_ms=now_ms(),
            load_stream=load_stream,
            table_uuid=table_uuid,
        )

    def _check_places(self, metadata: TableMetadata, paths: Sequence[str], place: str) -> None:
        owner = self._database.owner_of_location
        check_places(metadata, paths, place, self._territory, owner, self._own_folders)

    def _verify_files(
        self,
        metadata: TableMetadata,
        data: Sequence[DataFile],
        deletes: Sequence[DeleteFile],
        place: str,
    ) -> None:
        verify_files(metadata, data, deletes, self._store, self._executor, place)
