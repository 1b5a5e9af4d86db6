"""Rewrites groups of data files by jobs of Spark.

All tasks read and write through Arrow. Spark starts them where there is room, and moves rows
between them if rows are sorted or go to other partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException

from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.writing.write_properties import file_options
from frazil.maintenance.rewrite_engine import GroupWork, WrittenRows
from frazil.spark.core.context import Context, dealt_out
from frazil.spark.core.jvm_errors import translated
from frazil.spark.executor.rewrite_tasks import GroupFiles, PackedShare, PackFiles
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA, arrow_task
from frazil.spark.maintenance.group_shares import encoded_shares
from frazil.spark.maintenance.moved_rows import packed_rows
from frazil.spark.maintenance.sorted_rewrite import sorted_rewrite
from frazil.spark.writing.write_commit import stopped_by_failure
from frazil.wire.errors import FrazilError

NAME: Final = "spark"


@dataclass(frozen=True)
class SparkEngine:
    """Rewrites groups by jobs of a Spark session."""

    context: Context

    @property
    def name(self) -> str:
        return NAME

    def rewrite(self, work: GroupWork, folder: WriteFolder) -> WrittenRows:
        """Write the live rows of a group into files below the folder."""
        group = _group_files(work, folder)
        try:
            with translated(), stopped_by_failure(self.context.spark, folder):
                if work.order is None and work.group.is_one_partition:
                    return _packed(self.context, work, group)
                return sorted_rewrite(self.context, work, group)
        except PySparkException as error:
            # Other groups may be rewritten all the same.
            raise FrazilError(f"a job of Spark failed: {_last_line(str(error))}") from error


def _last_line(text: str) -> str:
    """Return the error of a task without the stacks of Python and the JVM."""
    return text.partition("JVM stacktrace:")[0].strip().rpartition("\n")[2]


def _group_files(work: GroupWork, folder: WriteFolder) -> GroupFiles:
    facts = PortableTable.of(work.table)
    options = file_options(
        facts.properties,
        target_file_size_bytes=work.max_written_size,
        sort_order_id=None if work.order is None else work.order.sort_order_id,
        spec_id=work.output_spec_id,
    )
    return GroupFiles(facts, folder.storage, folder.location, options)


def _packed(context: Context, work: GroupWork, group: GroupFiles) -> WrittenRows:
    """Write the rows in the order of their files, each file by one task."""
    shares = encoded_shares(work.group.tasks, work.file_count)
    frame = dealt_out(context.spark, "share", pa.array(shares, pa.binary()), len(shares))
    rows = frame.mapInArrow(arrow_task(PackFiles(group)), RESULT_SCHEMA).collect()
    packed = [msgspec.msgpack.decode(bytes(row[0]), type=PackedShare) for row in rows]
    files = [
        tuple(msgspec.json.decode(file, type=DataFile) for file in share.files) for share in packed
    ]
    return WrittenRows(
        files=tuple(file for of_share in files for file in of_share),
        row_map=packed_rows(packed, files),
    )
