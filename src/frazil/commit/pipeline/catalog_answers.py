"""The answers of the catalog's operations. `rest` renders them, a replay builds them again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.view_metadata import ViewMetadata
from frazil.read.metadata_cache import CachedTable, CachedView
from frazil.wire.identifiers import Identifier


@dataclass(frozen=True, slots=True)
class NoContent:
    """The operation succeeded, and its answer has no body."""


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """A small answer, ready to send."""

    body: bytes
    status: int = 200


@dataclass(frozen=True, slots=True)
class LoadedTable:
    identifier: Identifier
    cached: CachedTable
    metadata_location: str | None
    """None for a staged table: nothing has been written yet."""

    @property
    def metadata(self) -> TableMetadata:
        return self.cached.metadata

    def json_chunks(self, refs_only: bool = False) -> list[bytes]:
        """Return the JSON of the metadata in chunks, with `refs_only` only snapshots of refs."""
        return self.cached.refs_chunks() if refs_only else self.cached.chunks()

    def etag(self, refs_only: bool = False) -> str:
        # A location never stands for two contents, so it identifies what is sent.
        return _etag(f"{self.metadata_location}#{'refs' if refs_only else 'all'}")


@dataclass(frozen=True, slots=True)
class LoadedView:
    identifier: Identifier
    cached: CachedView
    metadata_location: str

    @property
    def metadata(self) -> ViewMetadata:
        return self.cached.metadata

    def json_chunks(self) -> list[bytes]:
        return self.cached.chunks()

    def etag(self) -> str:
        return _etag(self.metadata_location)


@dataclass(frozen=True, slots=True)
class TableAnswer:
    table: LoadedTable
    committed: bytes | None = None
    """The `committed` list as JSON: which update made which snapshot."""
    already_committed: bool = False
    """Whether the epoch of a request with `once` was committed before, so that nothing was done."""


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    tables: tuple[TableAnswer, ...]


@dataclass(frozen=True, slots=True)
class ViewAnswer:
    view: LoadedView


Answer: TypeAlias = NoContent | JsonAnswer | TableAnswer | TransactionAnswer | ViewAnswer


class ReplayedError(Exception):
    """An error that was finalised under an idempotency key: sent again as it was."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"replayed answer with status {status}")
        self.status = status
        self.body = body


def _etag(text: str) -> str:
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
