"""Data files and delete files as a commit declares them, read from the files' own footers.

pyarrow is loaded with the first file that is read, and not before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from frazil.wire import declared_content as wire
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from frazil.datafiles.footers.footer_partitions import GivenPartition
    from frazil.datafiles.footers.footer_reader import ParquetReader
    from frazil.datafiles.portable_table import FileTable

Path: TypeAlias = str | os.PathLike[str]
Progress: TypeAlias = Callable[[int, int], None]

_READERS_PER_CPU = 4
_MAX_READERS = 32


class DataFile(wire.DeclaredDataFile, frozen=True, kw_only=True, gc=False, tag="data"):
    """A data file; `from_parquet` fills in what the file itself can tell."""

    @classmethod
    def from_parquet(
        cls,
        path: Path,
        table: FileTable | None = None,
        *,
        partition: GivenPartition | None = None,
        spec_id: int | None = None,
        sort_order_id: int | None = None,
        filesystem: Any = None,
    ) -> DataFile:
        """Reads the footer of a Parquet file and declares what it says.

        `partition` is needed where the footer does not prove the partition: one value for each
        field of the spec, or a mapping by the names of its fields. Without a table the file's own
        field ids and types are taken, and it belongs to no partition.
        """
        reader = _reader(table, spec_id, filesystem)
        return cls(**reader.data_file(path, partition, sort_order_id))


class PositionDeleteFile(
    wire.PositionDeleteFile, frozen=True, kw_only=True, gc=False, tag="position-deletes"
):
    """Deletes of rows by data file and position."""

    @classmethod
    def from_parquet(
        cls,
        path: Path,
        table: FileTable,
        *,
        partition: GivenPartition | None = None,
        spec_id: int | None = None,
        filesystem: Any = None,
    ) -> PositionDeleteFile:
        """Reads a file of the columns `file_path` (2147483546) and `pos` (2147483545).

        Where the table is partitioned, `partition` is that of the data files.
        """
        with _pyarrow_required():
            from frazil.datafiles.footers.delete_file_footers import position_deletes
        return cls(
            **position_deletes(
                path, table, partition=partition, spec_id=spec_id, filesystem=filesystem
            )
        )


class EqualityDeleteFile(
    wire.EqualityDeleteFile, frozen=True, kw_only=True, gc=False, tag="equality-deletes"
):
    """Deletes of rows whose values in some columns are those of a row of the file."""

    @classmethod
    def from_parquet(
        cls,
        path: Path,
        table: FileTable,
        *,
        equality_ids: Iterable[int] | None = None,
        columns: Iterable[str] | None = None,
        partition: GivenPartition | None = None,
        spec_id: int | None = None,
        sort_order_id: int | None = None,
        filesystem: Any = None,
    ) -> EqualityDeleteFile:
        """`equality_ids`, or the full names in `columns`, say which columns are compared."""
        with _pyarrow_required():
            from frazil.datafiles.footers.delete_file_footers import equality_deletes
        return cls(
            **equality_deletes(
                path,
                table,
                equality_ids=equality_ids,
                columns=columns,
                partition=partition,
                spec_id=spec_id,
                sort_order_id=sort_order_id,
                filesystem=filesystem,
            )
        )


def read_data_files(
    paths: Sequence[Path],
    table: FileTable | None,
    *,
    partitions: Sequence[GivenPartition | None] | None = None,
    max_workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[DataFile, ...]:
    """Reads many files at once; the answer is in the order of `paths`.

    `progress` is called in this thread with the number of files that are done and of all. The
    first error ends it: its file is named, and files that nobody has begun with are left.
    """
    paths = list(paths)
    given = [None] * len(paths) if partitions is None else list(partitions)
    if len(given) != len(paths):
        raise BadRequest(
            f"partitions: there are {len(given)} for {len(paths)} paths: give one each"
        )
    if not paths:
        return ()
    work = _Work(_reader(table, None, None))
    workers = max_workers or min(_MAX_READERS, _READERS_PER_CPU * (os.cpu_count() or 1), len(paths))
    files: list[DataFile | None] = [None] * len(paths)
    with ThreadPoolExecutor(workers, thread_name_prefix="frazil-footers") as pool:
        try:
            for at, path in enumerate(paths):
                pool.submit(work.read, at, path, given[at])
            for done in range(1, len(paths) + 1):
                at, files[at] = work.next()
                if progress is not None:
                    progress(done, len(paths))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(file for file in files if file is not None)


class _Work:
    """Files that are read by several threads, and handed over in the order in which they end."""

    def __init__(self, reader: ParquetReader) -> None:
        self._reader = reader
        self._done: SimpleQueue[tuple[int, DataFile | Exception]] = SimpleQueue()

    def read(self, at: int, path: Path, partition: GivenPartition | None) -> None:
        try:
            self._done.put((at, DataFile(**self._reader.data_file(path, partition))))
        except Exception as error:
            if not isinstance(error, BadRequest):
                error.add_note(f"while the footer of {os.fspath(path)} was read")
            self._done.put((at, error))

    def next(self) -> tuple[int, DataFile]:
        """The next file that is done, and its position; raises what its reader has."""
        at, found = self._done.get()
        if isinstance(found, Exception):
            raise found
        return at, found


def _reader(table: FileTable | None, spec_id: int | None, filesystem: Any) -> ParquetReader:
    with _pyarrow_required():
        from frazil.datafiles.footers.footer_reader import ParquetReader
    return ParquetReader(table, spec_id, filesystem)


@contextmanager
def _pyarrow_required() -> Iterator[None]:
    """Turn the failed import of a module that needs pyarrow into an error that names the fix."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise BadRequest(
            "reading the footer of a Parquet file needs pyarrow, which is not installed: install "
            "frazil[parquet], or declare the file by hand with frazil.DataFile(...)"
        ) from None
