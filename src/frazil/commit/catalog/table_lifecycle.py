"""Creates, registers, unregisters and purges tables."""

from __future__ import annotations

import logging
from itertools import islice

import msgspec

from frazil.commit.catalog.namespace_changes import Namespaces
from frazil.commit.catalog.purge import files_of_table
from frazil.commit.catalog.relation_rows import RelationRows, last_event
from frazil.commit.pipeline.catalog_answers import LoadedTable, TableAnswer
from frazil.commit.pipeline.idempotency import key_row
from frazil.commit.pipeline.outbox_events import event, pointer_payload
from frazil.commit.pipeline.pending_requests import Attempt, Operation
from frazil.commit.pipeline.table_creation import TableCreation, metadata_of_create
from frazil.commit.snapshot.commit_environment import now_ms
from frazil.commit.snapshot.stream_epochs import branches_moved_back
from frazil.commit.snapshot.table_locations import TableLocations, row_uuid
from frazil.db.base import (
    Change,
    CreateRelation,
    Database,
    DropRelation,
    KeyRow,
    Kind,
    Relation,
    SwapRelation,
)
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.metadata_cache import CachedTable, MetadataCache
from frazil.store.object_store import Store
from frazil.wire.errors import Forbidden, FrazilError
from frazil.wire.identifiers import Identifier, Namespace, check_name
from frazil.wire.rest_messages import CreateTableRequest, RegisterTableRequest

_PURGE_BATCH = 1000

logger = logging.getLogger("frazil.commit")


class Tables:
    def __init__(
        self,
        database: Database,
        store: Store,
        cache: MetadataCache,
        locations: TableLocations,
        namespaces: Namespaces,
        creation: TableCreation,
    ) -> None:
        self.rows = RelationRows(Kind.TABLE, database)
        self._database = database
        self._store = store
        self._cache = cache
        self._locations = locations
        self._namespaces = namespaces
        self._creation = creation

    def load(self, identifier: Identifier) -> LoadedTable:
        location = self.rows.row(identifier).metadata_location
        self._cache.check_there(location)
        return LoadedTable(identifier, self._cache.table(location), location)

    # --- create ------------------------------------------------------------------------------

    def create(
        self, operation: Operation, namespace: Namespace, request: CreateTableRequest
    ) -> Attempt:
        identifier = Identifier(namespace, check_name(request.name, "table name"))
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

        def answer() -> TableAnswer:
            self._cache.remember_table(file.location, CachedTable(file.metadata))
            return self._answer(relation)

        context = operation.context
        return operation.carry_out(
            [CreateRelation(relation, created.locations)],
            key_row(context, 200, relation_uuid=relation.uuid),
            [event(context, relation, "create", pointer_payload(file.location))],
            answer,
            files={file.location: file.chunks},
        )

    def _answer(self, row: Relation) -> TableAnswer:
        location = row.metadata_location
        return TableAnswer(LoadedTable(row.identifier, self._cache.table(location), location))

    # --- register ----------------------------------------------------------------------------

    def register(
        self, operation: Operation, namespace: Namespace, request: RegisterTableRequest
    ) -> Attempt:
        identifier = Identifier(namespace, check_name(request.name, "table name"))
        location = request.metadata_location
        existing = self._database.relation(identifier)
        if existing is not None and not (request.overwrite and existing.kind is Kind.TABLE):
            self._creation.check_name_is_free(identifier)
        target = self._locations.check(location, "metadata-location")
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
        events = [event(context, relation, "register", pointer_payload(relation.metadata_location))]
        if existing is not None and existing.uuid == relation.uuid:
            moved_back = self._branches_moved_back(existing, metadata)
            if moved_back is None:
                # Dropping the row also deletes the table's stream rows.
                changes.insert(0, DropRelation(existing))
            else:
                changes = [SwapRelation(existing, relation, locations)]
                forget_streams = tuple((relation.uuid, branch) for branch in sorted(moved_back))
        elif existing is not None:
            changes.insert(0, DropRelation(existing))
            # The table that had the name is gone. Its consumers need a drop event.
            events.insert(0, last_event(context, existing, "drop"))

        def answer() -> TableAnswer:
            self._cache.remember_table(relation.metadata_location, CachedTable(metadata))
            return self._answer(relation)

        return operation.carry_out(
            changes,
            key_row(context, 200, relation_uuid=relation.uuid),
            events,
            answer,
            forget_streams=forget_streams,
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

    def purge(self, row: Relation) -> None:
        """Delete the files of a table that was removed from the catalog. The drop is already
        committed, so a failure is only logged."""
        try:
            metadata = self._cache.table(row.metadata_location).metadata
            files = files_of_table(
                metadata,
                self._store,
                lambda file: self._locations.belongs_to(metadata, file),
                metadata_location=row.metadata_location,
            )
            while batch := list(islice(files, _PURGE_BATCH)):
                self._store.delete(batch)
        except Exception:
            logger.exception("purge of %s did not finish", row.identifier)

    def unregister(self, operation: Operation, identifier: Identifier) -> Attempt:
        def keys(row: Relation) -> tuple[KeyRow, ...]:
            # The row will be gone, so a replay needs the metadata location itself.
            name = [*identifier.namespace, identifier.name]
            pointer = {"identifier": name, "at": row.metadata_location}
            return key_row(operation.context, 200, committed=msgspec.json.encode(pointer))

        return self.rows.drop(
            operation, identifier, event_name="unregister", keys=keys, answer=self._answer
        )
