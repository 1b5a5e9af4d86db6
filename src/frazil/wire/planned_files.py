"""Files of a plan as a client gets them: what a reader opens and which deletes it applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from frazil.wire.content_files import CountMap, ValueMap


class PlannedDataFile(Struct, frozen=True, kw_only=True, rename="kebab"):
    """A data file to read. Statistics only of the columns that were asked for."""

    file_path: str
    file_format: str
    spec_id: int
    partition: tuple[Any, ...] = ()
    """JSON single values in the order of the spec's fields."""
    file_size_in_bytes: int
    record_count: int
    key_metadata: str | None = None
    split_offsets: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    data_sequence_number: int | None = None
    """Where it was asked for: what rows without a number of their own inherit."""
    column_sizes: CountMap | None = None
    value_counts: CountMap | None = None
    null_value_counts: CountMap | None = None
    nan_value_counts: CountMap | None = None
    lower_bounds: ValueMap | None = None
    """Binary single values in hexadecimal."""
    upper_bounds: ValueMap | None = None


class PlannedDeleteFile(Struct, frozen=True, kw_only=True, rename="kebab"):
    """A file of position or equality deletes, or one deletion vector."""

    content: str
    file_path: str
    file_format: str
    spec_id: int
    partition: tuple[Any, ...] = ()
    file_size_in_bytes: int
    record_count: int
    key_metadata: str | None = None
    equality_ids: tuple[int, ...] | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FileScanTask:
    """A data file with what its reader must apply."""

    data_file: PlannedDataFile
    delete_files: tuple[PlannedDeleteFile, ...]
    residual: bool | Mapping[str, Any]
    """What is left of the filter for the rows of this file, as JSON; True: all of them match."""
