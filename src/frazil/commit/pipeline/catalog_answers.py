"""The answers of the catalog's operations. `rest` renders them, and replays create them again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.view_metadata import ViewMetadata
from frazil.read.metadata_cache import CachedTable, CachedView, MetadataCache
from frazil.wire.identifiers import Identifier


@dataclass(frozen=True, slots=True)
class NoContent:
    """The answer of an operation that succeeded without a body."""


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """A small encoded answer."""

    body: bytes
    status: int = 200


@dataclass(frozen=True, slots=True)
class LoadedTable:
    identifier: Identifier
    cached: CachedTable
    metadata_location: str | None
    """None for a staged table, which has no metadata file yet."""
    relation_uuid: str | None = None
    """The uuid of the table's row. Set by `load_table`."""

    @classmethod
    def at(
        cls, cache: MetadataCache, identifier: Identifier, location: str, uuid: str | None = None
    ) -> LoadedTable:
        return cls(identifier, cache.table(location), location, uuid)

    @property
    def metadata(self) -> TableMetadata:
        return self.cached.metadata

    def etag(self, refs_only: bool = False) -> str:
        # A location always has the same content, so it identifies the answer.
        return _etag(f"{self.metadata_location}#{'refs' if refs_only else 'all'}")


@dataclass(frozen=True, slots=True)
class LoadedView:
    identifier: Identifier
    cached: CachedView
    metadata_location: str

    @classmethod
    def at(cls, cache: MetadataCache, identifier: Identifier, location: str) -> LoadedView:
        return cls(identifier, cache.view(location), location)

    @property
    def metadata(self) -> ViewMetadata:
        return self.cached.metadata

    def etag(self) -> str:
        return _etag(self.metadata_location)


@dataclass(frozen=True, slots=True)
class TableAnswer:
    table: LoadedTable
    committed: bytes | None = None
    """The `committed` list as JSON, which maps updates to their snapshots."""
    already_committed: bool = False
    """Whether the epoch of a request with `once` was committed before, so that nothing was
    applied."""


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    tables: tuple[TableAnswer, ...]


@dataclass(frozen=True, slots=True)
class ViewAnswer:
    view: LoadedView


Answer: TypeAlias = NoContent | JsonAnswer | TableAnswer | TransactionAnswer | ViewAnswer


class ReplayedError(Exception):
    """An error that was stored under an idempotency key and is sent again unchanged."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"replayed answer with status {status}")
        self.status = status
        self.body = body


def _etag(text: str) -> str:
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
