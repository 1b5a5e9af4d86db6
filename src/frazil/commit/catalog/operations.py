"""The catalog: every operation of the REST specification, without HTTP.

Methods that may wait in a table's queue return a future. All others block the calling thread for
one database transaction. The server's event loop calls only the methods that return a future,
because they only put a request in a queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from frazil.commit.catalog.manifest_maintenance import (
    BranchHead,
    ManifestRewrite,
    Progress,
    RemovedDanglingDeletes,
    RewrittenManifests,
    Submit,
    never,
    no_progress,
    remove_dangling,
)
from frazil.commit.catalog.namespace_changes import Namespaces
from frazil.commit.catalog.relation_lifecycle import Tables, Views
from frazil.commit.catalog.table_activity import TableActivity
from frazil.commit.pipeline.catalog_answers import Answer, LoadedTable, LoadedView
from frazil.commit.pipeline.clock_watch import ClockWatch
from frazil.commit.pipeline.commit_batch import BatchTools
from frazil.commit.pipeline.commit_loop import CommitLoop, database_unavailable
from frazil.commit.pipeline.commit_metrics import CommitCounts, CommitMetrics
from frazil.commit.pipeline.computed_changes import (
    ComputedRequest,
    ComputedTableKind,
    ComputeUpdates,
)
from frazil.commit.pipeline.created_tables import TableCreation
from frazil.commit.pipeline.health import Health
from frazil.commit.pipeline.idempotency import Idempotency
from frazil.commit.pipeline.pending_requests import (
    Attempt,
    Context,
    Operation,
    Pending,
    PendingCommit,
)
from frazil.commit.pipeline.relation_kinds import RelationChange, TableKind, ViewKind
from frazil.commit.pipeline.table_queues import Pauses, QueueLimits, Queues
from frazil.commit.snapshot.apply_request import can_wait, is_create
from frazil.commit.snapshot.commit_environment import Environments
from frazil.commit.snapshot.file_writer import FileWriter
from frazil.commit.snapshot.table_locations import TableLocations
from frazil.db.base import DatabaseUnavailable, Kind, Relation
from frazil.db.housekeeping_changes import RecordPurge
from frazil.db.housekeeping_rows import database_now_ms
from frazil.db.rows import Database
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.counters import CacheCounts
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.read.metadata_cache import MetadataCache
from frazil.store.locations import AllowedLocations
from frazil.store.object_store import Store
from frazil.wire.errors import BadRequest, FrazilError, ServiceUnavailable
from frazil.wire.file_actions import MAIN, Replace
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
_TAKE_CARE_EVERY_S = 30.0
_KEEP_COMMIT_IDS_S = 7 * 24 * 3600
READY_RETRY_AFTER_S = 2


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
        self.database = db
        self.store = store
        self._workers = ThreadPoolExecutor(_COMMIT_THREADS, "frazil-commit")
        self._file_workers = ThreadPoolExecutor(_FILE_THREADS, "frazil-files")
        self._cache = MetadataCache(store, metadata_cache_bytes)
        self._manifests = ManifestCache(manifest_cache_bytes, manifest_cache_folder)
        self.manifest_cache_folder = manifest_cache_folder
        locations = TableLocations(allowed_locations)
        self.check_write_folder = locations.check_write_folder
        self.sweep: Callable[[str], object] = lambda uuid: None
        """Deletes what is due of a table. The server sets it."""
        self.locations = locations
        """Which locations tables own, and what may be read."""
        creation = TableCreation(db, store, locations)
        self._namespaces = Namespaces(db, locations, warehouse)
        self._tables = Tables(db, store, self._cache, locations, self._namespaces, creation)
        self._views = Views(db, self._cache, locations, self._namespaces)
        self._table_kind = TableKind(self._cache, locations, creation)
        self._computed_kind = ComputedTableKind(self._cache, locations, creation)
        self._view_kind = ViewKind(self._cache, locations)
        writer = FileWriter(store, self._file_workers)
        environments = Environments(db, store, locations, self._manifests, self._file_workers)
        pauses = Pauses()
        self.activity = TableActivity(db)
        self._idempotency = Idempotency(db, self._cache)
        self._clock = ClockWatch(db)
        self._metrics = CommitMetrics()
        tools = BatchTools(db, writer, environments, pauses, self._clock)
        self._health = Health(db, store, allowed_locations)
        self._loop = CommitLoop(db, writer, self._idempotency, tools, self._metrics, self._health)
        self._queues = Queues(self._workers, self._loop.run_group, limits or QueueLimits(), pauses)
        self._lifetime_s = idempotency_lifetime_s
        self._stop = threading.Event()
        self._caretaker = threading.Thread(
            target=self._take_care, name="frazil-caretaker", daemon=True
        )
        self._caretaker.start()

    # --- namespaces --------------------------------------------------------------------------

    def list_namespaces(
        self, parent: Namespace, page_token: str | None, page_size: int | None
    ) -> tuple[list[Namespace], str | None]:
        if parent:
            self._namespaces.must_exist(parent)
        names, after = self.database.list_namespaces(parent, page_token, page_size)
        return [(*parent, name) for name in names], after

    def load_namespace(self, namespace: Namespace) -> dict[str, str]:
        return self._namespaces.described(namespace, self._namespaces.properties(namespace))

    def namespace_exists(self, namespace: Namespace) -> None:
        self._namespaces.must_exist(namespace)

    def create_namespace(
        self, context: Context, namespace: Namespace, properties: dict[str, str]
    ) -> Answer:
        return self._run_here(
            context, lambda own: self._namespaces.create(own, namespace, properties)
        )

    def update_namespace_properties(
        self,
        context: Context,
        namespace: Namespace,
        removals: Sequence[str],
        updates: dict[str, str],
    ) -> Answer:
        return self._run_here(
            context, lambda own: self._namespaces.update(own, namespace, removals, updates)
        )

    def drop_namespace(self, context: Context, namespace: Namespace) -> Answer:
        return self._run_here(context, lambda own: self._namespaces.drop(own, namespace))

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

    def metadata_at(self, location: str) -> TableMetadata:
        """Return the metadata of a table from its file."""
        return self._cache.table(location).metadata

    def table_exists(self, identifier: Identifier) -> None:
        self._tables.row(identifier)

    def table_row(self, identifier: Identifier) -> Relation:
        return self._tables.row(identifier)

    def count_scan(self, identifier: Identifier) -> None:
        """Count a scan that a client has planned by itself."""
        self.activity.scanned(self._tables.row(identifier).uuid)

    def manifest_reader(self) -> ManifestReader:
        """Return a reader of manifests that uses the cache of commits."""
        return ManifestReader(self._manifests, self.store, self.locations.check_readable)

    def manifest_counts(self) -> CacheCounts:
        """Return the counts of the cache of commits."""
        return self._manifests.counts()

    def commit_counts(self) -> CommitCounts:
        """Return the counts of commits since the start."""
        return self._metrics.read(self._queues.waiting())

    def load_view(self, identifier: Identifier) -> LoadedView:
        return self._views.load(identifier)

    def view_exists(self, identifier: Identifier) -> None:
        self._views.row(identifier)

    def _list(
        self, kind: Kind, namespace: Namespace, page_token: str | None, page_size: int | None
    ) -> tuple[list[Identifier], str | None]:
        self._namespaces.must_exist(namespace)
        names, after = self.database.list_relations(kind, namespace, page_token, page_size)
        return [Identifier(namespace, name) for name in names], after

    # --- creating and registering ------------------------------------------------------------

    def create_table(
        self, context: Context, identifier: Identifier, request: CreateTableRequest
    ) -> Answer:
        return self._run_here(context, lambda own: self._tables.create(own, identifier, request))

    def register_table(
        self, context: Context, identifier: Identifier, request: RegisterTableRequest
    ) -> Answer:
        return self._run_here(context, lambda own: self._tables.register(own, identifier, request))

    def create_view(
        self, context: Context, identifier: Identifier, request: CreateViewRequest
    ) -> Answer:
        return self._run_here(context, lambda own: self._views.create(own, identifier, request))

    def register_view(
        self, context: Context, identifier: Identifier, request: RegisterViewRequest
    ) -> Answer:
        return self._run_here(context, lambda own: self._views.register(own, identifier, request))

    def _run_here(self, context: Context, prepare: Callable[[Operation], Attempt]) -> Answer:
        """Run an operation on this thread, because it needs no table's queue."""
        operation = Operation(context=context, prepare=prepare)
        running = self._idempotency.join(context, operation.future)
        if running is not None:
            return running.result()
        self._loop.run_unless_finished(operation)
        return operation.future.result()

    # --- through the queue -------------------------------------------------------------------

    def commit_table(
        self, context: Context, identifier: Identifier, request: CommitTableRequest
    ) -> Future[Answer]:
        return self._submit_commit(context, identifier, request, in_transaction=False)

    def change_table(
        self, context: Context, identifier: Identifier, compute: ComputeUpdates
    ) -> Future[Answer]:
        """Commit updates that are computed from the head. `compute` is called again after a lost
        swap."""
        pending = PendingCommit(
            context=context,
            kind=self._computed_kind,
            changes=(RelationChange(identifier, ComputedRequest(compute)),),
        )
        return self._submit([identifier], pending)

    def commit_view(
        self, context: Context, identifier: Identifier, request: CommitViewRequest
    ) -> Future[Answer]:
        kind = self._view_kind
        changes = (RelationChange(identifier, request),)
        pending = PendingCommit(context=context, kind=kind, changes=changes, group_key=kind)
        return self._submit([identifier], pending)

    def commit_transaction(
        self, context: Context, request: CommitTransactionRequest
    ) -> Future[Answer]:
        identifiers = request.identifiers()
        if len(set(identifiers)) != len(identifiers):
            raise BadRequest("table-changes: a table is named twice; join its updates in one")
        requests = request.table_changes
        if len(identifiers) == 1:
            return self._submit_commit(context, identifiers[0], requests[0], in_transaction=True)
        changes = tuple(
            RelationChange(identifier, own, is_create(own))
            for identifier, own in zip(identifiers, requests, strict=True)
        )
        pending = PendingCommit(
            context=context, kind=self._table_kind, changes=changes, in_transaction=True
        )
        return self._submit(identifiers, pending)

    def drop_table(
        self, context: Context, identifier: Identifier, purge: bool, now: bool = False
    ) -> Future[Answer]:
        """Drop a table. With `purge` its files are deleted after the quarantine of the table, or
        `now`."""
        if not purge:
            return self._submit_operation(
                context, identifier, lambda own: self._tables.drop(own, identifier)
            )
        purged: list[RecordPurge] = []

        def record(row: Relation) -> tuple[RecordPurge, ...]:
            found = self._tables.purge_record(row, now=now)
            purged[:] = [] if found is None else [found]
            return tuple(purged)

        operation = Operation(
            context=context,
            prepare=lambda own: self._tables.drop(own, identifier, housekeeping=record),
        )
        answered: Future[Answer] = Future()
        operation.future.add_done_callback(lambda done: self._purge(done, purged, answered))
        return self._submit([identifier], operation, answered)

    def unregister_table(self, context: Context, identifier: Identifier) -> Future[Answer]:
        return self._submit_operation(
            context, identifier, lambda own: self._tables.unregister(own, identifier)
        )

    def rename_table(
        self, context: Context, source: Identifier, destination: Identifier
    ) -> Future[Answer]:
        return self._submit_operation(
            context, source, lambda own: self._tables.rename(own, source, destination)
        )

    def drop_view(self, context: Context, identifier: Identifier) -> Future[Answer]:
        return self._submit_operation(
            context, identifier, lambda own: self._views.drop(own, identifier)
        )

    def rename_view(
        self, context: Context, source: Identifier, destination: Identifier
    ) -> Future[Answer]:
        return self._submit_operation(
            context, source, lambda own: self._views.rename(own, source, destination)
        )

    # --- maintenance of manifests ------------------------------------------------------------

    def rewrite_manifests(
        self,
        context: Context,
        identifier: Identifier,
        *,
        branch: str = MAIN,
        spec_id: int | None = None,
        sort_by: Sequence[str] = (),
        dry_run: bool = False,
        progress: Progress = no_progress,
        cancelled: Callable[[], bool] = never,
    ) -> RewrittenManifests:
        """Rewrite the manifests of a spec so that each has the files of few partitions.

        `spec_id` is by default the table's current spec. `sort_by` names fields of the spec.
        This blocks the calling thread, but the table's queue only while the new manifests are
        listed.
        """
        rewrite = ManifestRewrite(self._branch_head(identifier, branch), sort_by, self.store)
        submit = self._submit_maintenance(context, identifier)
        return rewrite.run(submit, spec_id, dry_run, progress, cancelled)

    def remove_dangling_deletes(
        self,
        context: Context,
        identifier: Identifier,
        *,
        branch: str = MAIN,
        dry_run: bool = False,
    ) -> RemovedDanglingDeletes:
        """Remove delete files and vectors that apply to no live data file any more."""
        head = self._branch_head(identifier, branch)
        return remove_dangling(head, self._submit_maintenance(context, identifier), dry_run)

    def _branch_head(self, identifier: Identifier, branch: str) -> BranchHead:
        return BranchHead(
            lambda: self._tables.load(identifier).metadata, self.manifest_reader(), branch
        )

    def _submit_maintenance(self, context: Context, identifier: Identifier) -> Submit:
        def submit(update: Replace) -> Answer:
            request = CommitTableRequest(requirements=(), updates=(update,))
            return self._submit_commit(context, identifier, request, in_transaction=False).result()

        return submit

    def _submit_commit(
        self,
        context: Context,
        identifier: Identifier,
        request: CommitTableRequest,
        *,
        in_transaction: bool,
    ) -> Future[Answer]:
        creates = is_create(request)
        pending = PendingCommit(
            context=context,
            kind=self._table_kind,
            changes=(RelationChange(identifier, request, creates),),
            group_key=None if creates else self._table_kind,
            can_wait=can_wait(request),
            in_transaction=in_transaction,
        )
        return self._submit([identifier], pending)

    def _submit_operation(
        self, context: Context, identifier: Identifier, prepare: Callable[[Operation], Attempt]
    ) -> Future[Answer]:
        """Queue an operation on a table or view."""
        return self._submit([identifier], Operation(context=context, prepare=prepare))

    def _submit(
        self,
        identifiers: Sequence[Identifier],
        pending: Pending,
        answered: Future[Answer] | None = None,
    ) -> Future[Answer]:
        """Queue a request, or join a running request with the same key. `answered` is the future
        to return if it is not the request's own."""
        answered = answered or pending.future
        has_key = pending.context.key is not None
        running = self._idempotency.join(pending.context, answered) if has_key else None
        if running is not None:
            return running
        if isinstance(pending, PendingCommit):
            self._metrics.watch(pending)
            pending.future.add_done_callback(self.activity.answered)
        if not has_key:
            try:
                pending.context.check_may_change()
                self._enqueue(identifiers, pending)
            except FrazilError as error:
                pending.future.set_exception(error)
                raise
            return answered
        # Look the key up on another thread, because this one must not block.
        self._workers.submit(self._enqueue_unless_finished, identifiers, pending)
        return answered

    def _enqueue_unless_finished(self, identifiers: Sequence[Identifier], pending: Pending) -> None:
        try:
            self._idempotency.replay_finished([pending])
            if not pending.future.done():
                pending.context.check_may_change()
                self._enqueue(identifiers, pending)
        except DatabaseUnavailable as error:
            self._health.notice(error)
            pending.future.set_exception(database_unavailable(error))
        except Exception as error:
            pending.future.set_exception(error)

    def _enqueue(self, identifiers: Sequence[Identifier], pending: Pending) -> None:
        if len(identifiers) == 1:
            self._queues.submit(identifiers[0], pending)
        else:
            self._queues.submit_holding(identifiers, pending)

    def _purge(
        self, done: Future[Answer], purged: Sequence[RecordPurge], answered: Future[Answer]
    ) -> None:
        """Answer a purge. If there is no quarantine, delete the files before, without blocking the
        queue of the name."""
        error = done.exception()
        if error is not None:
            answered.set_exception(error)
            return
        due = [row.uuid for row in purged if not row.quarantine_ms]
        if not due:
            answered.set_result(done.result())
            return

        def work() -> None:
            try:
                for uuid in due:
                    self.sweep(uuid)
            except Exception:
                # The drop is committed. The next sweep deletes the files.
                logger.exception("a purge did not finish")
            answered.set_result(done.result())

        self._workers.submit(work)

    # --- life --------------------------------------------------------------------------------

    def ready(self) -> list[str]:
        """Check that the database answers and that no probe fails. Writes nothing.

        Return warnings that do not stop the server, such as a clock that jumped.

        Raises ServiceUnavailable with the reasons, or DatabaseUnavailable.
        """
        problems = self._health.problems()
        if problems:
            raise ServiceUnavailable("; ".join(problems), retry_after_s=READY_RETRY_AFTER_S)
        try:
            self.database.ping()
        except DatabaseUnavailable as error:
            self._health.notice(error)
            if error.trouble.reason is None:
                raise
            raise ServiceUnavailable(
                f"the database cannot be used: {error.trouble.reason}",
                retry_after_s=READY_RETRY_AFTER_S,
            ) from error
        return self._clock.warnings()

    def close(self) -> None:
        """Finish running requests, accept no new ones, and stop the worker threads. The caller
        that opened the database and the store closes them."""
        self._stop.set()
        self._health.close()
        if not self._queues.close(_DRAIN_TIMEOUT_S):
            logger.warning("closed with commits still in flight")
        self._workers.shutdown(wait=True)
        self._file_workers.shutdown(wait=True)
        self._manifests.close()
        self.activity.flush()
        self._caretaker.join(timeout=5)

    def _take_care(self) -> None:
        """Check the clock, store counts and delete old rows periodically, until the catalog is
        closed."""
        forget_at = time.monotonic() + _FORGET_EVERY_S
        while True:
            # A database that does not answer is reported by its own probe.
            with suppress(DatabaseUnavailable):
                self._clock.check()
            if self._stop.wait(_TAKE_CARE_EVERY_S):
                return
            self.activity.flush()
            if time.monotonic() >= forget_at:
                forget_at = time.monotonic() + _FORGET_EVERY_S
                self._forget()

    def _forget(self) -> None:
        """Delete old rows. Key rows are kept for twice the advertised time, by the database's
        clock. A commit id is needed only while its outcome is unknown."""
        try:
            self.database.forget_keys(2 * self._lifetime_s)
            self.database.forget_commits(_KEEP_COMMIT_IDS_S)
            self.database.execute("forget_leases", {"now_ms": database_now_ms(self.database)})
            self.activity.forget()
        except DatabaseUnavailable as error:
            logger.warning("could not forget old rows: %s", error)
