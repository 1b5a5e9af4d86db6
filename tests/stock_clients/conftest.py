"""One server for all stock clients of this folder, and a namespace for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog import Catalog

from tests.conftest import SERVERS
from tests.stock_clients.stock import pyiceberg_catalog
from tests.support.server import RunningServer, running_server

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

SPARK_CATALOG = "frazil"
"""A Spark session never forgets a catalog, so this name always refers to the one server."""


@pytest.fixture(scope="package")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("clients")) as server:
        yield server


@pytest.fixture
def catalog_server(one_server: RunningServer, request: pytest.FixtureRequest) -> RunningServer:
    """Return the shared server; a failed test prints its log."""
    request.node.stash.setdefault(SERVERS, []).append(one_server)
    return one_server


@pytest.fixture
def iceberg(catalog_server: RunningServer) -> Iterator[Catalog]:
    """Return stock PyIceberg connected to the shared server."""
    catalog = pyiceberg_catalog(catalog_server.url)
    yield catalog
    catalog.close()


@pytest.fixture
def namespace(iceberg: Catalog) -> str:
    """Return a new namespace for this test, without properties."""
    name = f"ns_{uuid.uuid4().hex[:8]}"
    iceberg.create_namespace(name)
    return name


@pytest.fixture
def duck(catalog_server: RunningServer) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return stock DuckDB with the shared server attached as `ice`."""
    from tests.support.duck import attach, connect

    with connect() as connection:
        attach(connection, catalog_server.url)
        yield connection


@pytest.fixture(scope="package")
def spark_catalog(spark: SparkSession, one_server: RunningServer) -> str:
    from tests.support.spark import add_catalog

    add_catalog(spark, SPARK_CATALOG, one_server.url)
    return SPARK_CATALOG


@pytest.fixture
def sql(
    spark: SparkSession, spark_catalog: str, catalog_server: RunningServer, namespace: str
) -> Iterator[SparkSession]:
    """Return stock Spark, with the shared server as current catalog and the test's namespace."""
    spark.sql(f"USE {spark_catalog}.{namespace}")
    yield spark
    spark.sql(f"USE {spark_catalog}")
