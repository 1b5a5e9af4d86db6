"""`ns.t.snapshots`, `ns.t.history` and `ns.t.refs`: a table's own metadata as tables.

Columns, types and order are those of Iceberg's metadata tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from frazil.client.declare.client_table import Table
from frazil.wire.actions import MAIN

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
