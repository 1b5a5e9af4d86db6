"""Which of the delete files that came after a base apply to a data file of the base.

The rules are those of Java's `DeleteFileIndex`: an equality delete applies when its sequence number
is above the data file's, a position delete also at the same one; both within their spec and
partition, except that an equality delete of an unpartitioned spec reaches every file, and that a
position delete which names its data file reaches that one only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

# The reserved field of a position delete's `file_path` column.
PATH_FIELD_ID = 2147483546
# Where version 3 of a manifest entry has `referenced_data_file`.
_REFERENCED_DATA_FILE = 17


@dataclass(frozen=True, slots=True)
class NewDelete:
    """A delete file and the snapshot that added it."""

    file: DataFile
    sequence_number: int
    snapshot: Snapshot

    def applies_to(
        self, data_file: DataFile, sequence_number: int, metadata: TableMetadata
    ) -> bool:
        """Whether it may delete rows of a data file that is at most as new as the number."""
        if self.file.content == DataFileContent.EQUALITY_DELETES:
            return self.sequence_number > sequence_number and self._equality_may_match(
                data_file, metadata
            )
        return self.sequence_number >= sequence_number and self._position_may_match(data_file)

    def _position_may_match(self, data_file: DataFile) -> bool:
        referenced = _referenced_data_file(self.file)
        if referenced is not None:
            return referenced == data_file.file_path
        return self._same_partition(data_file) and _path_in_bounds(self.file, data_file.file_path)

    def _equality_may_match(self, data_file: DataFile, metadata: TableMetadata) -> bool:
        is_global = metadata.specs()[self.file.spec_id].is_unpartitioned()
        if not is_global and not self._same_partition(data_file):
            return False
        schema = metadata.schema()
        ids = self.file.equality_ids or ()
        return all(_values_may_meet(field_id, self.file, data_file, schema) for field_id in ids)

    def _same_partition(self, data_file: DataFile) -> bool:
        return self.file.spec_id == data_file.spec_id and self.file.partition == data_file.partition


def _referenced_data_file(file: DataFile) -> str | None:
    named: str | None = file[_REFERENCED_DATA_FILE] if len(file) > _REFERENCED_DATA_FILE else None
    if named is not None:
        return named
    lower = (file.lower_bounds or {}).get(PATH_FIELD_ID)
    upper = (file.upper_bounds or {}).get(PATH_FIELD_ID)
    return lower.decode() if lower is not None and lower == upper else None


def _path_in_bounds(file: DataFile, path: str) -> bool:
    lower = (file.lower_bounds or {}).get(PATH_FIELD_ID)
    upper = (file.upper_bounds or {}).get(PATH_FIELD_ID)
    encoded = path.encode()
    return (lower is None or lower <= encoded) and (upper is None or encoded <= upper)


def _values_may_meet(field_id: int, delete: DataFile, data: DataFile, schema: Schema) -> bool:
    """False only where the two files' values of an equality column are proven apart."""
    if _may_hold_null(field_id, delete) and _may_hold_null(field_id, data):
        return True
    if field_id not in schema.field_ids:
        return True
    field_type = schema.find_type(field_id)
    ends = [
        (bounds or {}).get(field_id)
        for bounds in (
            delete.lower_bounds,
            delete.upper_bounds,
            data.lower_bounds,
            data.upper_bounds,
        )
    ]
    if not isinstance(field_type, PrimitiveType) or None in ends:
        return True
    if isinstance(field_type, FloatType | DoubleType):
        # Bounds leave out NaN, which two files may share.
        return True
    try:
        values = [from_bytes(field_type, end) for end in ends if end is not None]
    except (struct.error, UnicodeDecodeError):
        # Bounds from before a promotion, or cut inside a character: they prove nothing.
        return True
    delete_lower, delete_upper, data_lower, data_upper = values
    return bool(delete_lower <= data_upper and data_lower <= delete_upper)


def _may_hold_null(field_id: int, file: DataFile) -> bool:
    return (file.null_value_counts or {}).get(field_id) != 0
