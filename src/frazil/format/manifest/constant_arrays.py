"""Arrays with one value per file that use no memory if all files have the same value."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

_ARRAY_BYTES: Final = 112
"""The overhead of a numpy array."""
_MIN_CHECKED_VALUES: Final = 16
"""Shorter arrays are not worth checking."""


def constant(value: Any, rows: int, dtype: Any) -> NDArray[Any]:
    """Return an array with one value for all rows. It does not use memory for each row."""
    return np.broadcast_to(np.array(value, dtype), (rows,))


def is_constant(array: NDArray[Any]) -> bool:
    return array.strides == (0,) and len(array) > 0


def compact(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, as a constant if all its values are equal."""
    if (
        len(array) > _MIN_CHECKED_VALUES
        and not is_constant(array)
        and bool((array == array[0]).all())
    ):
        return constant(array[0], len(array), array.dtype)
    return array


def own_bytes(array: NDArray[Any] | None) -> int:
    """Return the memory an array uses. A constant stores its value once."""
    if array is None:
        return 0
    return _ARRAY_BYTES + (2 * array.itemsize if is_constant(array) else array.nbytes)


def taken(array: NDArray[Any], rows: Rows) -> NDArray[Any]:
    return np.broadcast_to(array[:1], (len(rows),)) if is_constant(array) else array[rows]


def spread(array: NDArray[Any], rows: Rows, total: int) -> NDArray[Any]:
    """Place the values of some rows in an array of all rows. The others are zero."""
    dense = np.zeros(total, array.dtype)
    dense[rows] = array
    return dense
