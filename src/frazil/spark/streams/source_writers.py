"""Writes rows for `df.write.format("frazil")` and `df.writeStream.format("frazil")`.

Tasks write files through Arrow and hand back what there is to declare of them; the driver commits.
Spark runs `commit` and `abort` in processes of their own, so that nothing is remembered from one to
the other. After a `commit` that has raised, Spark calls `abort` with the messages of all tasks: by
then the files may be in the table. So `commit` itself removes the files where the catalog has
refused them, and `abort` removes files only where a message is missing, since Spark does not try to
commit without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import datasource as source
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType as SparkStruct

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import Commit
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.row_partitions import Partitioner
from frazil.datafiles.writing.write_properties import FileOptions, file_options
from frazil.spark.executor.worker_tasks import task_name
from frazil.spark.schema.source_batches import Conform, conform
from frazil.spark.streams.source_options import SourceOptions
from frazil.spark.streams.stream_ids import StreamId, is_committed, stream_id
from frazil.spark.writing.write_commit import Write
from frazil.spark.writing.write_folder import WriteFolder, data_location
from frazil.wire.errors import BadRequest, UnsupportedOperation
from frazil.wire.expressions import AlwaysTrue

_QUERY: Final = "sql.streaming.queryId"
_EPOCH: Final = "streaming.sql.batchId"
"""What Spark tells the tasks of a stream, in the local properties of their context."""

Messages = Sequence[WriterCommitMessage | None]
StreamWriterBase: Any = getattr(source, "DataSourceStreamArrowWriter", object)
"""Spark 4.0 has none that takes Arrow."""


@dataclass
class Written(WriterCommitMessage):
    """What one task has written."""

    files: tuple[bytes, ...]
    folder: str
    query_id: str | None = None


@dataclass(frozen=True)
class FileTask:
    """What a task of Spark's does."""

    facts: PortableTable
    storage: Storage
    options: FileOptions
    conform: Conform

    def write(self, batches: Iterator[pa.RecordBatch], folder: str) -> tuple[bytes, ...]:
        partitioned = Partitioner(self.facts)
        writer = ArrowFileWriter(
            self.facts, self.storage, folder, task_name(), options=self.options
        )
        try:
            for batch in batches:
                writer.write(partitioned(self.conform(batch)))
            return tuple(writer.close())
        except BaseException:
            writer.abort()
            raise


def file_task(options: SourceOptions, table: Table, schema: SparkStruct) -> FileTask:
    """Raises before any file is written if the frame does not fit the table."""
    facts = PortableTable.of(table)
    return FileTask(
        facts,
        options.storage(table.config),
        file_options(facts.properties, target_file_size_bytes=options.target_file_size_bytes),
        conform(schema, facts.schema, facts.name),
    )


@contextmanager
def committing(folder: str, storage: Storage) -> Iterator[Write]:
    """Leaves no file behind that is in no table, unless nobody knows whether it is."""
    write = Write(WriteFolder(folder, storage))
    try:
        yield write
    except BaseException:
        write.fail()
        raise


def committed(
    write: Write, messages: Messages, submit: Callable[[Sequence[DataFile]], Commit]
) -> Commit | None:
    """Sends what the tasks have written; None where that is nothing."""
    files = [file for message in messages for file in _files(message)]
    if not files:
        write.folder.discard()
        return None
    return write.commit({file.file_path for file in files}, lambda: submit(files))


def _files(message: WriterCommitMessage | None) -> list[DataFile]:
    if not isinstance(message, Written):
        raise BadRequest("a task has handed back nothing about the files that it has written")
    return [msgspec.json.decode(file, type=DataFile) for file in message.files]


def discarded(messages: Messages, storage: Storage) -> None:
    """See at the top: with a message of every task, it is not known whether a commit was sent."""
    if all(message is not None for message in messages):
        return
    for folder in {message.folder for message in messages if isinstance(message, Written)}:
        storage.delete_folder(folder)


# --- batches --------------------------------------------------------------------------------------


class TableWriter(DataSourceArrowWriter):
    def __init__(self, options: SourceOptions, schema: SparkStruct, overwrite: bool) -> None:
        table = options.load()
        self._options = options
        self._overwrite = overwrite
        self._task = file_task(options, table, schema)
        self._base = table.head(options.branch)
        self._folder = f"{data_location(table)}/{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Written(self._task.write(iterator, self._folder), self._folder)

    def commit(self, messages: Messages) -> None:
        with committing(self._folder, self._task.storage) as write:
            done = committed(write, messages, self._submit)
        if done is None and self._overwrite and self._options.overwrite_mode == "static":
            # Rows go even if none come.
            self._submit(())

    def abort(self, messages: Messages) -> None:
        if any(message is None for message in messages):
            self._task.storage.delete_folder(self._folder)

    def _submit(self, files: Sequence[DataFile]) -> Commit:
        options = self._options
        table = options.load()
        placed: dict[str, Any] = {"branch": options.branch, "summary": options.summary}
        if not self._overwrite:
            return table.append_files(files, **placed)
        placed["base_snapshot_id"] = self._base
        if options.overwrite_mode == "dynamic":
            return table.replace_partitions(files, **placed)
        row_filter = options.overwrite_filter or AlwaysTrue()
        return table.overwrite_files(files, row_filter=row_filter, **placed)


# --- streams --------------------------------------------------------------------------------------


class TableStreamWriter(StreamWriterBase):  # type: ignore[misc]
    """Each epoch exactly once, by the query's id and the epoch's number."""

    def __init__(self, options: SourceOptions, schema: SparkStruct, overwrite: bool) -> None:
        if StreamWriterBase is object:
            raise UnsupportedOperation(
                'writeStream.format("frazil") needs Spark 4.1: on 4.0 write the stream by '
                'session.table("ns.t").write_stream(frame)'
            )
        table = options.load()
        self._options = options
        self._overwrite = overwrite
        self._task = file_task(options, table, schema)
        # One for each run of the query; each epoch has a folder of its own below.
        self._run = f"{data_location(table)}/{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        properties = task_properties()
        folder = f"{self._run}-{properties.get(_EPOCH, '')}"
        return Written(self._task.write(iterator, folder), folder, properties.get(_QUERY))

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        written = [message for message in messages if isinstance(message, Written)]
        if not written:
            return
        with committing(written[0].folder, self._task.storage) as write:
            table = self._options.load()
            stream = self._stream(written[0])
            if is_committed(table, self._options.branch, stream, batchId):
                write.folder.discard()
                return
            done = committed(
                write, messages, lambda files: self._submit(table, stream, batchId, files)
            )
        if done is None and self._overwrite:
            self._submit(table, stream, batchId, ())

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        discarded(messages, self._task.storage)

    def _stream(self, written: Written) -> StreamId:
        if written.query_id is not None:
            return stream_id(self._options.stream_id, written.query_id)
        if self._options.stream_id is not None:
            return StreamId(self._options.stream_id)
        raise BadRequest("Spark has not said which query this is: give the option stream-id")

    def _submit(
        self, table: Table, stream: StreamId, epoch: int, files: Sequence[DataFile]
    ) -> Commit:
        placed: dict[str, Any] = {
            "branch": self._options.branch,
            "summary": {**self._options.summary, **stream.summary()},
            "once": stream.once(epoch),
        }
        if self._overwrite:
            return table.overwrite_files(files, row_filter=AlwaysTrue(), **placed)
        return table.append_files(files, **placed)


def task_properties() -> Mapping[str, str]:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return {}
    found = {name: context.getLocalProperty(name) for name in (_QUERY, _EPOCH)}
    return {name: text for name, text in found.items() if text is not None}
