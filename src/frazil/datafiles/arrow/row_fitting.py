"""Fits the rows of a user to the columns of a table: by name, with every value kept.

Columns that the rows lack get the write default, or null. Columns that the table lacks are refused,
as are values that the table's type cannot have and timestamps that leave their zone open.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.array_conversion import (
    batch_of,
    constant,
    convert_leaf,
    list_of,
    map_of,
    misfit,
    struct_of,
    well_known_binary,
)
from frazil.datafiles.arrow.arrow_types import arrow_schema, is_well_known_binary
from frazil.values import types
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest

_WHOLE_DECIMAL: Final = pa.decimal128(20, 0)
_ZONE_HINT: Final = "name its zone, in pandas with .dt.tz_localize('UTC')"


def fit_rows(
    batch: pa.RecordBatch, schema: StructType, *, is_complete: bool = False
) -> pa.RecordBatch:
    """Return the rows with the columns of `arrow_schema(schema)`.

    With `is_complete`, refuse rows that lack a column.
    """
    target = arrow_schema(schema)
    if is_complete:
        for name in target.names:
            if name not in batch.schema.names:
                raise BadRequest(
                    f"column {name}: the rows do not have it, and its values in the replaced rows "
                    "would be lost: add it to the rows"
                )
    columns = _fitted_fields(
        batch.schema.names, batch.columns, schema.fields, list(target), "", batch.num_rows
    )
    for field, column in zip(target, columns, strict=True):
        if not field.nullable and column.null_count:
            raise BadRequest(
                f"column {field.name} is required, but {column.null_count} of the rows have no "
                "value for it"
            )
    return batch_of(columns, target, batch.num_rows)


def _fitted_fields(
    names: Sequence[str],
    arrays: Sequence[pa.Array],
    fields: Sequence[NestedField],
    target: Sequence[pa.Field],
    prefix: str,
    rows: int,
) -> list[pa.Array]:
    """Return one array for each field of `target`, which lacks the fields of unknown type."""
    by_name = dict(zip(names, arrays, strict=True))
    if len(by_name) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise BadRequest(f"column {prefix}{twice}: the rows have two columns of this name")
    stored = {field.name: field for field in target}
    fitted = []
    for field in fields:
        array, path = by_name.pop(field.name, None), f"{prefix}{field.name}"
        if field.name not in stored:
            if array is not None and array.null_count < len(array):
                raise BadRequest(f"column {path} has the type unknown, so that it can only be null")
            continue
        type_ = stored[field.name].type
        if array is None:
            fitted.append(_missing(field, type_, path, rows))
        else:
            fitted.append(_fitted(array, field, type_, path))
    if by_name:
        known = ", ".join(field.name for field in fields)
        raise BadRequest(
            f"column {prefix}{next(iter(by_name))}: the table has no such column; it has {known}. "
            "Add it to the table with add_column, or leave it out"
        )
    return fitted


def _missing(field: NestedField, type_: pa.DataType, path: str, rows: int) -> pa.Array:
    if field.write_default is None and field.required:
        raise BadRequest(f"column {path} is required, but the rows do not have it")
    return constant(field.write_default, type_)(rows)


def _fitted(array: pa.Array, field: NestedField, target: Any, path: str) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    type_ = field.type
    if isinstance(type_, types.ListType):
        element = partial(_part, field=type_.element, target=target.value_type, parent=path)
        return list_of(array, element, target, path)
    if isinstance(type_, types.MapType):
        key = partial(_part, field=type_.key, target=target.key_type, parent=path)
        value = partial(_part, field=type_.value, target=target.item_type, parent=path)
        return map_of(array, key, value, target, path)
    if isinstance(type_, types.StructType):
        return _fitted_struct(array, type_, target, path)
    if type_.type_id is types.TypeId.VARIANT:
        return _variant(array, target, path)
    return fit_leaf(array, target, path)


def _part(array: pa.Array, field: NestedField, target: Any, parent: str) -> pa.Array:
    path = f"{parent}.{field.name}"
    fitted = _fitted(array, field, target, path)
    if field.required and fitted.null_count:
        raise BadRequest(f"column {path} is required, but has nulls: give it values")
    return fitted


def _fitted_struct(array: pa.Array, type_: StructType, target: Any, path: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise misfit(array.type, target, path)
    names = [field.name for field in array.type]
    children = _fitted_fields(
        names, array.flatten(), type_.fields, list(target), f"{path}.", len(array)
    )
    return struct_of(array, children, target, path)


def _variant(array: pa.Array, target: Any, path: str) -> pa.Array:
    """Take the two binary parts of a variant as they are."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if not pa.types.is_struct(array.type) or array.type.num_fields != target.num_fields:
        raise misfit(array.type, target, path)
    parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    if parts.keys() != {field.name for field in target}:
        raise misfit(array.type, target, path)
    children = [
        convert_leaf(parts[field.name], field.type, f"{path}.{field.name}") for field in target
    ]
    return struct_of(array, children, target, path)


# --- values without parts -------------------------------------------------------------------------


def fit_leaf(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Convert values to a column's type, or refuse the first that the type cannot have."""
    source = array.type
    if source == target:
        return array
    if is_well_known_binary(target):
        is_large = pa.types.is_large_binary(source)
        return well_known_binary(array.cast(pa.binary()) if is_large else array, target, path)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        _check_zone(source, target, path)
        return _cast(array, target, path)
    if _is_exact(source, target):
        return _cast(array, target, path)
    return convert_leaf(array, target, path)


def _check_zone(source: Any, target: Any, path: str) -> None:
    if source.tz is None and target.tz is not None:
        raise BadRequest(f"column {path} is a timestamptz, but the rows have no zone: {_ZONE_HINT}")
    if source.tz is not None and target.tz is None:
        raise BadRequest(
            f"column {path} is a timestamp without a zone, but the rows have the zone {source.tz}: "
            "remove it, or make the column a timestamptz"
        )


def _is_exact(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a safe cast of Arrow either keeps every value or fails."""
    types_ = pa.types
    if types_.is_integer(target):
        # Columns of whole numbers with nulls are floats in pandas.
        return bool(types_.is_integer(source) or types_.is_floating(source))
    if types_.is_floating(target):
        return bool(types_.is_integer(source) or types_.is_float16(source))
    if types_.is_decimal(target):
        return bool(types_.is_integer(source) or types_.is_decimal(source))
    return bool(types_.is_time(source) and types_.is_time(target))


def _cast(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
            # Arrow casts whole numbers only to decimals that have room for all of their type.
            array = array.cast(_WHOLE_DECIMAL)
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise BadRequest(
            f"column {path}: a value of {array.type} does not fit {target}: {error}"
        ) from None
