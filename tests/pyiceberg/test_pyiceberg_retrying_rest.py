"""`retrying` on a plain REST catalog: PyIceberg's own client, our server taking classic commits."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError, ValidationException
from pyiceberg.table import Table
from pyiceberg.types import StringType

from frazil.pyiceberg.retrying import retrying
from tests.pyiceberg.retrying_tables import (
    BY_BUCKET,
    BY_PART,
    QUICK,
    SCHEMA,
    data_files,
    local,
    read,
    rows,
    stray_data,
    stray_metadata,
)
from tests.support.server import ServerFactory

A, B, C = (1, "a", 1), (2, "b", 2), (3, "c", 3)


@pytest.fixture
def catalog(server: ServerFactory) -> Catalog:
    made = load_catalog("rest", type="rest", uri=server().url)
    made.create_namespace("db")
    return made


def held(table: Table) -> Table:
    return retrying(table.catalog.load_table(table.name()))


def test_writers_on_stale_handles(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA, partition_spec=BY_PART, properties=QUICK)
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


def test_upserts_on_buckets_and_a_change_of_the_schema_beside(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA, partition_spec=BY_BUCKET, properties=QUICK)
    table.append(rows(*[(number, "a", 0) for number in range(8)]))
    inserting, keyed = held(table), held(table)
    with table.update_schema() as update:
        update.add_column("more", StringType())
    held(table).upsert(rows((100, "a", 1)), join_cols=["id"])
    inserting.upsert(rows((102, "a", 2)), join_cols=["id"])
    with pytest.raises(ValidationException):
        keyed.upsert(rows((100, "a", 3)), join_cols=["id"])
    assert sorted(row[0] or 0 for row in read(table)) == [*range(8), 100, 102]


def test_history_is_found_when_only_heads_are_loaded(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA, partition_spec=BY_PART, properties=QUICK)
    table.append(rows(A))
    heads_only = load_catalog(
        "heads", type="rest", uri=catalog.properties["uri"], **{"snapshot-loading-mode": "refs"}
    )
    mine = retrying(heads_only.load_table("db.t"))
    table.append(rows(B))
    table.append(rows(C))
    mine.delete("part = 'a'")
    assert read(table) == [B, C]


def test_an_answer_that_the_table_is_gone_proves_that_nothing_landed(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA, properties=QUICK)
    table.append(rows(A))
    [kept] = data_files(table)
    mine = held(table)
    catalog.drop_table("db.t")
    with pytest.raises(RESTError, match="Table does not exist"):
        mine.append(rows(B))
    assert list((local(table.location()) / "data").rglob("*.parquet")) == [local(kept.file_path)]


def test_version_3_is_refused_as_by_pyiceberg_and_leaves_nothing(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA, properties={"format-version": "3"})
    folder = local(table.location()) / "data"
    with pytest.raises(ValueError, match="Cannot write manifest for table version: 3"):
        held(table).append(rows(A))
    assert list(folder.rglob("*.parquet")) == []
