"""Reads and writes table metadata as JSON, as Java's `TableMetadataParser` does.

All format versions from 1 to 3 are read, including the forms that old writers of version 1 used.
What Java's constructor refuses is refused here, in a message that names the field.

The document is written as a list of chunks. The segments of long lists are passed on as they are,
so that no snapshot is encoded or copied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from frazil.format.metadata import raw_json
from frazil.format.metadata.partition_spec import (
    INITIAL_SPEC_ID,
    PartitionSpec,
    parse_partition_fields,
    parse_partition_spec,
    spec_problem,
)
from frazil.format.metadata.raw_json import (
    Int32,
    Int64,
    InvalidMetadata,
    NonNegativeInt64,
    json_object,
)
from frazil.format.metadata.schema import Schema, parse_schema
from frazil.format.metadata.segments import Packed, SegmentedList, gzip_member, pack
from frazil.format.metadata.snapshots import (
    BRANCH,
    MAIN_BRANCH,
    MetadataLog,
    SnapshotList,
    SnapshotLog,
    SnapshotRef,
    check_summaries,
    new_ref,
    parse_metadata_log,
    parse_ref,
    parse_snapshot_log,
    parse_snapshots,
)
from frazil.format.metadata.sort_order import UNSORTED, SortOrder, order_problem, parse_sort_order
from frazil.format.metadata.table_metadata import (
    INITIAL_ROW_ID,
    INITIAL_SEQUENCE_NUMBER,
    MAX_FORMAT_VERSION,
    MIN_FORMAT_VERSION,
    MIN_FORMAT_VERSION_ROW_LINEAGE,
    ONE_MINUTE_MS,
    TableMetadata,
    parse_encrypted_key,
    parse_partition_statistics_file,
    parse_statistics_file,
    strip_trailing_slash,
)
from frazil.wire.errors import BadRequest

__all__ = [
    "InvalidMetadata",
    "encode_gzip",
    "encode_refs_only",
    "encode_table_metadata",
    "parse_table_metadata",
]

T = TypeVar("T")

_INT: msgspec.json.Decoder[int] = msgspec.json.Decoder(Int32)
_LONG: msgspec.json.Decoder[int] = msgspec.json.Decoder(Int64)
_ROW_ID: msgspec.json.Decoder[int] = msgspec.json.Decoder(NonNegativeInt64)
_STRING: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_STRING_MAP: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])
_ARRAY: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])
_EMPTY_ARRAY = b"[]"


def parse_table_metadata(data: bytes, *, summaries: bool = False) -> TableMetadata:
    """Read a metadata document.

    `summaries` checks the summaries of all snapshots, for documents of unknown origin. Otherwise a
    summary is checked when it is used.
    """
    document = _Document(raw_json.json_object(raw_json.compact(data, ""), ""))
    version = document.required("format-version", _INT)
    if not MIN_FORMAT_VERSION <= version <= MAX_FORMAT_VERSION:
        raise InvalidMetadata("format-version", f"{version} is not supported (1 to 3 are)")
    metadata = _read(document, version)
    _check_snapshots(metadata)
    _check_logs(metadata)
    if summaries:
        check_summaries(metadata.snapshots)
    return metadata


class _Document:
    """The top-level members. Null means missing, except in unknown fields."""

    def __init__(self, members: Mapping[str, Raw]) -> None:
        self.members = {
            name: value
            for name, value in members.items()
            if name not in KNOWN_FIELDS or bytes(memoryview(value)[:4]) != b"null"
        }

    def optional(self, name: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        raw = self.members.get(name)
        return None if raw is None else raw_json.decode(decoder, raw, name)

    def required(self, name: str, decoder: msgspec.json.Decoder[T]) -> T:
        value = self.optional(name, decoder)
        if value is None:
            raise InvalidMetadata(name, "missing")
        return value

    def required_from_v2(
        self, name: str, decoder: msgspec.json.Decoder[T], version: int
    ) -> T | None:
        value = self.optional(name, decoder)
        if value is None and version > 1:
            raise InvalidMetadata(name, f"must exist in format v{version}")
        return value

    def parts(self, name: str, parse: Callable[[Raw, str], T]) -> tuple[T, ...]:
        return tuple(
            _as_metadata(name, parse, raw, f"{name}[{position}]")
            for position, raw in enumerate(_or(self.optional(name, _ARRAY), []))
        )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _as_metadata(field: str, parse: Callable[..., T], *arguments: Any) -> T:
    """Parse a part with a parser that raises errors of requests."""
    try:
        return parse(*arguments)
    except BadRequest as error:
        raise InvalidMetadata(field, error.message) from None


def _read(document: _Document, version: int) -> TableMetadata:
    schemas, current_schema = _schemas(document, version)
    specs, default_spec_id = _specs(document, version, current_schema)
    orders, default_sort_order_id = _sort_orders(document, version, current_schema)
    snapshots = parse_snapshots(document.members.get("snapshots", _EMPTY_ARRAY))
    current_snapshot_id = _current_snapshot_id(document, snapshots)
    lineage = version >= MIN_FORMAT_VERSION_ROW_LINEAGE
    return TableMetadata(
        format_version=version,
        table_uuid=document.required_from_v2("table-uuid", _STRING, version),
        location=_location(document),
        last_sequence_number=(
            document.required("last-sequence-number", _LONG)
            if version > 1
            else INITIAL_SEQUENCE_NUMBER
        ),
        last_updated_ms=document.required("last-updated-ms", _LONG),
        last_column_id=document.required("last-column-id", _INT),
        schemas=schemas,
        current_schema_id=current_schema.schema_id,
        partition_specs=specs,
        default_spec_id=default_spec_id,
        last_partition_id=_last_partition_id(document, version, specs),
        sort_orders=orders,
        default_sort_order_id=default_sort_order_id,
        properties=_or(document.optional("properties", _STRING_MAP), {}),
        current_snapshot_id=current_snapshot_id,
        snapshots=snapshots,
        snapshot_log=_log(document, "snapshot-log", parse_snapshot_log, SnapshotLog()),
        metadata_log=_log(document, "metadata-log", parse_metadata_log, MetadataLog()),
        refs=_refs(document, current_snapshot_id),
        statistics=document.parts("statistics", parse_statistics_file),
        partition_statistics=document.parts(
            "partition-statistics", parse_partition_statistics_file
        ),
        encryption_keys=document.parts("encryption-keys", parse_encrypted_key),
        next_row_id=document.required("next-row-id", _ROW_ID) if lineage else INITIAL_ROW_ID,
        extra={
            name: bytes(value)
            for name, value in document.members.items()
            if name not in KNOWN_FIELDS
        },
    )


def _log(document: _Document, name: str, parse: Callable[[Raw], T], empty: T) -> T:
    raw = document.members.get(name)
    return empty if raw is None else parse(raw)


def _location(document: _Document) -> str:
    location = strip_trailing_slash(document.required("location", _STRING))
    if not location:
        raise InvalidMetadata("location", "must not be empty")
    return location


def _schemas(document: _Document, version: int) -> tuple[tuple[Schema, ...], Schema]:
    raws = document.required_from_v2("schemas", _ARRAY, version)
    if raws is None:
        # In version 1, before schemas had ids, there is only the current schema.
        if "schema" not in document.members:
            raise InvalidMetadata("schema", "missing")
        schema = _as_metadata("schema", parse_schema, document.members["schema"])
        return (schema,), schema
    schemas = tuple(_as_metadata("schemas", parse_schema, raw) for raw in raws)
    _check_unique("schemas", [schema.schema_id for schema in schemas])
    current_id = document.required("current-schema-id", _INT)
    for schema in schemas:
        if schema.schema_id == current_id:
            return schemas, schema
    raise InvalidMetadata("current-schema-id", f"no schema with id {current_id} in schemas")


def _specs(
    document: _Document, version: int, schema: Schema
) -> tuple[tuple[PartitionSpec, ...], int]:
    raws = document.required_from_v2("partition-specs", _ARRAY, version)
    specs: tuple[PartitionSpec, ...]
    if raws is None:
        if "partition-spec" not in document.members:
            raise InvalidMetadata("partition-spec", "missing")
        raw = document.members["partition-spec"]
        spec = _as_metadata("partition-spec", parse_partition_fields, raw, INITIAL_SPEC_ID)
        specs, default_id = (spec,), INITIAL_SPEC_ID
    else:
        specs = tuple(_as_metadata("partition-specs", parse_partition_spec, raw) for raw in raws)
        default_id = document.required("default-spec-id", _INT)
    _check_unique("partition-specs", [spec.spec_id for spec in specs])
    default = next((spec for spec in specs if spec.spec_id == default_id), None)
    if default is None:
        raise InvalidMetadata("default-spec-id", f"no spec with id {default_id}")
    _refuse("partition-specs", spec_problem(default, schema))
    return specs, default_id


def _sort_orders(
    document: _Document, version: int, schema: Schema
) -> tuple[tuple[SortOrder, ...], int]:
    raws = document.required_from_v2("sort-orders", _ARRAY, version)
    if raws is None:
        return (UNSORTED,), UNSORTED.order_id
    orders = tuple(_as_metadata("sort-orders", parse_sort_order, raw) for raw in raws)
    _check_unique("sort-orders", [order.order_id for order in orders])
    default_id = document.required("default-sort-order-id", _INT)
    default = next((order for order in orders if order.order_id == default_id), None)
    if default is None:
        raise InvalidMetadata("default-sort-order-id", f"no sort order with id {default_id}")
    _refuse("sort-orders", order_problem(default, schema))
    return orders, default_id


def _refuse(field: str, problem: str | None) -> None:
    if problem is not None:
        raise InvalidMetadata(field, problem)


def _check_unique(field: str, ids: list[int]) -> None:
    if len(set(ids)) != len(ids):
        raise InvalidMetadata(field, f"an id is used more than once: {ids}")


def _last_partition_id(document: _Document, version: int, specs: tuple[PartitionSpec, ...]) -> int:
    value = document.required_from_v2("last-partition-id", _INT, version)
    return max(spec.last_assigned_field_id for spec in specs) if value is None else value


def _current_snapshot_id(document: _Document, snapshots: SnapshotList) -> int | None:
    """Return the id, or None for -1, which versions 1 and 2 write without a current snapshot."""
    current = document.optional("current-snapshot-id", _LONG)
    if current is None or current in snapshots:
        return current
    if current < 0:
        return None
    raise InvalidMetadata("current-snapshot-id", f"no snapshot with id {current} in snapshots")


def _refs(document: _Document, current_snapshot_id: int | None) -> dict[str, SnapshotRef]:
    members = {}
    if "refs" in document.members:
        members = raw_json.json_object(document.members["refs"], "refs")
    refs = {name: parse_ref(raw, f"refs.{name}") for name, raw in members.items()}
    # There is always a main branch at the current snapshot (spec, "Table Metadata Fields").
    if current_snapshot_id is not None and MAIN_BRANCH not in refs:
        refs[MAIN_BRANCH] = new_ref(current_snapshot_id, BRANCH)
    return refs


def _check_snapshots(metadata: TableMetadata) -> None:
    last = metadata.last_sequence_number
    for snapshot in metadata.snapshots.bare_items():
        if snapshot.sequence_number > last:
            raise InvalidMetadata(
                "last-sequence-number",
                f"{last} is below the sequence number {snapshot.sequence_number} "
                f"of snapshot {snapshot.snapshot_id}",
            )
    for name, ref in metadata.refs.items():
        if ref.snapshot_id not in metadata.snapshots:
            raise InvalidMetadata(f"refs.{name}", f"no snapshot with id {ref.snapshot_id}")
    main = metadata.ref(MAIN_BRANCH)
    if main is None:
        return
    if not main.is_branch:
        raise InvalidMetadata(f"refs.{MAIN_BRANCH}", "must be a branch")
    if main.snapshot_id != metadata.current_snapshot_id:
        raise InvalidMetadata(
            "current-snapshot-id",
            f"{metadata.current_snapshot_id} does not match the main branch at {main.snapshot_id}",
        )


def _check_logs(metadata: TableMetadata) -> None:
    """Check that both logs are sorted, within a minute of clock skew, and end in time."""
    _check_log(
        "snapshot-log", metadata, [e.timestamp_ms for e in metadata.snapshot_log.bare_items()]
    )
    _check_log(
        "metadata-log", metadata, [e.timestamp_ms for e in metadata.metadata_log.bare_items()]
    )


def _check_log(field: str, metadata: TableMetadata, timestamps_ms: list[int]) -> None:
    previous: int | None = None
    for timestamp_ms in timestamps_ms:
        if previous is not None and timestamp_ms - previous < -ONE_MINUTE_MS:
            raise InvalidMetadata(field, "entries are not in the order of their timestamps")
        previous = timestamp_ms
    if previous is not None and metadata.last_updated_ms - previous < -ONE_MINUTE_MS:
        raise InvalidMetadata(
            "last-updated-ms",
            f"{metadata.last_updated_ms} is before the last entry of {field} at {previous}",
        )


_OLD_FIELDS = {"schema", "partition-spec"}
"""Fields of format version 1 that newer fields replace."""
KNOWN_FIELDS = _OLD_FIELDS | {
    name.replace("_", "-") for name in TableMetadata.__struct_fields__ if name != "extra"
}

_NO_CURRENT_SNAPSHOT = -1
_MIN_NULL_CURRENT_SNAPSHOT_VERSION = 3

_Piece: TypeAlias = "bytes | tuple[bytes, ...] | SegmentedList[Any]"
"""JSON between the lists, the JSON of the schemas, or a long list."""


def encode_table_metadata(metadata: TableMetadata) -> list[bytes]:
    """Return the whole document in chunks."""
    return _plain(_pieces(metadata, metadata.snapshots))


def encode_refs_only(metadata: TableMetadata) -> list[bytes]:
    """Return the document with only the snapshots that a ref names, and with complete logs.

    This is for `snapshots=refs`, as Java's `suppressHistoricalSnapshots`.
    """
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    return _plain(_pieces(metadata, metadata.snapshots.only(named)))


def encode_gzip(metadata: TableMetadata) -> list[bytes]:
    """Return the whole document as one gzip member, built from cached compressed segments."""
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
    """Compress schemas. Wide tables have megabytes of them, and few commits change them."""
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
    """Return the members before the schemas."""
    members: dict[str, object] = {"format-version": metadata.format_version}
    if metadata.table_uuid is not None:
        members["table-uuid"] = metadata.table_uuid
    members["location"] = metadata.location
    if metadata.format_version > 1:
        members["last-sequence-number"] = metadata.last_sequence_number
    members["last-updated-ms"] = metadata.last_updated_ms
    members["last-column-id"] = metadata.last_column_id
    if metadata.format_version == 1:
        # For readers that are older than `schemas`.
        members["schema"] = Raw(metadata.current_schema.raw)
    members["current-schema-id"] = metadata.current_schema_id
    return _members(members)


def _settings(metadata: TableMetadata) -> bytes:
    """Return the members between the schemas and the snapshots."""
    version = metadata.format_version
    members: dict[str, object] = {}
    if version == 1:
        # For readers that are older than `partition-specs`.
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
    """Return the members of a JSON object without its braces."""
    return msgspec.json.encode(members)[1:-1]
