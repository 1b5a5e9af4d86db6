"""An entry of a manifest, accessed through the manifest's columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.manifest.manifest_fields import NONE
from frazil.format.manifest.manifest_list import ManifestFile
from frazil.format.metadata.content_files import EQUALITY_DELETES


@dataclass(frozen=True, slots=True, eq=False)
class ManifestRow:
    """An entry of a manifest: the manifest's record in its list, its columns and a row number."""

    listed: ManifestFile
    columns: ManifestColumns = field(repr=False)
    row: int
    sequence_number: int = 0
    """The data sequence number with inheritance. Set only for rows of a delete index: computing
    it for single rows is slow."""

    @property
    def file_path(self) -> str:
        return self.columns.path(self.row)

    @property
    def spec_id(self) -> int:
        return self.listed.partition_spec_id

    @property
    def record_count(self) -> int:
        return int(self.columns.record_count[self.row])

    @property
    def content_offset(self) -> int | None:
        """The offset of a deletion vector, or None for every other file."""
        deletes = self.columns.deletes
        return None if deletes is None else _optional(deletes.content_offset[self.row])

    @property
    def content_size_in_bytes(self) -> int | None:
        deletes = self.columns.deletes
        return None if deletes is None else _optional(deletes.content_size_in_bytes[self.row])

    @property
    def identity(self) -> tuple[str, int | None]:
        """The identity of a delete file: its path and the offset of a deletion vector."""
        return self.file_path, self.content_offset

    @property
    def is_equality_delete(self) -> bool:
        return int(self.columns.content[self.row]) == EQUALITY_DELETES

    @property
    def is_deletion_vector(self) -> bool:
        return self.content_offset is not None and not self.is_equality_delete

    @property
    def referenced_data_file(self) -> str | None:
        deletes = self.columns.deletes
        return None if deletes is None else deletes.referenced_data_file[self.row]

    @property
    def equality_ids(self) -> tuple[int, ...]:
        deletes = self.columns.deletes
        return (deletes.equality_ids[self.row] or ()) if deletes is not None else ()


def _optional(value: np.int64) -> int | None:
    return None if value == NONE else int(value)
