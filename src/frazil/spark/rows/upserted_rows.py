"""The rows of a MERGE that are its source's own, as they lie in temporary files: no Spark needed.

The commonest MERGE updates all columns of what it finds and inserts the rest. Where the source is
small and has the table's types, what is to be written is then stored already: which of its rows
take the place of which old ones is told by the matches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED, ROW_ID
from frazil.spark.rows.merge_frames import CHOSEN, MATCHED


def upserted_rows(
    source: pa.Table,
    numbers: pa.ChunkedArray,
    matches: pa.Table,
    updates: Sequence[int],
    *,
    lineage: bool,
) -> pa.Table:
    """Source rows that update a match, once for each, and those that match nothing.

    `source` has the rows to be written, `numbers` are theirs. `matches` has for each match the
    number of its source row, what becomes of it, of which `updates` are updates, and with lineage
    the old row's id.
    """
    given = numbers.to_numpy()
    order = np.argsort(given, kind="stable")
    matched = order[np.searchsorted(given, matches.column(MATCHED).to_numpy(), sorter=order)]
    is_update = np.isin(matches.column(CHOSEN).to_numpy(), updates)
    is_new = np.ones(len(given), dtype=bool)
    is_new[matched] = False
    new = np.flatnonzero(is_new)
    rows = source.take(pa.array(np.concatenate([matched[is_update], new])))
    if not lineage:
        return rows
    kept = matches.column(ROW_ID).filter(pa.array(is_update)).chunks
    ids = pa.chunked_array([*kept, pa.nulls(len(new), pa.int64())], pa.int64())
    nobody = pa.nulls(rows.num_rows, pa.int64())
    return rows.append_column(ROW_ID, ids).append_column(LAST_UPDATED, nobody)
