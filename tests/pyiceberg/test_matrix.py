"""Every PyIceberg write through Frazil, compared with stock PyIceberg on an in-memory catalog.

Stock PyIceberg writes the same rows to a table of version 2 with the same calls. After each step
both tables have the same rows. In the end both have the same kinds of snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.pyiceberg.audit import audit, data_files, operations
from tests.pyiceberg.tables import (
    BRANCH,
    LATER,
    OPERATIONS,
    PARTITIONINGS,
    Row,
    create,
    fill,
    ids,
    in_order,
    partition_of,
    read,
    replacement,
    rows,
)
from tests.support.pairwise import Combination, pairwise_cover

DYNAMIC = "dynamic_partition_overwrite"
EVERY, CHOSEN = pairwise_cover(tuple(OPERATIONS), tuple(PARTITIONINGS), (1, 2, 3), ("main", BRANCH))


def _case(combination: Combination) -> Any:
    marks = () if combination in CHOSEN else (pytest.mark.full,)
    operation, partitioning, version, ref = combination
    name = f"{operation.replace(' ', '_')}-{partitioning}-v{version}-{ref}"
    return pytest.param(*combination, marks=marks, id=name)


@pytest.mark.parametrize(
    ("operation", "partitioning", "version", "ref"), [_case(combination) for combination in EVERY]
)
def test_write_leaves_what_stock_leaves(
    frazil: Catalog,
    stock: Catalog,
    namespace: str,
    operation: str,
    partitioning: str,
    version: int,
    ref: str,
) -> None:
    pair = Pair(
        create(frazil, f"{namespace}.t", partitioning, version),
        create(stock, "ns.t", partitioning),
    )
    pair.do(fill)
    if ref == BRANCH:
        pair.do(_make_branch)

    write = OPERATIONS[operation]
    if _is_refused(operation, partitioning):
        pair.is_refused(lambda table: write(table, ref))
    elif operation == DYNAMIC and partitioning != "identity":
        before = read(pair.stock, ref)
        write(pair.ours, ref)
        replaced = _replaced_partitions(partitioning, before)
        assert read(pair.ours, ref) == replaced
        _append_later(pair.ours, ref)
        assert operations(audit(pair.ours))[-2:] == ["overwrite", "append"]
        return
    else:
        pair.do(lambda table: write(table, ref))
    pair.compare()
    _append_later(pair.ours, ref)

    metadata = audit(pair.ours)
    found = [str(s.summary.operation.value) for s in pair.stock.snapshots() if s.summary]
    assert operations(metadata) == [*found, "append"]
    assert pair.ours.properties.get("owner") == pair.stock.properties.get("owner")
    assert pair.ours.schema().fields == pair.stock.schema().fields


def _make_branch(table: Table) -> None:
    """Create a branch and append to main afterwards, so that using the wrong one is detected."""
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, BRANCH).commit()
    table.append(rows(90, 91))


def _is_refused(operation: str, partitioning: str) -> bool:
    """Return whether the operation is refused. Bounds do not determine a bucket, and a table
    without partitions has none to replace."""
    return (operation, partitioning) in {(DYNAMIC, "unpartitioned"), ("add_files", "bucket")}


def _replaced_partitions(partitioning: str, before: list[Row]) -> list[Row]:
    """Return the rows after a dynamic overwrite, for transforms that stock does not support."""
    given = replacement().to_pylist()
    partitions = {partition_of(partitioning, one) for one in given}
    names = sorted(given[0])
    kept = [
        one
        for one in before
        if partition_of(partitioning, dict(zip(names, one, strict=True))) not in partitions
    ]
    assert 0 < len(kept) < len(before)
    return in_order([*kept, *(tuple(one[name] for name in names) for one in given)])


def _append_later(table: Table, ref: str) -> None:
    """Check that a later append works on the table."""
    before = ids(table, ref)
    table.append(rows(*LATER), branch=ref)
    assert ids(table, ref) == [*before, *LATER]


class Pair:
    """Two tables that receive the same operations."""

    def __init__(self, ours: Table, stock: Table) -> None:
        self.ours = ours
        self.stock = stock

    def do(self, write: Callable[[Table], Any]) -> None:
        for table in (self.stock, self.ours):
            write(table)

    def is_refused(self, write: Callable[[Table], Any]) -> None:
        before = data_files(self.ours)
        with pytest.raises(ValueError) as wanted:
            write(self.stock)
        with pytest.raises(ValueError) as found:
            write(self.ours)
        assert str(found.value) == str(wanted.value)
        left = {path for path in data_files(self.ours) - before if path.parent.name != "imported"}
        assert left == set(), "a refused write leaves its files behind"
        for path in data_files(self.ours) - before:
            path.unlink()

    def compare(self) -> None:
        assert set(self.ours.refs()) == set(self.stock.refs())
        for ref in self.ours.refs():
            assert read(self.ours, ref) == read(self.stock, ref)
