"""Walks from the manifest list over manifests to files, and skips what cannot match the scan.

As in Java's ManifestGroup, manifests are pruned by the partition summaries in the list, files by
their partitions and then by their statistics. The walk counts what it sees and skips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_schema import RecordSchema
from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.manifest.manifest_fields import ADDED
from frazil.format.manifest.manifest_list import DATA, DELETES, ManifestFile, may_have_live
from frazil.plan.scan_requests import Scan
from frazil.read.history import metrics_reader
from frazil.read.manifest_cache import ManifestReader

Rows = NDArray[np.int64]

_BATCH = 64
"""The number of manifests that are read together and then released."""


class Cancelled(Exception):
    """The plan was cancelled."""


@dataclass(slots=True)
class Counts:
    """The manifests and files that a walk saw, and why it skipped some."""

    data_manifests: int = 0
    data_manifests_skipped_by_partition: int = 0
    data_manifests_without_live_files: int = 0
    data_files: int = 0
    data_files_skipped_by_partition: int = 0
    data_files_skipped_by_statistics: int = 0
    delete_manifests: int = 0
    delete_manifests_skipped_by_partition: int = 0
    delete_manifests_without_live_files: int = 0
    delete_files: int = 0
    delete_files_skipped: int = 0

    @property
    def data_files_planned(self) -> int:
        return (
            self.data_files
            - self.data_files_skipped_by_partition
            - self.data_files_skipped_by_statistics
        )

    def document(self) -> dict[str, int]:
        counts = {field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        return {**counts, "data-files-planned": self.data_files_planned}


@dataclass(frozen=True, slots=True)
class Piece:
    """The files of one manifest that belong to a scan."""

    number: int
    """The index of the manifest among the data manifests of the list."""
    listed: ManifestFile
    columns: ManifestColumns
    rows: Rows
    """In ascending order."""


class Span(NamedTuple):
    """A part of a scan: from one row of a data manifest to before another row."""

    from_manifest: int = 0
    from_row: int = 0
    to_manifest: int | None = None
    """The manifest with the end, or None for the end of the list."""
    to_row: int = 0

    def rows(self, number: int, rows: Rows) -> Rows:
        if number == self.from_manifest and self.from_row:
            rows = rows[rows >= self.from_row]
        if self.to_manifest is not None and number == self.to_manifest:
            rows = rows[rows < self.to_row]
        return rows

    def holds(self, number: int) -> bool:
        if number < self.from_manifest:
            return False
        if self.to_manifest is None or number < self.to_manifest:
            return True
        return number == self.to_manifest and self.to_row > 0


WHOLE = Span()


class Walk:
    """One walk over a scan or a span of it."""

    def __init__(
        self,
        scan: Scan,
        reader: ManifestReader,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self.scan = scan
        self.counts = Counts()
        self._reader = reader
        self._cancelled = cancelled
        self._appended = frozenset(snapshot.snapshot_id for snapshot in scan.appended or ())
        self._manifests = _listed(scan, reader)

    @property
    def has_deletes(self) -> bool:
        """Return whether the snapshot has any delete file."""
        manifests = (manifest for manifest, _ in self._manifests)
        return any(
            manifest.content == DELETES and may_have_live(manifest) for manifest in manifests
        )

    def data(self, span: Span = WHOLE) -> Iterator[Piece]:
        """Iterate over the data files that may contain matching rows, manifest by manifest."""
        manifests = [named for named in self._manifests if named[0].content == DATA]
        chosen = [
            (number, manifest)
            for number, (manifest, schema) in enumerate(manifests)
            if span.holds(number) and self._may_match(manifest, schema)
        ]
        for begin in range(0, len(chosen), _BATCH):
            if self._cancelled():
                raise Cancelled
            batch = chosen[begin : begin + _BATCH]
            self._read_statistics([manifest for _, manifest in batch])
            columns_of = self._reader.columns_of([manifest for _, manifest in batch])
            for (number, manifest), columns in zip(batch, columns_of, strict=True):
                rows = span.rows(number, np.flatnonzero(self._seen(manifest, columns)))
                self.counts.data_files += len(rows)
                rows = self._rows(manifest, columns, rows)
                if len(rows):
                    yield Piece(number, manifest, columns, rows)

    def _read_statistics(self, batch: Sequence[ManifestFile]) -> None:
        """Read columns and statistics together if partitions do not decide everything.

        Reading them separately would decompress each manifest twice.
        """
        where = self.scan.where
        wanted = [
            manifest for manifest in batch if not where.is_decided_by(manifest.partition_spec_id)
        ]
        if wanted:
            self._reader.metrics_of(wanted)

    def deletes(self) -> Iterator[Piece]:
        """Iterate over the delete files that may apply to matching rows. Incremental scans have
        none.

        With `all_deletes`, those that may apply to other rows of the same files come too: who
        writes a file again must not bring its other rows back.
        """
        manifests = [named for named in self._manifests if named[0].content == DELETES]
        chosen = [
            (number, manifest)
            for number, (manifest, schema) in enumerate(manifests)
            if self._deletes_may_match(manifest, schema)
        ]
        where = self.scan.where
        columns_of = self._reader.columns_of([manifest for _, manifest in chosen])
        for (number, manifest), columns in zip(chosen, columns_of, strict=True):
            rows = np.flatnonzero(columns.live())
            spec_id = manifest.partition_spec_id
            if self.scan.all_deletes:
                kept = rows[where.may_match_partitions(columns, spec_id)[columns.partition[rows]]]
            else:
                metrics_of = metrics_reader(self._reader, manifest, columns)
                kept = where.rows_that_may_match(columns, spec_id, rows, metrics_of)
            self.counts.delete_files += len(rows)
            self.counts.delete_files_skipped += len(rows) - len(kept)
            if len(kept):
                yield Piece(number, manifest, columns, kept)

    def _may_match(self, manifest: ManifestFile, schema: RecordSchema) -> bool:
        counts, scan = self.counts, self.scan
        counts.data_manifests += 1
        added = manifest.added_files_count != 0
        if not (may_have_live(manifest) if scan.appended is None else added):
            counts.data_manifests_without_live_files += 1
            return False
        if not scan.where.may_match_manifest(manifest, schema):
            counts.data_manifests_skipped_by_partition += 1
            return False
        return True

    def _deletes_may_match(self, manifest: ManifestFile, schema: RecordSchema) -> bool:
        self.counts.delete_manifests += 1
        if not may_have_live(manifest):
            self.counts.delete_manifests_without_live_files += 1
            return False
        if not self.scan.where.may_match_manifest(manifest, schema):
            self.counts.delete_manifests_skipped_by_partition += 1
            return False
        return True

    def _seen(self, manifest: ManifestFile, columns: ManifestColumns) -> NDArray[np.bool_]:
        """Return a mask of the entries that belong to the scan."""
        if self.scan.appended is None:
            return columns.live()
        by = columns.inherited(manifest).snapshot_id
        known = np.array(sorted(self._appended), np.int64)
        added: NDArray[np.bool_] = np.equal(columns.status, ADDED) & np.isin(by, known)
        return added

    def _rows(self, manifest: ManifestFile, columns: ManifestColumns, rows: Rows) -> Rows:
        where, counts = self.scan.where, self.counts
        if where.matches_everything or not len(rows):
            return rows
        spec_id = manifest.partition_spec_id
        of_row = columns.partition
        allowed = where.may_match_partitions(columns, spec_id)
        inside = rows if allowed.all() else rows[allowed[of_row[rows]]]
        counts.data_files_skipped_by_partition += len(rows) - len(inside)
        kept = self._by_statistics(manifest, columns, inside)
        counts.data_files_skipped_by_statistics += len(inside) - len(kept)
        return kept

    def _by_statistics(self, manifest: ManifestFile, columns: ManifestColumns, rows: Rows) -> Rows:
        """Return the rows whose statistics allow a match.

        Statistics are not needed if the partition proves that all rows of the file match.
        """
        where = self.scan.where
        must = where.must_match_partitions(columns, manifest.partition_spec_id)
        if not len(rows):
            return rows
        if not must.any():
            return where.rows_by_metrics(self._reader.metrics(manifest), rows)
        proven = must[columns.partition[rows]] & (columns.record_count[rows] != 0)
        asked = rows[~proven]
        if not len(asked):
            return rows
        allowed = where.rows_by_metrics(self._reader.metrics(manifest), asked)
        return np.sort(np.concatenate([rows[proven], allowed]))


def _listed(scan: Scan, reader: ManifestReader) -> list[tuple[ManifestFile, RecordSchema]]:
    """Return the manifests of a scan, each with the schema of its manifest list.

    For an incremental scan these are the manifests that its snapshots wrote, because later
    snapshots may have merged them or removed their files.
    """
    if scan.appended is None:
        if scan.snapshot is None:
            return []
        manifest_list = reader.manifest_list(scan.snapshot)
        return [(manifest, manifest_list.schema) for manifest in manifest_list.manifests]
    ids = {snapshot.snapshot_id for snapshot in scan.appended}
    distinct: dict[str, tuple[ManifestFile, RecordSchema]] = {}
    for snapshot in scan.appended:
        manifest_list = reader.manifest_list(snapshot)
        for manifest in manifest_list.manifests:
            if manifest.content == DATA and manifest.added_snapshot_id in ids:
                distinct.setdefault(manifest.manifest_path, (manifest, manifest_list.schema))
    return list(distinct.values())


def split(pieces: Sequence[Piece], max_rows: int) -> list[Span]:
    """Divide the pieces into spans of at most `max_rows` files."""
    spans: list[Span] = []
    manifest = row = filled = 0
    for piece in pieces:
        at = 0
        while len(piece.rows) - at > max_rows - filled:
            at += max_rows - filled
            # The span ends before the first row that does not fit.
            end_row = int(piece.rows[at])
            spans.append(Span(manifest, row, piece.number, end_row))
            manifest, row, filled = piece.number, end_row, 0
        filled += len(piece.rows) - at
    if filled:
        spans.append(Span(manifest, row, pieces[-1].number + 1))
    return spans


def within(pieces: Sequence[Piece], span: Span) -> list[Piece]:
    """Return the part of the pieces that is inside a span."""
    inside = []
    for piece in pieces:
        if span.holds(piece.number):
            rows = span.rows(piece.number, piece.rows)
            if len(rows):
                inside.append(replace(piece, rows=rows))
    return inside
