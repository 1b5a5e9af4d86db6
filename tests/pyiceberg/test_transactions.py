"""Transactions through Frazil read their own staged changes and commit with one request."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table, Transaction
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import StringType

from frazil.pyiceberg import DuplicateFilesError, ValidationError
from tests.pyiceberg.recorded import Commits, clauses, data_files_on_disk
from tests.pyiceberg.tables import create, ids, importable_files, rows
from tests.stock_clients.stock import ID_NAME, id_name, operations, pyiceberg_ids


@pytest.fixture
def table(frazil: Catalog, namespace: str) -> Table:
    """Return a table with ids 0 to 9 in one file and 10 to 19 in another."""
    table = frazil.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(*range(10)))
    table.append(id_name(*range(10, 20)))
    return table


def seen(transaction: Transaction) -> list[int]:
    """Return the ids that the transaction itself reads."""
    found = transaction._scan().to_arrow()
    return sorted(found["id"].to_pylist())


def live_files(table: Table) -> list[DataFile]:
    return [task.file for task in table.scan().plan_files()]


# --- what is staged is seen ---------------------------------------------------------------------


def test_each_operation_sees_those_before_it(frazil: Catalog, table: Table) -> None:
    commits = Commits(frazil)
    with table.transaction() as transaction:
        transaction.append(id_name(20, 21))
        assert seen(transaction) == list(range(22))
        transaction.delete("id = 20 or id < 3")
        assert seen(transaction) == [*range(3, 20), 21]
        result = transaction.upsert(id_name(21, 22, name="new"), join_cols=["id"])
        assert (result.rows_updated, result.rows_inserted) == (1, 1)
        assert seen(transaction) == [*range(3, 20), 21, 22]
        transaction.overwrite(id_name(30), overwrite_filter="id >= 10")
        assert seen(transaction) == [*range(3, 10), 30]
        assert pyiceberg_ids(table) == list(range(20))
    assert pyiceberg_ids(table) == [*range(3, 10), 30]
    assert set(commits.actions) == {"append", "overwrite", "delete"}
    assert len(table.metadata.snapshots) == 2 + len(commits.actions)


def test_a_transaction_stays_on_what_it_began_with(frazil: Catalog, table: Table) -> None:
    transaction = table.transaction()
    transaction.append(id_name(30))
    frazil.load_table(table.name()).append(id_name(40))
    table.refresh()
    assert seen(transaction) == [*range(20), 30]
    transaction.commit_transaction()
    assert pyiceberg_ids(table) == [*range(20), 30, 40]


def test_metadata_is_not_copied_at_every_look(table: Table) -> None:
    transaction = table.transaction()
    assert transaction.table_metadata is table.metadata
    transaction.append(id_name(30))
    assert transaction.table_metadata is transaction.table_metadata
    assert transaction.table_metadata.snapshots[0] is table.metadata.snapshots[0]
    assert len(table.metadata.snapshots) == 2


# --- what else goes along -----------------------------------------------------------------------


def test_all_changes_are_one_request_in_their_order(frazil: Catalog, table: Table) -> None:
    commits = Commits(frazil)
    with table.transaction() as transaction:
        transaction.append(id_name(20))
        with transaction.update_schema() as schema:
            schema.add_column("note", StringType())
        transaction.set_properties({"owner": "me"})
        wider = id_name(21).append_column("note", pa.array(["here"]))
        transaction.append(wider)
        with transaction.update_spec() as spec:
            spec.add_field("id", BucketTransform(4), "shard")
        transaction.append(id_name(22))
        transaction.remove_properties("owner")
    assert commits.actions == [
        "append",
        "add-schema",
        "set-current-schema",
        "set-properties",
        "append",
        "add-spec",
        "set-default-spec",
        "append",
        "remove-properties",
    ]
    assert [one["type"] for one in commits.only["requirements"]] == [
        "assert-current-schema-id",
        "assert-last-assigned-partition-id",
        "assert-default-spec-id",
        "assert-table-uuid",
    ]
    assert pyiceberg_ids(table) == list(range(23))
    assert {file.spec_id for file in live_files(table)} == {0, 1}
    assert "owner" not in table.properties


def test_a_failed_requirement_takes_the_rows_with_it(frazil: Catalog, table: Table) -> None:
    before = data_files_on_disk(table)
    transaction = table.transaction()
    with transaction.update_schema() as schema:
        schema.add_column("note", StringType())
    transaction.append(id_name(30).append_column("note", pa.array(["here"])))
    with frazil.load_table(table.name()).update_schema() as schema:
        schema.add_column("other", StringType())
    with pytest.raises(CommitFailedException):
        transaction.commit_transaction()
    assert data_files_on_disk(table) == before
    with pytest.raises(RuntimeError, match="cannot be reused"):
        transaction.commit_transaction()
    assert pyiceberg_ids(table.refresh()) == list(range(20))


@pytest.mark.parametrize("version", [1, 2])
def test_an_upgrade_to_version_3_and_rows_in_it(
    frazil: Catalog, namespace: str, version: int
) -> None:
    table = create(frazil, f"{namespace}.t", version=version)
    table.append(rows(1, 2, 3))
    with table.transaction() as transaction:
        transaction.upgrade_table_version(3)
        transaction.append(rows(4, 5))
        transaction.delete("id = 2")
    assert table.format_version == 3
    assert ids(table) == [1, 3, 4, 5]
    with pytest.raises(ValueError, match="downgrade"):
        table.transaction().upgrade_table_version(2)


def test_several_refs_are_each_asserted(frazil: Catalog, table: Table) -> None:
    head = table.metadata.current_snapshot_id
    assert head is not None
    commits = Commits(frazil)
    with table.manage_snapshots() as refs:
        refs.create_branch(head, "a").create_tag(head, "b")
    asserted = [one for one in commits.only["requirements"] if "ref" in one]
    assert [one["ref"] for one in asserted] == ["a", "b"]
    assert set(table.refs()) == {"main", "a", "b"}


def test_a_staged_snapshot_cannot_be_referred_to(table: Table) -> None:
    transaction = table.transaction()
    transaction.append(id_name(30))
    staged = transaction.table_metadata.current_snapshot_id
    assert staged is not None
    with pytest.raises(ValueError, match="commit first"):
        ManageSnapshots(transaction).create_tag(staged, "t").commit()


def test_rows_and_then_a_rollback(frazil: Catalog, table: Table) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    commits = Commits(frazil)
    with table.transaction() as transaction:
        transaction.append(id_name(30))
        ManageSnapshots(transaction).rollback_to_snapshot(first).commit()
        assert seen(transaction) == list(range(10))
    (requirement,) = (one for one in commits.only["requirements"] if "ref" in one)
    assert requirement["snapshot-id"] == table.metadata.snapshots[1].snapshot_id
    assert pyiceberg_ids(table) == list(range(10))


# --- branches and staged snapshots --------------------------------------------------------------


def test_a_new_branch_begins_where_main_is(frazil: Catalog, table: Table) -> None:
    table.append(id_name(30), branch="a")
    assert pyiceberg_ids(table) == list(range(20))
    scan = table.scan(selected_fields=("id",)).use_ref("a")
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [*range(20), 30]
    table.delete("id >= 5", branch="b")
    assert sorted(table.scan().use_ref("b").to_arrow()["id"].to_pylist()) == list(range(5))
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "t").commit()
    with pytest.raises(ValueError, match="is a tag"):
        table.append(id_name(1), branch="t")


def test_the_first_rows_of_a_table_go_to_main(
    frazil: Catalog, stock: Catalog, namespace: str
) -> None:
    ours, reference = create(frazil, f"{namespace}.t"), create(stock, "ns.t")
    for table in (ours, reference):
        with pytest.raises(CommitFailedException, match="can only be written to the main BRANCH"):
            table.append(rows(1), branch="audit")
    assert data_files_on_disk(ours) == set()
    for table in (ours, reference):
        table.delete("id = 1", branch="audit")
        with table.transaction() as transaction:
            transaction.append(rows(1))
            transaction.append(rows(2), branch="audit")
        assert ids(table) == [1]
        assert set(table.refs()) == {"main", "audit"}


def test_a_staged_append_is_on_no_branch(frazil: Catalog, table: Table) -> None:
    commits = Commits(frazil)
    table.append(id_name(30), branch=None, snapshot_properties={"wap.id": "load-1"})
    assert commits.updates[0]["stage-only"] is True
    assert pyiceberg_ids(table) == list(range(20))
    (staged,) = (
        snapshot
        for snapshot in table.metadata.snapshots
        if snapshot.summary is not None and snapshot.summary.get("wap.id") == "load-1"
    )
    found = table.scan(snapshot_id=staged.snapshot_id).to_arrow()
    assert sorted(found["id"].to_pylist()) == [*range(20), 30]


# --- producers by hand --------------------------------------------------------------------------


def test_producers_by_hand(frazil: Catalog, table: Table) -> None:
    original = next(file for file in live_files(table) if file.record_count == 10)
    transaction = table.transaction()
    with transaction.update_snapshot().overwrite() as overwriting:
        overwriting.delete_data_file(original)
    commits = Commits(frazil)
    transaction.commit_transaction()
    (update,) = commits.updates
    assert update["remove-data-files"] == [original.file_path]
    assert set(clauses(update)) == {"required-data-files", "not-allowed-added-data-files"}
    assert len(pyiceberg_ids(table)) == 10

    with table.transaction() as transaction, transaction.update_snapshot().delete() as deleting:
        deleting.delete_by_predicate(AlwaysTrue())
    assert pyiceberg_ids(table) == []

    with table.transaction() as transaction:
        with transaction.update_snapshot().fast_append() as appending:
            appending.append_data_file(original)
        with transaction.update_snapshot().merge_append() as nothing:
            assert nothing is not None
    assert len(pyiceberg_ids(table)) == 10
    assert operations(table)[-1] == "append"


def test_a_missing_file_to_remove_is_refused(table: Table) -> None:
    original = live_files(table)[0]
    table.delete()
    transaction = table.transaction()
    with transaction.update_snapshot().overwrite() as overwriting:
        overwriting.delete_data_file(original)
    with pytest.raises(ValidationError) as refused:
        transaction.commit_transaction()
    found = {one["clause"] for one in refused.value.conflicts}
    assert found & {"removed-file-not-live", "required-data-files"}


@pytest.mark.parametrize("key", ["added-records", "operation", "partitions.a", "total-data-files"])
def test_what_the_server_counts_cannot_be_given(table: Table, key: str) -> None:
    before = data_files_on_disk(table)
    with pytest.raises(ValueError, match="computed by the server"):
        table.append(id_name(30), snapshot_properties={key: "1"})
    assert data_files_on_disk(table) == before


# --- maintenance --------------------------------------------------------------------------------


def test_snapshots_expire_and_statistics_come_and_go(frazil: Catalog, table: Table) -> None:
    first, second = table.metadata.snapshots
    statistics = StatisticsFile.model_validate(
        {
            "snapshot-id": second.snapshot_id,
            "statistics-path": f"{table.location()}/metadata/a.stats",
            "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 5,
            "blob-metadata": [],
        }
    )
    with table.update_statistics() as update:
        update.set_statistics(statistics)
    assert [one.snapshot_id for one in table.metadata.statistics] == [second.snapshot_id]
    with table.update_statistics() as update:
        update.remove_statistics(second.snapshot_id)
    assert table.metadata.statistics == []
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert [one.snapshot_id for one in table.metadata.snapshots] == [second.snapshot_id]
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    assert not table.sort_order().is_unsorted
    assert pyiceberg_ids(table.refresh()) == list(range(20))


# --- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioning", ["bucket", "truncate", "day"])
def test_partitions_of_any_transform_are_replaced_in_one_snapshot(
    frazil: Catalog, namespace: str, partitioning: str
) -> None:
    table = create(frazil, f"{namespace}.t", partitioning)
    table.append(rows(*range(1, 9)))
    commits = Commits(frazil)
    with table.transaction() as transaction:
        transaction.dynamic_partition_overwrite(rows(1, amount=7))
        within = seen(transaction)
    (update,) = commits.updates
    assert update["replace-partitions"] is True
    assert set(clauses(update)) == {
        "not-allowed-added-data-files",
        "required-data-files",
        "not-allowed-added-delete-files",
    }
    assert within == ids(table)
    assert 1 in within
    assert len(within) < 8 or partitioning == "bucket"
    assert operations(table) == ["append", "overwrite"]


def test_partitions_beside_files_of_an_older_spec_are_refused(
    frazil: Catalog, namespace: str
) -> None:
    table = create(frazil, f"{namespace}.t")
    table.append(rows(1, 2))
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "shard")
    before = data_files_on_disk(table)
    with pytest.raises(ValueError, match="partition spec 0"):
        table.dynamic_partition_overwrite(rows(1))
    assert data_files_on_disk(table) == before
    table.delete()
    table.dynamic_partition_overwrite(rows(1))
    assert ids(table) == [1]


def test_an_unpartitioned_table_has_no_partitions_to_overwrite(table: Table) -> None:
    with pytest.raises(ValueError, match="unpartitioned"):
        table.dynamic_partition_overwrite(id_name(1))


def test_partitions_by_identity_after_a_change_of_schema(frazil: Catalog, namespace: str) -> None:
    """PyIceberg writes the rows with the schema from before the transaction."""
    table = frazil.create_table(
        (namespace, "t"),
        ID_NAME,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")),
    )
    table.append(id_name(1, 2))
    with table.transaction() as transaction:
        with transaction.update_schema() as schema:
            schema.add_column("note", StringType())
        replaced = id_name(1).append_column("note", pa.array(["here"]))
        transaction.dynamic_partition_overwrite(replaced)
    found = table.scan().to_arrow().to_pylist()
    assert sorted((one["id"], one["note"]) for one in found) == [(1, "here"), (2, None)]


# --- add_files ----------------------------------------------------------------------------------


def test_files_that_are_there_already_are_refused_by_the_server(
    frazil: Catalog, namespace: str
) -> None:
    table = create(frazil, f"{namespace}.t")
    paths = importable_files(table, 64, 72)
    table.add_files(paths)
    assert ids(table) == [64, 65, 72, 73]
    more = importable_files(table, 80)
    before = data_files_on_disk(table)
    with pytest.raises(ValueError, match="already referenced by table") as refused:
        table.add_files([*more, paths[0]])
    assert isinstance(refused.value, DuplicateFilesError)
    assert isinstance(refused.value, ValidationException)
    assert paths[0] in str(refused.value)
    assert refused.value.conflicts[0]["clause"] == "duplicate-file"
    assert data_files_on_disk(table) == before
    table.add_files(more)
    assert ids(table) == [64, 65, 72, 73, 80, 81]


def test_files_of_the_same_transaction_are_looked_for(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t")
    paths = importable_files(table, 64)
    with table.transaction() as transaction:
        transaction.add_files(paths)
        with pytest.raises(ValueError, match="already referenced by table"):
            transaction.add_files(paths)
    assert ids(table) == [64, 65]
    with pytest.raises(ValueError, match="must be unique"):
        table.add_files([*paths, *paths])


def test_no_manifest_is_read_to_add_files(
    frazil: Catalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(frazil, f"{namespace}.t")
    table.append(rows(1))
    read: list[str] = []
    fetch = ManifestFile.fetch_manifest_entry

    def noted(self: ManifestFile, *args: Any, **more: Any) -> Any:
        read.append(self.manifest_path)
        return fetch(self, *args, **more)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", noted)
    table.add_files(importable_files(table, 64))
    table.append(rows(2))
    assert read == []
    assert ids(table) == [1, 2, 64, 65]
    assert read != []
