"""Copies one data file without the rows that go. Runs on executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import msgspec

from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.footers.footer_partitions import partition_fields
from frazil.datafiles.footers.footer_reader import ParquetReader
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.deletes_reader import deleted_positions
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import Positions
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.datafiles.reading.task_reader import copied_schema, live_rows
from frazil.datafiles.writing.data_file_writer import declared_file
from frazil.datafiles.writing.rolling_file import RollingFile
from frazil.datafiles.writing.write_properties import FileOptions
from frazil.values.types import fields_by_id

_NO_LIMIT: Final = 1 << 62
"""A copy is never larger than its file, so it is not divided."""


@dataclass(frozen=True, slots=True)
class CopyWork:
    facts: PortableTable
    storage: Storage
    folder: str
    options: FileOptions

    def __call__(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        for payload in payloads:
            copied = self.copy(DeletedRows.decode(payload))
            if copied is not None:
                yield msgspec.json.encode(copied)

    def copy(self, touched: DeletedRows) -> DataFile | None:
        task = touched.task
        gone = touched.positions | Positions(deleted_positions(task, self.storage))
        if len(gone) >= task.data_file.record_count:
            return None
        options = replace(
            self.options,
            target_file_size_bytes=_NO_LIMIT,
            spec_id=task.data_file.spec_id,
            sort_order_id=task.data_file.sort_order_id,
        )
        path = f"{self.folder}/{uuid4()}.parquet"
        file = RollingFile(self.storage, path, copied_schema(task, self.facts), options)
        try:
            for rows in live_rows(task, self.facts, self.storage, gone):
                while rows.num_rows:
                    rows = file.write(rows)
            written = file.close()
        except BaseException:
            file.abort()
            raise
        if written is None:
            return None
        reader = ParquetReader(self.facts, options.spec_id)
        return declared_file(reader, written, self._partition(task), options)

    def _partition(self, task: ScanTask) -> tuple[object, ...]:
        """Of a column that was dropped, readers and the catalog know null alone."""
        spec = self.facts.spec(task.data_file.spec_id)
        fields = partition_fields(spec, fields_by_id(self.facts.schema))
        return tuple(
            None if field.source is None else value
            for field, value in zip(fields, task.data_file.partition, strict=True)
        )
