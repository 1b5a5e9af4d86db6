"""What a transaction sees of itself before it is committed, and what comes of it afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table, Transaction

from tests.pyiceberg.audit import audit, data_files, operations
from tests.pyiceberg.tables import (
    ARROW,
    PARTITIONINGS,
    SCHEMA,
    Row,
    create,
    fill,
    ids,
    in_order,
    read,
    row,
    rows,
)

Step = Callable[[Transaction], Any]

STEPS: dict[str, Step] = {
    "append": lambda transaction: transaction.append(rows(30, 31, 32, 33)),
    "delete own and old rows": lambda transaction: transaction.delete("id in (31, 2, 14)"),
    "upsert own, old and new rows": lambda transaction: transaction.upsert(
        pa.Table.from_pylist([row(30, amount=-1), row(5, shift=1), row(40), row(13)], schema=ARROW)
    ),
    "upsert the same again": lambda transaction: transaction.upsert(
        pa.Table.from_pylist([row(30, amount=-1), row(5, shift=1), row(40), row(13)], schema=ARROW)
    ),
    "overwrite own and old rows": lambda transaction: transaction.overwrite(
        rows(30, 50, amount=3), overwrite_filter="id = 30 or id > 18"
    ),
    "delete what was rewritten": lambda transaction: transaction.delete("id = 1 or id = 5"),
    "delete all that was added": lambda transaction: transaction.delete("id >= 30"),
}
CASES = [
    pytest.param(
        partitioning,
        version,
        marks=() if place % 3 + 1 == version else (pytest.mark.full,),
    )
    for (place, partitioning), version in itertools.product(enumerate(PARTITIONINGS), (1, 2, 3))
]


def seen(transaction: Transaction) -> list[Row]:
    found = transaction._scan().to_arrow()
    columns = sorted(found.column_names)
    return in_order(tuple(one[name] for name in columns) for one in found.to_pylist())


@pytest.mark.parametrize(("partitioning", "version"), CASES)
def test_each_step_sees_those_before_it(
    frazil: Catalog, stock: Catalog, namespace: str, partitioning: str, version: int
) -> None:
    ours = create(frazil, f"{namespace}.t", partitioning, version)
    theirs = create(stock, "ns.t", partitioning)
    for table in (ours, theirs):
        fill(table)
    before = read(ours)
    other = frazil.load_table(f"{namespace}.t")
    with ours.transaction() as transaction, theirs.transaction() as wanted:
        for name, step in STEPS.items():
            assert step(transaction) == step(wanted), name
            assert seen(transaction) == seen(wanted), name
        assert read(other.refresh()) == before, "nobody else sees it before the commit"
    assert read(ours) == read(theirs) == read(other.refresh())
    made = [found.summary.operation.value for found in theirs.snapshots() if found.summary]
    assert operations(audit(ours)) == made


@pytest.mark.parametrize("version", [1, 2, 3])
def test_transaction_that_is_broken_off_leaves_nothing(
    frazil: Catalog, namespace: str, version: int
) -> None:
    table = create(frazil, f"{namespace}.t", "bucket", version)
    fill(table)
    before, files = read(table), data_files(table)
    with pytest.raises(ZeroDivisionError), table.transaction() as transaction:
        for step in STEPS.values():
            step(transaction)
        raise ZeroDivisionError
    assert data_files(table) == files
    assert read(frazil.load_table(f"{namespace}.t")) == before
    audit(table)


def test_operation_that_fails_leaves_the_others_of_its_transaction(
    frazil: Catalog, namespace: str
) -> None:
    table = create(frazil, f"{namespace}.t", "identity")
    fill(table)
    with table.transaction() as transaction:
        transaction.append(rows(30))
        with pytest.raises(ValueError, match="Duplicate rows"):
            transaction.upsert(rows(1, 1, amount=0))
        with pytest.raises(ValueError, match="Could not find field"):
            transaction.delete("nowhere = 1")
        transaction.append(rows(31))
    assert ids(table) == [*range(1, 21), 30, 31]
    audit(table)


def test_nothing_to_do_makes_no_snapshot(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t")
    fill(table)
    location = table.metadata_location
    table.append(rows())
    with pytest.warns(UserWarning, match="did not match any records"):
        table.delete("id = 1000")
    result = table.upsert(rows(1, 2, 3))
    assert (result.rows_updated, result.rows_inserted) == (0, 0)
    assert frazil.load_table(f"{namespace}.t").metadata_location == location
    audit(table)


def test_failing_reader_leaves_no_file(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t", properties={"write.target-file-size-bytes": "64"})
    fill(table)
    files = data_files(table)

    def batches(fails: bool) -> pa.RecordBatchReader:
        def produce() -> Any:
            for number in range(100, 106):
                yield from rows(number).to_batches()
            if fails:
                raise ZeroDivisionError

        return pa.RecordBatchReader.from_batches(ARROW, produce())

    with pytest.raises(ZeroDivisionError):
        table.append(batches(True))
    with pytest.raises(ZeroDivisionError):
        table.overwrite(batches(True), overwrite_filter="id = 3")
    assert data_files(table) == files
    table.overwrite(batches(False), overwrite_filter="id > 3")
    assert ids(table) == [1, 2, 3, *range(100, 106)]
    audit(table)


# --- branches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_new_branch_begins_where_main_is(frazil: Catalog, namespace: str, version: int) -> None:
    table = create(frazil, f"{namespace}.t", "truncate", version)
    fill(table)
    with table.transaction() as transaction:
        transaction.append(rows(30), branch="new")
        transaction.delete("id < 3", branch="new")
        transaction.append(rows(40))
    assert ids(table, "new") == [*range(3, 21), 30]
    assert ids(table) == [*range(1, 21), 40]
    audit(table)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_staged_append_waits_to_be_published(frazil: Catalog, namespace: str, version: int) -> None:
    table = create(frazil, f"{namespace}.t", "day", version)
    fill(table)
    head = table.current_snapshot()
    table.append(rows(30), branch=None, snapshot_properties={"wap.id": "one"})
    table = frazil.load_table(f"{namespace}.t")
    assert table.current_snapshot() == head
    (staged,) = [s for s in table.snapshots() if s.summary and s.summary["wap.id"] == "one"]
    table.manage_snapshots().set_current_snapshot(staged.snapshot_id).commit()
    assert ids(frazil.load_table(f"{namespace}.t")) == [*range(1, 21), 30]
    audit(table)


# --- tables that come into being with their rows --------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("partitioning", ["unpartitioned", "bucket"])
def test_table_is_created_with_its_rows(
    frazil: Catalog, namespace: str, partitioning: str, version: int
) -> None:
    name = f"{namespace}.t"
    properties = {"format-version": str(version)}
    spec = PARTITIONINGS[partitioning]
    with (
        pytest.raises(ZeroDivisionError),
        frazil.create_table_transaction(
            name, SCHEMA, partition_spec=spec, properties=properties
        ) as transaction,
    ):
        transaction.append(rows(1))
        raise ZeroDivisionError
    with pytest.raises(NoSuchTableError):
        frazil.load_table(name)
    with frazil.create_table_transaction(
        name, SCHEMA, partition_spec=spec, properties=properties
    ) as transaction:
        transaction.append(rows(1, 2, 3))
        transaction.delete("id = 2")
        transaction.set_properties({"owner": "somebody"})
    table = frazil.load_table(name)
    assert ids(table) == [1, 3]
    assert table.properties["owner"] == "somebody"
    assert table.metadata.format_version == version
    audit(table)


def test_table_that_another_has_created_meanwhile_is_refused(
    frazil: Catalog, namespace: str
) -> None:
    name = f"{namespace}.t"
    transaction = frazil.create_table_transaction(name, SCHEMA)
    transaction.append(rows(1))
    create(frazil, name).append(rows(2))
    written = data_files(transaction._table)
    with pytest.raises(Exception, match="already exists"):
        transaction.commit_transaction()
    table = frazil.load_table(name)
    assert ids(table) == [2]
    assert not any(path.exists() for path in written - data_files(table))
    audit(table)


def test_tables_are_kept_by_other_means_too(frazil: Catalog, namespace: str) -> None:
    """What is no write of rows is stock's own: expiry, tags, specs and properties."""
    table: Table = create(frazil, f"{namespace}.t", "bucket")
    fill(table)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(table.snapshots()[1].snapshot_id, "kept").commit()
    with table.update_spec() as update:
        update.add_identity("item")
    table.append(rows(30, 31))
    table.delete("id in (1, 30)")
    table.maintenance.expire_snapshots().by_id(first).commit()
    table = frazil.load_table(f"{namespace}.t")
    assert first not in {found.snapshot_id for found in table.snapshots()}
    assert ids(table) == [*range(2, 21), 31]
    assert ids(table, "kept") == list(range(1, 21))
    assert len(table.inspect.partitions()) > 1
