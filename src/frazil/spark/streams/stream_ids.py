"""Identifies a stream, and finds the last epoch that it has committed to a table.

An epoch is committed under the stream's id, so that the catalog applies it once. The id is that of
the query, which Spark generates for each new checkpoint and stores in it: a new checkpoint is a new
stream. If the user gives another id, the query's id is stored beside it. That detects a second
checkpoint under the same id, whose epochs start at 0 again and would be taken for repetitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from frazil.client.declare.client_table import Table
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import MAIN, Once

QUERY_ID: Final = "spark.sql.streaming.queryId"
EPOCH_ID: Final = "spark.sql.streaming.epochId"
"""Keys of a snapshot's summary that stock Spark sets; the catalog sets them for `once`."""
CHECKPOINT_ID: Final = "frazil.stream.checkpoint-id"
"""The query's id, if the stream has another id."""

_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
_METADATA: Final = "metadata"


@dataclass(frozen=True, slots=True)
class StreamId:
    id: str
    checkpoint_id: str | None = None
    """The query's id, if it is known."""

    def once(self, epoch: int) -> Once:
        return Once(self.id, epoch)

    def summary(self) -> Mapping[str, str]:
        if self.checkpoint_id is None or self.checkpoint_id == self.id:
            return {}
        return {CHECKPOINT_ID: self.checkpoint_id}


def stream_id(chosen: str | None, query_id: str) -> StreamId:
    return StreamId(chosen or query_id, query_id)


# --- the checkpoint -------------------------------------------------------------------------------


def checkpoint_location(spark: SparkSession, chosen: str | None, query_name: str | None) -> str:
    """Return where the query stores its checkpoint, as Spark would choose it."""
    if chosen:
        return chosen.rstrip("/")
    root = spark.conf.get(_CHECKPOINTS, None)
    if not root or not query_name:
        raise BadRequest(
            "a stream is known by its checkpoint: give checkpoint_location, or query_name with "
            f"Spark's {_CHECKPOINTS}"
        )
    return f"{root.rstrip('/')}/{query_name}"


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Read the query's id from its checkpoint, where Spark writes it before the first epoch.

    Spark reads it, since only Spark knows every file system that a checkpoint may be in.
    """
    lines = spark.read.text(f"{checkpoint}/{_METADATA}").collect()
    try:
        return msgspec.json.decode("".join(line[0] for line in lines), type=dict[str, str])["id"]
    except (KeyError, msgspec.DecodeError):
        raise BadRequest(f"{checkpoint}/{_METADATA} does not say which query it is of") from None


# --- the table's history --------------------------------------------------------------------------


def committed_epoch(table: Table, branch: str, id: str) -> tuple[int, str] | None:
    """Return the stream's last epoch in the branch's history, and the query that committed it.

    A branch that does not exist yet will start at main's head. None proves nothing, since snapshots
    expire: the catalog decides.
    """
    head = table.head(branch)
    if head is None:
        return None
    for snapshot in table.ancestors(head):
        epoch = snapshot.summary.get(EPOCH_ID, "")
        if snapshot.summary.get(QUERY_ID) == id and epoch.isascii() and epoch.isdigit():
            return int(epoch), snapshot.summary.get(CHECKPOINT_ID, id)
    return None


def is_committed(table: Table, branch: str, stream: StreamId, epoch: int) -> bool:
    """Return whether the history shows the epoch; the catalog may know of it all the same."""
    last = committed_epoch(table, branch, stream.id)
    if last is None:
        return False
    last_epoch, checkpoint_id = last
    if stream.checkpoint_id is not None and checkpoint_id != stream.checkpoint_id:
        raise other_checkpoint(stream, table, branch)
    return epoch <= last_epoch


def other_checkpoint(stream: StreamId, table: Table, branch: str = MAIN) -> BadRequest:
    return BadRequest(
        f"stream id {stream.id!r}: another checkpoint has written epochs to {table} (branch "
        f"{branch}) under it, and this one's would be taken for those: give this stream another id"
    )
