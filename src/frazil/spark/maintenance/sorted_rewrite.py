"""Rewrites a group whose rows are sorted, or spread over several partitions.

Tasks split the rows into ranges of keys, Spark moves the ranges as bytes, and other tasks sort and
write them. A group that needs one file is read and sorted by one task.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import count
from typing import Final

import mmh3
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.footers.footer_partitions import partition_fields_of
from frazil.datafiles.ordering.sort_keys import (
    ByAll,
    ByPartition,
    ByZOrder,
    RowOrder,
    sort_fields,
    sort_source,
)
from frazil.datafiles.ordering.z_order_keys import limits_of, z_fields
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.writing.row_partitions import source_path
from frazil.maintenance.rewrite_engine import GroupWork, WrittenRows
from frazil.spark.core.borrowed_settings import session_settings
from frazil.spark.core.context import Context, dealt_out
from frazil.spark.executor.rewrite_tasks import GroupFiles
from frazil.spark.executor.sort_tasks import (
    SPLIT_SCHEMA,
    WEIGHT,
    ByNumber,
    SampleKeys,
    SampleZValues,
    SplitRows,
    WriteSorted,
    decoded,
    encoded,
)
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA, BatchWork, arrow_task
from frazil.spark.maintenance.group_shares import encoded_shares
from frazil.spark.maintenance.moved_rows import NumberedRows
from frazil.values.types import StructType

_SHARE_BYTES: Final = 32 << 20
"""How much a task should read that splits rows."""
_BATCH_CONF: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MAX_BATCH: Final = 16
"""How many batches of rows, each of a megabyte or more, a task gets at once."""
_HASH_SEED: Final = 42
"""Spark's seed for the hash by which it sends rows to tasks."""


def sorted_rewrite(context: Context, work: GroupWork, group: GroupFiles) -> WrittenRows:
    """Write the live rows of a group in their order, or in that of their partitions."""
    ranges = work.file_count
    size = work.group.size_in_bytes
    shares = 1 if ranges == 1 else max(ranges, -(-size // _SHARE_BYTES))
    rewrite = _Sort(context, work, group, encoded_shares(work.group.tasks, shares))
    with session_settings(context.spark, {_BATCH_CONF: str(_MAX_BATCH)}):
        files = rewrite.whole() if ranges == 1 else rewrite.by_range(ranges)
    rows = NumberedRows(context.spark, group.storage, work.group.tasks, files)
    return WrittenRows(files=files, row_map=rows)


class _Sort:
    """The jobs of one group."""

    def __init__(
        self, context: Context, work: GroupWork, group: GroupFiles, shares: Sequence[bytes]
    ) -> None:
        self._work = work
        self._group = group
        array = pa.array(shares, pa.binary())
        self._shares = dealt_out(context.spark, "share", array, len(shares))
        self._order = self._row_order()

    def whole(self) -> tuple[DataFile, ...]:
        """Sort all rows in one task."""
        return _files(self._shares, WriteSorted(self._group, self._order, is_split=False))

    def by_range(self, ranges: int) -> tuple[DataFile, ...]:
        """Sort each range of keys in a task."""
        sample = SampleKeys(self._group, self._columns(), self._order)
        limits = range_limits(_results(self._shares, sample), self._order, ranges)
        parts = partition_numbers(limits.num_rows + 1)
        split = SplitRows(self._group, self._order, encoded(limits), parts)
        rows = self._shares.mapInArrow(split, SPLIT_SCHEMA).repartition(len(parts), "part")
        return _files(rows, WriteSorted(self._group, self._order, is_split=True))

    # --- the order of rows -------------------------------------------------------------------

    @property
    def _facts(self) -> PortableTable:
        return self._group.facts

    def _row_order(self) -> RowOrder:
        orders: list[RowOrder] = []
        if not self._work.group.is_one_partition:
            fields = partition_fields_of(self._facts, self._work.output_spec_id)
            orders.append(ByPartition(len(fields)))
        order = self._work.order
        if order is not None and order.sort_order is not None:
            orders += sort_fields(order.sort_order, self._facts.schema)
        elif order is not None:
            orders.append(self._z_order(order.z_order))
        return ByAll((*orders, ByNumber()))

    def _z_order(self, names: Sequence[str]) -> ByZOrder:
        schema = self._facts.schema
        columns = tuple(
            (field.type, source_path(schema, field.field_id)) for field in z_fields(names, schema)
        )
        sample = SampleZValues(self._group, self._columns(), columns)
        rows = pa.concat_tables(map(decoded, _results(self._shares, sample)))
        pairs = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        return ByZOrder(columns, limits_of(pairs, len(columns)))

    def _columns(self) -> StructType:
        """Return the top-level columns that the order is computed from."""
        schema, order = self._facts.schema, self._work.order
        fields = partition_fields_of(self._facts, self._work.output_spec_id)
        ids = {field.source_id for field in fields}
        if order is not None and order.sort_order is not None:
            items = order.sort_order["fields"]
            ids |= {sort_source(item, -1, schema).field_id for item in items}
        elif order is not None:
            ids |= {field.field_id for field in z_fields(order.z_order, schema)}
        names = {path[0] for path in (source_path(schema, each) for each in ids) if path}
        return StructType(tuple(field for field in schema.fields if field.name in names))


def _results(shares: DataFrame, work: BatchWork) -> list[bytes]:
    rows = shares.mapInArrow(arrow_task(work), RESULT_SCHEMA).collect()
    return [bytes(row[0]) for row in rows]


def _files(rows: DataFrame, work: BatchWork) -> tuple[DataFile, ...]:
    return tuple(msgspec.json.decode(file, type=DataFile) for file in _results(rows, work))


# --- ranges ---------------------------------------------------------------------------------------


def range_limits(samples: Sequence[bytes], order: RowOrder, ranges: int) -> pa.Table:
    """Return the keys at which all ranges but the first begin, for ranges of about equal size."""
    sample = pa.concat_tables(map(decoded, samples)).combine_chunks()
    keys = sample.drop_columns([WEIGHT])
    sort_keys = [
        (name, "descending" if is_descending else "ascending")
        for name, is_descending in zip(keys.column_names, order.descending, strict=True)
    ]
    indexes = pc.sort_indices(keys, sort_keys=sort_keys)
    weights = sample.column(WEIGHT).take(indexes).to_numpy()
    ends = np.cumsum(weights)
    wanted = np.linspace(0, ends[-1], ranges + 1)[1:-1]
    rows = np.unique(np.searchsorted(ends, wanted, side="right"))
    return keys.take(indexes.take(pa.array(rows[rows < len(ends)])))


def partition_numbers(partitions: int) -> tuple[int, ...]:
    """Return numbers that Spark's hash partitioning sends to the partitions 0, 1, 2 and so on.

    If it sent two to one task, that task would sort both ranges.
    """
    numbers: dict[int, int] = {}
    for number in count():
        numbers.setdefault(mmh3.hash(struct.pack("<i", number), _HASH_SEED) % partitions, number)
        if len(numbers) == partitions:
            return tuple(numbers[partition] for partition in range(partitions))
    raise AssertionError("unreachable: the loop has no end")
