"""Creates and registers views. Commits, drops and renames are the same as for tables."""

from __future__ import annotations

import uuid

from frazil.commit.catalog.namespace_changes import Namespaces
from frazil.commit.catalog.relation_rows import RelationRows
from frazil.commit.pipeline.catalog_answers import LoadedView, ViewAnswer
from frazil.commit.pipeline.idempotency import key_row
from frazil.commit.pipeline.outbox_events import event, pointer_payload
from frazil.commit.pipeline.pending_requests import Attempt, Operation
from frazil.commit.snapshot.commit_environment import now_ms
from frazil.commit.snapshot.file_writer import NextFile, view_file
from frazil.commit.snapshot.table_locations import TableLocations, check_uuid
from frazil.db.base import CreateRelation, Database, Kind, Relation
from frazil.format.metadata.view_builder import new_view
from frazil.format.metadata.view_metadata import ViewMetadata
from frazil.read.metadata_cache import CachedView, MetadataCache
from frazil.wire.errors import AlreadyExists
from frazil.wire.identifiers import Identifier, Namespace, check_name
from frazil.wire.rest_messages import CreateViewRequest, RegisterViewRequest


class Views:
    def __init__(
        self,
        database: Database,
        cache: MetadataCache,
        locations: TableLocations,
        namespaces: Namespaces,
    ) -> None:
        self.rows = RelationRows(Kind.VIEW, database)
        self._database = database
        self._cache = cache
        self._locations = locations
        self._namespaces = namespaces

    def load(self, identifier: Identifier) -> LoadedView:
        location = self.rows.row(identifier).metadata_location
        self._cache.check_there(location)
        return LoadedView(identifier, self._cache.view(location), location)

    def create(
        self, operation: Operation, namespace: Namespace, request: CreateViewRequest
    ) -> Attempt:
        identifier = Identifier(namespace, check_name(request.name, "view name"))
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
        self, operation: Operation, namespace: Namespace, request: RegisterViewRequest
    ) -> Attempt:
        identifier = Identifier(namespace, check_name(request.name, "view name"))
        location = request.metadata_location
        self._refuse_existing(identifier)
        self._locations.check(location, "metadata-location")
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
            return ViewAnswer(
                LoadedView(identifier, self._cache.view(file.location), file.location)
            )

        payload = pointer_payload(file.location)
        return operation.carry_out(
            [CreateRelation(relation)],
            key_row(operation.context, 200, relation_uuid=relation.uuid),
            [event(operation.context, relation, event_name, payload)],
            answer,
            files={file.location: file.chunks} if file.chunks else {},
        )

    def _refuse_existing(self, identifier: Identifier) -> None:
        """Check early to give a clear message. The database decides again in the transaction."""
        row = self._database.relation(identifier)
        if row is not None and row.kind is Kind.TABLE:
            raise AlreadyExists(f"Table with same name already exists: {identifier}")
        if row is not None:
            raise AlreadyExists(f"View already exists: {identifier}")
