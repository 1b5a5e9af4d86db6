"""Values of one Arrow type as another that holds the same ones: the leaves of every conversion.

Only what keeps each value is done: wider numbers, other units of time, text as a uuid, another
layout of the same bytes. All else is an error that names the column. Runs on executors.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.uuids import uuid_bytes, uuid_texts
from frazil.wire.errors import BadRequest

_NANOS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def convert_leaf(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """The same array where the types are equal."""
    if array.type == target:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_null(target):
        return pa.nulls(len(array))
    if pa.types.is_dictionary(array.type):
        return convert_leaf(array.dictionary_decode(), target, path)
    try:
        return _converted(array, target, path)
    except pa.ArrowInvalid as error:
        raise BadRequest(
            f"column {path}: a value of {array.type} is no {shown(target)}: {error}"
        ) from None


def shown(type_: pa.DataType) -> str:
    return "uuid" if is_uuid(type_) else str(type_)


def is_uuid(type_: pa.DataType) -> bool:
    return isinstance(type_, pa.UuidType)


def misfit(found: pa.DataType, target: pa.DataType, path: str) -> BadRequest:
    return BadRequest(f"column {path}: {shown(found)} cannot be read as {shown(target)}")


def _converted(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    types = pa.types
    found = array.type
    if is_uuid(target):
        return _to_uuid(array, path)
    if is_uuid(found):
        if types.is_string(target):
            return uuid_texts(array.storage)
        return convert_leaf(array.storage, target, path)
    if isinstance(found, pa.BaseExtensionType):
        return convert_leaf(array.storage, target, path)
    if types.is_timestamp(target):
        return _to_timestamp(array, target, path)
    if _keeps_values(found, target):
        return array.cast(target)
    raise misfit(found, target, path)


def _keeps_values(found: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    kept = False
    if types.is_signed_integer(target):
        kept = types.is_integer(found) and target.bit_width > found.bit_width
    elif types.is_floating(target):
        kept = types.is_floating(found) and target.bit_width > found.bit_width
    elif types.is_decimal(target) and types.is_decimal(found):
        kept = found.scale == target.scale and found.precision <= target.precision
    elif types.is_date(target):
        kept = types.is_date(found)
    elif types.is_time(target):
        kept = types.is_time(found)
    elif types.is_string(target):
        # Text that a writer left without its annotation is read as text; the cast checks it.
        kept = _is_text(found) or _is_binary(found)
    elif types.is_binary(target) or types.is_fixed_size_binary(target):
        kept = _is_binary(found)
    return kept


def _is_text(type_: pa.DataType) -> bool:
    return str(type_) in ("string", "large_string", "string_view")


def _is_binary(type_: pa.DataType) -> bool:
    is_fixed = bool(pa.types.is_fixed_size_binary(type_))
    return is_fixed or str(type_) in ("binary", "large_binary", "binary_view")


# --- uuids -----------------------------------------------------------------------------------


def _to_uuid(array: pa.Array, path: str) -> pa.Array:
    if _is_text(array.type):
        storage = uuid_bytes(array.cast(pa.string()), path)
    elif _is_binary(array.type):
        storage = array.cast(pa.binary(16))
    else:
        raise misfit(array.type, pa.uuid(), path)
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


# --- timestamps ------------------------------------------------------------------------------


def _to_timestamp(array: pa.Array, target: Any, path: str) -> pa.Array:
    found = array.type
    if pa.types.is_date(found) and target.tz is None:
        return array.cast(target)
    if not pa.types.is_timestamp(found):
        raise misfit(found, target, path)
    # The zone is only how an instant is shown: what is stored is the same without it.
    return _in_unit(array, target.unit).view(target)


def _in_unit(array: pa.Array, unit: str) -> pa.Array:
    """A coarser unit takes the earlier instant, as Java's `nanosToMicros`: a cast would round to
    the year 1970."""
    factor, divisor = _NANOS[array.type.unit], _NANOS[unit]
    if factor >= divisor:
        return (
            array
            if factor == divisor
            else array.view(pa.timestamp(array.type.unit)).cast(pa.timestamp(unit))
        )
    numbers = array.view(pa.int64())
    values = np.floor_divide(
        pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), divisor // factor
    )
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(values, pa.int64(), mask=mask).view(pa.timestamp(unit))
