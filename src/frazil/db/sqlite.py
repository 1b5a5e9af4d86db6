"""Stores the rows of the catalog in one SQLite file, owned by one process.

One thread writes (`SqliteWriter`), and readers have their own connections: in WAL mode neither
waits for the other. `synchronous=FULL` makes every COMMIT durable before it is answered.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Condition, Lock, Thread
from typing import Any, Final, Generic, TypeVar

from frazil.db import changes, database_failures
from frazil.db.base import (
    Committed,
    DatabaseRefused,
    DatabaseUnavailable,
    OutcomeUnknown,
    Transaction,
    TransactionOutcome,
)
from frazil.db.rows import Database, Session
from frazil.db.sql import Parameters, QueryName, Row, Statements, migrate, migrations, queries

T = TypeVar("T")

_MAX_BATCH: Final = 128


class FileLock:
    """Locks `<database>.lock` for the life of the process, with the process id inside.

    SQLite itself allows several processes, but then each would have its own writer and its own row
    locks. The operating system releases the lock when the process ends, however it ends.
    """

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise DatabaseRefused(_in_use(database, holder)) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Unlock the file. It is not deleted, because then two processes could lock two files of
        one name."""
        os.ftruncate(self._file, 0)
        os.close(self._file)


def _in_use(database: Path, holder: str) -> str:
    who = "this process" if holder == str(os.getpid()) else f"process {holder or 'unknown'}"
    return (
        f"the SQLite file {database} is already in use by {who}: stop it, give this server "
        "another file, or use PostgreSQL to run several servers on one catalog"
    )


class RowLocks:
    """Locks sets of uuids. A set is locked at once or not at all, so that no two can deadlock."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._released = Condition()

    @contextmanager
    def hold(self, uuids: Set[str], timeout_s: float) -> Iterator[None]:
        """Lock the uuids until the block ends. Raises DatabaseUnavailable if it cannot in time."""
        self._take(uuids, timeout_s)
        try:
            yield
        finally:
            with self._released:
                self._held -= uuids
                self._released.notify_all()

    def _take(self, uuids: Set[str], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._released:
            while not self._held.isdisjoint(uuids):
                if not self._released.wait(max(0.0, deadline - time.monotonic())):
                    raise DatabaseUnavailable(
                        f"the rows of {', '.join(sorted(self._held & uuids))} were held by others "
                        f"for {timeout_s:g} s; nothing was changed"
                    )
            self._held |= uuids


MEMORY: Final = ":memory:"
"""A database that ends with the process. It is a file in a temporary folder, because a database in
memory cannot be read beside its writer.
"""

_OLDEST_SQLITE: Final = (3, 35, 0)
_ROW_WAIT_S: Final = 30.0
_MAX_IDLE_READERS: Final = 32
_FILE_WAIT_S: Final = 5.0


# --- the writer ------------------------------------------------------------------------------


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
    """Owns the write connection, on one thread. `run` submits a job and waits for the answer.

    All waiting jobs are written in one SQLite transaction, each in its own SAVEPOINT, so that
    transactions of unrelated tables share one fsync and still fail alone.
    """

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


# --- the database ----------------------------------------------------------------------------


class SqliteDatabase(Database):
    """Implements `Database` with sqlite3."""

    def __init__(self, path: Path | str, file_wait_s: float = _FILE_WAIT_S) -> None:
        """Open the file. Raises DatabaseRefused if another process has it open.

        `file_wait_s` limits the wait for another program (a backup, the sqlite3 shell) that
        locks it.
        """
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise DatabaseRefused(
                f"Python's SQLite is {sqlite3.sqlite_version}: 3.35 or newer is needed"
            )
        self._queries = queries("sqlite")
        self._folder = tempfile.TemporaryDirectory("-frazil-db") if str(path) == MEMORY else None
        wanted = Path(self._folder.name) / "catalog.db" if self._folder else Path(path)
        self.path = wanted.resolve()
        self._file_wait_s = file_wait_s
        self._lock = _prepare(self.path, file_wait_s)
        self._idle: deque[SqliteStatements] = deque()
        self._row_locks = RowLocks()
        self._writer = SqliteWriter(self._open_writer)
        self._closed = False

    def migrate(self) -> int:
        def work(sql: SqliteStatements) -> Written[int]:
            before = migrate(sql, migrations("sqlite"), sql.connection.execute)
            return Written(before, keep=True)

        return self.run(work)

    # --- reads ---------------------------------------------------------------------------------

    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]:
        """Fetch the rows of a statement on an idle connection.

        A connection serves one thread at a time; the pop and append of a deque are atomic.
        """
        if self._closed:
            raise DatabaseUnavailable("the database is closed")
        try:
            statements = self._idle.pop()
        except IndexError:
            statements = self._open_reader()
        try:
            fetched = statements.fetch(name, parameters)
        except sqlite3.Error as error:
            statements.connection.close()
            if is_outage(error):
                trouble = database_failures.of_sqlite(error)
                raise DatabaseUnavailable(f"SQLite could not read: {error}", trouble) from error
            raise
        if self._closed or len(self._idle) >= _MAX_IDLE_READERS:
            statements.connection.close()
        else:
            self._idle.append(statements)
        return fetched

    def clock_skew_ms(self, now_ms: int) -> int:
        newest_ms = self.fetch("database_clock", {})[0][0]
        return max(0, (newest_ms or 0) - now_ms)

    def execute(self, name: QueryName, parameters: Parameters) -> int:
        def work(sql: SqliteStatements) -> Written[int]:
            changed = sql.execute(name, parameters)
            return Written(changed, keep=changed > 0)

        return self.run(work)

    def run_rows(self, work: Callable[[Statements], T]) -> T:
        return self.run(lambda sql: Written(work(sql), keep=True))

    # --- writes --------------------------------------------------------------------------------

    def commit(self, transaction: Transaction) -> TransactionOutcome:
        with self._row_locks.hold(changes.touched(transaction.changes), _ROW_WAIT_S):
            return self.write(transaction)

    def write(self, transaction: Transaction) -> TransactionOutcome:
        """Write the transaction. The caller holds the row locks."""

        def work(sql: SqliteStatements) -> Written[TransactionOutcome]:
            outcome = changes.Attempt(transaction).apply(sql)
            return Written(outcome, keep=isinstance(outcome, Committed))

        return self._writer.run(work)

    def resolve(self, commit_id: str, uuids: Sequence[str], timeout_s: float) -> bool:
        """Find out whether the commit happened.

        After a failed COMMIT the writer has opened a new connection. The frames of the failed
        transaction in the WAL are either part of the database, or overwritten by claiming the
        commit id.
        """

        def work(sql: SqliteStatements) -> Written[bool]:
            return Written(changes.resolve(sql, commit_id), keep=True)

        deadline = time.monotonic() + timeout_s
        with self._row_locks.hold(frozenset(uuids), timeout_s):
            try:
                return self._writer.run(work, max(0.0, deadline - time.monotonic()))
            except OutcomeUnknown as error:
                raise DatabaseUnavailable(str(error), error.trouble) from error

    @contextmanager
    def locked(self, uuids: Sequence[str], timeout_s: float) -> Iterator[Session]:
        held = frozenset(uuids)
        with self._row_locks.hold(held, timeout_s):
            yield _SqliteSession(self, self._row_locks, held)

    def assign_positions(self, limit: int) -> int:
        if not self.fetch("unplaced_event", {}):
            return 0
        return self.run(lambda sql: Written(changes.place_events(sql, limit), keep=True))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        while self._idle:
            self._idle.pop().connection.close()
        self._lock.release()
        if self._folder is not None:
            self._folder.cleanup()

    def run(self, work: Callable[[SqliteStatements], Written[T]]) -> T:
        """Run a write that may safely run twice, so that it can be tried again after a lost
        answer."""
        try:
            return self._writer.run(work)
        except OutcomeUnknown:
            try:
                return self._writer.run(work)
            except OutcomeUnknown as error:
                raise DatabaseUnavailable(str(error), error.trouble) from error

    def _open_writer(self) -> SqliteStatements:
        connection = _connect(self.path, self._file_wait_s)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
        return SqliteStatements(connection, self._queries)

    def _open_reader(self) -> SqliteStatements:
        try:
            connection = _connect(self.path, self._file_wait_s)
            connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            message = f"SQLite could not open {self.path}: {error}"
            raise DatabaseUnavailable(message, database_failures.of_sqlite(error)) from error
        return SqliteStatements(connection, self._queries)


class _SqliteSession(Session):
    """Holds the locks of some rows; others wait for them in `SqliteDatabase.commit`."""

    def __init__(self, database: SqliteDatabase, locks: RowLocks, held: frozenset[str]) -> None:
        self._database = database
        self._locks = locks
        self._held = held
        self._committed = False

    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]:
        return self._database.fetch(name, parameters)

    def commit(self, transaction: Transaction) -> TransactionOutcome:
        if self._committed:
            raise RuntimeError("a session commits once: take the rows again")
        others = changes.touched(transaction.changes) - self._held
        with self._locks.hold(others, _ROW_WAIT_S):
            outcome = self._database.write(transaction)
        self._committed = isinstance(outcome, Committed)
        return outcome


def _prepare(path: Path, file_wait_s: float) -> FileLock:
    """Lock the database file, create it and turn on WAL, which is a persistent setting of the
    file."""
    if not path.parent.is_dir():
        # Create no folder: if a disk is not mounted, an empty catalog would look like lost data.
        raise DatabaseRefused(
            f"the SQLite file {path} cannot be opened: the folder {path.parent} does not exist; "
            "create it, mount its disk, or correct --database"
        )
    try:
        lock = FileLock(path)
    except OSError as error:
        raise DatabaseRefused(f"the SQLite file {path} cannot be opened: {error}") from error
    try:
        connection = _connect(path, file_wait_s)
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        lock.release()
        problem = database_failures.sqlite_text(error)
        raise DatabaseRefused(f"the SQLite file {path} cannot be opened: {problem}") from error
    if mode != "wal":
        lock.release()
        raise DatabaseRefused(
            f"the file system of {path} does not support SQLite's WAL: use a local disk"
        )
    return lock


def _connect(path: Path, file_wait_s: float) -> sqlite3.Connection:
    """Connect without automatic transactions (isolation_level=None); the code begins and ends
    them."""
    return sqlite3.connect(
        path,
        timeout=file_wait_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
