"""Table metadata to JSON, field for field as Java's TableMetadataParser writes it.

The answer is a list of chunks: the long lists hand out the bytes of their segments as they are, so
nothing is encoded or copied for each snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from frazil.format.metadata.gzip_member import Packed, gzip_member, pack
from frazil.format.metadata.raw_json import json_object
from frazil.format.metadata.segments import SegmentedList
from frazil.format.metadata.snapshots import SnapshotList
from frazil.format.metadata.table_metadata import MIN_FORMAT_VERSION_ROW_LINEAGE, TableMetadata

KNOWN_FIELDS = frozenset(
    {
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "schema",
        "schemas",
        "current-schema-id",
        "partition-spec",
        "partition-specs",
        "default-spec-id",
        "last-partition-id",
        "default-sort-order-id",
        "sort-orders",
        "properties",
        "current-snapshot-id",
        "refs",
        "snapshots",
        "snapshot-log",
        "metadata-log",
        "statistics",
        "partition-statistics",
        "encryption-keys",
        "next-row-id",
    }
)

_NO_CURRENT_SNAPSHOT = -1
_MIN_NULL_CURRENT_SNAPSHOT_VERSION = 3

_Piece: TypeAlias = "bytes | tuple[bytes, ...] | SegmentedList[Any]"
"""Glue between the lists, the schemas' JSON, or a long list."""


def encode_table_metadata(metadata: TableMetadata) -> list[bytes]:
    """The whole document, in chunks."""
    return _plain(_pieces(metadata, metadata.snapshots))


def encode_refs_only(metadata: TableMetadata) -> list[bytes]:
    """The document with only those snapshots that a ref names; the logs stay whole.

    Java's suppressHistoricalSnapshots: what `snapshots=refs` asks for.
    """
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    return _plain(_pieces(metadata, metadata.snapshots.only(named)))


def encode_gzip(metadata: TableMetadata) -> list[bytes]:
    """The whole document as one gzip member, made of the segments' cached compressed forms."""
    packed: list[Packed] = []
    for piece in _pieces(metadata, metadata.snapshots):
        if isinstance(piece, SegmentedList):
            packed += piece.packed()
        elif isinstance(piece, tuple):
            packed.append(_packed_schemas(piece))
        else:
            packed.append(pack(piece))
    return gzip_member(packed)


@lru_cache(maxsize=128)
def _packed_schemas(raws: tuple[bytes, ...]) -> Packed:
    """Wide tables have schemas of megabytes, which few commits change."""
    return pack(b",".join(raws))


def _plain(pieces: Iterable[_Piece]) -> list[bytes]:
    chunks: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, SegmentedList):
            chunks += piece.chunks()
        elif isinstance(piece, tuple):
            chunks.append(b",".join(piece))
        else:
            chunks.append(piece)
    return chunks


def _pieces(metadata: TableMetadata, snapshots: SnapshotList) -> list[_Piece]:
    return [
        b"{" + _identity(metadata) + b',"schemas":[',
        tuple(schema.raw for schema in metadata.schemas),
        b"]," + _settings(metadata) + b',"snapshots":[',
        snapshots,
        b"]," + _statistics(metadata) + b',"snapshot-log":[',
        metadata.snapshot_log,
        b'],"metadata-log":[',
        metadata.metadata_log,
        b"]" + _extra(metadata) + b"}",
    ]


def _identity(metadata: TableMetadata) -> bytes:
    """Everything up to the schemas."""
    members: dict[str, object] = {"format-version": metadata.format_version}
    if metadata.table_uuid is not None:
        members["table-uuid"] = metadata.table_uuid
    members["location"] = metadata.location
    if metadata.format_version > 1:
        members["last-sequence-number"] = metadata.last_sequence_number
    members["last-updated-ms"] = metadata.last_updated_ms
    members["last-column-id"] = metadata.last_column_id
    if metadata.format_version == 1:
        # Readers older than `schemas` look here.
        members["schema"] = Raw(metadata.current_schema.raw)
    members["current-schema-id"] = metadata.current_schema_id
    return _members(members)


def _settings(metadata: TableMetadata) -> bytes:
    """Everything between the schemas and the snapshots."""
    version = metadata.format_version
    members: dict[str, object] = {}
    if version == 1:
        # Readers older than `partition-specs` look here, for the bare fields.
        members["partition-spec"] = json_object(metadata.default_spec.raw, "")["fields"]
    members["default-spec-id"] = metadata.default_spec_id
    members["partition-specs"] = [Raw(spec.raw) for spec in metadata.partition_specs]
    members["last-partition-id"] = metadata.last_partition_id
    members["default-sort-order-id"] = metadata.default_sort_order_id
    members["sort-orders"] = [Raw(order.raw) for order in metadata.sort_orders]
    members["properties"] = metadata.properties
    current = metadata.current_snapshot_id
    if current is None and version < _MIN_NULL_CURRENT_SNAPSHOT_VERSION:
        current = _NO_CURRENT_SNAPSHOT
    members["current-snapshot-id"] = current
    if version >= MIN_FORMAT_VERSION_ROW_LINEAGE:
        members["next-row-id"] = metadata.next_row_id
    if metadata.encryption_keys:
        members["encryption-keys"] = [Raw(key.raw) for key in metadata.encryption_keys]
    members["refs"] = {name: Raw(ref.raw) for name, ref in metadata.refs.items()}
    return _members(members)


def _statistics(metadata: TableMetadata) -> bytes:
    return _members(
        {
            "statistics": [Raw(file.raw) for file in metadata.statistics],
            "partition-statistics": [Raw(file.raw) for file in metadata.partition_statistics],
        }
    )


def _extra(metadata: TableMetadata) -> bytes:
    if not metadata.extra:
        return b""
    return b"," + _members({name: Raw(raw) for name, raw in metadata.extra.items()})


def _members(members: Mapping[str, object]) -> bytes:
    """The members of a JSON object, without its braces."""
    return msgspec.json.encode(members)[1:-1]
