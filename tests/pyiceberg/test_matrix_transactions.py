"""A transaction reads its own changes, and its commit has the same result."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction

from tests.pyiceberg.audit import audit, data_files, operations
from tests.pyiceberg.tables import (
    ARROW,
    PARTITIONINGS,
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


def test_tables_are_kept_by_other_means_too(frazil: Catalog, namespace: str) -> None:
    """Expiry, tags, specs and properties do not write rows; they use stock PyIceberg's code."""
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
