"""Answers requests for plans. Quick plans are answered at once, long ones are fetched later.

A plan needs no state: its id and its task tokens contain the scan, and the result never changes
because snapshots do not. A process remembers only the plans it is working on, so that polling does
not start the work again. A replica that gets the id of another replica's plan runs the plan itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from frazil.commit.catalog.table_activity import TableActivity
from frazil.commit.pipeline.pending_requests import Context
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.plan.plan_answers import TaskWriter
from frazil.plan.plan_leases import LIFETIME_MS, LeasedTables, OwnLease, PlanLeases
from frazil.plan.plan_metrics import PlanMetrics
from frazil.plan.plan_tokens import InvalidToken, Token, Tokens
from frazil.plan.scan_requests import Scan, resolve_scan
from frazil.plan.scan_walk import WHOLE, Cancelled, Piece, Span, Walk, split, within
from frazil.read.delete_index import TwoDeletionVectors
from frazil.read.manifest_cache import ManifestReader
from frazil.wire.errors import (
    BadRequest,
    FrazilError,
    NoSuchPlanId,
    NoSuchPlanTask,
    NotFound,
    ServiceUnavailable,
    UnsupportedOperation,
    ValidationError,
)
from frazil.wire.identifiers import Identifier
from frazil.wire.scan_planning import FetchScanTasksRequest, PlanTableScanRequest

MAX_PLAN_ID_LENGTH: Final = 4_000
"""A plan id is part of a URL path, and longer paths would be refused by proxies."""
_KEPT_S: Final = 300.0
_THREADS: Final = 4
_NONCE_BYTES: Final = 8


class NotYet(Exception):
    """The plan is not finished yet."""


@dataclass(frozen=True, slots=True)
class PlanLimits:
    quick_s: float = 20.0
    """How long a request waits for its plan before the client must fetch it later."""
    page_files: int = 5_000
    """The files in one answer; the others are fetched with task tokens."""
    lifetime_ms: int = LIFETIME_MS
    """How long plan ids and task tokens are valid."""


class PlannedTables(LeasedTables, Protocol):
    """The part of the catalog that planning uses."""

    @property
    def activity(self) -> TableActivity: ...

    def manifest_reader(self) -> ManifestReader: ...


@dataclass(slots=True, eq=False)
class _Work:
    """A plan that this process is working on or has finished recently."""

    started_s: float
    cancelled: threading.Event = field(default_factory=threading.Event)
    future: Future[bytes] = field(default_factory=Future)


class Planner:
    def __init__(
        self,
        tables: PlannedTables,
        secret: bytes,
        limits: PlanLimits | None = None,
    ) -> None:
        self._tables = tables
        self._tokens = Tokens(secret)
        self._limits = limits or PlanLimits()
        self._leases = PlanLeases(tables, self._limits.lifetime_ms)
        self.metrics = PlanMetrics()
        self._workers = ThreadPoolExecutor(_THREADS, "frazil-plan")
        self._working: dict[str, _Work] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    # --- the four operations -------------------------------------------------------------------

    def plan(
        self,
        context: Context,
        identifier: Identifier,
        request: PlanTableScanRequest,
        *,
        explain: bool = False,
        sequence_numbers: bool = False,
        all_deletes: bool = False,
        own_lease: OwnLease | None = None,
    ) -> bytes:
        """Return the JSON of a PlanTableScanResult.

        `explain` adds the counts of the walk. `sequence_numbers` adds the sequence number of each
        file, in this answer and in those for its task tokens. `all_deletes` adds equality deletes
        that apply by partition and number, but whose values cannot occur in the data file or do not
        match the filter. With `own_lease` the plan of a snapshot takes that lease, and its tokens
        end with it.
        """
        loaded = self._tables.load_table(identifier)
        metadata = loaded.metadata
        scan = resolve_scan(
            metadata, request, sequence_numbers=sequence_numbers, all_deletes=all_deletes
        )
        # Before anything is read, so that the files stay from now on.
        snapshot_ids = scan.read_snapshot_ids()
        if own_lease is not None and len(snapshot_ids) == 1:
            expires_ms = self._leases.take(identifier, loaded, snapshot_ids[0], own_lease)
        else:
            expires_ms = self._leases.hold(identifier, loaded, snapshot_ids)
        self._tables.activity.scanned(loaded.relation_uuid)
        token = self._token(context, metadata, request, scan, expires_ms)
        plan_id = self._tokens.sign(token)
        if plan_id is None or len(plan_id) > MAX_PLAN_ID_LENGTH:
            # The client cannot fetch this plan by an id, so answer it now, however long it takes.
            return self._completed(scan, token, None, explain, self._closed.is_set)
        work = self._start(plan_id, scan, token, explain)
        try:
            return self._result(work, self._limits.quick_s)
        except NotYet:
            self.metrics.submitted()
            return msgspec.json.encode({"status": "submitted", "plan-id": plan_id})
        except Cancelled:
            raise _closing() from None

    def fetch(
        self, context: Context, identifier: Identifier, plan_id: str, *, explain: bool = False
    ) -> bytes:
        """Return the JSON of a FetchPlanningResult. `explain` works if the plan runs again."""
        metadata = self._tables.load_table(identifier).metadata
        token = self._read(plan_id, "plan", metadata, context)
        with self._lock:
            work = self._working.get(plan_id)
        if work is None:
            work = self._start(plan_id, self._scan(metadata, token, NoSuchPlanId), token, explain)
        try:
            return self._result(work, self._limits.quick_s)
        except NotYet:
            return msgspec.json.encode({"status": "submitted"})
        except Cancelled:
            return msgspec.json.encode({"status": "cancelled"})

    def cancel(self, context: Context, identifier: Identifier, plan_id: str) -> None:
        """Cancel the plan if it is still running in this process."""
        metadata = self._tables.load_table(identifier).metadata
        self._read(plan_id, "plan", metadata, context)
        with self._lock:
            work = self._working.get(plan_id)
        if work is not None and not work.future.done():
            work.cancelled.set()

    def tasks(
        self, context: Context, identifier: Identifier, request: FetchScanTasksRequest
    ) -> bytes:
        """Return the JSON of a FetchScanTasksResult."""
        metadata = self._tables.load_table(identifier).metadata
        token = self._read(request.plan_task, "task", metadata, context)
        scan = self._scan(metadata, token, NoSuchPlanTask)
        reader = self._tables.manifest_reader()
        with readable():
            walk = Walk(scan, reader)
            tasks = TaskWriter(walk, reader).write(walk.data(token.span or WHOLE))
        self.metrics.tasks_fetched(len(tasks.tasks))
        return msgspec.json.encode(tasks.document())

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            working = list(self._working.values())
        for work in working:
            work.cancelled.set()
        self._workers.shutdown(wait=True, cancel_futures=True)
        for work in working:
            # These were cancelled before they started. Wake up the requests that wait for them.
            if not work.future.done():
                work.future.set_exception(Cancelled())

    # --- running plans ---------------------------------------------------------------------------

    def _start(self, plan_id: str, scan: Scan, token: Token, explain: bool) -> _Work:
        """Start a plan, or return the one that is already running."""
        now_s = time.monotonic()
        with self._lock:
            if self._closed.is_set():
                raise _closing()
            for known in [k for k, w in self._working.items() if _is_old(w, now_s)]:
                del self._working[known]
            work = self._working.get(plan_id)
            if work is not None:
                return work
            work = self._working[plan_id] = _Work(now_s)
            # Submit while holding the lock, so that nothing is submitted after the planner closes.
            self._workers.submit(self._run, work, scan, token, plan_id, explain)
        return work

    def _run(self, work: _Work, scan: Scan, token: Token, plan_id: str, explain: bool) -> None:
        try:
            answer = self._completed(scan, token, plan_id, explain, work.cancelled.is_set)
        except BaseException as error:
            work.future.set_exception(error)
        else:
            work.future.set_result(answer)

    def _result(self, work: _Work, timeout_s: float) -> bytes:
        """Return the result of a plan. Raise NotYet if it takes longer than the timeout."""
        wait([work.future], timeout_s)
        if not work.future.done():
            raise NotYet
        self._forget_if_quick(work)
        return work.future.result()

    def _forget_if_quick(self, work: _Work) -> None:
        """Drop a plan that was answered at once. The same request later plans again."""
        if time.monotonic() - work.started_s < self._limits.quick_s:
            with self._lock:
                for key in [key for key, kept in self._working.items() if kept is work]:
                    del self._working[key]

    def _completed(
        self,
        scan: Scan,
        token: Token,
        plan_id: str | None,
        explain: bool,
        cancelled: Callable[[], bool],
    ) -> bytes:
        with self.metrics.planning(), readable():
            reader = self._tables.manifest_reader()
            walk = Walk(scan, reader, cancelled)
            pieces = enough(list(walk.data()), walk)
            spans = split(pieces, self._limits.page_files)
            writer = TaskWriter(walk, reader)
            answer: dict[str, Any] = {"status": "completed"}
            if plan_id is not None:
                answer["plan-id"] = plan_id
            tokens = [self._task(token, span) for span in spans[1:]]
            known = [text for text in tokens if text is not None]
            if len(known) == len(tokens):
                first = within(pieces, spans[0]) if spans else ()
                answer.update(writer.write(first).document())
            else:
                answer.update(writer.write(pieces).document())
                known = []
            if known:
                answer["plan-tasks"] = known
            self.metrics.planned(walk.counts)
            if explain:
                answer["walk"] = walk.counts.document()
            return msgspec.json.encode(answer)

    def _task(self, token: Token, span: Span) -> str | None:
        return self._tokens.sign(msgspec.structs.replace(token, kind="task", span=span))

    def _token(
        self,
        context: Context,
        metadata: TableMetadata,
        request: PlanTableScanRequest,
        scan: Scan,
        expires_ms: int,
    ) -> Token:
        """Return the token of a scan. It names the snapshot, so its files never change."""
        pinned = request
        if not request.is_incremental and scan.snapshot is not None:
            pinned = msgspec.structs.replace(request, snapshot_id=scan.snapshot.snapshot_id)
        return Token(
            "plan",
            metadata.table_uuid or "",
            context.principal,
            msgspec.json.encode(pinned),
            os.urandom(_NONCE_BYTES),
            sequence_numbers=scan.sequence_numbers,
            all_deletes=scan.all_deletes,
            expires_ms=expires_ms,
        )

    def _scan(self, metadata: TableMetadata, token: Token, missing: type[FrazilError]) -> Scan:
        request = msgspec.json.decode(token.request, type=PlanTableScanRequest)
        try:
            return resolve_scan(
                metadata,
                request,
                sequence_numbers=token.sequence_numbers,
                all_deletes=token.all_deletes,
            )
        except BadRequest as error:
            # The request was valid when the token was made, so the table has changed.
            raise missing(f"the plan can no longer be carried out: {error.message}") from error

    def _read(self, text: str, kind: str, metadata: TableMetadata, context: Context) -> Token:
        missing = NoSuchPlanId if kind == "plan" else NoSuchPlanTask
        try:
            token = self._tokens.read(text, kind, metadata.table_uuid or "", context.principal)
        except InvalidToken:
            what = "Plan id" if kind == "plan" else "Plan task"
            raise missing(f"{what} does not exist for this table") from None
        if token.expires_ms <= self._leases.now_ms():
            raise missing("the plan has expired: plan the scan again")
        return token


@contextmanager
def readable() -> Iterator[None]:
    """Convert errors about the files of the table to errors for a client that only reads."""
    try:
        yield
    except ValidationError as error:
        raise NotFound(error.message) from error
    except TwoDeletionVectors as error:
        raise UnsupportedOperation(f"the table cannot be planned: {error}") from error


def enough(pieces: list[Piece], walk: Walk) -> list[Piece]:
    """Drop pieces that are not needed for the number of rows that the client asked for.

    This is possible only without a filter and without delete files, because otherwise the number of
    matching rows in a file is unknown.
    """
    scan = walk.scan
    if scan.min_rows is None or not scan.where.matches_everything or walk.has_deletes:
        return pieces
    count = rows = 0
    for piece in pieces:
        count += 1
        rows += int(piece.columns.record_count[piece.rows].sum())
        if rows >= scan.min_rows:
            break
    return pieces[:count]


def _closing() -> ServiceUnavailable:
    return ServiceUnavailable("the server is shutting down: plan the scan again")


def _is_old(work: _Work, now_s: float) -> bool:
    return work.future.done() and now_s - work.started_s > _KEPT_S
