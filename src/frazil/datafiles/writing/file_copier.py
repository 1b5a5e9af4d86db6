"""Copies a data file without its deleted rows, for copy-on-write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import msgspec

from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.footers.footer_partitions import partition_fields_of
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

_NO_SIZE_LIMIT: Final = 1 << 62
"""A copy is never larger than its file, so it is not split."""


@dataclass(frozen=True, slots=True)
class CopyWork:
    """Copies the files of encoded `DeletedRows`."""

    table: PortableTable
    storage: Storage
    folder: str
    options: FileOptions

    def __call__(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        for payload in payloads:
            copied = self.copy(DeletedRows.decode(payload))
            if copied is not None:
                yield msgspec.json.encode(copied)

    def copy(self, rows: DeletedRows) -> DataFile | None:
        """Copy one file; return None if no row is left."""
        task = rows.task
        deleted = rows.positions | Positions(deleted_positions(task, self.storage))
        if len(deleted) >= task.data_file.record_count:
            return None
        options = replace(
            self.options,
            target_file_size_bytes=_NO_SIZE_LIMIT,
            spec_id=task.data_file.spec_id,
            sort_order_id=task.data_file.sort_order_id,
        )
        path = f"{self.folder}/{uuid4()}.parquet"
        file = RollingFile(self.storage, path, copied_schema(task, self.table), options)
        try:
            for batch in live_rows(task, self.table, self.storage, deleted):
                while batch.num_rows:
                    batch = file.write(batch)
            written = file.close()
        except BaseException:
            file.abort()
            raise
        if written is None:
            return None
        reader = ParquetReader(self.table, options.spec_id)
        return declared_file(reader, written, self._partition(task), options)

    def _partition(self, task: ScanTask) -> tuple[object, ...]:
        """Return the file's partition; dropped columns have no value but null."""
        fields = partition_fields_of(self.table, task.data_file.spec_id)
        return tuple(
            None if field.source is None else value
            for field, value in zip(fields, task.data_file.partition, strict=True)
        )
