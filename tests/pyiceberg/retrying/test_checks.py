"""Which new delete file applies to which data file, by the rules of Java's `DeleteFileIndex`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import ValidationException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import LongType

from frazil.pyiceberg import retrying
from frazil.pyiceberg.retry.commit_checks import NewDelete
from tests.pyiceberg.retrying.retrying_tables import (
    BY_PART,
    PATH_FIELD_ID,
    QUICK,
    SCHEMA,
    SNAPSHOT_ISOLATION,
    commit_deletes,
    data_files,
    delete_file,
    read,
    rows,
    sql_catalog,
)

POSITIONS, EQUALITY = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES
SNAPSHOT = Snapshot.model_validate({"snapshot-id": 1, "timestamp-ms": 0, "manifest-list": "list"})
UNPARTITIONED_SPEC = 1


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Return a table that is partitioned by `part` under spec 0 and unpartitioned under spec 1."""
    catalog = sql_catalog(tmp_path_factory.mktemp("checks"))
    created = catalog.create_table("db.t", SCHEMA, partition_spec=BY_PART)
    with created.update_spec() as update:
        update.remove_field("part")
    assert created.spec().is_unpartitioned()
    assert created.spec().spec_id == UNPARTITIONED_SPEC
    return created


def ids(lowest: int, highest: int, nulls: int = 0) -> dict[str, Any]:
    return {
        "lower_bounds": {1: to_bytes(LongType(), lowest)},
        "upper_bounds": {1: to_bytes(LongType(), highest)},
        "null_value_counts": {1: nulls},
    }


def data(part: str = "a", spec_id: int = 0, **fields: Any) -> DataFile:
    partition = Record(part) if spec_id == 0 else Record()
    return delete_file(
        DataFileContent.DATA, spec_id, file_path="file:///data-5", partition=partition, **fields
    )


def paths(lower: str, upper: str) -> dict[str, Any]:
    return {
        "lower_bounds": {PATH_FIELD_ID: lower.encode()},
        "upper_bounds": {PATH_FIELD_ID: upper.encode()},
    }


A, B, NONE = Record("a"), Record("b"), Record()
POSITION_CASES: list[tuple[str, int, dict[str, Any], bool]] = [
    ("of the partition", 0, {"partition": A}, True),
    ("of another partition", 0, {"partition": B}, False),
    ("of another spec", 1, {"partition": NONE}, False),
    ("of this file by bounds", 0, {"partition": A, **paths(*["file:///data-5"] * 2)}, True),
    ("of another file by bounds", 0, {"partition": A, **paths(*["file:///data-6"] * 2)}, False),
    ("of a range of files", 0, {"partition": A, **paths("file:///data-1", "file:///e")}, True),
    ("of files after it", 0, {"partition": A, **paths("file:///data-6", "file:///e")}, False),
    ("named", 0, {"partition": A, "referenced_data_file": "file:///data-5"}, True),
    ("named another", 0, {"partition": A, "referenced_data_file": "file:///data-6"}, False),
]
EQUALITY_CASES: list[tuple[str, int, dict[str, Any], bool]] = [
    ("of the partition", 0, {"partition": A}, True),
    ("of another partition", 0, {"partition": B}, False),
    ("of all partitions", 1, {"partition": NONE}, True),
    ("with values in its range", 1, {"partition": NONE, **ids(15, 30)}, True),
    ("with values above it", 1, {"partition": NONE, **ids(21, 30)}, False),
    ("with values below it", 0, {"partition": A, **ids(1, 9)}, False),
    ("with nulls, which it has not", 0, {"partition": A, **ids(1, 9, nulls=1)}, False),
]


def delete(content: DataFileContent, spec_id: int, fields: dict[str, Any]) -> DataFile:
    """Return a delete file as in a manifest, with the fields that PyIceberg's own reader drops."""
    given = {"_table_format_version": 3, **fields}
    if content == EQUALITY:
        given["equality_ids"] = [1]
    return delete_file(content, spec_id, **given)


@pytest.mark.parametrize(
    ("name", "spec_id", "fields", "reaches"),
    POSITION_CASES,
    ids=[case[0] for case in POSITION_CASES],
)
@pytest.mark.parametrize(("number", "new_enough"), [(4, False), (5, True), (6, True)])
def test_position_deletes(
    name: str,
    spec_id: int,
    fields: dict[str, Any],
    reaches: bool,
    number: int,
    new_enough: bool,
    table: Table,
) -> None:
    new = NewDelete(delete(POSITIONS, spec_id, fields), number, SNAPSHOT)
    assert new.applies_to(data(), 5, table.metadata) == (reaches and new_enough)


@pytest.mark.parametrize(
    ("name", "spec_id", "fields", "reaches"),
    EQUALITY_CASES,
    ids=[case[0] for case in EQUALITY_CASES],
)
@pytest.mark.parametrize(("number", "new_enough"), [(4, False), (5, False), (6, True)])
def test_equality_deletes(
    name: str,
    spec_id: int,
    fields: dict[str, Any],
    reaches: bool,
    number: int,
    new_enough: bool,
    table: Table,
) -> None:
    new = NewDelete(delete(EQUALITY, spec_id, fields), number, SNAPSHOT)
    reached = new.applies_to(data(**ids(10, 20)), 5, table.metadata)
    assert reached == (reaches and new_enough)


def test_nulls_on_both_sides_meet(table: Table) -> None:
    new = NewDelete(delete(EQUALITY, 0, {"partition": A, **ids(1, 2, nulls=1)}), 6, SNAPSHOT)
    assert new.applies_to(data(**ids(10, 20, nulls=1)), 5, table.metadata)


@pytest.mark.parametrize(("deleted_id", "refused"), [(2, True), (77, False)])
def test_a_new_equality_delete_of_a_row_that_a_rewrite_carries_along(
    deleted_id: int, refused: bool, tmp_path: Path
) -> None:
    """The row is outside the filter of the delete, but in the file that the delete rewrites."""
    catalog = sql_catalog(tmp_path)
    table = catalog.create_table("db.t", SCHEMA, properties={**QUICK, **SNAPSHOT_ISOLATION})
    table.append(rows((1, "a", 1), (2, "a", 2)))
    [file] = data_files(table)
    transaction = retrying(catalog.load_table("db.t")).transaction()
    transaction.delete("id = 1")
    found = delete_file(EQUALITY, file.spec_id, equality_ids=[1], **ids(deleted_id, deleted_id))
    commit_deletes(table, [found])
    if refused:
        with pytest.raises(ValidationException, match="found new deletes for replaced data files"):
            transaction.commit_transaction()
    else:
        transaction.commit_transaction()
        head = catalog.load_table("db.t").current_snapshot()
        assert head is not None
        contents = [manifest.content for manifest in head.manifests(table.io)]
        assert contents.count(ManifestContent.DELETES) == 1


class Compaction(_OverwriteFiles):
    """A `replace` snapshot, which PyIceberg can read but not create."""

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        made = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **made.additional_properties)


def compact(table: Table, part: str) -> None:
    """Rewrite the rows of one partition into a new file with a `replace` snapshot."""
    current = table.catalog.load_table(table.name())
    scan = current.scan(row_filter=f"part = '{part}'")
    with current.transaction() as transaction:
        producer = Compaction(Operation.OVERWRITE, transaction, current.io)
        for task in scan.plan_files():
            producer.delete_data_file(task.file)
        for file in _dataframe_to_data_files(current.metadata, scan.to_arrow(), current.io):
            producer.append_data_file(file)
        producer.commit()


def test_compaction_beside_is_a_conflict_for_those_who_remove_its_files(tmp_path: Path) -> None:
    catalog = sql_catalog(tmp_path)
    table = catalog.create_table("db.t", SCHEMA, partition_spec=BY_PART, properties=QUICK)
    table.append(rows((1, "a", 1), (2, "b", 2)))
    removing, reading = (retrying(catalog.load_table("db.t")).transaction() for _ in range(2))
    removing.delete("part = 'b'")
    reading.upsert(rows((2, "b", 2), (3, "c", 3)), join_cols=["id"])
    compact(table, "b")
    with pytest.raises(ValidationException, match=r"missing data files: snapshot \d+ \(replace\)"):
        removing.commit_transaction()
    reading.commit_transaction()
    assert read(table) == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]
