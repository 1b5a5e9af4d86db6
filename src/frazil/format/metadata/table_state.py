"""The mutable state of table metadata while the updates of a request are applied.

It starts from existing metadata or empty. Each update changes it, and `build` returns the new
metadata. Mirrors Java's TableMetadata.Builder, but keeps only the facts that are needed later
instead of a list of changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from uuid import uuid4

from msgspec.structs import asdict

from frazil.format.metadata.partition_spec import (
    INITIAL_SPEC_ID,
    NO_FIELD_ID,
    PartitionSpec,
    spec_problem,
)
from frazil.format.metadata.schema import INITIAL_SCHEMA_ID, Schema
from frazil.format.metadata.snapshots import (
    MetadataLog,
    SnapshotList,
    SnapshotLog,
    SnapshotLogEntry,
    SnapshotRef,
)
from frazil.format.metadata.sort_order import UNSORTED_ORDER_ID, SortOrder, order_problem
from frazil.format.metadata.table_metadata import (
    INITIAL_ROW_ID,
    INITIAL_SEQUENCE_NUMBER,
    ONE_MINUTE_MS,
    EncryptedKey,
    PartitionStatisticsFile,
    StatisticsFile,
    TableMetadata,
)
from frazil.wire.errors import BadRequest, CommitFailed


@dataclass(slots=True, kw_only=True)
class TableState:
    """Table metadata while updates are applied to it."""

    base: TableMetadata | None
    now_ms: int
    """The time of this change. It is not before the last update or log entry of the base."""

    format_version: int
    table_uuid: str | None = None
    location: str | None = None
    last_sequence_number: int = INITIAL_SEQUENCE_NUMBER
    last_column_id: int = 0
    schemas: tuple[Schema, ...] = ()
    current_schema_id: int = INITIAL_SCHEMA_ID
    partition_specs: tuple[PartitionSpec, ...] = ()
    default_spec_id: int = INITIAL_SPEC_ID
    last_partition_id: int = NO_FIELD_ID
    sort_orders: tuple[SortOrder, ...] = ()
    default_sort_order_id: int = UNSORTED_ORDER_ID
    properties: dict[str, str] = field(default_factory=dict)
    current_snapshot_id: int | None = None
    snapshots: SnapshotList = field(default_factory=SnapshotList)
    refs: dict[str, SnapshotRef] = field(default_factory=dict)
    statistics: tuple[StatisticsFile, ...] = ()
    partition_statistics: tuple[PartitionStatisticsFile, ...] = ()
    encryption_keys: tuple[EncryptedKey, ...] = ()
    next_row_id: int = INITIAL_ROW_ID

    last_added_schema_id: int | None = None
    last_added_spec_id: int | None = None
    last_added_order_id: int | None = None
    added_snapshot_ids: set[int] = field(default_factory=set)
    log_entries: list[SnapshotLogEntry] = field(default_factory=list)
    """The entries that this request adds to the snapshot log, including intermediate snapshots."""
    snapshots_removed: bool = False
    removed_schema_ids: set[int] = field(default_factory=set)

    @classmethod
    def empty(cls, format_version: int, *, now_ms: int) -> TableState:
        return cls(base=None, now_ms=now_ms, format_version=format_version)

    @classmethod
    def of(cls, base: TableMetadata, *, now_ms: int) -> TableState:
        last = base.snapshot_log.last
        time_ms = max(now_ms, base.last_updated_ms, now_ms if last is None else last.timestamp_ms)
        return cls(
            base=base,
            now_ms=time_ms,
            **{
                **{name: getattr(base, name) for name in _COMMON_FIELDS},
                "properties": dict(base.properties),
                "refs": dict(base.refs),
            },
        )

    def schema(self, schema_id: int) -> Schema | None:
        return next((schema for schema in self.schemas if schema.schema_id == schema_id), None)

    def current_schema(self, why: str) -> Schema:
        """Return the current schema. A request that creates a table may not have added it yet."""
        schema = self.schema(self.current_schema_id)
        if schema is None:
            raise BadRequest(f"{why}: no current schema: send add-schema and set-current-schema")
        return schema


_COMMON_FIELDS = [
    own.name for own in fields(TableState) if own.name in TableMetadata.__struct_fields__
]


def build(state: TableState) -> TableMetadata:
    """Return the new metadata, or the base itself if the updates change nothing."""
    base = state.base
    _check_complete(state)
    _check_defaults(state)
    _check_removed_schemas(state)
    metadata = _metadata(state, _snapshot_log(state))
    return base if base is not None and _only_time_differs(base, metadata) else metadata


def interim(state: TableState) -> TableMetadata:
    """Return the metadata between two updates of a request, to build a snapshot on it.

    It is never written.
    """
    _check_complete(state)
    _check_defaults(state)
    return _metadata(state, SnapshotLog() if state.base is None else state.base.snapshot_log)


def _metadata(state: TableState, snapshot_log: SnapshotLog) -> TableMetadata:
    base, last = state.base, snapshot_log.last
    members = {name: getattr(state, name) for name in _COMMON_FIELDS}
    return TableMetadata(
        **{
            **members,
            "table_uuid": state.table_uuid or _uuid_of_new_table(state),
            "location": state.location or "",
            "last_updated_ms": max(
                state.now_ms, state.now_ms if last is None else last.timestamp_ms
            ),
            "snapshot_log": snapshot_log,
            "metadata_log": MetadataLog() if base is None else base.metadata_log,
            "extra": {} if base is None else base.extra,
        }
    )


def _uuid_of_new_table(state: TableState) -> str | None:
    """Return a UUID for a new table. An old v1 table gets one only when it is upgraded."""
    return str(uuid4()) if state.base is None or state.format_version > 1 else None


def _only_time_differs(base: TableMetadata, metadata: TableMetadata) -> bool:
    before, after = asdict(base), asdict(metadata)
    return all(
        value is after[name] or value == after[name]
        for name, value in before.items()
        if name != "last_updated_ms"
    )


def _check_complete(state: TableState) -> None:
    if state.base is not None:
        return
    missing = [
        action
        for action, value in (
            ("set-location", state.location),
            ("add-schema", state.schemas),
            ("add-spec", state.partition_specs),
            ("add-sort-order", state.sort_orders),
        )
        if not value
    ]
    if missing:
        raise BadRequest(f"Cannot create the table: updates lack {', '.join(missing)}")


def _check_defaults(state: TableState) -> None:
    """Check that the current schema, default spec and default sort order exist and fit together."""
    schema = state.current_schema("updates")
    spec = next((s for s in state.partition_specs if s.spec_id == state.default_spec_id), None)
    if spec is None:
        raise BadRequest(f"set-default-spec: no partition spec with id {state.default_spec_id}")
    order = next((o for o in state.sort_orders if o.order_id == state.default_sort_order_id), None)
    if order is None:
        raise BadRequest(
            f"set-default-sort-order: no sort order with id {state.default_sort_order_id}"
        )
    problem = spec_problem(spec, schema)
    if problem is None and order.fields:
        problem = order_problem(order, schema)
    if problem is not None:
        raise BadRequest(f"The default spec and sort order must fit the current schema: {problem}")


def _check_removed_schemas(state: TableState) -> None:
    """Refuse to remove a schema that a remaining snapshot was written with.

    In Java only the client checks this, on its own base. Another commit may have used the schema
    since then, and the client has to check again.
    """
    if not state.removed_schema_ids:
        return
    for snapshot in state.snapshots.bare_items():
        if snapshot.schema_id in state.removed_schema_ids:
            raise CommitFailed(
                f"Cannot remove schema {snapshot.schema_id}: "
                f"snapshot {snapshot.snapshot_id} was written with it"
            )


def _snapshot_log(state: TableState) -> SnapshotLog:
    """Return the snapshot log after this request, as Java's updateSnapshotLog does.

    Snapshots that were the head of main only inside this request are left out. If an entry's
    snapshot was removed, all earlier entries are removed too, because with a gap time travel would
    return the wrong snapshot.
    """
    log = SnapshotLog() if state.base is None else state.base.snapshot_log
    intermediate = {
        entry.snapshot_id
        for entry in state.log_entries
        if entry.snapshot_id in state.added_snapshot_ids
        and entry.snapshot_id != state.current_snapshot_id
    }
    added = state.log_entries
    if state.snapshots_removed:
        log, added = _after_last_gap(state, log)
    elif intermediate:
        log = _known_entries(state, log)
    kept = [entry for entry in added if entry.snapshot_id not in intermediate]
    _check_timestamps(state, log, kept)
    log = log.extend(kept)
    if state.snapshots_removed or intermediate:
        _check_last_entry(state, log)
    return log


def _after_last_gap(
    state: TableState, log: SnapshotLog
) -> tuple[SnapshotLog, list[SnapshotLogEntry]]:
    kept_ids = state.snapshots.ids()
    added = state.log_entries
    for position in range(len(added) - 1, -1, -1):
        if added[position].snapshot_id not in kept_ids:
            return SnapshotLog(), added[position + 1 :]
    last_gap = -1
    for position, entry in enumerate(log.bare_items()):
        if entry.snapshot_id not in kept_ids:
            last_gap = position
    return log.drop_first(last_gap + 1), added


def _known_entries(state: TableState, log: SnapshotLog) -> SnapshotLog:
    kept_ids = state.snapshots.ids()
    if all(entry.snapshot_id in kept_ids for entry in log.bare_items()):
        return log
    return SnapshotLog.of([entry for entry in log if entry.snapshot_id in kept_ids])


def _check_last_entry(state: TableState, log: SnapshotLog) -> None:
    last = log.last
    if last is None or state.current_snapshot_id is None:
        return
    if last.snapshot_id != state.current_snapshot_id:
        raise BadRequest(
            "Cannot set invalid snapshot log: latest entry is not the current snapshot"
        )


def _check_timestamps(state: TableState, log: SnapshotLog, added: list[SnapshotLogEntry]) -> None:
    """Refuse timestamps that are off by more than a minute.

    They would break the order of the log, or stop later writers with the right time.
    """
    last = log.last
    previous_ms = None if last is None else last.timestamp_ms
    for entry in added:
        what = f"snapshot.timestamp-ms: {entry.timestamp_ms} of snapshot {entry.snapshot_id} is"
        if previous_ms is not None and entry.timestamp_ms - previous_ms < -ONE_MINUTE_MS:
            raise BadRequest(
                f"{what} more than a minute before the last snapshot log entry at {previous_ms}"
            )
        if state.now_ms - entry.timestamp_ms < -ONE_MINUTE_MS:
            raise BadRequest(
                f"{what} more than a minute ahead of the catalog's clock at {state.now_ms}"
            )
        previous_ms = entry.timestamp_ms
