"""Reads a view with a listing of files, as Iceberg's `remove_orphan_files` takes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import functions as F

from frazil.maintenance.stored_file_list import ListedFile
from frazil.spark.core.context import Context
from frazil.wire.errors import BadRequest

_COLUMNS: Final = {"file_path": "string", "last_modified": "timestamp"}
_SIZE: Final = "size"
"""Iceberg ignores this column. Here it says how much space the orphans take."""


def files_of_view(context: Context, view: str) -> Iterator[ListedFile]:
    """Yield the files of a view, one partition of it at a time."""
    frame = context.spark.table(view)
    types = dict(frame.dtypes)
    for name, type_name in _COLUMNS.items():
        if types.get(name) != type_name:
            found = f"is a {types[name]}" if name in types else "is missing"
            raise BadRequest(f"file_list_view: {view}.{name} {found}: it must be a {type_name}")
    size = F.col(_SIZE) if types.get(_SIZE) in ("int", "bigint") else F.lit(None)
    rows = frame.select("file_path", size.cast("bigint"), F.unix_millis("last_modified"))
    for path, size_bytes, modified_ms in rows.toLocalIterator(prefetchPartitions=True):
        if path is not None:
            yield path, size_bytes, modified_ms
