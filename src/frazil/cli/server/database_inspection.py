"""Inspect the database without changing it: no locks, no schema migration."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from frazil.cli.server.doctor import Problem
from frazil.db.sql import Dialect, migrations, queries
from frazil.settings import mask_url

_SQLITE = "sqlite:///"
_OLDEST_POSTGRES = 15
_CONNECT_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """What an inspection found."""

    description: str
    clock_s: float | None = None
    """The time of the database's own clock; None for SQLite."""
    read_at_s: float = 0.0
    """This machine's time when the clock was read."""


def sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL; None for other databases and for SQLite in memory."""
    path = url.removeprefix(_SQLITE) if url.startswith(_SQLITE) else ""
    return Path(path).resolve() if path not in ("", ":memory:") else None


def inspect_database(url: str) -> DatabaseReport:
    path = sqlite_path(url)
    if path is not None:
        return _inspect_sqlite(path)
    if url.startswith(_SQLITE):
        return DatabaseReport(f"SQLite {sqlite3.sqlite_version} in memory; it ends with the server")
    if url.startswith(("postgresql://", "postgres://")):
        return _inspect_postgres(url)
    raise Problem(
        f"{mask_url(url)} is not a database URL",
        "use --database sqlite:///PATH or postgresql://USER@HOST:PORT/NAME",
    )


def _inspect_sqlite(path: Path) -> DatabaseReport:
    if not path.exists():
        return DatabaseReport(
            f"SQLite {sqlite3.sqlite_version}; {path} will be created by `frazil serve`"
        )
    try:
        # Open for writing too, because reading a WAL database needs the files beside it.
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=5)
        try:
            connection.execute("PRAGMA query_only = ON")
            has_schema = connection.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'"
            ).fetchone()[0]
            query = queries("sqlite")["schema_version"]
            version = connection.execute(query).fetchone()[0] if has_schema else None
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise Problem(
            f"{path} cannot be read as SQLite: {error}",
            "restore it from a backup, or choose another file with --database",
        ) from error
    return DatabaseReport(
        f"SQLite {sqlite3.sqlite_version} at {path}, {_schema('sqlite', version)}"
    )


def _inspect_postgres(url: str) -> DatabaseReport:
    shown = mask_url(url)
    if find_spec("psycopg") is None:
        raise Problem(f"psycopg is needed for {shown}", "pip install 'frazil[postgres]'")
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_TIMEOUT_S) as connection:
            release = connection.info.server_version // 10_000
            before_s = time.time()
            row = connection.execute(
                "SELECT extract(epoch FROM clock_timestamp())::float8, "
                "to_regclass('schema_version') IS NOT NULL"
            ).fetchone()
            read_at_s = (before_s + time.time()) / 2
            assert row is not None
            query = queries("postgres")["schema_version"]
            schema_row = connection.execute(query).fetchone() if row[1] else None
    except psycopg.Error as error:
        detail = " ".join(str(error).split())
        raise Problem(
            f"{shown} cannot be used: {detail}", "start PostgreSQL, or correct --database"
        ) from error
    if release < _OLDEST_POSTGRES:
        raise Problem(f"PostgreSQL {release} at {shown}", f"use {_OLDEST_POSTGRES} or newer")
    version = None if schema_row is None else schema_row[0]
    return DatabaseReport(
        f"PostgreSQL {release} at {shown}, {_schema('postgres', version)}", row[0], read_at_s
    )


def _schema(dialect: Dialect, version: int | None) -> str:
    newest = len(migrations(dialect))
    if not version:
        return f"empty; `frazil serve` will create schema version {newest}"
    if version > newest:
        raise Problem(
            f"the database has schema version {version}, this Frazil supports up to {newest}",
            "run the newer Frazil that created it, or restore the backup taken before the upgrade",
        )
    later = f"; `frazil serve` will migrate it to {newest}" if version < newest else ""
    return f"schema version {version}{later}"
