"""Implements the differences between commits to tables and commits to views."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from frazil.commit.pipeline.catalog_answers import (
    Answer,
    LoadedTable,
    LoadedView,
    TableAnswer,
    ViewAnswer,
)
from frazil.commit.pipeline.created_tables import CreatedTable, TableCreation
from frazil.commit.pipeline.recorded_removals import AcceptedChange, recorded
from frazil.commit.snapshot.apply_request import (
    Applied,
    added_snapshots,
    already_happened,
    apply_or_rebase,
    apply_request,
    apply_view_commit,
    is_exclusive,
    is_fine_grained,
    is_overtaken,
)
from frazil.commit.snapshot.commit_environment import Environment
from frazil.commit.snapshot.file_writer import NextFile, table_file, view_file
from frazil.commit.snapshot.stream_epochs import branches_moved_back, committed_json, repeated_epoch
from frazil.commit.snapshot.table_locations import TableLocations
from frazil.db.base import Kind
from frazil.db.housekeeping_changes import HousekeepingChange
from frazil.format.metadata.metadata_files import metadata_version
from frazil.format.metadata.table_builder import dropped_from_metadata_log, with_previous_file
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_properties import DELETE_OLD_METADATA
from frazil.format.metadata.view_metadata import ViewMetadata
from frazil.read.metadata_cache import CachedTable, CachedView, MetadataCache
from frazil.wire.errors import CommitFailed, FrazilError, NoSuchTable, NoSuchView
from frazil.wire.identifiers import Identifier
from frazil.wire.rest_messages import CommitTableRequest, CommitViewRequest
from frazil.wire.rest_updates import AssignUUID

M = TypeVar("M")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RelationChange:
    """A request's changes to one table or view."""

    identifier: Identifier
    request: Any
    """A CommitTableRequest or CommitViewRequest. It is never changed."""
    creates: bool = False
    """Whether the request requires that the relation does not exist yet."""


def updates_of(change: RelationChange, applied: Applied[Any]) -> Sequence[Any]:
    """Return the updates that were applied: those of the request, or those that the server has
    computed."""
    updates: Sequence[Any] = change.request.updates if applied.updates is None else applied.updates
    return updates


class RelationKind(ABC, Generic[M, R]):
    """The steps of a commit that differ between tables and views. The defaults suit views, which
    have no snapshots and no folders."""

    kind: Kind

    @abstractmethod
    def load(self, location: str) -> M: ...

    def time_ms(self, state: M) -> int:
        """Return the latest timestamp in the metadata, or 0 if timestamps need not increase."""
        return 0

    def is_exclusive(self, state: M, request: R) -> bool:
        """Return whether the request can be applied to this state and to no later one."""
        return False

    def is_overtaken(self, request: R, error: FrazilError) -> bool:
        """Return whether others should wait for the next attempt of a refused request."""
        return False

    @abstractmethod
    def apply(
        self, state: M | None, change: RelationChange, environment: Environment, *, alone: bool
    ) -> tuple[Applied[M], CreatedTable | None]:
        """Apply a request, or refuse it. `state` is None if the catalog has no such relation.
        `alone` is False for a part of a transaction over several tables."""

    def has_happened(self, state: M, request: R) -> bool:
        """Return whether the request was already committed and only its answer was lost."""
        return False

    def make_folders(self, created: CreatedTable) -> None:
        """Create the folders in which clients write before the commit."""

    def branches_moved_back(self, before: M | None, after: M) -> Collection[str]:
        """Return the branches that no longer have all their snapshots, so that their stream rows
        must be deleted."""
        return ()

    @abstractmethod
    def next_file(self, base: M, base_location: str, new: M) -> NextFile[M]: ...

    def owned_if_changed(self, base: M, new: M) -> tuple[str, ...] | None:
        """Return the locations that the relation owns, or None if they did not change."""
        return None

    def recorded(
        self,
        base: M | None,
        new: M,
        uuid: str,
        accepted: Sequence[tuple[RelationChange, Applied[M]]],
        written: Sequence[str],
    ) -> Iterable[HousekeepingChange]:
        """Return what the transaction records. `written` are the files of the server."""
        return ()

    @abstractmethod
    def remember(self, file: NextFile[M]) -> None:
        """Cache metadata that was just committed."""

    def superseded(self, base: M, new: M) -> list[str]:
        """Return the old metadata files to delete."""
        return []

    @abstractmethod
    def answer(self, identifier: Identifier, location: str, applied: Applied[M]) -> Answer: ...


class TableKind(RelationKind[TableMetadata, CommitTableRequest]):
    kind = Kind.TABLE

    def __init__(
        self, cache: MetadataCache, locations: TableLocations, creation: TableCreation
    ) -> None:
        self._cache = cache
        self._locations = locations
        self._creation = creation

    def load(self, location: str) -> TableMetadata:
        return self._cache.table(location).metadata

    def time_ms(self, state: TableMetadata) -> int:
        return state.last_updated_ms

    def is_exclusive(self, state: TableMetadata, request: CommitTableRequest) -> bool:
        return is_exclusive(state, request)

    def is_overtaken(self, request: CommitTableRequest, error: FrazilError) -> bool:
        return is_overtaken(request, error)

    def apply(
        self,
        state: TableMetadata | None,
        change: RelationChange,
        environment: Environment,
        *,
        alone: bool,
    ) -> tuple[Applied[TableMetadata], CreatedTable | None]:
        request: CommitTableRequest = change.request
        if change.creates and state is not None:
            return self._repeated_create(state, change, environment, alone), None
        if change.creates:
            self._creation.check_name_is_free(change.identifier)
            applied = apply_request(None, request, environment)
            return applied, self._creation.created(change.identifier, applied.metadata)
        if state is None:
            raise missing(self.kind, change.identifier)
        apply = apply_or_rebase if alone else apply_request
        applied = apply(state, request, environment)
        self._locations.check_statistics(state, applied.metadata)
        return applied, None

    def _repeated_create(
        self, state: TableMetadata, change: RelationChange, environment: Environment, alone: bool
    ) -> Applied[TableMetadata]:
        """Answer a create for a table that exists. If the table has the uuid that the client got
        when it staged the create, an answer was lost and nothing is left to do. The uuid
        alone does not prove that these files were committed. For fine-grained updates only
        the epoch of a stream proves it."""
        request: CommitTableRequest = change.request
        taken = CommitFailed(f"Requirement failed: table already exists: {change.identifier}")
        if is_fine_grained(request.updates) or not alone:
            committed = repeated_epoch(state, request, environment.load_stream)
            if committed is None:
                raise taken
            return Applied(state, committed, already_committed=True)
        own = any(
            isinstance(update, AssignUUID) and update.uuid == environment.table_uuid
            for update in request.updates
        )
        added = added_snapshots(request.updates)
        if not own or (added and not already_happened(state, request.updates, added)):
            raise taken
        return Applied(state)

    def has_happened(self, state: TableMetadata, request: CommitTableRequest) -> bool:
        try:
            return already_happened(state, request.updates, added_snapshots(request.updates))
        except CommitFailed:
            # The request is stale for this table, so its requirements will fail.
            return False

    def make_folders(self, created: CreatedTable) -> None:
        self._creation.make_folders(created)

    def branches_moved_back(
        self, before: TableMetadata | None, after: TableMetadata
    ) -> Collection[str]:
        return () if before is None else branches_moved_back(before, after)

    def next_file(
        self, base: TableMetadata, base_location: str, new: TableMetadata
    ) -> NextFile[TableMetadata]:
        logged = with_previous_file(new, base_location, base.last_updated_ms)
        return table_file(logged, metadata_version(base_location) + 1)

    def owned_if_changed(self, base: TableMetadata, new: TableMetadata) -> tuple[str, ...] | None:
        return self._locations.owned_if_changed(base, new)

    def recorded(
        self,
        base: TableMetadata | None,
        new: TableMetadata,
        uuid: str,
        accepted: Sequence[tuple[RelationChange, Applied[TableMetadata]]],
        written: Sequence[str],
    ) -> Iterable[HousekeepingChange]:
        done = [
            AcceptedChange(updates_of(change, applied), applied) for change, applied in accepted
        ]
        return recorded(base, new, uuid, done, written)

    def remember(self, file: NextFile[TableMetadata]) -> None:
        self._cache.remember_table(file.location, CachedTable(file.metadata))

    def superseded(self, base: TableMetadata, new: TableMetadata) -> list[str]:
        """Return only files in the table's own location, and only if the table asks for it."""
        if new.properties.get(DELETE_OLD_METADATA, "false").lower() != "true":
            return []
        dropped = dropped_from_metadata_log(base, new)
        return [file for file in dropped if self._locations.belongs_to(new, file)]

    def answer(
        self, identifier: Identifier, location: str, applied: Applied[TableMetadata]
    ) -> Answer:
        loaded = LoadedTable.at(self._cache, identifier, location)
        return TableAnswer(loaded, committed_json(applied.committed), applied.already_committed)


class ViewKind(RelationKind[ViewMetadata, CommitViewRequest]):
    kind = Kind.VIEW

    def __init__(self, cache: MetadataCache, locations: TableLocations) -> None:
        self._cache = cache
        self._locations = locations

    def load(self, location: str) -> ViewMetadata:
        return self._cache.view(location).metadata

    def apply(
        self,
        state: ViewMetadata | None,
        change: RelationChange,
        environment: Environment,
        *,
        alone: bool,
    ) -> tuple[Applied[ViewMetadata], None]:
        if state is None:
            raise missing(self.kind, change.identifier)
        new = apply_view_commit(state, change.request, environment.now_ms)
        self._locations.check_view(new, state)
        return Applied(new), None

    def next_file(
        self, base: ViewMetadata, base_location: str, new: ViewMetadata
    ) -> NextFile[ViewMetadata]:
        return view_file(new, metadata_version(base_location) + 1)

    def remember(self, file: NextFile[ViewMetadata]) -> None:
        self._cache.remember_view(file.location, CachedView(file.metadata))

    def answer(
        self, identifier: Identifier, location: str, applied: Applied[ViewMetadata]
    ) -> Answer:
        return ViewAnswer(LoadedView.at(self._cache, identifier, location))


def missing(kind: Kind, identifier: Identifier) -> FrazilError:
    if kind is Kind.TABLE:
        return NoSuchTable(f"Table does not exist: {identifier}")
    return NoSuchView(f"View does not exist: {identifier}")
