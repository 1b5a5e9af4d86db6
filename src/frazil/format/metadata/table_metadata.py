"""Table metadata as an immutable value, with its statistics files and encryption keys."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.format.metadata.raw_json import (
    Int32,
    Int64,
    InvalidMetadata,
    NonNegativeInt64,
    Part,
    compact,
    decode,
    json_names,
    without_nulls,
)
from frazil.format.metadata.schema import Schema
from frazil.format.metadata.snapshots import (
    MetadataLog,
    Snapshot,
    SnapshotList,
    SnapshotLog,
    SnapshotRef,
)
from frazil.format.metadata.sort_order import SortOrder


class BlobMetadata(Struct, frozen=True, kw_only=True, rename="kebab"):
    type: str
    snapshot_id: Int64
    sequence_number: Int64
    fields: tuple[Int32, ...]
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class StatisticsFile(Part, frozen=True, kw_only=True, rename="kebab"):
    snapshot_id: Int64
    statistics_path: str
    file_size_in_bytes: NonNegativeInt64
    file_footer_size_in_bytes: NonNegativeInt64
    blob_metadata: tuple[BlobMetadata, ...]


class PartitionStatisticsFile(Part, frozen=True, kw_only=True, rename="kebab"):
    snapshot_id: Int64
    statistics_path: str
    file_size_in_bytes: NonNegativeInt64


class EncryptedKey(Part, frozen=True, kw_only=True, rename="kebab"):
    key_id: str
    encrypted_key_metadata: str
    """Base64."""
    encrypted_by_id: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)


P = TypeVar("P", bound=Part)

_STATISTICS: msgspec.json.Decoder[StatisticsFile] = msgspec.json.Decoder(StatisticsFile)
_PARTITION_STATISTICS: msgspec.json.Decoder[PartitionStatisticsFile] = msgspec.json.Decoder(
    PartitionStatisticsFile
)
_KEY: msgspec.json.Decoder[EncryptedKey] = msgspec.json.Decoder(EncryptedKey)


def parse_statistics_file(raw: bytes | Raw, field: str = "statistics") -> StatisticsFile:
    return _parse(_STATISTICS, StatisticsFile, raw, field)


def parse_partition_statistics_file(
    raw: bytes | Raw, field: str = "partition-statistics"
) -> PartitionStatisticsFile:
    return _parse(_PARTITION_STATISTICS, PartitionStatisticsFile, raw, field)


def parse_encrypted_key(raw: bytes | Raw, field: str = "encryption-key") -> EncryptedKey:
    key = _parse(_KEY, EncryptedKey, raw, field)
    try:
        base64.b64decode(key.encrypted_key_metadata, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidMetadata(f"{field}.encrypted-key-metadata", "not valid base64") from None
    return key


def _parse(decoder: msgspec.json.Decoder[P], part: type[P], raw: bytes | Raw, field: str) -> P:
    squeezed = without_nulls(compact(raw, field), json_names(part), field)
    return msgspec.structs.replace(decode(decoder, squeezed, field), raw=squeezed)


T = TypeVar("T")

MIN_FORMAT_VERSION = 1
MAX_FORMAT_VERSION = 3
DEFAULT_FORMAT_VERSION = 2
MIN_FORMAT_VERSION_ROW_LINEAGE = 3
INITIAL_SEQUENCE_NUMBER = 0
INITIAL_ROW_ID = 0

ONE_MINUTE_MS = 60_000
"""How far timestamps may go back because the clocks of writers differ, as in Java."""

RESERVED_PROPERTIES = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""Properties that only control a request and are not stored (Java's TableProperties)."""


class TableMetadata(Struct, frozen=True, kw_only=True):
    """Table metadata with the fields and names of the specification.

    It is always valid, because it comes from `parse_table_metadata`, `new_table` or updates.
    """

    format_version: int
    table_uuid: str | None
    """Never None from format version 2."""
    location: str
    """Without a slash at the end."""
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    schemas: tuple[Schema, ...]
    current_schema_id: int
    partition_specs: tuple[PartitionSpec, ...]
    default_spec_id: int
    last_partition_id: int
    sort_orders: tuple[SortOrder, ...]
    default_sort_order_id: int
    properties: Mapping[str, str]
    current_snapshot_id: int | None
    snapshots: SnapshotList
    snapshot_log: SnapshotLog
    metadata_log: MetadataLog
    refs: Mapping[str, SnapshotRef]
    statistics: tuple[StatisticsFile, ...]
    partition_statistics: tuple[PartitionStatisticsFile, ...]
    encryption_keys: tuple[EncryptedKey, ...]
    next_row_id: int
    """Used from format version 3; 0 before."""
    extra: Mapping[str, bytes]
    """Unknown top-level fields as JSON."""

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        return self.snapshots.get(snapshot_id)

    @property
    def current_snapshot(self) -> Snapshot | None:
        if self.current_snapshot_id is None:
            return None
        return self.snapshots.get(self.current_snapshot_id)

    def schema(self, schema_id: int) -> Schema | None:
        return next((schema for schema in self.schemas if schema.schema_id == schema_id), None)

    @property
    def current_schema(self) -> Schema:
        return _present(self.schema(self.current_schema_id), "current-schema-id")

    def spec(self, spec_id: int) -> PartitionSpec | None:
        return next((spec for spec in self.partition_specs if spec.spec_id == spec_id), None)

    @property
    def default_spec(self) -> PartitionSpec:
        return _present(self.spec(self.default_spec_id), "default-spec-id")

    def sort_order(self, order_id: int) -> SortOrder | None:
        return next((order for order in self.sort_orders if order.order_id == order_id), None)

    def statistics_paths(self) -> list[tuple[int, str]]:
        """Return the snapshot and the path of each statistics and partition statistics file."""
        return [
            *((own.snapshot_id, own.statistics_path) for own in self.statistics),
            *((own.snapshot_id, own.statistics_path) for own in self.partition_statistics),
        ]

    def ref(self, name: str) -> SnapshotRef | None:
        return self.refs.get(name)

    def ancestors(self, snapshot_id: int) -> Iterator[Snapshot]:
        """Iterate over a snapshot and its known ancestors, newest first."""
        for ancestor_id in self.ancestor_ids(snapshot_id):
            ancestor = self.snapshots.get(ancestor_id)
            if ancestor is not None:
                yield ancestor

    def ancestor_ids(self, snapshot_id: int) -> Iterator[int]:
        """Iterate over the ids of the same snapshots, without reading their JSON."""
        seen: set[int] = set()
        ancestor_id: int | None = snapshot_id
        while ancestor_id is not None and ancestor_id not in seen:
            seen.add(ancestor_id)
            ancestor = self.snapshots.bare(ancestor_id)
            if ancestor is None:
                return
            yield ancestor_id
            ancestor_id = ancestor.parent_snapshot_id

    def is_ancestor(self, ancestor_id: int, of_id: int) -> bool:
        """Check whether a snapshot is the other one or one of its ancestors."""
        return any(known_id == ancestor_id for known_id in self.ancestor_ids(of_id))


def _present(value: T | None, field: str) -> T:
    if value is None:
        raise LookupError(f"table metadata does not contain the object that its {field} names")
    return value


def strip_trailing_slash(location: str) -> str:
    """Remove slashes at the end, as Java's LocationUtil does. A bare `scheme://` stays."""
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location
