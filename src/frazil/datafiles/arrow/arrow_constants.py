"""Columns that hold one value: defaults and partition values, which files do not have.

Runs on executors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from frazil.datafiles.arrow.leaf_conversion import is_uuid


def constant(value: Any, type_: pa.DataType) -> Callable[[int], pa.Array]:
    """Makes columns of an internal value (see `frazil.values.types`)."""
    if value is None:
        return lambda rows: pa.nulls(rows, type_)
    if is_uuid(type_):
        scalar = pa.scalar(value.bytes, pa.binary(16))
        return lambda rows: pa.ExtensionArray.from_storage(type_, pa.repeat(scalar, rows))
    found = _scalar(value, type_)
    return lambda rows: pa.repeat(found, rows)


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    types = pa.types
    if types.is_date(type_):
        return pa.array([value], pa.int32()).view(type_)[0]
    if types.is_time(type_) or types.is_timestamp(type_):
        return pa.array([value], pa.int64()).view(type_)[0]
    return pa.scalar(value, type_)
