"""PyIceberg's own snapshot producers, with data files that are already described."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

# Imported before the writers are forked, so that they do not each import it.
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow  # noqa: F401
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from benchmarks.commit.bursts import APPEND, DELETE_PATH, Task
from benchmarks.commit.files import (
    COLUMN_IDS,
    DOUBLES,
    PARTITIONS,
    ROWS,
    binary,
    bounds,
    file_path,
    size_bytes,
)
from benchmarks.commit.trees import head_totals, partition_of
from benchmarks.histories import NAMESPACE


def open_writer(settings: dict[str, Any], tables: tuple[str, ...], index: int) -> PyIcebergWriter:
    return PyIcebergWriter(settings, tables, index)


class PyIcebergWriter:
    retries = 0

    def __init__(self, settings: dict[str, Any], tables: tuple[str, ...], index: int) -> None:
        catalog = _catalog(settings)
        self._tables = [catalog.load_table((NAMESPACE, table)) for table in tables]
        self._tree_folder = settings["tree_folder"]
        self._index = index

    def prepare(self, task: Task, at: int) -> Callable[[], object]:
        table, number = self._tables[at % len(self._tables)], task.first + at * task.step
        if task.operation == APPEND:
            data = f"{table.location()}/data"
            files = [
                data_file(file_path(data, each, self._index), each, each % PARTITIONS)
                for each in range(number, number + task.files)
            ]
            return lambda: _append(table, files)
        if task.operation == DELETE_PATH:
            folder = f"{self._tree_folder}/data-{task.tree_files}"
            partition = partition_of(number, task.tree_files)
            doomed = data_file(file_path(folder, number), number, partition)
            return lambda: _delete_file(table, doomed)
        return lambda: _delete_partition(table, number)

    def recover(self) -> None:
        for table in self._tables:
            table.refresh()


def _append(table: Table, files: list[DataFile]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


def _delete_file(table: Table, file: DataFile) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
        change.delete_data_file(file)


def _delete_partition(table: Table, partition: int) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().delete() as change:
        change.delete_by_predicate(parse(f"part = {partition}"))


def data_file(path: str, number: int, partition: int) -> DataFile:
    lower, upper = bounds(number, partition)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=ROWS,
        file_size_in_bytes=size_bytes(number),
        column_sizes=dict.fromkeys(COLUMN_IDS, 6_000),
        value_counts=dict.fromkeys(COLUMN_IDS, ROWS),
        null_value_counts=dict.fromkeys(COLUMN_IDS, 0),
        nan_value_counts=dict.fromkeys(DOUBLES, 0),
        lower_bounds=binary(lower),
        upper_bounds=binary(upper),
        split_offsets=[4],
        sort_order_id=0,
    )
    file.spec_id = 0
    return file


def administer(settings: dict[str, Any], question: dict[str, Any]) -> Any:
    catalog = _catalog(settings)
    if question["do"] == "start":
        catalog.create_namespace_if_not_exists(NAMESPACE)
        return None
    if question["do"] == "register":
        for table, location in question["tables"].items():
            catalog.register_table((NAMESPACE, table), location)
        return None
    metadata = catalog.load_table((NAMESPACE, question["table"])).metadata
    return head_totals(metadata.model_dump(by_alias=True))


def _catalog(settings: dict[str, Any]) -> Catalog:
    # PyIceberg logs each retry, and each superseded metadata file that is already gone.
    logging.getLogger("pyiceberg").setLevel(logging.CRITICAL)
    return load_catalog("bench", **settings["properties"])
