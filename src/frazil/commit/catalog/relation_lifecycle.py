"""Creates, registers, renames and drops tables and views. Commits are elsewhere."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from frazil.commit.catalog.namespace_changes import Namespaces
from frazil.commit.pipeline.catalog_answers import (
    Answer,
    LoadedTable,
    LoadedView,
    NoContent,
    TableAnswer,
    ViewAnswer,
)
from frazil.commit.pipeline.created_tables import TableCreation, metadata_of_create
from frazil.commit.pipeline.idempotency import key_row
from frazil.commit.pipeline.pending_requests import Attempt, Context, Operation
from frazil.commit.pipeline.recorded_removals import recorded_replacement
from frazil.commit.pipeline.relation_kinds import missing
from frazil.commit.snapshot.commit_environment import now_ms
from frazil.commit.snapshot.file_writer import NextFile, view_file
from frazil.commit.snapshot.stream_epochs import branches_moved_back
from frazil.commit.snapshot.table_locations import TableLocations, check_uuid, row_uuid
from frazil.db.base import (
    Change,
    CreateRelation,
    DropRelation,
    EventRow,
    KeyRow,
    Kind,
    Relation,
    SwapRelation,
)
from frazil.db.changes import name_taken
from frazil.db.housekeeping_changes import HousekeepingChange, RecordPurge
from frazil.db.rows import Database, namespace_key
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.view_builder import new_view
from frazil.format.metadata.view_metadata import ViewMetadata
from frazil.read.metadata_cache import CachedTable, CachedView, MetadataCache
from frazil.store.object_store import Store
from frazil.wire.errors import Forbidden, FrazilError
from frazil.wire.frazil_properties import quarantine_ms
from frazil.wire.identifiers import Identifier
from frazil.wire.rest_messages import (
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
    RegisterViewRequest,
)

logger = logging.getLogger("frazil.commit")


class _Relations:
    """What tables and views have in common."""

    kind: Kind

    def __init__(
        self,
        database: Database,
        cache: MetadataCache,
        locations: TableLocations,
        namespaces: Namespaces,
    ) -> None:
        self._database = database
        self._cache = cache
        self._locations = locations
        self._namespaces = namespaces

    def row(self, identifier: Identifier) -> Relation:
        row = self._database.relation(identifier)
        if row is None or row.kind is not self.kind:
            raise missing(self.kind, identifier)
        return row

    def drop(
        self,
        operation: Operation,
        identifier: Identifier,
        *,
        event_name: str = "drop",
        keys: Callable[[Relation], tuple[KeyRow, ...]] | None = None,
        answer: Callable[[Relation], Answer] | None = None,
        housekeeping: Callable[[Relation], tuple[HousekeepingChange, ...]] | None = None,
    ) -> Attempt:
        """Delete the row. `keys`, `answer` and `housekeeping` are called with the deleted row."""
        row = self.row(identifier)
        context = operation.context
        return operation.carry_out(
            [DropRelation(row)],
            keys(row) if keys else key_row(context, 204),
            [_last_event(context, row, event_name)],
            lambda: answer(row) if answer else NoContent(),
            housekeeping=housekeeping(row) if housekeeping else (),
        )

    def rename(self, operation: Operation, source: Identifier, destination: Identifier) -> Attempt:
        row = self.row(source)
        context = operation.context
        if source == destination:
            return operation.carry_out([], key_row(context, 204), [], NoContent)
        renamed = replace(row, identifier=destination, version=row.version + 1)
        names = {"from": str(source), "to": str(destination)}
        return operation.carry_out(
            [SwapRelation(row, renamed)],
            key_row(context, 204),
            [context.event(renamed, "rename", names)],
            NoContent,
        )

    def _row_with_file(self, identifier: Identifier) -> Relation:
        """Return the row. Raises if the metadata file is missing."""
        row = self.row(identifier)
        self._cache.check_there(row.metadata_location)
        return row


class Tables(_Relations):
    kind = Kind.TABLE

    def __init__(
        self,
        database: Database,
        store: Store,
        cache: MetadataCache,
        locations: TableLocations,
        namespaces: Namespaces,
        creation: TableCreation,
    ) -> None:
        super().__init__(database, cache, locations, namespaces)
        self._store = store
        self._creation = creation

    def load(self, identifier: Identifier) -> LoadedTable:
        row = self._row_with_file(identifier)
        return LoadedTable.at(self._cache, identifier, row.metadata_location, row.uuid)

    # --- create ------------------------------------------------------------------------------

    def create(
        self, operation: Operation, identifier: Identifier, request: CreateTableRequest
    ) -> Attempt:
        self._creation.check_name_is_free(identifier)
        location = request.location or self._namespaces.new_location(identifier)
        metadata = metadata_of_create(request, location, now_ms())
        created = self._creation.created(identifier, metadata, is_new_uuid=True)
        self._creation.make_folders(created)
        if request.stage_create:
            # A staged create writes no metadata file. The answer has the metadata that the table
            # would get.
            staged = TableAnswer(LoadedTable(identifier, CachedTable(metadata), None))
            return Attempt(lambda: [(operation, staged)])
        relation, file = created.relation, created.file
        clean_up = partial(self._creation.remove_folders_if_failed, created)
        operation.future.add_done_callback(clean_up)

        def answer() -> TableAnswer:
            self._cache.remember_table(file.location, CachedTable(file.metadata))
            return self._answer(relation)

        context = operation.context
        return operation.carry_out(
            [CreateRelation(relation, created.locations)],
            key_row(context, 200, relation_uuid=relation.uuid),
            [_pointer_event(context, relation, "create")],
            answer,
            files={file.location: file.chunks},
        )

    def _answer(self, row: Relation) -> TableAnswer:
        return TableAnswer(LoadedTable.at(self._cache, row.identifier, row.metadata_location))

    # --- register ----------------------------------------------------------------------------

    def register(
        self, operation: Operation, identifier: Identifier, request: RegisterTableRequest
    ) -> Attempt:
        location = request.metadata_location
        existing = self._database.relation(identifier)
        if existing is not None and not (request.overwrite and existing.kind is Kind.TABLE):
            self._creation.check_name_is_free(identifier)
        target = self._locations.check_file(location, "metadata-location")
        metadata = self._cache.read_table(location, thorough=True)
        uuid = row_uuid(metadata)
        # Continue the version numbers of a table that was dropped and is registered again.
        version = self._database.last_version(uuid) + 1
        relation = Relation(Kind.TABLE, identifier, uuid, location, version)
        owner = self._database.owner_of_location(str(target))
        if owner not in (None, relation.uuid, existing and existing.uuid):
            raise Forbidden(f"metadata-location {location} lies inside another table")
        return self._register(operation, relation, metadata, existing)

    def _register(
        self,
        operation: Operation,
        relation: Relation,
        metadata: TableMetadata,
        existing: Relation | None,
    ) -> Attempt:
        context = operation.context
        locations = self._locations.owned(metadata)
        changes: list[Change] = [CreateRelation(relation, locations)]
        forget_streams: tuple[tuple[str, str], ...] = ()
        housekeeping: tuple[HousekeepingChange, ...] = ()
        events = [_pointer_event(context, relation, "register")]
        if existing is not None and existing.uuid == relation.uuid:
            moved_back = self._branches_moved_back(existing, metadata)
            if moved_back is None:
                # Dropping the row also deletes the table's stream rows.
                changes.insert(0, DropRelation(existing))
            else:
                changes = [SwapRelation(existing, relation, locations)]
                forget_streams = tuple((relation.uuid, branch) for branch in sorted(moved_back))
                before = self._cache.table(existing.metadata_location).metadata
                housekeeping = recorded_replacement(before, metadata, relation.uuid)
        elif existing is not None:
            changes.insert(0, DropRelation(existing))
            # The table that had the name is gone. Its consumers need a drop event.
            events.insert(0, _last_event(context, existing, "drop"))

        def answer() -> TableAnswer:
            self._cache.remember_table(relation.metadata_location, CachedTable(metadata))
            return self._answer(relation)

        return operation.carry_out(
            changes,
            key_row(context, 200, relation_uuid=relation.uuid),
            events,
            answer,
            forget_streams=forget_streams,
            housekeeping=housekeeping,
        )

    def _branches_moved_back(
        self, existing: Relation, metadata: TableMetadata
    ) -> frozenset[str] | None:
        """Return the branches that a registered file moves back. Return None if the current
        metadata file cannot be read, which may be the reason for replacing it."""
        try:
            before = self._cache.table(existing.metadata_location).metadata
        except FrazilError:
            return None
        return branches_moved_back(before, metadata)

    # --- drop --------------------------------------------------------------------------------

    def purge_record(self, row: Relation, *, now: bool) -> RecordPurge | None:
        """Return the row of a purge, or None if nobody can read which files the table has."""
        try:
            metadata = self._cache.table(row.metadata_location).metadata
            locations = self._locations.owned(metadata)
        except FrazilError:
            logger.exception("the files of the purged table %s stay", row.identifier)
            return None
        return RecordPurge(
            uuid=row.uuid,
            namespace_key=namespace_key(row.identifier.namespace),
            name=row.identifier.name,
            metadata_location=row.metadata_location,
            locations=locations,
            quarantine_ms=0 if now else quarantine_ms(metadata.properties),
        )

    def unregister(self, operation: Operation, identifier: Identifier) -> Attempt:
        def keys(row: Relation) -> tuple[KeyRow, ...]:
            # The row will be gone, so a replay needs the metadata location itself.
            name = [*identifier.namespace, identifier.name]
            pointer = {"identifier": name, "at": row.metadata_location}
            return key_row(operation.context, 200, committed=msgspec.json.encode(pointer))

        return self.drop(
            operation, identifier, event_name="unregister", keys=keys, answer=self._answer
        )


class Views(_Relations):
    kind = Kind.VIEW

    def load(self, identifier: Identifier) -> LoadedView:
        row = self._row_with_file(identifier)
        return LoadedView.at(self._cache, identifier, row.metadata_location)

    def create(
        self, operation: Operation, identifier: Identifier, request: CreateViewRequest
    ) -> Attempt:
        self._refuse_existing(identifier)
        location = request.location or self._namespaces.new_location(identifier)
        metadata = new_view(
            location=location,
            schema=request.schema,
            view_version=request.view_version,
            properties=request.properties or {},
            uuid=str(uuid.uuid4()),
            now_ms=now_ms(),
        )
        self._locations.check_view(metadata)
        return self._create(operation, identifier, view_file(metadata, 0), "create")

    def register(
        self, operation: Operation, identifier: Identifier, request: RegisterViewRequest
    ) -> Attempt:
        location = request.metadata_location
        self._refuse_existing(identifier)
        self._locations.check_file(location, "metadata-location")
        metadata = self._cache.read_view(location)
        check_uuid(metadata.view_uuid, "view-uuid")
        self._locations.check_view(metadata)
        return self._create(operation, identifier, NextFile(metadata, location, ()), "register")

    def _create(
        self,
        operation: Operation,
        identifier: Identifier,
        file: NextFile[ViewMetadata],
        event_name: str,
    ) -> Attempt:
        view_uuid = file.metadata.view_uuid
        # Continue the version numbers of a view that was dropped and is registered again.
        version = self._database.last_version(view_uuid) + 1
        relation = Relation(Kind.VIEW, identifier, view_uuid, file.location, version)

        def answer() -> ViewAnswer:
            self._cache.remember_view(file.location, CachedView(file.metadata))
            return ViewAnswer(LoadedView.at(self._cache, identifier, file.location))

        return operation.carry_out(
            [CreateRelation(relation)],
            key_row(operation.context, 200, relation_uuid=relation.uuid),
            [_pointer_event(operation.context, relation, event_name)],
            answer,
            files={file.location: file.chunks} if file.chunks else {},
        )

    def _refuse_existing(self, identifier: Identifier) -> None:
        """Check early to give a clear message. The database decides again in the transaction."""
        row = self._database.relation(identifier)
        if row is not None:
            raise name_taken(self.kind, row.kind, identifier)


def _pointer_event(context: Context, relation: Relation, event_name: str) -> EventRow:
    """Return an event with the location of the relation's metadata file."""
    return context.event(relation, event_name, {"metadata-location": relation.metadata_location})


def _last_event(context: Context, row: Relation, event_name: str) -> EventRow:
    """Return the last event of a row, after which the row no longer exists."""
    return _pointer_event(context, replace(row, version=row.version + 1), event_name)
