"""Rewrites one group of files: reads their live rows, writes new files, and commits.

Rows are streamed in batches, so memory does not grow with the group. The rewrite remembers where
each row went: the rows of one partition fill the new files in the order in which they were read. So
if deletes of old rows are committed meanwhile, the rewrite writes deletes for the new files and
commits again, instead of throwing its work away.

A file of the group that another commit has removed is treated in the same way: its rows are deleted
from the new files, because they are gone or live in other files.

The commit keeps the snapshot that was read as its base, and with it the sequence number of the new
files: newer equality deletes still apply to them.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import Commit
from frazil.client.rows.row_files import positions_of
from frazil.client.rows.row_removal import RemovedDeletes, write_file_deletes
from frazil.client.rows.write_folders import Write
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    MIN_FORMAT_VERSION,
    POSITION,
    ROW_ID,
)
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.deletes_reader import deleted_positions
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import Positions, position_array
from frazil.datafiles.reading.scan_tasks import (
    DeletedRows,
    ScanTask,
    is_deletion_vector,
    task_of,
)
from frazil.datafiles.reading.task_reader import read_task
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.delete_file_writer import is_file_scoped
from frazil.datafiles.writing.row_partitions import Partitioner
from frazil.datafiles.writing.write_properties import file_options
from frazil.maintenance.file_groups import FileGroup
from frazil.maintenance.rewrite_options import RewriteOptions
from frazil.wire.errors import ValidationError
from frazil.wire.expressions import ALWAYS_TRUE
from frazil.wire.scan_planning import PlannedDataFile

_MAX_ROUNDS: Final = 20
"""How often a group is committed again because of new deletes."""
_OTHERS_REMOVED_ROWS: Final = frozenset(
    {
        "not-allowed-new-deletes-for-data-files",
        "required-data-files",
        "required-delete-files",
        "removed-file-not-live",
    }
)


@dataclass(frozen=True, slots=True)
class GroupRewrite:
    """A group to rewrite, and the snapshot that is read."""

    table: Table
    """The table as it was loaded when the groups were planned."""
    branch: str
    snapshot_id: int
    group: FileGroup
    options: RewriteOptions
    output_spec_id: int

    def run(self, write: Write) -> RewrittenGroup:
        """Write the new files and commit them."""
        rewritten = self._written(write)
        return self._commit(write, rewritten)

    # --- rows --------------------------------------------------------------------------------

    def _written(self, write: Write) -> _WrittenRows:
        facts, storage = PortableTable.of(self.table), write.folder.storage
        writer = ArrowFileWriter(
            facts,
            storage,
            write.folder.location,
            uuid4().hex[:12],
            options=file_options(
                self.table.properties,
                target_file_size_bytes=self.options.target_file_size,
                spec_id=self.output_spec_id,
            ),
            lineage=self._has_lineage,
        )
        partitioned = Partitioner(facts, self.output_spec_id)
        read = _ReadRows()
        try:
            for task in self.group.tasks:
                for rows in self._rows(task, facts, storage, read):
                    writer.write(partitioned(rows))
            files = [msgspec.json.decode(file, type=DataFile) for file in writer.close()]
        except BaseException:
            writer.abort()
            raise
        return _WrittenRows(tuple(files), read)

    @property
    def _has_lineage(self) -> bool:
        return self.table.format_version >= MIN_FORMAT_VERSION

    def _rows(
        self, task: ScanTask, facts: PortableTable, storage: Storage, read: _ReadRows
    ) -> Iterator[pa.RecordBatch]:
        lineage = (ROW_ID, LAST_UPDATED) if self._has_lineage else ()
        positions: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        columns = facts.schema
        for batch in read_task(
            task, facts, storage, columns, metadata_columns=(*lineage, POSITION)
        ):
            positions.append(batch.column(POSITION).to_numpy(zero_copy_only=False))
            yield batch.drop_columns([POSITION])
        read.add(task.file_path, positions_of(positions))

    # --- commit ------------------------------------------------------------------------------

    def _commit(self, write: Write, rows: _WrittenRows) -> RewrittenGroup:
        """Commit the group. Carry deletes of other commits over to the new files."""
        late = _LateDeletes(self.snapshot_id, self.group.tasks)
        for number in range(1, _MAX_ROUNDS + 1):
            try:
                return self._sent(write, rows, late)
            except ValidationError as refused:
                clauses = {conflict["clause"] for conflict in refused.conflicts}
                # With a new sequence number, newer equality deletes would no longer apply.
                can_follow = clauses <= _OTHERS_REMOVED_ROWS and self._new_number is not None
                if not can_follow or number == _MAX_ROUNDS:
                    raise
                newer = self._late_deletes(rows, write.folder.storage)
                if newer is None or newer.seen_at == late.seen_at:
                    raise
                late = newer
        raise AssertionError("unreachable: the loop ends by returning or raising")

    def _sent(self, write: Write, rows: _WrittenRows, late: _LateDeletes) -> RewrittenGroup:
        deletes = write_file_deletes(self.table, late.rows, write.folder)
        removed = tuple(_own_deletes(late.live))
        commit = write.commit(
            {file.file_path for file in (*rows.files, *deletes)},
            lambda: self.table.rewrite_files(
                [task.file_path for task in late.live],
                rows.files,
                remove_deletes=removed,
                add_deletes=deletes,
                data_sequence_number=self._new_number,
                deletes_seen_at=late.seen_at,
                base_snapshot_id=self.snapshot_id,
                branch=self.branch,
            ),
        )
        vectors = sum(any(map(is_deletion_vector, task.delete_files)) for task in late.live)
        return RewrittenGroup(self.group, rows.files, len(removed) + vectors, commit)

    @property
    def _new_number(self) -> int | None:
        """The sequence number of the new files, or None for that of the commit."""
        if not self.options.use_starting_sequence_number or self.table.format_version < 2:
            return None
        return self.table.snapshot(self.snapshot_id).sequence_number

    # --- late deletes ------------------------------------------------------------------------

    def _late_deletes(self, rows: _WrittenRows, storage: Storage) -> _LateDeletes | None:
        """Return which rows of the new files were deleted since the group was read.

        Returns None if they cannot be found, because the rows went to several partitions, and if
        no file of the group is left.
        """
        fresh = self.table.refreshed("refs")
        head = fresh.head(self.branch)
        if head is None or not self.group.is_one_partition:
            return None
        plan = fresh.plan(ALWAYS_TRUE, snapshot=head, use_snapshot_schema=False)
        live = {planned.data_file.file_path: task_of(planned) for planned in plan.tasks}
        tasks = [live[task.file_path] for task in self.group.tasks if task.file_path in live]
        if not tasks:
            return None
        deleted: list[int] = []
        for task in self.group.tasks:
            path = task.file_path
            now = deleted_positions(live[path], storage) if path in live else None
            deleted += rows.read.indexes(path, now)
        return _LateDeletes(head, tuple(tasks), tuple(rows.deleted_rows(deleted)))


@dataclass(frozen=True, slots=True)
class _LateDeletes:
    """What others have removed since the group was read."""

    seen_at: int
    """The snapshot up to which their deletes are known."""
    live: tuple[ScanTask, ...]
    """The files of the group that are still live, with their deletes."""
    rows: tuple[DeletedRows, ...] = ()
    """The rows of the new files that are deleted."""


def _own_deletes(tasks: Sequence[ScanTask]) -> Iterator[RemovedDeletes]:
    """Yield the position deletes that apply to one of the files only.

    The server removes the vectors of removed files by itself.
    """
    for task in tasks:
        for file in task.position_deletes:
            if is_file_scoped(file) and not is_deletion_vector(file):
                yield file.file_path


@dataclass(slots=True)
class _ReadRows:
    """The live rows that were read, in order: file after file, by ascending position."""

    _positions: dict[str, tuple[int, Positions]] = field(default_factory=dict)
    """For each file, how many rows were read before it, and the positions of its rows."""
    _count: int = 0

    def add(self, path: str, positions: Positions) -> None:
        self._positions[path] = self._count, positions
        self._count += len(positions)

    def indexes(self, path: str, deleted: Positions | None) -> list[int]:
        """Return the numbers of the rows of a file that were read and are deleted now; None for
        all of them."""
        before, positions = self._positions[path]
        late = position_array(positions if deleted is None else positions & deleted)
        return [before + positions.rank(int(position)) - 1 for position in late]


@dataclass(frozen=True, slots=True)
class _WrittenRows:
    files: tuple[DataFile, ...]
    """In the order in which they were filled."""
    read: _ReadRows

    def deleted_rows(self, indexes: Sequence[int]) -> Iterator[DeletedRows]:
        """Yield, for each new file with deleted rows, their positions in it."""
        ends = list(accumulate(file.record_count for file in self.files))
        by_file: dict[int, list[int]] = {}
        for index in sorted(indexes):
            number = bisect.bisect_right(ends, index)
            start = ends[number] - self.files[number].record_count
            by_file.setdefault(number, []).append(index - start)
        for number, positions in by_file.items():
            yield DeletedRows(_task_of(self.files[number]), Positions(positions))


def _task_of(file: DataFile) -> ScanTask:
    """Return a task for a file that is not committed yet, and so has no deletes."""
    return ScanTask(
        data_file=PlannedDataFile(
            file_path=file.file_path,
            file_format=file.file_format,
            spec_id=file.spec_id,
            partition=tuple(file.partition),
            file_size_in_bytes=file.file_size_in_bytes,
            record_count=file.record_count,
        )
    )


@dataclass(frozen=True, slots=True)
class RewrittenGroup:
    """The result of a group."""

    group: FileGroup
    files: tuple[DataFile, ...]
    removed_delete_files: int
    commit: Commit
