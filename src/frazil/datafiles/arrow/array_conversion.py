"""Converts arrays between the Arrow types of files, of Spark and of a table.

Values without parts are only converted if that keeps each value: to wider numbers, other units of
time, text as a uuid, another layout of the same bytes. Everything else is an error that names the
column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.values.parquet_columns import is_list
from frazil.wire.errors import BadRequest

_NANOS_PER_UNIT: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def convert_leaf(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return the values as another type; `path` is the column's name in messages."""
    if array.type == target:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_null(target):
        return pa.nulls(len(array))
    if pa.types.is_dictionary(array.type):
        return convert_leaf(array.dictionary_decode(), target, path)
    try:
        return _convert(array, target, path)
    except pa.ArrowInvalid as error:
        raise BadRequest(
            f"column {path}: a value of {array.type} is no {_type_name(target)}: {error}"
        ) from None


def is_uuid(type_: pa.DataType) -> bool:
    return isinstance(type_, pa.UuidType)


def misfit(source: pa.DataType, target: pa.DataType, path: str) -> BadRequest:
    return BadRequest(f"column {path}: {_type_name(source)} cannot be read as {_type_name(target)}")


def _type_name(type_: pa.DataType) -> str:
    return "uuid" if is_uuid(type_) else str(type_)


def _convert(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    source = array.type
    if is_uuid(target):
        return _to_uuid(array, path)
    if is_uuid(source) and pa.types.is_string(target):
        return _uuid_texts(array.storage)
    if isinstance(source, pa.BaseExtensionType):
        return convert_leaf(array.storage, target, path)
    if pa.types.is_timestamp(target):
        return _to_timestamp(array, target, path)
    if _keeps_values(source, target):
        return array.cast(target)
    raise misfit(source, target, path)


def _keeps_values(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    keeps = False
    if types.is_signed_integer(target):
        keeps = types.is_integer(source) and target.bit_width > source.bit_width
    elif types.is_floating(target):
        keeps = types.is_floating(source) and target.bit_width > source.bit_width
    elif types.is_decimal(target) and types.is_decimal(source):
        keeps = source.scale == target.scale and source.precision <= target.precision
    elif types.is_date(target):
        keeps = types.is_date(source)
    elif types.is_time(target):
        keeps = types.is_time(source)
    elif types.is_string(target):
        # Text that a writer left without its annotation is read as text; the cast checks it.
        keeps = _is_text(source) or _is_binary(source)
    elif types.is_binary(target) or types.is_fixed_size_binary(target):
        keeps = _is_binary(source)
    return keeps


def _is_text(type_: pa.DataType) -> bool:
    return str(type_) in ("string", "large_string", "string_view")


def _is_binary(type_: pa.DataType) -> bool:
    is_fixed = bool(pa.types.is_fixed_size_binary(type_))
    return is_fixed or str(type_) in ("binary", "large_binary", "binary_view")


def well_known_binary(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Convert binary, or the struct that Spark puts around it, to a file's geometries."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    elif pa.types.is_struct(array.type) and array.type.get_field_index("wkb") >= 0:
        binary = array.field("wkb")
        array = pc.if_else(array.is_valid(), binary, None) if array.null_count else binary
    if not pa.types.is_binary(array.type):
        raise misfit(array.type, target, path)
    return pa.ExtensionArray.from_storage(target, array)


# --- constants -------------------------------------------------------------------------------


def constant(value: Any, type_: pa.DataType) -> Callable[[int], pa.Array]:
    """Return a function that makes columns of one internal value (see `frazil.values.types`)."""
    if value is None:
        return lambda rows: pa.nulls(rows, type_)
    if is_uuid(type_):
        uuid_scalar = pa.scalar(value.bytes, pa.binary(16))
        return lambda rows: pa.ExtensionArray.from_storage(type_, pa.repeat(uuid_scalar, rows))
    scalar = scalar_of(value, type_)
    return lambda rows: pa.repeat(scalar, rows)


def scalar_of(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Return an internal value as a scalar of a type other than uuid."""
    types = pa.types
    if types.is_date(type_):
        return pa.array([value], pa.int32()).view(type_)[0]
    if types.is_time(type_) or types.is_timestamp(type_):
        return pa.array([value], pa.int64()).view(type_)[0]
    return pa.scalar(value, type_)


# --- timestamps ------------------------------------------------------------------------------


def _to_timestamp(array: pa.Array, target: Any, path: str) -> pa.Array:
    source = array.type
    if pa.types.is_date(source) and target.tz is None:
        return array.cast(target)
    if not pa.types.is_timestamp(source):
        raise misfit(source, target, path)
    # A zone only changes how an instant is displayed: the stored number is the same without it.
    return in_unit(array, target.unit).view(target)


def in_unit(array: pa.Array, unit: str) -> pa.Array:
    """Convert timestamps to another unit.

    A coarser unit takes the earlier instant, as Java's `nanosToMicros` does. A cast would round
    toward 1970.
    """
    nanos, target_nanos = _NANOS_PER_UNIT[array.type.unit], _NANOS_PER_UNIT[unit]
    if nanos == target_nanos:
        return array
    if nanos > target_nanos:
        return array.view(pa.timestamp(array.type.unit)).cast(pa.timestamp(unit))
    numbers = array.view(pa.int64())
    values = np.floor_divide(
        pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), target_nanos // nanos
    )
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(values, pa.int64(), mask=mask).view(pa.timestamp(unit))


# --- uuids: text in Spark, bytes in files ----------------------------------------------------

_UUID_BYTES: Final = 16
_UUID_CHARACTERS: Final = 36
_ZERO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_DASH_POSITIONS: Final = np.array([8, 13, 18, 23])
_DIGIT_POSITIONS: Final = np.delete(np.arange(_UUID_CHARACTERS), _DASH_POSITIONS)
_DASH: Final = ord("-")
_NOT_A_DIGIT: Final = 255
_HEX_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


def _hex_values() -> npt.NDArray[np.uint8]:
    values = np.full(256, _NOT_A_DIGIT, np.uint8)
    for digit in "0123456789abcdefABCDEF":
        values[ord(digit)] = int(digit, 16)
    return values


_HEX_VALUES: Final = _hex_values()


def _to_uuid(array: pa.Array, path: str) -> pa.Array:
    if _is_text(array.type):
        storage = _uuid_bytes(array.cast(pa.string()), path)
    elif _is_binary(array.type):
        storage = array.cast(pa.binary(_UUID_BYTES))
    else:
        raise misfit(array.type, pa.uuid(), path)
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def _uuid_bytes(texts: pa.Array, path: str) -> pa.Array:
    """Parse strings to `binary(16)`; the error shows the first one that is no uuid."""
    filled = pc.fill_null(texts, _ZERO_UUID) if texts.null_count else texts
    wrong_length = pc.not_equal(pc.binary_length(filled), _UUID_CHARACTERS)
    if pc.any(wrong_length).as_py():
        raise _invalid_uuid(filled.filter(wrong_length)[0].as_py(), path)
    offsets = filled.buffers()[1]
    first = np.frombuffer(offsets, np.int32)[filled.offset] if len(filled) else 0
    data = filled.buffers()[2]
    characters = np.frombuffer(data or b"", np.uint8)
    characters = characters[first : first + len(filled) * _UUID_CHARACTERS]
    characters = characters.reshape(len(filled), _UUID_CHARACTERS)
    digits = _HEX_VALUES[characters[:, _DIGIT_POSITIONS]]
    has_other_digits = (digits == _NOT_A_DIGIT).any(axis=1)
    is_wrong = has_other_digits | (characters[:, _DASH_POSITIONS] != _DASH).any(axis=1)
    if is_wrong.any():
        raise _invalid_uuid(filled[int(is_wrong.argmax())].as_py(), path)
    values = np.ascontiguousarray((digits[:, 0::2] << 4) | digits[:, 1::2])
    return _with_nulls_of(texts, pa.binary(_UUID_BYTES), [pa.py_buffer(values)])


def _uuid_texts(values: pa.Array) -> pa.Array:
    """Format arrays of `binary(16)` as strings in the usual spelling."""
    rows = len(values)
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    data = data[values.offset * _UUID_BYTES : (values.offset + rows) * _UUID_BYTES]
    data = data.reshape(rows, _UUID_BYTES)
    digits = np.empty((rows, 2 * _UUID_BYTES), np.uint8)
    digits[:, 0::2] = _HEX_DIGITS[data >> 4]
    digits[:, 1::2] = _HEX_DIGITS[data & 15]
    characters = np.full((rows, _UUID_CHARACTERS), _DASH, np.uint8)
    characters[:, _DIGIT_POSITIONS] = digits
    offsets = np.arange(0, (rows + 1) * _UUID_CHARACTERS, _UUID_CHARACTERS, dtype=np.int32)
    return _with_nulls_of(values, pa.string(), [pa.py_buffer(offsets), pa.py_buffer(characters)])


def _with_nulls_of(source: pa.Array, type_: pa.DataType, data: list[pa.Buffer]) -> pa.Array:
    validity = None
    if source.null_count:
        # The bits are packed again, because those of a slice may not begin at a byte.
        bits = np.packbits(source.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        validity = pa.py_buffer(bits)
    return pa.Array.from_buffers(type_, len(source), [validity, *data], source.null_count)


def _invalid_uuid(text: str, path: str) -> BadRequest:
    shown = text if len(text) <= 50 else f"{text[:47]}..."
    return BadRequest(
        f"column {path}: {shown!r} is no uuid like f79c3e09-677c-4bbd-a479-3f349cb785e7"
    )


# --- structs, lists and maps around other children ------------------------------------------------
# The outer buffers are reused; only the children are replaced.

Convert = Callable[[pa.Array], pa.Array]


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Make a batch with that many rows, even if it has no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))


def struct_of(
    array: pa.Array, children: Sequence[pa.Array], target: pa.DataType, path: str
) -> pa.Array:
    """Make a struct of other children, with the nulls of `array`."""
    fields = list(target)
    filled = [
        child if field.nullable or not child.null_count else _filled(child, array, path, field)
        for child, field in zip(children, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(filled, fields=fields, mask=_null_mask(array))


def _filled(child: pa.Array, parent: pa.Array, path: str, field: pa.Field) -> pa.Array:
    """Remove the nulls of a required field that lie below null structs.

    Parquet's writer refuses a null in a required field even there, although it stores nothing.
    """
    if pc.any(pc.and_(child.is_null(), parent.is_valid())).as_py():
        raise BadRequest(f"column {path}.{field.name} is required, but has nulls: give it values")
    return without_nulls(child)


def without_nulls(array: pa.Array) -> pa.Array:
    """Replace each null by whatever value is stored below it."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, without_nulls(array.storage))
    if pa.types.is_struct(type_):
        children = [array.field(position) for position in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(type_))
    if pa.types.is_map(type_):
        offsets, first, last = _offsets(array)
        keys, items = (part.slice(first, last - first) for part in (array.keys, array.items))
        return pa.MapArray.from_arrays(offsets, keys, items, type=type_)
    if pa.types.is_list(type_):
        offsets, first, last = _offsets(array)
        return pa.ListArray.from_arrays(
            offsets, array.values.slice(first, last - first), type=type_
        )
    data = array.buffers()[1:]
    return pa.Array.from_buffers(type_, len(array), [None, *data], 0, array.offset)


def list_of(array: pa.Array, convert: Convert, target: pa.DataType, path: str) -> pa.Array:
    """Make a list of converted elements."""
    if not is_list(array.type):
        raise misfit(array.type, target, path)
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets, first, last = _offsets(array)
    values = convert(array.values.slice(first, last - first))
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=_null_mask(array))


def map_of(
    array: pa.Array, key: Convert, value: Convert, target: pa.DataType, path: str
) -> pa.Array:
    """Make a map of converted keys and values."""
    if not pa.types.is_map(array.type):
        raise misfit(array.type, target, path)
    offsets, first, last = _offsets(array)
    keys = key(array.keys.slice(first, last - first))
    values = value(array.items.slice(first, last - first))
    return pa.MapArray.from_arrays(offsets, keys, values, type=target, mask=_null_mask(array))


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return the offsets counted from the first one, and the range of values that they use.

    A batch may be a small slice of a large row group, whose other values need no conversion.
    """
    offsets = array.offsets
    if not len(offsets):
        return pa.array([0], pa.int32()), 0, 0
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first or offsets.offset:
        offsets = pc.subtract(offsets, pa.scalar(first, offsets.type))
    return offsets, first, last
