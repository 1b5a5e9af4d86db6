"""What the group commit needs to know of tables and of views, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from frazil.commit.pipeline.catalog_answers import (
    Answer,
    LoadedTable,
    LoadedView,
    TableAnswer,
    ViewAnswer,
)
from frazil.commit.snapshot.apply_request import (
    Applied,
    apply_table_commit,
    apply_view_commit,
    asserts_ref,
    is_exclusive,
)
from frazil.commit.snapshot.commit_environment import Environment
from frazil.commit.snapshot.committed_snapshots import committed_json
from frazil.commit.snapshot.stream_epochs import Streams, branches_moved_back
from frazil.commit.snapshot.table_locations import Territory
from frazil.db.base import Kind
from frazil.format.metadata.metadata_files import (
    encode_metadata_file,
    metadata_version,
    new_metadata_location,
)
from frazil.format.metadata.table_builder import dropped_from_metadata_log, with_previous_file
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.view_metadata import (
    ViewMetadata,
    encode_view_metadata,
    new_view_location,
)
from frazil.read.metadata_cache import CachedTable, CachedView, MetadataCache
from frazil.wire.errors import FrazilError, NoSuchTable, NoSuchView
from frazil.wire.identifiers import Identifier
from frazil.wire.rest_messages import CommitTableRequest, CommitViewRequest

M = TypeVar("M")
R = TypeVar("R", contravariant=True)

_DELETE_OLD_FILES = "write.metadata.delete-after-commit.enabled"


@dataclass(frozen=True, slots=True)
class NextFile(Generic[M]):
    """The metadata file that a commit writes."""

    metadata: M
    location: str
    chunks: Sequence[bytes]


class Subject(Protocol[M, R]):
    kind: Kind

    def load(self, location: str) -> M: ...

    def time_ms(self, state: M) -> int:
        """The latest time that the state names."""

    def goes_first(self, state: M, request: R) -> bool:
        """Whether a request should be applied before the others of its group."""

    def came_late(self, request: R) -> bool:
        """Whether a refused request is one that fits only on the head it was built on."""

    def apply(self, state: M, request: R, environment: Environment) -> Applied[M]: ...

    def remember_streams(self, streams: Streams, before: M, applied: Applied[M]) -> None:
        """Takes in what an accepted request says of streams, and what it takes from them."""

    def next_file(self, base: M, base_location: str, new: M) -> NextFile[M]: ...

    def owned_if_changed(self, base: M, new: M) -> tuple[str, ...] | None: ...

    def remember(self, file: NextFile[M]) -> None: ...

    def superseded(self, base: M, new: M) -> list[str]: ...

    def answer(
        self,
        identifier: Identifier,
        location: str,
        applied: Applied[M],
    ) -> Answer: ...


class TableSubject:
    kind = Kind.TABLE

    def __init__(self, cache: MetadataCache, territory: Territory) -> None:
        self._cache = cache
        self._territory = territory

    def load(self, location: str) -> TableMetadata:
        return self._cache.table(location).metadata

    def time_ms(self, state: TableMetadata) -> int:
        return state.last_updated_ms

    def goes_first(self, state: TableMetadata, request: CommitTableRequest) -> bool:
        return is_exclusive(state, request)

    def came_late(self, request: CommitTableRequest) -> bool:
        return asserts_ref(request)

    def apply(
        self, state: TableMetadata, request: CommitTableRequest, environment: Environment
    ) -> Applied[TableMetadata]:
        applied = apply_table_commit(state, request, environment)
        self._territory.check_statistics(state, applied.metadata)
        return applied

    def remember_streams(
        self, streams: Streams, before: TableMetadata, applied: Applied[TableMetadata]
    ) -> None:
        streams.accept(branches_moved_back(before, applied.metadata), applied.streams)

    def next_file(
        self, base: TableMetadata, base_location: str, new: TableMetadata
    ) -> NextFile[TableMetadata]:
        logged = with_previous_file(new, base_location, base.last_updated_ms)
        return table_file(logged, metadata_version(base_location) + 1)

    def owned_if_changed(self, base: TableMetadata, new: TableMetadata) -> tuple[str, ...] | None:
        return self._territory.owned_if_changed(base, new)

    def remember(self, file: NextFile[TableMetadata]) -> None:
        self._cache.remember_table(file.location, CachedTable(file.metadata))

    def superseded(self, base: TableMetadata, new: TableMetadata) -> list[str]:
        """Old metadata files to delete, where the table asks for it: only its own."""
        if new.properties.get(_DELETE_OLD_FILES, "false").lower() != "true":
            return []
        dropped = dropped_from_metadata_log(base, new)
        return [file for file in dropped if self._territory.belongs_to(new, file)]

    def answer(
        self,
        identifier: Identifier,
        location: str,
        applied: Applied[TableMetadata],
    ) -> Answer:
        loaded = LoadedTable(identifier, self._cache.table(location), location)
        return TableAnswer(loaded, committed_json(applied.committed), applied.already_committed)


class ViewSubject:
    kind = Kind.VIEW

    def __init__(self, cache: MetadataCache, territory: Territory) -> None:
        self._cache = cache
        self._territory = territory

    def load(self, location: str) -> ViewMetadata:
        return self._cache.view(location).metadata

    def time_ms(self, state: ViewMetadata) -> int:
        """Versions of a view need not follow each other in time."""
        return 0

    def goes_first(self, state: ViewMetadata, request: CommitViewRequest) -> bool:
        return False

    def came_late(self, request: CommitViewRequest) -> bool:
        return False

    def apply(
        self, state: ViewMetadata, request: CommitViewRequest, environment: Environment
    ) -> Applied[ViewMetadata]:
        new = apply_view_commit(state, request, environment.now_ms)
        self._territory.check_view(new, state)
        return Applied(new)

    def remember_streams(
        self, streams: Streams, before: ViewMetadata, applied: Applied[ViewMetadata]
    ) -> None:
        """Nothing streams into a view."""

    def next_file(
        self, base: ViewMetadata, base_location: str, new: ViewMetadata
    ) -> NextFile[ViewMetadata]:
        return view_file(new, metadata_version(base_location) + 1)

    def owned_if_changed(self, base: ViewMetadata, new: ViewMetadata) -> tuple[str, ...] | None:
        return None

    def remember(self, file: NextFile[ViewMetadata]) -> None:
        self._cache.remember_view(file.location, CachedView(file.metadata))

    def superseded(self, base: ViewMetadata, new: ViewMetadata) -> list[str]:
        return []

    def answer(
        self,
        identifier: Identifier,
        location: str,
        applied: Applied[ViewMetadata],
    ) -> Answer:
        return ViewAnswer(LoadedView(identifier, self._cache.view(location), location))


def table_file(metadata: TableMetadata, version: int) -> NextFile[TableMetadata]:
    location = new_metadata_location(metadata, version)
    return NextFile(metadata, location, encode_metadata_file(metadata, location))


def view_file(metadata: ViewMetadata, version: int) -> NextFile[ViewMetadata]:
    location = new_view_location(metadata, version)
    return NextFile(metadata, location, [encode_view_metadata(metadata)])


def missing(kind: Kind, identifier: Identifier) -> FrazilError:
    if kind is Kind.TABLE:
        return NoSuchTable(f"Table does not exist: {identifier}")
    return NoSuchView(f"View does not exist: {identifier}")
