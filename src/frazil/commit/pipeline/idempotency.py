"""The same Idempotency-Key gives the same outcome.

Inside this process a duplicate joins the request that is already running. Between replicas the
unique index of the key's row decides: it is written in the very transaction that changes the
catalog, so there is no reservation to expire and nothing to clean up after a crash.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from frazil.commit.pipeline.catalog_answers import Answer, ReplayedError
from frazil.commit.pipeline.pending_requests import Context, error_row
from frazil.db.base import Database, DatabaseUnavailable, KeyRow
from frazil.wire.errors import FrazilError, TooManyRequests, UnprocessableEntity

logger = logging.getLogger("frazil.commit")


@dataclass(frozen=True, slots=True)
class _Running:
    fingerprint: str
    future: Future[Answer]


class Idempotency:
    def __init__(self, database: Database, render: Callable[[KeyRow], Answer]) -> None:
        self._database = database
        self._render = render
        self._running: dict[tuple[str, str], _Running] = {}
        self._lock = threading.Lock()

    def run(
        self, context: Context, start: Callable[[], Future[Answer]], executor: Executor | None
    ) -> Future[Answer]:
        """Starts the request once; a duplicate gets the first one's outcome. With an executor
        the key is looked up there, so that the caller never waits for the database."""
        if context.key is None:
            return start()
        name = (context.principal, context.key.key)
        with self._lock:
            running = self._running.get(name)
            if running is not None:
                _check_fingerprint(context, running.fingerprint)
                return running.future
            promise: Future[Answer] = Future()
            self._running[name] = _Running(context.key.fingerprint, promise)
        promise.add_done_callback(lambda _: self._finish(name))
        if executor is None:
            self._start_or_replay(context, start, promise)
        else:
            executor.submit(self._start_or_replay, context, start, promise)
        return promise

    def run_here(self, context: Context, operation: Callable[[], Answer]) -> Answer:
        """The same for an operation that this thread carries out itself."""

        def start() -> Future[Answer]:
            future: Future[Answer] = Future()
            self.settle(future, context, operation)
            return future

        return self.run(context, start, None).result()

    def settle(
        self, future: Future[Answer], context: Context, operation: Callable[[], Answer]
    ) -> None:
        """Carries out an operation and ends the future with its outcome, whatever it is."""
        try:
            future.set_result(operation())
        except FrazilError as error:
            self.refuse(future, context, error)
        except DatabaseUnavailable as error:
            future.set_exception(TooManyRequests(f"the database is not available: {error}"))
        except ReplayedError as error:
            future.set_exception(error)
        except Exception as error:
            logger.exception("request %s failed", context.request_id)
            future.set_exception(error)

    def find(self, context: Context) -> KeyRow | None:
        if context.key is None:
            return None
        return self._database.key(context.principal, context.key.key)

    def finalise(self, rows: tuple[KeyRow, ...]) -> None:
        """Keeps the answer of a request that changed nothing."""
        for row in rows:
            self._database.finalise(row)

    def refuse(self, future: Future[Answer], context: Context, error: FrazilError) -> None:
        """Ends a request with an error, kept under its key if it is terminal. Where another
        replica already finished the same request, its outcome is the answer."""
        standing: KeyRow | None = None
        try:
            for row in error_row(context, error):
                standing = self._database.finalise(row)
                if standing == row:
                    standing = None
        except DatabaseUnavailable:
            # The refusal stands without its row: a retry is judged again.
            logger.warning("could not keep a refusal under its key")
        if standing is None:
            future.set_exception(error)
        else:
            self.replay_into(future, context, standing)

    def replay_into(self, future: Future[Answer], context: Context, row: KeyRow) -> None:
        try:
            future.set_result(self.replay(context, row))
        except (FrazilError, ReplayedError) as error:
            future.set_exception(error)

    def replay(self, context: Context, row: KeyRow) -> Answer:
        """The finished request's answer, rendered from current metadata."""
        _check_fingerprint(context, row.fingerprint)
        if row.status >= 400:
            raise ReplayedError(row.status, row.body or b"{}")
        return self._render(row)

    def _start_or_replay(
        self, context: Context, start: Callable[[], Future[Answer]], promise: Future[Answer]
    ) -> None:
        try:
            row = self.find(context)
            if row is not None:
                promise.set_result(self.replay(context, row))
                return
            start().add_done_callback(lambda done: _copy(done, promise))
        except DatabaseUnavailable as error:
            promise.set_exception(TooManyRequests(f"the database is not available: {error}"))
        except Exception as error:
            promise.set_exception(error)

    def _finish(self, name: tuple[str, str]) -> None:
        with self._lock:
            del self._running[name]


def _check_fingerprint(context: Context, fingerprint: str) -> None:
    if context.key is not None and context.key.fingerprint != fingerprint:
        raise UnprocessableEntity(
            f"Idempotency-Key {context.key.key} was used with another method, path or body: "
            "draw a new key for a new request"
        )


def _copy(done: Future[Answer], promise: Future[Answer]) -> None:
    error = done.exception()
    if error is None:
        promise.set_result(done.result())
    else:
        promise.set_exception(error)
