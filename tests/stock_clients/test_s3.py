"""Stock PyIceberg and DuckDB with their own keys and a warehouse on S3."""

from __future__ import annotations

import json
import urllib.request

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import IntegerType

from frazil import Client
from frazil.wire.errors import BadRequest
from tests.stock_clients.stock import (
    ID_NAME,
    duck_rows,
    id_name,
    operations,
    pyiceberg_catalog,
    pyiceberg_ids,
)
from tests.support.duck import attach, connect
from tests.support.patience import HANG_S
from tests.support.s3 import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server
from tests.support.server import RunningServer, ServerFactory

# A lookup of machine credentials must not leave this machine; nothing listens on port 9.
NO_METADATA_SERVICE = {
    "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def on_s3(
    server: ServerFactory, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> RunningServer:
    for name, value in NO_METADATA_SERVICE.items():
        monkeypatch.setenv(name, value)
    environment = {**s3_server.environ(), **NO_METADATA_SERVICE}
    return server("--warehouse", f"{s3_bucket}/warehouse", env=environment)


@pytest.fixture
def iceberg_s3(on_s3: RunningServer) -> Catalog:
    """The client has only its own keys; endpoint, region and path style come from the server."""
    keys = {"s3.access-key-id": ACCESS_KEY_ID, "s3.secret-access-key": SECRET_ACCESS_KEY}
    catalog = pyiceberg_catalog(on_s3.url, **keys)
    catalog.create_namespace("db")
    return catalog


def duck_on_s3(on_s3: RunningServer, s3_server: S3Server) -> duckdb.DuckDBPyConnection:
    connection = connect()
    endpoint = s3_server.endpoint.removeprefix("http://")
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{ACCESS_KEY_ID}', SECRET '{SECRET_ACCESS_KEY}',"
        f" ENDPOINT '{endpoint}', USE_SSL false, URL_STYLE 'path', REGION '{REGION}')"
    )
    attach(connection, on_s3.url)
    return connection


def test_configuration_names_the_store_and_no_secret(
    on_s3: RunningServer, s3_server: S3Server
) -> None:
    with urllib.request.urlopen(f"{on_s3.url}/v1/config", timeout=HANG_S) as answer:
        text = answer.read().decode()
    configuration = json.loads(text)
    given = configuration["defaults"] | configuration["overrides"]
    assert given["s3.endpoint"] == s3_server.endpoint
    assert given["s3.path-style-access"] == "true"
    assert given["client.region"] == REGION
    assert SECRET_ACCESS_KEY not in text
    assert ACCESS_KEY_ID not in text


def test_pyiceberg_works_on_s3(iceberg_s3: Catalog, s3_bucket: str) -> None:
    table = iceberg_s3.create_table("db.t", ID_NAME)
    assert table.location().startswith(f"{s3_bucket}/warehouse/")
    table.append(id_name(1, 2, 3))
    table.append(id_name(4))
    with table.update_schema() as update:
        update.add_column("size", IntegerType())
    table.delete("id = 2")
    loaded = iceberg_s3.load_table("db.t")
    assert pyiceberg_ids(loaded) == [1, 3, 4]
    assert operations(loaded) == ["append", "append", "overwrite"]
    assert loaded.schema().column_names == ["id", "name", "size"]
    transaction = iceberg_s3.create_table_transaction("db.staged", ID_NAME)
    transaction.append(id_name(7))
    transaction.commit_transaction()
    assert pyiceberg_ids(iceberg_s3.load_table("db.staged")) == [7]

    with loaded.transaction() as changes:
        changes.set_properties({"frazil.gc.quarantine-ms": "0"})
    metadata = loaded.metadata_location
    iceberg_s3.drop_table("db.t")
    assert pyiceberg_ids(iceberg_s3.register_table("db.again", metadata)) == [1, 3, 4]
    iceberg_s3.purge_table("db.again")
    assert not loaded.io.new_input(metadata).exists()


def test_duckdb_works_on_s3(on_s3: RunningServer, s3_server: S3Server, iceberg_s3: Catalog) -> None:
    with duck_on_s3(on_s3, s3_server) as duck:
        duck.execute("CREATE TABLE ice.db.t (id BIGINT, name VARCHAR)")
        duck.execute("INSERT INTO ice.db.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        duck.execute("DELETE FROM ice.db.t WHERE id = 2")
        duck.execute("UPDATE ice.db.t SET name = 'cc' WHERE id = 3")
        duck.execute(
            "MERGE INTO ice.db.t USING (VALUES (1, 'm'), (9, 'n')) AS s(id, name) ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET name = s.name"
            " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
        )
        rows = [(1, "m"), (3, "cc"), (9, "n")]
        assert duck_rows(duck, "SELECT * FROM ice.db.t ORDER BY id") == rows
        duck.execute("CREATE TABLE ice.db.c AS SELECT range AS id FROM range(5)")
        duck.execute("BEGIN")
        duck.execute("INSERT INTO ice.db.c VALUES (100)")
        duck.execute("INSERT INTO ice.db.t VALUES (100, 'both')")
        duck.execute("COMMIT")
        duck.execute("ALTER TABLE ice.db.c ADD COLUMN more INTEGER")
        assert duck_rows(duck, "SELECT count(*), count(more) FROM ice.db.c") == [(6, 0)]

        assert pyiceberg_ids(iceberg_s3.load_table("db.t")) == [1, 3, 9, 100]
        iceberg_s3.load_table("db.t").append(id_name(200))
        assert duck_rows(duck, "SELECT count(*) FROM ice.db.t") == [(5,)]
        duck.execute("DROP TABLE ice.db.c")
    assert iceberg_s3.list_tables("db") == [("db", "t")]


def test_rows_of_the_client(on_s3: RunningServer) -> None:
    keys = {"s3.access-key-id": ACCESS_KEY_ID, "s3.secret-access-key": SECRET_ACCESS_KEY}
    with Client(on_s3.url, properties=keys) as client:
        client.create_namespace("rows")
        modes = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "merge")}
        table = client.create_table(
            "rows.t", "id long not null, name string", format_version=3, properties=modes
        )
        table.append([{"id": number, "name": "a"} for number in range(5)])
        table.delete("id = 1")
        table.upsert([{"id": 2, "name": "b"}, {"id": 9, "name": "c"}], ["id"])
        with pytest.raises(BadRequest, match="column nope"):
            table.append([{"id": 7, "nope": 1}])
        rows = client.scan("rows.t").to_arrow().sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in rows] == [
            (0, "a"),
            (2, "b"),
            (3, "a"),
            (4, "a"),
            (9, "c"),
        ]
