"""One server and one Spark for the tests of `spark`, and a namespace for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from frazil.client.catalog_client import Client
from tests.conftest import SERVERS
from tests.support.server import RunningServer, running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.spark.session import Session

STOCK = "stock_iceberg"
"""Stock Spark's own catalog entry for the server of this folder."""


@pytest.fixture(scope="package")
def one_server(
    tmp_path_factory: pytest.TempPathFactory, processes: None
) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("spark-server")) as server:
        yield server


@pytest.fixture
def server_url(one_server: RunningServer, request: pytest.FixtureRequest) -> str:
    """Return the URL of the shared server; a failed test prints its log."""
    request.node.stash.setdefault(SERVERS, []).append(one_server)
    return one_server.url


@pytest.fixture
def client(server_url: str) -> Iterator[Client]:
    with Client(server_url) as client:
        yield client


@pytest.fixture
def namespace(client: Client) -> str:
    """Return a new namespace for this test."""
    name = f"ns_{uuid.uuid4().hex[:8]}"
    client.create_namespace(name)
    return name


@pytest.fixture
def session(spark: SparkSession, server_url: str) -> Iterator[Session]:
    """Return a session with default settings; it finds Iceberg's jar and reads with it."""
    from frazil.spark import connect

    with connect(spark, server_url) as session:
        yield session


@pytest.fixture
def own_session(spark: SparkSession, server_url: str) -> Iterator[Session]:
    """Return a session that reads without Iceberg's jar and writes through Arrow."""
    from frazil.spark import connect

    with connect(spark, server_url, reader="own", writer="arrow") as session:
        yield session


@pytest.fixture(params=["jar", "own"])
def each_session(
    request: pytest.FixtureRequest, spark: SparkSession, server_url: str
) -> Iterator[Session]:
    """Return a session for each of the two readers in turn."""
    from frazil.spark import connect

    with connect(spark, server_url, reader=request.param) as session:
        yield session


@pytest.fixture(scope="package")
def stock(spark: SparkSession, one_server: RunningServer) -> str:
    """Return the name of stock Spark's catalog, as in `SELECT * FROM {stock}.{namespace}.t`."""
    from tests.support.spark import add_catalog

    add_catalog(spark, STOCK, one_server.url)
    return STOCK
