"""Results of a task as rows for Spark, without what pyarrow loads pandas for.

`pa.array` looks whether it was given something of pandas, and loads that where it is installed: a
second of work for each new Python process of an executor, which is more than many tasks take.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa


def binary_rows(name: str, values: Sequence[bytes]) -> pa.RecordBatch:
    """A batch of one column of bytes."""
    offsets = array("i", [0, *accumulate(map(len, values))])
    column = pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )
    return pa.RecordBatch.from_arrays([column], schema=pa.schema([pa.field(name, pa.binary())]))
