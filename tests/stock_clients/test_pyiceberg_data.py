"""Stock PyIceberg: rows, snapshots, branches and tags."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.stock_clients.stock import (
    ID_NAME,
    id_name,
    operations,
    pyiceberg_catalog,
    pyiceberg_ids,
    sequence_numbers,
)
from tests.support.server import RunningServer

BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))


def head(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


@pytest.mark.parametrize("version", ["1", "2"])
def test_append_overwrite_and_delete(iceberg: Catalog, namespace: str, version: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME, properties={"format-version": version})
    table.append(id_name(1, 2, 3), snapshot_properties={"reason": "first rows"})
    table.append(id_name(4, 5))
    table.delete("id = 2")  # rewrites a part of a file
    table.overwrite(id_name(40, 41), overwrite_filter="id = 4")
    table.delete("id >= 40")  # removes one whole file
    table.overwrite(id_name(9))

    loaded = iceberg.load_table((namespace, "t"))
    assert pyiceberg_ids(loaded) == [9]
    expected = ["append", "append", "overwrite", "overwrite", "append", "delete", "delete"]
    by_time = sorted(loaded.metadata.snapshots, key=lambda found: found.timestamp_ms)
    said = [found.summary.operation.value for found in by_time if found.summary]
    assert said == [*expected, "append"]
    assert by_time[0].summary is not None
    assert by_time[0].summary["reason"] == "first rows"
    if version == "2":
        assert list(sequence_numbers(loaded)) == list(range(1, 9))
    assert len(loaded.history()) == 6, "an overwrite moves main once for its two snapshots"

    states = [pyiceberg_ids(loaded, snapshot_id=found.snapshot_id) for found in by_time]
    assert states[0] == [1, 2, 3]
    assert states[1] == [1, 2, 3, 4, 5]
    assert states[2] == [1, 3, 4, 5]
    assert states[4] == [1, 3, 5, 40, 41]
    assert states[5] == [1, 3, 5]
    assert states[7] == [9]


def test_schema_properties_and_rows_in_one_transaction(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(1))
    before = table.metadata_location
    wider = pa.schema([("id", pa.int64()), ("name", pa.string()), ("size", pa.int32())])
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.add_column("size", IntegerType())
        transaction.set_properties(purpose="both")
        transaction.append(pa.Table.from_pylist([{"id": 2, "name": "b", "size": 7}], schema=wider))
        transaction.delete("id = 1")

    loaded = iceberg.load_table((namespace, "t"))
    assert loaded.scan().to_arrow().to_pylist() == [{"id": 2, "name": "b", "size": 7}]
    assert loaded.properties["purpose"] == "both"
    assert operations(loaded) == ["append", "append", "delete"]
    assert loaded.metadata.metadata_log[-1].metadata_file == before, "one commit, one new file"

    with pytest.raises(RuntimeError, match="on purpose"), loaded.transaction() as transaction:
        transaction.append(id_name(3).append_column("size", pa.array([1], pa.int32())))
        raise RuntimeError("on purpose")
    assert pyiceberg_ids(iceberg.load_table((namespace, "t"))) == [2]


def test_branches_and_tags(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(1))
    first = head(table)
    with table.manage_snapshots() as manage:
        manage.create_branch(first, "audit", min_snapshots_to_keep=2, max_ref_age_ms=10**9)
        manage.create_tag(first, "v1", max_ref_age_ms=10**10)
    audit = iceberg.load_table((namespace, "t")).refs()["audit"]
    assert (audit.min_snapshots_to_keep, audit.max_ref_age_ms) == (2, 10**9)
    table.append(id_name(2))
    table.append(id_name(10), branch="audit")
    table.append(id_name(11), branch="audit")
    table.delete("id = 10", branch="audit")

    loaded = iceberg.load_table((namespace, "t"))
    refs = loaded.refs()
    assert set(refs) == {"main", "audit", "v1"}
    assert refs["v1"].max_ref_age_ms == 10**10
    assert refs["v1"].snapshot_id == first
    assert pyiceberg_ids(loaded) == [1, 2]
    assert loaded.scan().use_ref("audit").to_arrow()["id"].to_pylist() in ([1, 11], [11, 1])
    assert loaded.scan().use_ref("v1").to_arrow()["id"].to_pylist() == [1]
    assert list(sequence_numbers(loaded)) == [1, 2, 3, 4, 5], "all branches share one sequence"
    assert [entry.snapshot_id for entry in loaded.history()] == [first, head(loaded)]

    with loaded.manage_snapshots() as manage:
        manage.remove_tag("v1")
        manage.remove_branch("audit")
    assert set(iceberg.load_table((namespace, "t")).refs()) == {"main"}


def test_rollback_and_current_snapshot(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    snapshots = []
    for number in (1, 2, 3):
        table.append(id_name(number))
        snapshots.append(head(table))
    with table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(snapshots[0])
    assert pyiceberg_ids(iceberg.load_table((namespace, "t"))) == [1]
    with table.manage_snapshots() as manage:
        manage.set_current_snapshot(snapshots[2])
    table.append(id_name(4))
    loaded = iceberg.load_table((namespace, "t"))
    assert pyiceberg_ids(loaded) == [1, 2, 3, 4]
    moves = [entry.snapshot_id for entry in loaded.history()]
    assert moves == [*snapshots, snapshots[0], snapshots[2], head(loaded)]
    assert loaded.metadata.last_sequence_number == 4  # type: ignore[union-attr]

    middle = loaded.snapshot_by_id(snapshots[1])
    assert middle is not None
    found = loaded.snapshot_as_of_timestamp(middle.timestamp_ms)
    assert found is not None
    assert found.snapshot_id == snapshots[1]


def test_snapshots_expire(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    for number in (1, 2, 3):
        table.append(id_name(number))
    first, second, _ = (found.snapshot_id for found in table.snapshots())
    with table.manage_snapshots() as manage:
        manage.create_tag(second, "kept")
    time.sleep(0.01)
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    loaded = iceberg.load_table((namespace, "t"))
    assert loaded.snapshot_by_id(first) is None
    assert len(loaded.snapshots()) == 2
    assert pyiceberg_ids(loaded) == [1, 2, 3]
    assert loaded.scan().use_ref("kept").to_arrow().num_rows == 2


def test_only_snapshots_of_refs_are_loaded(
    catalog_server: RunningServer, iceberg: Catalog, namespace: str
) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    for number in range(5):
        table.append(id_name(number))
    with table.manage_snapshots() as manage:
        manage.create_tag(table.snapshots()[1].snapshot_id, "second")

    lazy = pyiceberg_catalog(catalog_server.url, **{"snapshot-loading-mode": "refs"})
    loaded = lazy.load_table((namespace, "t"))
    assert [found.sequence_number for found in loaded.snapshots()] == [2, 5]
    assert pyiceberg_ids(loaded) == [0, 1, 2, 3, 4]
    loaded.append(id_name(5))
    whole = iceberg.load_table((namespace, "t"))
    assert len(whole.snapshots()) == 6, "an append with part of the history keeps all of it"
    assert pyiceberg_ids(whole) == [0, 1, 2, 3, 4, 5]


def test_partitions_are_overwritten_by_what_is_written(iceberg: Catalog, namespace: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "region", StringType(), required=False),
    )
    table = iceberg.create_table(
        (namespace, "t"),
        schema,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")),
    )
    table.append(pa.table({"id": [1, 2, 3], "region": ["eu", "us", "eu"]}))
    table.dynamic_partition_overwrite(pa.table({"id": [7, 8], "region": ["eu", "ap"]}))
    loaded = iceberg.load_table((namespace, "t"))
    found = sorted((row["id"], row["region"]) for row in loaded.scan().to_arrow().to_pylist())
    assert found == [(2, "us"), (7, "eu"), (8, "ap")]
    table.delete("region = 'us'")
    assert operations(loaded.refresh()) == ["append", "delete", "append", "delete"]


def test_upsert_by_identifier_fields(iceberg: Catalog, namespace: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType(), required=False),
        identifier_field_ids=[1],
    )
    arrow = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    table = iceberg.create_table((namespace, "t"), schema, partition_spec=BY_BUCKET)
    table.append(id_name(1, 2, 3).cast(arrow))
    result = table.upsert(id_name(2, 3, 4, name="new").cast(arrow))
    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    again = table.upsert(id_name(2, 3, 4, name="new").cast(arrow))
    assert (again.rows_updated, again.rows_inserted) == (0, 0)
    rows = iceberg.load_table((namespace, "t")).scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [
        (1, "row-1"),
        (2, "new-2"),
        (3, "new-3"),
        (4, "new-4"),
    ]


def test_files_written_elsewhere_are_added(
    iceberg: Catalog, namespace: str, catalog_server: RunningServer
) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    folder = catalog_server.warehouse / f"imported-{namespace}"
    folder.mkdir()
    paths: list[str] = []
    for number in (1, 2):
        pq.write_table(id_name(number), folder / f"{number}.parquet")
        paths.append(f"file://{folder}/{number}.parquet")
    table.add_files(paths)
    loaded = iceberg.load_table((namespace, "t"))
    assert pyiceberg_ids(loaded) == [1, 2]
    assert sorted(row["file_path"] for row in loaded.inspect.files().to_pylist()) == paths
    with pytest.raises(ValueError, match="already referenced"):
        loaded.add_files(paths[:1])


def test_rows_are_deleted_across_partitions(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME, partition_spec=BY_BUCKET)
    table.append(id_name(*range(100)))
    table.append(id_name(*range(100, 120)))
    table.delete(f"id IN ({', '.join(str(number) for number in range(0, 120, 2))})")
    loaded = iceberg.load_table((namespace, "t"))
    assert pyiceberg_ids(loaded) == list(range(1, 120, 2))
    assert {row["spec_id"] for row in loaded.inspect.files().to_pylist()} == {0}
    summary = loaded.current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert summary.summary["total-records"] == "60"


def test_manifests_are_merged(iceberg: Catalog, namespace: str) -> None:
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = iceberg.create_table((namespace, "t"), ID_NAME, properties=merging)
    for number in range(4):
        table.append(id_name(number))
    snapshot = iceberg.load_table((namespace, "t")).current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) == 1
    assert pyiceberg_ids(table) == [0, 1, 2, 3]


def test_statistics_files_are_kept(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(1))
    statistics = StatisticsFile.model_validate(
        {
            "snapshot-id": head(table),
            "statistics-path": f"{table.location()}/metadata/stats.puffin",
            "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 4,
            "blob-metadata": [
                {
                    "type": "apache-datasketches-theta-v1",
                    "snapshot-id": head(table),
                    "sequence-number": 1,
                    "fields": [1],
                    "properties": {"ndv": "1"},
                }
            ],
        }
    )
    with table.update_statistics() as update:
        update.set_statistics(statistics)
    loaded = iceberg.load_table((namespace, "t"))
    assert loaded.metadata.statistics == [statistics]
    with loaded.update_statistics() as update:
        update.remove_statistics(head(loaded))
    assert iceberg.load_table((namespace, "t")).metadata.statistics == []


def test_history_is_inspected(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(1))
    table.append(id_name(2))
    inspect = iceberg.load_table((namespace, "t")).inspect
    assert inspect.snapshots()["operation"].to_pylist() == ["append", "append"]
    assert inspect.history().num_rows == 2
    assert inspect.refs()["name"].to_pylist() == ["main"]
    assert inspect.manifests().num_rows == 2
    assert inspect.metadata_log_entries().num_rows == 3
    assert inspect.all_files().num_rows >= 2
    scan = table.incremental_append_scan(
        from_snapshot_id_exclusive=table.snapshots()[0].snapshot_id
    )
    assert scan.to_arrow()["id"].to_pylist() == [2]


def test_a_stale_commit_is_tried_again_by_pyiceberg(iceberg: Catalog, namespace: str) -> None:
    """The client rebuilds rows after a conflict, but not a stale schema change."""
    first = iceberg.create_table((namespace, "t"), ID_NAME)
    second = iceberg.load_table((namespace, "t"))
    first.append(id_name(1))
    second.append(id_name(2))
    assert pyiceberg_ids(first.refresh()) == [1, 2]
    assert operations(first) == ["append", "append"]

    second.append(id_name(3))
    first.delete("id = 1")
    assert pyiceberg_ids(iceberg.load_table((namespace, "t"))) == [2, 3]

    second.refresh()
    with second.update_schema() as update:
        update.add_column("a", IntegerType())
    with pytest.raises(CommitFailedException), first.update_schema() as update:
        update.add_column("b", IntegerType())
    assert iceberg.load_table((namespace, "t")).schema().column_names == ["id", "name", "a"]


def test_table_at_a_location_of_the_users_choice(
    iceberg: Catalog, namespace: str, catalog_server: RunningServer
) -> None:
    location = f"file://{catalog_server.warehouse}/chosen-{namespace}"
    table = iceberg.create_table((namespace, "t"), ID_NAME, location=location)
    table.append(id_name(1))
    assert table.location() == location
    assert list(Path(location.removeprefix("file://")).rglob("*.parquet"))
