"""The commit loop: what it retries, keeps and deletes, in fixed interleavings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    TooManyRequestsError,
    ValidationException,
)
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from frazil.pyiceberg import retrying
from tests.pyiceberg.retrying.retrying_tables import (
    BY_PART,
    QUICK,
    SCHEMA,
    InterleavedCatalog,
    commit_deletes,
    data_files,
    position_delete,
    read,
    rows,
    sql_catalog,
    stray_data,
    stray_metadata,
)

A, B, C = (1, "a", 1), (2, "b", 2), (3, "c", 3)


@pytest.fixture
def catalog(tmp_path: Path) -> InterleavedCatalog:
    return sql_catalog(tmp_path)


@pytest.fixture
def table(catalog: InterleavedCatalog) -> Table:
    """Return a table with one row, partitioned and with short retry waits."""
    created = catalog.create_table("db.t", SCHEMA, partition_spec=BY_PART, properties=QUICK)
    created.append(rows(A))
    return created


def held(table: Table) -> Table:
    return retrying(table.catalog.load_table(table.name()))


def assert_nothing_left_behind(table: Table) -> None:
    assert stray_metadata(table) == set()
    assert stray_data(table) == set()


def fail(error: Exception) -> NoReturn:
    raise error


def test_appends_on_a_stale_handle_all_land(table: Table, catalog: InterleavedCatalog) -> None:
    handles = [held(table) for _ in range(4)]
    for number, handle in enumerate(handles):
        handle.append(rows((10 + number, "a", 0)))
        assert handle.metadata == catalog.load_table("db.t").metadata
    assert [row[0] for row in read(table)] == [1, 10, 11, 12, 13]
    assert_nothing_left_behind(table)


def test_an_append_that_loses_several_times_lands_once(
    table: Table, catalog: InterleavedCatalog, tmp_path: Path
) -> None:
    beside = sql_catalog(tmp_path).load_table("db.t")
    catalog.before_swap += [lambda: beside.append(rows(C))] * 3
    before = catalog.swaps
    held(table).append(rows(B))
    assert catalog.swaps - before == 4
    assert read(table) == [A, B, C, C, C]
    assert_nothing_left_behind(table)


def test_merging_appends_leave_no_manifest_that_was_merged(catalog: InterleavedCatalog) -> None:
    merging = {
        **QUICK,
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": "2",
    }
    table = catalog.create_table("db.t", SCHEMA, properties=merging)
    for number in range(3):
        stale = held(table)
        held(table).append(rows((number, "a", number)))
        stale.append(rows((number + 10, "a", number)))
    snapshot = held(table).current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) == 1
    assert len(read(table)) == 6
    assert_nothing_left_behind(table)


def test_several_operations_of_a_transaction_land_together_on_a_new_head(table: Table) -> None:
    mine = held(table)
    with mine.transaction() as transaction:
        transaction.append(rows(B, C))
        transaction.delete("part = 'b'")
        transaction.overwrite(rows((30, "c", 30)), overwrite_filter="part = 'c'")
        transaction.set_properties({"said": "so"})
        table.append(rows((9, "z", 9)))
    assert read(table) == [A, (30, "c", 30), (9, "z", 9)]
    current = held(table)
    assert current.properties["said"] == "so"
    operations = [each.summary.operation.value for each in current.snapshots() if each.summary]
    assert operations == ["append", "append", "append", "delete", "delete", "append"]
    assert_nothing_left_behind(table)


def test_sequence_numbers_are_those_of_the_attempt_that_landed(table: Table) -> None:
    """A second snapshot producer has read the manifest list of the first one's failed attempt."""
    transaction = held(table).transaction()
    transaction.append(rows(B, C))
    transaction.delete("part = 'b'")
    table.append(rows((9, "z", 9)))
    table.append(rows((9, "z", 9)))
    transaction.commit_transaction()
    held(table).append(rows((10, "z", 10)))
    current = held(table)
    snapshot = current.current_snapshot()
    assert snapshot is not None
    numbers = {
        entry.data_file.partition[0]: entry.sequence_number
        for manifest in snapshot.manifests(current.io)
        for entry in manifest.fetch_manifest_entry(current.io)
        if entry.data_file.partition[0] in "ac"
    }
    assert numbers == {"a": 1, "c": 4}


def test_a_transaction_lands_as_a_whole_or_not_at_all(table: Table) -> None:
    transaction = held(table).transaction()
    transaction.append(rows(B))
    transaction.delete("part = 'a'")
    table.append(rows((9, "a", 9)))
    with pytest.raises(ValidationException):
        transaction.commit_transaction()
    with pytest.raises(RuntimeError, match="cannot be reused"):
        transaction.commit_transaction()
    assert read(table) == [A, (9, "a", 9)]
    assert_nothing_left_behind(table)


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
def test_a_delete_that_found_nothing_is_checked_beside_other_changes(table: Table) -> None:
    missing, found = held(table).transaction(), held(table).transaction()
    for transaction, part in ((missing, "b"), (found, "c")):
        transaction.delete(f"part = '{part}'")
        transaction.set_properties({f"deleted.{part}": "yes"})
    table.append(rows(C))
    missing.commit_transaction()
    with pytest.raises(ValidationException):
        found.commit_transaction()
    assert "deleted.b" in held(table).properties
    assert "deleted.c" not in held(table).properties


def test_a_refresh_of_the_users_table_does_not_move_the_base(table: Table) -> None:
    mine = held(table)
    transaction = mine.transaction()
    transaction.delete("part = 'a'")
    mine.append(rows((9, "a", 9)))
    with pytest.raises(ValidationException):
        transaction.commit_transaction()
    assert read(table) == [A, (9, "a", 9)]


def test_a_schema_change_beside_does_not_stop_data(table: Table) -> None:
    appending, deleting = held(table).transaction(), held(table).transaction()
    appending.append(rows(B))
    deleting.delete("value = 1")
    with table.update_schema() as update:
        update.add_column("more", StringType())
        update.rename_column("value", "amount")
    appending.commit_transaction()
    deleting.commit_transaction()
    found = held(table).scan().to_arrow().to_pylist()
    assert found == [{"id": 2, "part": "b", "amount": 2, "more": None}]
    assert_nothing_left_behind(table)


def test_a_schema_change_beside_a_schema_change_is_refused(table: Table) -> None:
    with pytest.raises(CommitFailedException), held(table).transaction() as transaction:
        transaction.append(rows(B))
        with transaction.update_schema() as update:
            update.add_column("mine", StringType())
        with table.update_schema() as update:
            update.add_column("theirs", StringType())
    assert [field.name for field in held(table).schema().fields][3:] == ["theirs"]
    assert read(table) == [A]
    assert_nothing_left_behind(table)


def test_files_keep_their_spec_when_the_default_changes_beside(table: Table) -> None:
    mine = held(table).transaction()
    mine.append(rows(B))
    with table.update_spec() as update:
        update.add_field("value", IdentityTransform(), "value")
    mine.commit_transaction()
    found = {file.file_path: file for file in data_files(held(table))}
    assert {file.spec_id for file in found.values()} == {0}
    assert read(table, row_filter="part = 'b' and value = 2") == [B]
    held(table).append(rows(C))
    assert {file.spec_id for file in data_files(held(table))} == {0, 1}
    held(table).delete("id > 0")
    assert read(table) == []
    assert_nothing_left_behind(table)


def test_branches_are_checked_each_for_itself(table: Table) -> None:
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "side").commit()
    transaction = held(table).transaction()
    transaction.delete("part = 'a'", branch="side")
    table.append(rows((9, "a", 9)))
    transaction.commit_transaction()
    current = held(table)
    assert current.scan().use_ref("side").to_arrow().num_rows == 0
    assert read(table) == [A, (9, "a", 9)]
    assert_nothing_left_behind(table)


def test_files_are_kept_when_an_attempt_ended_without_a_proof(
    table: Table, catalog: InterleavedCatalog, tmp_path: Path
) -> None:
    """PyIceberg's catalog raises a plain error if another branch has used the sequence number."""
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "side").commit()
    others = sql_catalog(tmp_path)
    transaction = held(table).transaction()
    transaction.overwrite(rows((5, "a", 5)), overwrite_filter="part = 'a'", branch="side")
    table.append(rows(B))
    catalog.before_swap += [
        lambda: None,
        lambda: others.load_table("db.t").append(rows(A), branch="side"),
    ]
    with pytest.raises(ValidationException):
        transaction.commit_transaction()
    assert len(stray_data(table)) == 1


def test_a_transaction_on_two_branches_requires_both(table: Table) -> None:
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "side").commit()
    transaction = held(table).transaction()
    transaction.append(rows(B))
    transaction.append(rows(C), branch="side")
    held(table).append(rows((9, "z", 9)), branch="side")
    transaction.commit_transaction()
    side = held(table).scan().use_ref("side").to_arrow()["id"].to_pylist()
    assert sorted(side) == [1, 3, 9]
    assert read(table) == [A, B]


def test_a_staged_snapshot_goes_on_the_new_head(table: Table) -> None:
    transaction = held(table).transaction()
    transaction.append(rows(B), branch=None)
    table.append(rows(C))
    transaction.commit_transaction()
    assert read(table) == [A, C]
    staged = held(table).metadata.snapshots[-1]
    found = held(table).scan(snapshot_id=staged.snapshot_id).to_arrow()["id"].to_pylist()
    assert sorted(found) == [1, 2, 3]


def test_delete_manifests_are_carried_over_byte_for_byte(table: Table) -> None:
    table.append(rows(B, (4, "b", 4)))
    [file] = [each for each in data_files(table) if each.partition[0] == "b"]
    commit_deletes(table, [position_delete(table, file, 0)])
    transaction = held(table).transaction()
    transaction.delete("part = 'a'")
    held(table).append(rows(C))
    transaction.commit_transaction()
    current = held(table)
    kept = [
        {
            each.manifest_path
            for each in snapshot.manifests(current.io)
            if each.content == ManifestContent.DELETES
        }
        for snapshot in current.snapshots()[-3:]
    ]
    assert kept[0] == kept[1] == kept[2] != set()
    assert read(table) == [C, (4, "b", 4)]


def test_retries_end_with_the_number_in_the_properties(
    table: Table, catalog: InterleavedCatalog
) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "2"})
    mine = held(table)
    lost = CommitFailedException("somebody was faster")
    catalog.before_swap += [lambda: fail(lost)] * 9
    before = catalog.swaps
    with pytest.raises(CommitFailedException, match="somebody was faster"):
        mine.append(rows(B))
    assert catalog.swaps - before == 3
    catalog.before_swap.clear()
    assert read(table) == [A]
    assert_nothing_left_behind(table)


def test_a_conflict_is_not_tried_again(table: Table, catalog: InterleavedCatalog) -> None:
    mine = held(table)
    table.append(rows((9, "a", 9)))
    before = catalog.swaps
    with pytest.raises(ValidationException):
        mine.delete("part = 'a'")
    assert catalog.swaps - before == 1


def test_too_many_requests_are_tried_again(table: Table, catalog: InterleavedCatalog) -> None:
    catalog.before_swap.append(lambda: fail(TooManyRequestsError("later")))
    held(table).append(rows(B))
    assert read(table) == [A, B]
    assert_nothing_left_behind(table)


def test_a_refusal_by_the_catalog_leaves_nothing(table: Table, catalog: InterleavedCatalog) -> None:
    catalog.before_swap.append(lambda: fail(ForbiddenError("not you")))
    with pytest.raises(ForbiddenError):
        held(table).overwrite(rows(B))
    assert read(table) == [A]
    assert_nothing_left_behind(table)


@pytest.mark.parametrize("error", [CommitStateUnknownException, ConnectionError, KeyError])
def test_an_answer_lost_after_the_commit_is_found(
    error: type[Exception], table: Table, catalog: InterleavedCatalog
) -> None:
    mine = held(table)
    catalog.after_swap.append(lambda: fail(error("gone")))
    mine.overwrite(rows(B))
    assert read(mine) == [B]
    assert mine.metadata == catalog.load_table("db.t").metadata
    assert_nothing_left_behind(table)


def test_an_answer_lost_after_the_commit_is_found_below_later_commits(
    table: Table, catalog: InterleavedCatalog
) -> None:
    def another_then_lost() -> None:
        catalog.load_table("db.t").append(rows(C))
        raise CommitStateUnknownException("gone")

    catalog.after_swap.append(another_then_lost)
    held(table).append(rows(B))
    assert read(table) == [A, B, C]
    assert_nothing_left_behind(table)


def test_an_unknown_outcome_that_is_not_found_keeps_every_file(
    table: Table, catalog: InterleavedCatalog
) -> None:
    mine = held(table)
    catalog.before_swap.append(lambda: fail(CommitStateUnknownException("who knows")))
    with pytest.raises(CommitStateUnknownException, match="who knows"):
        mine.append(rows(B))
    assert len(stray_data(table)) == 1
    assert len(stray_metadata(table)) == 2


def test_a_commit_reported_as_failed_that_has_landed_is_not_repeated(
    table: Table, catalog: InterleavedCatalog
) -> None:
    """This happens if a proxy sends a request twice and returns the second response."""
    catalog.after_swap.append(lambda: fail(CommitFailedException("already there")))
    held(table).append(rows(B))
    assert read(table) == [A, B]
    assert_nothing_left_behind(table)


def test_a_former_attempt_that_landed_late_keeps_its_manifests(
    table: Table, catalog: InterleavedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is reported as failed and takes effect while the second is being built."""
    mine = held(table)
    seen: list[tuple[Any, ...]] = []
    commit = catalog.commit_table

    def late(given: Table, requirements: Any, updates: Any) -> Any:
        if not seen:
            seen.append((requirements, updates))
            raise CommitFailedException("not yet")
        commit(given, *seen[0])
        return commit(given, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", late)
    mine.append(rows(B))
    assert read(table) == [A, B]
    assert_nothing_left_behind(table)


def test_files_handed_in_are_never_deleted(
    table: Table, catalog: InterleavedCatalog, tmp_path: Path
) -> None:
    path = tmp_path / "given.parquet"
    pq.write_table(rows((7, "g", 7)), path)
    catalog.before_swap.append(lambda: fail(ForbiddenError("not you")))
    with pytest.raises(ForbiddenError):
        held(table).add_files([f"file://{path}"])
    assert path.exists()
    held(table).add_files([f"file://{path}"])
    assert read(table) == [A, (7, "g", 7)]


def test_a_file_is_not_added_twice(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "given.parquet"
    pq.write_table(rows((7, "g", 7)), path)
    mine, allowing = held(table).transaction(), held(table).transaction()
    mine.add_files([f"file://{path}"])
    allowing.add_files([f"file://{path}"], check_duplicate_files=False)
    held(table).add_files([f"file://{path}"])
    with pytest.raises(ValidationException, match="another writer has added"):
        mine.commit_transaction()
    assert read(table) == [A, (7, "g", 7)]
    allowing.commit_transaction()
    assert read(table) == [A, (7, "g", 7), (7, "g", 7)]
    held(table).delete("part = 'g'")
    assert read(table) == [A]
    assert path.exists()


def test_an_exception_in_the_block_sends_and_leaves_nothing(table: Table) -> None:
    with pytest.raises(KeyError), held(table).transaction() as transaction:
        transaction.overwrite(rows(B))
        raise KeyError("the user's own")
    assert read(table) == [A]
    assert_nothing_left_behind(table)


def test_version_1_is_written_and_upgraded_beside(catalog: InterleavedCatalog) -> None:
    table = catalog.create_table("db.old", SCHEMA, properties={**QUICK, "format-version": "1"})
    table.append(rows(A))
    appending, deleting = held(table).transaction(), held(table).transaction()
    appending.append(rows(B))
    deleting.delete("id = 1")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    held(table).append(rows(C))
    appending.commit_transaction()
    deleting.commit_transaction()
    assert read(table) == [B, C]
    assert_nothing_left_behind(table)


def test_other_changes_of_the_table_are_retried_too(
    table: Table, catalog: InterleavedCatalog
) -> None:
    mine = held(table)
    catalog.before_swap.append(lambda: fail(CommitFailedException("faster")))
    with mine.update_schema() as update:
        update.add_column("more", StringType())
    assert mine.schema().find_field("more")
    head = mine.metadata.current_snapshot_id
    assert head is not None
    mine.manage_snapshots().create_tag(head, "kept").commit()
    assert "kept" in held(table).refs()


def test_a_table_without_a_catalog_is_refused(table: Table) -> None:
    static = StaticTable.from_metadata(table.metadata_location)
    with pytest.raises(ValueError, match="loaded from a catalog, got StaticTable"):
        retrying(static)
