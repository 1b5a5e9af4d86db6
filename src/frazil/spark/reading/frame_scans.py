"""Scans: the rows of a table at one moment as a frame, whoever reads them.

The snapshot is chosen first and stays: a frame that is evaluated twice sees the same rows. Columns
are those of a schema, found by field id, whatever the snapshot's own were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from frazil.client.declare.client_table import Table
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
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import quoted
from frazil.spark.core.table_history import schema_of, snapshot_at
from frazil.spark.reading import jar_reader, own_reader
from frazil.spark.reading.jar_reader import Pinned
from frazil.spark.reading.own_reader import OwnScan
from frazil.spark.schema.frame_fitting import mapped
from frazil.spark.writing.commit_options import audited_branch
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.expressions import AlwaysTrue, Expression
from frazil.wire.file_actions import MAIN


@dataclass(frozen=True)
class _Scan:
    """A scan whose every choice has been made."""

    table: Table
    pinned: Pinned | None
    """None where there is no snapshot yet."""
    schema: StructType
    """What filter and columns are named by."""
    columns: StructType
    """Those of the schema that are wanted."""
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
    """The rows of a snapshot that match the filter; with `exact=False` the filter only chooses
    what is read, and others may be among them.

    Without a snapshot it is main's head when the table was loaded. Without a schema the columns are
    the snapshot's own where one is named, else the table's. With `from_snapshot_id` or
    `to_snapshot_id` the rows are those that append snapshots between the two have added.
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
    """As a user asks for it: by a snapshot, a moment or a ref, with any kind of condition."""
    if all(one is None for one in (snapshot, timestamp, ref, from_snapshot, to_snapshot)):
        ref = audited_branch(context, table)
    snapshot_id, schema = _at(context, table, snapshot, timestamp, ref)
    expression, condition = _condition_of(context, schema, filter)
    frame = scan(
        context,
        table,
        filter=expression,
        # What a condition looks at is only known to Spark, which leaves the rest out again.
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
    wanted = with_metadata(_selected(context, table, schema, columns), metadata_columns)
    return frame.select(*(F.col(quoted(field.name)) for field in wanted.fields))


def _condition_of(
    context: Context, schema: StructType, filter: str | Column | Expression | None
) -> tuple[Expression | None, Column | None]:
    """What can be planned with, and what Spark must look at itself."""
    from frazil.spark.conditions.sql_conditions import convert, is_case_sensitive

    if filter is None or isinstance(filter, Expression):
        return filter, None
    if not isinstance(filter, str):
        return None, filter
    found = convert(
        filter,
        schema,
        case_sensitive=is_case_sensitive(context),
        time_zone=context.time_zone,
    )
    return found.expression, F.expr(filter)


def plan_tasks(
    table: Table, filter: Expression | None = None, snapshot_id: int | None = None
) -> Mapping[str, ScanTask]:
    """The tasks of a scan by the path of the data file, with their sequence numbers.

    The filter is in the names of the table's current schema.
    """
    plan = table.plan(
        filter, snapshot=snapshot_id, use_snapshot_schema=False, sequence_numbers=True
    )
    return {task.data_file.file_path: task_of(task) for task in plan.tasks}


# --- which snapshot -------------------------------------------------------------------------------


def _at(
    context: Context,
    table: Table,
    snapshot: int | None,
    timestamp: datetime | int | str | None,
    ref: str | None,
) -> tuple[int | None, StructType]:
    """As Java's `SnapshotUtil.schemaFor`: a branch is read with the table's schema, a tag, an id
    or a moment with the snapshot's own."""
    if sum(given is not None for given in (snapshot, timestamp, ref)) > 1:
        raise BadRequest(f"{table}: give one of snapshot, timestamp and ref")
    if timestamp is not None:
        snapshot = snapshot_at(table, _milliseconds(context, timestamp))
    if ref is not None and ref != MAIN:
        known = table.refs.get(ref)
        if known is None:
            refs = ", ".join(sorted(table.refs)) or "none"
            raise NotFound(f"{table} has no branch or tag {ref}; its refs: {refs}")
        if known.type == "branch":
            return known.snapshot_id, table.schema
        snapshot = known.snapshot_id
    return (None, table.schema) if snapshot is None else (snapshot, schema_of(table, snapshot))


def _milliseconds(context: Context, timestamp: datetime | int | str) -> int:
    """Texts and local times are of the session's time zone, as in SQL."""
    if isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, datetime) and timestamp.tzinfo is not None:
        return int(timestamp.timestamp() * 1000)
    text = timestamp if isinstance(timestamp, str) else timestamp.isoformat()
    moment = F.unix_millis(F.try_to_timestamp(F.lit(text)))
    found = context.spark.range(1).select(moment).first()
    if found is None or found[0] is None:
        raise BadRequest(f"timestamp: {text!r} is not a timestamp like 2026-05-01 12:00:00")
    return int(found[0])


def _pinned(
    table: Table, snapshot_id: int | None, from_id: int | None, to_id: int | None
) -> Pinned | None:
    incremental = from_id is not None or to_id is not None
    if incremental and snapshot_id is not None:
        raise BadRequest(f"{table}: give a snapshot, or from_snapshot and to_snapshot")
    for given in (snapshot_id, from_id, to_id):
        if given is not None and given != from_id:
            table.snapshot(given)
    found = to_id if incremental and to_id is not None else snapshot_id
    found = table.head() if found is None else found
    return None if found is None else Pinned(found, from_id, incremental)


# --- which columns --------------------------------------------------------------------------------


def _selected(
    context: Context, table: Table, schema: StructType, names: Sequence[str]
) -> StructType:
    """As Spark finds columns: in any case, unless the session says otherwise."""
    by_name = {field.name: field for field in schema.fields}
    if context.spark.conf.get("spark.sql.caseSensitive") != "true":
        by_name = {field.name.lower(): field for field in schema.fields} | by_name
    found = []
    for name in names:
        field = by_name.get(name) or by_name.get(name.lower())
        if field is None:
            known = ", ".join(field.name for field in schema.fields)
            raise BadRequest(f"{table} has no column {name}; it has {known}")
        found.append(field)
    return StructType(tuple(found))


def _check_lineage(table: Table, metadata_columns: Sequence[str]) -> None:
    check_metadata_columns(metadata_columns)
    for name in metadata_columns:
        if name in (ROW_ID, LAST_UPDATED) and table.format_version < MIN_FORMAT_VERSION:
            raise BadRequest(
                f"{table}: {name} is there from format version {MIN_FORMAT_VERSION} on, and the "
                f"table has {table.format_version}"
            )
    taken = {field.name for field in table.schema.fields} & set(metadata_columns)
    if taken:
        raise BadRequest(f"{table}: the table's own column {sorted(taken)[0]} hides that of a scan")


# --- reading --------------------------------------------------------------------------------------


def _read(context: Context, scan: _Scan) -> DataFrame:
    if scan.pinned is None or scan.pinned.is_empty:
        return own_reader.empty(context, scan.result)
    if context.settings.reader != "own":
        reason = _why_not_jar(context, scan, scan.pinned)
        if reason is None:
            return _through_jar(context, scan, scan.pinned)
        if context.settings.reader == "jar":
            jar_reader.check_forced(reason, scan.table)
        context.log.debug("%s: our own reader: %s", scan.table, reason)
    return _through_own(context, scan, scan.pinned)


def _why_not_jar(context: Context, scan: _Scan, pinned: Pinned) -> str | None:
    if pinned.is_incremental and pinned.from_snapshot_id is None:
        return "Iceberg's runtime reads what was appended only from a snapshot on"
    schema = _jar_schema(scan.table, pinned)
    return jar_reader.why_not(context, scan.table, schema, scan.schema)


def _jar_schema(table: Table, pinned: Pinned) -> StructType:
    return table.schema if pinned.is_incremental else schema_of(table, pinned.snapshot_id)


def _through_jar(context: Context, scan: _Scan, pinned: Pinned) -> DataFrame:
    before = _jar_schema(scan.table, pinned)
    frame = jar_reader.read(context, scan.table, pinned, before, scan.metadata_columns)
    return _filtered(mapped(frame, before, scan.schema), scan, scan.schema)


def _filtered(frame: DataFrame, scan: _Scan, columns: StructType) -> DataFrame:
    """The frame has these columns, among them all that the filter looks at, and the metadata
    columns."""
    # Where rows may be too many, transforms are not worth their price: Spark cannot push them.
    filter = scan.filter if scan.exact else without_transforms(scan.filter)
    if not isinstance(filter, AlwaysTrue):
        frame = frame.where(spark_condition(filter, scan.schema))
    if columns == scan.columns:
        return frame
    return frame.select(*(quoted(field.name) for field in scan.result.fields))


def _through_own(context: Context, scan: _Scan, pinned: Pinned) -> DataFrame:
    tasks = _planned(scan, pinned)
    if not scan.exact or all(task.residual is True for task in tasks):
        return own_reader.read(
            context, OwnScan(scan.table, tasks, scan.columns, scan.metadata_columns)
        )
    needed = _needed(scan)
    frame = own_reader.read(context, OwnScan(scan.table, tasks, needed, scan.metadata_columns))
    return _filtered(frame, scan, needed)


def _needed(scan: _Scan) -> StructType:
    """The columns that are wanted, and those that the filter looks at."""
    ids = {field.field_id for field in scan.columns.fields}
    ids |= {top_field(name, scan.schema).field_id for name in names_in(scan.filter)}
    return StructType(tuple(field for field in scan.schema.fields if field.field_id in ids))


def _planned(scan: _Scan, pinned: Pinned) -> list[ScanTask]:
    filter, use_snapshot_schema = _planning_filter(scan, pinned)
    plan = scan.table.plan(
        filter,
        snapshot=None if pinned.is_incremental else pinned.snapshot_id,
        from_snapshot=pinned.from_snapshot_id,
        to_snapshot=pinned.snapshot_id if pinned.is_incremental else None,
        use_snapshot_schema=use_snapshot_schema,
        sequence_numbers=LAST_UPDATED in scan.metadata_columns,
    )
    tasks = [task_of(task) for task in plan.tasks]
    if filter is None and not isinstance(scan.filter, AlwaysTrue):
        # What the catalog could not look at is left for every row.
        return [replace(task, residual=scan.filter.to_json()) for task in tasks]
    return tasks


def _planning_filter(scan: _Scan, pinned: Pinned) -> tuple[Expression | None, bool]:
    """The filter in names that the catalog knows, and whether these are the snapshot's."""
    if isinstance(scan.filter, AlwaysTrue):
        return None, False
    current = renamed(scan.filter, scan.schema, scan.table.schema)
    if current is not None or pinned.is_incremental:
        return current, False
    # A column that was dropped since.
    return renamed(scan.filter, scan.schema, schema_of(scan.table, pinned.snapshot_id)), True
