"""Resolves the request for a scan with the metadata of its table.

A scan of one snapshot reads the live files of that snapshot. An incremental scan reads the data
files that the append snapshots between two snapshots added, as Java's BaseIncrementalAppendScan
does.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.format.metadata.schema import Schema
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.filters import BoundFilter, bound_filter, every_row
from frazil.read.history import APPEND
from frazil.wire.errors import BadRequest
from frazil.wire.near_names import name_hint
from frazil.wire.scan_planning import PlanTableScanRequest, check_plan_request


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan of one table at one snapshot. Its result never changes."""

    metadata: TableMetadata
    snapshot: Snapshot | None
    """None if the table has no snapshot yet."""
    where: BoundFilter
    schema: Schema
    """The schema of the filter: the current one of the table, or that of the snapshot."""
    appended: tuple[Snapshot, ...] | None = None
    """The append snapshots of an incremental scan, newest first. None for a scan of one
    snapshot."""
    stats_fields: frozenset[int] = frozenset()
    """The columns whose statistics the answer contains."""
    min_rows: int | None = None
    sequence_numbers: bool = False
    """Whether the answer contains the data sequence number of each file."""
    all_deletes: bool = False
    """Whether the answer also contains equality deletes whose values cannot occur in a file, or do
    not match the filter."""

    def read_snapshot_ids(self) -> tuple[int, ...]:
        """Return the snapshots whose manifest lists the scan reads."""
        if self.appended is not None:
            return tuple(snapshot.snapshot_id for snapshot in self.appended)
        return () if self.snapshot is None else (self.snapshot.snapshot_id,)


def resolve_scan(
    metadata: TableMetadata,
    request: PlanTableScanRequest,
    *,
    sequence_numbers: bool = False,
    all_deletes: bool = False,
) -> Scan:
    """Return the scan of a request. Raise BadRequest if it does not fit the table."""
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
    _check_selected(request, metadata, schema)
    return Scan(
        metadata=metadata,
        snapshot=snapshot,
        where=_filter(request, metadata, schema),
        schema=schema,
        appended=appended,
        stats_fields=_check_columns(
            request.stats_fields, schema, request.is_case_sensitive, "stats-fields"
        ),
        min_rows=request.min_rows_requested,
        sequence_numbers=sequence_numbers,
        all_deletes=all_deletes,
    )


def _filter(request: PlanTableScanRequest, metadata: TableMetadata, schema: Schema) -> BoundFilter:
    if request.filter is None:
        return every_row(metadata)
    return bound_filter(
        request.filter,
        metadata,
        case_sensitive=request.is_case_sensitive,
        json_path="filter",
        schema=schema,
    )


def _known(metadata: TableMetadata, snapshot_id: int | None, name: str) -> Snapshot:
    snapshot = None if snapshot_id is None else metadata.snapshot(snapshot_id)
    if snapshot is None:
        raise BadRequest(f"{name}: the table has no snapshot {snapshot_id}; it may have expired")
    return snapshot


def _schema_of(metadata: TableMetadata, snapshot: Snapshot) -> Schema:
    """Return the schema of a snapshot. Snapshots of old writers do not name one."""
    schema = None if snapshot.schema_id is None else metadata.schema(snapshot.schema_id)
    return metadata.current_schema if schema is None else schema


def _appended(metadata: TableMetadata, start_id: int | None, end: Snapshot) -> tuple[Snapshot, ...]:
    """Return the append snapshots after the start, which must be an ancestor of the end."""
    appended: list[Snapshot] = []
    oldest = end
    for snapshot in metadata.ancestors(end.snapshot_id):
        if snapshot.snapshot_id == start_id:
            return tuple(appended)
        if snapshot.operation == APPEND:
            appended.append(snapshot)
        oldest = snapshot
    # If the start has expired, it is the parent of the oldest known snapshot.
    if start_id is None or oldest.parent_snapshot_id == start_id:
        return tuple(appended)
    raise BadRequest(
        f"start-snapshot-id: {start_id} is not an ancestor of end-snapshot-id {end.snapshot_id}"
    )


def _check_selected(request: PlanTableScanRequest, metadata: TableMetadata, schema: Schema) -> None:
    """Refuse a column that the table never had.

    The columns do not change which files are read. In time travel clients use the names of the
    snapshot's schema, whatever schema they request.
    """
    for index, name in enumerate(request.select or ()):
        known = any(
            candidate.find_by_name(name, request.is_case_sensitive) is not None
            for candidate in (schema, *metadata.schemas)
        )
        if not known and not name.startswith("_"):
            hint = name_hint(name, schema.full_names.values(), "columns")
            raise BadRequest(f"select[{index}]: the table has no column {name!r}; {hint}")


def _check_columns(
    names: tuple[str, ...] | None, schema: Schema, case_sensitive: bool, json_path: str
) -> frozenset[int]:
    """Return the ids of columns. Metadata columns are not in the schema and are left to the
    reader."""
    ids: set[int] = set()
    for index, name in enumerate(names or ()):
        column = schema.find_by_name(name, case_sensitive)
        if column is not None:
            ids.add(column.field_id)
        elif not name.startswith("_"):
            hint = name_hint(name, schema.full_names.values(), "columns")
            raise BadRequest(f"{json_path}[{index}]: the table has no column {name!r}; {hint}")
    return frozenset(ids)
