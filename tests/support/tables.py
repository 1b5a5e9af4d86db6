"""Builds small table metadata, snapshots and updates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from frazil.format.metadata.table_builder import apply_update, empty_state, new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_metadata_json import encode_table_metadata, parse_table_metadata
from frazil.format.metadata.table_state import TableState, build
from frazil.wire.rest_updates import TableUpdate

NOW_MS = 1_700_000_000_000
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
LOCATION = "s3://bucket/warehouse/db/events"

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
        {"id": 3, "name": "note", "required": False, "type": "string", "doc": "free text"},
    ],
}
WIDER_SCHEMA: dict[str, Any] = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"id": 4, "name": "size", "required": False, "type": "int"}],
}
DAY_SPEC: dict[str, Any] = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "day_part", "transform": "identity"}],
}
ID_ORDER: dict[str, Any] = {
    "order-id": 1,
    "fields": [
        {
            "transform": "identity",
            "source-id": 1,
            "direction": "asc",
            "null-order": "nulls-first",
        }
    ],
}

_UPDATE: msgspec.json.Decoder[TableUpdate] = msgspec.json.Decoder(TableUpdate)


def table(version: int = 2, **properties: str) -> TableMetadata:
    """Return a new, empty, partitioned and sorted table."""
    return new_table(
        schema=json.dumps(SCHEMA).encode(),
        spec=json.dumps(DAY_SPEC).encode(),
        order=json.dumps(ID_ORDER).encode(),
        location=LOCATION,
        properties={"format-version": str(version)} | properties,
        uuid=UUID,
        now_ms=NOW_MS,
    )


def update(action: str, **fields: Any) -> TableUpdate:
    """Return an update as decoded from a request; `_` in a field's name stands for `-`."""
    members = {name.replace("_", "-"): value for name, value in fields.items()}
    return _UPDATE.decode(json.dumps({"action": action} | members))


def apply_updates(
    base: TableMetadata | None, updates: Sequence[TableUpdate], *, now_ms: int
) -> TableMetadata:
    """Return the metadata after the updates of a request. Without a base they create the table."""
    state = (
        empty_state(updates, now_ms=now_ms) if base is None else TableState.of(base, now_ms=now_ms)
    )
    for each in updates:
        apply_update(state, each)
    return build(state)


def apply(base: TableMetadata, *updates: TableUpdate, now_ms: int | None = None) -> TableMetadata:
    return apply_updates(base, updates, now_ms=base.last_updated_ms if now_ms is None else now_ms)


def snapshot(
    snapshot_id: int, parent: int | None = None, *, sequence_number: int | None = None, **more: Any
) -> dict[str, Any]:
    """Return a snapshot as JSON; sequence number and time derive from the id by default."""
    document: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": snapshot_id if sequence_number is None else sequence_number,
        "timestamp-ms": NOW_MS + snapshot_id,
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", "added-data-files": "1"},
        "schema-id": 0,
    }
    if parent is not None:
        document["parent-snapshot-id"] = parent
    return document | {name.replace("_", "-"): value for name, value in more.items()}


def commit(base: TableMetadata, document: dict[str, Any], branch: str = "main") -> TableMetadata:
    """Apply the updates of a classic append: add a snapshot and set the branch to it."""
    return apply(
        base,
        update("add-snapshot", snapshot=document),
        set_ref(document["snapshot-id"], branch),
        now_ms=document["timestamp-ms"],
    )


def set_ref(snapshot_id: int, name: str = "main", kind: str = "branch", **more: Any) -> TableUpdate:
    return update("set-snapshot-ref", ref_name=name, type=kind, snapshot_id=snapshot_id, **more)


def history(length: int, version: int = 2) -> TableMetadata:
    """Return a table with snapshots 1, 2, ... on main, each the parent of the next."""
    metadata = table(version)
    for snapshot_id in range(1, length + 1):
        metadata = commit(metadata, versioned(snapshot_id, snapshot_id - 1 or None, version))
    return metadata


def versioned(snapshot_id: int, parent: int | None, version: int) -> dict[str, Any]:
    """Return a snapshot for the format version; in version 3 each has ten rows."""
    if version == 1:
        return snapshot(snapshot_id, parent, sequence_number=0)
    if version == 2:
        return snapshot(snapshot_id, parent)
    return snapshot(snapshot_id, parent, first_row_id=10 * (snapshot_id - 1), added_rows=10)


def document(metadata: TableMetadata) -> dict[str, Any]:
    """Encode the table and decode the result as JSON."""
    decoded: dict[str, Any] = json.loads(b"".join(encode_table_metadata(metadata)))
    return decoded


def parse(value: Any) -> TableMetadata:
    return parse_table_metadata(json.dumps(value).encode())


def log_ids(metadata: TableMetadata) -> list[int]:
    return [entry.snapshot_id for entry in metadata.snapshot_log]
