"""Defines what a request may use besides the metadata: manifests, locations, files and the
clock."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from frazil.commit.snapshot.file_verification import verify_files
from frazil.commit.snapshot.file_writer import PendingStore
from frazil.commit.snapshot.stream_epochs import LoadStream
from frazil.commit.snapshot.table_locations import OwnFolders, TableLocations, check_paths
from frazil.db.base import StreamRow
from frazil.db.rows import Database
from frazil.format.metadata.content_files import DataFile, DeleteFile
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.store.object_store import ObjectReader, Store
from frazil.wire.frazil_properties import VERIFY_FILES


def now_ms() -> int:
    """Return the current time in milliseconds, the unit of Iceberg's metadata."""
    return time.time_ns() // 1_000_000


def no_stream(branch: str, stream_id: str) -> StreamRow | None:
    """Return None, because a table that does not exist yet has no streams."""
    return None


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one request in one round of a commit."""

    store: ObjectReader
    """Also reads the unwritten files of this round."""
    pending: dict[str, bytes]
    """The unwritten files by location."""
    check_readable: Callable[[str], None]
    """Raises if the server must not read a location that a client's file names."""
    manifests: ManifestCache
    reader: ManifestReader
    check_paths: Callable[[TableMetadata, Sequence[str], str], None]
    """Raises if the table must not name one of the paths. The last argument is their JSON path."""
    verify_files: Callable[
        [TableMetadata, Sequence[DataFile], Sequence[DeleteFile], str, Sequence[int]], None
    ]
    """The last arguments are the prefix of JSON paths and the specs of all files."""
    executor: Executor
    """Reads files in parallel."""
    now_ms: int
    load_stream: LoadStream = no_stream
    """Loads the last epoch of a stream of the table, including the accepted requests of this
    round."""
    table_uuid: str = ""
    """The uuid of the table's row."""
    commit_uuid: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    """Drawn once per request. Snapshot ids are derived from it, so they are the same in every
    attempt."""
    json_prefix: str = ""
    """The JSON path of the table's part of a transaction, such as `table-changes[1].`."""
    summary: tuple[tuple[str, str], ...] = ()
    """The entries that the server adds to the snapshot summaries of the request."""

    def of(self, commit_uuid: bytes, time_ms: int) -> Environment:
        """Return the environment of another request in the same round."""
        return replace(self, commit_uuid=commit_uuid, now_ms=time_ms)


class Environments:
    """Creates the environment of each round."""

    def __init__(
        self,
        database: Database,
        store: Store,
        locations: TableLocations,
        cache: ManifestCache,
        executor: Executor,
    ) -> None:
        self._database = database
        self._store = store
        self._locations = locations
        self._cache = cache
        self._executor = executor
        self._own_folders = OwnFolders()

    def round(self, table_uuid: str = "", load_stream: LoadStream = no_stream) -> Environment:
        pending: dict[str, bytes] = {}
        store = PendingStore(self._store, pending)
        return Environment(
            store=store,
            pending=pending,
            check_readable=self._locations.check_readable,
            manifests=self._cache,
            reader=ManifestReader(self._cache, store, self._locations.check_readable),
            check_paths=self._check_paths,
            verify_files=self._verify_files,
            executor=self._executor,
            now_ms=now_ms(),
            load_stream=load_stream,
            table_uuid=table_uuid,
        )

    def _check_paths(self, metadata: TableMetadata, paths: Sequence[str], json_path: str) -> None:
        owner = self._database.owner_of_location
        check_paths(metadata, paths, json_path, self._locations, owner, self._own_folders)

    def _verify_files(
        self,
        metadata: TableMetadata,
        data: Sequence[DataFile],
        deletes: Sequence[DeleteFile],
        json_prefix: str,
        spec_ids: Sequence[int],
    ) -> None:
        if VERIFY_FILES in metadata.properties:
            store, executor = self._store, self._executor
            verify_files(metadata, data, deletes, store, executor, json_prefix, spec_ids)
