"""Frazil's own reader, which needs no jar: the catalog plans, and Spark or Arrow reads.

Files without deletes and with plain types are read by Spark's vectorized Parquet reader, with
columns by field id. Tasks read everything else through Arrow: deletes, types that Spark reads in
another way, columns with defaults, row lineage. Both parts are united in one frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from frazil.client.declare.client_table import Table
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import is_local, storage_of
from frazil.datafiles.reading.scan_tasks import ScanTask, split_tasks
from frazil.datafiles.reading.task_reader import ScanReading, with_metadata
from frazil.spark.core.context import LOGGER, Context, dealt_out
from frazil.spark.core.name_matching import quoted
from frazil.spark.schema.frame_fitting import is_always_named_so
from frazil.spark.schema.spark_types import FLAT_TYPES, spark_schema, spark_type
from frazil.values.name_mapping import NAME_MAPPING_PROPERTY
from frazil.values.type_json import parse_struct
from frazil.values.types import NestedField, StructType, child_fields

SPLIT_BYTES: Final = 16 << 20
"""How much an Arrow task should read."""
_MAX_PARTITIONS: Final = 10_000
_FIELD_ID_READ: Final = "spark.sql.parquet.fieldId.read.enabled"
_JVM_METADATA: Final = frozenset({"_file", "_pos", "_spec_id"})
_PLAIN_PATH: Final = re.compile(r"(?:(file)://|file:)?(/[A-Za-z0-9_.=/@+,-]*)")
"""Local paths that Spark shows unchanged, except for the slashes after the scheme."""


@dataclass(frozen=True)
class OwnScan:
    """Tasks, and the columns to read."""

    table: Table
    tasks: Sequence[ScanTask]
    columns: StructType
    metadata_columns: Sequence[str] = ()

    @property
    def result(self) -> StructType:
        return with_metadata(self.columns, self.metadata_columns)


def read(context: Context, scan: OwnScan) -> DataFrame:
    """Return the live rows of all tasks; residual filters are not applied."""
    reason = why_not_jvm(scan)
    jvm = [task for task in scan.tasks if reason is None and _is_clean(task, scan)]
    arrow = [task for task in scan.tasks if reason is not None or not _is_clean(task, scan)]
    LOGGER.info(
        "%s: %d files through the JVM, %d through Arrow%s",
        scan.table,
        len(jvm),
        len(arrow),
        f": {reason}" if reason else "",
    )
    frames = list(_jvm_frames(context, scan, jvm))
    if arrow:
        frames.append(_arrow_frame(context, scan, arrow))
    if not frames:
        return empty(context, scan.result)
    return reduce(DataFrame.unionAll, frames)


def empty(context: Context, schema: StructType) -> DataFrame:
    """Return an empty frame of constants, which Spark knows to be empty without a job."""
    columns = [
        F.lit(None).cast(field.dataType).alias(field.name, metadata=field.metadata)
        for field in spark_schema(schema).fields
    ]
    return context.spark.range(0).select(*columns)


# --- through the JVM ------------------------------------------------------------------------------


def why_not_jvm(scan: OwnScan) -> str | None:
    """Return why Spark's reader can read no file of the table; None if it can read some."""
    if NAME_MAPPING_PROPERTY in scan.table.properties:
        return "files without field ids are read by the table's name mapping"
    for name in scan.metadata_columns:
        if name not in _JVM_METADATA:
            return f"{name} is requested"
    for field in scan.columns.fields:
        reason = _not_for_jvm(field)
        if reason is not None:
            return f"column {field.name} {reason}"
    return _reused_name(scan)


def _reused_name(scan: OwnScan) -> str | None:
    """Check for a column whose name was another column's before.

    Spark matches columns by id. But it finds their types, and a filter's column in the file's
    statistics, by name.
    """
    schemas = scan.table.metadata["schemas"]
    if {schema.get("schema-id") for schema in schemas} != set(range(len(schemas))):
        return "older schemas of the table were removed, so that names in old files are not known"
    known = [parse_struct(schema, "schema") for schema in schemas]
    for field in scan.columns.fields:
        if not is_always_named_so(field, known):
            return f"column {field.name} has a name that was another column's before"
    return None


def _not_for_jvm(field: NestedField) -> str | None:
    if field.initial_default is not None:
        return "has an initial default"
    if not field.type.is_nested and field.type.type_id not in FLAT_TYPES:
        return f"is of type {field.type}"
    return next(filter(None, map(_not_for_jvm, child_fields(field.type))), None)


def _is_clean(task: ScanTask, scan: OwnScan) -> bool:
    if task.delete_files or task.data_file.file_format.lower() != "parquet":
        return False
    if not is_local(task.file_path):
        # Spark from PyPI has no file systems for object stores, but Arrow has.
        return False
    return "_file" not in scan.metadata_columns or _PLAIN_PATH.fullmatch(task.file_path) is not None


def _jvm_frames(context: Context, scan: OwnScan, tasks: Sequence[ScanTask]) -> Iterator[DataFrame]:
    """Yield one frame for all files, or one per group if a metadata column differs."""
    groups: dict[tuple[int, str], list[str]] = {}
    for task in tasks:
        spec_id = task.data_file.spec_id if "_spec_id" in scan.metadata_columns else 0
        style = _path_style(task.file_path) if "_file" in scan.metadata_columns else ""
        groups.setdefault((spec_id, style), []).append(task.file_path)
    for (spec_id, style), paths in groups.items():
        yield _jvm_frame(context, scan, paths, spec_id, style)


def _jvm_frame(
    context: Context, scan: OwnScan, paths: Sequence[str], spec_id: int, style: str
) -> DataFrame:
    context.spark.conf.set(_FIELD_ID_READ, "true")
    schema = spark_schema(scan.columns, field_ids=True)
    reader = context.spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
    # Without the option Spark could take a parent folder for the root of a partitioned table.
    frame = reader.option("recursiveFileLookup", "true").parquet(*map(_hadoop_path, paths))
    metadata = {
        "_file": F.concat(F.lit(style), F.expr("substring(_metadata.file_path, 6)")),
        "_pos": F.col("_metadata.row_index"),
        "_spec_id": F.lit(spec_id),
    }
    columns = [_without_ids(field) for field in scan.columns.fields]
    columns += [metadata[name].alias(name) for name in scan.metadata_columns]
    return frame.select(*columns)


def _without_ids(field: NestedField) -> Column:
    """Return the column without field ids, since writing the frame would write them."""
    column = F.col(quoted(field.name))
    if field.type.is_nested or field.doc is None:
        # Spark 4.0 ignores empty metadata in an alias; a cast has no metadata.
        type_: Any = spark_type(field.type)
        column = column.cast(type_.toNullable() if field.type.is_nested else type_)
    return column.alias(field.name, metadata={} if field.doc is None else {"comment": field.doc})


def _path_style(path: str) -> str:
    """Return what comes before the first slash of a local path: `file://`, `file:` or nothing.

    Spark shows all of them as `file:/...`.
    """
    return path[: len(path) - len(_PLAIN_PATH.fullmatch(path)[2])]  # type: ignore[index]


def _hadoop_path(path: str) -> str:
    """Escape glob characters; Spark takes the rest of a path literally."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


# --- through Arrow --------------------------------------------------------------------------------


def _arrow_frame(context: Context, scan: OwnScan, tasks: Sequence[ScanTask]) -> DataFrame:
    parts = sorted(
        split_tasks(tasks, SPLIT_BYTES), key=lambda task: task.size_in_bytes, reverse=True
    )
    total = sum(task.size_in_bytes for task in parts)
    count = min(len(parts), 1 + total // SPLIT_BYTES, _MAX_PARTITIONS)
    texts = pa.array([task.to_json().decode() for task in parts], pa.string())
    frame = dealt_out(context.spark, "task", texts, count)
    reading = ScanReading(
        PortableTable.of(scan.table),
        storage_of(scan.table.config),
        scan.columns,
        tuple(scan.metadata_columns),
    )
    return frame.mapInArrow(reading, spark_schema(scan.result))
