"""Views as a whole: create and register. Commits, drops and renames are as for tables."""

from __future__ import annotations

import uuid

from frazil.commit.catalog.namespace_changes import Namespaces
from frazil.commit.catalog.relation_rows import Relations, attempt
from frazil.commit.pipeline.catalog_answers import Answer, LoadedView, ViewAnswer
from frazil.commit.pipeline.outbox_events import event, pointer_payload
from frazil.commit.pipeline.pending_requests import Context, key_row
from frazil.commit.pipeline.relation_kinds import NextFile, view_file
from frazil.commit.pipeline.simple import Attempt, SimpleCommit
from frazil.commit.snapshot.commit_environment import now_ms
from frazil.commit.snapshot.table_locations import Territory, check_uuid
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
        territory: Territory,
        simple: SimpleCommit,
        namespaces: Namespaces,
    ) -> None:
        self.rows = Relations(Kind.VIEW, database, simple)
        self._database = database
        self._cache = cache
        self._territory = territory
        self._simple = simple
        self._namespaces = namespaces

    def load(self, identifier: Identifier) -> LoadedView:
        location = self.rows.row(identifier).metadata_location
        self._cache.check_there(location)
        return LoadedView(identifier, self._cache.view(location), location)

    def create(self, context: Context, namespace: Namespace, request: CreateViewRequest) -> Answer:
        identifier = Identifier(namespace, check_name(request.name, "view name"))

        def prepare() -> Attempt:
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
            self._territory.check_view(metadata)
            return self._attempt(context, identifier, view_file(metadata, 0), "create")

        return self._simple.run(context, prepare)

    def register(
        self, context: Context, namespace: Namespace, request: RegisterViewRequest
    ) -> Answer:
        identifier = Identifier(namespace, check_name(request.name, "view name"))
        location = request.metadata_location

        def prepare() -> Attempt:
            self._refuse_existing(identifier)
            self._territory.check(location, "metadata-location")
            metadata = self._cache.read_view(location)
            check_uuid(metadata.view_uuid, "view-uuid")
            self._territory.check_view(metadata)
            return self._attempt(context, identifier, NextFile(metadata, location, ()), "register")

        return self._simple.run(context, prepare)

    def _attempt(
        self,
        context: Context,
        identifier: Identifier,
        file: NextFile[ViewMetadata],
        operation: str,
    ) -> Attempt:
        view_uuid = file.metadata.view_uuid
        # A view that was dropped and comes back goes on counting where it stopped.
        version = self._database.last_version(view_uuid) + 1
        relation = Relation(Kind.VIEW, identifier, view_uuid, file.location, version)

        def answer() -> Answer:
            self._cache.remember_view(file.location, CachedView(file.metadata))
            return ViewAnswer(
                LoadedView(identifier, self._cache.view(file.location), file.location)
            )

        return attempt(
            [CreateRelation(relation)],
            key_row(context, 200, relation_uuid=relation.uuid),
            [event(context, relation, operation, pointer_payload(file.location))],
            answer,
            {file.location: file.chunks} if file.chunks else {},
        )

    def _refuse_existing(self, identifier: Identifier) -> None:
        """Early and in clear words; the database decides again in the transaction."""
        row = self._database.relation(identifier)
        if row is not None and row.kind is Kind.TABLE:
            raise AlreadyExists(f"Table with same name already exists: {identifier}")
        if row is not None:
            raise AlreadyExists(f"View already exists: {identifier}")
