"""Stores the rows of the catalog in PostgreSQL 15 or later, shared by any number of servers.

Transactions run READ COMMITTED: the one compare-and-swap statement and its row count decide. If
a connection is lost before COMMIT was sent, nothing has happened. If it is lost later, the
outcome is unknown until `resolve` has claimed the commit id on another connection.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from frazil.db import changes, database_failures, rows
from frazil.db.base import (
    Committed,
    DatabaseRefused,
    DatabaseUnavailable,
    OutcomeUnknown,
    SwapLost,
    Transaction,
    TransactionOutcome,
)
from frazil.db.rows import Database, Session
from frazil.db.sql import Parameters, QueryName, Row, Statements, migrate, migrations, queries

T = TypeVar("T")
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"

_OLDEST_VERSION: Final = 15
_POOL_SIZE: Final = 16
_SESSION_POOL_SIZE: Final = 8
_POOL_WAIT_S: Final = 10.0
_ATTEMPTS: Final = 4
_RESOLVE_PAUSE_S: Final = 0.05
_MIGRATION_WAIT_S: Final = 120.0
_LOCK_WAIT_S: Final = 10.0
_STATEMENT_MS: Final = 30_000
_MAX_IDLE_S: Final = 15.0
_MAX_SESSION_IDLE_S: Final = 120.0
"""A session waits for files to be written; a plain transaction is never idle for long."""

_CONNECTION_DEFAULTS: Final[dict[str, str]] = {
    "connect_timeout": "5",
    # A host that disappears is noticed in about 20 s, not after the two hours of TCP.
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "frazil",
}
"""Used unless the URL sets them."""

_SETTINGS: Final[dict[str, str]] = {
    "client_encoding": "UTF8",
    "default_transaction_isolation": "read committed",
    "statement_timeout": str(_STATEMENT_MS),
    "lock_timeout": str(int(_LOCK_WAIT_S * 1000)),
    # A server that died without closing its connection must not lock rows for long.
    "idle_in_transaction_session_timeout": str(int(_MAX_IDLE_S * 1000)),
}

_CLASHES: Final = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
)
"""Two transactions collided. The one that lost is rolled back and can run again."""

_OUTAGES: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.UndefinedTable,
    errors.InsufficientPrivilege,
    errors.InternalError_,
    errors.DataCorrupted,
    errors.IndexCorrupted,
)
"""The database is not reachable, too busy, a standby, not migrated yet, or damaged."""


class _Broken(Exception):
    """The connection is gone."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(_reason(error))
        self.trouble = _trouble(error)


class _Clash(Exception):
    """One of `_CLASHES` happened at this change."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Pool:
    """Keeps a few connections. If none is idle, the calling thread connects itself, so that a
    refused connection is reported at once and with its reason, not as a time-out of a background
    worker."""

    def __init__(self, connect: Callable[[], Connection], size: int, wait_s: float) -> None:
        self._connect = connect
        self._size = size
        self._wait_s = wait_s
        self._slots = BoundedSemaphore(size)
        self._idle: deque[Connection] = deque()
        self._closed = False

    @contextmanager
    def connection(
        self, *, begin: bool = False, wait_s: float | None = None
    ) -> Iterator[Connection]:
        """Yield an idle connection or a new one, and drop it if it is broken or unfinished.

        With `begin`, a transaction is open on it, which also proves that it is alive. Raises
        psycopg.OperationalError if the database cannot be reached, and DatabaseUnavailable if
        every connection is in use.
        """
        wait_s = self._wait_s if wait_s is None else wait_s
        if not self._slots.acquire(timeout=wait_s):
            raise DatabaseUnavailable(
                f"all {self._size} connections to PostgreSQL were in use for {wait_s:g} s"
            )
        try:
            connection = self._begun() if begin else self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._slots.release()

    def discard_idle(self) -> None:
        """Close the idle connections. After one connection broke, others of the same age are
        probably broken too."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def close(self) -> None:
        self._closed = True
        self.discard_idle()

    def _take(self) -> Connection:
        if self._closed:
            raise DatabaseUnavailable("the database is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _begun(self) -> Connection:
        connection = self._take()
        try:
            connection.execute(_BEGIN, prepare=False)
        except psycopg.OperationalError:
            # The connection broke while it was idle. Nothing was sent yet, so a new one may try.
            connection.close()
            self.discard_idle()
            connection = self._connect()
            connection.execute(_BEGIN, prepare=False)
        return connection

    def _give_back(self, connection: Connection) -> None:
        idle = connection.info.transaction_status == TransactionStatus.IDLE
        if idle and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()


class PostgresStatements:
    """Runs named statements on one connection."""

    def __init__(self, connection: Connection, texts: dict[QueryName, bytes]) -> None:
        self.connection = connection
        self._texts = texts

    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]:
        return self.connection.execute(self._texts[name], parameters).fetchall()

    def execute(self, name: QueryName, parameters: Parameters) -> int:
        return self.connection.execute(self._texts[name], parameters).rowcount

    def execute_many(self, name: QueryName, parameters: Sequence[Parameters]) -> int:
        """Run one statement for many parameters. psycopg sends them as one pipeline, in one round
        trip.
        """
        with self.connection.cursor() as cursor:
            cursor.executemany(self._texts[name], parameters)
            return cursor.rowcount

    def control(self, command: bytes) -> None:
        """Run BEGIN, ROLLBACK and similar commands without preparing them."""
        self.connection.execute(command, prepare=False)

    def limit_transaction(self, *, wait_s: float, idle_s: float = _MAX_IDLE_S) -> None:
        """Limit how long this transaction may wait for a lock and be idle.

        PostgreSQL reads 0 as "no limit", so the minimum is 1 ms.
        """
        wait_ms = max(1, int(wait_s * 1000))
        self.connection.execute(
            b"SELECT set_config('lock_timeout', %s, true),"
            b" set_config('statement_timeout', %s, true),"
            b" set_config('idle_in_transaction_session_timeout', %s, true)",
            (str(wait_ms), str(wait_ms + _STATEMENT_MS), str(int(idle_s * 1000))),
        )

    def alive(self) -> bool:
        return self.connection.info.transaction_status != TransactionStatus.UNKNOWN


class PostgresDatabase(Database):
    """Implements `Database` with psycopg 3."""

    def __init__(self, url: str, pool_size: int = _POOL_SIZE) -> None:
        try:
            self._parameters: dict[str, Any] = {**_CONNECTION_DEFAULTS, **conninfo_to_dict(url)}
        except psycopg.ProgrammingError as error:
            raise DatabaseRefused(f"the PostgreSQL URL is not understood: {error}") from error
        self._texts = {name: text.encode() for name, text in queries("postgres").items()}
        self._pool = Pool(self._connect, pool_size, _POOL_WAIT_S)
        # Sessions wait for files and for each other. A pool of their own keeps them from blocking
        # reads.
        self._sessions = Pool(self._connect, _SESSION_POOL_SIZE, _POOL_WAIT_S)

    def migrate(self) -> int:
        with self._transaction() as sql:
            sql.limit_transaction(wait_s=_MIGRATION_WAIT_S)
            steps = migrations("postgres")
            before = migrate(sql, steps, lambda text: sql.control(text.encode()))
            sql.control(b"COMMIT")
        return before

    def close(self) -> None:
        self._pool.close()
        self._sessions.close()

    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]:
        return self._run_twice(lambda sql: sql.fetch(name, parameters))

    def execute(self, name: QueryName, parameters: Parameters) -> int:
        return self._run_twice(lambda sql: sql.execute(name, parameters))

    def run_rows(self, work: Callable[[Statements], T]) -> T:
        for attempt in range(_ATTEMPTS):
            try:
                return self._run_twice(lambda sql: _committed(sql, work))
            except _Clash:
                time.sleep(random.uniform(0, 0.01 * 2**attempt))
        raise DatabaseUnavailable("others change the same rows; nothing was changed")

    # --- writes --------------------------------------------------------------------------------

    def commit(self, transaction: Transaction) -> TransactionOutcome:
        index = 0
        for attempt in range(_ATTEMPTS):
            try:
                with self._transaction() as sql:
                    return _commit(sql, transaction)
            except _Clash as clash:
                index = clash.index
                time.sleep(random.uniform(0, 0.01 * 2**attempt))
        return SwapLost(index)

    def resolve(self, commit_id: str, uuids: Sequence[str], timeout_s: float) -> bool:
        """Retry until the outcome is known or the time is over. Retrying is harmless."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._resolve(commit_id, uuids, deadline - time.monotonic())
            except _OUTAGES as error:
                if time.monotonic() + _RESOLVE_PAUSE_S >= deadline:
                    raise DatabaseUnavailable(
                        f"the outcome of commit {commit_id} could not be found out in "
                        f"{timeout_s:g} s: {_reason(error)}",
                        _trouble(error),
                    ) from error
            time.sleep(_RESOLVE_PAUSE_S)

    def _resolve(self, commit_id: str, uuids: Sequence[str], wait_s: float) -> bool:
        """Resolve the commit id on a new connection.

        Locking the rows waits for a transaction that is still running. Claiming the commit id
        then finds the commit, or prevents it permanently.
        """
        with self._connect() as connection:
            sql = PostgresStatements(connection, self._texts)
            sql.control(b"BEGIN")
            sql.limit_transaction(wait_s=wait_s)
            sql.fetch("hold_relations", {"uuids": rows.json_list(sorted(uuids))})
            committed = changes.resolve(sql, commit_id)
            sql.control(b"COMMIT")
            return committed

    @contextmanager
    def locked(self, uuids: Sequence[str], timeout_s: float) -> Iterator[Session]:
        with self._transaction(self._sessions, wait_s=timeout_s) as sql:
            sql.limit_transaction(wait_s=timeout_s)
            sql.fetch("hold_relations", {"uuids": rows.json_list(sorted(uuids))})
            sql.limit_transaction(wait_s=_LOCK_WAIT_S, idle_s=_MAX_SESSION_IDLE_S)
            yield _PostgresSession(sql)

    def assign_positions(self, limit: int) -> int:
        if not self.fetch("unplaced_event", {}):
            return 0
        with self._transaction() as sql:
            placed = changes.place_events(sql, limit)
            sql.control(b"COMMIT")
        return placed

    # --- connections ---------------------------------------------------------------------------

    def _run_twice(self, work: Callable[[PostgresStatements], T]) -> T:
        """Run work that may safely run twice, without a transaction around it.

        A connection that broke while it was idle, or breaks now, is replaced once.
        """
        with _outages_reported():
            try:
                return self._run(work)
            except _Broken:
                self._pool.discard_idle()
                return self._run(work)

    def _run(self, work: Callable[[PostgresStatements], T]) -> T:
        with self._pool.connection() as connection:
            sql = PostgresStatements(connection, self._texts)
            try:
                return work(sql)
            except _OUTAGES as error:
                if sql.alive():
                    raise
                raise _Broken(error) from error

    @contextmanager
    def _transaction(
        self, pool: Pool | None = None, wait_s: float | None = None
    ) -> Iterator[PostgresStatements]:
        """Open a transaction that is rolled back unless the block ends it."""
        with _outages_reported():
            chosen = pool or self._pool
            with chosen.connection(begin=True, wait_s=wait_s) as connection:
                sql = PostgresStatements(connection, self._texts)
                try:
                    yield sql
                finally:
                    if connection.info.transaction_status != TransactionStatus.IDLE:
                        _roll_back(sql)

    def _connect(self) -> Connection:
        connection = psycopg.connect(**self._parameters, autocommit=True)
        try:
            _check_server(connection)
            for name, value in _SETTINGS.items():
                connection.execute(b"SELECT set_config(%s, %s, false)", (name, value))
        except BaseException:
            connection.close()
            raise
        return connection


class _PostgresSession(Session):
    """Holds the locks of some rows. A SAVEPOINT keeps them if a transaction does not commit."""

    def __init__(self, sql: PostgresStatements) -> None:
        self._sql = sql
        self._ended = False

    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]:
        with _outages_reported():
            return self._sql.fetch(name, parameters)

    def commit(self, transaction: Transaction) -> TransactionOutcome:
        if self._ended:
            raise RuntimeError("a session commits once: take the rows again")
        with _outages_reported():
            try:
                return self._commit(transaction)
            except _Clash as clash:
                return SwapLost(clash.index)

    def _commit(self, transaction: Transaction) -> TransactionOutcome:
        self._sql.control(b"SAVEPOINT attempt")
        outcome: TransactionOutcome | None = None
        try:
            outcome = _apply(self._sql, transaction)
        finally:
            if not isinstance(outcome, Committed) and self._sql.alive():
                self._sql.control(b"ROLLBACK TO SAVEPOINT attempt")
        if isinstance(outcome, Committed):
            self._ended = True
            _send_commit(self._sql)
        return outcome


def _committed(sql: PostgresStatements, work: Callable[[Statements], T]) -> T:
    """Run the work in a transaction."""
    sql.control(b"BEGIN")
    try:
        answer = work(sql)
        sql.control(b"COMMIT")
    except _CLASHES as error:
        _roll_back(sql)
        raise _Clash(0) from error
    except BaseException:
        if sql.alive():
            _roll_back(sql)
        raise
    return answer


def _commit(sql: PostgresStatements, transaction: Transaction) -> TransactionOutcome:
    outcome = _apply(sql, transaction)
    if isinstance(outcome, Committed):
        _send_commit(sql)
    return outcome


def _apply(sql: PostgresStatements, transaction: Transaction) -> TransactionOutcome:
    attempt = changes.Attempt(transaction)
    try:
        return attempt.apply(sql)
    except _CLASHES as error:
        raise _Clash(attempt.index) from error


def _send_commit(sql: PostgresStatements) -> None:
    """Send COMMIT. After this, a lost connection is an unknown outcome.

    An error is no unknown outcome if it proves that the server has rolled back, and the server
    says so as well, by a session without a transaction.
    """
    try:
        answer = sql.connection.execute(b"COMMIT", prepare=False).statusmessage
    except _CLASHES as error:
        raise _Clash(0) from error
    except psycopg.Error as error:
        trouble = _trouble(error)
        is_idle = sql.connection.info.transaction_status == TransactionStatus.IDLE
        if is_idle and trouble.proven_at_commit:
            message = f"PostgreSQL could not commit: {_reason(error)}; nothing was changed"
            raise DatabaseUnavailable(message, trouble) from error
        message = f"the answer to COMMIT was lost: {_reason(error)}"
        raise OutcomeUnknown(message, trouble) from error
    if answer != "COMMIT":
        raise DatabaseUnavailable(f"PostgreSQL answered COMMIT with {answer}; nothing was changed")


def _roll_back(sql: PostgresStatements) -> None:
    """Roll back. If even this fails, the pool drops the connection, and the server rolls back."""
    with suppress(psycopg.Error):
        sql.control(b"ROLLBACK")


def _check_server(connection: Connection) -> None:
    """Check version and mode. Both are part of the connection's greeting and cost no round trip."""
    version = connection.info.server_version // 10_000
    if version < _OLDEST_VERSION:
        raise DatabaseRefused(
            f"PostgreSQL {version} is too old: Frazil needs {_OLDEST_VERSION} or newer, "
            "upgrade the server"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise DatabaseRefused(
            f"the PostgreSQL database {connection.info.dbname} has the encoding {encoding}: "
            "create it with ENCODING 'UTF8' TEMPLATE template0"
        )


@contextmanager
def _outages_reported() -> Iterator[None]:
    try:
        yield
    except _Broken as error:
        message = f"PostgreSQL could not be asked: {error}"
        raise DatabaseUnavailable(message, error.trouble) from error
    except _OUTAGES as error:
        message = f"PostgreSQL could not be asked: {_reason(error)}"
        raise DatabaseUnavailable(message, _trouble(error)) from error


def _trouble(error: psycopg.Error) -> database_failures.Trouble:
    return database_failures.of_postgres(error.sqlstate)


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
