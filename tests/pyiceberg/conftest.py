"""One server for PyIceberg through Frazil, a namespace for each test, and stock tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from tests.conftest import SERVERS
from tests.support.server import RunningServer, running_server

IMPLEMENTATION = "frazil.pyiceberg.FrazilCatalog"


def frazil_catalog(url: str, **properties: str) -> Catalog:
    """Return the catalog of a user who changed only the implementation in the configuration."""
    return load_catalog("frazil", **{"py-catalog-impl": IMPLEMENTATION, "uri": url}, **properties)


@pytest.fixture(scope="package")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("pyiceberg")) as server:
        yield server


@pytest.fixture
def catalog_server(one_server: RunningServer, request: pytest.FixtureRequest) -> RunningServer:
    """Return the shared server; its log is shown if the test fails."""
    request.node.stash.setdefault(SERVERS, []).append(one_server)
    return one_server


@pytest.fixture
def frazil(catalog_server: RunningServer) -> Iterator[Catalog]:
    """Return PyIceberg through Frazil on the shared server."""
    catalog = frazil_catalog(catalog_server.url)
    yield catalog
    catalog.close()


@pytest.fixture
def namespace(frazil: Catalog) -> str:
    """Create a namespace for this test."""
    name = f"ns_{uuid.uuid4().hex[:8]}"
    frazil.create_namespace(name)
    return name


@pytest.fixture
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """Return stock PyIceberg on an in-memory catalog; its behavior is the reference."""
    folder = tmp_path_factory.mktemp("stock")
    catalog = SqlCatalog("stock", uri="sqlite:///:memory:", warehouse=f"file://{folder}")
    catalog.create_namespace("ns")
    yield catalog
    catalog.close()
