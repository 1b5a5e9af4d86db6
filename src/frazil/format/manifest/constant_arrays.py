"""Arrays by file that take no memory where all files have the same value."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

_ARRAY_BYTES: Final = 112
"""What numpy needs for an array beside its values."""
_FEW: Final = 16
"""Values that are not worth looking through."""


def constant(value: Any, rows: int, dtype: Any) -> NDArray[Any]:
    """An array with one value for all rows, which takes no memory for each."""
    return np.broadcast_to(np.array(value, dtype), (rows,))


def is_constant(array: NDArray[Any]) -> bool:
    return array.strides == (0,) and len(array) > 0


def compact(array: NDArray[Any]) -> NDArray[Any]:
    """The array, as a constant where all values are the same."""
    if len(array) > _FEW and not is_constant(array) and bool((array == array[0]).all()):
        return constant(array[0], len(array), array.dtype)
    return array


def own_bytes(array: NDArray[Any] | None) -> int:
    """What an array takes in memory; a constant has its value once."""
    if array is None:
        return 0
    return _ARRAY_BYTES + (2 * array.itemsize if is_constant(array) else array.nbytes)


def taken(array: NDArray[Any], rows: Rows) -> NDArray[Any]:
    return np.broadcast_to(array[:1], (len(rows),)) if is_constant(array) else array[rows]


def spread(array: NDArray[Any], rows: Rows, total: int) -> NDArray[Any]:
    """Values of some rows among all, zero elsewhere."""
    dense = np.zeros(total, array.dtype)
    dense[rows] = array
    return dense
