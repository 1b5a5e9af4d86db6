"""The deletes of a data file, read from delete files of every kind. Runs on executors.

Position deletes and deletion vectors become one set of positions. Equality deletes become keys that
rows are looked up in: the columns of the delete file at the time of reading, by field id, where a
null equals a null (spec, "Equality Delete Files"). Which delete files apply to a data file is the
planner's answer and not looked into here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from frazil.datafiles.arrow.arrow import project
from frazil.datafiles.arrow.arrow_types import arrow_schema, field_id_of
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.scan_tasks import ScanTask, is_deletion_vector
from frazil.datafiles.reading.table_facts import TableFacts
from frazil.values.deletion_vectors import DeletionVector, InvalidDeletionVector
from frazil.values.type_json import parse_struct, struct_to_json
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest, UnsupportedOperation
from frazil.wire.planned_files import PlannedDeleteFile

FILE_PATH_ID: Final = 2147483546
POS_ID: Final = 2147483545
_PARQUET: Final = "parquet"
_KEPT_FILES: Final = 8
"""Delete files of a partition apply to many data files: a worker keeps those it has read last."""

Mask = npt.NDArray[np.bool_]


# --- by position ----------------------------------------------------------------------------------


def deleted_positions(task: ScanTask, storage: Storage) -> BitMap64:
    """Of the task's whole data file: its deletion vector, and the position deletes that apply.

    Where there is a deletion vector, the planner leaves older position deletes out: the vector has
    them (spec, "Scan Planning").
    """
    found = BitMap64()
    for file in task.position_deletes:
        if is_deletion_vector(file):
            found |= _vector(file, storage)
        elif file.referenced_data_file is not None:
            found |= _positions_in(file, storage).get(task.file_path, BitMap64())
        else:
            found |= _kept_positions(file, storage).get(task.file_path, BitMap64())
    return found


def _vector(file: PlannedDeleteFile, storage: Storage) -> Any:
    if file.content_offset is None or file.content_size_in_bytes is None:
        raise BadRequest(f"{file.file_path}: a deletion vector without its place in the file")
    data = storage.read(file.file_path, file.content_offset, file.content_size_in_bytes)
    try:
        return DeletionVector.deserialize(data).bitmap
    except InvalidDeletionVector as error:
        raise BadRequest(
            f"{file.file_path}: the deletion vector at byte {file.content_offset}: {error}"
        ) from None


@lru_cache(maxsize=_KEPT_FILES)
def _kept_positions(file: PlannedDeleteFile, storage: Storage) -> Mapping[str, BitMap64]:
    return _positions_in(file, storage)


def _positions_in(file: PlannedDeleteFile, storage: Storage) -> Mapping[str, BitMap64]:
    """By the path of the data file."""
    _check_format(file)
    with storage.open_input(file.file_path) as source:
        parquet = pq.ParquetFile(source, read_dictionary=["file_path"])
        names = _names_by_id(parquet.schema_arrow, file.file_path, (FILE_PATH_ID, POS_ID))
        table = parquet.read(columns=list(names.values()), use_threads=False)
    found: dict[str, BitMap64] = {}
    for batch in table.to_batches():
        paths = batch.column(names[FILE_PATH_ID])
        for path, positions in _by_path(paths, batch.column(names[POS_ID])):
            found.setdefault(path, BitMap64()).update(positions)
    return found


def _names_by_id(schema: pa.Schema, path: str, wanted: Sequence[int]) -> dict[int, str]:
    """Columns of a position delete file; one without ids has them by the names of the spec."""
    known = {FILE_PATH_ID: "file_path", POS_ID: "pos"}
    by_id = {field_id_of(field): field.name for field in schema}
    names = {}
    for field_id in wanted:
        name = by_id.get(field_id, known[field_id])
        if name not in schema.names:
            raise BadRequest(f"{path}: a position delete file has a column {known[field_id]}")
        names[field_id] = name
    return names


def _by_path(paths: pa.Array, positions: pa.Array) -> Iterator[tuple[str, array[int]]]:
    encoded = paths if isinstance(paths, pa.DictionaryArray) else pc.dictionary_encode(paths)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    numbers = positions.to_numpy(zero_copy_only=False).astype(np.uint64)
    for code in np.unique(codes):
        # The library takes in an array of its own kind several times as fast as one of numpy's.
        chosen = array("Q")
        chosen.frombytes(np.ascontiguousarray(numbers[codes == code]).tobytes())
        yield encoded.dictionary[int(code)].as_py(), chosen


def _check_format(file: PlannedDeleteFile) -> None:
    if file.file_format.lower() != _PARQUET:
        raise UnsupportedOperation(
            f"{file.file_path}: deletes in {file.file_format} files cannot be read without "
            "Iceberg's runtime on Spark's classpath"
        )


# --- by equality ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """One column of the keys: its values, and the numbers of the prefixes that they make."""

    values: pa.Array
    prefixes: npt.NDArray[np.int64]


class KeySet:
    """Rows of keys; a lookup of many rows at once costs one hash lookup for each column.

    A key is numbered column by column: the number of what stands before it, times the values that
    the column has, plus the value's number; prefixes that occur are numbered anew at each step, so
    that no number outgrows 64 bits.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._steps: list[_Step] = []
        numbers = np.zeros(len(columns[0]), dtype=np.int64)
        for column in columns:
            values = pc.unique(column)
            numbers = numbers * len(values) + _codes(column, values)
            prefixes, numbers = np.unique(numbers, return_inverse=True)
            self._steps.append(_Step(values, prefixes))

    def contains(self, columns: Sequence[pa.Array]) -> Mask:
        found = np.ones(len(columns[0]), dtype=np.bool_)
        numbers = np.zeros(len(columns[0]), dtype=np.int64)
        for step, column in zip(self._steps, columns, strict=True):
            if not len(step.prefixes):
                return np.zeros_like(found)
            codes = _codes(column, step.values)
            found &= codes >= 0
            numbers = numbers * len(step.values) + codes
            places = np.minimum(np.searchsorted(step.prefixes, numbers), len(step.prefixes) - 1)
            found &= step.prefixes[places] == numbers
            numbers = places
        return found


def _codes(column: pa.Array, values: pa.Array) -> npt.NDArray[np.int64]:
    """The number of each value among `values`, -1 where it is none of them; a null is a value."""
    found = pc.fill_null(pc.index_in(column, value_set=values), -1)
    codes: npt.NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


@dataclass(frozen=True)
class EqualityDeletes:
    """The keys of delete files that compare the same columns."""

    schema: StructType
    """The columns at the top that hold what is compared."""
    field_ids: tuple[int, ...]
    keys: tuple[KeySet, ...]

    def deletes(self, batch: pa.RecordBatch) -> Mask:
        """Which rows go; the batch has the columns of `schema`."""
        columns = _leaves(batch, self.schema, self.field_ids)
        found = np.zeros(batch.num_rows, dtype=np.bool_)
        for keys in self.keys:
            found |= keys.contains(columns)
        return found


def equality_deletes(
    task: ScanTask, facts: TableFacts, storage: Storage
) -> tuple[EqualityDeletes, ...]:
    """The task's equality deletes, one for each set of columns that are compared."""
    by_ids: dict[tuple[int, ...], list[PlannedDeleteFile]] = {}
    for file in task.equality_deletes:
        by_ids.setdefault(tuple(sorted(file.equality_ids or ())), []).append(file)
    found = []
    for field_ids, files in by_ids.items():
        schema = _schema_of(facts, field_ids, files[0].file_path)
        # Schemas may hold defaults that have no hash, so their text is what keys are kept by.
        text = msgspec.json.encode(struct_to_json(schema))
        keys = tuple(_kept_keys(file, text, field_ids, storage) for file in files)
        found.append(EqualityDeletes(schema, field_ids, keys))
    return tuple(found)


@lru_cache(maxsize=_KEPT_FILES)
def _kept_keys(
    file: PlannedDeleteFile, schema_json: bytes, field_ids: tuple[int, ...], storage: Storage
) -> KeySet:
    _check_format(file)
    schema = parse_struct(msgspec.json.decode(schema_json), "schema")
    target = arrow_schema(schema)
    with storage.open_input(file.file_path) as source:
        parquet = pq.ParquetFile(source)
        batches = [
            project(batch, parquet.schema_arrow, schema, target)
            for batch in parquet.iter_batches(use_threads=False)
        ]
    table = pa.Table.from_batches(batches, target).combine_chunks()
    columns = [
        pa.concat_arrays(parts)
        for parts in zip(
            *(_leaves(batch, schema, field_ids) for batch in table.to_batches()), strict=True
        )
    ]
    return KeySet(columns or [pa.nulls(0) for _ in field_ids])


def _schema_of(facts: TableFacts, field_ids: Sequence[int], path: str) -> StructType:
    """The columns at the top that hold the fields; a field may have been dropped since."""
    schemas = [facts.schema]
    schemas += [parse_struct(json, "schema") for json in reversed(facts.metadata["schemas"])]
    chosen: dict[int, NestedField] = {}
    for field_id in field_ids:
        holders = [
            field for schema in schemas for field in schema.fields if _holds(field, field_id)
        ]
        if not holders:
            raise BadRequest(f"{path}: rows are deleted by field {field_id}, which no schema has")
        chosen.setdefault(holders[0].field_id, holders[0])
    # A key may have nulls for columns that the table requires.
    return StructType(tuple(replace(field, required=False) for field in chosen.values()))


def _holds(field: NestedField, field_id: int) -> bool:
    if field.field_id == field_id:
        return True
    return isinstance(field.type, StructType) and any(
        _holds(child, field_id) for child in field.type.fields
    )


def _leaves(batch: pa.RecordBatch, schema: StructType, field_ids: Sequence[int]) -> list[pa.Array]:
    found = {}
    for field in schema.fields:
        for field_id in field_ids:
            if _holds(field, field_id):
                column = batch.column(_place(batch.schema, field.field_id))
                found[field_id] = _leaf(column, field, field_id)
    return [found[field_id] for field_id in field_ids]


def _leaf(column: pa.Array, field: NestedField, field_id: int) -> pa.Array:
    if field.field_id == field_id:
        return column.storage if isinstance(column, pa.ExtensionArray) else column
    assert isinstance(field.type, StructType)
    (child,) = (child for child in field.type.fields if _holds(child, field_id))
    inner = pc.struct_field(column, [_place(column.type, child.field_id)])
    return _leaf(inner, child, field_id)


def _place(fields: Iterable[pa.Field], field_id: int) -> int:
    """Columns are found by id: after a drop, two may have one name."""
    return [field_id_of(field) for field in fields].index(field_id)
