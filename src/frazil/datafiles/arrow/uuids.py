"""Columns of uuids between their text, which Spark has, and their bytes, which files have.

Runs on executors.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.wire.errors import BadRequest

_BYTES: Final = 16
_TEXT: Final = 36
_ZERO: Final = "00000000-0000-0000-0000-000000000000"
_DASHES: Final = np.array([8, 13, 18, 23])
_DIGITS: Final = np.array([place for place in range(_TEXT) if place not in (8, 13, 18, 23)])
_DASH: Final = ord("-")
_NO_DIGIT: Final = 255


def _values_of_digits() -> npt.NDArray[np.uint8]:
    values = np.full(256, _NO_DIGIT, np.uint8)
    for digit in "0123456789abcdefABCDEF":
        values[ord(digit)] = int(digit, 16)
    return values


_VALUES: Final = _values_of_digits()
_HEXADECIMAL: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


def uuid_bytes(texts: pa.Array, path: str) -> pa.Array:
    """Strings as `binary(16)`; one that is no uuid is an error that shows it."""
    filled = pc.fill_null(texts, _ZERO) if texts.null_count else texts
    wrong_length = pc.not_equal(pc.binary_length(filled), _TEXT)
    if pc.any(wrong_length).as_py():
        raise _no_uuid(filled.filter(wrong_length)[0].as_py(), path)
    offsets = filled.buffers()[1]
    first = np.frombuffer(offsets, np.int32)[filled.offset] if len(filled) else 0
    data = filled.buffers()[2]
    letters = np.frombuffer(data or b"", np.uint8)[first : first + len(filled) * _TEXT]
    letters = letters.reshape(len(filled), _TEXT)
    digits = _VALUES[letters[:, _DIGITS]]
    wrong = (digits == _NO_DIGIT).any(axis=1) | (letters[:, _DASHES] != _DASH).any(axis=1)
    if wrong.any():
        raise _no_uuid(filled[int(wrong.argmax())].as_py(), path)
    values = np.ascontiguousarray((digits[:, 0::2] << 4) | digits[:, 1::2])
    return _with_nulls_of(texts, pa.binary(_BYTES), [pa.py_buffer(values)])


def uuid_texts(values: pa.Array) -> pa.Array:
    """Arrays of `binary(16)` as strings in the usual spelling."""
    rows = len(values)
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    data = data[values.offset * _BYTES : (values.offset + rows) * _BYTES].reshape(rows, _BYTES)
    digits = np.empty((rows, 2 * _BYTES), np.uint8)
    digits[:, 0::2] = _HEXADECIMAL[data >> 4]
    digits[:, 1::2] = _HEXADECIMAL[data & 15]
    letters = np.full((rows, _TEXT), _DASH, np.uint8)
    letters[:, _DIGITS] = digits
    offsets = np.arange(0, (rows + 1) * _TEXT, _TEXT, dtype=np.int32)
    return _with_nulls_of(values, pa.string(), [pa.py_buffer(offsets), pa.py_buffer(letters)])


def _with_nulls_of(source: pa.Array, type_: pa.DataType, data: list[pa.Buffer]) -> pa.Array:
    validity = None
    if source.null_count:
        # Packed anew: the bits of a slice need not begin at a byte.
        bits = np.packbits(source.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        validity = pa.py_buffer(bits)
    return pa.Array.from_buffers(type_, len(source), [validity, *data], source.null_count)


def _no_uuid(text: str, path: str) -> BadRequest:
    shown = text if len(text) <= 50 else f"{text[:47]}..."
    return BadRequest(
        f"column {path}: {shown!r} is no uuid like f79c3e09-677c-4bbd-a479-3f349cb785e7"
    )
