"""Run one behavior suite on two databases: a test that uses `database` runs on each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.db.connect import connect
from frazil.db.rows import Database
from tests.db.helpers import make_namespace

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture(scope="session")
def shared_postgres_database(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database()


@pytest.fixture
def postgres_url(shared_postgres_database: str) -> Iterator[str]:
    """Return the URL of a new schema for the test; a schema takes a millisecond, a database a
    checkpoint."""
    import psycopg

    schema = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(shared_postgres_database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        yield f"{shared_postgres_database}?options=-csearch_path%3D{schema}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.process)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database without migrations."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def empty_database(database_url: str) -> Iterator[Database]:
    database = connect(database_url)
    yield database
    database.close()


@pytest.fixture
def database(empty_database: Database) -> Database:
    """Return a migrated database with the namespace `ns`."""
    empty_database.migrate()
    make_namespace(empty_database, "ns")
    return empty_database
