"""The rows of a MERGE that are its source's own, as they lie in temporary files: no Spark needed.

The commonest MERGE updates all columns of what it finds and inserts the rest. Where the source is
small and has the table's types, what is to be written is then stored already: which of its rows
take the place of which old ones is told by the matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from frazil.spark.lineage import LAST_UPDATED, ROW_ID

_LINEAGE: Final = pa.int64()


def upserted_rows(
    source: pa.Table, numbers: pa.ChunkedArray, matches: pa.Table, updates: Sequence[int]
) -> pa.Table:
    """Source rows that update a match, once for each, and those that match nothing.

    `source` has the rows to be written and `numbers` their numbers. `matches` has the source row's
    number of each match, what becomes of it, of which `updates` are updates, and with lineage the
    old row's id.
    """
    given = numbers.to_numpy()
    order = np.argsort(given, kind="stable")
    matched, chosen = (matches.column(at).to_numpy() for at in (0, 1))
    at = order[np.searchsorted(given, matched, sorter=order)]
    is_update = np.isin(chosen, updates)
    is_new = np.ones(len(given), dtype=bool)
    is_new[at] = False
    taken = np.concatenate([at[is_update], np.flatnonzero(is_new)])
    rows = source.take(pa.array(taken))
    if matches.num_columns == len((0, 1)):
        return rows
    kept = matches.column(2).filter(pa.array(is_update)).combine_chunks()
    ids = pa.concat_arrays([_array(kept), pa.nulls(int(is_new.sum()), _LINEAGE)])
    with_ids = rows.append_column(ROW_ID, ids)
    return with_ids.append_column(LAST_UPDATED, pa.nulls(len(taken), _LINEAGE))


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
