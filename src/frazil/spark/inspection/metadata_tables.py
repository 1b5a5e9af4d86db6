"""Returns the metadata tables of a table as frames, with the columns of Iceberg's own.

Tables that come from the metadata file are always made here. Those that need manifests are read by
Iceberg's runtime if it is there, distributed over Spark, and otherwise by the driver. Both read the
snapshot that was chosen before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType as SparkStruct

from frazil.client.declare.client_table import Table
from frazil.datafiles.arrow.arrow_types import spark_arrow_schema
from frazil.datafiles.reading.file_storage import storage_of
from frazil.spark.core.context import LOGGER, Context, dealt_out
from frazil.spark.core.name_matching import quoted
from frazil.spark.executor.file_tasks import DELETE_FILE, DeleteRows
from frazil.spark.inspection.file_tables import (
    DATA_FILES,
    DELETE_FILES,
    FileTables,
    ShownTypes,
    columns,
)
from frazil.spark.inspection.table_manifests import ListedFile, TableManifests
from frazil.spark.reading import jar_reader
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import MAIN
from frazil.wire.scan_planning import PlannedDeleteFile

_POSITION_DELETES: Final = 1
_VECTORS_MIN_VERSION: Final = 3
_MAX_TASKS: Final = 64
_MAX_RUNS: Final = 10_000


def metadata_frame(
    context: Context, table: Table, name: str, snapshot_id: int | None = None
) -> DataFrame:
    """Return a metadata table. `snapshot_id` chooses the snapshot of those that show one."""
    if name not in OF_SNAPSHOT and snapshot_id is not None:
        raise BadRequest(f"{table}.{name} shows all snapshots, so it has no versions")
    make = _OF_METADATA.get(name)
    if make is not None:
        return _frame(context, make(table))
    if name in OF_SNAPSHOT and snapshot_id is None:
        snapshot_id = table.head()
    reason = jar_reader.why_own(context, table, table.schema, table.schema)
    if reason is None:
        reader = context.spark.read
        if snapshot_id is not None:
            reader = reader.option("versionAsOf", str(snapshot_id))
        return reader.table(f"{jar_reader.full_name(context, table)}.{quoted(name)}")
    LOGGER.debug("%s.%s: manifests are read by Frazil: %s", table, name, reason)
    return _own_frame(context, table, name, snapshot_id)


def _frame(context: Context, rows: pa.Table) -> DataFrame:
    schema = _spark_schema(rows.schema)
    # Spark Connect takes no Arrow table without rows.
    return context.spark.createDataFrame(rows if rows.num_rows else [], schema)


def _spark_schema(schema: pa.Schema) -> SparkStruct:
    """Return the schema in Spark, where times without a zone stay without one."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


# --- of the metadata file -------------------------------------------------------------------------


def _snapshots(table: Table) -> pa.Table:
    return _table(
        "committed_at timestamp!, snapshot_id long!, parent_id long, operation string, "
        "manifest_list string, summary texts",
        (
            (
                snapshot.timestamp_ms * 1000,
                snapshot.snapshot_id,
                snapshot.parent_snapshot_id,
                snapshot.operation,
                snapshot.manifest_list,
                [item for item in snapshot.summary.items() if item[0] != "operation"],
            )
            for snapshot in table.snapshots
        ),
    )


def _history(table: Table) -> pa.Table:
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.snapshots}
    main = table.ancestors(MAIN) if MAIN in table.refs else ()
    ancestors = {snapshot.snapshot_id for snapshot in main}
    return _table(
        "made_current_at timestamp!, snapshot_id long!, parent_id long, "
        "is_current_ancestor boolean!",
        (
            (timestamp_ms * 1000, head, parents.get(head), head in ancestors)
            for timestamp_ms, head in _heads(table)
        ),
    )


def _heads(table: Table) -> list[tuple[int, int]]:
    """Return the heads of main, and since when each was the head in milliseconds."""
    log = table.metadata.get("snapshot-log") or ()
    return [(entry["timestamp-ms"], entry["snapshot-id"]) for entry in log]


def _refs(table: Table) -> pa.Table:
    return _table(
        "name string!, type string!, snapshot_id long!, max_reference_age_in_ms long, "
        "min_snapshots_to_keep int, max_snapshot_age_in_ms long",
        (
            (
                name,
                ref.type.upper(),
                ref.snapshot_id,
                ref.max_ref_age_ms,
                ref.min_snapshots_to_keep,
                ref.max_snapshot_age_ms,
            )
            for name, ref in sorted(table.refs.items())
        ),
    )


def _metadata_log(table: Table) -> pa.Table:
    """Return the metadata files, with main's head at the time of each."""
    metadata = table.metadata
    files = [
        (entry["timestamp-ms"], entry["metadata-file"])
        for entry in metadata.get("metadata-log") or ()
    ]
    files.append((metadata["last-updated-ms"], table.metadata_location))
    heads = _heads(table)[::-1]
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots}
    rows = []
    for timestamp_ms, file in files:
        head = next((head for at, head in heads if at <= timestamp_ms), None)
        snapshot = None if head is None else snapshots.get(head)
        schema_id = snapshot and snapshot.schema_id
        rows.append(
            (timestamp_ms * 1000, file, head, schema_id, snapshot and snapshot.sequence_number)
        )
    return _table(
        "timestamp timestamp!, file string!, latest_snapshot_id long, latest_schema_id int, "
        "latest_sequence_number long",
        rows,
    )


def _maintenance_runs(table: Table) -> pa.Table:
    """Return the last jobs of maintenance, newest first. Iceberg has no such table."""
    return _table(
        "created_at timestamp!, job_id string!, operation string!, state string!, "
        "started_by string!, principal string!, dry_run boolean!, attempts int!, options texts, "
        "started_at timestamp, finished_at timestamp, result string, error string",
        (
            (
                job.created_at_ms * 1000,
                job.job_id,
                job.operation,
                job.state.value,
                job.started_by,
                job.principal,
                job.dry_run,
                job.attempts,
                list(job.options.items()),
                _micros(job.started_at_ms),
                _micros(job.finished_at_ms),
                None if job.result is None else msgspec.json.encode(job.result).decode(),
                None if job.error is None else job.error.message,
            )
            for job in islice(table.jobs.list(table.identifier), _MAX_RUNS)
        ),
    )


def _micros(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * 1000


def _table(text: str, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return rows with the columns of the text (see `columns`)."""
    fields = columns(text)
    names = [field.name for field in fields]
    return pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], pa.schema(fields)
    )


# --- of manifests ---------------------------------------------------------------------------------


def _own_frame(context: Context, table: Table, name: str, snapshot_id: int | None) -> DataFrame:
    storage = storage_of(context.properties, table.config)
    tables = FileTables(TableManifests(table, storage), ShownTypes(table))
    if name.startswith("all_"):
        lists = tables.manifests.all_listed(table.snapshots)
        if name == "all_manifests":
            return _frame(context, tables.all_manifests(lists))
        distinct = {item.manifest.manifest_path: item for _, listed in lists for item in listed}
        listed = list(distinct.values())
    elif snapshot_id is None:
        listed = []
    else:
        listed = tables.manifests.listed(table.snapshot(snapshot_id))
    if name == "position_deletes":
        return _position_deletes(context, tables, listed)
    return _frame(context, _OF_MANIFESTS[name.removeprefix("all_")](tables, listed))


def _partitions(tables: FileTables, listed: Sequence[ListedFile]) -> pa.Table:
    snapshots = tables.manifests.table.snapshots
    return tables.partitions(listed, {snapshot.snapshot_id: snapshot for snapshot in snapshots})


def _position_deletes(
    context: Context, tables: FileTables, listed: Sequence[ListedFile]
) -> DataFrame:
    """Return a row for each deleted position. Spark's tasks read the delete files."""
    schema = _position_deletes_schema(tables)
    items = [
        _item(tables, schema, entry)
        for entry in tables.entries_of(listed, DELETE_FILES)
        if entry.is_live and getattr(entry.file, "content", 0) == _POSITION_DELETES
    ]
    if not items:
        return _frame(context, schema.empty_table())
    column = pa.array(items, pa.binary())
    frame = dealt_out(context.spark, "item", column, min(len(items), _MAX_TASKS))
    return frame.mapInArrow(DeleteRows(schema, tables.manifests.storage), _spark_schema(schema))


def _position_deletes_schema(tables: FileTables) -> pa.Schema:
    table = tables.manifests.table
    vectors = columns("content_offset long, content_size_in_bytes long")
    return pa.schema(
        [
            *columns("file_path string!, pos long!"),
            pa.field("row", pa.struct(spark_arrow_schema(table.schema))),
            *tables.partition_fields,
            *columns("spec_id int!, delete_file_path string!"),
            *(vectors if table.format_version >= _VECTORS_MIN_VERSION else ()),
        ]
    )


def _item(tables: FileTables, schema: pa.Schema, entry: Any) -> bytes:
    """Return a delete file and the columns that are the same for all of its rows."""
    file = entry.file
    planned = PlannedDeleteFile(
        content="position-deletes",
        file_path=file.file_path,
        file_format=file.file_format.lower(),
        spec_id=entry.spec_id,
        partition=(),
        file_size_in_bytes=file.file_size_in_bytes,
        record_count=file.record_count,
        referenced_data_file=file.referenced_data_file,
        content_offset=file.content_offset,
        content_size_in_bytes=file.content_size_in_bytes,
    )
    row = {
        DELETE_FILE: msgspec.json.encode(planned),
        "partition": tables.types.partition_row(entry.partition),
        "spec_id": entry.spec_id,
        "delete_file_path": file.file_path,
        "content_offset": file.content_offset,
        "content_size_in_bytes": file.content_size_in_bytes,
    }
    fields = [schema.field(name) for name in schema.names if name in row]
    batch = pa.RecordBatch.from_pylist(
        [row], pa.schema([pa.field(DELETE_FILE, pa.binary()), *fields])
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


_OF_METADATA: Final[Mapping[str, Callable[[Table], pa.Table]]] = {
    "snapshots": _snapshots,
    "history": _history,
    "refs": _refs,
    "metadata_log_entries": _metadata_log,
    "maintenance_runs": _maintenance_runs,
}
_OF_MANIFESTS: Final[Mapping[str, Callable[[FileTables, Sequence[ListedFile]], pa.Table]]] = {
    "files": FileTables.files,
    "data_files": lambda tables, listed: tables.files(listed, DATA_FILES),
    "delete_files": lambda tables, listed: tables.files(listed, DELETE_FILES),
    "entries": FileTables.entries,
    "manifests": FileTables.listed_manifests,
    "partitions": _partitions,
}
OF_SNAPSHOT: Final = frozenset({*_OF_MANIFESTS, "position_deletes"})
"""Tables that show one snapshot. The others show all."""
METADATA_TABLES: Final = frozenset(
    {
        *_OF_METADATA,
        *OF_SNAPSHOT,
        *("all_files", "all_data_files", "all_delete_files", "all_entries", "all_manifests"),
    }
)
