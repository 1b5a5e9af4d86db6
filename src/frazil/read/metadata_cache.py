"""Caches parsed metadata files, which are immutable, within a byte budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil.format.metadata.metadata_files import decode_metadata_file
from frazil.format.metadata.raw_json import InvalidMetadata
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_metadata_json import encode_refs_only, encode_table_metadata
from frazil.format.metadata.view_metadata import (
    ViewMetadata,
    encode_view_metadata,
    parse_view_metadata,
)
from frazil.read.counters import LruByBytes
from frazil.store.object_store import ObjectMissing, ObjectTooLarge, Store, StoreError
from frazil.wire.errors import BadRequest, NotFound, TooManyRequests

MAX_METADATA_BYTES = 1 << 30
"""The most decoded bytes of a metadata file: about one and a half million snapshots."""

# The memory of parsed metadata relative to the bytes of its JSON.
_MEMORY_FACTOR = 2


@dataclass(slots=True)
class CachedTable:
    """A table's metadata and its JSON, which is made on demand."""

    metadata: TableMetadata
    _all: list[bytes] | None = field(default=None, repr=False)
    _refs: list[bytes] | None = field(default=None, repr=False)

    def chunks(self) -> list[bytes]:
        if self._all is None:
            self._all = encode_table_metadata(self.metadata)
        return self._all

    def refs_chunks(self) -> list[bytes]:
        if self._refs is None:
            self._refs = encode_refs_only(self.metadata)
        return self._refs

    def cost(self) -> int:
        return sum(map(len, self.chunks())) * _MEMORY_FACTOR


@dataclass(slots=True)
class CachedView:
    metadata: ViewMetadata
    _json: list[bytes] | None = field(default=None, repr=False)

    def chunks(self) -> list[bytes]:
        if self._json is None:
            self._json = [encode_view_metadata(self.metadata)]
        return self._json

    def cost(self) -> int:
        return sum(map(len, self.chunks())) * _MEMORY_FACTOR


class MetadataCache:
    """Reads metadata files through a cache by location."""

    def __init__(self, store: Store, budget_bytes: int) -> None:
        self._store = store
        # One table may use the whole budget. Otherwise every commit would parse it again.
        self._tables = LruByBytes(budget_bytes, CachedTable.cost, budget_bytes)
        self._views = LruByBytes(budget_bytes // 8, CachedView.cost, budget_bytes // 8)

    def table(self, location: str) -> CachedTable:
        return self._tables.get_or_make(location, lambda at: CachedTable(self.read_table(at)))

    def view(self, location: str) -> CachedView:
        return self._views.get_or_make(location, lambda at: CachedView(self.read_view(at)))

    def remember_table(self, location: str, cached: CachedTable) -> None:
        self._tables.put(location, cached)

    def remember_view(self, location: str, cached: CachedView) -> None:
        self._views.put(location, cached)

    def check_there(self, location: str) -> None:
        """Raise NotFound if the metadata file is gone. It must not be served from memory."""
        if self._store.size(location) is None:
            self._tables.forget(location)
            self._views.forget(location)
            raise missing_file(location)

    def read_table(self, location: str, *, thorough: bool = False) -> TableMetadata:
        """Read without the cache. With `thorough` every summary is checked too, for files that
        somebody else wrote. Otherwise summaries are decoded on demand."""
        try:
            data = self._read(location)
            return decode_metadata_file(data, MAX_METADATA_BYTES, summaries=thorough)
        except InvalidMetadata as error:
            raise BadRequest(f"{location} is not valid table metadata: {error}") from error

    def read_view(self, location: str) -> ViewMetadata:
        try:
            return parse_view_metadata(self._read(location))
        except (ValueError, BadRequest) as error:
            raise BadRequest(f"{location} is not valid view metadata: {error}") from error

    def _read(self, location: str) -> bytes:
        try:
            return self._store.get(location, MAX_METADATA_BYTES)
        except ObjectMissing:
            raise missing_file(location) from None
        except ObjectTooLarge as error:
            raise BadRequest(str(error)) from None
        except StoreError as error:
            # The caller has not changed anything yet, so this is not an unknown outcome.
            raise TooManyRequests(f"a metadata file cannot be read now: {error}") from error


def missing_file(location: str) -> NotFound:
    """Return the error with the message that Iceberg's compatibility kit expects."""
    return NotFound(f"Failed to open input stream for file: {location}")
