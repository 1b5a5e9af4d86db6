"""Finds the rows that equality deletes delete, for many data files and many delete files at once.

The keys of all delete files that compare the same columns in the same partition are one table: for
each key the greatest sequence number of its delete files. A row is deleted if its key's number is
above that of its data file. So a data file is read once, however many delete files apply to it,
and memory is bounded: if there are too many keys, the data files are read several times.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from frazil.datafiles.arrow.metadata_columns import POSITION
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.deletes_reader import (
    KeySet,
    Numbers,
    compared_columns,
    compared_schema,
    read_keys,
)
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import NO_POSITIONS, Positions
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.reading.task_reader import BATCH_ROWS, read_task
from frazil.values.types import StructType
from frazil.wire.errors import UnsupportedOperation
from frazil.wire.scan_planning import PlannedDeleteFile

MAX_KEYS: Final = 4_000_000
"""The number of keys in memory."""
_MAX_BATCH_ROWS: Final = 1 << 20


class NumberedKeys:
    """Keys with the greatest sequence number of the deletes that have each."""

    def __init__(self, columns: Sequence[pa.Array], numbers: Numbers) -> None:
        self._keys = KeySet(columns)
        count = int(self._keys.numbers.max()) + 1 if len(numbers) else 0
        self._numbers = np.full(count + 1, -1)
        """The last one, at index -1, is that of rows that are no keys."""
        np.maximum.at(self._numbers, self._keys.numbers, numbers)

    def __len__(self) -> int:
        return len(self._numbers) - 1

    def latest(self, columns: Sequence[pa.Array]) -> Numbers:
        """Return the sequence number of the last delete of each row, or -1."""
        found: Numbers = self._numbers[self._keys.find(columns)]
        return found


@dataclass(frozen=True)
class EqualityMatches:
    """The deletes of one table. `in_threads` runs a function on many items."""

    table: PortableTable
    storage: Storage
    max_keys: int = MAX_KEYS

    def find(
        self,
        tasks: Sequence[ScanTask],
        in_threads: Callable[
            [Callable[[ScanTask], Positions], Iterable[ScanTask]], list[Positions]
        ],
    ) -> dict[str, Positions]:
        """Return the positions of the rows that equality deletes delete, by data file.

        The tasks are planned with sequence numbers. Rows that are deleted by position are left out.
        """
        found = {task.file_path: NO_POSITIONS for task in tasks}
        for (field_ids, *_), scope in _scopes(tasks).items():
            files, own = list(scope.deletes.values()), list(scope.tasks.values())
            schema = compared_schema(self.table, field_ids, files[0].file_path)
            for keys in self._keys(files, schema, field_ids):
                search = _Search(self.table, self.storage, schema, field_ids, keys)
                for task, positions in zip(own, in_threads(search, own), strict=True):
                    found[task.file_path] |= positions
        return found

    def _keys(
        self, files: Sequence[PlannedDeleteFile], schema: StructType, field_ids: tuple[int, ...]
    ) -> Iterator[NumberedKeys]:
        for chunk in _chunks(files, self.max_keys):
            parts = [read_keys(file, schema, field_ids, self.storage) for file in chunk]
            numbers = [
                np.full(len(part[0]), number_of(file))
                for file, part in zip(chunk, parts, strict=True)
            ]
            filled = [part for part in parts if len(part[0])]
            if filled:
                columns = [pa.concat_arrays(each) for each in zip(*filled, strict=True)]
                yield NumberedKeys(columns, np.concatenate(numbers))


@dataclass(frozen=True)
class _Search:
    table: PortableTable
    storage: Storage
    schema: StructType
    field_ids: tuple[int, ...]
    keys: NumberedKeys

    def __call__(self, task: ScanTask) -> Positions:
        number = number_of(task.data_file)
        bare = msgspec.structs.replace(task, delete_files=task.position_deletes)
        numbers: list[Numbers] = []
        # Looking rows up takes time for each key, so many keys need large batches.
        batch_rows = min(max(BATCH_ROWS, len(self.keys)), _MAX_BATCH_ROWS)
        for batch in read_task(
            bare,
            self.table,
            self.storage,
            self.schema,
            metadata_columns=(POSITION,),
            batch_rows=batch_rows,
        ):
            latest = self.keys.latest(compared_columns(batch, self.schema, self.field_ids))
            positions = batch.column(POSITION).to_numpy(zero_copy_only=False)
            numbers.append(positions[latest > number])
        if not numbers:
            return NO_POSITIONS
        return Positions(array("Q", np.concatenate(numbers).astype(np.uint64).tobytes()))


def number_of(file: object) -> int:
    """Return the sequence number of a planned file."""
    number: int | None = getattr(file, "data_sequence_number", None)
    if number is None:
        raise UnsupportedOperation("the catalog does not plan with sequence numbers of files")
    return number


@dataclass(frozen=True)
class _Scope:
    """Delete files that compare the same fields in the same partition, and their data files."""

    deletes: dict[str, PlannedDeleteFile] = field(default_factory=dict)
    tasks: dict[str, ScanTask] = field(default_factory=dict)


def _scopes(tasks: Iterable[ScanTask]) -> Mapping[tuple[tuple[int, ...], int, str], _Scope]:
    """Return the scopes by field ids, partition spec and partition."""
    scopes: dict[tuple[tuple[int, ...], int, str], _Scope] = {}
    for task in tasks:
        for file in task.equality_deletes:
            ids = tuple(sorted(file.equality_ids or ()))
            scope = scopes.setdefault((ids, file.spec_id, repr(file.partition)), _Scope())
            scope.deletes[file.file_path] = file
            scope.tasks[task.file_path] = task
    return scopes


def _chunks(files: Sequence[PlannedDeleteFile], max_keys: int) -> Iterator[list[PlannedDeleteFile]]:
    chunk: list[PlannedDeleteFile] = []
    keys = 0
    for file in files:
        if chunk and keys + file.record_count > max_keys:
            yield chunk
            chunk, keys = [], 0
        chunk.append(file)
        keys += file.record_count
    if chunk:
        yield chunk
