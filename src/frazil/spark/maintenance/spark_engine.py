"""Rewrites groups of data files by jobs of Spark.

Files of one partition are packed by tasks that read and write through Arrow, without rows in the
JVM. To sort rows, or to spread them over the partitions of another spec, Spark shuffles them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.arrow.metadata_columns import MIN_FORMAT_VERSION
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.scan_tasks import ScanTask, split_tasks
from frazil.datafiles.writing.write_properties import file_options
from frazil.maintenance.rewrite_engine import GroupWork, WrittenRows
from frazil.spark.core.context import Context, dealt_out
from frazil.spark.core.jvm_errors import translated
from frazil.spark.executor.rewrite_tasks import PackedShare, PackFiles, pack_task
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA
from frazil.spark.maintenance.moved_rows import packed_rows
from frazil.spark.maintenance.shuffled_rewrite import shuffled_rewrite
from frazil.spark.writing.write_commit import stopped_by_failure

NAME: Final = "spark"
_PART_BYTES: Final = 16 << 20
"""Larger files are read in parts, by several tasks."""


@dataclass(frozen=True)
class SparkEngine:
    """Rewrites groups by jobs of a Spark session."""

    context: Context

    @property
    def name(self) -> str:
        return NAME

    def rewrite(self, work: GroupWork, folder: WriteFolder) -> WrittenRows:
        """Write the live rows of a group into files below the folder."""
        with translated(), stopped_by_failure(self.context.spark, folder):
            if work.order is None and work.group.is_one_partition:
                return _packed(self.context, work, folder)
            return shuffled_rewrite(self.context, work, folder)


def _packed(context: Context, work: GroupWork, folder: WriteFolder) -> WrittenRows:
    facts = PortableTable.of(work.table)
    options = file_options(
        facts.properties, target_file_size_bytes=work.max_written_size, spec_id=work.output_spec_id
    )
    pack = PackFiles(
        facts,
        folder.storage,
        folder.location,
        options,
        lineage=facts.format_version >= MIN_FORMAT_VERSION,
    )
    shares = [
        msgspec.msgpack.encode([task.to_json() for task in share])
        for share in shares_of(work.group.tasks, work.file_count)
    ]
    frame = dealt_out(context.spark, "share", pa.array(shares, pa.binary()), len(shares))
    rows = frame.mapInArrow(pack_task(pack), RESULT_SCHEMA).collect()
    packed = [msgspec.msgpack.decode(bytes(row[0]), type=PackedShare) for row in rows]
    files = [
        tuple(msgspec.json.decode(file, type=DataFile) for file in share.files) for share in packed
    ]
    return WrittenRows(
        files=tuple(file for of_share in files for file in of_share),
        row_map=packed_rows(packed, files),
    )


def shares_of(tasks: Sequence[ScanTask], count: int) -> list[list[ScanTask]]:
    """Split tasks into shares of about equal size, in their order.

    A large file may be in several shares, each of which has some of its row groups.
    """
    parts = list(split_tasks(tasks, _PART_BYTES))
    total = sum(_size(part) for part in parts)
    shares: list[list[ScanTask]] = [[]]
    size = 0
    for part in parts:
        # A part belongs to the share that its middle is in.
        if shares[-1] and (size + _size(part) / 2) * count >= len(shares) * total:
            shares.append([])
        last = shares[-1][-1] if shares[-1] else None
        if last is not None and last.file_path == part.file_path:
            shares[-1][-1] = _joined(last, part)
        else:
            shares[-1].append(part)
        size += _size(part)
    return shares


def _size(task: ScanTask) -> int:
    own = task.length
    return task.data_file.file_size_in_bytes - task.start if own is None else own


def _joined(first: ScanTask, second: ScanTask) -> ScanTask:
    """Return one task for two parts that follow each other in a file."""
    length = None if second.length is None else second.start + second.length - first.start
    return msgspec.structs.replace(first, length=length)
