"""Build the small frames that statements return, and the metadata tables.

`ns.t.snapshots`, `ns.t.history` and `ns.t.refs` have the columns of Iceberg's metadata tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
_SUMMARY: Final = pa.map_(pa.string(), pa.field("value", pa.string(), False))
Columns: TypeAlias = Mapping[str, tuple[pa.DataType, Sequence[Any]]]
"""Types and values of columns by name."""


def _snapshots(table: Table) -> Columns:
    snapshots = table.snapshots
    summaries = [
        [item for item in snapshot.summary.items() if item[0] != "operation"]
        for snapshot in snapshots
    ]
    return {
        "committed_at": (_TIMESTAMP, [_micros(snapshot.timestamp_ms) for snapshot in snapshots]),
        "snapshot_id": (pa.int64(), [snapshot.snapshot_id for snapshot in snapshots]),
        "parent_id": (pa.int64(), [snapshot.parent_snapshot_id for snapshot in snapshots]),
        "operation": (pa.string(), [snapshot.operation for snapshot in snapshots]),
        "manifest_list": (pa.string(), [snapshot.manifest_list for snapshot in snapshots]),
        "summary": (_SUMMARY, summaries),
    }


def _history(table: Table) -> Columns:
    log = table.metadata.get("snapshot-log") or ()
    ids = [entry["snapshot-id"] for entry in log]
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.snapshots}
    main = table.ancestors(MAIN) if MAIN in table.refs else ()
    ancestors = {snapshot.snapshot_id for snapshot in main}
    return {
        "made_current_at": (_TIMESTAMP, [_micros(entry["timestamp-ms"]) for entry in log]),
        "snapshot_id": (pa.int64(), ids),
        "parent_id": (pa.int64(), [parents.get(snapshot_id) for snapshot_id in ids]),
        "is_current_ancestor": (pa.bool_(), [snapshot_id in ancestors for snapshot_id in ids]),
    }


def _refs(table: Table) -> Columns:
    names = sorted(table.refs)
    refs = [table.refs[name] for name in names]
    return {
        "name": (pa.string(), names),
        "type": (pa.string(), [ref.type.upper() for ref in refs]),
        "snapshot_id": (pa.int64(), [ref.snapshot_id for ref in refs]),
        "max_reference_age_in_ms": (pa.int64(), [ref.max_ref_age_ms for ref in refs]),
        "min_snapshots_to_keep": (pa.int32(), [ref.min_snapshots_to_keep for ref in refs]),
        "max_snapshot_age_in_ms": (pa.int64(), [ref.max_snapshot_age_ms for ref in refs]),
    }


def _micros(timestamp_ms: int) -> int:
    return timestamp_ms * 1000


METADATA_TABLES: Final[Mapping[str, Callable[[Table], Columns]]] = {
    "snapshots": _snapshots,
    "history": _history,
    "refs": _refs,
}


def metadata_frame(spark: SparkSession, table: Table, name: str) -> DataFrame:
    """Return one of the table's metadata tables."""
    columns = METADATA_TABLES[name](table).items()
    return spark.createDataFrame(
        pa.table({column: pa.array(values, type_) for column, (type_, values) in columns})
    )
