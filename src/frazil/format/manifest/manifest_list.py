"""Manifest lists: one record for each manifest of a snapshot (spec, "Manifest Lists").

A parsed list keeps the bytes of every record. A new list is built from those bytes, so that
manifests that stay keep all their fields, including unknown ones.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import lru_cache
from typing import Any, Final

from frazil.format.avro.avro_files import (
    MANIFEST_LIST_LIMITS,
    AvroBlock,
    Projection,
    avro_block,
    open_avro,
    write_avro_blocks,
)
from frazil.format.avro.avro_schema import (
    RecordSchema,
    cached_by_schema,
    optional_field,
    record_schema,
    required_field,
)
from frazil.format.avro.avro_types import (
    Array,
    Boolean,
    Bytes,
    Field,
    Floating,
    Integer,
    Node,
    Record,
    String,
    UnreadableAvro,
)
from frazil.format.manifest.manifest_schema import avro_schema, optional, required, schema_json
from frazil.values import types

DATA: Final = 0
DELETES: Final = 1

PATH: Final = 500
LENGTH: Final = 501
SPEC_ID: Final = 502
ADDED_SNAPSHOT_ID: Final = 503
ADDED_FILES: Final = 504
EXISTING_FILES: Final = 505
DELETED_FILES: Final = 506
PARTITIONS: Final = 507
ADDED_ROWS: Final = 512
EXISTING_ROWS: Final = 513
DELETED_ROWS: Final = 514
SEQUENCE_NUMBER: Final = 515
MIN_SEQUENCE_NUMBER: Final = 516
CONTENT: Final = 517
KEY_METADATA: Final = 519
FIRST_ROW_ID: Final = 520

_SUMMARY_FIELDS: Final = (
    required(509, "contains_null", types.BOOLEAN),
    optional(518, "contains_nan", types.BOOLEAN),
    optional(510, "lower_bound", types.BINARY),
    optional(511, "upper_bound", types.BINARY),
)
_PARTITION_SUMMARIES: Final = types.ListType(
    required(508, "element", types.StructType(_SUMMARY_FIELDS))
)
_FIELDS_V2: Final = (
    required(PATH, "manifest_path", types.STRING),
    required(LENGTH, "manifest_length", types.LONG),
    required(SPEC_ID, "partition_spec_id", types.INT),
    required(CONTENT, "content", types.INT),
    required(SEQUENCE_NUMBER, "sequence_number", types.LONG),
    required(MIN_SEQUENCE_NUMBER, "min_sequence_number", types.LONG),
    required(ADDED_SNAPSHOT_ID, "added_snapshot_id", types.LONG),
    required(ADDED_FILES, "added_files_count", types.INT),
    required(EXISTING_FILES, "existing_files_count", types.INT),
    required(DELETED_FILES, "deleted_files_count", types.INT),
    required(ADDED_ROWS, "added_rows_count", types.LONG),
    required(EXISTING_ROWS, "existing_rows_count", types.LONG),
    required(DELETED_ROWS, "deleted_rows_count", types.LONG),
    optional(PARTITIONS, "partitions", _PARTITION_SUMMARIES),
    optional(KEY_METADATA, "key_metadata", types.BINARY),
)
_FIRST_ROW_ID_FIELD: Final = optional(FIRST_ROW_ID, "first_row_id", types.LONG)
_ORDER_V1: Final = (
    *(PATH, LENGTH, SPEC_ID, ADDED_SNAPSHOT_ID, ADDED_FILES, EXISTING_FILES, DELETED_FILES),
    *(PARTITIONS, ADDED_ROWS, EXISTING_ROWS, DELETED_ROWS, KEY_METADATA),
)
_REQUIRED_V1: Final = frozenset({PATH, LENGTH, SPEC_ID, ADDED_SNAPSHOT_ID})
_NAMES: Final = {field.field_id: field.name for field in (*_FIELDS_V2, _FIRST_ROW_ID_FIELD)}
_BLOCK_MANIFESTS: Final = 32

_DEFAULTS: Final[Mapping[int, int]] = {CONTENT: DATA, SEQUENCE_NUMBER: 0, MIN_SEQUENCE_NUMBER: 0}
"""Values of newer fields for manifests in a version 1 list."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest as described by its list. The fields are the specification's `manifest_file`."""

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int | None
    added_files_count: int | None
    existing_files_count: int | None
    deleted_files_count: int | None
    added_rows_count: int | None
    existing_rows_count: int | None
    deleted_rows_count: int | None
    first_row_id: int | None
    encrypted: bool
    raw: bytes = dataclass_field(repr=False)


@dataclass(frozen=True, slots=True)
class ManifestList:
    schema: RecordSchema
    metadata: Mapping[str, bytes]
    codec: str
    manifests: tuple[ManifestFile, ...]
    blocks: tuple[AvroBlock, ...] = dataclass_field(default=(), repr=False, compare=False)
    """The compressed manifests. The next list reuses the blocks that do not change."""


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """The specification's `field_summary` of one partition field."""

    contains_null: bool
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest for a new list: its record in another list, and the changes to it."""

    manifest: ManifestFile
    schema: RecordSchema
    """The schema of the list that contains the record."""
    changes: Mapping[int, Any] = dataclass_field(default_factory=dict)

    def count(self, field_id: int, name: str) -> int:
        value = self.changes.get(field_id, getattr(self.manifest, name))
        if value is None:
            raise UnreadableAvro(
                f"the list has no {name} for the manifest {self.manifest.manifest_path}"
            )
        assert isinstance(value, int)
        return value


@dataclass(frozen=True, slots=True)
class WrittenManifestList:
    content: bytes
    parsed: ManifestList
    """The parsed form of the content, so that the next commit on this head need not read it."""
    assigned_rows: int
    """The number of row ids assigned to manifests that had none (version 3)."""


def read_manifest_list(content: bytes) -> ManifestList:
    """Read a list. Raises UnreadableAvro."""
    file = open_avro(content, MANIFEST_LIST_LIMITS)
    projection = _projection(file.schema.text)
    manifests = tuple(_manifest_file(values, raw) for values, raw in file.records(projection.read))
    return ManifestList(file.schema, file.metadata, file.codec, manifests)


def partition_summaries(
    schema: RecordSchema, manifest: ManifestFile
) -> Sequence[PartitionSummary] | None:
    """Return the partition summaries of a manifest in a list with this schema."""
    return _summaries(schema.text, manifest.raw)


@lru_cache(maxsize=1 << 13)
def _summaries(schema_text: str, raw: bytes) -> tuple[PartitionSummary, ...] | None:
    """Decode the summaries of a manifest. Every scan needs those of all manifests, so they are
    cached. Measured: a warm plan of 1,000 manifests takes 7 times as long without the cache."""
    schema = record_schema(schema_text)
    partitions = optional_field(schema.record, PARTITIONS, Array)
    if partitions is None:
        return None
    position = schema.record.fields.index(partitions)
    start, _ = schema.record.spans(raw, 0)[position]
    value, _ = partitions.node.read(raw, start)
    return None if value is None else tuple(_summary(partitions, item) for item in value)


def write_manifest_list(
    entries: Sequence[ListedManifest],
    *,
    like: ManifestList,
    format_version: int,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    first_row_id: int | None,
    codec: str,
    level: int | None = None,
) -> WrittenManifestList:
    """Write a list. It has the schema of `like` if that contains every field of the format version,
    otherwise our schema and the unknown fields of `like`. Row ids are assigned like in Java's
    ManifestListWriter."""
    schema = _schema_like(format_version, like.schema)
    next_row_id = first_row_id
    manifests: list[ManifestFile] = []
    for entry in entries:
        takes_row_ids = next_row_id is not None and _lacks_row_ids(entry)
        if entry.schema is schema and not entry.changes and not takes_row_ids:
            manifests.append(entry.manifest)
            continue
        changes = dict(entry.changes)
        if next_row_id is not None and takes_row_ids:
            changes[FIRST_ROW_ID] = next_row_id
            # Existing rows need ids too if their files were written before version 3.
            next_row_id += entry.count(EXISTING_ROWS, "existing_rows_count")
            next_row_id += entry.count(ADDED_ROWS, "added_rows_count")
        raw = _encoded(schema, entry, changes)
        unchanged = raw is entry.manifest.raw
        manifests.append(entry.manifest if unchanged else _read_manifest_file(schema, raw))
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        **({"sequence-number": str(sequence_number)} if format_version > 1 else {}),
        **({"first-row-id": str(first_row_id)} if first_row_id is not None else {}),
        "format-version": str(format_version),
        **_iceberg_schema_header(schema, like, format_version),
    }
    metadata = {key: value.encode() for key, value in header.items()}
    assigned = 0 if first_row_id is None or next_row_id is None else next_row_id - first_row_id
    same_form = schema is like.schema and codec == like.codec
    blocks = _blocks(manifests, codec, level, like if same_form else None)
    content = write_avro_blocks(schema, metadata, codec, blocks)
    parsed = ManifestList(schema, metadata, codec, tuple(manifests), blocks)
    return WrittenManifestList(content, parsed, assigned)


def _blocks(
    manifests: Sequence[ManifestFile], codec: str, level: int | None, like: ManifestList | None
) -> tuple[AvroBlock, ...]:
    """Compress the manifests in blocks.

    Most lists are the previous list with one more manifest in front. All blocks except the first
    are reused, and the first is written again until it is large enough. Measured: without this,
    appends to a table of 1,000 manifests use 1.4 times the CPU time.
    """
    kept: list[AvroBlock] = []
    covered = 0
    if like is not None:
        common = _common_tail(manifests, like.manifests)
        for block in reversed(like.blocks):
            if covered + block.count > common or block.count < _BLOCK_MANIFESTS:
                break
            kept.append(block)
            covered += block.count
    front = [manifest.raw for manifest in manifests[: len(manifests) - covered]]
    # The first block has the manifests that do not fill a block, because it is the one that grows.
    ends = list(range(len(front), 0, -_BLOCK_MANIFESTS)) if front else []
    starts = [max(0, end - _BLOCK_MANIFESTS) for end in ends]
    new = [
        avro_block(codec, front[start:end], level) for start, end in zip(starts, ends, strict=True)
    ]
    return (*reversed(new), *reversed(kept))


def _common_tail(left: Sequence[ManifestFile], right: Sequence[ManifestFile]) -> int:
    """Return how many identical objects both sequences end with."""
    count = 0
    for mine, theirs in zip(reversed(left), reversed(right), strict=False):
        if mine is not theirs:
            break
        count += 1
    return count


def may_have_live(listed: ManifestFile) -> bool:
    """Return whether a manifest may have live files. A missing count may hide some."""
    return listed.added_files_count != 0 or listed.existing_files_count != 0


def new_listed(
    values: Mapping[int, Any], format_version: int, like: ManifestList | None
) -> ListedManifest:
    """Return a manifest that is in no list yet. The values are those of `manifest_file` by field
    id."""
    schema = manifest_list_schema(format_version)
    if like is not None:
        schema = _schema_like(format_version, like.schema)
    raw = b"".join(
        _encoded_value(field, None if field.field_id is None else values.get(field.field_id))
        for field in schema.record.fields
    )
    return ListedManifest(_manifest_file([values.get(each) for each in _READ], raw), schema)


def empty_list(format_version: int, codec: str) -> ManifestList:
    """Return the list of a table without a snapshot."""
    return ManifestList(manifest_list_schema(format_version), {}, codec, ())


@lru_cache(maxsize=8)
def manifest_list_schema(format_version: int) -> RecordSchema:
    """Return the schema of the specification for a format version."""
    return avro_schema(types.StructType(_fields(format_version)), "manifest_file")


# --- reading ---------------------------------------------------------------------------------

# In the order of the fields of `ManifestFile`.
_READ: Final = (
    *(PATH, LENGTH, SPEC_ID, CONTENT, SEQUENCE_NUMBER, MIN_SEQUENCE_NUMBER, ADDED_SNAPSHOT_ID),
    *(ADDED_FILES, EXISTING_FILES, DELETED_FILES, ADDED_ROWS, EXISTING_ROWS, DELETED_ROWS),
    *(FIRST_ROW_ID, KEY_METADATA),
)


@cached_by_schema
def _projection(schema: str) -> Projection:
    record = record_schema(schema).record
    kinds: dict[int, type] = {PATH: String, KEY_METADATA: Bytes}
    wanted: list[Field | None] = []
    for field_id in _READ:
        find = required_field if field_id in (PATH, LENGTH, SPEC_ID) else optional_field
        wanted.append(find(record, field_id, kinds.get(field_id, Integer)))
    return Projection(record, wanted)


def _read_manifest_file(schema: RecordSchema, raw: bytes) -> ManifestFile:
    return _manifest_file(_projection(schema.text).read(raw, 0)[0], raw)


def _manifest_file(values: list[Any], raw: bytes) -> ManifestFile:
    path, length, spec_id, content, sequence_number, min_sequence_number, *rest, key = values
    if path is None or length is None or spec_id is None:
        raise UnreadableAvro("a manifest has no path, length or partition spec")
    if content not in (None, DATA, DELETES):
        raise UnreadableAvro(f"a manifest has the unknown content {content}")
    described = [path, length, spec_id, content or DATA, sequence_number or 0]
    described += [min_sequence_number or 0, *rest, bool(key), raw]
    return ManifestFile(*described)


def _summary(partitions: Field, item: Mapping[str, Any]) -> PartitionSummary:
    record = _summary_record(partitions)
    known = [record.by_id(own.field_id) for own in _SUMMARY_FIELDS]
    null, nan, lower, upper = (None if field is None else item[field.name] for field in known)
    return PartitionSummary(bool(null), nan, lower, upper)


def _summary_record(partitions: Field) -> Record:
    array = partitions.value_node
    if not isinstance(array, Array) or not isinstance(array.items, Record):
        raise UnreadableAvro("the schema's field partitions is not a list of summaries")
    return array.items


# --- writing ---------------------------------------------------------------------------------


def _lacks_row_ids(entry: ListedManifest) -> bool:
    first_row_id = entry.changes.get(FIRST_ROW_ID, entry.manifest.first_row_id)
    return entry.manifest.content == DATA and first_row_id is None


def _encoded(schema: RecordSchema, entry: ListedManifest, changes: Mapping[int, Any]) -> bytes:
    raw, source = entry.manifest.raw, entry.schema.record
    if not changes and source.layout == schema.record.layout:
        return raw
    spans = dict(zip((id(field) for field in source.fields), source.spans(raw, 0), strict=True))
    parts: list[bytes] = []
    for target in schema.record.fields:
        field_id = target.field_id
        source_field = source.counterpart(target)
        if field_id is not None and field_id in changes:
            parts.append(_encoded_value(target, changes[field_id]))
        elif source_field is None:
            parts.append(_encoded_value(target, _DEFAULTS.get(field_id or -1)))
        else:
            start, end = spans[id(source_field)]
            if source_field.node.layout == target.node.layout:
                parts.append(raw[start:end])
            else:
                parts.append(_encoded_value(target, _value(entry, source_field, start)))
    return b"".join(parts)


def _value(entry: ListedManifest, source_field: Field, start: int) -> Any:
    if source_field.field_id == PARTITIONS:
        return partition_summaries(entry.schema, entry.manifest)
    value = source_field.node.read(entry.manifest.raw, start)[0]
    return _DEFAULTS.get(source_field.field_id or -1) if value is None else value


def _encoded_value(target: Field, value: Any) -> bytes:
    if target.field_id == PARTITIONS and value is not None:
        record = _summary_record(target)
        value = [_summary_values(record, summary) for summary in value]
    if value is None and not target.nullable:
        raise UnreadableAvro(f"the list's schema requires {target.name}, which has no value")
    return target.encoded(value)


def _summary_values(record: Record, summary: PartitionSummary) -> dict[str, Any]:
    values: dict[str, Any] = {field.name: None for field in record.fields}
    for own in _SUMMARY_FIELDS:
        field = record.by_id(own.field_id)
        if field is not None:
            values[field.name] = getattr(summary, own.name)
    return values


def _schema_like(format_version: int, source: RecordSchema) -> RecordSchema:
    ids = {field.field_id for field in source.record.fields}
    if ids.issuperset(field.field_id for field in _fields(format_version)):
        return source
    known = manifest_list_schema(format_version)
    unknown = [
        _nullable(field)
        for field in source.tree["fields"]
        if field.get("field-id") not in _NAMES and field["name"] not in _NAMES.values()
    ]
    if not unknown:
        return known
    tree = known.tree
    tree["fields"] += unknown
    return record_schema(json.dumps(tree))


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    kind = field["type"]
    branches = kind if isinstance(kind, list) else [kind]
    others = [branch for branch in branches if branch != "null"]
    return {**field, "type": ["null", *others], "default": None}


def _iceberg_schema_header(
    schema: RecordSchema, like: ManifestList, format_version: int
) -> dict[str, str]:
    """Return the header with the schema in Iceberg's own terms, which Java writes too. It is
    cached as long as the schema exists."""
    if schema is like.schema:
        kept = like.metadata.get("iceberg.schema")
        return {} if kept is None else {"iceberg.schema": kept.decode("utf-8", "replace")}
    if schema is not manifest_list_schema(format_version):
        return {}
    return {"iceberg.schema": schema_json(types.StructType(_fields(format_version)))}


def _fields(format_version: int) -> tuple[types.NestedField, ...]:
    """Return the fields of a format version in the order of Java's classes."""
    if format_version > 1:
        return _FIELDS_V2 if format_version == 2 else (*_FIELDS_V2, _FIRST_ROW_ID_FIELD)
    by_id = {field.field_id: field for field in _FIELDS_V2}
    return tuple(
        replace(by_id[field_id], required=field_id in _REQUIRED_V1) for field_id in _ORDER_V1
    )


def summarise(
    fields: Sequence[Field],
    partitions: Sequence[Sequence[Any]],
    wider: Sequence[PartitionSummary] | None,
) -> list[PartitionSummary] | None:
    """Return one summary for each partition field.

    `wider` are correct summaries of a superset of the entries. They are used if Avro's type does
    not define how Iceberg orders and encodes the values (fixed, decimal, UUID).
    """
    if wider is not None and len(wider) != len(fields):
        wider = None
    summaries: list[PartitionSummary] = []
    for position, field in enumerate(fields):
        encode = _encoder(field.value_node)
        if encode is not None:
            try:
                summaries.append(field_summary([values[position] for values in partitions], encode))
            except struct.error:
                raise UnreadableAvro(f"a value of {field.name} does not fit its type") from None
        elif wider is not None:
            summaries.append(wider[position])
        else:
            return None
    return summaries


def field_summary(
    values: Sequence[Any],
    encode: Callable[[Any], bytes],
    order: Callable[[Any], Any] | None = None,
) -> PartitionSummary:
    """Return the summary of the values of one partition field."""
    known = [value for value in values if value is not None and not is_nan(value)]
    return PartitionSummary(
        contains_null=any(value is None for value in values),
        contains_nan=any(is_nan(value) for value in values),
        lower_bound=encode(_signed(min(known, key=order), -0.0)) if known else None,
        upper_bound=encode(_signed(max(known, key=order), 0.0)) if known else None,
    )


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _signed(value: Any, zero: float) -> Any:
    """Return -0.0 for a lower bound of zero and +0.0 for an upper one, whatever the sign of the
    value."""
    return zero if isinstance(value, float) and value == 0 else value


def _encoder(node: Node) -> Callable[[Any], bytes] | None:
    """Return the binary single-value serialization for an Avro type (spec, Appendix D)."""
    if isinstance(node, Boolean):
        return lambda value: b"\x01" if value else b"\x00"
    if isinstance(node, Integer):
        return struct.Struct("<i" if node.layout == "int" else "<q").pack
    if isinstance(node, Floating):
        return node.packing.pack
    if isinstance(node, String):
        return lambda value: str(value).encode("utf-8")
    if isinstance(node, Bytes):
        return bytes
    return None
