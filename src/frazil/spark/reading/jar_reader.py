"""Reads through Iceberg's runtime, if its jar is on Spark's classpath.

A read is pinned to one snapshot and has its schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from frazil.client.declare.client_table import Table
from frazil.datafiles.arrow.metadata_columns import METADATA_FIELDS
from frazil.datafiles.footers.parquet_files import scheme_of
from frazil.spark.core.context import LOGGER, Context
from frazil.spark.core.jvm_errors import repeated, translated
from frazil.spark.core.name_matching import quoted
from frazil.spark.core.write_audit import BRANCH_SETTING, EXTENSIONS_CLASS, is_audited
from frazil.spark.reading.catalog_entries import reading_entry
from frazil.spark.schema.frame_fitting import is_named_so, unpushable
from frazil.values.types import EdgeAlgorithm, GeographyType, StructType, Type, TypeId, child_fields
from frazil.wire.errors import BadRequest, FrazilError

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamReader

_UNREADABLE: Final = frozenset({TypeId.TIME, TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
"""Types without a Spark type in Iceberg's runtime, which refuses tables with such columns."""
_RESERVED: Final = METADATA_FIELDS.keys() | {"_deleted", "_partition"}
"""Names that the runtime always takes for metadata columns."""


@dataclass(frozen=True)
class Pinned:
    """What is read: one snapshot, or the rows appended after one up to another."""

    snapshot_id: int
    from_snapshot_id: int | None = None
    is_incremental: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the range is empty: a snapshot up to itself."""
        return self.is_incremental and self.from_snapshot_id == self.snapshot_id


def read(
    context: Context,
    table: Table,
    pinned: Pinned,
    schema: StructType,
    metadata_columns: Sequence[str],
) -> DataFrame:
    """Return all columns of the snapshot's schema, then the metadata columns."""
    reader = context.spark.read
    if pinned.is_incremental:
        reader = reader.option("start-snapshot-id", str(pinned.from_snapshot_id))
        reader = reader.option("end-snapshot-id", str(pinned.snapshot_id))
    else:
        reader = reader.option("versionAsOf", str(pinned.snapshot_id))
    frame = load(context, table, reader)
    if all(is_named_so(field, table.schema) for field in schema.fields):
        return frame.select("*", *metadata_columns) if metadata_columns else frame
    columns = [
        F.col(quoted(field.name))
        if is_named_so(field, table.schema)
        else unpushable(F.col(quoted(field.name)), field.name)
        for field in schema.fields
    ]
    return frame.select(*columns, *(F.col(name) for name in metadata_columns))


def load(context: Context, table: Table, reader: DataFrameReader | DataStreamReader) -> DataFrame:
    """Return the whole table as Spark's reader sees it with its options."""
    name = full_name(context, table)
    with translated():
        return repeated(context, table.identifier, lambda: _analyzed(reader.table(name)))


def _analyzed(frame: DataFrame) -> DataFrame:
    """Load the table now: Spark Connect analyzes a frame when its columns are requested."""
    _ = frame.columns
    return frame


def full_name(context: Context, table: Table) -> str:
    identifier = table.identifier
    parts = (reading_entry(context), *identifier.namespace, identifier.name)
    return ".".join(quoted(part) for part in parts)


# --- whether the jar can read ---------------------------------------------------------------------


def why_own(
    context: Context, table: Table, schema: StructType, columns: StructType, reason: str = ""
) -> str | None:
    """Return why Frazil reads and not the jar, by the setting `reader`; None if the jar reads.

    A `reason` of the caller comes first. Raise BadRequest if the jar is requested and cannot read.
    """
    if context.settings.reader == "own":
        return "as requested"
    own_reason = reason or why_not(context, table, schema, columns)
    if own_reason is not None and context.settings.reader == "jar":
        raise BadRequest(f"{table}: the reader `jar` was requested, but {own_reason}")
    return own_reason


def why_not(context: Context, table: Table, schema: StructType, columns: StructType) -> str | None:
    """Return why the jar cannot read `columns` of a table that had `schema`; None if it can.

    Whether the jar is there is tried once per session and kind of storage, by loading this table.
    """
    missing = _missing(context, table) or _why_not_audited(context, table)
    if missing is not None:
        return missing
    for field in schema.fields:
        if field.name in _RESERVED:
            return f"Iceberg's runtime reads no table with a column that is called {field.name}"
        type_ = _unreadable(field.type)
        if type_ is not None:
            return f"Iceberg's runtime cannot read column {field.name}, which has the type {type_}"
    return _dropped_partition(table, columns)


def _why_not_audited(context: Context, table: Table) -> str | None:
    """Return why the jar cannot read a table with `write.wap.enabled`; None if it can.

    Without Iceberg's extensions its reader refuses every snapshot of such a table while
    `spark.wap.branch` names an existing branch. The user may set it before the frame is evaluated.
    """
    if not is_audited(table.properties):
        return None
    conf = context.spark.conf
    if EXTENSIONS_CLASS in (conf.get("spark.sql.extensions", None) or ""):
        return None
    if context.settings.reader == "jar" and conf.get(BRANCH_SETTING, None) is None:
        return None
    return (
        f"with {BRANCH_SETTING} Iceberg's runtime needs its extensions: start Spark with "
        f"spark.sql.extensions={EXTENSIONS_CLASS}"
    )


def _dropped_partition(table: Table, columns: StructType) -> str | None:
    """Check for a column that was a partition field and was dropped since.

    The runtime no longer knows the type of its values in old snapshots.
    """
    current_ids = {field.field_id for field in table.schema.fields}
    dropped = {
        field.field_id: field.name for field in columns.fields if field.field_id not in current_ids
    }
    for spec in table.metadata["partition-specs"]:
        for part in spec["fields"]:
            if part["transform"] == "identity" and part.get("source-id") in dropped:
                name = dropped[part["source-id"]]
                return f"column {name}, which was dropped, is lost to Iceberg's runtime"
    return None


def _unreadable(type_: Type) -> Type | None:
    if type_.type_id in _UNREADABLE:
        return type_
    if isinstance(type_, GeographyType) and type_.algorithm is not EdgeAlgorithm.SPHERICAL:
        return type_
    return next(
        (bad for child in child_fields(type_) if (bad := _unreadable(child.type)) is not None), None
    )


_tried: WeakKeyDictionary[SparkSession, dict[tuple[str, str | None], str | None]]
_tried = WeakKeyDictionary()
_lock: Final = Lock()


def _missing(context: Context, table: Table) -> str | None:
    """Return why the runtime cannot be used, with the result of the first try.

    Spark looks for the catalog's class when the catalog is used, and for the storage's class when a
    table is read.
    """
    key = (context.uri, scheme_of(table.location))
    with _lock:
        known = _tried.setdefault(context.spark, {})
        if key not in known:
            reason = known[key] = _try(context, table)
            reader = "Iceberg's runtime" if reason is None else f"our own reader: {reason}"
            LOGGER.info("reads go through %s", reader)
        return known[key]


def _try(context: Context, table: Table) -> str | None:
    name = full_name(context, table)
    try:
        repeated(context, table.identifier, lambda: _analyzed(context.spark.read.table(name)))
    except FrazilError:
        raise  # of the client: the catalog is away
    except Exception as error:
        # A missing class has no error type of its own in Python. Whatever the reason is, Frazil's
        # own reader can still read the table.
        return f"Iceberg's runtime is not on Spark's classpath, or unusable there ({_short(error)})"
    return None


def _short(error: Exception) -> str:
    """Return the JVM's message without its stack."""
    lines = [line.strip(" :") for line in str(error).splitlines()[:2] if line.strip(" :")]
    return (lines or [type(error).__name__])[-1][:300]
