"""Copies of data files omit deleted rows and preserve columns, partition and lineage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyiceberg.catalog import load_catalog

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile, EqualityDeleteFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import storage_of
from frazil.datafiles.reading.scan_tasks import DeletedRows, task_of
from frazil.datafiles.reading.task_reader import read_task
from frazil.datafiles.writing import data_file_writer
from frazil.spark.rows.changed_rows import copy_files
from frazil.spark.writing.write_commit import new_folder
from frazil.wire.errors import BadRequest, UnsupportedOperation
from tests.support.touched_tables import (
    ARROW,
    add_file,
    arrow_field,
    local,
    make_table,
    touch,
    without_spark,
)

LINEAGE = ("_row_id", "_last_updated_sequence_number")


def copy(
    client: Client, table: Table, positions: Mapping[str, Sequence[int]]
) -> tuple[DataFile, ...]:
    """Copy and commit; the order of the copies is not defined."""
    context = without_spark(client)
    touched = touch(table, positions)
    copies = copy_files(context, table, touched, new_folder(context, table))
    table.overwrite_files(copies, [one.file_path for one in touched])
    return copies


def rows_of(client: Client, name: str, *metadata_columns: str) -> dict[int, tuple[Any, ...]]:
    """Return the rows by id, as our own reader reads them."""
    table = client.load_table(name)
    facts, storage = PortableTable.of(table), storage_of(table.config)
    found = {}
    for planned in table.plan(sequence_numbers=True).tasks:
        task = task_of(planned)
        for batch in read_task(
            task, facts, storage, table.schema, metadata_columns=metadata_columns
        ):
            for row in batch.to_pylist():
                first, *others = row.values()
                found[first] = tuple(others)
    return found


def test_a_copy_has_the_rows_that_stay(client: Client, server_url: str, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    copies = copy(client, table, {"0": [0, 9], "2": [5]})
    first, second = sorted(copies, key=lambda file: file.record_count)
    assert (first.record_count, second.record_count) == (8, 9)
    assert (first.partition, second.partition) == (("a",), ("b",))
    assert pq.read_table(local(first.file_path))["id"].to_pylist() == list(range(1, 9))
    read = DataFile.from_parquet(first.file_path, table, partition=("a",))
    assert read == first
    rows = load_catalog("other", type="rest", uri=server_url).load_table(f"{namespace}.t").scan()
    expected = [*range(1, 9), *range(10, 25), *range(26, 30)]
    assert sorted(rows.to_arrow()["id"].to_pylist()) == expected


def test_a_file_with_no_row_left_has_no_copy(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    (only,) = copy(client, table, {"0": range(10), "1": [0]})
    assert only.record_count == 9
    assert sorted(rows_of(client, f"{namespace}.t")) == list(range(11, 30))


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_were_deleted_before_stay_away(
    client: Client, namespace: str, version: int
) -> None:
    from frazil.spark.rows.changed_rows import write_deletes

    table = make_table(client, namespace, version)
    context = without_spark(client)
    written = write_deletes(context, table, touch(table, {"0": [1]}), new_folder(context, table))
    table.row_delta(add_deletes=written.added)
    (only,) = copy(client, client.load_table(f"{namespace}.t"), {"0": [0]})
    assert only.record_count == 8
    assert sorted(rows_of(client, f"{namespace}.t")) == list(range(2, 30))


def test_equality_deletes_are_applied(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    keys = pa.table({"id": [3, 4]}, pa.schema([arrow_field("id", pa.int64(), 1)]))
    path = add_file(table, "keys", keys)
    deletes = EqualityDeleteFile.from_parquet(path, table, columns=["id"], partition=("a",))
    table.row_delta(add_deletes=[deletes])
    copy(client, client.load_table(f"{namespace}.t"), {"0": [0], "1": [1]})
    expected = [1, 2, *range(5, 11), *range(12, 30)]
    assert sorted(rows_of(client, f"{namespace}.t")) == expected


def test_row_groups_of_which_nothing_stays_are_left_out(client: Client, namespace: str) -> None:
    table = client.create_table(f"{namespace}.t", {"type": "struct", "fields": FIELDS})
    ids = list(range(100))
    rows = pa.table({"id": ids, "part": [str(one) for one in ids]}, ARROW)
    table.append_files([add_file(table, "0", rows, row_group_size=10)])
    gone = [5, *range(10, 20), 99]
    (only,) = copy(client, client.load_table(f"{namespace}.t"), {"0": gone})
    left = [one for one in ids if one not in gone]
    assert pq.read_table(local(only.file_path)).to_pydict() == {
        "id": left,
        "part": [str(one) for one in left],
    }
    # A copy merges small row groups into larger ones.
    assert pq.read_metadata(local(only.file_path)).num_row_groups == 1


FIELDS = [
    {"id": 1, "name": "id", "required": False, "type": "long"},
    {"id": 2, "name": "part", "required": False, "type": "string"},
]


# --- lineage --------------------------------------------------------------------------------------


def test_copied_rows_keep_their_lineage(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 3)
    before = rows_of(client, f"{namespace}.t", *LINEAGE)
    assert before[25][1:] == (25, 1)
    (first,) = copy(client, table, {"2": [0]})
    after = rows_of(client, f"{namespace}.t", *LINEAGE)
    assert after == {key: row for key, row in before.items() if key != 20}
    # The copy contains the columns now, and a second copy reads them from there.
    name = local(first.file_path).stem
    copy(client, client.load_table(f"{namespace}.t"), {name: [0]})
    again = rows_of(client, f"{namespace}.t", *LINEAGE)
    assert again == {key: row for key, row in after.items() if key != 21}


def test_a_null_in_the_columns_is_implied_by_the_file(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 3)
    fields = [*ARROW, arrow_field(LINEAGE[0], pa.int64(), 2147483540)]
    fields.append(arrow_field(LINEAGE[1], pa.int64(), 2147483539))
    columns = {"id": [100, 101], "part": ["a", "a"], LINEAGE[0]: [7, None], LINEAGE[1]: [None] * 2}
    table.append_files([add_file(table, "mixed", pa.table(columns, pa.schema(fields)))])
    before = rows_of(client, f"{namespace}.t", *LINEAGE)
    assert before[100][1:] == (7, 2)
    copy(client, client.load_table(f"{namespace}.t"), {"mixed": []})
    after = rows_of(client, f"{namespace}.t", *LINEAGE)
    assert after == before
    # A row that has an id never gets a new one.
    assert after[101][1] == before[101][1]


def test_rows_from_before_version_3_have_no_lineage_to_keep(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    table.declare_metadata([{"action": "upgrade-format-version", "format-version": 3}])
    (only,) = copy(client, client.load_table(f"{namespace}.t"), {"0": [0]})
    assert pq.read_schema(local(only.file_path)).names == ["id", "part"]


def test_a_plan_without_sequence_numbers_is_refused(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 3)
    (one,) = touch(table, {"0": [0]})
    task = replace(one.task, data_file=replace(one.task.data_file, data_sequence_number=None))
    context = without_spark(client)
    with pytest.raises(BadRequest, match="sequence_numbers=True"):
        copy_files(context, table, [DeletedRows(task, one.positions)], new_folder(context, table))


# --- evolution ------------------------------------------------------------------------------------


def test_a_copy_has_the_current_columns(client: Client, namespace: str) -> None:
    fields = [
        {"id": 1, "name": "id", "required": False, "type": "int"},
        {"id": 2, "name": "old", "required": False, "type": "string"},
        {"id": 3, "name": "gone", "required": False, "type": "string"},
    ]
    table = client.create_table(
        f"{namespace}.t",
        {"type": "struct", "fields": fields},
        properties={"format-version": "3"},
    )
    types = pa.schema(
        [
            arrow_field("id", pa.int32(), 1),
            arrow_field("old", pa.string(), 2),
            arrow_field("gone", pa.string(), 3),
        ]
    )
    columns = {"id": [1, 2, 3], "old": ["a", "b", "c"], "gone": ["x", "y", "z"]}
    table.append_files([add_file(table, "0", pa.table(columns, types))])
    evolved = [
        {"id": 4, "name": "added", "required": True, "type": "string", "initial-default": "?"},
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "renamed", "required": False, "type": "string"},
    ]
    evolve(client, namespace, {"type": "struct", "schema-id": 1, "fields": evolved})
    (only,) = copy(client, client.load_table(f"{namespace}.t"), {"0": [1]})
    copied = pq.read_table(local(only.file_path))
    assert copied.to_pydict() == {
        "added": ["?", "?"],
        "id": [1, 3],
        "renamed": ["a", "c"],
        LINEAGE[0]: [0, 2],
        LINEAGE[1]: [1, 1],
    }
    assert copied.schema.field("id").type == pa.int64()


def evolve(client: Client, namespace: str, schema: Mapping[str, Any]) -> None:
    client.load_table(f"{namespace}.t").declare_metadata(
        [
            {"action": "add-schema", "schema": schema},
            {"action": "set-current-schema", "schema-id": -1},
        ]
    )


def test_a_file_that_has_none_of_the_columns(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    ids = pa.table({"id": [100, 101]}, pa.schema([ARROW.field(0)]))
    path = add_file(table, "narrow", ids)
    table.append_files([DataFile.from_parquet(path, table, partition=("b",))])
    evolve(client, namespace, {"type": "struct", "schema-id": 1, "fields": FIELDS[1:]})
    (only,) = copy(client, client.load_table(f"{namespace}.t"), {"narrow": [0]})
    # An identity partition provides the value of a column that is missing in the file.
    assert pq.read_table(local(only.file_path)).to_pydict() == {"part": ["b"]}


def test_a_copy_stays_in_the_spec_of_its_file(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    by_bucket = [{"source-id": 1, "field-id": 1001, "name": "b", "transform": "bucket[4]"}]
    table.declare_metadata(
        [
            {"action": "add-spec", "spec": {"spec-id": 1, "fields": by_bucket}},
            {"action": "set-default-spec", "spec-id": -1},
        ]
    )
    table = client.load_table(f"{namespace}.t")
    assert table.spec()["spec-id"] == 1
    (only,) = copy(client, table, {"2": [3]})
    assert (only.spec_id, only.partition) == (0, ("b",))
    assert sorted(rows_of(client, f"{namespace}.t")) == [*range(23), *range(24, 30)]


def test_of_a_dropped_partition_column_null_is_known(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    table.declare_metadata(
        [
            {"action": "add-spec", "spec": {"spec-id": 1, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
        ]
    )
    evolve(client, namespace, {"type": "struct", "schema-id": 1, "fields": FIELDS[:1]})
    (only,) = copy(client, client.load_table(f"{namespace}.t"), {"2": [3]})
    assert (only.spec_id, only.partition) == (0, (None,))
    assert sorted(rows_of(client, f"{namespace}.t")) == [*range(23), *range(24, 30)]


def test_a_copy_keeps_the_sort_order_of_its_file(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    order = {
        "order-id": 1,
        "fields": [
            {
                "transform": "identity",
                "source-id": 1,
                "direction": "asc",
                "null-order": "nulls-first",
            }
        ],
    }
    table.declare_metadata([{"action": "add-sort-order", "sort-order": order}])
    table = client.load_table(f"{namespace}.t")
    rows = pa.table({"id": [50, 51], "part": ["b", "b"]}, ARROW)
    path = add_file(table, "sorted", rows)
    table.append_files([DataFile.from_parquet(path, table, sort_order_id=1)])
    copies = copy(client, client.load_table(f"{namespace}.t"), {"sorted": [0], "0": [0]})
    assert {file.record_count: file.sort_order_id for file in copies} == {1: 1, 9: None}


# --- failures -------------------------------------------------------------------------------------


def test_a_copy_that_fails_leaves_nothing_behind(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(client, namespace, 2, **{"write.parquet.row-group-size-bytes": "1"})

    def breaking(*args: Any) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[1, 2], ["a", "a"]], schema=ARROW)
        raise OSError("the disk is gone")

    monkeypatch.setattr(data_file_writer, "live_rows", breaking)
    context = without_spark(client)
    folder = new_folder(context, table)
    with pytest.raises(OSError, match="the disk is gone"):
        copy_files(context, table, touch(table, {"0": [0]}), folder)
    assert folder.storage.list(folder.location) == []


def test_files_of_another_format_are_refused(client: Client, namespace: str) -> None:
    table = make_table(client, namespace, 2)
    (one,) = touch(table, {"0": [0]})
    task = replace(one.task, data_file=replace(one.task.data_file, file_format="orc"))
    context = without_spark(client)
    with pytest.raises(UnsupportedOperation, match="merge-on-read"):
        copy_files(context, table, [DeletedRows(task, one.positions)], new_folder(context, table))
