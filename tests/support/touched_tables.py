"""Builds small tables with known files, and the tasks of statements that delete their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.datafiles.reading.row_positions import Positions
from frazil.datafiles.reading.scan_tasks import DeletedRows, task_of
from frazil.spark.core.context import Context, Settings

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "part", "required": False, "type": "string"},
    ],
}
BY_PART: dict[str, Any] = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "part", "transform": "identity"}],
}


def arrow_field(name: str, type_: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(field_id)})


ARROW = pa.schema([arrow_field("id", pa.int64(), 1), arrow_field("part", pa.string(), 2)])


def local(path: str) -> Path:
    return Path(path.removeprefix("file://").removeprefix("file:"))


def add_file(table: Table, name: str, rows: pa.Table, **options: Any) -> str:
    """Write a file below the table's location, without committing it."""
    path = local(table.location) / "data" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **options)
    scheme, colon, _ = table.location.partition(":")
    return f"{scheme}{colon}//{path}" if colon else str(path)


def make_table(client: Client, namespace: str, version: int, **properties: str) -> Table:
    """Write files `0`, `1` and `2` with ten rows each: two in partition `a`, one in `b`."""
    name = f"{namespace}.t"
    table = client.create_table(
        name,
        SCHEMA,
        partition_spec=BY_PART,
        properties={"format-version": str(version), **properties},
    )
    paths = []
    for number, part in enumerate("aab"):
        ids = range(number * 10, number * 10 + 10)
        rows = pa.table({"id": list(ids), "part": [part] * 10}, ARROW)
        paths.append(add_file(table, str(number), rows))
    client.append_files(name, paths)
    return client.load_table(name)


def without_spark(client: Client) -> Context:
    """Return a context without Spark, because small statements run without it."""
    return Context(cast(SparkSession, None), client, Settings(), "")


def touch(table: Table, positions: Mapping[str, Sequence[int]]) -> list[DeletedRows]:
    """Return the tasks for the files that `positions` names, without suffix."""
    touched = {}
    for planned in table.plan(sequence_numbers=True).tasks:
        name = Path(planned.data_file.file_path).stem
        if name in positions:
            touched[name] = DeletedRows(task_of(planned), Positions(positions[name]))
    return [touched[name] for name in positions]
