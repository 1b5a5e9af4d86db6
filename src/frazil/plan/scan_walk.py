"""The walk of a scan: manifest list, manifests, files; each level leaves out what cannot match.

Manifests are pruned by the summaries in their list, files by their partitions and then by their
statistics, all as Java's ManifestGroup does it. What was seen and skipped is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_schema import RecordSchema
from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.manifest.manifest_fields import ADDED
from frazil.format.manifest.manifest_list import DATA, DELETES, ManifestFile, may_have_live
from frazil.plan.scan_requests import Scan
from frazil.read.filters import BoundFilter
from frazil.read.history import metrics_reader
from frazil.read.manifest_cache import ManifestReader

Rows = NDArray[np.int64]

_BATCH = 64
"""Manifests that are read at the same time, and then let go of."""


class Cancelled(Exception):
    """Nobody waits for the plan any more."""


@dataclass(slots=True)
class Counts:
    """What a walk has seen, and why it left out what it left out."""

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
        found = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}
        return {**found, "data-files-planned": self.data_files_planned}


@dataclass(frozen=True, slots=True)
class Piece:
    """What a scan finds in one manifest."""

    number: int
    """The manifest's place among the data manifests of the list."""
    listed: ManifestFile
    columns: ManifestColumns
    rows: Rows
    """In ascending order."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a scan: from one row of one data manifest to before another."""

    from_manifest: int = 0
    from_row: int = 0
    to_manifest: int | None = None
    """The manifest that holds the end; None: to the end of the list."""
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
    """One run over a scan, or over a span of it."""

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
        self._appended = frozenset(one.snapshot_id for one in scan.appended or ())
        self._manifests = _listed(scan, reader)

    @property
    def has_deletes(self) -> bool:
        """Whether the snapshot has any delete file, whatever it applies to."""
        manifests = (one for one, _ in self._manifests)
        return any(one.content == DELETES and may_have_live(one) for one in manifests)

    def data(self, span: Span = WHOLE) -> Iterator[Piece]:
        """The data files that may hold matching rows, manifest by manifest."""
        manifests = [named for named in self._manifests if named[0].content == DATA]
        chosen = [
            (number, one)
            for number, (one, schema) in enumerate(manifests)
            if span.holds(number) and self._may_match(one, schema)
        ]
        for begin in range(0, len(chosen), _BATCH):
            if self._cancelled():
                raise Cancelled
            batch = chosen[begin : begin + _BATCH]
            self._read_statistics([one for _, one in batch])
            columns_of = self._reader.columns_of([one for _, one in batch])
            for (number, one), columns in zip(batch, columns_of, strict=True):
                rows = span.rows(number, np.flatnonzero(self._seen(one, columns)))
                self.counts.data_files += len(rows)
                rows = self._rows(one, columns, rows)
                if len(rows):
                    yield Piece(number, one, columns, rows)

    def _read_statistics(self, batch: Sequence[ManifestFile]) -> None:
        """Reads columns and statistics together, where partitions will not decide everything: each
        by itself would decompress the manifest once more."""
        where = self.scan.where
        wanted = [one for one in batch if not where.is_decided_by(one.partition_spec_id)]
        if wanted:
            self._reader.metrics_of(wanted)

    def deletes(self) -> Iterator[Piece]:
        """The delete files that may apply to matching rows; an incremental scan has none."""
        manifests = [named for named in self._manifests if named[0].content == DELETES]
        chosen = [
            (number, one)
            for number, (one, schema) in enumerate(manifests)
            if self._deletes_may_match(one, schema)
        ]
        where = self.scan.where
        columns_of = self._reader.columns_of([one for _, one in chosen])
        for (number, one), columns in zip(chosen, columns_of, strict=True):
            rows = np.flatnonzero(columns.live())
            kept = _by_filter(where, one, columns, rows, self._reader)
            self.counts.delete_files += len(rows)
            self.counts.delete_files_skipped += len(rows) - len(kept)
            if len(kept):
                yield Piece(number, one, columns, kept)

    def _may_match(self, one: ManifestFile, schema: RecordSchema) -> bool:
        counts, scan = self.counts, self.scan
        counts.data_manifests += 1
        added = one.added_files_count != 0
        if not (may_have_live(one) if scan.appended is None else added):
            counts.data_manifests_without_live_files += 1
            return False
        if not scan.where.may_match_manifest(one, schema):
            counts.data_manifests_skipped_by_partition += 1
            return False
        return True

    def _deletes_may_match(self, one: ManifestFile, schema: RecordSchema) -> bool:
        self.counts.delete_manifests += 1
        if not may_have_live(one):
            self.counts.delete_manifests_without_live_files += 1
            return False
        if not self.scan.where.may_match_manifest(one, schema):
            self.counts.delete_manifests_skipped_by_partition += 1
            return False
        return True

    def _seen(self, one: ManifestFile, columns: ManifestColumns) -> NDArray[np.bool_]:
        """The entries that the scan is about."""
        if self.scan.appended is None:
            return columns.live()
        by = columns.inherited(one).snapshot_id
        known = np.array(sorted(self._appended), np.int64)
        added: NDArray[np.bool_] = np.equal(columns.status, ADDED) & np.isin(by, known)
        return added

    def _rows(self, one: ManifestFile, columns: ManifestColumns, rows: Rows) -> Rows:
        where, counts = self.scan.where, self.counts
        if where.matches_everything or not len(rows):
            return rows
        spec_id = one.partition_spec_id
        of_row = columns.partition
        allowed = where.may_match_partitions(columns, spec_id)
        inside = rows if allowed.all() else rows[allowed[of_row[rows]]]
        counts.data_files_skipped_by_partition += len(rows) - len(inside)
        kept = self._by_statistics(one, columns, inside)
        counts.data_files_skipped_by_statistics += len(inside) - len(kept)
        return kept

    def _by_statistics(self, one: ManifestFile, columns: ManifestColumns, rows: Rows) -> Rows:
        """The rows whose statistics allow a match, which are asked only where partitions do not
        prove that all rows of the file match."""
        where = self.scan.where
        must = where.must_match_partitions(columns, one.partition_spec_id)
        if not len(rows):
            return rows
        if not must.any():
            return where.rows_by_metrics(self._reader.metrics(one), rows)
        proven = must[columns.partition[rows]] & (columns.record_count[rows] != 0)
        asked = rows[~proven]
        if not len(asked):
            return rows
        found = where.rows_by_metrics(self._reader.metrics(one), asked)
        return np.sort(np.concatenate([rows[proven], found]))


def _listed(scan: Scan, reader: ManifestReader) -> list[tuple[ManifestFile, RecordSchema]]:
    """The manifests of a scan, each with the schema of the list that names it.

    Of an incremental scan those that its snapshots wrote: later snapshots may have merged them into
    others, or removed what they hold.
    """
    if scan.appended is None:
        if scan.snapshot is None:
            return []
        found = reader.manifest_list(scan.snapshot)
        return [(one, found.schema) for one in found.manifests]
    ids = {snapshot.snapshot_id for snapshot in scan.appended}
    distinct: dict[str, tuple[ManifestFile, RecordSchema]] = {}
    for snapshot in scan.appended:
        found = reader.manifest_list(snapshot)
        for one in found.manifests:
            if one.content == DATA and one.added_snapshot_id in ids:
                distinct.setdefault(one.manifest_path, (one, found.schema))
    return list(distinct.values())


def _by_filter(
    where: BoundFilter,
    one: ManifestFile,
    columns: ManifestColumns,
    rows: Rows,
    reader: ManifestReader,
) -> Rows:
    metrics_of = metrics_reader(reader, one, columns)
    return where.rows_that_may_match(columns, one.partition_spec_id, rows, metrics_of)


def split(pieces: Sequence[Piece], max_rows: int) -> list[Span]:
    """Spans of at most so many files each, that together hold all of the pieces."""
    spans: list[Span] = []
    manifest = row = filled = 0
    for piece in pieces:
        at = 0
        while len(piece.rows) - at > max_rows - filled:
            at += max_rows - filled
            # The span ends before the first row that no longer fits.
            end_row = int(piece.rows[at])
            spans.append(Span(manifest, row, piece.number, end_row))
            manifest, row, filled = piece.number, end_row, 0
        filled += len(piece.rows) - at
    if filled:
        spans.append(Span(manifest, row, pieces[-1].number + 1))
    return spans


def within(pieces: Sequence[Piece], span: Span) -> list[Piece]:
    """The part of the pieces that lies in a span."""
    found = []
    for piece in pieces:
        if span.holds(piece.number):
            rows = span.rows(piece.number, piece.rows)
            if len(rows):
                found.append(replace(piece, rows=rows))
    return found
