"""Scan tasks through Arrow: columns by id, all kinds of deletes, and values that a file implies.

No Spark is needed: pyarrow writes the files, and the tasks look as in a plan.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.deletes_reader import KeySet, deleted_positions
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.scan_tasks import ScanTask, split_tasks, task_of
from frazil.datafiles.reading.task_reader import read_task
from frazil.values import types
from frazil.values.column_matching import DELETE_FILE_PATH_ID, DELETE_POS_ID
from frazil.values.deletion_vectors import DeletionVector, deletion_vector_blob
from frazil.values.puffin import write_puffin
from frazil.values.type_json import struct_to_json
from frazil.values.types import DOUBLE, INT, LONG, STRING, NestedField, StructType
from frazil.wire.errors import BadRequest, UnsupportedOperation
from frazil.wire.scan_planning import FileScanTask, PlannedDataFile, PlannedDeleteFile

STORAGE = Storage()
ID = NestedField(1, "id", LONG, True)
NAME = NestedField(2, "name", STRING, False)
PLAIN = StructType((ID, NAME))
UNPARTITIONED = {"spec-id": 0, "fields": []}
_numbers = itertools.count()


def facts(*schemas: StructType, spec: Any = UNPARTITIONED, **properties: str) -> PortableTable:
    """Return a table whose last schema is the current one."""
    parts = [
        {**struct_to_json(schema), "schema-id": number} for number, schema in enumerate(schemas)
    ]
    metadata = {
        "format-version": 3,
        "location": "file:///nowhere",
        "schemas": parts,
        "current-schema-id": len(schemas) - 1,
        "partition-specs": [spec],
        "default-spec-id": 0,
    }
    return PortableTable("ns.t", {**metadata, "properties": properties}, {})


def column(name: str, type_: Any, field_id: int) -> pa.Field:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(field_id)})


FILE = pa.schema([column("id", pa.int64(), 1), column("name", pa.string(), 2)])


def write(folder: Path, table: pa.Table, **options: Any) -> str:
    path = folder / f"{next(_numbers)}.parquet"
    pq.write_table(table, path, **options)
    return str(path)


def data(path: str, **members: Any) -> PlannedDataFile:
    return PlannedDataFile(
        **{
            "file_path": path,
            "file_format": "parquet",
            "spec_id": 0,
            "file_size_in_bytes": Path(path).stat().st_size,
            "record_count": 1,
            **members,
        }
    )


def deletes(path: str, content: str = "position-deletes", **members: Any) -> PlannedDeleteFile:
    return PlannedDeleteFile(
        **{
            "content": content,
            "file_path": path,
            "file_format": "parquet",
            "spec_id": 0,
            "file_size_in_bytes": Path(path).stat().st_size,
            "record_count": 1,
            **members,
        }
    )


def position_deletes(folder: Path, *rows: tuple[str, int], **members: Any) -> PlannedDeleteFile:
    schema = pa.schema(
        [
            column("file_path", pa.string(), DELETE_FILE_PATH_ID),
            column("pos", pa.int64(), DELETE_POS_ID),
        ]
    )
    table = pa.table({"file_path": [r[0] for r in rows], "pos": [r[1] for r in rows]}, schema)
    return deletes(write(folder, table), **members)


def vector(folder: Path, data_file: str, *positions: int) -> PlannedDeleteFile:
    blob = deletion_vector_blob(DeletionVector.from_positions(positions), data_file)
    content, (placed,) = write_puffin([blob], {})
    path = folder / f"{next(_numbers)}.puffin"
    path.write_bytes(content)
    return deletes(
        str(path),
        file_format="puffin",
        referenced_data_file=data_file,
        content_offset=placed.offset,
        content_size_in_bytes=placed.length,
    )


def equality(folder: Path, table: pa.Table, *ids: int) -> PlannedDeleteFile:
    return deletes(write(folder, table), "equality-deletes", equality_ids=ids)


def rows(task: ScanTask, of: PortableTable, columns: StructType, *metadata: str) -> list[Any]:
    """Return the rows of one task as tuples."""
    found: list[Any] = []
    for batch in read_task(task, of, STORAGE, columns, metadata_columns=metadata, batch_rows=3):
        found += zip(*(one.to_pylist() for one in batch.columns), strict=True)
    return found


def ids(task: ScanTask, of: PortableTable | None = None) -> list[int]:
    return [row[0] for row in rows(task, of or facts(PLAIN), StructType((ID,)))]


def letters(folder: Path, count: int = 8, **options: Any) -> str:
    """Write a file of the rows (0, "a"), (1, "b") and so on."""
    names = [chr(ord("a") + number) for number in range(count)]
    return write(folder, pa.table({"id": range(count), "name": names}, FILE), **options)


# --- columns --------------------------------------------------------------------------------------


def test_columns_of_an_older_file_are_found_by_id(tmp_path: Path) -> None:
    old = StructType((ID, NAME, NestedField(3, "size", INT, False)))
    now = StructType(
        (
            NestedField(3, "extent", LONG, False),
            NestedField(1, "key", LONG, True),
            NestedField(4, "name", STRING, False),
            NestedField(5, "kind", STRING, False, initial_default="plain"),
        )
    )
    schema = pa.schema([*FILE, column("size", pa.int32(), 3)])
    path = write(tmp_path, pa.table({"id": [1, 2], "name": ["a", "b"], "size": [7, None]}, schema))
    found = rows(ScanTask(data_file=data(path)), facts(old, now), now)
    assert found == [(7, 1, None, "plain"), (None, 2, None, "plain")]


def test_batches_of_large_rows_have_few_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil.datafiles.reading.task_reader._MAX_BATCH_BYTES", 4 << 10)
    names = [f"{number}" * 1024 for number in range(10)] * 4
    table = pa.table({"id": range(40), "name": names}, FILE)
    path = write(tmp_path, table, row_group_size=16, use_dictionary=False, compression="none")
    task = ScanTask(data_file=data(path), delete_files=(vector(tmp_path, path, 17, 39),))
    batches = list(
        read_task(task, facts(PLAIN), STORAGE, PLAIN, metadata_columns=("_pos",), batch_rows=100)
    )
    assert max(batch.num_rows for batch in batches) < 5
    found = [number for batch in batches for number in batch.column("_pos").to_pylist()]
    assert found == [number for number in range(40) if number not in (17, 39)]
    assert [id for batch in batches for id in batch.column("id").to_pylist()] == found


def test_without_columns_rows_are_counted(tmp_path: Path) -> None:
    task = ScanTask(
        data_file=data(path := letters(tmp_path)), delete_files=(vector(tmp_path, path, 1),)
    )
    batches = list(read_task(task, facts(PLAIN), STORAGE, StructType(), batch_rows=3))
    assert sum(batch.num_rows for batch in batches) == 7
    assert {batch.num_columns for batch in batches} == {0}


def test_a_partition_tells_what_the_file_does_not_have(tmp_path: Path) -> None:
    spec = {
        "spec-id": 0,
        "fields": [
            {"source-id": 2, "field-id": 1000, "name": "name", "transform": "identity"},
            {"source-id": 1, "field-id": 1001, "name": "id_bucket", "transform": "bucket[4]"},
        ],
    }
    path = write(tmp_path, pa.table({"id": [1, 2]}, pa.schema([FILE.field("id")])))
    task = ScanTask(data_file=data(path, partition=("x", 3)))
    assert rows(task, facts(PLAIN, spec=spec), PLAIN) == [(1, "x"), (2, "x")]


def test_a_partition_may_be_no_number_of_json(tmp_path: Path) -> None:
    schema = StructType((ID, NestedField(2, "size", DOUBLE, False)))
    fields = [{"source-id": 2, "field-id": 1000, "name": "size", "transform": "identity"}]
    path = write(tmp_path, pa.table({"id": [1]}, pa.schema([FILE.field("id")])))
    table = facts(schema, spec={"spec-id": 0, "fields": fields})
    ((_, size),) = rows(ScanTask(data_file=data(path, partition=("-Infinity",))), table, schema)
    assert size == -math.inf


def test_a_file_without_ids_is_read_by_the_name_mapping(tmp_path: Path) -> None:
    path = write(tmp_path, pa.table({"name": [7], "ID": ["x"]}))
    mapping = '[{"field-id": 1, "names": ["name"]}, {"field-id": 2, "names": ["id", "ID"]}]'
    table = facts(PLAIN, **{"schema.name-mapping.default": mapping})
    assert rows(ScanTask(data_file=data(path)), table, PLAIN) == [(7, "x")]


def test_metadata_columns(tmp_path: Path) -> None:
    path = letters(tmp_path, 4)
    task = ScanTask(data_file=data(path, spec_id=0), delete_files=(vector(tmp_path, path, 1),))
    found = rows(task, facts(PLAIN), StructType((NAME,)), "_pos", "_file", "_spec_id")
    assert found == [("a", 0, path, 0), ("c", 2, path, 0), ("d", 3, path, 0)]
    with pytest.raises(BadRequest, match="_posn"):
        rows(task, facts(PLAIN), PLAIN, "_posn")


# --- row lineage ----------------------------------------------------------------------------------

LINEAGE = ("_row_id", "_last_updated_sequence_number")


def test_a_file_implies_the_lineage_of_its_rows(tmp_path: Path) -> None:
    path = letters(tmp_path, 3)
    task = ScanTask(data_file=data(path, first_row_id=100, data_sequence_number=7))
    found = rows(task, facts(PLAIN), StructType((ID,)), *LINEAGE)
    assert found == [(0, 100, 7), (1, 101, 7), (2, 102, 7)]


def test_lineage_that_rows_took_along_goes_before_what_the_file_implies(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            FILE.field("id"),
            column("_row_id", pa.int64(), 2147483540),
            column("_last_updated_sequence_number", pa.int64(), 2147483539),
        ]
    )
    own = {"_row_id": [5, None, 6], "_last_updated_sequence_number": [2, None, None]}
    path = write(tmp_path, pa.table({"id": [0, 1, 2], **own}, schema))
    task = ScanTask(data_file=data(path, first_row_id=100, data_sequence_number=7))
    found = rows(task, facts(PLAIN), StructType((ID,)), *LINEAGE)
    assert found == [(0, 5, 2), (1, 101, 7), (2, 6, 7)]


def test_files_from_before_version_3_have_no_lineage(tmp_path: Path) -> None:
    task = ScanTask(data_file=data(letters(tmp_path, 1), data_sequence_number=7))
    assert rows(task, facts(PLAIN), StructType((ID,)), *LINEAGE) == [(0, None, None)]


def test_lineage_needs_the_sequence_number_of_the_plan(tmp_path: Path) -> None:
    task = ScanTask(data_file=data(letters(tmp_path, 1), first_row_id=1))
    assert rows(task, facts(PLAIN), StructType((ID,)), "_row_id") == [(0, 1)]
    with pytest.raises(BadRequest, match="sequence_numbers=True"):
        rows(task, facts(PLAIN), StructType((ID,)), *LINEAGE)


# --- deletes by position --------------------------------------------------------------------------


def test_position_deletes_of_one_file_and_of_a_partition(tmp_path: Path) -> None:
    path, other = letters(tmp_path), "/other.parquet"
    partition = position_deletes(tmp_path, (other, 0), (path, 2), (path, 7), (other, 5))
    own = position_deletes(tmp_path, (path, 3), referenced_data_file=path)
    task = ScanTask(data_file=data(path), delete_files=(partition, own))
    assert ids(task) == [0, 1, 4, 5, 6]
    assert list(deleted_positions(task, STORAGE)) == [2, 3, 7]


def test_a_deletion_vector(tmp_path: Path) -> None:
    path = letters(tmp_path)
    task = ScanTask(data_file=data(path), delete_files=(vector(tmp_path, path, 0, 1, 6),))
    assert ids(task) == [2, 3, 4, 5, 7]
    assert list(deleted_positions(task, STORAGE)) == [0, 1, 6]


def test_all_rows_may_be_deleted(tmp_path: Path) -> None:
    path = letters(tmp_path)
    task = ScanTask(data_file=data(path), delete_files=(vector(tmp_path, path, *range(8)),))
    assert ids(task) == []


def test_parts_of_a_file_know_their_positions(tmp_path: Path) -> None:
    path = letters(tmp_path, 20, row_group_size=3)
    groups = pq.ParquetFile(path).metadata
    offsets = tuple(
        groups.row_group(number).column(0).dictionary_page_offset
        for number in range(groups.num_row_groups)
    )
    whole = ScanTask(
        data_file=data(path, split_offsets=offsets, first_row_id=50),
        delete_files=(vector(tmp_path, path, 4, 13, 19),),
    )
    size = whole.data_file.file_size_in_bytes
    parts = list(split_tasks([whole], size // 8))
    assert len(parts) > 2
    assert sum(part.size_in_bytes for part in parts) - size == len(parts) * (
        whole.size_in_bytes - size
    )
    found = [
        row
        for part in parts
        for row in rows(part, facts(PLAIN), StructType((ID,)), "_pos", "_row_id")
    ]
    assert found == [(at, at, 50 + at) for at in range(20) if at not in (4, 13, 19)]
    assert list(split_tasks([whole], size)) == [whole]


def test_a_broken_vector_is_named(tmp_path: Path) -> None:
    path = letters(tmp_path)
    broken = vector(tmp_path, path, 1, 2)
    data_bytes = bytearray(Path(broken.file_path).read_bytes())
    assert broken.content_offset is not None
    data_bytes[broken.content_offset + 12] ^= 1
    Path(broken.file_path).write_bytes(data_bytes)
    with pytest.raises(BadRequest, match=r"puffin: the deletion vector at byte 4: "):
        ids(ScanTask(data_file=data(path), delete_files=(broken,)))


@pytest.mark.parametrize("content", ["position-deletes", "equality-deletes"])
def test_other_formats_are_refused(tmp_path: Path, content: str) -> None:
    path = letters(tmp_path)
    odd = deletes(path, content, file_format="avro", equality_ids=(1,))
    with pytest.raises(UnsupportedOperation, match="avro"):
        ids(ScanTask(data_file=data(path), delete_files=(odd,)))
    with pytest.raises(UnsupportedOperation, match="orc"):
        ids(ScanTask(data_file=data(path, file_format="orc")))


# --- deletes by equality --------------------------------------------------------------------------


def test_equality_deletes_of_several_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        pa.table({"id": [1, 1, 2, 2, 3], "name": ["a", None, "a", "b", None]}, FILE),
    )
    by_both = equality(tmp_path, pa.table({"id": [1, 2], "name": [None, "b"]}, FILE), 1, 2)
    by_id = equality(tmp_path, pa.table({"id": [3]}, pa.schema([FILE.field("id")])), 1)
    task = ScanTask(data_file=data(path), delete_files=(by_both, by_id))
    assert rows(task, facts(PLAIN), PLAIN) == [(1, "a"), (2, "a")]
    # Deletes may compare columns that the scan does not read.
    assert rows(task, facts(PLAIN), StructType((NAME,))) == [("a",), ("a",)]


def test_a_delete_file_may_have_more_columns_than_are_compared(tmp_path: Path) -> None:
    path = letters(tmp_path, 3)
    table = pa.table({"name": ["z", "z"], "id": [0, 2]}, pa.schema([FILE.field(1), FILE.field(0)]))
    task = ScanTask(data_file=data(path), delete_files=(equality(tmp_path, table, 1),))
    assert ids(task) == [1]


def test_equality_deletes_by_a_column_that_was_dropped_or_came_later(tmp_path: Path) -> None:
    now = StructType((ID, NestedField(3, "kind", STRING, False, initial_default="plain")))
    path = letters(tmp_path, 3)
    kinds = pa.schema([column("kind", pa.string(), 3)])
    by_name = equality(tmp_path, pa.table({"name": ["b"]}, pa.schema([FILE.field("name")])), 2)
    by_kind = equality(tmp_path, pa.table({"kind": ["plain"]}, kinds), 3)
    task = ScanTask(data_file=data(path), delete_files=(by_name,))
    assert ids(task, facts(PLAIN, now)) == [0, 2]
    task = ScanTask(data_file=data(path), delete_files=(by_kind,))
    assert ids(task, facts(PLAIN, now)) == []
    unknown = equality(tmp_path, pa.table({"kind": ["plain"]}, kinds), 9)
    with pytest.raises(BadRequest, match="field 9"):
        ids(ScanTask(data_file=data(path), delete_files=(unknown,)), facts(PLAIN, now))


def test_equality_deletes_by_a_field_of_a_struct_and_by_a_uuid(tmp_path: Path) -> None:
    one, two = UUID(int=1), UUID(int=2)
    schema = StructType(
        (
            ID,
            NestedField(2, "point", StructType((NestedField(3, "x", DOUBLE, False),)), False),
            NestedField(4, "token", types.UUID, False),
        )
    )
    point = column("point", pa.struct([column("x", pa.float64(), 3)]), 2)
    token = column("token", pa.uuid(), 4)
    values = {
        "id": [1, 2, 3, 4, 5],
        "point": [{"x": 1.0}, {"x": math.nan}, {"x": None}, None, {"x": 2.0}],
        "token": [one.bytes, two.bytes, None, one.bytes, two.bytes],
    }
    path = write(tmp_path, pa.table(values, pa.schema([FILE.field("id"), point, token])))
    by_x = pa.table({"point": [{"x": math.nan}, {"x": None}]}, pa.schema([point]))
    task = ScanTask(data_file=data(path), delete_files=(equality(tmp_path, by_x, 3),))
    assert ids(task, facts(schema)) == [1, 5]
    by_token = pa.table({"token": [one.bytes, None]}, pa.schema([token]))
    task = ScanTask(data_file=data(path), delete_files=(equality(tmp_path, by_token, 4),))
    assert ids(task, facts(schema)) == [2, 5]


def test_an_empty_delete_file_deletes_nothing(tmp_path: Path) -> None:
    path = letters(tmp_path, 2)
    none = equality(tmp_path, FILE.empty_table(), 1, 2)
    assert ids(ScanTask(data_file=data(path), delete_files=(none,))) == [0, 1]


_VALUES = st.sampled_from([None, 0, 1, 2])
_KEYS = st.lists(st.tuples(_VALUES, _VALUES, _VALUES), max_size=12)


@given(keys=_KEYS, looked_up=_KEYS)
def test_keys_are_found_as_whole_rows(
    keys: Sequence[tuple[Any, ...]], looked_up: Sequence[tuple[Any, ...]]
) -> None:
    def columns(of: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        return [pa.array([row[place] for row in of], pa.int64()) for place in range(3)]

    found = KeySet(columns(keys)).contains(columns(looked_up))
    assert found.tolist() == [row in keys for row in looked_up]


# --- tasks ----------------------------------------------------------------------------------------


def test_a_task_travels_as_json(tmp_path: Path) -> None:
    path = letters(tmp_path)
    planned = FileScanTask(
        data(path, partition=("x", None, 5), split_offsets=(4, 90), first_row_id=3),
        (vector(tmp_path, path, 1), position_deletes(tmp_path, (path, 2))),
        {"type": "eq", "term": "id", "value": 1},
    )
    task = task_of(planned)
    assert ScanTask.from_json(task.to_json()) == task
    assert (task.data_file, task.delete_files, task.residual) == (
        planned.data_file,
        planned.delete_files,
        planned.residual,
    )
