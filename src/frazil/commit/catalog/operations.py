"""The catalog: every operation of the REST specification, without HTTP.

Methods that may wait in a table's queue return a future; all others block the calling thread
for the time of a database transaction. No method is ever called on the edge's event loop except
those that return a future, which only put something in a queue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from frazil.commit.catalog.namespace_changes import Namespaces
from frazil.commit.catalog.relation_rows import Relations
from frazil.commit.catalog.table_lifecycle import Tables
from frazil.commit.catalog.view_lifecycle import Views
from frazil.commit.pipeline.catalog_answers import (
    Answer,
    JsonAnswer,
    LoadedTable,
    LoadedView,
    NoContent,
    TableAnswer,
    TransactionAnswer,
    ViewAnswer,
)
from frazil.commit.pipeline.commit_loop import GroupCommit
from frazil.commit.pipeline.idempotency import Idempotency
from frazil.commit.pipeline.pending_requests import Context, Pending
from frazil.commit.pipeline.relation_kinds import TableSubject, ViewSubject, missing
from frazil.commit.pipeline.simple import SimpleCommit
from frazil.commit.pipeline.table_creation import is_create
from frazil.commit.pipeline.table_queues import Job, QueueLimits, Queues
from frazil.commit.pipeline.transactions import MultiTableCommit, TableChange
from frazil.commit.snapshot.apply_request import asserts_ref
from frazil.commit.snapshot.commit_environment import Environments
from frazil.commit.snapshot.committed_snapshots import KeptCommit, kept_from_json
from frazil.commit.snapshot.file_writer import FileWriter
from frazil.commit.snapshot.table_locations import Territory
from frazil.commit.snapshot.updates import is_fine_grained
from frazil.db.base import Database, DatabaseUnavailable, KeyRow, Kind, Relation
from frazil.read.lru import CacheCounts
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.read.metadata_cache import MetadataCache
from frazil.store.locations import AllowedLocations
from frazil.store.object_store import Store
from frazil.wire.errors import BadRequest, TooManyRequests
from frazil.wire.identifiers import Identifier, Namespace
from frazil.wire.rest_messages import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
    RegisterViewRequest,
)

logger = logging.getLogger("frazil.commit")

_COMMIT_THREADS = 16
_FILE_THREADS = 16
_DRAIN_TIMEOUT_S = 60.0
_FORGET_EVERY_S = 600.0
_KEEP_COMMIT_IDS_S = 7 * 24 * 3600
_TABLE_COMMITS = "table"
_VIEW_COMMITS = "view"


@dataclass(frozen=True, slots=True, eq=False)
class _Alone:
    """A queued operation that shares its swap with nobody."""

    context: Context
    operation: Callable[[], Answer]
    future: Future[Answer] = field(default_factory=Future)
    group_key: None = None
    can_wait: bool = False

    @property
    def size_bytes(self) -> int:
        return self.context.request_bytes


class Catalog:
    def __init__(
        self,
        *,
        db: Database,
        store: Store,
        warehouse: str,
        allowed_locations: AllowedLocations,
        idempotency_lifetime_s: int = 1800,
        metadata_cache_bytes: int = 256 << 20,
        manifest_cache_bytes: int = 384 << 20,
        manifest_cache_folder: Path | None = None,
        limits: QueueLimits | None = None,
    ) -> None:
        self._database = db
        self._store = store
        self._workers = ThreadPoolExecutor(_COMMIT_THREADS, "frazil-commit")
        self._file_workers = ThreadPoolExecutor(_FILE_THREADS, "frazil-files")
        territory = Territory(allowed_locations)
        self._check_readable = territory.check_readable
        writer = FileWriter(store, self._file_workers)
        self._cache = MetadataCache(store, metadata_cache_bytes)
        self._idempotency = Idempotency(db, self._render)
        simple = SimpleCommit(db, writer, self._idempotency)
        self._namespaces = Namespaces(db, simple, territory, warehouse)
        self._manifests = ManifestCache(manifest_cache_bytes, manifest_cache_folder)
        environments = Environments(db, store, territory, self._manifests, self._file_workers)
        self._tables = Tables(
            db, store, self._cache, territory, simple, self._namespaces, environments
        )
        self._views = Views(db, self._cache, territory, simple, self._namespaces)
        self._table_subject = TableSubject(self._cache, territory)
        self._view_subject = ViewSubject(self._cache, territory)
        self._groups = GroupCommit(db, writer, self._idempotency, environments)
        self._transactions = MultiTableCommit(
            db,
            writer,
            self._cache,
            territory,
            self._idempotency,
            self._table_subject,
            environments,
        )
        self._queues = Queues(self._workers, self._run_group, limits or QueueLimits())
        self._groups.when_refused_late(self._queues.refused_late)
        self._lifetime_s = idempotency_lifetime_s
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._forget, name="frazil-forget", daemon=True)
        self._keeper.start()

    # --- namespaces --------------------------------------------------------------------------

    def list_namespaces(
        self, parent: Namespace, page_token: str | None, page_size: int | None
    ) -> tuple[list[Namespace], str | None]:
        if parent:
            self._namespaces.must_exist(parent)
        names, after = self._database.list_namespaces(parent, page_token, page_size)
        return [(*parent, name) for name in names], after

    def load_namespace(self, namespace: Namespace) -> dict[str, str]:
        return self._namespaces.described(namespace, self._namespaces.properties(namespace))

    def namespace_exists(self, namespace: Namespace) -> None:
        self._namespaces.must_exist(namespace)

    def create_namespace(
        self, context: Context, namespace: Namespace, properties: dict[str, str]
    ) -> Answer:
        return self._idempotency.run_here(
            context, lambda: self._namespaces.create(context, namespace, properties)
        )

    def update_namespace_properties(
        self,
        context: Context,
        namespace: Namespace,
        removals: Sequence[str],
        updates: dict[str, str],
    ) -> Answer:
        return self._idempotency.run_here(
            context, lambda: self._namespaces.update(context, namespace, removals, updates)
        )

    def drop_namespace(self, context: Context, namespace: Namespace) -> Answer:
        return self._idempotency.run_here(
            context, lambda: self._namespaces.drop(context, namespace)
        )

    # --- reading tables and views ------------------------------------------------------------

    def list_tables(
        self, namespace: Namespace, page_token: str | None, page_size: int | None
    ) -> tuple[list[Identifier], str | None]:
        return self._list(Kind.TABLE, namespace, page_token, page_size)

    def list_views(
        self, namespace: Namespace, page_token: str | None, page_size: int | None
    ) -> tuple[list[Identifier], str | None]:
        return self._list(Kind.VIEW, namespace, page_token, page_size)

    def load_table(self, identifier: Identifier) -> LoadedTable:
        return self._tables.load(identifier)

    def table_exists(self, identifier: Identifier) -> None:
        self._tables.rows.row(identifier)

    def manifest_reader(self) -> ManifestReader:
        """Reads the manifests of tables, through the cache that commits use."""
        return ManifestReader(self._manifests, self._store, self._check_readable)

    def manifest_counts(self) -> CacheCounts:
        """What that cache has done so far."""
        return self._manifests.counts()

    def load_view(self, identifier: Identifier) -> LoadedView:
        return self._views.load(identifier)

    def view_exists(self, identifier: Identifier) -> None:
        self._views.rows.row(identifier)

    def _list(
        self, kind: Kind, namespace: Namespace, page_token: str | None, page_size: int | None
    ) -> tuple[list[Identifier], str | None]:
        self._namespaces.must_exist(namespace)
        names, after = self._database.list_relations(kind, namespace, page_token, page_size)
        return [Identifier(namespace, name) for name in names], after

    # --- creating and registering ------------------------------------------------------------

    def create_table(
        self, context: Context, namespace: Namespace, request: CreateTableRequest
    ) -> Answer:
        return self._idempotency.run_here(
            context, lambda: self._tables.create(context, namespace, request)
        )

    def register_table(
        self, context: Context, namespace: Namespace, request: RegisterTableRequest
    ) -> Answer:
        return self._idempotency.run_here(
            context, lambda: self._tables.register(context, namespace, request)
        )

    def create_view(
        self, context: Context, namespace: Namespace, request: CreateViewRequest
    ) -> Answer:
        return self._idempotency.run_here(
            context, lambda: self._views.create(context, namespace, request)
        )

    def register_view(
        self, context: Context, namespace: Namespace, request: RegisterViewRequest
    ) -> Answer:
        return self._idempotency.run_here(
            context, lambda: self._views.register(context, namespace, request)
        )

    # --- through the queue -------------------------------------------------------------------

    def commit_table(
        self, context: Context, identifier: Identifier, request: CommitTableRequest
    ) -> Future[Answer]:
        return self._queued(
            context, lambda: self._submit_commit(context, identifier, request, False)
        )

    def commit_view(
        self, context: Context, identifier: Identifier, request: CommitViewRequest
    ) -> Future[Answer]:
        def start() -> Future[Answer]:
            pending = Pending(context, request, _VIEW_COMMITS)
            self._queues.submit(identifier, pending)
            return pending.future

        return self._queued(context, start)

    def commit_transaction(
        self, context: Context, request: CommitTransactionRequest
    ) -> Future[Answer]:
        identifiers = request.identifiers()
        if len(set(identifiers)) != len(identifiers):
            raise BadRequest("table-changes: a table is named twice; join its updates in one")
        changes = tuple(map(TableChange, identifiers, request.table_changes))
        if len(changes) == 1:
            only = changes[0]
            return self._queued(
                context,
                lambda: self._submit_commit(context, only.identifier, only.request, True),
            )
        return self._queued(context, lambda: self._submit_transaction(context, changes))

    def drop_table(self, context: Context, identifier: Identifier, purge: bool) -> Future[Answer]:
        dropped: list[Relation] = []

        def operation() -> Answer:
            return self._tables.rows.drop(context, identifier, dropped=dropped.append)

        def start() -> Future[Answer]:
            return self._then_purge(self._alone(context, identifier, operation), dropped, purge)

        return self._queued(context, start)

    def unregister_table(self, context: Context, identifier: Identifier) -> Future[Answer]:
        operation = lambda: self._tables.unregister(context, identifier)  # noqa: E731
        return self._queued(context, lambda: self._alone(context, identifier, operation))

    def rename_table(
        self, context: Context, source: Identifier, destination: Identifier
    ) -> Future[Answer]:
        return self._rename(self._tables.rows, context, source, destination)

    def drop_view(self, context: Context, identifier: Identifier) -> Future[Answer]:
        operation = lambda: self._views.rows.drop(context, identifier)  # noqa: E731
        return self._queued(context, lambda: self._alone(context, identifier, operation))

    def rename_view(
        self, context: Context, source: Identifier, destination: Identifier
    ) -> Future[Answer]:
        return self._rename(self._views.rows, context, source, destination)

    def _rename(
        self, rows: Relations, context: Context, source: Identifier, destination: Identifier
    ) -> Future[Answer]:
        operation = lambda: rows.rename(context, source, destination)  # noqa: E731
        return self._queued(context, lambda: self._alone(context, source, operation))

    def _queued(self, context: Context, start: Callable[[], Future[Answer]]) -> Future[Answer]:
        return self._idempotency.run(context, start, self._workers)

    def _submit_commit(
        self,
        context: Context,
        identifier: Identifier,
        request: CommitTableRequest,
        in_transaction: bool,
    ) -> Future[Answer]:
        group_key = None if is_create(request) else _TABLE_COMMITS
        can_wait = is_fine_grained(request.updates) and not asserts_ref(request)
        pending = Pending(context, request, group_key, in_transaction, can_wait)
        self._queues.submit(identifier, pending)
        return pending.future

    def _submit_transaction(
        self, context: Context, changes: Sequence[TableChange]
    ) -> Future[Answer]:
        pending: Pending[Sequence[TableChange]] = Pending(context, changes, None, True)

        def run() -> None:
            with self._queues.holding([change.identifier for change in changes]):
                self._transactions.run(pending)

        if self._stop.is_set():
            raise TooManyRequests("the server is shutting down: send the request again")
        self._workers.submit(run)
        return pending.future

    def _alone(
        self, context: Context, identifier: Identifier, operation: Callable[[], Answer]
    ) -> Future[Answer]:
        job = _Alone(context, operation)
        self._queues.submit(identifier, job)
        return job.future

    def _then_purge(
        self, done: Future[Answer], dropped: list[Relation], purge: bool
    ) -> Future[Answer]:
        """Answers a purge only when the files are gone, without holding the name meanwhile."""
        if not purge:
            return done
        finished: Future[Answer] = Future()

        def work(answer: Answer) -> None:
            for row in dropped[-1:]:
                self._tables.purge(row)
            finished.set_result(answer)

        def after(first: Future[Answer]) -> None:
            error = first.exception()
            if error is not None:
                finished.set_exception(error)
            else:
                self._workers.submit(work, first.result())

        done.add_done_callback(after)
        return finished

    def _run_group(self, identifier: Identifier, group: Sequence[Job]) -> None:
        """Called by the queue, holding the table."""
        first: Any = group[0]
        if isinstance(first, _Alone):
            self._idempotency.settle(first.future, first.context, first.operation)
        elif first.group_key == _VIEW_COMMITS:
            self._groups.run(self._view_subject, identifier, _pendings(group))
        elif first.group_key == _TABLE_COMMITS:
            self._groups.run(self._table_subject, identifier, _pendings(group))
        else:
            create = lambda: self._tables.create_by_commit(first, identifier)  # noqa: E731
            self._idempotency.settle(first.future, first.context, create)

    # --- replay ------------------------------------------------------------------------------

    def _render(self, row: KeyRow) -> Answer:
        """A finished request's answer, from the catalog as it is now."""
        if row.body is not None:
            return JsonAnswer(row.body, row.status)
        if row.relation_uuid is not None:
            kept = None if row.committed is None else kept_from_json(row.committed)
            return self._render_relation(row.relation_uuid, kept)
        if row.committed is None:
            return NoContent()
        if row.status == 200:
            return self._render_unregistered(msgspec.json.decode(row.committed))
        tables = msgspec.json.decode(row.committed, type=list[KeptCommit])
        answers = [self._render_relation(kept.uuid or "", kept) for kept in tables]
        return TransactionAnswer(tuple(a for a in answers if isinstance(a, TableAnswer)))

    def _render_unregistered(self, kept: dict[str, Any]) -> Answer:
        identifier = Identifier(tuple(kept["identifier"][:-1]), kept["identifier"][-1])
        return TableAnswer(LoadedTable(identifier, self._cache.table(kept["at"]), kept["at"]))

    def _render_relation(self, uuid: str, kept: KeptCommit | None) -> Answer:
        relation = self._database.relation_by_uuid(uuid)
        if relation is None:
            raise missing(Kind.TABLE, Identifier((), uuid))
        location = relation.metadata_location
        if relation.kind is Kind.VIEW:
            view = LoadedView(relation.identifier, self._cache.view(location), location)
            return ViewAnswer(view)
        table = LoadedTable(relation.identifier, self._cache.table(location), location)
        if kept is None:
            return TableAnswer(table)
        return TableAnswer(table, bytes(kept.committed), kept.already_committed)

    # --- life --------------------------------------------------------------------------------

    def ready(self) -> None:
        """Raises when the database cannot be reached."""
        self._database.ping()

    def close(self) -> None:
        """Finishes what is in flight, takes nothing new, and ends the worker threads. The
        database and the store belong to whoever opened them."""
        self._stop.set()
        if not self._queues.close(_DRAIN_TIMEOUT_S):
            logger.warning("closed with commits still in flight")
        self._workers.shutdown(wait=True)
        self._file_workers.shutdown(wait=True)
        self._manifests.close()
        self._keeper.join(timeout=5)

    def _forget(self) -> None:
        """Keeps key rows for twice the advertised time, by the database's clock. A commit id is
        needed only while its outcome is in doubt."""
        while not self._stop.wait(_FORGET_EVERY_S):
            try:
                self._database.forget_keys(2 * self._lifetime_s)
                self._database.forget_commits(_KEEP_COMMIT_IDS_S)
            except DatabaseUnavailable as error:
                logger.warning("could not forget old keys and commit ids: %s", error)


def _pendings(group: Sequence[Job]) -> list[Pending[Any]]:
    return [job for job in group if isinstance(job, Pending)]
