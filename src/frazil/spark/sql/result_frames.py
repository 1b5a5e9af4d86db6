"""What statements give back: frames of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from frazil.client.declare.client_table import Table
from frazil.spark.core.results import Result
from frazil.spark.parse.sql_literals import literal_of
from frazil.wire.file_actions import MAIN

if TYPE_CHECKING:
    from frazil.spark.session import Session


RESULT_SCHEMA: Final = (
    "operation string, mode string, snapshot_id bigint, rows_written bigint, rows_deleted bigint, "
    "files_added bigint, files_removed bigint, attempts int"
)


def nothing(session: Session) -> DataFrame:
    """No rows and no columns, as Spark answers a definition."""
    return rows(session, "nothing int", []).select()


def rows(session: Session, schema: str, values: Sequence[Sequence[Any]]) -> DataFrame:
    """Of literals, so that Spark needs no job and no Python worker to show them."""
    columns = [column.split() for column in schema.split(", ")]
    names = ", ".join(name for name, _ in columns)
    shown = values or [[None] * len(columns)]
    lines = ", ".join(
        "("
        + ", ".join(
            f"CAST({literal_of(value, name)} AS {kind})"
            for value, (name, kind) in zip(row, columns, strict=True)
        )
        + ")"
        for row in shown
    )
    found = session.spark.sql(f"SELECT * FROM VALUES {lines} AS answer({names})")
    return found if values else found.limit(0)


def outcome(session: Session, result: Result) -> DataFrame:
    """One row that says what was done."""
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
    return rows(session, RESULT_SCHEMA, [row])


_MOMENT: Final = pa.timestamp("us", tz="UTC")
_MICROS_PER_MILLI: Final = 1000


def _snapshots(table: Table) -> pa.Table:
    schema = pa.schema(
        [
            pa.field("committed_at", _MOMENT),
            pa.field("snapshot_id", pa.int64()),
            pa.field("parent_id", pa.int64()),
            pa.field("operation", pa.string()),
            pa.field("manifest_list", pa.string()),
            pa.field("summary", pa.map_(pa.string(), pa.field("value", pa.string(), False))),
        ]
    )
    rows = [
        {
            "committed_at": one.timestamp_ms * _MICROS_PER_MILLI,
            "snapshot_id": one.snapshot_id,
            "parent_id": one.parent_snapshot_id,
            "operation": one.operation,
            "manifest_list": one.manifest_list,
            "summary": [item for item in one.summary.items() if item[0] != "operation"],
        }
        for one in table.snapshots
    ]
    return pa.Table.from_pylist(rows, schema)


def _history(table: Table) -> pa.Table:
    schema = pa.schema(
        [
            pa.field("made_current_at", _MOMENT),
            pa.field("snapshot_id", pa.int64()),
            pa.field("parent_id", pa.int64()),
            pa.field("is_current_ancestor", pa.bool_()),
        ]
    )
    parents = {one.snapshot_id: one.parent_snapshot_id for one in table.snapshots}
    main = table.ancestors(MAIN) if MAIN in table.refs else ()
    ancestors = {one.snapshot_id for one in main}
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
    return spark.createDataFrame(METADATA_TABLES[name](table))
