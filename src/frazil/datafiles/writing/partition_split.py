"""A batch split by its partition, and partitions as Iceberg's values and as folders.

Runs on executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote_plus

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.footers.footer_partitions import PartitionField
from frazil.datafiles.footers.python_values import internal_value
from frazil.values import temporal
from frazil.values.single_value import InvalidValue, to_json
from frazil.values.transforms import Hour, Month, Year
from frazil.values.types import Type, TypeId
from frazil.wire.errors import BadRequest

PARTITION_PREFIX: Final = "_partition_"
"""Columns beside the table's own that hold the partition of each row."""

_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_MAX_FOLDER_CHARACTERS: Final = 80
_EPOCH_YEAR: Final = 1970


def split(
    batch: pa.RecordBatch, keys: Sequence[pa.Array]
) -> Iterator[tuple[tuple[pa.Scalar, ...], pa.RecordBatch]]:
    """The rows of each combination of keys, which lie together or not; their order stays."""
    if batch.num_rows == 0:
        return
    codes = _codes(keys, batch.num_rows)
    starts = _starts(codes)
    if len(starts) > len(np.unique(codes)):
        order = np.argsort(codes, kind="stable").astype(np.int64)
        # `pa.array` and `to_numpy` load pandas: see `frazil.spark.writing.binary_rows`.
        rows = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
        batch, keys = batch.take(rows), [key.take(rows) for key in keys]
        starts = _starts(codes[order])
    ends = [*starts[1:], batch.num_rows]
    for start, end in zip(starts, ends, strict=True):
        yield tuple(key[start] for key in keys), batch.slice(start, end - start)


def _codes(keys: Sequence[pa.Array], rows: int) -> npt.NDArray[np.int64]:
    """A number for each combination, equal where all keys are."""
    codes = np.zeros(rows, np.int64)
    for key in keys:
        encoded = pc.dictionary_encode(_comparable(key), null_encoding="encode")
        found = np.frombuffer(encoded.indices.buffers()[1], np.int32)
        own = found[encoded.indices.offset :][:rows].astype(np.int64)
        # Numbered anew each time, so that many keys do not overflow.
        _, codes = np.unique(codes * len(encoded.dictionary) + own, return_inverse=True)
    return codes


def _starts(codes: npt.NDArray[np.int64]) -> list[int]:
    changes: list[int] = (np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()
    return [0, *changes]


def _comparable(key: pa.Array) -> pa.Array:
    """Floats by their bits: the two zeros are equal, but of two partitions."""
    if pa.types.is_float64(key.type):
        return key.view(pa.int64())
    return key.view(pa.int32()) if pa.types.is_float32(key.type) else key


# --- values -------------------------------------------------------------------------------------


def partition_value(field: PartitionField, scalar: pa.Scalar) -> Any:
    """The value of a partition field as Iceberg has it, from one of Spark's."""
    if not scalar.is_valid or field.result_type is None:
        return None
    type_ = field.result_type
    try:
        return internal_value(type_, _plain(type_, scalar))
    except InvalidValue as error:
        raise BadRequest(f"partition field {field.name}: {error}") from None


def _plain(type_: Type, scalar: pa.Scalar) -> Any:
    """Numbers for dates and timestamps, since Python's own end at the year 9999."""
    if pa.types.is_date32(scalar.type):
        return scalar.value
    if pa.types.is_timestamp(scalar.type):
        micros = scalar.cast(pa.timestamp("us", scalar.type.tz)).value
        return micros * temporal.NANOS_PER_MICRO if type_.type_id in _NANOS else micros
    return scalar.as_py()


# --- folders ------------------------------------------------------------------------------------


def partition_folder(fields: Sequence[PartitionField], values: Sequence[Any]) -> str:
    """As people know it from Iceberg, `day=2026-05-01/region=eu`; nobody reads values from it."""
    return "/".join(
        f"{_short(field.name)}={_short(_text(field, value))}"
        for field, value in zip(fields, values, strict=True)
    )


def _short(text: str) -> str:
    return quote_plus(text[:_MAX_FOLDER_CHARACTERS])[: 2 * _MAX_FOLDER_CHARACTERS]


def _text(field: PartitionField, value: Any) -> str:
    if value is None or field.result_type is None:
        return "null"
    if isinstance(field.transform, Year):
        return f"{_EPOCH_YEAR + value:04d}"
    if isinstance(field.transform, Month):
        return f"{_EPOCH_YEAR + value // 12:04d}-{value % 12 + 1:02d}"
    if isinstance(field.transform, Hour):
        return f"{temporal.date_from_days(value // 24)}-{value % 24:02d}"
    try:
        found = to_json(field.result_type, value)
    except InvalidValue as error:
        raise BadRequest(f"partition field {field.name}: {error}") from None
    return str(found).lower() if isinstance(found, bool) else str(found)
