"""Rewrites groups of files in this process, with pyarrow.

Rows are streamed in batches, so memory does not grow with the group. If they are sorted, they go
through temporary files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from frazil.client.rows.row_files import positions_of
from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    MIN_FORMAT_VERSION,
    POSITION,
    ROW_ID,
)
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.footers.footer_partitions import partition_fields_of
from frazil.datafiles.ordering.external_sort import sorted_rows
from frazil.datafiles.ordering.sort_keys import (
    ByAll,
    ByPartition,
    ByZOrder,
    RowOrder,
    sort_fields,
    z_columns,
)
from frazil.datafiles.ordering.z_order_keys import limits_of, sample_rows, z_fields
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import Positions
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.reading.task_reader import read_task
from frazil.datafiles.writing.data_file_writer import ROW_NUMBER, ArrowFileWriter
from frazil.datafiles.writing.row_partitions import Partitioner, source_path
from frazil.datafiles.writing.write_properties import file_options
from frazil.maintenance.rewrite_engine import GroupWork, WrittenRows
from frazil.maintenance.row_places import FilledInOrder, MovedRows, PlacedRows, ReadRows
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest

NAME: Final = "local"


class LocalEngine:
    """Rewrites groups in the calling threads."""

    name = NAME

    def rewrite(self, work: GroupWork, folder: WriteFolder) -> WrittenRows:
        """Write the live rows of a group into files below the folder."""
        return _Rewrite(work, folder, PortableTable.of(work.table)).run()


@dataclass(frozen=True, slots=True)
class _Rewrite:
    work: GroupWork
    folder: WriteFolder
    facts: PortableTable

    def run(self) -> WrittenRows:
        read = ReadRows()
        rows = map(Partitioner(self.facts, self._spec_id), self._rows(read))
        order = self._order()
        placed = None if order is None else PlacedRows(self._max_rows)
        writer = self._writer(placed)
        try:
            for batch in rows if order is None else sorted_rows(rows, order):
                writer.write(batch)
            files = tuple(msgspec.json.decode(file, type=DataFile) for file in writer.close())
        except BaseException:
            writer.abort()
            raise
        places = FilledInOrder(files) if placed is None else placed
        return WrittenRows(files=files, row_map=MovedRows(read, places))

    def _writer(self, placed: PlacedRows | None) -> ArrowFileWriter:
        order = self.work.order
        return ArrowFileWriter(
            self.facts,
            self.folder.storage,
            self.folder.location,
            uuid4().hex[:12],
            options=file_options(
                self.work.table.properties,
                target_file_size_bytes=self.work.options.target_file_size,
                sort_order_id=None if order is None else order.sort_order_id,
                spec_id=self._spec_id,
            ),
            lineage=self._has_lineage,
            placed=None if placed is None else placed.place,
        )

    @property
    def _has_lineage(self) -> bool:
        return self.facts.format_version >= MIN_FORMAT_VERSION

    @property
    def _max_rows(self) -> int:
        return sum(task.data_file.record_count for task in self.work.group.tasks)

    # --- order -------------------------------------------------------------------------------

    def _order(self) -> RowOrder | None:
        """Return the order in which rows are written; None for that of the files."""
        orders: list[RowOrder] = []
        if not self.work.group.is_one_partition:
            # Else there would be many small files, because few can be open at once.
            orders.append(ByPartition(len(partition_fields_of(self.facts, self._spec_id))))
        order = self.work.order
        if order is not None and order.sort_order is not None:
            orders += sort_fields(order.sort_order, self.facts.schema)
        elif order is not None:
            orders.append(self._z_order(order.z_order))
        return ByAll(tuple(orders)) if orders else None

    def _z_order(self, names: Sequence[str]) -> ByZOrder:
        schema = self.facts.schema
        columns = tuple(
            (field.type, source_path(schema, field.field_id)) for field in z_fields(names, schema)
        )
        top_level = {path[0] for _, path in columns}
        read = StructType(tuple(field for field in schema.fields if field.name in top_level))
        sampled = (
            pa.record_batch(z_columns(batch, columns), [f"z{at}" for at in range(len(columns))])
            for task in self.work.group.tasks
            for batch in read_task(task, self.facts, self.folder.storage, read)
        )
        (samples,) = sample_rows(sampled)
        rows = zip(*(column.to_pylist() for column in samples.columns), strict=True)
        return ByZOrder(columns, limits_of(rows, len(columns)))

    # --- rows --------------------------------------------------------------------------------

    @property
    def _spec_id(self) -> int:
        return self.work.output_spec_id

    def _rows(self, read: ReadRows) -> Iterator[pa.RecordBatch]:
        """Yield the live rows with their numbers."""
        for task in self.work.group.tasks:
            yield from _numbered(task, self.facts, self.folder.storage, read)


def _numbered(
    task: ScanTask, facts: PortableTable, storage: Storage, read: ReadRows
) -> Iterator[pa.RecordBatch]:
    lineage = (ROW_ID, LAST_UPDATED) if facts.format_version >= MIN_FORMAT_VERSION else ()
    positions = BitMap64()
    next_number = read.count
    for batch in read_task(
        task, facts, storage, facts.schema, metadata_columns=(*lineage, POSITION)
    ):
        # Batch by batch, because a file may have so many rows that a list of them is large.
        positions |= positions_of([batch.column(POSITION).to_numpy(zero_copy_only=False)])
        numbers = pa.array(np.arange(next_number, next_number + batch.num_rows))
        next_number += batch.num_rows
        if next_number - read.count > task.data_file.record_count:
            raise BadRequest(
                f"{task.file_path}: has more rows than its record count, "
                f"{task.data_file.record_count}"
            )
        yield batch.drop_columns([POSITION]).append_column(ROW_NUMBER, numbers)
    read.add(task.file_path, Positions(positions))
