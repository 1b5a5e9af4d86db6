"""Opens the database that a URL names."""

from __future__ import annotations

from typing import Final

from frazil.db.base import DatabaseRefused
from frazil.db.rows import Database
from frazil.db.sqlite import SqliteDatabase
from frazil.extras import install_command

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")


def connect(url: str) -> Database:
    """Open the database of a URL. Raises DatabaseRefused.

    `sqlite:///relative/path`, `sqlite:////absolute/path`, `sqlite:///:memory:` (ends with the
    process) or `postgresql://user@host:port/name`.
    """
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        return SqliteDatabase(url.removeprefix(_SQLITE))
    if url.startswith(_POSTGRES):
        return _connect_postgres(url)
    # A URL may contain a password, so show only its scheme.
    scheme = url.partition(":")[0][:20]
    raise DatabaseRefused(
        f"the database URL begins with {scheme!r}: use sqlite:///PATH (sqlite:////PATH for an "
        "absolute one) or postgresql://USER@HOST:PORT/NAME"
    )


def _connect_postgres(url: str) -> Database:
    try:
        import psycopg  # noqa: F401  (its absence is told apart from a mistake of our own)
    except ImportError as error:
        raise DatabaseRefused(
            f"PostgreSQL needs its driver ({error}). Type: {install_command('postgres')}"
        ) from error
    from frazil.db.postgres import PostgresDatabase

    return PostgresDatabase(url)
