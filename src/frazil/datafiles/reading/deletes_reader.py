"""Reads the deletes of a data file from delete files of every kind.

Position deletes and deletion vectors become one set of positions. Equality deletes become keys that
rows are looked up in: the columns of the delete file, matched by field id, where a null equals a
null (spec, "Equality Delete Files"). The planner decides which delete files apply to a data file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.arrow.file_projection import Projection
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.delete_cache import DeleteCache
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import NO_POSITIONS, PositionCollector, Positions
from frazil.datafiles.reading.scan_tasks import ScanTask, is_deletion_vector
from frazil.values.column_matching import DELETE_FILE_PATH_ID, DELETE_POS_ID
from frazil.values.deletion_vectors import DeletionVector, InvalidDeletionVector
from frazil.values.parquet_columns import field_id_of
from frazil.values.type_json import parse_struct, struct_to_json
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest, UnsupportedOperation
from frazil.wire.scan_planning import PlannedDeleteFile

_PARQUET: Final = "parquet"
_CACHED_BYTES: Final = 128 << 20
"""For keys, and as much for positions. Delete files of a partition apply to many data files."""
_BYTES_PER_POSITION: Final = 2
"""The most that a Roaring bitmap takes."""
_BYTES_PER_FILE: Final = 200

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


# --- by position ----------------------------------------------------------------------------------


def deleted_positions(task: ScanTask, storage: Storage) -> Positions:
    """Read the deletion vector and the position deletes of the task's whole data file.

    If there is a deletion vector, the planner leaves out older position deletes: the vector has
    them (spec, "Scan Planning").
    """
    positions = NO_POSITIONS
    for file in task.position_deletes:
        if is_deletion_vector(file):
            positions |= _vector(file, storage)
        elif file.referenced_data_file is not None:
            positions |= _positions_in(file, storage).get(task.file_path, NO_POSITIONS)
        else:
            shared = _positions.get((file, storage.config), partial(_positions_in, file, storage))
            positions |= shared.get(task.file_path, NO_POSITIONS)
    return positions


def positions_by_file(file: PlannedDeleteFile, storage: Storage) -> Mapping[str, Positions]:
    """Read a whole file of position deletes, or one deletion vector, by the data file's path."""
    if is_deletion_vector(file):
        return {file.referenced_data_file or "": _vector(file, storage)}
    return _positions_in(file, storage)


def _vector(file: PlannedDeleteFile, storage: Storage) -> Positions:
    if file.content_offset is None or file.content_size_in_bytes is None:
        raise BadRequest(f"{file.file_path}: a deletion vector without its offset and size")
    data = storage.read(file.file_path, file.content_offset, file.content_size_in_bytes)
    try:
        return DeletionVector.deserialize(data).bitmap
    except InvalidDeletionVector as error:
        raise BadRequest(
            f"{file.file_path}: the deletion vector at byte {file.content_offset}: {error}"
        ) from None


def _positions_in(file: PlannedDeleteFile, storage: Storage) -> Mapping[str, Positions]:
    """Read the positions of a delete file, by the path of the data file."""
    _check_format(file)
    with storage.open_input(file.file_path) as source:
        parquet = pq.ParquetFile(source, read_dictionary=["file_path"])
        path_name, pos_name = _column_names(parquet.schema_arrow, file.file_path)
        table = parquet.read(columns=[path_name, pos_name], use_threads=False)
    collector = PositionCollector()
    for batch in table.to_batches():
        collector.add(batch.column(path_name), batch.column(pos_name))
    return {file.file_path: file.positions for file in collector.collected()}


def _size_of(positions: Mapping[str, Positions]) -> int:
    return sum(_BYTES_PER_FILE + _BYTES_PER_POSITION * len(found) for found in positions.values())


_positions: Final = DeleteCache[Mapping[str, Positions]](_CACHED_BYTES, _size_of)


def _column_names(schema: pa.Schema, path: str) -> tuple[str, ...]:
    """Find the columns of a position delete file, without field ids by the spec's names."""
    by_id = {field_id_of(field): field.name for field in schema}
    names = []
    for field_id, default in ((DELETE_FILE_PATH_ID, "file_path"), (DELETE_POS_ID, "pos")):
        name = by_id.get(field_id, default)
        if name not in schema.names:
            raise BadRequest(f"{path}: a file of position deletes must have a column {default}")
        names.append(name)
    return tuple(names)


def _check_format(file: PlannedDeleteFile) -> None:
    if file.file_format.lower() != _PARQUET:
        raise UnsupportedOperation(
            f"{file.file_path}: deletes in {file.file_format} files cannot be read without "
            "Iceberg's runtime on Spark's classpath"
        )


# --- by equality ----------------------------------------------------------------------------------


class KeySet:
    """A set of keys that looks up many rows at once, with one hash lookup for each column.

    A key is numbered column by column: the number of its prefix, times the count of values that
    the column has, plus the value's number. The prefixes that occur are renumbered at each column,
    so that no number needs more than 64 bits.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns: list[tuple[pa.Array, npt.NDArray[np.int64]]] = []
        """For each column its values, and the numbers of the prefixes that end with it."""
        numbers = np.zeros(len(columns[0]), dtype=np.int64)
        for column in columns:
            values = pc.unique(column)
            numbers = numbers * len(values) + _codes(column, values)
            prefixes, numbers = np.unique(numbers, return_inverse=True)
            self._columns.append((values, prefixes))
        self.numbers: Numbers = numbers
        """The number of each key that was given; equal keys have the same."""

    @property
    def nbytes(self) -> int:
        """The size of the set in memory."""
        own = sum(values.nbytes + prefixes.nbytes for values, prefixes in self._columns)
        return int(own + self.numbers.nbytes)

    def contains(self, columns: Sequence[pa.Array]) -> Mask:
        """Return which rows are keys."""
        return self.find(columns) >= 0

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        """Return the number of the key that each row is, or -1."""
        is_key = np.ones(len(columns[0]), dtype=np.bool_)
        numbers = np.zeros(len(columns[0]), dtype=np.int64)
        for (values, prefixes), column in zip(self._columns, columns, strict=True):
            if not len(prefixes):
                return np.full(len(is_key), -1)
            codes = _codes(column, values)
            is_key &= codes >= 0
            numbers = numbers * len(values) + codes
            indexes = np.searchsorted(prefixes, numbers)
            indexes = np.minimum(indexes, len(prefixes) - 1)
            is_key &= prefixes[indexes] == numbers
            numbers = indexes
        return np.where(is_key, numbers, -1)


def _codes(column: pa.Array, values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the index of each value in `values`, or -1; a null is a value too."""
    indexes = pc.fill_null(pc.index_in(column, value_set=values), -1)
    codes: npt.NDArray[np.int64] = indexes.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


@dataclass(frozen=True)
class EqualityDeletes:
    """The keys of delete files that compare the same columns."""

    schema: StructType
    """The top-level columns that contain the compared fields."""
    field_ids: tuple[int, ...]
    keys: tuple[KeySet, ...]

    def deletes(self, batch: pa.RecordBatch) -> Mask:
        """Return which rows are deleted; the batch has the columns of `schema`."""
        columns = compared_columns(batch, self.schema, self.field_ids)
        deleted = np.zeros(batch.num_rows, dtype=np.bool_)
        for keys in self.keys:
            deleted |= keys.contains(columns)
        return deleted


def equality_deletes(
    task: ScanTask, table: PortableTable, storage: Storage
) -> tuple[EqualityDeletes, ...]:
    """Read the task's equality deletes, grouped by the columns that they compare."""
    by_ids: dict[tuple[int, ...], list[PlannedDeleteFile]] = {}
    for file in task.equality_deletes:
        by_ids.setdefault(tuple(sorted(file.equality_ids or ())), []).append(file)
    groups = []
    for field_ids, files in by_ids.items():
        schema = compared_schema(table, field_ids, files[0].file_path)
        # A schema may have defaults that cannot be hashed, so its text is the key of the cache.
        text = msgspec.json.encode(struct_to_json(schema))
        keys = tuple(
            _keys.get(
                (file, text, field_ids, storage.config),
                partial(_key_set, file, schema, field_ids, storage),
            )
            for file in files
        )
        groups.append(EqualityDeletes(schema, field_ids, keys))
    return tuple(groups)


def _key_set(
    file: PlannedDeleteFile, schema: StructType, field_ids: tuple[int, ...], storage: Storage
) -> KeySet:
    return KeySet(read_keys(file, schema, field_ids, storage))


_keys: Final = DeleteCache[KeySet](_CACHED_BYTES, lambda keys: keys.nbytes)


def read_keys(
    file: PlannedDeleteFile, schema: StructType, field_ids: Sequence[int], storage: Storage
) -> list[pa.Array]:
    """Read the keys of a file of equality deletes: one column for each field."""
    _check_format(file)
    target = arrow_schema(schema)
    with storage.open_input(file.file_path) as source:
        parquet = pq.ParquetFile(source)
        projection = Projection(parquet.schema_arrow, schema, target)
        batches = [projection.apply(batch) for batch in parquet.iter_batches(use_threads=False)]
    rows = pa.Table.from_batches(batches, target).combine_chunks()
    columns = [
        pa.concat_arrays(chunks)
        for chunks in zip(
            *(compared_columns(batch, schema, field_ids) for batch in rows.to_batches()),
            strict=True,
        )
    ]
    return columns or [pa.nulls(0) for _ in field_ids]


def compared_schema(table: PortableTable, field_ids: Sequence[int], path: str) -> StructType:
    """Return the top-level columns that contain the fields; some may have been dropped since."""
    schemas = [table.schema]
    schemas += [parse_struct(json, "schema") for json in reversed(table.metadata["schemas"])]
    chosen: dict[int, NestedField] = {}
    for field_id in field_ids:
        columns = [
            field for schema in schemas for field in schema.fields if _contains(field, field_id)
        ]
        if not columns:
            raise BadRequest(f"{path}: rows are deleted by field {field_id}, which no schema has")
        chosen.setdefault(columns[0].field_id, columns[0])
    # A key may have nulls in columns that the table requires.
    return StructType(tuple(replace(field, required=False) for field in chosen.values()))


def _contains(field: NestedField, field_id: int) -> bool:
    if field.field_id == field_id:
        return True
    return isinstance(field.type, StructType) and any(
        _contains(child, field_id) for child in field.type.fields
    )


def compared_columns(
    batch: pa.RecordBatch, schema: StructType, field_ids: Sequence[int]
) -> list[pa.Array]:
    """Return the compared fields of a batch with the columns of `schema`."""
    leaves = {}
    for field in schema.fields:
        for field_id in field_ids:
            if _contains(field, field_id):
                column = batch.column(_index_of(batch.schema, field.field_id))
                leaves[field_id] = _leaf(column, field, field_id)
    return [leaves[field_id] for field_id in field_ids]


def _leaf(column: pa.Array, field: NestedField, field_id: int) -> pa.Array:
    if field.field_id == field_id:
        return column.storage if isinstance(column, pa.ExtensionArray) else column
    assert isinstance(field.type, StructType)
    (child,) = (child for child in field.type.fields if _contains(child, field_id))
    inner = pc.struct_field(column, [_index_of(column.type, child.field_id)])
    return _leaf(inner, child, field_id)


def _index_of(fields: Iterable[pa.Field], field_id: int) -> int:
    """Find a column by its id; after a drop, two may have one name."""
    return [field_id_of(field) for field in fields].index(field_id)
