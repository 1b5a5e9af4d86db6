"""Tables as a whole: create, register, drop, unregister."""

from __future__ import annotations

import logging
from itertools import islice

import msgspec

from frazil.commit.catalog.namespace_changes import Namespaces
from frazil.commit.catalog.purge import files_of_table
from frazil.commit.catalog.relation_rows import Relations, attempt, next_event
from frazil.commit.pipeline.catalog_answers import (
    Answer,
    LoadedTable,
    TableAnswer,
    TransactionAnswer,
)
from frazil.commit.pipeline.outbox_events import commit_payload, event, pointer_payload
from frazil.commit.pipeline.pending_requests import Context, Pending, commit_rows, key_row
from frazil.commit.pipeline.simple import Attempt, SimpleCommit
from frazil.commit.pipeline.table_creation import (
    CreatedTable,
    created_by_commit,
    created_by_request,
    first_file,
    table_folders,
)
from frazil.commit.snapshot.apply_request import Applied, added_snapshots, already_happened
from frazil.commit.snapshot.commit_environment import Environments, now_ms
from frazil.commit.snapshot.committed_snapshots import committed_json
from frazil.commit.snapshot.file_writer import not_written
from frazil.commit.snapshot.stream_epochs import Streams, branches_moved_back, repeated_epoch
from frazil.commit.snapshot.table_locations import Territory, row_uuid
from frazil.commit.snapshot.updates import is_fine_grained
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
from frazil.store.object_store import Store, StoreError
from frazil.wire.errors import AlreadyExists, CommitFailed, Forbidden, FrazilError
from frazil.wire.identifiers import Identifier, Namespace, check_name
from frazil.wire.rest_messages import CommitTableRequest, CreateTableRequest, RegisterTableRequest
from frazil.wire.rest_updates import AssignUUID

_PURGE_BATCH = 1000

logger = logging.getLogger("frazil.commit")


class Tables:
    def __init__(
        self,
        database: Database,
        store: Store,
        cache: MetadataCache,
        territory: Territory,
        simple: SimpleCommit,
        namespaces: Namespaces,
        environments: Environments,
    ) -> None:
        self.rows = Relations(Kind.TABLE, database, simple)
        self._environments = environments
        self._database = database
        self._store = store
        self._cache = cache
        self._territory = territory
        self._simple = simple
        self._namespaces = namespaces

    def load(self, identifier: Identifier) -> LoadedTable:
        location = self.rows.row(identifier).metadata_location
        self._cache.check_there(location)
        return LoadedTable(identifier, self._cache.table(location), location)

    # --- create ------------------------------------------------------------------------------

    def create(self, context: Context, namespace: Namespace, request: CreateTableRequest) -> Answer:
        identifier = Identifier(namespace, check_name(request.name, "table name"))

        def build() -> CreatedTable:
            self._check_name_is_free(identifier)
            location = request.location or self._namespaces.new_location(identifier)
            metadata = created_by_request(request, location, now_ms())
            return first_file(identifier, metadata, Applied(metadata), self._territory)

        if request.stage_create:
            return self._stage(identifier, build())
        return self._simple.run(context, lambda: self._create(context, build(), None))

    def create_by_commit(
        self, pending: Pending[CommitTableRequest], identifier: Identifier
    ) -> Answer:
        """The commit of a staged create, which brings the table into being."""

        def prepare() -> Attempt:
            row = self._database.relation(identifier)
            if row is not None and row.kind is Kind.TABLE:
                return self._repeated_create(pending, row)
            self._check_name_is_free(identifier)
            created = created_by_commit(
                identifier,
                pending.request,
                self._territory,
                self._database.last_version,
                self._environments.round().of(pending.commit_uuid, now_ms()),
            )
            return self._create(pending.context, created, pending)

        return self._simple.run(pending.context, prepare)

    def _stage(self, identifier: Identifier, created: CreatedTable) -> Answer:
        """Answers the metadata a table would have; nothing is kept but the folders."""
        metadata = created.file.metadata
        self._make_folders(created)
        return TableAnswer(LoadedTable(identifier, CachedTable(metadata), None))

    def _create(
        self,
        context: Context,
        created: CreatedTable,
        pending: Pending[CommitTableRequest] | None,
    ) -> Attempt:
        relation, file = created.relation, created.file
        committed = committed_json(created.applied.committed) if pending else None
        if pending:
            payload = commit_payload(pending.request, created.applied.committed, file.location)
        else:
            payload = pointer_payload(file.location)
        # Made before the row: a client may write there the moment it sees the table.
        self._make_folders(created)

        def answer() -> Answer:
            self._cache.remember_table(file.location, CachedTable(file.metadata))
            return self._answer(relation, committed, pending)

        return attempt(
            [CreateRelation(relation, created.locations)],
            _create_keys(context, relation, committed, pending),
            [event(context, relation, "create", payload)],
            answer,
            {**{name: [data] for name, data in created.applied.files}, file.location: file.chunks},
            created.applied.streams,
        )

    def _make_folders(self, created: CreatedTable) -> None:
        """Asks first whose place it is, so that what is refused leaves no folder in another
        table; the database decides again in the transaction."""
        for location in created.locations:
            self._database.check_location_is_free(location, created.relation.uuid)
        try:
            self._store.make_folders(table_folders(created.file.metadata))
        except StoreError as error:
            raise not_written("the table's folders could not be made", error) from error

    def _repeated_create(self, pending: Pending[CommitTableRequest], row: Relation) -> Attempt:
        """The table is there. It is the client's own if it bears the uuid the client was given
        when it staged the create: then an answer was lost and nothing is left to do."""
        state = self._cache.table(row.metadata_location).metadata
        updates = pending.request.updates
        own = any(isinstance(u, AssignUUID) and u.uuid == row.uuid for u in updates)
        taken = CommitFailed(f"Requirement failed: table already exists: {row.identifier}")
        if not own:
            raise taken
        if is_fine_grained(updates):
            applied = repeated_epoch(
                state, pending.request, Streams(row.uuid, self._database.stream)
            )
            if applied is None:
                raise taken  # Its uuid does not prove that these very files were committed.
            return self._repeated(pending, row, committed_json(applied), already_committed=True)
        added = added_snapshots(updates)
        if added and not already_happened(state, updates, added):
            raise taken
        return self._repeated(pending, row, b"[]")

    def _repeated(
        self,
        pending: Pending[CommitTableRequest],
        row: Relation,
        committed: bytes,
        *,
        already_committed: bool = False,
    ) -> Attempt:
        keys = commit_rows(
            pending.context,
            row.uuid,
            committed,
            in_transaction=pending.in_transaction,
            already_committed=already_committed,
        )
        return attempt(
            [], keys, [], lambda: self._answer(row, committed, pending, already_committed)
        )

    def _answer(
        self,
        relation: Relation,
        committed: bytes | None,
        pending: Pending[CommitTableRequest] | None,
        already_committed: bool = False,
    ) -> Answer:
        location = relation.metadata_location
        loaded = LoadedTable(relation.identifier, self._cache.table(location), location)
        answer = TableAnswer(loaded, committed, already_committed)
        in_transaction = pending is not None and pending.in_transaction
        return TransactionAnswer((answer,)) if in_transaction else answer

    def _check_name_is_free(self, identifier: Identifier) -> None:
        """Early and in clear words; the database decides again in the transaction."""
        row = self._database.relation(identifier)
        if row is not None and row.kind is Kind.VIEW:
            raise AlreadyExists(f"View with same name already exists: {identifier}")
        if row is not None:
            raise AlreadyExists(f"Table already exists: {identifier}")
        self._namespaces.must_exist(identifier.namespace)

    # --- register ----------------------------------------------------------------------------

    def register(
        self, context: Context, namespace: Namespace, request: RegisterTableRequest
    ) -> Answer:
        identifier = Identifier(namespace, check_name(request.name, "table name"))
        location = request.metadata_location

        def prepare() -> Attempt:
            existing = self._database.relation(identifier)
            if existing is not None and not (request.overwrite and existing.kind is Kind.TABLE):
                self._check_name_is_free(identifier)
            target = self._territory.check(location, "metadata-location")
            metadata = self._cache.read_table(location, thorough=True)
            uuid = row_uuid(metadata)
            # A table that was dropped and comes back goes on counting where it stopped.
            version = self._database.last_version(uuid) + 1
            relation = Relation(Kind.TABLE, identifier, uuid, location, version)
            owner = self._database.owner_of_location(str(target))
            if owner not in (None, relation.uuid, existing and existing.uuid):
                raise Forbidden(f"metadata-location {location} lies inside another table")
            return self._register(context, relation, metadata, existing)

        return self._simple.run(context, prepare)

    def _register(
        self,
        context: Context,
        relation: Relation,
        metadata: TableMetadata,
        existing: Relation | None,
    ) -> Attempt:
        locations = self._territory.owned(metadata)
        changes: list[Change]
        forget_streams: tuple[tuple[str, str], ...] = ()
        events = [event(context, relation, "register", pointer_payload(relation.metadata_location))]
        if existing is None:
            changes = [CreateRelation(relation, locations)]
        elif existing.uuid == relation.uuid:
            changes = [SwapRelation(existing, relation, locations)]
            moved_back = self._moved_back(existing, metadata)
            if moved_back is None:
                # With the row goes everything that was remembered of the table.
                changes = [DropRelation(existing), CreateRelation(relation, locations)]
            else:
                forget_streams = tuple((relation.uuid, branch) for branch in sorted(moved_back))
        else:
            changes = [DropRelation(existing), CreateRelation(relation, locations)]
            # The table that had the name is gone, and whoever follows it is told.
            events.insert(0, next_event(context, existing, "drop"))

        def answer() -> Answer:
            self._cache.remember_table(relation.metadata_location, CachedTable(metadata))
            return self._answer(relation, None, None)

        return attempt(
            changes,
            key_row(context, 200, relation_uuid=relation.uuid),
            events,
            answer,
            forget_streams=forget_streams,
        )

    def _moved_back(self, existing: Relation, metadata: TableMetadata) -> frozenset[str] | None:
        """The branches that a registered file takes back; None where nobody knows, because the
        file of the table as it was cannot be read: perhaps that is why it is replaced."""
        try:
            before = self._cache.table(existing.metadata_location).metadata
        except FrazilError:
            return None
        return branches_moved_back(before, metadata)

    # --- drop --------------------------------------------------------------------------------

    def purge(self, row: Relation) -> None:
        """Deletes the files of a table that is gone from the catalog. What cannot be deleted
        is logged and left: the drop itself has happened."""
        try:
            metadata = self._cache.table(row.metadata_location).metadata
            files = files_of_table(
                metadata,
                self._store,
                lambda file: self._territory.belongs_to(metadata, file),
                metadata_location=row.metadata_location,
            )
            while batch := list(islice(files, _PURGE_BATCH)):
                self._store.delete(batch)
        except Exception:
            logger.exception("purge of %s did not finish", row.identifier)

    def unregister(self, context: Context, identifier: Identifier) -> Answer:
        def keys(row: Relation) -> tuple[KeyRow, ...]:
            # The row is gone afterwards, so a replay needs the pointer itself.
            pointer = {"identifier": identifier_json(identifier), "at": row.metadata_location}
            return key_row(context, 200, committed=msgspec.json.encode(pointer))

        return self.rows.drop(
            context, identifier, "unregister", keys, lambda row: self._answer(row, None, None)
        )


def identifier_json(identifier: Identifier) -> list[str]:
    return [*identifier.namespace, identifier.name]


def _create_keys(
    context: Context,
    relation: Relation,
    committed: bytes | None,
    pending: Pending[CommitTableRequest] | None,
) -> tuple[KeyRow, ...]:
    if pending is None or committed is None:
        return key_row(context, 200, relation_uuid=relation.uuid)
    in_transaction = pending.in_transaction
    return commit_rows(context, relation.uuid, committed, in_transaction=in_transaction)
