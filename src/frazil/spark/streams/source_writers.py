"""Writes rows for `df.write` and `df.writeStream` with `format("frazil")`.

Tasks write files through Arrow and return their descriptions, and the driver commits them. Spark
runs `commit` and `abort` in separate processes, which share no state. After a failed `commit` Spark
calls `abort` with the messages of all tasks, and by then the files may be in the table. So `commit`
itself removes files that the catalog has refused. `abort` removes files only if a message is
missing, since Spark does not try to commit without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from frazil.datafiles.writing.row_partitions import Partitioner
from frazil.datafiles.writing.write_properties import file_options
from frazil.spark.core.context import LOGGER
from frazil.spark.core.write_audit import AUDIT_SETTINGS, audit_by
from frazil.spark.executor.file_tasks import Conform, FileWriting
from frazil.spark.executor.worker_tasks import task_settings
from frazil.spark.schema.frame_fitting import conform
from frazil.spark.streams.source_options import SourceOptions
from frazil.spark.streams.stream_ids import StreamId, is_committed, stream_id
from frazil.spark.writing.write_commit import Write, WriteFolder, committing, data_location
from frazil.wire.errors import BadRequest, FrazilError, UnsupportedOperation
from frazil.wire.expressions import AlwaysTrue
from frazil.wire.file_actions import MAIN

_QUERY: Final = "sql.streaming.queryId"
_EPOCH: Final = "streaming.sql.batchId"
"""Local properties of a task's context that Spark sets for streams."""

_INTENT_TTL_S: Final = 7 * 24 * 3600.0

Messages = Sequence[WriterCommitMessage | None]
StreamWriterBase: Any = getattr(source, "DataSourceStreamArrowWriter", object)
"""Spark 4.0 has no base class for Arrow."""


@dataclass
class Written(WriterCommitMessage):
    """The files that one task has written, as JSON."""

    files: tuple[bytes, ...]
    folder: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """What Spark's driver has set for the task: the query, and how the write is audited."""


@dataclass(frozen=True)
class FileTask:
    """Writes the rows of one task of Spark."""

    writing: FileWriting
    conform: Conform

    @property
    def storage(self) -> Storage:
        return self.writing.storage

    def write(self, batches: Iterator[pa.RecordBatch], folder: str) -> tuple[bytes, ...]:
        partitioned = Partitioner(self.writing.facts)
        rows = (partitioned(self.conform(batch)) for batch in batches)
        return tuple(self.writing.write(rows, folder))


def file_task(options: SourceOptions, table: Table, schema: SparkStruct) -> FileTask:
    """Return the task; raise before any file is written if the frame does not fit the table."""
    facts = PortableTable.of(table)
    properties = file_options(
        facts.properties, target_file_size_bytes=options.target_file_size_bytes
    )
    return FileTask(
        FileWriting(facts, options.storage(table.config), properties),
        conform(schema, facts.schema, facts.name),
    )


def committed(
    write: Write, messages: Messages, submit: Callable[[Sequence[DataFile]], Commit]
) -> Commit | None:
    """Commit what the tasks have written; None if that is nothing."""
    files = [file for message in messages for file in _files(message)]
    if not files:
        return None
    return write.commit({file.file_path for file in files}, lambda: submit(files))


def _files(message: WriterCommitMessage | None) -> list[DataFile]:
    if not isinstance(message, Written):
        raise BadRequest("a task has returned nothing about the files that it has written")
    return [msgspec.json.decode(file, type=DataFile) for file in message.files]


def settings_of(messages: Messages) -> Mapping[str, str]:
    """Return the settings that the tasks have seen, which are the same for all of a write."""
    return next((message.settings for message in messages if isinstance(message, Written)), {})


def audited_options(
    options: SourceOptions,
    table: Table,
    settings: Mapping[str, str],
    stream: StreamId | None = None,
) -> dict[str, Any]:
    """Return branch and summary of a commit, as the options and write-audit-publish want them."""
    audited = audit_by(settings.get, table.properties).commit_options(options.has_branch)
    of_stream = {} if stream is None else stream.summary()
    summary = {**options.summary, **audited.get("summary", {}), **of_stream}
    return {"branch": options.branch, **audited, "summary": summary}


def discarded(messages: Messages, storage: Storage) -> None:
    """Remove the files if a message is missing; with all messages a commit may have been sent."""
    if all(message is not None for message in messages):
        return
    for folder in {message.folder for message in messages if isinstance(message, Written)}:
        storage.delete_folder(folder)


# --- batches --------------------------------------------------------------------------------------


class _Writing:
    """What writers of batches and streams share."""

    def __init__(self, options: SourceOptions, schema: SparkStruct, overwrite: bool) -> None:
        table = options.load()
        self._options = options
        self._overwrite = overwrite
        self._task = file_task(options, table, schema)
        self._heads = {name: ref.snapshot_id for name, ref in table.refs.items()}
        self._folder = f"{data_location(table)}/{uuid4()}"


class TableWriter(_Writing, DataSourceArrowWriter):
    """Writes one frame into a folder that it has declared to the catalog."""

    def __init__(self, options: SourceOptions, schema: SparkStruct, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        table = options.load()
        self._table = table.identifier
        self._intent_id: str | None = None
        try:
            # No process lives long enough to renew it.
            declared = options.client.intents.declare(
                table.identifier, self._folder, ttl_s=_INTENT_TTL_S
            )
            self._intent_id = declared.intent_id
        except FrazilError as error:
            LOGGER.warning("%s is not declared: %s", self._folder, error.message)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settings = task_settings(*AUDIT_SETTINGS)
        return Written(self._task.write(iterator, self._folder), self._folder, settings)

    def commit(self, messages: Messages) -> None:
        def submit(files: Sequence[DataFile]) -> Commit:
            return self._submit(files, settings_of(messages))

        try:
            with committing(WriteFolder(self._folder, self._task.storage)) as write:
                commit = committed(write, messages, submit)
        finally:
            self._end_intent(is_clean=write.is_clean)
        if commit is None and self._overwrite and self._options.overwrite_mode == "static":
            # An overwrite deletes rows even if it writes none.
            submit(())

    def abort(self, messages: Messages) -> None:
        if any(message is None for message in messages):
            self._task.storage.delete_folder(self._folder)
            # A task may still run, and leave a file.
            self._end_intent(is_clean=False)

    def _end_intent(self, *, is_clean: bool) -> None:
        if self._intent_id is not None:
            with suppress(FrazilError):  # It ends by itself if the catalog is away.
                self._options.client.intents.end(
                    self._table, self._intent_id, clean=is_clean, waits=False
                )

    def _submit(self, files: Sequence[DataFile], settings: Mapping[str, str]) -> Commit:
        options = self._options
        table = options.load()
        commit_options = audited_options(options, table, settings)
        if not self._overwrite:
            return table.append_files(files, **commit_options)
        heads = self._heads
        commit_options["base_snapshot_id"] = heads.get(commit_options["branch"], heads.get(MAIN))
        if options.overwrite_mode == "dynamic":
            return table.replace_partitions(files, **commit_options)
        row_filter = options.overwrite_filter or AlwaysTrue()
        return table.overwrite_files(files, row_filter=row_filter, **commit_options)


# --- streams --------------------------------------------------------------------------------------


class TableStreamWriter(_Writing, StreamWriterBase):  # type: ignore[misc]
    """Writes each epoch exactly once, by the query's id and the epoch's number.

    Each epoch of a run has a folder of its own.
    """

    def __init__(self, options: SourceOptions, schema: SparkStruct, overwrite: bool) -> None:
        if StreamWriterBase is object:
            raise UnsupportedOperation(
                'writeStream.format("frazil") needs Spark 4.1: on 4.0 write the stream by '
                'session.table("ns.t").write_stream(frame)'
            )
        super().__init__(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        properties = task_settings(_QUERY, _EPOCH, *AUDIT_SETTINGS)
        folder = f"{self._folder}-{properties.get(_EPOCH, '')}"
        return Written(self._task.write(iterator, folder), folder, properties)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        written = [message for message in messages if isinstance(message, Written)]
        if not written:
            return
        with committing(WriteFolder(written[0].folder, self._task.storage)) as write:
            table = self._options.load()
            stream = self._stream(written[0])
            options = audited_options(self._options, table, written[0].settings, stream)
            if is_committed(table, options["branch"], stream, batchId):
                return
            options["once"] = stream.once(batchId)
            commit = committed(write, messages, lambda files: self._submit(table, files, options))
        if commit is None and self._overwrite:
            self._submit(table, (), options)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        discarded(messages, self._task.storage)

    def _stream(self, written: Written) -> StreamId:
        query_id = written.settings.get(_QUERY)
        if query_id is not None:
            return stream_id(self._options.stream_id, query_id)
        if self._options.stream_id is not None:
            return StreamId(self._options.stream_id)
        raise BadRequest("Spark has not said which query this is: give the option stream-id")

    def _submit(
        self, table: Table, files: Sequence[DataFile], commit_options: Mapping[str, Any]
    ) -> Commit:
        if self._overwrite:
            return table.overwrite_files(files, row_filter=AlwaysTrue(), **commit_options)
        return table.append_files(files, **commit_options)
