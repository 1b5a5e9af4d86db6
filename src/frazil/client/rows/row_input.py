"""Rows in any form that users have them in, as Arrow batches with a table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final, TypeAlias

import pyarrow as pa

from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.arrow.row_fitting import fit_rows
from frazil.values import types
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest

Rows: TypeAlias = Any
"""Arrow data, a frame of pandas or polars, or a list of dicts by column name."""

_BATCH_ROWS: Final = 1 << 20
_PYLIST_ROWS: Final = 10_000
_EXPECTED: Final = "a pyarrow Table, a frame of pandas or polars, or a list of dicts by column name"


def fitted_batches(
    rows: Rows, schema: StructType, *, whole: bool = False, is_complete: bool = False
) -> Iterator[pa.RecordBatch]:
    """Return rows as batches with the columns of `arrow_schema(schema)`, without empty batches.

    With `whole`, rows that are in memory already come in as few batches as possible, so that those
    of one partition are found together. With `is_complete` the rows must have all columns.
    """
    for batch in _batches(rows, schema, whole=whole):
        if batch.num_rows:
            yield fit_rows(batch, schema, is_complete=is_complete)


def fitted_table(rows: Rows, schema: StructType, *, is_complete: bool) -> pa.Table:
    """Return all rows as one table."""
    batches = fitted_batches(rows, schema, is_complete=is_complete)
    return pa.Table.from_batches(batches, arrow_schema(schema))


def _batches(rows: Rows, schema: StructType, *, whole: bool) -> Iterable[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if isinstance(rows, Mapping | str | bytes):
        raise BadRequest(f"rows: give {_EXPECTED}, not a {type(rows).__name__}")
    table = _table(rows)
    if table is not None:
        batches: list[pa.RecordBatch] = (
            table.combine_chunks().to_batches()
            if whole
            else table.to_batches(max_chunksize=_BATCH_ROWS)
        )
        return batches
    if hasattr(rows, "__arrow_c_stream__"):
        # This includes pyarrow's RecordBatchReader, which is not read into memory.
        reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(rows)
        return reader
    if isinstance(rows, Iterable):
        return _batches_of_dicts(rows, schema)
    raise BadRequest(f"rows: give {_EXPECTED}, not a {type(rows).__name__}")


def _table(rows: Any) -> pa.Table | None:
    if isinstance(rows, pa.Table):
        return rows
    package = type(rows).__module__.partition(".")[0]
    if package == "pandas" and hasattr(rows, "columns"):
        try:
            return pa.Table.from_pandas(rows, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadRequest(f"rows: pandas cannot convert them to Arrow: {error}") from None
    # The name of the class tells, because `columns` of a lazy frame is expensive.
    if package == "polars" and type(rows).__name__ in ("DataFrame", "LazyFrame"):
        frame = rows.collect() if hasattr(rows, "collect") else rows
        return frame.to_arrow()
    return None


# --- dicts ----------------------------------------------------------------------------------------


def _batches_of_dicts(rows: Iterable[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    part: list[Mapping[str, Any]] = []
    kind = type(rows).__name__
    for row in rows:
        if not isinstance(row, Mapping):
            raise BadRequest(f"rows: give {_EXPECTED}, not a {kind} of {type(row).__name__}")
        part.append(row)
        if len(part) == _PYLIST_ROWS:
            yield _batch_of_dicts(part, schema)
            part = []
    if part:
        yield _batch_of_dicts(part, schema)


def _batch_of_dicts(rows: list[Mapping[str, Any]], schema: StructType) -> pa.RecordBatch:
    """Convert Python's values to the table's types directly, since a dict may be a map."""
    target = arrow_schema(schema)
    fields = {field.name: field for field in schema.fields}
    columns, names = [], []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        values = [row.get(name) for row in rows]
        field = fields.get(name)
        position = target.get_field_index(name)
        names.append(name)
        if field is None or position < 0:
            # Fitting the rows refuses the column by its name, unless it is of type unknown.
            columns.append(pa.nulls(len(rows)) if field is not None else pa.array(values))
            continue
        _check_zones(values, field.type, name)
        columns.append(_column(values, target.field(position).type, name))
    return pa.RecordBatch.from_arrays(columns, names=names)


def _column(values: list[Any], type_: pa.DataType, name: str) -> pa.Array:
    if isinstance(type_, pa.ExtensionType):
        type_ = type_.storage_type
    try:
        return pa.array(values, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        raise BadRequest(f"column {name}: a value does not fit {type_}: {error}") from None


def _check_zones(values: Iterable[Any], type_: types.Type, path: str) -> None:
    """Refuse a datetime whose zone is open, or that has one where the column has none.

    Arrow takes a datetime without a zone for UTC.
    """
    wants_zone = _ZONES.get(type_.type_id)
    if wants_zone is not None:
        for value in values:
            if isinstance(value, datetime) and (value.tzinfo is not None) != wants_zone:
                raise BadRequest(
                    f"column {path}: {value.isoformat()} has {'no' if wants_zone else 'a'} zone, "
                    f"but the column is a {type_}: "
                    f"{'give it one, such as UTC' if wants_zone else 'remove it'}"
                )
    elif isinstance(type_, types.StructType):
        structs = [value for value in values if isinstance(value, Mapping)]
        for field in type_.fields:
            inner = [struct.get(field.name) for struct in structs]
            _check_zones(inner, field.type, f"{path}.{field.name}")
    elif isinstance(type_, types.ListType):
        inner = [item for value in values if isinstance(value, list | tuple) for item in value]
        _check_zones(inner, type_.element.type, f"{path}.element")


_ZONES: Final = {
    types.TypeId.TIMESTAMP: False,
    types.TypeId.TIMESTAMP_NS: False,
    types.TypeId.TIMESTAMPTZ: True,
    types.TypeId.TIMESTAMPTZ_NS: True,
}
