"""Keeps a small pool of PostgreSQL connections.

If no connection is idle, the calling thread connects itself, so that a refused connection is
reported at once and with its reason, not as a time-out of a background worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

from frazil.db.base import DatabaseUnavailable

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"


class Pool:
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
