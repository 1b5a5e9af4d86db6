"""Upserts: rows replace those with the same keys, and the others are added.

Keys are compared by value. The rows that may have them are found by a filter on the keys, which
the catalog also checks other commits against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.client.declare.client_table import Table
from frazil.client.declare.schema_updates import identifier_field_ids
from frazil.client.declare.table_verbs import Commit
from frazil.client.rows.row_files import (
    MatchingRows,
    in_threads,
    planned_tasks,
    positions_of,
    write_rows,
)
from frazil.client.rows.row_filters import RowFilter
from frazil.client.rows.row_input import Rows, fitted_table
from frazil.client.rows.row_statements import (
    DeleteOptions,
    branch_of,
    change_rows,
    nothing,
    run_statement,
)
from frazil.client.rows.write_folders import Write, committing, new_folder
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    MIN_FORMAT_VERSION,
    POSITION,
    ROW_ID,
)
from frazil.datafiles.footers.python_values import internal_value
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.datafiles.reading.task_reader import read_task
from frazil.datafiles.writing.row_partitions import python_value
from frazil.values.single_value import to_json
from frazil.values.types import NestedField, StructType, TypeId
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import Expression, Operation, Predicate, Term, all_of
from frazil.wire.near_names import no_column

_FLOATS: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})
_MAX_LISTED_KEYS: Final = 200
"""Iceberg's planners do not evaluate longer lists of values."""
_TASK: Final = "__task"
_SOURCE: Final = "__source"


def upsert(table: Table, rows: Rows, keys: Sequence[str], options: DeleteOptions) -> Commit:
    """Replace the rows with the same keys as the given ones, and add the others."""
    fields = _key_fields(table, keys)
    source = fitted_table(rows, table.schema, is_complete=True)
    if not source.num_rows:
        return nothing(table)
    _check_keys(source, fields)
    key_columns = _keys_of(source, fields)
    read_filter = all_of(*(_column_filter(key_columns.column(each.name), each) for each in fields))

    def attempt(current: Table) -> Commit:
        if current.schema != table.schema:
            raise BadRequest(f"{table}: its columns have changed during the upsert: try again")
        base = current.head(branch_of(options))
        with committing(new_folder(current)) as write:
            tasks = planned_tasks(current, read_filter, base)
            matched = _matched(current, tasks, source, fields, read_filter, write)
            added = write_rows(
                current,
                _with_lineage(current, source, matched).combine_chunks().to_batches(),
                write.folder,
                lineage=current.format_version >= MIN_FORMAT_VERSION,
            )
            removed = MatchingRows((), _deleted(tasks, matched))
            return change_rows(current, write, base, read_filter, "merge", options, added, removed)

    return run_statement(table, attempt)


# --- keys -----------------------------------------------------------------------------------------


def _key_fields(table: Table, keys: Sequence[str]) -> tuple[NestedField, ...]:
    if isinstance(keys, str):
        raise BadRequest(f"keys: give a list of columns, such as [{keys!r}]")
    by_name = {field.name: field for field in table.schema.fields}
    if not keys:
        ids = set(identifier_field_ids(table))
        keys = [field.name for field in table.schema.fields if field.field_id in ids]
        if not keys or len(keys) < len(ids):
            raise BadRequest(
                f"keys: name the columns that identify a row of {table}, or set its identifier "
                "fields with set_identifier_fields"
            )
    for name in keys:
        if name not in by_name:
            raise BadRequest(f"keys: {no_column(name, by_name)}")
        type_ = by_name[name].type
        if not type_.is_primitive or type_.type_id in _FLOATS:
            raise BadRequest(
                f"keys: column {name} is a {type_}, by which rows cannot be told apart"
            )
    return tuple(by_name[name] for name in keys)


def _check_keys(source: pa.Table, fields: Sequence[NestedField]) -> None:
    for field in fields:
        if source.column(field.name).null_count:
            raise BadRequest(f"keys: column {field.name} is null in some of the rows")
    counted = (
        _keys_of(source, fields)
        .group_by([field.name for field in fields])
        .aggregate([([], "count_all")])
    )
    twice = counted.filter(pc.greater(counted.column("count_all"), 1))
    if twice.num_rows:
        row = twice.slice(0, 1).to_pylist()[0]
        values = ", ".join(f"{field.name}={row[field.name]!r}" for field in fields)
        raise BadRequest(f"keys: {row['count_all']} of the rows have the key {values}")


def _keys_of(rows: pa.Table, fields: Sequence[NestedField]) -> pa.Table:
    """Return the key columns in types that Arrow can group and join."""
    columns = []
    for field in fields:
        column = rows.column(field.name)
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array(
                [chunk.storage for chunk in column.chunks], column.type.storage_type
            )
        columns.append(column)
    return pa.table(columns, names=[field.name for field in fields])


def _column_filter(column: pa.ChunkedArray, field: NestedField) -> Expression:
    """Return a filter for at least the values of a column: a list of them, or their range."""
    distinct = column.combine_chunks().unique()
    term = Term(field.name)
    if len(distinct) <= _MAX_LISTED_KEYS:
        return Predicate(Operation.IN, term, tuple(_literal(field, each) for each in distinct))
    order = pc.array_sort_indices(distinct)
    low, high = (_literal(field, distinct[order[at].as_py()]) for at in (0, -1))
    return all_of(
        Predicate(Operation.GT_EQ, term, (low,)), Predicate(Operation.LT_EQ, term, (high,))
    )


def _literal(field: NestedField, scalar: pa.Scalar) -> Any:
    value = python_value(field.type, scalar)
    if field.type.type_id is TypeId.UUID:
        value = UUID(bytes=value)
    return to_json(field.type, internal_value(field.type, value))


# --- matched rows ---------------------------------------------------------------------------------


def _matched(
    table: Table,
    tasks: Sequence[ScanTask],
    source: pa.Table,
    fields: Sequence[NestedField],
    read_filter: Expression,
    write: Write,
) -> pa.Table:
    """Return task, position, row id and row of the source for each row with one of the keys."""
    facts = PortableTable.of(table)
    storage = write.folder.storage
    row_filter = RowFilter(read_filter, table.schema)
    columns = StructType(tuple(field for field in table.schema.fields if field in fields))
    has_lineage = table.format_version >= MIN_FORMAT_VERSION
    metadata_columns = (POSITION, ROW_ID) if has_lineage else (POSITION,)

    def read(numbered: tuple[int, ScanTask]) -> list[pa.Table]:
        number, task = numbered
        parts = []
        for batch in read_task(task, facts, storage, columns, metadata_columns=metadata_columns):
            rows = pa.Table.from_batches([batch]).filter(row_filter.mask(batch))
            part = _keys_of(rows, fields)
            part = part.append_column(_TASK, pa.repeat(pa.scalar(number), rows.num_rows))
            part = part.append_column(POSITION, rows.column(POSITION))
            ids = rows.column(ROW_ID) if has_lineage else pa.nulls(rows.num_rows, pa.int64())
            parts.append(part.append_column(ROW_ID, ids))
        return parts

    keys = _keys_of(source, fields)
    keys = keys.append_column(_SOURCE, pa.array(np.arange(source.num_rows)))
    keys_in_files = [part for parts in in_threads(read, enumerate(tasks)) for part in parts]
    names = [field.name for field in fields]
    if not keys_in_files:
        empty = {name: pa.array([], pa.int64()) for name in (_TASK, POSITION, ROW_ID, _SOURCE)}
        return pa.table(empty)
    joined = pa.concat_tables(keys_in_files).join(keys, names, join_type="inner")
    return joined.select([_TASK, POSITION, ROW_ID, _SOURCE])


def _deleted(tasks: Sequence[ScanTask], matched: pa.Table) -> tuple[DeletedRows, ...]:
    numbers = matched.column(_TASK).to_numpy()
    order = np.argsort(numbers, kind="stable")
    touched, starts = np.unique(numbers[order], return_index=True)
    parts = np.split(matched.column(POSITION).to_numpy()[order], starts[1:])
    return tuple(
        DeletedRows(tasks[number], positions_of([part]))
        for number, part in zip(touched.tolist(), parts, strict=False)
    )


def _with_lineage(table: Table, source: pa.Table, matched: pa.Table) -> pa.Table:
    """Add the columns of row lineage: a replaced row keeps its id, but is updated now."""
    if table.format_version < MIN_FORMAT_VERSION:
        return source
    ids = np.full(source.num_rows, -1, np.int64)
    known = matched.filter(pc.is_valid(matched.column(ROW_ID)))
    ids[known.column(_SOURCE).to_numpy()] = known.column(ROW_ID).to_numpy()
    row_ids = pa.array(ids, pa.int64(), mask=ids < 0)
    with_ids = source.append_column(ROW_ID, row_ids)
    return with_ids.append_column(LAST_UPDATED, pa.nulls(source.num_rows, pa.int64()))
