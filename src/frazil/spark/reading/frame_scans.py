"""Scans a table at one snapshot into a frame, and chooses the reader.

The snapshot is chosen first, so that each evaluation of the frame sees the same rows. Columns are
those of a schema and are found by field id, independent of the snapshot's own schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from frazil.client.declare.client_table import Table, schema_of, snapshot_at
from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED, MIN_FORMAT_VERSION, ROW_ID
from frazil.datafiles.reading.scan_tasks import ScanTask, task_of
from frazil.datafiles.reading.task_reader import check_metadata_columns, with_metadata
from frazil.spark.conditions.iceberg_filters import (
    names_in,
    renamed,
    spark_condition,
    top_field,
    without_transforms,
)
from frazil.spark.conditions.sql_conditions import filter_of
from frazil.spark.core.context import LOGGER, Context
from frazil.spark.core.name_matching import names_of, quoted
from frazil.spark.core.write_audit import audit_of
from frazil.spark.reading import jar_reader, own_reader
from frazil.spark.reading.jar_reader import Pinned
from frazil.spark.reading.own_reader import OwnScan
from frazil.spark.schema.frame_fitting import mapped
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.expressions import AlwaysTrue, Expression
from frazil.wire.file_actions import MAIN


@dataclass(frozen=True)
class _Scan:
    """A scan after all choices."""

    table: Table
    pinned: Pinned | None
    """None if there is no snapshot yet."""
    schema: StructType
    """The schema whose names filter and columns use."""
    columns: StructType
    """The columns of the schema that are read."""
    filter: Expression
    metadata_columns: tuple[str, ...]
    exact: bool = True

    @property
    def result(self) -> StructType:
        return with_metadata(self.columns, self.metadata_columns)


def scan(
    context: Context,
    table: Table,
    *,
    filter: Expression | None = None,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    from_snapshot_id: int | None = None,
    to_snapshot_id: int | None = None,
    metadata_columns: Sequence[str] = (),
    schema: StructType | None = None,
    exact: bool = True,
) -> DataFrame:
    """Return the rows of a snapshot that match the filter.

    With `exact=False` the filter only restricts what is read, and the result may have other rows.
    The default snapshot is main's head when the table was loaded. The default schema is that of a
    named snapshot, else the table's. With `from_snapshot_id` or `to_snapshot_id` the rows are those
    that append snapshots between the two have added.
    """
    pinned = _pinned(table, snapshot_id, from_snapshot_id, to_snapshot_id)
    if schema is None:
        schema = table.schema if snapshot_id is None else schema_of(table, snapshot_id)
    names = [field.name for field in schema.fields] if columns is None else columns
    _check_lineage(table, metadata_columns)
    return _read(
        context,
        _Scan(
            table,
            pinned,
            schema,
            _selected(context, table, schema, names),
            AlwaysTrue() if filter is None else filter,
            tuple(metadata_columns),
            exact,
        ),
    )


def scan_of(
    context: Context,
    table: Table,
    *,
    filter: str | Column | Expression | None = None,
    columns: Sequence[str] | None = None,
    snapshot: int | None = None,
    timestamp: datetime | int | str | None = None,
    ref: str | None = None,
    from_snapshot: int | None = None,
    to_snapshot: int | None = None,
    metadata_columns: Sequence[str] = (),
) -> DataFrame:
    """Return a scan by a snapshot, a time or a ref, with any kind of condition."""
    if all(value is None for value in (snapshot, timestamp, ref, from_snapshot, to_snapshot)):
        ref = audit_of(context.spark, table).branch_to_read(table)
    snapshot_id, schema = _at(context, table, snapshot, timestamp, ref)
    # Only Spark can evaluate texts and Columns; the filter restricts what is planned and read.
    condition = None if isinstance(filter, Expression) else filter
    frame = scan(
        context,
        table,
        filter=filter_of(context, table, filter, schema=schema).expression,
        # Only Spark knows which columns a condition uses; it does not read the others.
        columns=columns if condition is None else None,
        snapshot_id=snapshot_id,
        from_snapshot_id=from_snapshot,
        to_snapshot_id=to_snapshot,
        metadata_columns=metadata_columns,
        schema=schema,
    )
    if condition is None:
        return frame
    frame = frame.where(condition)
    if columns is None:
        return frame
    result = with_metadata(_selected(context, table, schema, columns), metadata_columns)
    return frame.select(*(F.col(quoted(field.name)) for field in result.fields))


def plan_tasks(
    context: Context, table: Table, filter: Expression | None, snapshot_id: int
) -> Mapping[str, ScanTask]:
    """Return the tasks of a scan by the path of the data file, with their sequence numbers.

    The tasks have the deletes of all rows of their files, because files are written again. The
    filter uses the names of the table's current schema.
    """
    plan = context.leased_plan(
        table,
        snapshot_id,
        lambda lease_id: table.plan(
            filter,
            snapshot=snapshot_id,
            use_snapshot_schema=False,
            sequence_numbers=True,
            all_deletes=filter is not None,
            lease_id=lease_id,
        ),
    )
    return {task.data_file.file_path: task_of(task) for task in plan.tasks}


def snapshot_of(
    context: Context,
    table: Table,
    snapshot: int | None = None,
    timestamp: datetime | int | str | None = None,
    ref: str | None = None,
) -> int | None:
    """Return the snapshot that was chosen; main's head, if there is one, if nothing was."""
    snapshot_id, _ = _at(context, table, snapshot, timestamp, ref)
    if snapshot_id is None:
        return table.head()
    return table.snapshot(snapshot_id).snapshot_id


# --- which snapshot -------------------------------------------------------------------------------


def _at(
    context: Context,
    table: Table,
    snapshot: int | None,
    timestamp: datetime | int | str | None,
    ref: str | None,
) -> tuple[int | None, StructType]:
    """Return the snapshot and the schema to read it with, like Java's `SnapshotUtil.schemaFor`.

    A branch is read with the table's schema; a tag, an id or a time with the snapshot's own.
    """
    if sum(value is not None for value in (snapshot, timestamp, ref)) > 1:
        raise BadRequest(f"{table}: give one of snapshot, timestamp and ref")
    if timestamp is not None:
        snapshot = snapshot_at(table, _milliseconds(context, timestamp))
    if ref is not None and ref != MAIN:
        branch_or_tag = table.refs.get(ref)
        if branch_or_tag is None:
            refs = ", ".join(sorted(table.refs)) or "none"
            raise NotFound(f"{table} has no branch or tag {ref}; its refs: {refs}")
        if branch_or_tag.type == "branch":
            return branch_or_tag.snapshot_id, table.schema
        snapshot = branch_or_tag.snapshot_id
    return (None, table.schema) if snapshot is None else (snapshot, schema_of(table, snapshot))


def _milliseconds(context: Context, timestamp: datetime | int | str) -> int:
    """Return the time in milliseconds; texts and local times are in the session's time zone."""
    if isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, datetime) and timestamp.tzinfo is not None:
        return int(timestamp.timestamp() * 1000)
    text = timestamp if isinstance(timestamp, str) else timestamp.isoformat()
    millis = F.unix_millis(F.try_to_timestamp(F.lit(text)))
    row = context.spark.range(1).select(millis).first()
    if row is None or row[0] is None:
        raise BadRequest(f"timestamp: {text!r} is not a timestamp like 2026-05-01 12:00:00")
    return int(row[0])


def _pinned(
    table: Table, snapshot_id: int | None, from_id: int | None, to_id: int | None
) -> Pinned | None:
    incremental = from_id is not None or to_id is not None
    if incremental and snapshot_id is not None:
        raise BadRequest(f"{table}: give a snapshot, or from_snapshot and to_snapshot")
    for known_id in (snapshot_id, to_id):
        # The snapshot before the first one that is read may have expired.
        if known_id is not None and known_id != from_id:
            table.snapshot(known_id)
    last_id = to_id if incremental and to_id is not None else snapshot_id
    last_id = table.head() if last_id is None else last_id
    return None if last_id is None else Pinned(last_id, from_id, incremental)


# --- which columns --------------------------------------------------------------------------------


def _selected(
    context: Context, table: Table, schema: StructType, names: Sequence[str]
) -> StructType:
    """Return the named columns; names match as the session compares them."""
    return StructType(names_of(context.spark).chosen(schema, names, table))


def _check_lineage(table: Table, metadata_columns: Sequence[str]) -> None:
    check_metadata_columns(metadata_columns)
    for name in metadata_columns:
        if name in (ROW_ID, LAST_UPDATED) and table.format_version < MIN_FORMAT_VERSION:
            raise BadRequest(
                f"{table}: {name} exists since format version {MIN_FORMAT_VERSION}, and the table "
                f"has version {table.format_version}"
            )
    taken = {field.name for field in table.schema.fields} & set(metadata_columns)
    if taken:
        raise BadRequest(f"{table}: its own column {min(taken)} hides the metadata column")


# --- reading --------------------------------------------------------------------------------------


def _read(context: Context, scan: _Scan) -> DataFrame:
    if scan.pinned is None or scan.pinned.is_empty:
        return own_reader.empty(context, scan.result)
    pinned, reason = scan.pinned, ""
    if pinned.is_incremental and pinned.from_snapshot_id is None:
        reason = "Iceberg's runtime reads appended rows only after a given snapshot"
    schema = scan.table.schema
    if not pinned.is_incremental:
        schema = schema_of(scan.table, pinned.snapshot_id)
    own_reason = jar_reader.why_own(context, scan.table, schema, scan.schema, reason)
    if own_reason is not None:
        LOGGER.debug("%s: read by Frazil's own reader: %s", scan.table, own_reason)
        return _through_own(context, scan, pinned)
    context.leases.hold(context.client.leases, context.spark, scan.table, pinned.snapshot_id)
    frame = jar_reader.read(context, scan.table, pinned, schema, scan.metadata_columns)
    return _filtered(mapped(frame, schema, scan.schema), scan, scan.schema)


def _filtered(frame: DataFrame, scan: _Scan, columns: StructType) -> DataFrame:
    """Apply the scan's filter to a frame with these columns, and select the result's columns.

    The columns include all that the filter uses.
    """
    # If the result may have other rows, transforms do not pay: Spark cannot push them down.
    filter = scan.filter if scan.exact else without_transforms(scan.filter)
    if not isinstance(filter, AlwaysTrue):
        frame = frame.where(spark_condition(filter, scan.schema))
    if columns == scan.columns:
        return frame
    return frame.select(*(quoted(field.name) for field in scan.result.fields))


def _through_own(context: Context, scan: _Scan, pinned: Pinned) -> DataFrame:
    tasks = _planned(context, scan, pinned)
    if not scan.exact or all(task.residual is True for task in tasks):
        return own_reader.read(
            context, OwnScan(scan.table, tasks, scan.columns, scan.metadata_columns)
        )
    needed = _needed(scan)
    frame = own_reader.read(context, OwnScan(scan.table, tasks, needed, scan.metadata_columns))
    return _filtered(frame, scan, needed)


def _needed(scan: _Scan) -> StructType:
    """Return the columns of the result, and those that the filter uses."""
    ids = {field.field_id for field in scan.columns.fields}
    ids |= {top_field(name, scan.schema).field_id for name in names_in(scan.filter)}
    return StructType(tuple(field for field in scan.schema.fields if field.field_id in ids))


def _planned(context: Context, scan: _Scan, pinned: Pinned) -> list[ScanTask]:
    filter, use_snapshot_schema = _planning_filter(scan, pinned)
    lineage = LAST_UPDATED in scan.metadata_columns
    if pinned.is_incremental:
        plan = scan.table.plan(
            filter,
            from_snapshot=pinned.from_snapshot_id,
            to_snapshot=pinned.snapshot_id,
            use_snapshot_schema=use_snapshot_schema,
            sequence_numbers=lineage,
        )
    else:
        plan = context.leased_plan(
            scan.table,
            pinned.snapshot_id,
            lambda lease_id: scan.table.plan(
                filter,
                snapshot=pinned.snapshot_id,
                use_snapshot_schema=use_snapshot_schema,
                sequence_numbers=lineage,
                lease_id=lease_id,
            ),
        )
    tasks = [task_of(task) for task in plan.tasks]
    if filter is None and not isinstance(scan.filter, AlwaysTrue):
        # The catalog did not get the filter, so that it applies to every row.
        return [replace(task, residual=scan.filter.to_json()) for task in tasks]
    return tasks


def _planning_filter(scan: _Scan, pinned: Pinned) -> tuple[Expression | None, bool]:
    """Return the filter in names that the catalog knows, and whether they are the snapshot's."""
    if isinstance(scan.filter, AlwaysTrue):
        return None, False
    current = renamed(scan.filter, scan.schema, scan.table.schema)
    if current is not None or pinned.is_incremental:
        return current, False
    # The filter uses a column that was dropped since.
    return renamed(scan.filter, scan.schema, schema_of(scan.table, pinned.snapshot_id)), True
