"""Manifests written one after another, each up to the target size (Java's RollingManifestWriter).

Nothing here touches a store: a written manifest is its path, its bytes, and all that a manifest
list says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Final
from uuid import UUID

from frazil.format import manifest_list
from frazil.format.avro_files import MANIFEST_LIMITS, AvroWriter
from frazil.format.avro_types import Field, Fixed, Null, Record
from frazil.format.content_files import ContentFile
from frazil.format.manifest_copies import CopiedEntry
from frazil.format.manifest_encoder import ManifestEncoder
from frazil.format.manifest_list import PartitionSummary
from frazil.format.manifests import ADDED, DELETED, EXISTING
from frazil.format.partition_summaries import summarise
from frazil.values.single_value import to_binary
from frazil.values.types import Type

BLOCK_ENTRIES: Final = 500
DEFAULT_TARGET_SIZE_BYTES: Final = 8 << 20
"""Of `commit.manifest.target-size-bytes`."""

# Whatever the target size, a manifest stays far inside what our own reader accepts.
_MAX_LENGTH_BYTES: Final = MANIFEST_LIMITS.file_bytes // 2
_MAX_DECODED_BYTES: Final = MANIFEST_LIMITS.decoded_bytes // 2
_MAX_ENTRIES: Final = MANIFEST_LIMITS.records // 2


@dataclass(frozen=True, slots=True)
class WrittenManifest:
    """A manifest's bytes, and its `manifest_file` as far as the commit does not decide it."""

    manifest_path: str
    file: bytes = dataclass_field(repr=False)
    partition_spec_id: int
    content: int
    min_sequence_number: int | None
    """None where every live entry inherits: then it is the sequence number of the commit."""
    added_files_count: int
    existing_files_count: int
    deleted_files_count: int
    added_rows_count: int
    existing_rows_count: int
    deleted_rows_count: int
    partitions: tuple[PartitionSummary, ...]
    first_row_id: int | None = None
    """Assigned by the manifest list."""
    key_metadata: bytes | None = None

    @property
    def manifest_length(self) -> int:
        return len(self.file)

    @property
    def has_live_files(self) -> bool:
        return self.added_files_count + self.existing_files_count > 0

    def listed(self, snapshot_id: int, sequence_number: int) -> Mapping[int, Any]:
        """The record of a manifest list, by field id, once the commit has a sequence number."""
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
    """Takes entries and makes as many manifests as the target size needs; none without entries."""

    def __init__(
        self,
        encoder: ManifestEncoder,
        *,
        new_path: Callable[[], str],
        snapshot_id: int | None,
        target_size_bytes: int = DEFAULT_TARGET_SIZE_BYTES,
        codec: str = "deflate",
    ) -> None:
        """`snapshot_id` is that of the commit; None, from version 2 on, lets ADDED entries inherit
        it. `codec` is Avro's name of one (`avro_codec`)."""
        self._encoder = encoder
        self._new_path = new_path
        self._snapshot_id = snapshot_id
        self._target_size_bytes = min(target_size_bytes, _MAX_LENGTH_BYTES)
        self._codec = codec
        self._open: _OpenManifest | None = None
        self._written: list[WrittenManifest] = []

    def add(self, file: ContentFile, sequence_number: int | None = None) -> None:
        """A new file. A data sequence number is given only where rewritten rows keep theirs."""
        self._write(
            ADDED,
            self._snapshot_id,
            sequence_number,
            None,
            self._encoder.data_file(file),
            file.record_count,
            file.partition,
        )

    def existing(
        self,
        file: ContentFile,
        snapshot_id: int,
        sequence_number: int,
        file_sequence_number: int | None,
    ) -> None:
        """A file that stays, with what it was given when it was added."""
        self._write(
            EXISTING,
            snapshot_id,
            sequence_number,
            file_sequence_number,
            self._encoder.data_file(file),
            file.record_count,
            file.partition,
        )

    def delete(
        self, file: ContentFile, sequence_number: int, file_sequence_number: int | None
    ) -> None:
        """A file that this commit removes; it keeps its sequence numbers."""
        self._write(
            DELETED,
            self._snapshot_id,
            sequence_number,
            file_sequence_number,
            self._encoder.data_file(file),
            file.record_count,
            file.partition,
        )

    def existing_copy(self, copied: CopiedEntry) -> None:
        """An entry of another manifest that stays."""
        self._copy(EXISTING, copied.entry.snapshot_id, copied)

    def delete_copy(self, copied: CopiedEntry) -> None:
        """An entry of another manifest whose file this commit removes."""
        self._copy(DELETED, self._snapshot_id, copied)

    def finish(self) -> tuple[WrittenManifest, ...]:
        """Ends the last manifest; all that were written."""
        if self._open is not None:
            self._roll(self._open)
        return tuple(self._written)

    def _copy(self, status: int, snapshot_id: int | None, copied: CopiedEntry) -> None:
        entry = copied.entry
        self._write(
            status,
            snapshot_id,
            entry.sequence_number,
            entry.file_sequence_number,
            copied.data_file,
            entry.record_count,
            copied.partition,
        )

    def _write(
        self,
        status: int,
        snapshot_id: int | None,
        sequence_number: int | None,
        file_sequence_number: int | None,
        data_file: bytes,
        record_count: int,
        partition: tuple[Any, ...],
    ) -> None:
        encoder = self._encoder
        record = encoder.entry(
            status, snapshot_id, sequence_number, file_sequence_number, data_file
        )
        if self._open is None:
            writer = AvroWriter(encoder.schema, encoder.header, self._codec, BLOCK_ENTRIES)
            self._open = _OpenManifest(writer)
        current = self._open
        current.count(status, record_count, sequence_number, partition)
        if current.writer.write(record) and self._is_full(current):
            self._roll(current)

    def _is_full(self, current: _OpenManifest) -> bool:
        return (
            current.writer.length >= self._target_size_bytes
            or current.writer.decoded_bytes >= _MAX_DECODED_BYTES
            or sum(current.files) >= _MAX_ENTRIES
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
            )
        )
        self._open = None


class _OpenManifest:
    """A manifest under way and what its list entry will say."""

    def __init__(self, writer: AvroWriter) -> None:
        self.writer = writer
        self.files = [0, 0, 0]
        """By status; rows too."""
        self.rows = [0, 0, 0]
        self.min_sequence_number: int | None = None
        self.partitions: set[tuple[Any, ...]] = set()

    def count(
        self,
        status: int,
        record_count: int,
        sequence_number: int | None,
        partition: tuple[Any, ...],
    ) -> None:
        self.files[status] += 1
        self.rows[status] += record_count
        self.partitions.add(partition)
        if status != DELETED and sequence_number is not None:
            least = self.min_sequence_number
            if least is None or sequence_number < least:
                self.min_sequence_number = sequence_number


# --- partition summaries ---------------------------------------------------------------------


def _summaries(
    encoder: ManifestEncoder, partitions: set[tuple[Any, ...]]
) -> tuple[PartitionSummary, ...]:
    values = list(partitions)
    fields = _partition_fields(encoder)
    types = [field.type for field in encoder.partition_type.fields]
    typed = [
        _typed_summary(type_, [row[position] for row in values])
        if isinstance(field.value_node, Fixed | Null)
        else _NO_SUMMARY
        for position, (field, type_) in enumerate(zip(fields, types, strict=True))
    ]
    summaries = summarise(fields, values, typed)
    assert summaries is not None
    return tuple(summaries)


_NO_SUMMARY: Final = PartitionSummary(False, None, None, None)
"""In the place of a field that `summarise` summarises by its Avro type."""


def _partition_fields(encoder: ManifestEncoder) -> tuple[Field, ...]:
    data_file = encoder.schema.record.by_id(2)
    assert data_file is not None
    assert isinstance(data_file.node, Record)
    partition = data_file.node.by_id(102)
    assert partition is not None
    assert isinstance(partition.node, Record)
    return partition.node.fields


def _typed_summary(type_: Type, values: list[Any]) -> PartitionSummary:
    """The summary of values whose Avro type, a fixed, does not tell how Iceberg orders them."""
    known = [value for value in values if value is not None]
    return PartitionSummary(
        contains_null=len(known) < len(values),
        contains_nan=False,
        lower_bound=to_binary(type_, min(known, key=_order)) if known else None,
        upper_bound=to_binary(type_, max(known, key=_order)) if known else None,
    )


def _order(value: Any) -> Any:
    """Java compares a uuid's halves as signed numbers, in writers and in readers that prune."""
    if isinstance(value, UUID):
        halves = value.bytes[:8], value.bytes[8:]
        return tuple(int.from_bytes(half, "big", signed=True) for half in halves)
    return value
