"""Rows of a scan task through Arrow: columns by field id, deletes applied. Runs on executors.

This is the reader that knows everything: files of older schemas, deletes of every kind, and what a
row's file implies of it (`_file`, `_pos`, `_spec_id`, and the row lineage of version 3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.datafiles.arrow.arrow import METADATA_FIELDS, Projection, arrow_schema, to_spark
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    LAST_UPDATED_FIELD,
    ROW_ID,
    ROW_ID_FIELD,
    FileLineage,
)
from frazil.datafiles.footers.parquet_schema import fields_by_id
from frazil.datafiles.reading.deletes_reader import (
    EqualityDeletes,
    deleted_positions,
    equality_deletes,
)
from frazil.datafiles.reading.file_storage import Storage, is_local
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.reading.table_facts import TableFacts
from frazil.values.name_mapping import NAME_MAPPING_PROPERTY, NameMapping, parse_name_mapping
from frazil.values.single_value import from_json
from frazil.values.types import StructType, Type, TypeId
from frazil.wire.errors import BadRequest, UnsupportedOperation

BATCH_ROWS: Final = 65_536
_IDENTITY: Final = "identity"
_PARQUET: Final = "parquet"
_LINEAGE: Final = StructType((ROW_ID_FIELD, LAST_UPDATED_FIELD))

PositionArray = npt.NDArray[np.int64]


def read_task(
    task: ScanTask,
    facts: TableFacts,
    storage: Storage,
    columns: StructType,
    *,
    metadata_columns: Sequence[str] = (),
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The task's live rows in the types of the table's files: the columns, then the metadata
    columns. The residual filter is not applied."""
    if task.data_file.file_format.lower() != _PARQUET:
        raise UnsupportedOperation(
            f"{task.file_path}: a file in {task.data_file.file_format} cannot be read without "
            "Iceberg's runtime on Spark's classpath"
        )
    check_metadata_columns(metadata_columns)
    equality = equality_deletes(task, facts, storage)
    deleted = _sorted_positions(task, storage)
    with storage.open_input(task.file_path) as source:
        parquet = pq.ParquetFile(
            source,
            pre_buffer=not is_local(task.file_path),
            coerce_int96_timestamp_unit="us",
        )
        reader = _FileReader(task, facts, parquet.schema_arrow, columns, metadata_columns, equality)
        for start, batch in _batches(parquet, task, reader.needed, batch_rows):
            rows = reader.live_rows(batch, start, deleted)
            if rows.num_rows:
                yield rows


def spark_batches(
    batches: Iterator[pa.RecordBatch],
    facts: TableFacts,
    storage: Storage,
    columns: StructType,
    metadata_columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` runs on a frame whose first column has the JSON of tasks."""
    target = with_metadata(columns, metadata_columns)
    for batch in batches:
        for task in batch.column(0).to_pylist():
            for rows in read_task(
                ScanTask.from_json(task),
                facts,
                storage,
                columns,
                metadata_columns=metadata_columns,
            ):
                yield to_spark(rows, target)


def with_metadata(columns: StructType, metadata_columns: Sequence[str]) -> StructType:
    """The columns of a scan's result."""
    return StructType((*columns.fields, *(METADATA_FIELDS[name] for name in metadata_columns)))


def check_metadata_columns(names: Sequence[str]) -> None:
    for name in names:
        if name not in METADATA_FIELDS:
            known = ", ".join(METADATA_FIELDS)
            raise BadRequest(f"metadata column {name}: there is none; there are {known}")


# --- positions ------------------------------------------------------------------------------------


def _sorted_positions(task: ScanTask, storage: Storage) -> PositionArray:
    if not task.position_deletes:
        return np.empty(0, dtype=np.int64)
    found = deleted_positions(task, storage).to_array()
    return np.frombuffer(found, dtype=np.uint64).astype(np.int64)


def _batches(
    parquet: pq.ParquetFile, task: ScanTask, needed: Sequence[str], batch_rows: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the position of their first row in the file."""
    groups, position = _row_groups(parquet, task)
    rows = sum(parquet.metadata.row_group(group).num_rows for group in groups)
    if not groups:
        return
    if not needed:
        # Nothing is read where only rows are counted, or what the file implies is asked for.
        for start in range(position, position + rows, batch_rows):
            yield start, _without_columns(min(batch_rows, position + rows - start))
        return
    for batch in parquet.iter_batches(
        batch_rows, row_groups=groups, columns=list(needed), use_threads=False
    ):
        yield position, batch
        position += batch.num_rows


def _row_groups(parquet: pq.ParquetFile, task: ScanTask) -> tuple[list[int], int]:
    """The row groups that begin in the task's part of the file, and how many rows are before."""
    end = math.inf if task.length is None else task.start + task.length
    chosen, before = [], 0
    for number in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(number)
        if task.start <= _first_byte(group) < end:
            chosen.append(number)
        elif not chosen:
            before += group.num_rows
    return chosen, before


def _first_byte(group: pq.RowGroupMetaData) -> int:
    column = group.column(0)
    offsets = (column.dictionary_page_offset, column.data_page_offset)
    return int(min(offset for offset in offsets if offset is not None))


def _without_columns(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(rows)], names=["_"]).select([])


# --- rows -----------------------------------------------------------------------------------------


class _FileReader:
    """What is worked out once a file: which of its columns are needed, and what they become."""

    def __init__(
        self,
        task: ScanTask,
        facts: TableFacts,
        file_schema: pa.Schema,
        columns: StructType,
        metadata_columns: Sequence[str],
        equality: Sequence[EqualityDeletes],
    ) -> None:
        self._task = task
        self._metadata_columns = metadata_columns
        self._equality = equality
        mapping = name_mapping(facts)

        def projection(schema: StructType) -> Projection:
            constants = partition_constants(task, facts, schema)
            return Projection(file_schema, schema, arrow_schema(schema), mapping, constants)

        self._rows = projection(columns)
        self._compared = [projection(one.schema) for one in equality]
        file = task.data_file
        self._implied = FileLineage(file.first_row_id, file.data_sequence_number)
        self._lineage: Projection | None = None
        if ROW_ID in metadata_columns or LAST_UPDATED in metadata_columns:
            self._lineage = projection(_LINEAGE)
            self._check_sequence_number()
        parts = [self._rows, *self._compared, *([self._lineage] if self._lineage else [])]
        self.needed = tuple(dict.fromkeys(name for part in parts for name in part.columns))

    def _check_sequence_number(self) -> None:
        file = self._task.data_file
        asked = LAST_UPDATED in self._metadata_columns
        if asked and file.first_row_id is not None and file.data_sequence_number is None:
            raise BadRequest(
                f"{file.file_path}: {LAST_UPDATED} needs the file's sequence number: plan the scan "
                "with sequence_numbers=True"
            )

    def live_rows(
        self, batch: pa.RecordBatch, start: int, deleted: PositionArray
    ) -> pa.RecordBatch:
        positions = np.arange(start, start + batch.num_rows, dtype=np.int64)
        first, last = np.searchsorted(deleted, [start, start + batch.num_rows])
        live = np.ones(batch.num_rows, dtype=np.bool_)
        live[deleted[first:last] - start] = False
        for deletes, projection in zip(self._equality, self._compared, strict=True):
            live &= ~deletes.deletes(projection.apply(batch))
        rows = self._rows.apply(batch)
        arrays = [*rows.columns, *self._metadata(batch, positions)]
        fields = [*rows.schema, *(_arrow_field(name) for name in self._metadata_columns)]
        if not arrays:
            return _without_columns(int(live.sum()))
        found = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        return found if live.all() else found.filter(pa.array(live))

    def _metadata(self, batch: pa.RecordBatch, positions: PositionArray) -> list[pa.Array]:
        own = None if self._lineage is None else self._lineage.apply(batch)
        return [self._metadata_column(name, positions, own) for name in self._metadata_columns]

    def _metadata_column(
        self, name: str, positions: PositionArray, own: pa.RecordBatch | None
    ) -> pa.Array:
        rows = len(positions)
        if name == "_file":
            return pa.repeat(pa.scalar(self._task.file_path, pa.string()), rows)
        if name == "_pos":
            return pa.array(positions, pa.int64())
        if name == "_spec_id":
            return pa.repeat(pa.scalar(self._task.data_file.spec_id, pa.int32()), rows)
        assert own is not None
        if name == ROW_ID:
            return self._implied.row_ids(positions, own.column(ROW_ID))
        return self._implied.sequence_numbers(rows, own.column(LAST_UPDATED))


def _arrow_field(name: str) -> pa.Field:
    return arrow_schema(StructType((METADATA_FIELDS[name],))).field(0)


# --- what is not in files -------------------------------------------------------------------------


def name_mapping(facts: TableFacts) -> NameMapping | None:
    text = facts.properties.get(NAME_MAPPING_PROPERTY)
    return None if text is None else parse_name_mapping(text)


def partition_constants(task: ScanTask, facts: TableFacts, schema: StructType) -> Mapping[int, Any]:
    """Values of columns that the file need not have, because all its rows have the partition's
    (spec, "Column Projection")."""
    constants: dict[int, Any] = {}
    types = {field_id: found.field.type for field_id, found in fields_by_id(schema).items()}
    fields = facts.spec(task.data_file.spec_id)["fields"]
    for field, value in zip(fields, task.data_file.partition, strict=False):
        source_id = field.get("source-id")
        if field["transform"] == _IDENTITY and source_id in types and value is not None:
            constants[source_id] = _partition_value(types[source_id], value)
    return constants


def _partition_value(type_: Type, value: Any) -> Any:
    """Infinities and NaN come as their names, for which JSON has no numbers."""
    if type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE) and isinstance(value, str):
        return float(value)
    return from_json(type_, value)
