"""One pass over changed rows finds what to write, what to delete, and what is matched twice."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zipimport import zipimporter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.client.rows.row_removal import Item, run_locally, shares
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.scan_tasks import DeletedRows, task_of
from frazil.datafiles.writing.changes_writer import ChangesTask, TaskChanges, decode_changes
from frazil.datafiles.writing.write_properties import file_options
from frazil.spark.core.context import Context, Settings
from frazil.spark.executor.worker_tasks import arrow_task, keep_archives, task_name
from frazil.spark.rows import changed_rows
from frazil.spark.rows.changed_rows import (
    ChangedRows,
    copy_files,
    united,
    write_changes,
    write_deletes,
)
from frazil.spark.writing.write_commit import new_folder
from frazil.wire.errors import BadRequest
from tests.support.touched_tables import local, make_table

COLUMNS = ("id", "part", "_file", "_pos", "__frazil_delete", "__frazil_write", "_row_id")
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("_file", pa.string()),
        ("_pos", pa.int64()),
        ("__frazil_delete", pa.bool_()),
        ("__frazil_write", pa.bool_()),
        ("_row_id", pa.int64()),
        ("_partition_0", pa.string()),
    ]
)
Row = tuple[Any, ...]


def batch(*rows: Row) -> pa.RecordBatch:
    """Build rows as a task receives them; their partition is their part."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(column, field.type)
            for column, field in zip([*columns, columns[1]], TYPES, strict=True)
        ],
        schema=TYPES,
    )


def task_of_table(table: Table, folder: Path, *, lineage: bool = False) -> ChangesTask:
    facts = PortableTable.of(table)
    options = file_options(facts.properties)
    return ChangesTask(facts, Storage(), str(folder), options, lineage, task_name)


def run(task: ChangesTask, *batches: pa.RecordBatch) -> TaskChanges:
    (answer,) = task(batches)
    return decode_changes(answer)


def positions(changes: ChangedRows) -> dict[str, list[int]]:
    return {path: list(found) for path, found in changes.deleted.items()}


# --- one task -------------------------------------------------------------------------------------


def test_a_task_writes_rows_and_notes_positions(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    task = task_of_table(make_table(client, namespace, 2), tmp_path)
    answer = run(
        task,
        batch(
            (1, "a", "f", 4, True, True, None),
            (None, None, "f", 2, True, False, None),
            (9, "a", None, None, False, True, None),
        ),
        batch((None, None, "g", 0, True, False, None), (2, "b", "f", 3, True, True, None)),
    )
    changes = united([answer], check_cardinality=True)
    assert positions(changes) == {"f": [2, 3, 4], "g": [0]}
    assert (changes.rows_written, changes.rows_deleted) == (3, 4)
    written = {file.partition: file for file in changes.files}
    assert pq.read_table(written["a",].file_path)["id"].to_pylist() == [1, 9]
    assert pq.read_table(written["b",].file_path)["id"].to_pylist() == [2]


def test_updated_rows_keep_their_id_and_new_rows_have_none(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    task = task_of_table(make_table(client, namespace, 3), tmp_path, lineage=True)
    rows = batch((1, "a", "f", 4, True, True, 17), (9, "a", None, None, False, True, None))
    (file,) = united([run(task, rows)], check_cardinality=True).files
    assert pq.read_table(file.file_path).to_pydict() == {
        "id": [1, 9],
        "part": ["a", "a"],
        "_row_id": [17, None],
        "_last_updated_sequence_number": [None, None],
    }


def test_a_task_that_only_deletes_opens_no_file(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    task = task_of_table(make_table(client, namespace, 2), tmp_path)
    rows = batch((None, None, "f", 4, True, False, None))
    answer = run(task, rows, rows.slice(0, 0))
    assert answer.files == []
    assert run(task, rows.select(["_file", "_pos"])) == answer
    assert list(tmp_path.iterdir()) == []
    assert run(task) == TaskChanges([], [], [])


def test_a_task_that_fails_leaves_nothing_behind(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    task = task_of_table(make_table(client, namespace, 2), tmp_path)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch((1, "a", "f", 4, True, True, None))
        raise OSError("no more rows")

    with pytest.raises(OSError, match="no more rows"):
        list(task(batches()))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# --- rows that are matched twice ------------------------------------------------------------------

DELETED = ("f", 4, True, False)
KEPT = ("f", 4, False, False)


@pytest.mark.parametrize(
    ("first", "second"),
    [(DELETED, DELETED), (DELETED, KEPT), (KEPT, KEPT)],
    ids=["both-delete", "one-deletes", "none-deletes"],
)
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_row_that_is_matched_twice_is_an_error(
    client: Client, namespace: str, tmp_path: Path, first: Row, second: Row, tasks: int
) -> None:
    task = task_of_table(make_table(client, namespace, 2), tmp_path)
    one, two = (batch((None, None, *row, None)) for row in (first, second))
    answers = [run(task, one, two)] if tasks == 1 else [run(task, one), run(task, two)]
    with pytest.raises(BadRequest, match="matched by more than one row") as raised:
        united(answers, check_cardinality=True)
    assert "position 4 of f" in raised.value.message
    deleted = [4] if DELETED in (first, second) else []
    changes = united(answers, check_cardinality=False)
    assert positions(changes) == ({"f": deleted} if deleted else {})
    assert changes.rows_deleted == len(deleted)


def test_rows_that_stay_count_for_nothing_else(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    task = task_of_table(make_table(client, namespace, 2), tmp_path)
    answer = run(task, batch((None, None, *KEPT, None), (None, None, "f", 5, True, False, None)))
    changes = united([answer], check_cardinality=True)
    assert positions(changes) == {"f": [5]}
    assert (changes.files, changes.rows_deleted) == ((), 1)


# --- with Spark -----------------------------------------------------------------------------------


def changed_frame(spark: SparkSession, table: Table, with_ids: bool) -> Any:
    """Build a frame that moves row 3 to another partition, deletes 12 and 25, and inserts 100."""
    paths = {Path(file.file_path).stem: file.file_path for file in table.plan().files}
    rows: list[Row] = [
        (3, "b", paths["0"], 3, True, True, 3),
        (None, None, paths["1"], 2, True, False, 12),
        (None, None, paths["2"], 5, True, False, 25),
        (None, None, paths["2"], 6, False, False, 26),
        (100, "a", None, None, False, True, None),
    ]
    types = "id long, part string, _file string, _pos long, __frazil_delete boolean, "
    types += "__frazil_write boolean"
    frame = spark.createDataFrame(rows, f"{types}, _row_id long")
    return frame if with_ids else frame.drop("_row_id")


def touched_by(table: Table, changes: ChangedRows) -> list[DeletedRows]:
    tasks = {one.data_file.file_path: one for one in table.plan(sequence_numbers=True).tasks}
    return [DeletedRows(task_of(tasks[path]), found) for path, found in changes.deleted.items()]


def stock_rows(spark: SparkSession, stock: str, table: Table, *more: str) -> list[Row]:
    columns = ", ".join(("id", "part", *more))
    rows = spark.sql(f"SELECT {columns} FROM {stock}.{table} ORDER BY id").collect()
    return [tuple(row) for row in rows]


EXPECTED = [
    *((number, "b" if number == 3 else "a") for number in range(20) if number != 12),
    *((number, "b") for number in range(20, 30) if number != 25),
    (100, "a"),
]


@pytest.mark.parametrize("version", [2, 3])
def test_changes_merge_on_read_in_tasks(
    client: Client,
    namespace: str,
    spark: SparkSession,
    stock: str,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changed_rows, "MAX_LOCAL_BYTES", 0)
    table = make_table(client, namespace, version)
    context = Context(spark, client, Settings(), "")
    folder = new_folder(context, table)
    frame = changed_frame(spark, table, with_ids=version == 3)
    changes = write_changes(context, table, frame, folder, check_cardinality=True)
    assert (changes.rows_written, changes.rows_deleted) == (2, 3)
    deletes = write_deletes(context, table, touched_by(table, changes), folder)
    table.row_delta(changes.files, deletes.added, remove_deletes=deletes.removed)
    assert stock_rows(spark, stock, table) == EXPECTED
    if version == 3:
        found = {row[0]: row[2:] for row in stock_rows(spark, stock, table, *LINEAGE)}
        assert found[3] == (3, 2)
        assert found[4] == (4, 1)
        assert found[100][0] >= 30


LINEAGE = ("_row_id", "_last_updated_sequence_number")


def test_changes_copy_on_write_in_tasks(
    client: Client,
    namespace: str,
    spark: SparkSession,
    stock: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = make_table(client, namespace, 3)
    context = Context(spark, client, Settings(), "")
    folder = new_folder(context, table)
    frame = changed_frame(spark, table, with_ids=True)
    changes = write_changes(context, table, frame, folder, check_cardinality=True)
    touched = touched_by(table, changes)
    monkeypatch.setattr(changed_rows, "MAX_LOCAL_BYTES", 0)
    copies = copy_files(context, table, touched, folder)
    table.overwrite_files([*changes.files, *copies], [one.file_path for one in touched])
    assert stock_rows(spark, stock, table) == EXPECTED
    found = {row[0]: row[2:] for row in stock_rows(spark, stock, table, *LINEAGE)}
    assert (found[3], found[4], found[29]) == ((3, 2), (4, 1), (29, 1))
    kept = {local(file.file_path) for file in (*changes.files, *copies)}
    assert {local(path) for path in folder.storage.list(folder.location)} == kept


# --- work on files --------------------------------------------------------------------------------


def echo(payloads: Sequence[bytes]) -> Iterator[bytes]:
    for payload in payloads:
        yield payload * 2


def test_shares_are_of_one_size() -> None:
    items = [Item(bytes([size]), size) for size in (9, 1, 8, 2, 5, 5)]
    dealt = shares(items, 3)
    assert [sum(payload[0] for payload in share) for share in dealt] == [10, 10, 10]
    assert shares(items[:1], 4) == [[b"\x09"]]
    assert shares([], 4) == []


def test_little_work_is_done_in_threads() -> None:
    items = [Item(b"a", 5 << 20), Item(b"b", 5 << 20), Item(b"c", 1)]
    assert sorted(run_locally(echo, items)) == [b"aa", b"bb", b"cc"]
    assert run_locally(echo, []) == []


def test_an_error_in_a_thread_is_raised() -> None:
    def fail(payloads: Sequence[bytes]) -> list[bytes]:
        raise BadRequest(f"cannot do {payloads[0]!r}")

    with pytest.raises(BadRequest, match="cannot do"):
        run_locally(fail, [Item(b"a", 5 << 20), Item(b"b", 5 << 20)])


# --- Python workers -------------------------------------------------------------------------------


def test_only_sparks_own_archives_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache: dict[str, Any] = {"here": None}
    for name in ("pyspark.zip", "py4j-0.10-src.zip", "spark-core_2.13.jar", "users.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("inside.py", "")
        cache[name] = zipimporter(str(tmp_path / name))
    monkeypatch.setattr(sys, "path_importer_cache", cache)
    keep_archives()
    assert sorted(cache) == ["here", "users.zip"]


def test_the_results_of_a_task_are_one_batch() -> None:
    (found,) = arrow_task(lambda batches: [b"a", b"bc"])([])
    assert found.to_pydict() == {"result": [b"a", b"bc"]}
    (none,) = arrow_task(lambda batches: [])([])
    assert none.schema.types == [pa.binary()]
    assert none.num_rows == 0


@pytest.mark.process
def test_what_runs_on_executors_loads_neither_spark_nor_a_parser() -> None:
    code = (
        "import sys\n"
        "import frazil.datafiles.writing.changes_writer\n"
        "import frazil.datafiles.writing.delete_file_writer\n"
        "import frazil.datafiles.writing.data_file_writer\n"
        "import frazil.spark.executor.worker_tasks\n"
        "print([name for name in ('pyspark', 'sqlglot', 'pandas') if name in sys.modules])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
