"""What an error of SQLite or PostgreSQL means: its reason, and whether it proves that nothing
happened.

Before COMMIT is sent, every error is such a proof, because an open transaction never commits by
itself. At COMMIT only the errors of these tables with `proven_at_commit` are. An error that no
table lists is no proof. Decision 0051 explains each row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Trouble:
    """What an error of the database means."""

    reason: str | None = None
    """What an operator has to look at. None if the error passes by itself, such as a deadlock.

    It never contains a text of the database, because `/readyz` shows it to everybody.
    """
    proven_at_commit: bool = False
    """Whether the transaction certainly did not happen if COMMIT itself got this error."""
    stops_writes: bool = False
    """Whether each change would fail late, after its files are written, until this ends."""


_DISK_FULL: Final = Trouble("its disk is full", stops_writes=True)
_IO_ERROR: Final = Trouble("its disk reports an I/O error", stops_writes=True)
_READ_ONLY: Final = Trouble("it is read-only", stops_writes=True)

_SQLITE: Final[Mapping[int, Trouble]] = {
    # SQLite reports FULL only for a write that came up short, and the frame with the commit mark
    # is the last one that COMMIT writes. So no recovery can find a complete transaction.
    sqlite3.SQLITE_FULL: Trouble("its disk is full", proven_at_commit=True, stops_writes=True),
    # The transaction is still open; the caller rolls it back.
    sqlite3.SQLITE_BUSY: Trouble("another program locks its file", proven_at_commit=True),
    sqlite3.SQLITE_LOCKED: Trouble("another program locks its file", proven_at_commit=True),
    sqlite3.SQLITE_CONSTRAINT: Trouble(proven_at_commit=True),
    sqlite3.SQLITE_PROTOCOL: Trouble("another program locks its file"),
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: Trouble("its file may not be written", stops_writes=True),
    sqlite3.SQLITE_AUTH: Trouble("its file may not be written", stops_writes=True),
    sqlite3.SQLITE_CANTOPEN: Trouble("its file cannot be opened", stops_writes=True),
    sqlite3.SQLITE_CORRUPT: Trouble("its file is damaged", stops_writes=True),
    sqlite3.SQLITE_NOTADB: Trouble("its file is damaged", stops_writes=True),
    sqlite3.SQLITE_NOMEM: Trouble("the server has too little memory"),
    sqlite3.SQLITE_IOERR_NOMEM: Trouble("the server has too little memory"),
    # All other I/O errors, such as FSYNC, leave it open whether the commit mark is on the disk.
    sqlite3.SQLITE_IOERR: _IO_ERROR,
    # The system refused a write for another reason than a full disk, such as a quota.
    sqlite3.SQLITE_IOERR_WRITE: Trouble("its disk refuses to write", stops_writes=True),
    # The index of the WAL cannot grow. This also happens after the commit mark was synced.
    sqlite3.SQLITE_IOERR_SHMSIZE: _DISK_FULL,
}
"""By extended result code, or else by the primary code, which is its lowest byte."""

_PRIMARY_CODE: Final = 0xFF

_POSTGRES: Final[Mapping[str, Trouble]] = {
    # An error at COMMIT is an ERROR, which aborts, or a FATAL or PANIC, which closes the connection
    # (and then no caller asks this table). PostgreSQL never reports an ERROR after the commit
    # record is written. The rows that are no proof at COMMIT are those that a connection pooler
    # between us and PostgreSQL also uses for its own problems, and those that say it themselves.
    "08": Trouble("it cannot be reached"),
    "23": Trouble(proven_at_commit=True),
    "25006": Trouble("it is read-only", proven_at_commit=True, stops_writes=True),
    "28": Trouble("it refuses the login of this server"),
    "3D": Trouble("the database of the URL does not exist"),
    "40001": Trouble(proven_at_commit=True),
    "40P01": Trouble(proven_at_commit=True),
    "42501": Trouble("this server may not write its tables", proven_at_commit=True),
    "42P01": Trouble("it has no tables of Frazil"),
    "53": Trouble("it has too few resources"),
    "53100": Trouble("its disk is full", proven_at_commit=True, stops_writes=True),
    "53200": Trouble("it has too little memory", proven_at_commit=True),
    "53300": Trouble("all its connections are in use"),
    "55P03": Trouble(proven_at_commit=True),
    "57014": Trouble("it takes too long to answer", proven_at_commit=True),
    "57": Trouble("it is stopping or starting"),
    "58": _IO_ERROR,
    "XX": Trouble("its data is damaged, or it has an internal error"),
}
"""By SQLSTATE, or else by its class, which is its first two characters."""

_UNREACHABLE: Final = _POSTGRES["08"]
_UNKNOWN: Final = Trouble()


def of_sqlite(error: BaseException) -> Trouble:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return _UNKNOWN
    return _SQLITE.get(code) or _SQLITE.get(code & _PRIMARY_CODE) or _UNKNOWN


def sqlite_text(error: BaseException) -> str:
    """Return what an error of SQLite means for an operator, and SQLite's own words."""
    reason = of_sqlite(error).reason
    return f"{reason} ({error})" if reason else str(error)


def of_postgres(sqlstate: str | None) -> Trouble:
    """Return the meaning of a SQLSTATE; None means that the connection failed without one."""
    if sqlstate is None:
        return _UNREACHABLE
    return _POSTGRES.get(sqlstate) or _POSTGRES.get(sqlstate[:2]) or _UNKNOWN
