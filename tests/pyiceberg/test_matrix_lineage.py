"""Row lineage through PyIceberg on tables of version 3: copied rows keep their ids."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import IntegerType

from tests.pyiceberg.audit import audit
from tests.pyiceberg.lineage import lineage, metadata_of
from tests.pyiceberg.tables import (
    ARROW,
    FIRST,
    OPERATIONS,
    PARTITIONINGS,
    SECOND,
    create,
    fill,
    ids,
    row,
    rows,
)


@pytest.mark.parametrize("partitioning", PARTITIONINGS)
def test_carried_rows_keep_their_lineage(
    frazil: Catalog, namespace: str, partitioning: str
) -> None:
    table = create(frazil, f"{namespace}.t", partitioning, 3)
    fill(table)
    before = lineage(table)
    assert {before[number].last_updated for number in FIRST} == {1}
    assert {before[number].last_updated for number in SECOND} == {2}
    assert sorted(found.row_id for found in before.values()) == list(range(20))

    OPERATIONS["delete rows"](table, "main")
    after = lineage(table)
    assert len(after) < len(before)
    assert after == {number: before[number] for number in after}

    # Rows that were copied before have lineage columns and are copied again from these.
    table.delete("id = 1 or id = 13 or id = 6")
    again = lineage(table)
    assert again == {number: before[number] for number in set(after) - {1, 13, 6}}
    audit(table)


@pytest.mark.parametrize("partitioning", PARTITIONINGS)
def test_written_rows_are_new_or_updated(
    frazil: Catalog, namespace: str, partitioning: str
) -> None:
    table = create(frazil, f"{namespace}.t", partitioning, 3)
    fill(table)
    before, next_row_id = lineage(table), metadata_of(table)["next-row-id"]
    given = [row(2, amount=-2), row(5, shift=1), row(13), row(50), row(51)]
    table.upsert(pa.Table.from_pylist(given, schema=ARROW))
    after, sequence_number = lineage(table), metadata_of(table)["last-sequence-number"]
    assert set(after) == set(before) | {50, 51}
    untouched = set(before) - {2, 5}
    assert {number: after[number] for number in untouched} == {
        number: before[number] for number in untouched
    }
    for number in (2, 5):
        assert after[number].row_id == before[number].row_id, "an update keeps the row's id"
        assert 2 < after[number].last_updated <= sequence_number
    for number in (50, 51):
        assert after[number].row_id >= next_row_id
        assert 2 < after[number].last_updated <= sequence_number

    next_row_id, before = metadata_of(table)["next-row-id"], after
    table.overwrite(rows(3, 60, amount=0), overwrite_filter="id in (3, 14)")
    after = lineage(table)
    assert {after[3].row_id, after[60].row_id} & {
        found.row_id for found in before.values()
    } == set()
    assert min(after[3].row_id, after[60].row_id) >= next_row_id
    kept = set(before) - {3, 14}
    assert {number: after[number] for number in kept} == {number: before[number] for number in kept}
    audit(table)


@pytest.mark.parametrize("partitioning", ["unpartitioned", "bucket", "day"])
def test_lineage_goes_through_a_transaction_of_rewrites(
    frazil: Catalog, namespace: str, partitioning: str
) -> None:
    """Rows that a transaction rewrites twice come from files that were never committed."""
    table = create(frazil, f"{namespace}.t", partitioning, 3)
    fill(table)
    before, next_row_id = lineage(table), metadata_of(table)["next-row-id"]
    with table.transaction() as transaction:
        transaction.append(rows(30, 31, 32))
        transaction.delete("id in (1, 31)")
        with transaction.update_schema() as update:
            update.add_column("note", IntegerType())
        transaction.delete("id in (2, 13)")
        transaction.delete("id = 3")
    after = lineage(table)
    kept = set(before) - {1, 2, 3, 13}
    assert set(after) == kept | {30, 32}
    assert {number: after[number] for number in kept} == {number: before[number] for number in kept}
    assert min(after[30].row_id, after[32].row_id) >= next_row_id
    audit(table)


def test_lineage_of_a_branch_is_its_own(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t", "truncate", 3)
    fill(table)
    before = lineage(table)
    table.delete("id = 2", branch="work")
    table.delete("id in (3, 14)")
    table.append(rows(40), branch="work")
    work, main = lineage(table, "work"), lineage(table)
    for after, gone in ((work, {2}), (main, {3, 14})):
        kept = set(before) - gone
        assert {number: after[number] for number in kept} == {n: before[n] for n in kept}
    assert set(work) - set(before) == {40}
    audit(table)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("in_one_transaction", [False, True])
def test_upgraded_table_gets_lineage(
    frazil: Catalog, namespace: str, version: int, in_one_transaction: bool
) -> None:
    table = create(frazil, f"{namespace}.t", "bucket", version)
    fill(table)
    if in_one_transaction:
        with table.transaction() as transaction:
            transaction.upgrade_table_version(3)
            transaction.delete("id = 2")
            transaction.append(rows(30))
    else:
        with table.transaction() as transaction:
            transaction.upgrade_table_version(3)
        table.delete("id = 2")
        table.append(rows(30))
    assert table.metadata.format_version == 3
    assert ids(table) == [number for number in (*range(1, 21), 30) if number != 2]
    before = lineage(table)
    table.delete("id in (4, 15)")
    after = lineage(table)
    assert after == {number: before[number] for number in set(before) - {4, 15}}
