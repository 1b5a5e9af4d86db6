"""One server that every stock client of this folder uses, and a namespace for each test."""

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
"""A Spark session never forgets a catalog, so this name belongs to the one server here."""


@pytest.fixture(scope="package")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("clients")) as server:
        yield server


@pytest.fixture
def catalog_server(one_server: RunningServer, request: pytest.FixtureRequest) -> RunningServer:
    """The one server; a test that fails shows its log."""
    request.node.stash.setdefault(SERVERS, []).append(one_server)
    return one_server


@pytest.fixture
def iceberg(catalog_server: RunningServer) -> Iterator[Catalog]:
    """Stock PyIceberg on the one server."""
    catalog = pyiceberg_catalog(catalog_server.url)
    yield catalog
    catalog.close()


@pytest.fixture
def namespace(iceberg: Catalog) -> str:
    """A namespace of this test's own, without properties."""
    name = f"ns_{uuid.uuid4().hex[:8]}"
    iceberg.create_namespace(name)
    return name


@pytest.fixture
def duck(catalog_server: RunningServer) -> Iterator[duckdb.DuckDBPyConnection]:
    """Stock DuckDB with the one server attached as `ice`."""
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
    """Stock Spark whose current catalog and namespace are the one server's and the test's."""
    spark.sql(f"USE {spark_catalog}.{namespace}")
    yield spark
    spark.sql(f"USE {spark_catalog}")
