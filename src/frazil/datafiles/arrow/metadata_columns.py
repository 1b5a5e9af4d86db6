"""Row lineage of format version 3: which row a row is, and which commit changed it last.

In the file that a row was first written to both are implied: the id is the file's first row id plus
the row's position, the sequence number is the file's (spec, "Row Lineage"). A row that is moved to
another file takes both along as columns; where these are null, the new file implies them again.
Runs on executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.values.types import LONG, NestedField

ROW_ID: Final = "_row_id"
LAST_UPDATED: Final = "_last_updated_sequence_number"
ROW_ID_FIELD: Final = NestedField(2147483540, ROW_ID, LONG, required=False)
LAST_UPDATED_FIELD: Final = NestedField(2147483539, LAST_UPDATED, LONG, required=False)
MIN_FORMAT_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class FileLineage:
    """What a data file implies of its rows."""

    first_row_id: int | None
    """None for a file of a snapshot from before version 3: its rows have no lineage."""
    data_sequence_number: int | None

    def row_ids(self, positions: npt.NDArray[np.int64], own: pa.Array | None) -> pa.Array:
        """Of rows at these positions; `own` is the file's column, where it has one."""
        if self.first_row_id is None:
            return pa.nulls(len(positions), pa.int64())
        implied = pa.array(positions + np.int64(self.first_row_id), pa.int64())
        return implied if own is None else pc.coalesce(own, implied)

    def sequence_numbers(self, rows: int, own: pa.Array | None) -> pa.Array:
        if self.first_row_id is None:
            return pa.nulls(rows, pa.int64())
        if own is None:
            return pa.repeat(pa.scalar(self.data_sequence_number, pa.int64()), rows)
        return pc.coalesce(own, pa.scalar(self.data_sequence_number, pa.int64()))
