"""Data files and delete files as entries of manifests (spec, "Manifests", struct `data_file`).

The files that a commit declares are converted to these before they are encoded. Partition values
are internal values (`frazil.values.types`) in the order of the spec's fields. Bounds are binary
single values (spec, Appendix D).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from frazil.format.avro.avro_types import read_long

DATA_CONTENT: Final = 0
POSITION_DELETES: Final = 1
EQUALITY_DELETES: Final = 2

_V = TypeVar("_V", covariant=True)


class FieldMap(Protocol[_V]):
    """Metrics by field id: a dict, or the counts and bounds of a request."""

    def get(self, field_id: int, /) -> _V | None: ...

    def items(self) -> Iterable[tuple[int, _V]]: ...

    def __len__(self) -> int: ...


class FileMetrics(Protocol):
    """The metrics of a file that evaluators use. Bounds are binary single values."""

    @property
    def record_count(self) -> int: ...
    @property
    def value_counts(self) -> FieldMap[int] | None: ...
    @property
    def null_value_counts(self) -> FieldMap[int] | None: ...
    @property
    def nan_value_counts(self) -> FieldMap[int] | None: ...
    @property
    def lower_bounds(self) -> FieldMap[bytes] | None: ...
    @property
    def upper_bounds(self) -> FieldMap[bytes] | None: ...


class EncodedBounds(msgspec.Struct, frozen=True, gc=False):
    """Bounds as a manifest stores them.

    They are written far more often than read, so they are decoded only when they are read.
    """

    encoded: bytes
    """Avro's optional map of int to bytes, as an array of pairs in one block."""

    def get(self, field_id: int, /) -> bytes | None:
        return next((bound for known, bound in self.items() if known == field_id), None)

    def items(self) -> Iterator[tuple[int, bytes]]:
        data = self.encoded
        count, at = read_long(data, 1)
        for _ in range(count):
            field_id, at = read_long(data, at)
            length, at = read_long(data, at)
            yield field_id, data[at : at + length]
            at += length

    def __len__(self) -> int:
        return read_long(self.encoded, 1)[0]


class ContentFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields that data files and delete files share.

    The garbage collector does not track these objects: a commit may have a hundred thousand of
    them, and none can be part of a cycle.
    """

    file_path: str
    file_format: str
    partition: tuple[Any, ...] = ()
    record_count: int
    file_size_in_bytes: int
    column_sizes: FieldMap[int] | None = None
    value_counts: FieldMap[int] | None = None
    null_value_counts: FieldMap[int] | None = None
    nan_value_counts: FieldMap[int] | None = None
    lower_bounds: FieldMap[bytes] | None = None
    upper_bounds: FieldMap[bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: Sequence[int] | None = None
    sort_order_id: int | None = None


class DataFile(ContentFile, frozen=True, kw_only=True, gc=False):
    first_row_id: int | None = None
    """None if the file inherits it from its manifest (version 3) or has none."""

    @property
    def content(self) -> int:
        return DATA_CONTENT


class DeleteFile(ContentFile, frozen=True, kw_only=True, gc=False):
    """A position delete file, an equality delete file, or a deletion vector in a Puffin file."""

    content: int
    equality_ids: Sequence[int] | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None

    @property
    def identity(self) -> tuple[str, int | None, int | None]:
        """Return the path with offset and size, because a Puffin file has many deletion vectors."""
        return self.file_path, self.content_offset, self.content_size_in_bytes
