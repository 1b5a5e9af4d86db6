"""Distributes and sorts rows before they are written: by `write.distribution-mode` or by Z-order.

The defaults are those of Iceberg 1.12 (`SparkWriteConf`). Z-order puts rows that are near in
several columns at once near in files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.datafiles.ordering.sort_keys import sort_source
from frazil.datafiles.ordering.z_order_keys import (
    KEY_BYTES,
    SAMPLE_SCHEMA,
    Keys,
    interleaved,
    limits_of,
    sample_rows,
    z_fields,
)
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.writing.write_properties import positive_property
from frazil.spark.core.name_matching import column
from frazil.spark.schema.partition_transforms import arrow_function, source_column, transform_column
from frazil.values.transforms import parse_transform
from frazil.values.types import NestedField, StructType, TypeId
from frazil.wire.errors import BadRequest

Z_COLUMN: Final = "_z_order"

ADVISORY_SIZE: Final = "write.spark.advisory-partition-size-bytes"
_ADVISORY_CONF: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_FILE_BYTES: Final = 128 << 20
_SHUFFLE_RATIO: Final = {"uncompressed": 1, "snappy": 2, "lz4": 2}
"""Bytes of a shuffle per byte of a file; 3 for codecs that compress more."""
MODES: Final = ("none", "hash", "range")
COMMANDS: Final = ("write", "delete", "update", "merge")


@dataclass(frozen=True)
class Layout:
    mode: str
    sort_order: Mapping[str, Any] | None
    """The order of rows within a partition, as in the table's metadata."""
    zorder: tuple[str, ...] = ()

    @property
    def sort_order_id(self) -> int | None:
        """The id that files declare; None if their rows are not sorted."""
        return None if self.sort_order is None else int(self.sort_order["order-id"])


def layout_of(
    facts: PortableTable,
    distribution: str | None = None,
    command: str = "write",
    zorder: Sequence[str] = (),
    spec_id: int | None = None,
) -> Layout:
    order = facts.sort_order()
    is_sorted = bool(order["fields"])
    spec = facts.spec(spec_id)
    is_partitioned = any(field["transform"].lower() != "void" for field in spec["fields"])
    if zorder:
        return Layout("range", None, tuple(zorder))
    mode = distribution or _property(facts, command)
    if mode is None:
        mode = _default(command, is_partitioned=is_partitioned, is_sorted=is_sorted)
    if mode.lower() not in MODES:
        raise BadRequest(f"distribution mode: {mode!r} is none of {', '.join(MODES)}")
    mode = mode.lower()
    if mode == "hash" and not is_partitioned:
        mode = "none"
    if mode == "range" and not (is_partitioned or is_sorted):
        mode = "none"
    return Layout(mode, order if is_sorted else None)


def _property(facts: PortableTable, command: str) -> str | None:
    if command not in COMMANDS:
        raise BadRequest(f"command: {command!r} is none of {', '.join(COMMANDS)}")
    name = "distribution-mode" if command == "write" else f"{command}.distribution-mode"
    return facts.properties.get(f"write.{name}")


def _default(command: str, *, is_partitioned: bool, is_sorted: bool) -> str:
    if command != "write" and is_partitioned:
        return "hash"
    if is_sorted:
        return "range"
    return "hash" if is_partitioned else "none"


def shuffle_settings(facts: PortableTable, codec: str) -> dict[str, str]:
    """Return the size of a task after a write's shuffle, as Iceberg's default has it.

    Spark's own default makes files that are small for a table.
    """
    default = _FILE_BYTES * _SHUFFLE_RATIO.get(codec, 3)
    return {_ADVISORY_CONF: str(positive_property(facts.properties, ADVISORY_SIZE, default))}


def spread(
    frame: DataFrame, partition: Mapping[str, Column], layout: Layout, schema: StructType
) -> DataFrame:
    """Return the frame with its partition columns added, its rows distributed and sorted.

    The partition columns have names that the frame does not have.
    """
    added = [value.alias(name) for name, value in partition.items()]
    if layout.zorder:
        sources = z_sources(layout.zorder, schema)
        # This runs a Spark job over a sample.
        limits = _z_boundaries(frame.select(*sources), len(sources))
        keys_of = arrow_function(partial(interleaved, limits), "binary")
        added.append(keys_of(*sources).alias(Z_COLUMN))
    rows = frame.select("*", *added) if added else frame
    keys = [column(name) for name in partition]
    order = [key.asc_nulls_first() for key in keys]
    if layout.zorder:
        order.append(fn.col(Z_COLUMN).asc())
    elif layout.sort_order is not None:
        order += sort_columns(layout.sort_order, schema)
    if layout.mode == "range" and order:
        rows = rows.repartitionByRange(*order)
    elif layout.mode == "hash" and keys:
        # The hint lets Spark join small partitions and split large ones by their bytes.
        rows = rows.hint("rebalance", *keys)
    if order:
        rows = rows.sortWithinPartitions(*order)
    return rows.drop(Z_COLUMN) if layout.zorder else rows


def sort_columns(order: Mapping[str, Any], schema: StructType) -> list[Column]:
    """Return the columns that Spark sorts by for a sort order of the table's metadata."""
    columns = []
    for item in order["fields"]:
        source = sort_source(item, order["order-id"], schema)
        transform = parse_transform(item["transform"])
        column = source_column(schema, source.field_id)
        columns.append(_directed(transform_column(transform, source.type, column), item))
    return columns


def _directed(value: Column, item: Mapping[str, Any]) -> Column:
    """Apply direction and null order; Spark orders other values as Iceberg does."""
    nulls_first = item["null-order"].lower() == "nulls-first"
    if item["direction"].lower() == "asc":
        return value.asc_nulls_first() if nulls_first else value.asc_nulls_last()
    return value.desc_nulls_first() if nulls_first else value.desc_nulls_last()


# --- Z-order --------------------------------------------------------------------------------------


def z_sources(names: Sequence[str], schema: StructType) -> list[Column]:
    """Return the parts of the columns that count: of long texts and bytes only the beginning."""
    fields = z_fields(names, schema)
    return [_z_source(field, schema).alias(f"z{number}") for number, field in enumerate(fields)]


def _z_source(field: NestedField, schema: StructType) -> Column:
    column = source_column(schema, field.field_id)
    if field.type.type_id is TypeId.STRING:
        return fn.substring(column.cast("binary"), 1, KEY_BYTES)
    if field.type.type_id is TypeId.UUID:
        digits = fn.replace(column, fn.lit("-"), fn.lit(""))
        return fn.unhex(fn.substring(digits, 1, 2 * KEY_BYTES))
    if field.type.type_id in (TypeId.BINARY, TypeId.FIXED):
        return fn.substring(column, 1, KEY_BYTES)
    return column.cast("double") if field.type.type_id is TypeId.DECIMAL else column


def _z_boundaries(sources: DataFrame, count: int) -> tuple[Keys, ...]:
    rows = sources.mapInArrow(sample_rows, SAMPLE_SCHEMA).collect()
    return limits_of(((row[0], bytes(row[1])) for row in rows), count)
