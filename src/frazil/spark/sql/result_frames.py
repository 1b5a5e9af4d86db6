"""Build the small frames that statements return, and the metadata tables.

`ns.t.snapshots`, `ns.t.history` and `ns.t.refs` have the columns of Iceberg's metadata tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from frazil.client.declare.client_table import Table
from frazil.spark.core.statement_runs import Result
from frazil.spark.parse.sql_literals import literal_of
from frazil.wire.file_actions import MAIN

if TYPE_CHECKING:
    from frazil.spark.session import Session


RESULT_SCHEMA: Final = (
    "operation string, mode string, snapshot_id bigint, rows_written bigint, rows_deleted bigint, "
    "files_added bigint, files_removed bigint, attempts int"
)


def no_columns(session: Session) -> DataFrame:
    """Return a frame without rows and columns, as Spark does for DDL."""
    return literal_rows(session, "nothing int", []).select()


def literal_rows(session: Session, schema: str, rows: Sequence[Sequence[Any]]) -> DataFrame:
    """Return a frame of literals, which Spark can show without a job or a Python worker."""
    columns = [column.split() for column in schema.split(", ")]
    names = ", ".join(name for name, _ in columns)
    shown = rows or [[None] * len(columns)]
    lines = ", ".join(
        "("
        + ", ".join(
            f"CAST({literal_of(value, name)} AS {kind})"
            for value, (name, kind) in zip(row, columns, strict=True)
        )
        + ")"
        for row in shown
    )
    frame = session.spark.sql(f"SELECT * FROM VALUES {lines} AS answer({names})")
    return frame if rows else frame.limit(0)


def statement_result(session: Session, result: Result) -> DataFrame:
    """Return one row that describes what a statement changed."""
    row = (
        result.operation,
        result.mode,
        result.snapshot_id,
        result.rows_written,
        result.rows_deleted,
        result.files_added,
        result.files_removed,
        result.attempts,
    )
    return literal_rows(session, RESULT_SCHEMA, [row])


# --- metadata tables ------------------------------------------------------------------------------

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_MICROS_PER_MILLI: Final = 1000


def _snapshots(table: Table) -> pa.Table:
    schema = pa.schema(
        [
            pa.field("committed_at", _TIMESTAMP),
            pa.field("snapshot_id", pa.int64()),
            pa.field("parent_id", pa.int64()),
            pa.field("operation", pa.string()),
            pa.field("manifest_list", pa.string()),
            pa.field("summary", pa.map_(pa.string(), pa.field("value", pa.string(), False))),
        ]
    )
    rows = [
        {
            "committed_at": snapshot.timestamp_ms * _MICROS_PER_MILLI,
            "snapshot_id": snapshot.snapshot_id,
            "parent_id": snapshot.parent_snapshot_id,
            "operation": snapshot.operation,
            "manifest_list": snapshot.manifest_list,
            "summary": [item for item in snapshot.summary.items() if item[0] != "operation"],
        }
        for snapshot in table.snapshots
    ]
    return pa.Table.from_pylist(rows, schema)


def _history(table: Table) -> pa.Table:
    schema = pa.schema(
        [
            pa.field("made_current_at", _TIMESTAMP),
            pa.field("snapshot_id", pa.int64()),
            pa.field("parent_id", pa.int64()),
            pa.field("is_current_ancestor", pa.bool_()),
        ]
    )
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.snapshots}
    main = table.ancestors(MAIN) if MAIN in table.refs else ()
    ancestors = {snapshot.snapshot_id for snapshot in main}
    rows = [
        {
            "made_current_at": entry["timestamp-ms"] * _MICROS_PER_MILLI,
            "snapshot_id": entry["snapshot-id"],
            "parent_id": parents.get(entry["snapshot-id"]),
            "is_current_ancestor": entry["snapshot-id"] in ancestors,
        }
        for entry in table.metadata.get("snapshot-log") or ()
    ]
    return pa.Table.from_pylist(rows, schema)


def _refs(table: Table) -> pa.Table:
    schema = pa.schema(
        [
            pa.field("name", pa.string()),
            pa.field("type", pa.string()),
            pa.field("snapshot_id", pa.int64()),
            pa.field("max_reference_age_in_ms", pa.int64()),
            pa.field("min_snapshots_to_keep", pa.int32()),
            pa.field("max_snapshot_age_in_ms", pa.int64()),
        ]
    )
    rows = [
        {
            "name": name,
            "type": ref.type.upper(),
            "snapshot_id": ref.snapshot_id,
            "max_reference_age_in_ms": ref.max_ref_age_ms,
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            "max_snapshot_age_in_ms": ref.max_snapshot_age_ms,
        }
        for name, ref in sorted(table.refs.items())
    ]
    return pa.Table.from_pylist(rows, schema)


METADATA_TABLES: Final[Mapping[str, Callable[[Table], pa.Table]]] = {
    "snapshots": _snapshots,
    "history": _history,
    "refs": _refs,
}


def metadata_frame(spark: SparkSession, table: Table, name: str) -> DataFrame:
    """Return one of the table's metadata tables."""
    return spark.createDataFrame(METADATA_TABLES[name](table))
