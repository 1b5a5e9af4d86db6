"""Locks a SQLite file against a second process.

SQLite itself allows several processes, but then each would have its own writer and its own row
locks. The operating system releases the lock when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from frazil.db.base import DatabaseRefused


class FileLock:
    """Locks `<database>.lock` for the life of the process, with the process id inside."""

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
