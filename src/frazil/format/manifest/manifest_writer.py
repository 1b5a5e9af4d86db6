"""Writes manifests up to the target size, one after another (Java's RollingManifestWriter).

Nothing here uses a store. A written manifest is its path, its bytes, and everything that a manifest
list contains about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import MANIFEST_LIMITS, AvroWriter, open_avro
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest import manifest_list
from frazil.format.manifest.copied_entries import (
    Blocks,
    CopiedRows,
    Copies,
    columns_of_copies,
    copied_rows,
    encoder_keeping,
)
from frazil.format.manifest.manifest_columns import ManifestColumns, decode_columns
from frazil.format.manifest.manifest_encoder import ManifestEncoder
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING, NO_SNAPSHOT, NONE
from frazil.format.manifest.manifest_list import ManifestFile, PartitionSummary, field_summary
from frazil.format.metadata.content_files import ContentFile
from frazil.format.metadata.table_properties import parse_int
from frazil.values.single_value import to_binary

BLOCK_ENTRIES: Final = 500
DEFAULT_TARGET_SIZE_BYTES: Final = 8 << 20
"""The default of `commit.manifest.target-size-bytes`."""

# Keeps manifests well below the limits of our own reader, whatever the target size is.
_MAX_LENGTH_BYTES: Final = MANIFEST_LIMITS.file_bytes // 2
_MAX_DECODED_BYTES: Final = MANIFEST_LIMITS.decoded_bytes // 2
MAX_ENTRIES: Final = MANIFEST_LIMITS.records // 2
_BLOCKS_AT_ONCE: Final = 4
"""The number of blocks that are copied before the size is checked again."""


@dataclass(frozen=True, slots=True)
class WrittenManifest:
    """The bytes of a manifest, and the fields of its `manifest_file` that do not depend on the
    commit."""

    manifest_path: str
    file: bytes = dataclass_field(repr=False)
    partition_spec_id: int
    content: int
    min_sequence_number: int | None
    """None if all live entries inherit the sequence number of the commit."""
    added_files_count: int
    existing_files_count: int
    deleted_files_count: int
    added_rows_count: int
    existing_rows_count: int
    deleted_rows_count: int
    partitions: tuple[PartitionSummary, ...]
    copies: Sequence[Copies] | None = dataclass_field(repr=False)
    """The entries, if all of them are copies."""
    block_starts: Sequence[int] = dataclass_field(repr=False)
    encoder: ManifestEncoder = dataclass_field(repr=False)
    first_row_id: int | None = None
    """Assigned by the manifest list."""
    key_metadata: bytes | None = None

    @property
    def manifest_length(self) -> int:
        return len(self.file)

    def columns(self) -> ManifestColumns:
        """Return the columns of the manifest, without decoding it if that is possible."""
        columns = None
        if self.copies:
            columns = columns_of_copies(self.copies, self.encoder, self.block_starts)
        return decode_columns(self.file) if columns is None else columns

    def listed(self, snapshot_id: int, sequence_number: int) -> Mapping[int, Any]:
        """Return the record for a manifest list by field id, with the sequence number of the
        commit."""
        least = self.min_sequence_number
        return {
            manifest_list.PATH: self.manifest_path,
            manifest_list.LENGTH: self.manifest_length,
            manifest_list.SPEC_ID: self.partition_spec_id,
            manifest_list.CONTENT: self.content,
            manifest_list.SEQUENCE_NUMBER: sequence_number,
            manifest_list.MIN_SEQUENCE_NUMBER: sequence_number if least is None else least,
            manifest_list.ADDED_SNAPSHOT_ID: snapshot_id,
            manifest_list.ADDED_FILES: self.added_files_count,
            manifest_list.EXISTING_FILES: self.existing_files_count,
            manifest_list.DELETED_FILES: self.deleted_files_count,
            manifest_list.ADDED_ROWS: self.added_rows_count,
            manifest_list.EXISTING_ROWS: self.existing_rows_count,
            manifest_list.DELETED_ROWS: self.deleted_rows_count,
            manifest_list.PARTITIONS: list(self.partitions),
            manifest_list.KEY_METADATA: self.key_metadata,
            manifest_list.FIRST_ROW_ID: self.first_row_id,
        }


class RollingManifestWriter:
    """Takes entries and writes as many manifests as the target size requires."""

    def __init__(
        self,
        encoder: ManifestEncoder,
        *,
        new_path: Callable[[], str],
        snapshot_id: int | None,
        target_size_bytes: int = DEFAULT_TARGET_SIZE_BYTES,
        max_entries: int = MAX_ENTRIES,
        codec: str = "deflate",
        level: int | None = None,
        keeps_copies: bool = True,
    ) -> None:
        """Create a writer. `snapshot_id` is the id of the commit. With None, which needs version
        2, ADDED entries inherit it. `codec` is the Avro name of a codec. Without `keeps_copies`
        the columns of a manifest must be decoded, but memory does not hold its entries."""
        self._encoder = encoder
        self._new_path = new_path
        self._snapshot_id = snapshot_id
        self._target_size_bytes = min(target_size_bytes, _MAX_LENGTH_BYTES)
        self._max_entries = min(max_entries, MAX_ENTRIES)
        self._codec, self._level = codec, level
        self._keeps_copies = keeps_copies
        self._open: _OpenManifest | None = None
        self._written: list[WrittenManifest] = []

    def add(self, file: ContentFile, sequence_number: int | None = None) -> None:
        """Add a new file. A data sequence number is passed only for rewritten rows, which keep
        theirs."""
        self._write_file(ADDED, self._snapshot_id, sequence_number, None, file)

    def add_all(self, files: Sequence[ContentFile], sequence_number: int | None = None) -> None:
        """Add new files, a block at a time."""
        numbers = ADDED, self._snapshot_id, sequence_number, None
        start = 0
        while start < len(files):
            current = self._opened()
            batch = files[start : start + current.writer.records_left]
            data_files = self._encoder.data_files(batch)
            head = self._encoder.entry(*numbers, b"")
            taken = current.writer.write_many([head + data_file for data_file in data_files])
            current.count_all(ADDED, batch[:taken], sequence_number)
            start += taken
            if current.writer.at_block and self._is_full(current):
                self._roll(current)

    def existing(
        self,
        file: ContentFile,
        snapshot_id: int,
        sequence_number: int,
        file_sequence_number: int | None,
    ) -> None:
        """Add a file that remains live, with the numbers that it got when it was added."""
        self._write_file(EXISTING, snapshot_id, sequence_number, file_sequence_number, file)

    def delete(
        self, file: ContentFile, sequence_number: int, file_sequence_number: int | None
    ) -> None:
        """Add a file that this commit removes. It keeps its sequence numbers."""
        number = file_sequence_number
        self._write_file(DELETED, self._snapshot_id, sequence_number, number, file)

    def copy_rows(
        self,
        content: bytes,
        columns: ManifestColumns,
        listed: ManifestFile,
        removed: Collection[int] = (),
        *,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        """Copy the live entries of another manifest. The rows in `removed` become files that
        this commit removes, the others remain live.

        `rows` are the live rows to copy in ascending order, by default all of them.
        `content` and `columns` belong to the manifest, `listed` is its record in the list. If it
        has unknown fields, the writer begins a new manifest that also has them. Raises
        UnreadableAvro.
        """
        if removed and self._snapshot_id is None:
            raise ValueError("an entry that is removed needs the snapshot id of the commit")
        file = open_avro(content, MANIFEST_LIMITS)
        encoder = encoder_keeping(self._encoder, file.schema)
        if encoder is not self._encoder:
            if self._open is not None:
                self._roll(self._open)
            self._encoder = encoder
        live = np.flatnonzero(columns.live())
        left_out = live[:0] if rows is None else np.setdiff1d(live, rows, assume_unique=True)
        rows = live if rows is None else rows
        gone = np.isin(rows, np.fromiter(removed, np.int64, len(removed)))
        if np.count_nonzero(gone) != len(removed):
            raise ValueError(f"{listed.manifest_path} has no live entry for a row to remove")
        status = np.where(gone, DELETED, EXISTING)
        if file.schema.text != encoder.schema.text or file.codec != self._codec:
            self._write_copies(copied_rows(file, columns, listed, rows, encoder), status)
            return
        blocks = Blocks.of(file, columns)
        changes = np.concatenate((rows[gone], left_out))
        for run in blocks.runs(listed, changes, encoder.format_version > 1):
            if run.whole:
                self._take_blocks(blocks, run.numbers)
            else:
                first, behind = np.searchsorted(rows, (run.first_row, run.behind)).tolist()
                part = copied_rows(file, columns, listed, rows[first:behind], encoder)
                self._write_copies(part, status[first:behind])

    def finish(self) -> tuple[WrittenManifest, ...]:
        """End the last manifest and return all that were written."""
        if self._open is not None:
            self._roll(self._open)
        return tuple(self._written)

    def _opened(self) -> _OpenManifest:
        if self._open is None:
            encoder = self._encoder
            writer = AvroWriter(
                encoder.schema, encoder.header, self._codec, BLOCK_ENTRIES, self._level
            )
            self._open = _OpenManifest(writer, keeps_copies=self._keeps_copies)
        return self._open

    def _write_file(
        self,
        status: int,
        snapshot_id: int | None,
        sequence_number: int | None,
        file_sequence_number: int | None,
        file: ContentFile,
    ) -> None:
        encoder = self._encoder
        numbers = status, snapshot_id, sequence_number, file_sequence_number
        record = encoder.entry(*numbers, encoder.data_file(file))
        current = self._opened()
        current.count_all(status, [file], sequence_number)
        if current.writer.write(record) and self._is_full(current):
            self._roll(current)

    def _write_copies(self, copied: CopiedRows, status: NDArray[np.int64]) -> None:
        snapshot_id = copied.inherited.snapshot_id
        if self._snapshot_id is not None:
            snapshot_id = np.where(status == DELETED, self._snapshot_id, snapshot_id)
        heads = self._heads(copied, status, snapshot_id)
        start = 0
        while start < len(heads):
            current = self._opened()
            window = slice(start, start + BLOCK_ENTRIES)
            pairs = zip(heads[window], copied.data_files[window], strict=True)
            records = [head + data_file for head, data_file in pairs]
            position = current.writer.position
            taken = current.writer.write_many(records)
            chosen = slice(start, start + taken)
            before = np.fromiter(map(len, heads[chosen]), np.int64, taken)
            ends = position + np.cumsum(np.fromiter(map(len, records[:taken]), np.int64, taken))
            starts = np.concatenate(([position], ends[:-1])) + before
            current.copy(copied, chosen, status[chosen], snapshot_id[chosen], starts, ends)
            start = chosen.stop
            if current.writer.at_block and self._is_full(current):
                self._roll(current)

    def _take_blocks(self, blocks: Blocks, numbers: range) -> None:
        """Copy whole compressed blocks."""
        current = self._opened()
        current.writer.end_block()
        for first in range(numbers.start, numbers.stop, _BLOCKS_AT_ONCE):
            if self._is_full(current):
                self._roll(current)
                current = self._opened()
            some = range(first, min(first + _BLOCKS_AT_ONCE, numbers.stop))
            moved = [blocks.copy_into(current.writer, number) for number in some]
            copied, starts, ends = blocks.moved(some, moved, self._encoder)
            status = np.full(len(starts), EXISTING, np.int64)
            snapshot_id = copied.inherited.snapshot_id
            current.copy(copied, slice(0, len(starts)), status, snapshot_id, starts, ends)
        if self._is_full(current):
            self._roll(current)

    def _heads(
        self, copied: CopiedRows, status: NDArray[np.int64], snapshot_id: NDArray[np.int64]
    ) -> list[bytes]:
        """Return the bytes before the `data_file` of each entry. Many entries share them."""
        known: dict[tuple[int, int, int, int], bytes] = {}
        numbers = copied.inherited.sequence_number, copied.inherited.file_sequence_number
        columns = status, snapshot_id, *numbers
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        for key in set(keys):
            own, snapshot, number, file_number = key
            try:
                known[key] = self._encoder.entry(
                    own,
                    _or_none(snapshot, NO_SNAPSHOT),
                    _or_none(number),
                    _or_none(file_number),
                    b"",
                )
            except ValueError as error:
                raise UnreadableAvro(f"an entry cannot be carried over: {error}") from None
        return [known[key] for key in keys]

    def _is_full(self, current: _OpenManifest) -> bool:
        return (
            current.writer.decoded_bytes >= _MAX_DECODED_BYTES
            or sum(current.files) >= self._max_entries
            or current.writer.length >= self._target_size_bytes
        )

    def _roll(self, current: _OpenManifest) -> None:
        encoder, files, rows = self._encoder, current.files, current.rows
        has_numbers = encoder.format_version > 1
        self._written.append(
            WrittenManifest(
                manifest_path=self._new_path(),
                file=current.writer.finish(),
                partition_spec_id=encoder.spec_id,
                content=encoder.content,
                min_sequence_number=current.min_sequence_number if has_numbers else 0,
                added_files_count=files[ADDED],
                existing_files_count=files[EXISTING],
                deleted_files_count=files[DELETED],
                added_rows_count=rows[ADDED],
                existing_rows_count=rows[EXISTING],
                deleted_rows_count=rows[DELETED],
                partitions=_summaries(encoder, current.partitions),
                copies=current.copies,
                block_starts=current.writer.block_starts,
                encoder=encoder,
            )
        )
        self._open = None


def _or_none(value: int, missing: int = NONE) -> int | None:
    return None if value == missing else value


class _OpenManifest:
    """An incomplete manifest and the values of its future list entry."""

    def __init__(self, writer: AvroWriter, *, keeps_copies: bool) -> None:
        self.writer = writer
        self.files = [0, 0, 0]
        """The number of files by status; `rows` likewise."""
        self.rows = [0, 0, 0]
        self.min_sequence_number: int | None = None
        self.partitions: set[tuple[Any, ...]] = set()
        self.copies: list[Copies] | None = [] if keeps_copies else None
        """The entries, or None if some of them are not copies."""

    def count_all(
        self, status: int, files: Sequence[ContentFile], sequence_number: int | None
    ) -> None:
        """Count entries that were encoded from files."""
        self.copies = None
        self.files[status] += len(files)
        self.rows[status] += sum([file.record_count for file in files])
        self.partitions.update([file.partition for file in files])
        if status != DELETED and sequence_number is not None:
            self._count_sequence_number(sequence_number)

    def _count_sequence_number(self, number: int) -> None:
        known = self.min_sequence_number
        self.min_sequence_number = number if known is None else min(known, number)

    def copy(
        self,
        copied: CopiedRows,
        chosen: slice,
        status: NDArray[np.int64],
        snapshot_id: NDArray[np.int64],
        data_file_at: NDArray[np.int64],
        data_file_end: NDArray[np.int64],
    ) -> None:
        """Count copied entries. The arrays describe the chosen ones."""
        rows = copied.rows[chosen]
        counts = copied.columns.record_count[rows]
        for kind in (EXISTING, DELETED):
            of_kind = status == kind
            self.files[kind] += int(np.count_nonzero(of_kind))
            self.rows[kind] += int(counts[of_kind].sum())
        staying = copied.inherited.sequence_number[chosen][status != DELETED]
        if len(staying):
            self._count_sequence_number(int(staying.min()))
        used = np.unique(copied.columns.partition[rows]).tolist()
        self.partitions.update(copied.partitions[index] for index in used)
        if self.copies is not None:
            part = Copies(copied, chosen, status, snapshot_id, data_file_at, data_file_end)
            self.copies.append(part)


# --- partition summaries ---------------------------------------------------------------------


def _summaries(
    encoder: ManifestEncoder, partitions: set[tuple[Any, ...]]
) -> tuple[PartitionSummary, ...]:
    fields = encoder.partition_type.fields
    return tuple(
        field_summary([values[at] for values in partitions], partial(to_binary, field.type), _order)
        for at, field in enumerate(fields)
    )


def _order(value: Any) -> Any:
    """Return a sort key. Java compares the halves of a UUID as signed numbers."""
    if isinstance(value, UUID):
        halves = value.bytes[:8], value.bytes[8:]
        return tuple(int.from_bytes(half, "big", signed=True) for half in halves)
    return value


MAX_MERGED_ENTRIES: Final = 4_000
"""The most entries that one commit rewrites to merge manifests of one content."""

MERGE_ENABLED: Final = "commit.manifest-merge.enabled"
MIN_COUNT_TO_MERGE: Final = "commit.manifest.min-count-to-merge"
TARGET_SIZE_BYTES: Final = "commit.manifest.target-size-bytes"
_MIN_COUNT_DEFAULT: Final = 100


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The table's properties, parsed like Java does. Invalid values are ignored."""

    enabled: bool = True
    min_count: int = _MIN_COUNT_DEFAULT
    target_size_bytes: int = DEFAULT_TARGET_SIZE_BYTES

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> MergeSettings:
        return cls(
            enabled=properties.get(MERGE_ENABLED, "true").lower() == "true",
            min_count=_number(properties, MIN_COUNT_TO_MERGE, _MIN_COUNT_DEFAULT),
            target_size_bytes=_number(properties, TARGET_SIZE_BYTES, DEFAULT_TARGET_SIZE_BYTES),
        )


Mergeable: TypeAlias = tuple[int, int, int]
"""A manifest's partition spec, its length in bytes and the number of its entries."""


def mergeable(listed: ManifestFile) -> Mergeable:
    """Return the properties that merging depends on. A manifest without counts is treated as
    full."""
    added, existing = listed.added_files_count, listed.existing_files_count
    deleted = listed.deleted_files_count
    if added is None or existing is None or deleted is None:
        return listed.partition_spec_id, listed.manifest_length, MAX_MERGED_ENTRIES + 1
    return listed.partition_spec_id, listed.manifest_length, added + existing + deleted


def bin_to_merge(manifests: Sequence[Mergeable], settings: MergeSettings) -> tuple[int, ...]:
    """Return the positions of the manifests to merge, or nothing. The newest comes first."""
    if not settings.enabled or len(manifests) < 2:
        return ()
    by_spec: dict[int, list[int]] = {}
    for position, (spec_id, _, _) in enumerate(manifests):
        by_spec.setdefault(spec_id, []).append(position)
    for spec_id in sorted(by_spec, reverse=True):
        for packed in _bins(manifests, by_spec[spec_id], settings):
            least = settings.min_count if packed[0] == 0 else 2
            if len(packed) >= max(2, least):
                return tuple(packed)
    return ()


def _bins(
    manifests: Sequence[Mergeable], positions: Sequence[int], settings: MergeSettings
) -> list[list[int]]:
    """Pack the manifests from the end, so that the newest manifests are in the incomplete bin."""
    bins: list[list[int]] = []
    current: list[int] = []
    length = entries = 0
    target = settings.target_size_bytes
    for position in reversed(positions):
        _, own_length, own_entries = manifests[position]
        length += own_length
        entries += own_entries
        if current and (length > target or entries > MAX_MERGED_ENTRIES):
            bins.append(current[::-1])
            current, length, entries = [], own_length, own_entries
        current.append(position)
    if current:
        bins.append(current[::-1])
    return bins[::-1]


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    value = parse_int(properties.get(name, ""))
    return default if value is None or value < 0 else value
