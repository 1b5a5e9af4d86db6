"""What is to be scanned: a request held against the table's metadata.

A point-in-time scan sees the live files of one snapshot. An incremental one sees the data files
that the append snapshots between two have added, as Java's BaseIncrementalAppendScan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frazil.format.metadata.schema import Schema
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.filters import BoundFilter, bound_filter, every_row
from frazil.wire.errors import BadRequest
from frazil.wire.scan_planning import PlanTableScanRequest, check_plan_request

_APPEND: Final = "append"


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of one table at one moment of its history; what it finds never changes."""

    metadata: TableMetadata
    snapshot: Snapshot | None
    """None where the table has no snapshot yet: there is nothing to find."""
    where: BoundFilter
    schema: Schema
    """What the filter is bound to: the table's current schema, or the snapshot's."""
    appended: tuple[Snapshot, ...] | None = None
    """The append snapshots of an incremental scan, newest first; None where it scans one."""
    stats_fields: frozenset[int] = frozenset()
    """Columns whose statistics are wanted in the answer."""
    min_rows: int | None = None
    sequence_numbers: bool = False
    """Whether each data file of the answer is to carry its data sequence number."""


def resolve_scan(
    metadata: TableMetadata, request: PlanTableScanRequest, *, sequence_numbers: bool = False
) -> Scan:
    """BadRequest where the request does not fit the table."""
    check_plan_request(request)
    appended: tuple[Snapshot, ...] | None = None
    snapshot: Snapshot | None
    if request.is_incremental:
        snapshot = _known(metadata, request.end_snapshot_id, "end-snapshot-id")
        appended = _appended(metadata, request.start_snapshot_id, snapshot)
    elif request.snapshot_id is not None:
        snapshot = _known(metadata, request.snapshot_id, "snapshot-id")
    else:
        snapshot = metadata.current_snapshot
    schema = metadata.current_schema
    if request.use_snapshot_schema and snapshot is not None:
        schema = _schema_of(metadata, snapshot)
    case_sensitive = request.is_case_sensitive
    _check_selected(request, metadata, schema)
    return Scan(
        metadata=metadata,
        snapshot=snapshot,
        where=_filter(request, metadata, schema),
        schema=schema,
        appended=appended,
        stats_fields=_check_columns(request.stats_fields, schema, case_sensitive, "stats-fields"),
        min_rows=request.min_rows_requested,
        sequence_numbers=sequence_numbers,
    )


def _filter(request: PlanTableScanRequest, metadata: TableMetadata, schema: Schema) -> BoundFilter:
    if request.filter is None:
        return every_row(metadata)
    return bound_filter(
        request.filter,
        metadata,
        case_sensitive=request.is_case_sensitive,
        place="filter",
        schema=schema,
    )


def _known(metadata: TableMetadata, snapshot_id: int | None, name: str) -> Snapshot:
    found = None if snapshot_id is None else metadata.snapshot(snapshot_id)
    if found is None:
        raise BadRequest(f"{name}: the table has no snapshot {snapshot_id}; it may have expired")
    return found


def _schema_of(metadata: TableMetadata, snapshot: Snapshot) -> Schema:
    """The schema that a snapshot was written with; snapshots of old writers do not name it."""
    found = None if snapshot.schema_id is None else metadata.schema(snapshot.schema_id)
    return metadata.current_schema if found is None else found


def _appended(metadata: TableMetadata, start_id: int | None, end: Snapshot) -> tuple[Snapshot, ...]:
    """The append snapshots after the start, which must be an ancestor of the end."""
    found: list[Snapshot] = []
    oldest = end
    for snapshot in metadata.ancestors(end.snapshot_id):
        if snapshot.snapshot_id == start_id:
            return tuple(found)
        if snapshot.operation == _APPEND:
            found.append(snapshot)
        oldest = snapshot
    # The start itself may have expired: then it is the parent of the oldest that is known.
    if start_id is None or oldest.parent_snapshot_id == start_id:
        return tuple(found)
    raise BadRequest(
        f"start-snapshot-id: {start_id} is not an ancestor of end-snapshot-id {end.snapshot_id}"
    )


def _check_selected(request: PlanTableScanRequest, metadata: TableMetadata, schema: Schema) -> None:
    """Refuses a column that the table has never had.

    Which columns are read changes nothing about which files are; clients that travel in time name
    them by the snapshot's schema whatever schema they ask for.
    """
    case_sensitive = request.is_case_sensitive
    for index, name in enumerate(request.select or ()):
        known = any(
            one.find_by_name(name, case_sensitive) is not None
            for one in (schema, *metadata.schemas)
        )
        if not known and not name.startswith("_"):
            raise BadRequest(f"select[{index}]: the table has no column {name!r}")


def _check_columns(
    names: tuple[str, ...] | None, schema: Schema, case_sensitive: bool, place: str
) -> frozenset[int]:
    """The ids of named columns. Metadata columns, which no schema has, are the reader's affair."""
    ids: set[int] = set()
    for index, name in enumerate(names or ()):
        found = schema.find_by_name(name, case_sensitive)
        if found is not None:
            ids.add(found.field_id)
        elif not name.startswith("_"):
            raise BadRequest(f"{place}[{index}]: the table has no column {name!r}")
    return frozenset(ids)
