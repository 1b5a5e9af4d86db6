"""A real catalog on a real database and a real store; thin wrappers inject faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from frazil.commit.catalog.operations import Catalog
from frazil.commit.pipeline.table_queues import QueueLimits
from frazil.db.connect import connect
from frazil.db.rows import Database
from frazil.housekeeping.server_operations import ServerTools
from frazil.housekeeping.sweep import sweep_table
from frazil.store.local_store import LocalStore
from frazil.store.locations import AllowedLocations
from frazil.store.object_store import Store
from tests.commit.requests import Driver

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer


class CatalogFactory(Protocol):
    def __call__(
        self,
        *,
        database: Database | None = None,
        store: Store | None = None,
        limits: QueueLimits | None = None,
    ) -> Driver: ...


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.process)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = connect(database_url)
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return folder


@pytest.fixture
def make_catalog(database: Database, warehouse: Path) -> Iterator[CatalogFactory]:
    """Return a function that opens catalogs on one database and one warehouse, like replicas."""
    with ExitStack() as opened:

        def make(
            *,
            database: Database | None = None,
            store: Store | None = None,
            limits: QueueLimits | None = None,
        ) -> Driver:
            root = f"file://{warehouse}"
            catalog = Catalog(
                db=database or shared,
                store=store or LocalStore(),
                warehouse=root,
                allowed_locations=AllowedLocations(root),
                limits=limits,
            )
            tools = ServerTools(database or shared, catalog.store, catalog)
            catalog.sweep = partial(sweep_table, tools)
            opened.callback(catalog.close)
            return Driver(catalog, shared, warehouse)

        shared = database
        yield make


@pytest.fixture
def driver(make_catalog: CatalogFactory) -> Driver:
    """Return a catalog with the namespace `ns` and the empty table `ns.t`."""
    driver = make_catalog()
    driver.create_namespace("ns")
    driver.create_table("t")
    return driver
