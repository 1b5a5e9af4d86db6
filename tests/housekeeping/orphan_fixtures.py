"""Catalogs for searches of orphan files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.db.connect import connect
from frazil.store.local_store import LocalStore
from frazil.store.object_store import Store
from tests.housekeeping.orphan_shop import Shop, open_shop
from tests.support.postgres import PostgresServer
from tests.support.s3 import S3Server


def _opened(url: str, store: Store, root: str) -> Iterator[Shop]:
    database = connect(url)
    database.migrate()
    shop = open_shop(database, store, root)
    yield shop
    shop.catalog.close()
    store.close()
    database.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    yield from _opened(f"sqlite:///{tmp_path}/catalog.db", LocalStore(), f"file://{tmp_path}/wh")


@pytest.fixture(
    params=["sqlite-local", pytest.param("postgres-s3", marks=pytest.mark.process)],
)
def any_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Return a shop on each database and on each store."""
    if request.param == "sqlite-local":
        url = f"sqlite:///{tmp_path}/catalog.db"
        yield from _opened(url, LocalStore(), f"file://{tmp_path}/wh")
        return
    from frazil.store.s3_store import S3Store

    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    s3: S3Server = request.getfixturevalue("s3_server")
    root = f"{s3.create_bucket(f'orphans-{uuid.uuid4().hex[:12]}')}/wh"
    url = postgres.create_database()
    yield from _opened(url, S3Store(environ=s3.environ()), root)
    postgres.drop_database(url)
