"""What an error of a database proves about its transaction."""

from __future__ import annotations

import sqlite3

import pytest

from frazil.db.database_failures import of_postgres, of_sqlite


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "reason", "proven"),
    [
        (sqlite3.SQLITE_FULL, "its disk is full", True),
        (sqlite3.SQLITE_BUSY, "another program locks its file", True),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "another program locks its file", True),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, None, True),
        # The commit mark may be on the disk, or may come to it later.
        (sqlite3.SQLITE_IOERR_FSYNC, "its disk reports an I/O error", False),
        (sqlite3.SQLITE_IOERR_DIR_FSYNC, "its disk reports an I/O error", False),
        (sqlite3.SQLITE_IOERR_TRUNCATE, "its disk reports an I/O error", False),
        (sqlite3.SQLITE_IOERR_WRITE, "its disk refuses to write", False),
        (sqlite3.SQLITE_IOERR_SHMSIZE, "its disk is full", False),
        (sqlite3.SQLITE_IOERR_NOMEM, "the server has too little memory", False),
        (sqlite3.SQLITE_READONLY_DBMOVED, "it is read-only", False),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, "its file cannot be opened", False),
        (sqlite3.SQLITE_CORRUPT_INDEX, "its file is damaged", False),
        (sqlite3.SQLITE_ERROR, None, False),
    ],
)
def test_errors_of_sqlite(code: int, reason: str | None, proven: bool) -> None:
    trouble = of_sqlite(sqlite_error(code))
    assert (trouble.reason, trouble.proven_at_commit) == (reason, proven)


def test_an_error_without_a_code_proves_nothing() -> None:
    assert not of_sqlite(sqlite3.ProgrammingError("closed")).proven_at_commit
    assert not of_sqlite(RuntimeError("ours")).proven_at_commit


@pytest.mark.parametrize(
    ("sqlstate", "reason", "proven"),
    [
        ("53100", "its disk is full", True),
        ("53200", "it has too little memory", True),
        ("53300", "all its connections are in use", False),
        ("53400", "it has too few resources", False),
        ("25006", "it is read-only", True),
        ("40001", None, True),
        ("40P01", None, True),
        ("40003", None, False),  # statement_completion_unknown
        ("55P03", None, True),
        ("23505", None, True),
        ("57014", "it takes too long to answer", True),
        ("57P01", "it is stopping or starting", False),
        ("57P02", "it is stopping or starting", False),
        ("57P03", "it is stopping or starting", False),
        ("08006", "it cannot be reached", False),
        ("08007", "it cannot be reached", False),  # transaction_resolution_unknown
        (None, "it cannot be reached", False),
        ("58030", "its disk reports an I/O error", False),
        ("XX001", "its data is damaged, or it has an internal error", False),
        ("28P01", "it refuses the login of this server", False),
        ("22012", None, False),
    ],
)
def test_errors_of_postgres(sqlstate: str | None, reason: str | None, proven: bool) -> None:
    trouble = of_postgres(sqlstate)
    assert (trouble.reason, trouble.proven_at_commit) == (reason, proven)
