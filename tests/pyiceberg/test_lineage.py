"""Row lineage of format version 3: rewritten rows keep their ids."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.types import LongType

from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED, LINEAGE, ROW_ID
from frazil.pyiceberg.manifest_reading import RowFilter
from frazil.pyiceberg.row_lineage import RowLineage
from frazil.values.deletion_vectors import DeletionVector, deletion_vector_blob
from frazil.values.puffin import write_puffin
from frazil.wire.declared_content import PositionDeleteFile
from tests.commit.finegrained.trees import local
from tests.pyiceberg.audit import audit
from tests.pyiceberg.tables import create, ids, row, rows

Lineage: TypeAlias = dict[int, tuple[int, int]]
"""Row id and last updated sequence number, by id."""


@pytest.fixture
def table(frazil: Catalog, namespace: str) -> Table:
    """Return a table with ids 1 to 8 in one file and 11 to 14 in another."""
    table = create(frazil, f"{namespace}.t", version=3)
    table.append(rows(*range(1, 9)))
    table.append(rows(*range(11, 15)))
    return table


def lineage(table: Table) -> Lineage:
    """Return the lineage by the specification: from columns, or by file and position where null."""
    head = table.metadata.current_snapshot_id
    assert head is not None
    found: Lineage = {}
    tasks = list(table.scan().plan_files())
    files = {task.file.file_path for task in tasks}
    every_row = RowFilter(AlwaysTrue(), table.schema(), case_sensitive=True)
    read = RowLineage.of(table.metadata, table.io, head, files, every_row)
    for task in tasks:
        for one in read.rows(task).to_pylist():
            assert one["id"] not in found
            found[one["id"]] = (one[ROW_ID], one[LAST_UPDATED])
    assert len({row_id for row_id, _ in found.values()}) == len(found), "ids are unique"
    return found


def delete_by_vector(table: Table, frazil: Catalog, **positions_by_first_id: list[int]) -> None:
    """Delete rows with deletion vectors, which PyIceberg cannot write."""
    from frazil import Client

    by_first_id = {
        pq.read_table(local(task.file.file_path))["id"][0].as_py(): task.file
        for task in table.scan().plan_files()
    }
    files = []
    for name, positions in positions_by_first_id.items():
        file = by_first_id[int(name.removeprefix("file_"))]
        vector = DeletionVector.from_positions(positions)
        blob = deletion_vector_blob(vector, file.file_path)
        data, (placed,) = write_puffin([blob], {"created-by": "a test"})
        path = f"{table.location()}/data/{name}.puffin"
        local(path).write_bytes(data)
        files.append(
            PositionDeleteFile(
                spec_id=0,
                partition=(),
                file_path=path,
                file_format="puffin",
                file_size_in_bytes=len(data),
                record_count=len(positions),
                content_offset=placed.offset,
                content_size_in_bytes=placed.length,
                referenced_data_file=file.file_path,
            )
        )
    with Client(frazil.properties["uri"]) as client:
        client.row_delta(".".join(table.name()), add_deletes=files)
    table.refresh()


# --- rewrites -----------------------------------------------------------------------------------


def test_first_rows_take_their_lineage_from_their_files(table: Table) -> None:
    expected = {number: (number - 1, 1) for number in range(1, 9)}
    expected |= {number: (number - 3, 2) for number in range(11, 15)}
    assert lineage(table) == expected


def test_rows_that_a_delete_leaves_stay_what_they_were(table: Table) -> None:
    before = lineage(table)
    table.delete("id = 3 or id = 12")
    kept = {number: one for number, one in before.items() if number not in (3, 12)}
    assert lineage(table) == kept
    table.delete("id = 4 or id = 11")
    kept = {number: one for number, one in kept.items() if number not in (4, 11)}
    assert lineage(table) == kept
    audit(table)


def test_rows_that_an_overwrite_leaves_stay_and_new_ones_are_new(table: Table) -> None:
    before = lineage(table)
    table.overwrite(rows(2, 20), "id <= 2")
    after = lineage(table)
    for number in (*range(3, 9), *range(11, 15)):
        assert after[number] == before[number]
    sequence_number = table.last_sequence_number
    for number in (2, 20):
        row_id, updated = after[number]
        assert row_id >= 12
        assert updated == sequence_number


def test_rewritten_files_have_the_reserved_columns_and_reads_do_not_show_them(
    table: Table,
) -> None:
    table.delete("id = 3")
    names = [field.name for field in table.schema().fields]
    assert table.scan().to_arrow().column_names == names
    rewritten = [
        pq.read_schema(local(task.file.file_path))
        for task in table.scan().plan_files()
        if task.file.record_count == 7
    ]
    (schema,) = rewritten
    ids_by_name = {
        field.name: int(field.metadata[b"PARQUET:field_id"])
        for field in schema
        if field.name in (ROW_ID, LAST_UPDATED)
    }
    assert ids_by_name == {field.name: field.field_id for field in LINEAGE.fields}
    metadata = audit(table)
    known = {field["id"] for field in metadata["schemas"][-1]["fields"]}
    for entry in table.inspect.files().to_pylist():
        for name in ("value_counts", "lower_bounds"):
            assert {key for key, _ in entry[name]} <= known


@pytest.mark.parametrize("partitioning", ["bucket", "identity", "day", "truncate"])
def test_rows_of_partitions_keep_their_lineage(
    frazil: Catalog, namespace: str, partitioning: str
) -> None:
    table = create(frazil, f"{namespace}.t", partitioning, version=3)
    table.append(rows(*range(1, 25)))
    before = lineage(table)
    table.delete("id in (3, 7, 11, 15)")
    assert lineage(table) == {
        number: one for number, one in before.items() if number not in (3, 7, 11, 15)
    }


def test_deletion_vectors_are_applied_before_rows_are_counted(
    frazil: Catalog, table: Table
) -> None:
    before = lineage(table)
    delete_by_vector(table, frazil, file_1=[0, 4], file_11=[3])
    gone = {1, 5, 14}
    assert lineage(table) == {key: one for key, one in before.items() if key not in gone}
    table.delete("id = 3 or id = 11")
    gone |= {3, 11}
    assert ids(table) == [2, 4, 6, 7, 8, 12, 13]
    assert lineage(table) == {key: one for key, one in before.items() if key not in gone}


def test_rows_keep_their_lineage_after_a_change_of_schema(table: Table) -> None:
    before = lineage(table)
    with table.update_schema() as update:
        update.add_column("more", LongType())
        update.rename_column("amount", "sum")
    table.delete("id = 3")
    assert lineage(table) == {key: one for key, one in before.items() if key != 3}


def test_rows_of_a_table_that_was_upgraded(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t", version=2)
    table.append(rows(*range(1, 9)))
    with table.transaction() as transaction:
        transaction.upgrade_table_version(3)
    table.append(rows(20))
    before = lineage(table)
    assert all(row_id is not None for row_id, _ in before.values())
    table.delete("id = 3")
    assert lineage(table) == {key: one for key, one in before.items() if key != 3}


def test_a_column_of_a_reserved_name_is_refused(frazil: Catalog, namespace: str) -> None:
    from tests.stock_clients.stock import ID_NAME, id_name

    table = frazil.create_table((namespace, "t"), ID_NAME, properties={"format-version": "2"})
    with table.update_schema() as update:
        update.rename_column("name", ROW_ID)
    with table.transaction() as transaction:
        transaction.upgrade_table_version(3)
    table.append(id_name(1, 2).rename_columns(["id", ROW_ID]))
    with pytest.raises(ValueError, match="rename it"):
        table.delete("id = 1")
    assert len(table.scan().to_arrow()) == 2


# --- upserts ------------------------------------------------------------------------------------


def changed(*numbers: int) -> Any:
    return rows(*numbers, amount=-1)


def test_an_updated_row_keeps_its_id_and_is_updated_now(table: Table) -> None:
    before = lineage(table)
    result = table.upsert(changed(3, 12, 30))
    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    after = lineage(table)
    new_id, _ = after.pop(30)
    assert new_id not in {row_id for row_id, _ in before.values()}
    assert {key: row_id for key, (row_id, _) in after.items()} == {
        key: row_id for key, (row_id, _) in before.items()
    }
    for key, (_, updated) in after.items():
        if key in (3, 12):
            assert updated > 2
        else:
            assert updated == before[key][1]
    amounts = {one["id"]: one["amount"] for one in table.scan().to_arrow().to_pylist()}
    assert (amounts[3], amounts[4]) == (-1, row(4)["amount"])
    audit(table)


def test_rows_of_files_that_an_upsert_drops_unread(table: Table) -> None:
    """All rows of the second file are updated, so PyIceberg drops it because of its metrics."""
    before = lineage(table)
    table.upsert(changed(11, 12, 13, 14))
    after = lineage(table)
    assert {key: after[key][0] for key in after} == {key: before[key][0] for key in before}
    assert {after[key][1] for key in range(11, 15)} == {table.last_sequence_number}


def test_updates_by_several_key_columns(frazil: Catalog, namespace: str) -> None:
    table = create(frazil, f"{namespace}.t", "bucket", version=3)
    table.append(rows(*range(1, 9)))
    before = lineage(table)
    table.upsert(changed(1, 2, 8), join_cols=["id", "item"])
    after = lineage(table)
    present = {key for key in (1, 2, 8) if row(key)["item"] is not None}
    assert {key: after[key][0] for key in present} == {key: before[key][0] for key in present}


def test_two_updates_in_one_transaction(table: Table) -> None:
    before = lineage(table)
    with table.transaction() as transaction:
        transaction.upsert(changed(3))
        transaction.upsert(rows(3, 12, amount=-2))
        transaction.delete("id = 4")
        transaction.append(rows(40, 41))
        transaction.delete("id = 40")
    after = lineage(table)
    assert ids(table) == [1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 14, 41]
    for key in after:
        if key != 41:
            assert after[key][0] == before[key][0]
    assert after[41][0] not in {row_id for row_id, _ in before.values()}
    audit(table)
