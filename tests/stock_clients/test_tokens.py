"""Stock clients with a server that requires a token."""

from __future__ import annotations

import subprocess
import sys
import uuid

import duckdb
import pytest
from pyiceberg.exceptions import UnauthorizedError
from pyspark.sql import SparkSession

from tests.stock_clients.stock import (
    ID_NAME,
    duck_rows,
    id_name,
    pyiceberg_catalog,
    pyiceberg_ids,
    spark_column,
)
from tests.support.duck import connect
from tests.support.patience import HANG_S
from tests.support.server import RunningServer, ServerFactory, clean_environment
from tests.support.spark import add_catalog


def new_token(name: str) -> tuple[str, str]:
    """Create a token as a user does; return the token and the line for FRAZIL_TOKENS."""
    finished = subprocess.run(
        [sys.executable, "-m", "frazil", "token", "new", name],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
        timeout=HANG_S,
    )
    token, line = (said.strip() for said in finished.stdout.splitlines() if said[:2] == "  ")
    assert line.startswith(f"{name}:")
    return token, line


@pytest.fixture
def guarded(server: ServerFactory) -> tuple[RunningServer, str]:
    """Start a server that accepts one token; return both."""
    token, line = new_token("alice")
    return server(env={"FRAZIL_TOKENS": line}), token


def test_pyiceberg_and_duckdb_bring_a_token(guarded: tuple[RunningServer, str]) -> None:
    server, token = guarded
    catalog = pyiceberg_catalog(server.url, token=token)
    catalog.create_namespace("db")
    catalog.create_table("db.t", ID_NAME).append(id_name(1))

    with connect() as duck:
        duck.execute(f"CREATE SECRET frazil (TYPE iceberg, TOKEN '{token}')")
        duck.execute(
            f"ATTACH '' AS ice (TYPE iceberg, ENDPOINT '{server.url}', SECRET frazil,"
            " ACCESS_DELEGATION_MODE 'none')"
        )
        duck.execute("INSERT INTO ice.db.t VALUES (2, 'duck')")
        assert duck_rows(duck, "SELECT id FROM ice.db.t ORDER BY id") == [(1,), (2,)]
        # ATTACH itself also accepts the token.
        duck.execute(
            f"ATTACH '' AS other (TYPE iceberg, ENDPOINT '{server.url}', TOKEN '{token}',"
            " ACCESS_DELEGATION_MODE 'none')"
        )
        assert duck_rows(duck, "SELECT count(*) FROM other.db.t") == [(2,)]
    assert pyiceberg_ids(catalog.load_table("db.t")) == [1, 2]
    assert "principal=alice" in server.log
    assert token not in server.log


def test_spark_brings_a_token(guarded: tuple[RunningServer, str], spark: SparkSession) -> None:
    server, token = guarded
    name = f"guarded_{uuid.uuid4().hex[:8]}"
    add_catalog(spark, name, server.url, token=token)
    spark.sql(f"CREATE NAMESPACE {name}.db")
    spark.sql(f"CREATE TABLE {name}.db.t USING iceberg AS SELECT 1 AS id")
    assert spark_column(spark, f"SELECT id FROM {name}.db.t") == [1]


@pytest.mark.parametrize("token", [None, "wrong"])
def test_without_the_token_nothing_is_told(
    guarded: tuple[RunningServer, str], spark: SparkSession, token: str | None
) -> None:
    server, _ = guarded
    given = {} if token is None else {"token": token}
    with pytest.raises(UnauthorizedError):
        pyiceberg_catalog(server.url, **given)
    with connect() as duck, pytest.raises(duckdb.Error, match="401"):
        option = "AUTHORIZATION_TYPE 'none'" if token is None else f"TOKEN '{token}'"
        duck.execute(f"ATTACH '' AS ice (TYPE iceberg, ENDPOINT '{server.url}', {option})")
        duck.execute("SHOW ALL TABLES")
    name = f"guarded_{uuid.uuid4().hex[:8]}"
    add_catalog(spark, name, server.url, **given)
    with pytest.raises(Exception, match=r"NotAuthorizedException|Not authorized"):
        spark.sql(f"SHOW NAMESPACES IN {name}").collect()
