"""Data files and delete files that fill in their declaration from a Parquet file's footer.

pyarrow is imported with the first file that is read, because the thin client works without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from frazil.extras import install_command, is_missing
from frazil.wire import declared_content as wire
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from frazil.datafiles.footers.footer_partitions import PartitionInput
    from frazil.datafiles.footers.footer_reader import ParquetReader
    from frazil.datafiles.portable_table import FileTable

Path: TypeAlias = str | os.PathLike[str]
Progress: TypeAlias = Callable[[int, int], None]

_READERS_PER_CPU = 4
_MAX_READERS = 32


class DataFile(wire.DeclaredDataFile, frozen=True, kw_only=True, gc=False, tag="data"):
    """A data file as a commit declares it."""

    @classmethod
    def from_parquet(
        cls,
        path: Path,
        table: FileTable | None = None,
        *,
        partition: PartitionInput | None = None,
        spec_id: int | None = None,
        sort_order_id: int | None = None,
        filesystem: Any = None,
    ) -> DataFile:
        """Declare a Parquet file by its footer.

        `partition` is needed if the footer does not prove the partition: one value for each field
        of the spec, or a mapping by the names of its fields. Without a table the file's own field
        ids and types are used, and it belongs to no partition.
        """
        reader = _reader(table, spec_id, filesystem)
        return cls(**reader.data_file(path, partition, sort_order_id))


class PositionDeleteFile(
    wire.PositionDeleteFile, frozen=True, kw_only=True, gc=False, tag="position-deletes"
):
    """A file that deletes rows by data file and position."""

    @classmethod
    def from_parquet(
        cls,
        path: Path,
        table: FileTable,
        *,
        partition: PartitionInput | None = None,
        spec_id: int | None = None,
        filesystem: Any = None,
    ) -> PositionDeleteFile:
        """Declare a file with the columns `file_path` (2147483546) and `pos` (2147483545).

        In a partitioned table, `partition` is that of the data files.
        """
        return cls(**_reader(table, spec_id, filesystem).position_delete_file(path, partition))


class EqualityDeleteFile(
    wire.EqualityDeleteFile, frozen=True, kw_only=True, gc=False, tag="equality-deletes"
):
    """A file that deletes the rows whose values in some columns equal those of one of its rows."""

    @classmethod
    def from_parquet(
        cls,
        path: Path,
        table: FileTable,
        *,
        equality_ids: Iterable[int] | None = None,
        columns: Iterable[str] | None = None,
        partition: PartitionInput | None = None,
        spec_id: int | None = None,
        sort_order_id: int | None = None,
        filesystem: Any = None,
    ) -> EqualityDeleteFile:
        """Declare a file; `equality_ids` or full names in `columns` say what is compared."""
        reader = _reader(table, spec_id, filesystem)
        return cls(
            **reader.equality_delete_file(path, equality_ids, columns, partition, sort_order_id)
        )


def read_data_files(
    paths: Sequence[Path],
    table: FileTable | None,
    *,
    partitions: Sequence[PartitionInput | None] | None = None,
    max_workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[DataFile, ...]:
    """Read many files in parallel, and return their declarations in the order of `paths`.

    `progress` is called in this thread with the number of finished files and of all files. The
    first error names its file and stops the reading.
    """
    paths = list(paths)
    file_partitions = [None] * len(paths) if partitions is None else list(partitions)
    if len(file_partitions) != len(paths):
        raise BadRequest(
            f"partitions: there are {len(file_partitions)} for {len(paths)} paths: give one each"
        )
    if not paths:
        return ()
    reader = _reader(table, None, None)
    workers = max_workers or min(_MAX_READERS, _READERS_PER_CPU * (os.cpu_count() or 1), len(paths))
    futures: list[Future[DataFile]] = []
    finished: SimpleQueue[Future[DataFile]] = SimpleQueue()
    with ThreadPoolExecutor(workers, thread_name_prefix="frazil-footers") as pool:
        try:
            for path, partition in zip(paths, file_partitions, strict=True):
                futures.append(pool.submit(_read, reader, path, partition))
                futures[-1].add_done_callback(finished.put)
            for done in range(1, len(paths) + 1):
                finished.get().result()
                if progress is not None:
                    progress(done, len(paths))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(future.result() for future in futures)


def _read(reader: ParquetReader, path: Path, partition: PartitionInput | None) -> DataFile:
    try:
        return DataFile(**reader.data_file(path, partition))
    except Exception as error:
        if not isinstance(error, BadRequest):
            error.add_note(f"while reading the footer of {os.fspath(path)}")
        raise


def _reader(table: FileTable | None, spec_id: int | None, filesystem: Any) -> ParquetReader:
    try:
        from frazil.datafiles.footers.footer_reader import ParquetReader
    except ModuleNotFoundError as error:
        if not is_missing(error, "parquet"):
            raise
        raise BadRequest(
            f"reading the footer of a Parquet file needs {error.name}, which is not installed. "
            f"Type: {install_command('parquet')}. Or declare the file by hand with "
            "frazil.DataFile(...)"
        ) from None
    return ParquetReader(table, spec_id, filesystem)
