"""Writes streams into tables, and reads tables as streams.

A stream is written epoch by epoch. Each epoch is a statement of its own whose commit has the
stream's id and the epoch's number. The catalog applies such a commit once: if an earlier run failed
before the commit, nothing was written; if it failed afterwards, repeating it changes nothing.
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
from frazil.spark.core.context import LOGGER, Context, Settings
from frazil.spark.core.name_matching import column
from frazil.spark.core.statement_runs import Result, Target
from frazil.spark.core.write_audit import audit_of
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
    Limits,
)
from frazil.spark.streams.source_options import client_of, option_texts
from frazil.spark.streams.stream_ids import StreamId
from frazil.spark.writing.frame_statements import FrameStatement
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import MAIN

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

APPEND: Final = "append"
UPSERT: Final = "upsert"
COMPLETE: Final = "complete"
_OUTPUT_MODES: Final = {APPEND: "append", UPSERT: "update", COMPLETE: "complete"}

_TRIGGERS: Final = ("availableNow", "continuous", "once", "processingTime", "realTime")
"""The arguments of Spark's `trigger`; not every version has all of them."""
Trigger = str | Mapping[str, Any]
"""`"10 seconds"`, `"availableNow"`, or the arguments of Spark's `trigger`."""


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
    """Start a query that writes a streaming frame into a table, each epoch exactly once.

    `append` adds the rows, `complete` replaces the table by them, and `upsert` replaces the rows
    with the same `keys`: by equality deletes, which read nothing, or by a merge that finds the old
    rows (`deletion-vectors`, `copy-on-write`). If an epoch has several rows with one key, the last
    one by `order_by` is written; without it they are an error. Rows that match `delete_when` only
    delete. `drop_columns` are columns that only these two expressions use.
    """
    if not frame.isStreaming:
        raise BadRequest("write_stream: the frame is not a stream: start it with spark.readStream")
    by_key = upserts.upsert_of(mode == UPSERT, keys, upsert, order_by, delete_when, drop_columns)
    if mode not in _OUTPUT_MODES and not output_mode:
        raise BadRequest(f"mode: {mode!r} is none of {', '.join(_OUTPUT_MODES)}")
    _check(context, target, frame, by_key, merge_schema)
    checkpoint = stream_ids.checkpoint_location(context.spark, checkpoint_location, query_name)
    writer = EpochWriter(
        context.uri,
        dict(context.properties),
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
    stream = frame.writeStream.foreachBatch(writer).outputMode(output_mode or _OUTPUT_MODES[mode])
    stream = stream.option("checkpointLocation", checkpoint).options(**stream_options)
    if query_name is not None:
        stream = stream.queryName(query_name)
    query: StreamingQuery = _triggered(stream, trigger).start()
    return query


def _check(
    context: Context, target: Target, frame: DataFrame, upsert: Upsert | None, merge_schema: bool
) -> None:
    """Raise errors of the caller now, and not in the query's first epoch."""
    table = target.load(context)
    fit(frame if upsert is None else upsert.rows(frame), table, merge_schema=merge_schema)
    if upsert is not None:
        upserts.checked_keys(context, upsert, table, merge_schema=merge_schema)


def _triggered(stream: Any, trigger: Trigger | None) -> Any:
    if trigger is None:
        return stream
    if isinstance(trigger, Mapping):
        unknown = sorted(set(trigger) - set(_TRIGGERS))
        if unknown or len(trigger) != 1:
            raise BadRequest(
                f"trigger: {dict(trigger)} is not one of {', '.join(_TRIGGERS)}: pass "
                '{"availableNow": True}, or {"processingTime": "10 seconds"}'
            )
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
    """Return the rows that are appended to a table as a streaming frame.

    Without `from_timestamp` it starts with the existing rows. `max_files` and `max_rows` are limits
    of a micro-batch; Frazil's own reader has them from Spark 4.2 on. A snapshot that deletes or
    overwrites ends the stream with an error, unless such snapshots are skipped. Iceberg's runtime
    reads the stream if it can, else Frazil does. A checkpoint belongs to one of the two, so that
    `reader` should be set where both may be used.
    """
    options = option_texts(
        {
            FROM_TIMESTAMP: _milliseconds(from_timestamp),
            MAX_FILES: max_files,
            MAX_ROWS: max_rows,
            SKIP_DELETES: skip_deletes or None,
            SKIP_OVERWRITES: skip_overwrites or None,
        }
    )
    table = target.load(context)
    if target.branch == MAIN:
        target = replace(
            target, branch=audit_of(context.spark, table).branch_to_read(table) or MAIN
        )
    of_branch = "" if target.branch == MAIN else "Iceberg's runtime reads no stream of a branch"
    reason = jar_reader.why_own(context, table, table.schema, table.schema, of_branch)
    if reason is None:
        _warn_of_expired(context, table, from_timestamp)
        reader = context.spark.readStream.options(**options)
        frame = jar_reader.load(context, table, reader)
        return frame if columns is None else frame.select(*map(column, columns))
    data_source.check_limits(Limits(max_files, max_rows))
    LOGGER.info("%s: the stream is read by Frazil: %s", table, reason)
    data_source.register(context.spark, context.uri, context.properties)
    if columns is not None:
        options["columns"] = msgspec.json.encode(list(columns)).decode()
    identifier = (*target.identifier.namespace, target.identifier.name)
    options["table"] = msgspec.json.encode(identifier).decode()
    options["branch"] = target.branch
    return context.spark.readStream.format(data_source.NAME).options(**options).load()


def _warn_of_expired(context: Context, table: Table, from_timestamp: datetime | int | None) -> None:
    """Warn that a new stream of Iceberg's runtime misses rows of expired snapshots.

    It starts with the rows that the oldest snapshot has added, Frazil's with all rows that are in
    it.
    """
    head = table.head()
    if head is None or from_timestamp is not None:
        return
    *_, oldest = table.ancestors(head)
    if oldest.parent_snapshot_id is not None:
        LOGGER.warning(
            "%s: snapshots before %d have expired: a new stream of Iceberg's runtime leaves out "
            "rows that were appended before it; reader=own reads them",
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


@dataclass
class EpochWriter:
    """The function that Spark calls with the rows of each epoch.

    On Spark Connect it runs in a process of the server. It is pickled without the client, and makes
    a client of its own there.
    """

    uri: str
    properties: Mapping[str, str]
    """What the client needs, as values that can be pickled."""
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
        stream = self._stream_id(context)
        table = self.target.load(context)
        if stream_ids.is_committed(table, self.target.branch, stream, epoch):
            LOGGER.info("%s: epoch %d of %s is already written", self.target, epoch, stream.id)
            return
        result = self._write(context, frame, stream, epoch)
        self._check(result, stream, epoch, table)

    def _write(self, context: Context, frame: DataFrame, stream: StreamId, epoch: int) -> Result:
        commit_options = {
            "once": stream.once(epoch),
            "summary": {**self.summary, **stream.summary()},
        }
        statement = FrameStatement(
            context, self.target, frame, self.merge_schema, self.options, commit_options
        )
        if self.upsert is not None:
            return upserts.write_upsert(statement, self.upsert)
        return statement.overwrite() if self.mode == COMPLETE else statement.append()

    def _check(self, result: Result, stream: StreamId, epoch: int, table: Table) -> None:
        commit = result.commit
        if commit is None or not commit.already_committed:
            return
        LOGGER.info("%s: epoch %d of %s was committed before", self.target, epoch, stream.id)
        if commit.snapshot_id is None and stream.id != stream.checkpoint_id:
            # A later epoch is committed already. With an id given by the user, that must be another
            # checkpoint.
            raise stream_ids.other_checkpoint(stream, table, self.target.branch)

    def _stream_id(self, context: Context) -> StreamId:
        """Return the stream's id, which stays the same while the query runs."""
        if self._stream is None:
            query_id = stream_ids.query_id(context.spark, self.checkpoint)
            self._stream = stream_ids.stream_id(self.stream_id, query_id)
        return self._stream

    def _context(self, spark: SparkSession) -> Context:
        if self.client is None:
            self.client = client_of(self.uri, self.properties)
        settings = replace(self.settings, progress=False)
        return Context(spark, self.client, settings, self.uri, self.properties)
