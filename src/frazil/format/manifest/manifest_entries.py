"""Reads manifests entry by entry, for rebased appends of stock clients.

Entries are read without their metrics. Other code uses `manifest_columns`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from frazil.format.avro.avro_files import (
    MANIFEST_LIMITS,
    AvroFile,
    Projection,
    open_avro,
    write_avro,
)
from frazil.format.avro.avro_schema import RecordSchema, optional_field, required_field
from frazil.format.avro.avro_types import (
    Field,
    Integer,
    Record,
    String,
    UnreadableAvro,
)
from frazil.format.manifest.manifest_fields import (
    ADDED,
    CONTENT,
    DATA_FILE,
    DELETED,
    EXISTING,
    FILE_FORMAT,
    FILE_PATH,
    FILE_SEQUENCE_NUMBER,
    FILE_SIZE,
    FIRST_ROW_ID,
    PARTITION,
    PARTITION_NODES,
    RECORD_COUNT,
    SEQUENCE_NUMBER,
    SNAPSHOT_ID,
    STATUS,
    data_file_record,
    partition_record,
)
from frazil.format.manifest.manifest_list import DATA, ManifestFile


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """The specification's `manifest_entry` with the fields that identify its `data_file`."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    content: int
    file_path: str
    file_format: str | None
    record_count: int
    file_size_in_bytes: int | None
    first_row_id: int | None
    partition: tuple[Any, ...]

    @property
    def is_live(self) -> bool:
        return self.status != DELETED


@dataclass(frozen=True, slots=True)
class Manifest:
    schema: RecordSchema
    metadata: Mapping[str, bytes]
    codec: str
    length: int
    has_sequence_numbers: bool
    """Manifests of format version 1 have no columns for them."""
    partition_fields: tuple[Field, ...]
    entries: tuple[ManifestEntry, ...]


def read_manifest(content: bytes) -> Manifest:
    """Read a manifest. Raises UnreadableAvro."""
    file = open_avro(content, MANIFEST_LIMITS)
    data_file = data_file_record(file.schema.record)
    projection = _entry_projection(file.schema.record, data_file)
    return Manifest(
        schema=file.schema,
        metadata=file.metadata,
        codec=file.codec,
        length=len(content),
        has_sequence_numbers=_has_sequence_numbers(file),
        partition_fields=_partition_fields(data_file),
        entries=tuple(_entry(values) for values, _ in file.records(projection.read)),
    )


def inherited(manifest: Manifest, listed: ManifestFile) -> Iterator[ManifestEntry]:
    """Return the live entries with what they inherit from the list, as Java's ManifestReader does
    (spec, "Sequence Number Inheritance", "First Row ID Inheritance")."""
    next_row_id = listed.first_row_id if listed.content == DATA else None
    for entry in manifest.entries:
        if not entry.is_live:
            continue
        takes_number = listed.sequence_number == 0 or entry.status == ADDED
        number = listed.sequence_number if takes_number else None
        first_row_id = entry.first_row_id if listed.first_row_id is not None else None
        if next_row_id is not None and first_row_id is None:
            first_row_id = next_row_id
            next_row_id += entry.record_count
        yield replace(
            entry,
            snapshot_id=_first(entry.snapshot_id, listed.added_snapshot_id),
            sequence_number=_first(entry.sequence_number, number),
            file_sequence_number=_first(entry.file_sequence_number, number),
            first_row_id=first_row_id,
        )


def only_added(content: bytes, sequence_number: int) -> bytes:
    """Return the manifest with only its ADDED entries, which inherit their numbers and row ids
    again.

    If the schema does not allow null, the given sequence number is written. The entry's snapshot id
    is right and stays.
    """
    file = open_avro(content, MANIFEST_LIMITS)
    record = file.schema.record
    status = required_field(record, STATUS, Integer)
    projection = Projection(record, [status])
    data_file = data_file_record(record)
    records = [
        _inheriting(record, data_file, raw, sequence_number)
        for values, raw in file.records(projection.read)
        if values[0] == ADDED
    ]
    return write_avro(file.schema, file.metadata, file.codec, records)


def _inheriting(record: Record, data_file: Record, raw: bytes, sequence_number: int) -> bytes:
    changes: dict[int, bytes] = {}
    for field_id in (SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER):
        field = record.by_id(field_id)
        if field is not None:
            changes[field_id] = field.encoded(None if field.nullable else sequence_number)
    first_row_id = data_file.by_id(FIRST_ROW_ID)
    if first_row_id is not None and first_row_id.nullable:
        position = record.fields.index(_data_file_field(record))
        start, _ = record.spans(raw, 0)[position]
        changes[DATA_FILE] = data_file.spliced(
            raw, start, {FIRST_ROW_ID: first_row_id.encoded(None)}
        )
    return record.spliced(raw, 0, changes)


# --- the schema ------------------------------------------------------------------------------


def _data_file_field(record: Record) -> Field:
    return required_field(record, DATA_FILE, Record)


def _partition_fields(data_file: Record) -> tuple[Field, ...]:
    partition = partition_record(data_file)
    if partition is None:
        return ()
    for part in partition.fields:
        if not isinstance(part.value_node, PARTITION_NODES):
            raise UnreadableAvro(f"the partition field {part.name} cannot be {part.node.layout}")
    return partition.fields


def _entry_projection(record: Record, data_file: Record) -> Projection:
    inner = Projection(
        data_file,
        [
            optional_field(data_file, CONTENT, Integer),
            required_field(data_file, FILE_PATH, String),
            optional_field(data_file, FILE_FORMAT, String),
            required_field(data_file, RECORD_COUNT, Integer),
            optional_field(data_file, FILE_SIZE, Integer),
            optional_field(data_file, FIRST_ROW_ID, Integer),
            optional_field(data_file, PARTITION, Record),
        ],
    )
    return Projection(
        record,
        [
            required_field(record, STATUS, Integer),
            optional_field(record, SNAPSHOT_ID, Integer),
            optional_field(record, SEQUENCE_NUMBER, Integer),
            optional_field(record, FILE_SEQUENCE_NUMBER, Integer),
            (_data_file_field(record), inner),
        ],
    )


def _entry(values: Sequence[Any]) -> ManifestEntry:
    status, *numbers, data_file = values
    content, path, file_format, record_count, size, first_row_id, partition = data_file
    if status not in (EXISTING, ADDED, DELETED):
        raise UnreadableAvro(f"an entry has the unknown status {status}")
    if path is None or record_count is None or record_count < 0:
        raise UnreadableAvro("an entry has no file path or no record count")
    described = [status, *numbers, content or 0, path, file_format, record_count, size]
    described += [first_row_id, () if partition is None else tuple(partition.values())]
    return ManifestEntry(*described)


def _has_sequence_numbers(file: AvroFile) -> bool:
    """Check the columns, because early writers omit the format version from the header."""
    has_columns = file.schema.record.by_id(SEQUENCE_NUMBER) is not None
    return has_columns and file.text("format-version") != "1"


def _first(value: int | None, otherwise: int | None) -> int | None:
    return otherwise if value is None else value
