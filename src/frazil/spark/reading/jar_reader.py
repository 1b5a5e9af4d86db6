"""Reads through Iceberg's own runtime, where its jar is on Spark's classpath.

The session gets a catalog entry of ours, a REST catalog at the same address, without the cache that
would show an older table after a commit. A read is pinned to one snapshot, whose own schema it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.parquet_files import scheme_of
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import quoted
from frazil.spark.schema.frame_fitting import is_named_so, unpushable
from frazil.values.types import EdgeAlgorithm, GeographyType, StructType, Type, TypeId, child_fields
from frazil.wire.errors import BadRequest

CATALOG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_UNREADABLE: Final = frozenset({TypeId.TIME, TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
"""Types that Iceberg's runtime has no Spark type for: it refuses tables with such columns."""

_RESERVED: Final = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
    }
)
"""What it calls metadata columns, wherever they come from."""


@dataclass(frozen=True)
class Pinned:
    """What is read: one snapshot, or what was appended after one up to another."""

    snapshot_id: int
    from_snapshot_id: int | None = None
    is_incremental: bool = False

    @property
    def is_empty(self) -> bool:
        """Nothing lies between a snapshot and itself."""
        return self.is_incremental and self.from_snapshot_id == self.snapshot_id


def read(
    context: Context,
    table: Table,
    pinned: Pinned,
    schema: StructType,
    metadata_columns: Sequence[str],
) -> DataFrame:
    """All columns, as the snapshot's schema has them, then the metadata columns."""
    reader = context.spark.read
    if pinned.is_incremental:
        reader = reader.option("start-snapshot-id", str(pinned.from_snapshot_id))
        reader = reader.option("end-snapshot-id", str(pinned.snapshot_id))
    else:
        reader = reader.option("versionAsOf", str(pinned.snapshot_id))
    frame = reader.table(full_name(context, table))
    if all(is_named_so(field, table.schema) for field in schema.fields):
        return frame.select("*", *metadata_columns) if metadata_columns else frame
    columns = [
        F.col(quoted(field.name))
        if is_named_so(field, table.schema)
        else unpushable(F.col(quoted(field.name)), field.name)
        for field in schema.fields
    ]
    return frame.select(*columns, *(F.col(name) for name in metadata_columns))


def full_name(context: Context, table: Table) -> str:
    identifier = table.identifier
    parts = (_entry(context), *identifier.namespace, identifier.name)
    return ".".join(quoted(part) for part in parts)


# --- the catalog's entry --------------------------------------------------------------------------


def _entry(context: Context) -> str:
    """The name of the session's catalog for this address; Spark looks at it when it is used."""
    properties = {
        **context.properties,
        "type": "rest",
        "uri": context.uri,
        "cache-enabled": "false",
    }
    text = "\n".join(f"{name}={properties[name]}" for name in sorted(properties))
    name = f"frazil_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    key = f"spark.sql.catalog.{name}"
    if context.spark.conf.get(key, None) is None:
        for part, value in properties.items():
            context.spark.conf.set(f"{key}.{part}", value)
        # Last: whoever sees this one sees the others too.
        context.spark.conf.set(key, CATALOG_CLASS)
    return name


# --- whether it can read --------------------------------------------------------------------------


def why_not(context: Context, table: Table, schema: StructType, wanted: StructType) -> str | None:
    """The reason why the jar cannot read a table that had `schema` for the columns that are
    wanted; None where it can.

    Its presence is tried once for each session and kind of storage, by loading this table.
    """
    missing = _missing(context, table)
    if missing is not None:
        return missing
    for field in schema.fields:
        if field.name in _RESERVED:
            return f"Iceberg's runtime reads no table with a column that is called {field.name}"
        odd = _unreadable(field.type)
        if odd is not None:
            return f"Iceberg's runtime cannot read column {field.name}, which has the type {odd}"
    return _dropped_partition(table, wanted)


def _dropped_partition(table: Table, wanted: StructType) -> str | None:
    """An old snapshot may be partitioned by a column that was dropped since: the runtime then no
    longer knows the type of its values."""
    now = {field.field_id for field in table.schema.fields}
    then = {field.field_id: field.name for field in wanted.fields if field.field_id not in now}
    for spec in table.metadata["partition-specs"]:
        for part in spec["fields"]:
            if part["transform"] == "identity" and part.get("source-id") in then:
                name = then[part["source-id"]]
                return f"column {name}, which was dropped, is lost to Iceberg's runtime"
    return None


def check_forced(reason: str | None, table: Table) -> None:
    if reason is not None:
        raise BadRequest(f"{table}: the reader `jar` was asked for, but {reason}")


def _unreadable(type_: Type) -> Type | None:
    if type_.type_id in _UNREADABLE:
        return type_
    if isinstance(type_, GeographyType) and type_.algorithm is not EdgeAlgorithm.SPHERICAL:
        return type_
    return next(
        (odd for child in child_fields(type_) if (odd := _unreadable(child.type)) is not None), None
    )


_tried: WeakKeyDictionary[SparkSession, dict[tuple[str, str | None], str | None]]
_tried = WeakKeyDictionary()
_lock: Final = Lock()


def _missing(context: Context, table: Table) -> str | None:
    """Spark finds the class only when a catalog is used, and the storage's when a table is."""
    key = (context.uri, scheme_of(table.location))
    with _lock:
        known = _tried.setdefault(context.spark, {})
        if key not in known:
            known[key] = _try(context, table)
            found = known[key]
            context.log.info(
                "reads go through %s",
                "Iceberg's runtime" if found is None else f"our own reader: {found}",
            )
        return known[key]


def _try(context: Context, table: Table) -> str | None:
    try:
        # On Connect a frame is analyzed when its columns are asked for.
        _ = context.spark.read.table(full_name(context, table)).columns
    except Exception as error:
        # Whatever it is: a class that is missing has no type of its own in Python, and where the
        # runtime cannot load the table, for whatever reason, we can still read it.
        return f"Iceberg's runtime is not on Spark's classpath, or useless there ({_short(error)})"
    return None


def _short(error: Exception) -> str:
    """What the JVM says, without its stack."""
    said = [line.strip(" :") for line in str(error).splitlines()[:2] if line.strip(" :")]
    return (said or [type(error).__name__])[-1][:300]
