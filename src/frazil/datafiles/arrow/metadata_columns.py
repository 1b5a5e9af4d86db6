"""The columns that a scan can return besides the table's own, and the row lineage among them.

Row lineage (format version 3) says which row a row is, and which commit changed it last. In the
file that a row was first written to both are implied: the id is the file's first row id plus the
row's position, the sequence number is the file's (spec, "Row Lineage"). A row that moves to another
file takes both along as columns; where these are null, the new file implies them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.values.types import INT, LONG, STRING, NestedField, StructType

FILE: Final = "_file"
POSITION: Final = "_pos"
SPEC_ID: Final = "_spec_id"
ROW_ID: Final = "_row_id"
LAST_UPDATED: Final = "_last_updated_sequence_number"
ROW_ID_FIELD: Final = NestedField(2147483540, ROW_ID, LONG, required=False)
LAST_UPDATED_FIELD: Final = NestedField(2147483539, LAST_UPDATED, LONG, required=False)
LINEAGE: Final = StructType((ROW_ID_FIELD, LAST_UPDATED_FIELD))
MIN_FORMAT_VERSION: Final = 3
"""The first format version that has row lineage."""

METADATA_FIELDS: Final[Mapping[str, NestedField]] = {
    field.name: field
    for field in (
        NestedField(2147483646, FILE, STRING, required=True),
        NestedField(2147483645, POSITION, LONG, required=True),
        NestedField(2147483643, SPEC_ID, INT, required=True),
        ROW_ID_FIELD,
        LAST_UPDATED_FIELD,
    )
}
"""By name (spec, "Reserved Field IDs")."""


@dataclass(frozen=True, slots=True)
class FileLineage:
    """The row lineage that a data file implies for its rows."""

    first_row_id: int | None
    """None for a file of a snapshot from before version 3: its rows have no lineage."""
    data_sequence_number: int | None

    def row_ids(self, positions: npt.NDArray[np.int64], stored: pa.Array | None) -> pa.Array:
        """Return the ids of rows at these positions.

        `stored` is the file's own column of ids, if it has one.
        """
        if self.first_row_id is None:
            return pa.nulls(len(positions), pa.int64())
        implied = pa.array(positions + np.int64(self.first_row_id), pa.int64())
        return implied if stored is None else pc.coalesce(stored, implied)

    def sequence_numbers(self, rows: int, stored: pa.Array | None) -> pa.Array:
        """Return the sequence numbers of that many rows; `stored` is the file's own column."""
        if self.first_row_id is None:
            return pa.nulls(rows, pa.int64())
        if stored is None:
            return pa.repeat(pa.scalar(self.data_sequence_number, pa.int64()), rows)
        return pc.coalesce(stored, pa.scalar(self.data_sequence_number, pa.int64()))
