"""Runs the one thread that writes a SQLite file.

It writes all waiting jobs in one SQLite transaction, each in its own SAVEPOINT, so that
transactions of unrelated tables share one fsync and still fail alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar

from frazil.db import database_failures
from frazil.db.base import DatabaseUnavailable, OutcomeUnknown
from frazil.db.sql import Parameters, QueryName, Row

T = TypeVar("T")

_MAX_BATCH: Final = 128


class SqliteStatements:
    """Runs named statements on one connection."""

    def __init__(self, connection: sqlite3.Connection, queries: dict[QueryName, str]) -> None:
        self.connection = connection
        self._queries = queries

    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]:
        return self.connection.execute(self._queries[name], parameters).fetchall()

    def execute(self, name: QueryName, parameters: Parameters) -> int:
        return self.connection.execute(self._queries[name], parameters).rowcount

    def execute_many(self, name: QueryName, parameters: Sequence[Parameters]) -> int:
        return self.connection.executemany(self._queries[name], parameters).rowcount


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """The answer of a job, and whether to keep its changes."""

    answer: T
    keep: bool


@dataclass(slots=True)
class _Job:
    work: Callable[[SqliteStatements], Written[Any]]
    future: Future[Any] = field(default_factory=Future)


class SqliteWriter:
    """Owns the write connection. `run` submits a job and waits for the answer."""

    def __init__(self, open_statements: Callable[[], SqliteStatements]) -> None:
        self._open = open_statements
        self._statements: SqliteStatements | None = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = Lock()
        self._closed = False
        self._thread = Thread(target=self._loop, name="frazil-sqlite-writer", daemon=True)
        self._thread.start()

    def run(
        self, work: Callable[[SqliteStatements], Written[T]], timeout_s: float | None = None
    ) -> T:
        """Run a job. Raises DatabaseUnavailable if nothing happened, OutcomeUnknown if it may
        have."""
        job = _Job(work)
        with self._closing:
            if self._closed:
                raise DatabaseUnavailable("the database is closed; nothing was changed")
            self._jobs.put(job)
        try:
            answer: T = job.future.result(timeout_s)
        except TimeoutError:
            if job.future.cancel():
                raise DatabaseUnavailable("the writer was busy; nothing was changed") from None
            answer = job.future.result()
        return answer

    def close(self) -> None:
        """Finish the queued jobs, then close the connection."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        self._thread.join()

    def _loop(self) -> None:
        going = True
        while going:
            batch = [self._jobs.get()]
            while len(batch) < _MAX_BATCH:
                try:
                    batch.append(self._jobs.get_nowait())
                except Empty:
                    break
            going = None not in batch
            wanted = [job for job in batch if job is not None]
            jobs = [job for job in wanted if job.future.set_running_or_notify_cancel()]
            try:
                self._write(jobs)
            except BaseException as error:
                # The thread must survive every failure, and no caller may wait forever. Nothing was
                # committed: COMMIT has its own handler.
                if not self._is_rolled_back_after(error):
                    self._disconnect()
                _fail([job for job in jobs if not job.future.done()], _unavailable(error))
        self._disconnect()

    def _write(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        statements = self._begin()
        answered = []
        for job in jobs:
            written = _run_one(statements, job)
            if written is not None:
                answered.append((job, written))
        if any(written.keep for _, written in answered):
            self._commit(statements.connection, answered)
        else:
            statements.connection.execute("ROLLBACK")
            _answer(answered)

    def _begin(self) -> SqliteStatements:
        if self._statements is None:
            self._statements = self._open()
        self._statements.connection.execute("BEGIN IMMEDIATE")
        return self._statements

    def _commit(
        self, connection: sqlite3.Connection, answered: list[tuple[_Job, Written[Any]]]
    ) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._is_rolled_back_after(error):
                _fail([job for job, _ in answered], _unavailable(error))
                return
            # The frames of this transaction may or may not be in the WAL. A new connection and the
            # commit id determine the outcome. A job whose changes were discarded has changed
            # nothing, but it may have read rows that are now undone, so its answer is not valid
            # either.
            self._disconnect()
            trouble = database_failures.of_sqlite(error)
            unknown = OutcomeUnknown(f"COMMIT failed in SQLite: {error}", trouble)
            for job, written in answered:
                job.future.set_exception(unknown if written.keep else _unavailable(error))
        else:
            _answer(answered)

    def _is_rolled_back_after(self, error: BaseException) -> bool:
        """Return whether the error proves that the transaction did not happen, and the connection
        is still sound: its transaction is rolled back, and it can begin another one."""
        if self._statements is None or not database_failures.of_sqlite(error).proven_at_commit:
            return False
        connection = self._statements.connection
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return not connection.in_transaction

    def _disconnect(self) -> None:
        statements, self._statements = self._statements, None
        if statements is not None:
            statements.connection.close()


def _run_one(statements: SqliteStatements, job: _Job) -> Written[Any] | None:
    """Run one job; None if it failed and its caller was notified. A failed ROLLBACK TO ends the
    batch.
    """
    connection = statements.connection
    connection.execute("SAVEPOINT job")
    try:
        written = job.work(statements)
    except BaseException as error:
        job.future.set_exception(_unavailable(error) if is_outage(error) else error)
        if not connection.in_transaction:
            # After some errors (disk full, I/O) SQLite rolls back the whole batch by itself.
            raise
        written = None
    if written is None or not written.keep:
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")
    return written


def is_outage(error: BaseException) -> bool:
    """Return whether the error is about disk, locks or corruption, not about a statement or its
    values.
    """
    mistakes = (
        sqlite3.DataError,
        sqlite3.IntegrityError,
        sqlite3.NotSupportedError,
        sqlite3.ProgrammingError,
    )
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(error, mistakes)


def _answer(answered: list[tuple[_Job, Written[Any]]]) -> None:
    for job, written in answered:
        job.future.set_result(written.answer)


def _fail(jobs: list[_Job], error: Exception) -> None:
    for job in jobs:
        job.future.set_exception(error)


def _unavailable(error: BaseException) -> DatabaseUnavailable:
    message = f"SQLite could not write: {error}; nothing was changed"
    return DatabaseUnavailable(message, database_failures.of_sqlite(error))
