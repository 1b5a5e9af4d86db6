"""Finds snapshots of a table by time, and the schemas that they were written with."""

from __future__ import annotations

from datetime import UTC, datetime

from frazil.client.declare.client_table import Table
from frazil.values.types import StructType
from frazil.wire.errors import NotFound


def snapshot_at(table: Table, timestamp_ms: int) -> int:
    """Return the snapshot that was main's head then: the last of the log at or before that time."""
    snapshot_id: int | None = None
    for entry in table.metadata.get("snapshot-log") or []:
        if entry["timestamp-ms"] <= timestamp_ms:
            snapshot_id = int(entry["snapshot-id"])
    if snapshot_id is None:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat()
        raise NotFound(f"{table} had no snapshot at {time}")
    return snapshot_id


def schema_of(table: Table, snapshot_id: int) -> StructType:
    """Return a snapshot's schema; the table's if an old writer did not name it."""
    schema_id = table.snapshot(snapshot_id).schema_id
    known = {schema.get("schema-id") for schema in table.metadata["schemas"]}
    return table.schema_by_id(schema_id) if schema_id in known else table.schema  # type: ignore[arg-type]
