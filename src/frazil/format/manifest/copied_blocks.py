"""Whole blocks of a manifest carried into another as they are, compressed.

Once a manifest has been rewritten its entries are EXISTING and have numbers of their own. When it
loses another entry, only the block of that entry changes; the others are the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import AvroFile, AvroWriter
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.copied_rows import CopiedRows, rows_in_place
from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.manifest.manifest_encoder import ManifestEncoder
from frazil.format.manifest.manifest_fields import NO_SNAPSHOT, NONE
from frazil.format.manifest.manifest_list import ManifestFile
from frazil.format.manifest.manifests import EXISTING

_MIN_ENTRIES: Final = 100
"""Smaller blocks are put together with others, for they compress badly."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring blocks that are alike, and their rows."""

    whole: bool
    numbers: range
    first_row: int
    behind: int


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of a manifest with our own schema, whose entries end with their `data_file`."""

    file: AvroFile
    columns: ManifestColumns
    places: Sequence[tuple[int, int, int]]
    first_rows: NDArray[np.int64]
    """By block, and the number of rows behind the last."""

    @classmethod
    def of(cls, file: AvroFile, columns: ManifestColumns) -> Blocks:
        """Raises UnreadableAvro where the columns are not those of the file."""
        places = list(file.block_places())
        first_rows = np.cumsum([0, *(count for count, _, _ in places)])
        known = np.searchsorted(columns.data_file_at, columns.block_starts)
        if first_rows[-1] != len(columns) or not np.array_equal(first_rows[:-1], known):
            raise UnreadableAvro("the manifest is not the one that the columns are of")
        return cls(file, columns, places, first_rows)

    def runs(
        self, listed: ManifestFile, removed: NDArray[np.int64], has_numbers: bool
    ) -> Iterator[Run]:
        """All blocks in their order. Whole are those in which every entry stays just as it is:
        what the last commit added has still to get its numbers."""
        columns = self.columns
        stays = (columns.status == EXISTING) & (columns.snapshot_id != NO_SNAPSHOT)
        if has_numbers:
            stays &= columns.sequence_number != NONE
        stays &= columns.first_row_id == columns.inherited(listed).first_row_id
        stays[removed] = False
        sizes = np.diff(self.first_rows)
        staying = np.concatenate(([0], np.cumsum(stays)))
        whole = (np.diff(staying[self.first_rows]) == sizes) & (sizes >= _MIN_ENTRIES)
        if not len(whole):
            return
        edges = (np.flatnonzero(whole[1:] != whole[:-1]) + 1).tolist()
        for first, behind in pairwise([0, *edges, len(whole)]):
            rows = int(self.first_rows[first]), int(self.first_rows[behind])
            yield Run(bool(whole[first]), range(first, behind), *rows)

    def copy_into(self, writer: AvroWriter, number: int) -> int:
        """Writes a block; how far its entries are moved by that."""
        count, start, end = self.places[number]
        began = int(self.columns.block_starts[number])
        size = int(self.columns.data_file_end[self.first_rows[number + 1] - 1]) - began
        moved = writer.position - began
        writer.copy_block(count, self.file.content[start:end], size)
        return moved

    def moved(
        self, numbers: range, moved: Sequence[int], encoder: ManifestEncoder
    ) -> tuple[CopiedRows, NDArray[np.int64], NDArray[np.int64]]:
        """The rows of blocks that were copied, and where their data files lie now."""
        bounds = self.first_rows[numbers.start : numbers.stop + 1]
        rows = np.arange(bounds[0], bounds[-1])
        by_row = np.repeat(np.array(moved, np.int64), np.diff(bounds))
        starts = self.columns.data_file_at[rows] + by_row
        ends = self.columns.data_file_end[rows] + by_row
        return rows_in_place(self.columns, rows, encoder), starts, ends
