"""Streams into tables and out of them.

A stream is written epoch by epoch, each as a statement of its own whose commit carries the stream's
id and the epoch's number. The catalog applies such a commit once, wherever a run before may have
died: before the commit nothing is there, behind it the repetition changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.spark.core.context import LOGGER, Context
from frazil.spark.core.name_matching import column, names_of
from frazil.spark.core.results import Result
from frazil.spark.core.settings import Settings
from frazil.spark.core.targets import Target
from frazil.spark.reading import jar_reader
from frazil.spark.rows import upserts
from frazil.spark.rows.upserts import Upsert
from frazil.spark.schema.frame_fitting import fit
from frazil.spark.streams import data_source, stream_ids
from frazil.spark.streams.micro_batches import (
    FROM_TIMESTAMP,
    MAX_FILES,
    MAX_ROWS,
    SKIP_DELETES,
    SKIP_OVERWRITES,
)
from frazil.spark.streams.source_options import travelling
from frazil.spark.streams.stream_ids import StreamId
from frazil.spark.writing import frame_statements
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import MAIN

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

APPEND: Final = "append"
UPSERT: Final = "upsert"
COMPLETE: Final = "complete"
_OUTPUT_MODES: Final = {APPEND: "append", UPSERT: "update", COMPLETE: "complete"}

Trigger = str | Mapping[str, Any]
"""`"10 seconds"`, `"availableNow"`, or the arguments of Spark's own `trigger`."""


def write_stream(
    context: Context,
    target: Target,
    frame: DataFrame,
    *,
    mode: str = APPEND,
    keys: Sequence[str] | None = None,
    upsert: str = upserts.EQUALITY_DELETES,
    order_by: str | None = None,
    delete_when: str | None = None,
    drop_columns: Sequence[str] = (),
    checkpoint_location: str | None = None,
    trigger: Trigger | None = None,
    query_name: str | None = None,
    stream_id: str | None = None,
    output_mode: str | None = None,
    merge_schema: bool = False,
    options: WriteOptions | None = None,
    summary: Mapping[str, str] | None = None,
    **stream_options: str,
) -> StreamingQuery:
    """Starts a query that writes a streaming frame into a table, each epoch exactly once.

    `append` adds the rows, `complete` replaces the table by them, `upsert` puts each row in the
    place of the one that has the same `keys`: by equality deletes, which reads nothing, or by a
    merge that finds the old rows (`deletion-vectors`, `copy-on-write`). Of several rows of an epoch
    with one key the last by `order_by` counts; without it they are an error. Rows that match
    `delete_when` only delete. `drop_columns` are those that only these two look at.
    """
    if not frame.isStreaming:
        raise BadRequest("write_stream: the frame is not a stream: begin it with spark.readStream")
    by_key = upserts.upsert_of(mode == UPSERT, keys, upsert, order_by, delete_when, drop_columns)
    output = output_mode or _output_mode(mode)
    _check(context, target, frame, by_key, merge_schema)
    checkpoint = stream_ids.checkpoint_location(context.spark, checkpoint_location, query_name)
    writer = EpochWriter(
        _Catalog(context.uri, dict(context.properties)),
        context.settings,
        target,
        mode,
        checkpoint,
        upsert=by_key,
        merge_schema=merge_schema,
        options=options,
        summary=dict(summary or {}),
        stream_id=stream_id or context.settings.stream_id,
        client=context.client,
    )
    stream = frame.writeStream.foreachBatch(writer).outputMode(output)
    stream = stream.option("checkpointLocation", checkpoint).options(**stream_options)
    if query_name is not None:
        stream = stream.queryName(query_name)
    query: StreamingQuery = _triggered(stream, trigger).start()
    return query


def _output_mode(mode: str) -> str:
    found = _OUTPUT_MODES.get(mode)
    if found is None:
        raise BadRequest(f"mode: {mode!r} is none of {', '.join(_OUTPUT_MODES)}")
    return found


def _check(
    context: Context, target: Target, frame: DataFrame, upsert: Upsert | None, merge_schema: bool
) -> None:
    """What is wrong already now is an error of the caller's, not of the query's first epoch."""
    table = target.load(context)
    fit(frame if upsert is None else upsert.rows(frame), table, merge_schema=merge_schema)
    if upsert is not None:
        case_sensitive = names_of(context.spark).case_sensitive
        upserts.check(upsert, table, case_sensitive=case_sensitive, merge_schema=merge_schema)


def _triggered(stream: Any, trigger: Trigger | None) -> Any:
    if trigger is None:
        return stream
    if isinstance(trigger, Mapping):
        return stream.trigger(**trigger)
    if trigger.replace("-", "").replace("_", "").lower() == "availablenow":
        return stream.trigger(availableNow=True)
    return stream.trigger(processingTime=trigger)


def read_stream(
    context: Context,
    target: Target,
    *,
    columns: Sequence[str] | None = None,
    from_timestamp: datetime | int | None = None,
    max_files: int | None = None,
    max_rows: int | None = None,
    skip_deletes: bool = False,
    skip_overwrites: bool = False,
) -> DataFrame:
    """The rows that are appended to a table, as a streaming frame.

    Without `from_timestamp` it begins with the rows that are there. `max_files` and `max_rows` are
    limits of a micro-batch. A snapshot that deletes or overwrites ends the stream with an error,
    unless such are to be passed over. Read by Iceberg's runtime where it can, else by us: a
    checkpoint belongs to one of the two, so that `reader` should be said where both may be met.
    """
    options = travelling(
        {
            FROM_TIMESTAMP: _milliseconds(from_timestamp),
            MAX_FILES: max_files,
            MAX_ROWS: max_rows,
            SKIP_DELETES: skip_deletes or None,
            SKIP_OVERWRITES: skip_overwrites or None,
        }
    )
    table = target.load(context)
    reason = _why_not_jar(context, target, table)
    if reason is None:
        _warn_of_expired(context, table, from_timestamp)
        reader = context.spark.readStream.options(**options)
        frame = reader.table(jar_reader.full_name(context, table))
        return frame if columns is None else frame.select(*map(column, columns))
    context.log.info("%s: the stream is read by our own reader: %s", table, reason)
    data_source.register(context.spark, context.uri, context.properties)
    if columns is not None:
        options["columns"] = msgspec.json.encode(list(columns)).decode()
    identifier = (*target.identifier.namespace, target.identifier.name)
    options["table"] = msgspec.json.encode(identifier).decode()
    options["branch"] = target.branch
    return context.spark.readStream.format(data_source.NAME).options(**options).load()


def _why_not_jar(context: Context, target: Target, table: Table) -> str | None:
    if context.settings.reader == "own":
        return "it was asked for"
    reason = jar_reader.why_not(context, table, table.schema, table.schema)
    if target.branch != MAIN:
        reason = "Iceberg's runtime reads no stream of a branch"
    if context.settings.reader == "jar":
        jar_reader.check_forced(reason, table)
    return reason


def _warn_of_expired(context: Context, table: Table, from_timestamp: datetime | int | None) -> None:
    """A new stream of Iceberg's begins with what the oldest snapshot has added, ours with all that
    is in it; they differ where older snapshots have expired."""
    head = table.head()
    if head is None or from_timestamp is not None:
        return
    *_, oldest = table.ancestors(head)
    if oldest.parent_snapshot_id is not None:
        context.log.warning(
            "%s: snapshots before %d have expired: Iceberg's runtime leaves out rows that were "
            "appended before it, where the stream is new; reader=own reads them",
            table,
            oldest.snapshot_id,
        )


def _milliseconds(moment: datetime | int | None) -> int | None:
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        raise BadRequest(f"from_timestamp: {moment} has no time zone: give it one")
    return int(moment.timestamp() * 1000)


# --- an epoch -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Catalog:
    """How to get to the catalog, in words that can travel."""

    uri: str
    properties: Mapping[str, str]

    def client(self) -> Client:
        return Client(
            self.uri,
            token=self.properties.get("token"),
            warehouse=self.properties.get("warehouse"),
            properties=self.properties,
        )


@dataclass
class EpochWriter:
    """What Spark calls with the rows of each epoch.

    On Spark Connect that is in a process of the server's, to which it travels without the client:
    there it makes one of its own.
    """

    catalog: _Catalog
    settings: Settings
    target: Target
    mode: str
    checkpoint: str
    upsert: Upsert | None = None
    merge_schema: bool = False
    options: WriteOptions | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    stream_id: str | None = None
    client: Client | None = None
    _stream: StreamId | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "client": None, "_stream": None}

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        context = self._context(frame.sparkSession)
        stream = self._known_stream(context)
        table = self.target.load(context)
        if stream_ids.is_committed(table, self.target.branch, stream, epoch):
            LOGGER.info("%s: epoch %d of %s is there already", self.target, epoch, stream.id)
            return
        result = self._write(context, frame, stream, epoch)
        self._accept(result, stream, epoch, table)

    def _write(self, context: Context, frame: DataFrame, stream: StreamId, epoch: int) -> Result:
        commit_options = {
            "once": stream.once(epoch),
            "summary": {**self.summary, **stream.summary()},
        }
        target, options = self.target, self.options
        if self.upsert is not None:
            return upserts.write(
                context, target, frame, self.upsert, self.merge_schema, options, commit_options
            )
        if self.mode == COMPLETE:
            return frame_statements.overwrite(
                context, target, frame, None, self.merge_schema, options, commit_options
            )
        return frame_statements.append(
            context, target, frame, self.merge_schema, options, commit_options
        )

    def _accept(self, result: Result, stream: StreamId, epoch: int, table: Table) -> None:
        commit = result.commit
        if commit is None or not commit.already_committed:
            return
        LOGGER.info("%s: epoch %d of %s was committed before", self.target, epoch, stream.id)
        if commit.snapshot_id is None and stream.id != stream.checkpoint_id:
            # A later epoch is committed, which a checkpoint of its own can only explain for an id
            # that Spark has drawn for it.
            raise stream_ids.other_checkpoint(stream, table, self.target.branch)

    def _known_stream(self, context: Context) -> StreamId:
        """A query has one id as long as it runs."""
        if self._stream is None:
            found = stream_ids.query_id(context.spark, self.checkpoint)
            self._stream = stream_ids.stream_id(self.stream_id, found)
        return self._stream

    def _context(self, spark: SparkSession) -> Context:
        if self.client is None:
            self.client = self.catalog.client()
        settings = replace(self.settings, progress=False)
        return Context(spark, self.client, settings, self.catalog.uri, self.catalog.properties)
