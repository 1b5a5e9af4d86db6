"""Table locations and catalog addresses: on S3, below a prefix, and read by DuckDB."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow.fs
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, RESTError, ValidationException
from pyiceberg.table import Table

from tests.pyiceberg.audit import audit, data_files
from tests.pyiceberg.conftest import frazil_catalog
from tests.pyiceberg.tables import (
    OPERATIONS,
    create,
    fill,
    ids,
    in_order,
    read,
    rows,
)
from tests.support.duck import attach
from tests.support.proxy import running_proxy
from tests.support.s3 import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server
from tests.support.server import RunningServer, ServerFactory

# Nothing listens on port 9, so a search for the machine's credentials never leaves it.
NO_METADATA_SERVICE = {
    "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9",
    "AWS_EC2_METADATA_DISABLED": "true",
}


# --- S3 -------------------------------------------------------------------------------------------


@pytest.fixture
def on_s3(
    server: ServerFactory, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Catalog:
    """Return a catalog on S3. The client only has keys; the server sends endpoint, region and
    path style."""
    for name, value in NO_METADATA_SERVICE.items():
        monkeypatch.setenv(name, value)
    environment = {**s3_server.environ(), **NO_METADATA_SERVICE}
    running = server("--warehouse", f"{s3_bucket}/warehouse", env=environment)
    keys = {"s3.access-key-id": ACCESS_KEY_ID, "s3.secret-access-key": SECRET_ACCESS_KEY}
    catalog = frazil_catalog(running.url, **keys)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def objects(s3_server: S3Server) -> Callable[[Table], set[str]]:
    """Return a function that lists the data files below a table's location."""
    store = pyarrow.fs.S3FileSystem(
        access_key=ACCESS_KEY_ID,
        secret_key=SECRET_ACCESS_KEY,
        region=REGION,
        endpoint_override=s3_server.endpoint,
    )

    def listed(table: Table) -> set[str]:
        below = pyarrow.fs.FileSelector(table.location().removeprefix("s3://"), recursive=True)
        paths = (found.path for found in store.get_file_info(below))
        return {f"s3://{path}" for path in paths if path.endswith(".parquet")}

    return listed


def test_writes_on_s3_leave_no_object_behind(
    on_s3: Catalog, objects: Callable[[Table], set[str]]
) -> None:
    for version in (1, 2, 3):
        name = f"db.t{version}"
        table = create(on_s3, name, "bucket", version)
        fill(table)
        stale = on_s3.load_table(name)
        table.delete("id in (2, 14)")
        table.upsert(rows(3, 50, amount=1))
        found = objects(table)
        assert found == set(table.inspect.all_data_files()["file_path"].to_pylist())
        with pytest.raises(ValidationException):
            stale.delete("id in (2, 3)")
        with pytest.raises(ValidationException), stale.transaction() as transaction:
            transaction.append(rows(60))
            transaction.upsert(rows(3, 51, amount=2))
        with pytest.raises(ZeroDivisionError), stale.transaction() as transaction:
            transaction.append(rows(60))
            raise ZeroDivisionError
        assert objects(table) == found, "an honest failure leaves no file"
        stale.append(rows(60))
        assert ids(stale) == [*sorted({*range(1, 21)} - {2, 14}), 50, 60]


# --- a prefix -------------------------------------------------------------------------------------


def test_commits_go_below_the_prefix(
    frazil: Catalog, catalog_server: RunningServer, namespace: str
) -> None:
    """This server has no prefix, so its 404 shows that the request used one."""
    table = create(frazil, f"{namespace}.t")
    fill(table)
    before = data_files(table)
    with running_proxy(catalog_server.url) as proxy:
        below = frazil_catalog(proxy.url, prefix="catalogs/one")
        table.catalog = below
        with pytest.raises((RESTError, NoSuchTableError)):
            table.append(rows(30))
        sent = [(exchange.method, exchange.path) for exchange in proxy.changes]
        below.close()
    assert sent == [("POST", f"/v1/catalogs/one/namespaces/{namespace}/tables/t")]
    assert data_files(table) == before
    assert ids(frazil.load_table(f"{namespace}.t")) == list(range(1, 21))


# --- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "properties",
    [
        {"write.object-storage.enabled": "true"},
        {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"},
        {"write.py-location-provider.impl": "pyiceberg.table.locations.SimpleLocationProvider"},
    ],
)
def test_files_lie_where_the_table_wants_them(
    frazil: Catalog, namespace: str, properties: dict[str, str]
) -> None:
    table = create(frazil, f"{namespace}.t", "identity", properties=properties)
    fill(table)
    stale = frazil.load_table(f"{namespace}.t")
    table.delete("id in (2, 14)")
    found = data_files(table)
    with pytest.raises(ValidationException):
        stale.upsert(rows(2, 60, amount=0))
    assert data_files(table) == found
    assert ids(table) == [number for number in range(1, 21) if number not in (2, 14)]
    audit(table)


# --- another reader -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "partitioning", "version"),
    [
        ("upsert", "bucket", 2),
        ("delete rows", "day", 3),
        ("overwrite by filter", "identity", 1),
        ("add_files", "truncate", 2),
        ("transaction", "unpartitioned", 3),
    ],
)
def test_duckdb_reads_the_same_rows(
    frazil: Catalog,
    catalog_server: RunningServer,
    namespace: str,
    duckdb_connection: Callable[[], duckdb.DuckDBPyConnection],
    operation: str,
    partitioning: str,
    version: int,
) -> None:
    table = create(frazil, f"{namespace}.t", partitioning, version)
    fill(table)
    OPERATIONS[operation](table, "main")
    duck = duckdb_connection()
    attach(duck, catalog_server.url)
    columns = ", ".join(f'"{name}"' for name in sorted(table.schema().column_names))
    found = duck.execute(f"SELECT {columns} FROM ice.{namespace}.t").fetchall()
    assert in_order(found) == read(table)
