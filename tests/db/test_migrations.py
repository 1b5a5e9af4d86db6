"""The schema is created once, by one process, and never downgraded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from frazil.db.base import CreateNamespace, DatabaseRefused, DatabaseUnavailable
from frazil.db.connect import connect
from frazil.db.rows import Database
from frazil.db.sql import Migration, migrate, migrations
from frazil.db.sqlite import SqliteDatabase, SqliteStatements, Written
from tests.db.helpers import must
from tests.support.patience import HANG_S


def test_before_it_the_database_says_it_is_not_ready(empty_database: Database) -> None:
    with pytest.raises(DatabaseUnavailable):
        empty_database.ping()
    empty_database.migrate()
    empty_database.ping()


def test_twice_is_once(empty_database: Database) -> None:
    assert empty_database.migrate() == 0
    must(empty_database, CreateNamespace(("kept",), {}))
    assert empty_database.migrate() > 0
    assert empty_database.namespace_properties(("kept",)) == {}


def test_it_survives_a_restart(database_url: str) -> None:
    for _ in range(2):
        database = connect(database_url)
        database.migrate()
        database.close()


def test_two_processes_at_once(postgres_url: str) -> None:
    script = """
import sys
from frazil.db.connect import connect
database = connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
database.migrate()
database.ping()
database.close()
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, postgres_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(entry for entry in sys.path if entry)},
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, errors


def newer(database_url: str) -> None:
    """Leave the schema as a future version of Frazil would."""
    statement = "INSERT INTO schema_version (version, name) VALUES (99, 'future')"
    if database_url.startswith("sqlite"):
        import sqlite3

        with sqlite3.connect(database_url.removeprefix("sqlite:///")) as file:
            file.execute(statement)
        file.close()
    else:
        import psycopg

        with psycopg.connect(database_url) as connection:
            connection.execute(statement.encode())


def test_a_newer_schema_is_refused(empty_database: Database, database_url: str) -> None:
    empty_database.migrate()
    newer(database_url)
    known = len(migrations("sqlite"))
    with pytest.raises(DatabaseRefused, match=rf"version 99, but .* versions up to {known}: "):
        empty_database.migrate()


def test_a_step_that_fails_leaves_the_schema_as_it_was(sqlite_url: str) -> None:
    database = SqliteDatabase(sqlite_url.removeprefix("sqlite:///"))
    good = migrations("sqlite")
    bad = Migration(len(good) + 1, "bad", ("CREATE TABLE half (a)", "CREATE NONSENSE"))

    def work(sql: SqliteStatements) -> Written[None]:
        migrate(sql, (*good, bad), sql.connection.execute)
        return Written(None, keep=True)

    with pytest.raises(DatabaseUnavailable, match="NONSENSE"):
        database.run(work)
    with pytest.raises(DatabaseUnavailable):
        database.ping()
    database.migrate()
    database.ping()
    database.close()
