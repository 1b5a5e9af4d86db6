"""How rows are brought together before they are written, by `write.distribution-mode`.

Defaults are those of Iceberg 1.12 (`SparkWriteConf`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.datafiles.portable_table import PortableTable
from frazil.spark.writing.ordering import sort_columns
from frazil.spark.writing.z_order import Z_COLUMN, z_order_column
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest

ADVISORY_SIZE: Final = "write.spark.advisory-partition-size-bytes"
_ADVISORY_CONF: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_ADVISED_FILE_BYTES: Final = 128 << 20
_SHUFFLED_BYTES: Final = {"uncompressed": 1, "snappy": 2, "lz4": 2}
"""Of a shuffle for a byte of a file; for the codecs that compress more it is 3."""
MODES: Final = ("none", "hash", "range")
COMMANDS: Final = ("write", "delete", "update", "merge")


@dataclass(frozen=True)
class Layout:
    mode: str
    sort_order: Mapping[str, Any] | None
    """What rows are sorted by within a partition, as the table's metadata has it."""
    zorder: tuple[str, ...] = ()

    @property
    def sort_order_id(self) -> int | None:
        """Of the files: only if their rows are really sorted by it."""
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
    is_partitioned = _is_partitioned(facts, spec_id)
    if zorder:
        return Layout("range", None, tuple(zorder))
    mode = distribution or _property(facts, command)
    if mode is None:
        mode = _default(command, is_partitioned=is_partitioned, is_sorted=is_sorted)
    mode = _checked(mode)
    if mode == "hash" and not is_partitioned:
        mode = "none"
    if mode == "range" and not (is_partitioned or is_sorted):
        mode = "none"
    return Layout(mode, order if is_sorted else None)


def _is_partitioned(facts: PortableTable, spec_id: int | None) -> bool:
    return any(field["transform"].lower() != "void" for field in facts.spec(spec_id)["fields"])


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


def _checked(mode: str) -> str:
    if mode.lower() not in MODES:
        raise BadRequest(f"distribution mode: {mode!r} is none of {', '.join(MODES)}")
    return mode.lower()


def shuffle_settings(facts: PortableTable, codec: str) -> dict[str, str]:
    """How much Spark should give to a task after the shuffle of a write.

    Its own default makes files that are small for a table; Iceberg's is as here.
    """
    given = facts.properties.get(ADVISORY_SIZE)
    if given is not None and not (given.isdecimal() and int(given)):
        raise BadRequest(f"the table's property {ADVISORY_SIZE}: {given!r} is no number of bytes")
    return {_ADVISORY_CONF: given or str(_ADVISED_FILE_BYTES * _SHUFFLED_BYTES.get(codec, 3))}


def spread(
    frame: DataFrame, partition: Mapping[str, Column], layout: Layout, schema: StructType
) -> DataFrame:
    """The frame with its partition columns added, its rows distributed and sorted.

    The partition columns have names that the frame does not have.
    """
    added = [column.alias(name) for name, column in partition.items()]
    if layout.zorder:
        added.append(z_order_column(frame, layout.zorder, schema))
    rows = frame.select("*", *added) if added else frame
    keys = [fn.col(_quoted(name)) for name in partition]
    order = [key.asc_nulls_first() for key in keys]
    if layout.zorder:
        order.append(fn.col(Z_COLUMN).asc())
    elif layout.sort_order is not None:
        order += sort_columns(layout.sort_order, schema)
    if layout.mode == "range" and order:
        rows = rows.repartitionByRange(*order)
    elif layout.mode == "hash" and keys:
        # Spark then joins what is small and splits what is large, by the bytes that it sees.
        rows = rows.hint("rebalance", *keys)
    if order:
        rows = rows.sortWithinPartitions(*order)
    return rows.drop(Z_COLUMN) if layout.zorder else rows


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
