"""Data and delete files as manifests tell of them (spec, "Manifests", the struct `data_file`).

What a commit declares becomes one of these before it is encoded. Partition values are Iceberg's
internal ones (`frazil.values.types`), in the order of the spec's fields; bounds are the binary
single values of the specification's Appendix D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

DATA_CONTENT: Final = 0
POSITION_DELETES: Final = 1
EQUALITY_DELETES: Final = 2


class ContentFile(msgspec.Struct, frozen=True, kw_only=True):
    """What data files and delete files have in common."""

    file_path: str
    file_format: str
    partition: tuple[Any, ...] = ()
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: Sequence[int] | None = None
    sort_order_id: int | None = None


class DataFile(ContentFile, frozen=True, kw_only=True):
    first_row_id: int | None = None
    """None where the file inherits it from its manifest (version 3) or has none."""

    @property
    def content(self) -> int:
        return DATA_CONTENT


class DeleteFile(ContentFile, frozen=True, kw_only=True):
    """A position delete file, an equality delete file, or a deletion vector in a Puffin file."""

    content: int
    equality_ids: Sequence[int] | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None

    @property
    def identity(self) -> tuple[str, int | None, int | None]:
        """One Puffin file holds many deletion vectors, so the path alone names none of them."""
        return self.file_path, self.content_offset, self.content_size_in_bytes
