"""Small manifests that were just written, as the files that went into them.

Most commits write a manifest of one file or a few. It is asked for twice in its life: by the next
commits, whether it holds a path, and by the one that merges it. For both the files are enough;
columns are made of them only if something else asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from frazil.format.manifest.manifest_columns import ManifestColumns, path_hashes
from frazil.format.manifest.manifest_list import ManifestFile
from frazil.format.manifest.manifest_writer import RollingManifestWriter
from frazil.format.metadata.content_files import ContentFile, DataFile

MAX_FILES: Final = 16
_MANIFEST_BYTES: Final = 8_000
_FILE_BYTES: Final = 2_000
"""About what a manifest and each of its files take in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class NewManifest:
    """The files of a manifest, all of them ADDED, with the numbers of its snapshot."""

    files: Sequence[ContentFile]
    make_columns: Callable[[], ManifestColumns]
    sorted_hashes: NDArray[np.uint64]
    """Of the paths, as columns have them."""
    hashes: frozenset[int]

    @property
    def size_bytes(self) -> int:
        return _MANIFEST_BYTES + _FILE_BYTES * len(self.files)

    def copy_into(self, writer: RollingManifestWriter, listed: ManifestFile) -> None:
        """The files as entries that stay, with what they inherited from the list."""
        assert listed.added_snapshot_id is not None
        number, row_id = listed.sequence_number, listed.first_row_id
        for file in self.files:
            entry = file
            if row_id is not None and isinstance(file, DataFile):
                entry = replace(file, first_row_id=row_id)
                row_id += file.record_count
            writer.existing(entry, listed.added_snapshot_id, number, number)


def new_manifest(
    files: Sequence[ContentFile], make_columns: Callable[[], ManifestColumns]
) -> NewManifest:
    hashes = np.sort(path_hashes(file.file_path for file in files))
    return NewManifest(tuple(files), make_columns, hashes, frozenset(hashes.tolist()))
