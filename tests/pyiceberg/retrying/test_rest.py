"""`retrying` on a plain REST catalog: PyIceberg's client sends classic commits to our server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import StringType

from frazil.pyiceberg import retrying
from tests.pyiceberg.retrying.retrying_tables import (
    BY_BUCKET,
    BY_PART,
    QUICK,
    SCHEMA,
    SNAPSHOT_ISOLATION,
    data_files,
    local,
    read,
    rows,
    stray_data,
    stray_metadata,
)
from tests.support.server import running_server

A, B, C = (1, "a", 1), (2, "b", 2), (3, "c", 3)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    with running_server(tmp_path_factory.mktemp("rest")) as server:
        made = load_catalog("rest", type="rest", uri=server.url)
        made.create_namespace("db")
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of a table for this test."""
    return f"db.{request.node.name}"


def held(table: Table) -> Table:
    return retrying(table.catalog.load_table(table.name()))


def test_writers_on_stale_handles(catalog: Catalog, name: str) -> None:
    table = catalog.create_table(name, SCHEMA, partition_spec=BY_PART, properties=QUICK)
    table.append(rows(A, B, C))
    handles = [held(table) for _ in range(5)]
    handles[0].append(rows((4, "d", 4)))
    handles[1].delete("part = 'a'")
    handles[2].overwrite(rows((20, "b", 20)), overwrite_filter="part = 'b'")
    handles[3].upsert(rows((5, "e", 5)), join_cols=["id"])
    with pytest.raises(ValidationException, match=r"snapshot \d+ \(delete\)"):
        handles[4].overwrite(rows((10, "a", 10)), overwrite_filter="part = 'a'")
    assert read(table) == [(20, "b", 20), C, (4, "d", 4), (5, "e", 5)]
    assert stray_metadata(table) == set()
    assert stray_data(table) == set()


def test_upserts_on_buckets_and_a_change_of_the_schema_beside(catalog: Catalog, name: str) -> None:
    table = catalog.create_table(name, SCHEMA, partition_spec=BY_BUCKET, properties=QUICK)
    table.append(rows(*[(number, "a", 0) for number in range(8)]))
    inserting, keyed = held(table), held(table)
    with table.update_schema() as update:
        update.add_column("more", StringType())
    held(table).upsert(rows((100, "a", 1)), join_cols=["id"])
    inserting.upsert(rows((102, "a", 2)), join_cols=["id"])
    with pytest.raises(ValidationException):
        keyed.upsert(rows((100, "a", 3)), join_cols=["id"])
    assert sorted(row[0] or 0 for row in read(table)) == [*range(8), 100, 102]


def test_history_is_found_when_only_heads_are_loaded(catalog: Catalog, name: str) -> None:
    table = catalog.create_table(name, SCHEMA, partition_spec=BY_PART, properties=QUICK)
    table.append(rows(A))
    heads_only = load_catalog(
        "heads", type="rest", uri=catalog.properties["uri"], **{"snapshot-loading-mode": "refs"}
    )
    mine = retrying(heads_only.load_table(name))
    table.append(rows(B))
    table.append(rows(C))
    mine.delete("part = 'a'")
    assert read(table) == [B, C]


def declare_position_delete(table: Table, target: DataFile) -> None:
    """Commit a position delete that names its data file only in the entry, as Java does.
    PyIceberg's reader drops that field."""
    path = local(table.location()) / "data" / "deletes.parquet"
    columns = {"file_path": pa.array([target.file_path]), "pos": pa.array([0], pa.int64())}
    pq.write_table(pa.table(columns), path)
    described = {
        "content": "position-deletes",
        "file-path": f"file://{path}",
        "file-format": "parquet",
        "spec-id": target.spec_id,
        "partition": [target.partition[0]],
        "record-count": 1,
        "file-size-in-bytes": path.stat().st_size,
        "referenced-data-file": target.file_path,
    }
    update = {"action": "overwrite", "add-delete-files": [described]}
    url = f"{table.catalog.properties['uri']}/v1/namespaces/db/tables/{table.name()[-1]}"
    answer = httpx.post(url, json={"requirements": [], "updates": [update]})
    assert answer.status_code == 200, answer.text


def test_a_position_delete_reaches_only_the_file_it_names(catalog: Catalog, name: str) -> None:
    table = catalog.create_table(
        name, SCHEMA, partition_spec=BY_PART, properties={**QUICK, **SNAPSHOT_ISOLATION}
    )
    table.append(rows((1, "a", 1), (2, "a", 2)))
    table.append(rows((10, "a", 10), (20, "a", 20)))
    first, second = held(table).transaction(), held(table).transaction()
    first.delete("id = 2")
    second.delete("id = 20")
    [named] = [task.file for task in table.scan(row_filter="id = 20").plan_files()]
    declare_position_delete(table, named)
    first.commit_transaction()
    with pytest.raises(ValidationException, match=r"deletes\.parquet for file://"):
        second.commit_transaction()


def test_an_answer_that_the_table_is_gone_is_a_proof(catalog: Catalog, name: str) -> None:
    table = catalog.create_table(name, SCHEMA, properties=QUICK)
    table.append(rows(A))
    [kept] = data_files(table)
    mine = held(table)
    catalog.drop_table(name)
    with pytest.raises(RESTError, match="Table does not exist"):
        mine.append(rows(B))
    assert list((local(table.location()) / "data").rglob("*.parquet")) == [local(kept.file_path)]


def test_version_3_is_refused_and_leaves_nothing(catalog: Catalog, name: str) -> None:
    table = catalog.create_table(name, SCHEMA, properties={"format-version": "3"})
    folder = local(table.location()) / "data"
    with pytest.raises(ValueError, match="Cannot write manifest for table version: 3"):
        held(table).append(rows(A))
    assert list(folder.rglob("*.parquet")) == []
