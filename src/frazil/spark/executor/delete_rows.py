"""Tasks that read files of position deletes as rows, for the metadata table `position_deletes`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from frazil.datafiles.reading.deletes_reader import positions_by_file
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import position_array
from frazil.spark.executor.worker_tasks import keep_archives
from frazil.wire.scan_planning import PlannedDeleteFile

FILE: Final = "file"
"""The column of an item that has the delete file as JSON; the others are the same for its rows."""


@dataclass(frozen=True)
class DeleteRows:
    """Reads delete files; each item is a stream of Arrow with one row for a file."""

    schema: pa.Schema
    storage: Storage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archives()
        for batch in batches:
            for item in batch.column(0).to_pylist():
                yield from self._rows(pa.ipc.open_stream(item).read_next_batch())

    def _rows(self, item: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        file = msgspec.json.decode(item.column(FILE)[0].as_py(), type=PlannedDeleteFile)
        for path, positions in positions_by_file(file, self.storage).items():
            array = position_array(positions)
            rows = len(array)
            own = {
                "file_path": pa.repeat(pa.scalar(path), rows),
                "pos": pa.array(array, pa.int64()),
                "row": pa.nulls(rows, self.schema.field("row").type),
            }
            first = pa.array(np.zeros(rows, np.int64))
            columns = [
                own[name] if name in own else item.column(name).take(first)
                for name in self.schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
