"""Opens DuckDB with its iceberg extension from wheels, without downloads."""

from __future__ import annotations

import importlib
from pathlib import Path

import duckdb

# avro must precede iceberg, which needs it; httpfs provides HTTP and S3.
EXTENSIONS = ("avro", "httpfs", "iceberg")


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    for name in EXTENSIONS:
        connection.execute(f"LOAD '{extension_file(name)}'")
    return connection


def extension_file(name: str) -> Path:
    package = importlib.import_module(f"duckdb_extension_{name}")
    (path,) = Path(package.__path__[0]).glob(f"extensions/*/{name}.duckdb_extension")
    return path


def attach(connection: duckdb.DuckDBPyConnection, url: str, name: str = "ice") -> None:
    """Attach the catalog at the URL, without authentication and without vended credentials."""
    connection.execute(
        f"ATTACH '' AS {name} (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none',"
        " ACCESS_DELEGATION_MODE 'none')"
    )
