"""The row ids of rows that an upsert replaces, by their keys.

PyIceberg updates a row by removing it and appending it anew. The row is still the same row: in
format version 3 it keeps its `_row_id`, and its `_last_updated_sequence_number` is left null, which
stands for the commit that writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from frazil.pyiceberg.lineage import LAST_UPDATED, ROW_ID


class UpdatedRows:
    def __init__(self, key_columns: tuple[str, ...]) -> None:
        self._key_columns = list(key_columns)
        self._row_ids: dict[tuple[Any, ...], int] = {}

    def note(self, rows: pa.Table) -> None:
        """Rows as they were, with the columns of their lineage."""
        for key, row_id in zip(self._keys(rows), rows[ROW_ID].to_pylist(), strict=True):
            if row_id is not None:
                self._row_ids.setdefault(key, row_id)

    def with_row_ids(self, rows: pa.Table) -> pa.Table:
        """Rows as they shall be. Each id is given out once: two rows never share one."""
        row_ids = [self._row_ids.pop(key, None) for key in self._keys(rows)]
        rows = rows.append_column(ROW_ID, pa.array(row_ids, pa.int64()))
        return rows.append_column(LAST_UPDATED, pa.nulls(len(rows), pa.int64()))

    def _keys(self, rows: pa.Table) -> Iterable[tuple[Any, ...]]:
        columns = [rows[name].to_pylist() for name in self._key_columns]
        return zip(*columns, strict=True)
