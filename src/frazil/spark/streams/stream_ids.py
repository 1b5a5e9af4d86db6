"""Who a stream is, and how far it has come in a table.

An epoch is committed under the stream's id, so that the catalog applies it once. The id is that of
the query, which Spark draws for each new checkpoint and keeps in it: a new checkpoint is a new
stream. Where the user gives an id of his own, the query's is noted beside it, so that a second
checkpoint under that id, whose epochs begin at 0 again, is found out and not taken for a
repetition.
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
"""Keys of a snapshot's summary, as stock Spark sets them; the catalog does so for `once`."""
CHECKPOINT_ID: Final = "frazil.stream.checkpoint-id"
"""The query's own id, where the stream has another."""

_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
_METADATA: Final = "metadata"


@dataclass(frozen=True, slots=True)
class StreamId:
    id: str
    checkpoint_id: str | None = None
    """The query's id, where it is known."""

    def once(self, epoch: int) -> Once:
        return Once(self.id, epoch)

    def summary(self) -> Mapping[str, str]:
        own = self.checkpoint_id is None or self.checkpoint_id == self.id
        return {} if own else {CHECKPOINT_ID: self.checkpoint_id or ""}


def stream_id(given: str | None, query_id: str) -> StreamId:
    return StreamId(given or query_id, query_id)


# --- the checkpoint -------------------------------------------------------------------------------


def checkpoint_location(spark: SparkSession, given: str | None, query_name: str | None) -> str:
    """Where the query keeps its checkpoint, as Spark itself would choose it."""
    if given:
        return given.rstrip("/")
    root = spark.conf.get(_CHECKPOINTS, None)
    if not root or not query_name:
        raise BadRequest(
            "a stream is known by its checkpoint: give checkpoint_location, or query_name with "
            f"Spark's {_CHECKPOINTS}"
        )
    return f"{root.rstrip('/')}/{query_name}"


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query that this checkpoint is of; Spark has it there before the first epoch.

    Read by Spark, which alone knows every place that a checkpoint may be at.
    """
    lines = spark.read.text(f"{checkpoint}/{_METADATA}").collect()
    try:
        found = msgspec.json.decode("".join(line[0] for line in lines), type=dict[str, str])["id"]
    except (KeyError, msgspec.DecodeError):
        raise BadRequest(f"{checkpoint}/{_METADATA} does not say which query it is of") from None
    return found


# --- the table's history --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedEpoch:
    epoch: int
    checkpoint_id: str
    """The query that has committed it."""


def committed_epoch(table: Table, branch: str, id: str) -> CommittedEpoch | None:
    """The stream's last epoch that the history shows; a branch that does not exist yet will start
    at main's head. That there is none proves nothing: snapshots expire, and the catalog decides."""
    head = table.head(branch)
    if head is None:
        return None
    for snapshot in table.ancestors(head):
        epoch = snapshot.summary.get(EPOCH_ID, "")
        if snapshot.summary.get(QUERY_ID) == id and epoch.isascii() and epoch.isdigit():
            return CommittedEpoch(int(epoch), snapshot.summary.get(CHECKPOINT_ID, id))
    return None


def is_committed(table: Table, branch: str, stream: StreamId, epoch: int) -> bool:
    """Whether the history shows that this epoch was committed; what it does not show, the catalog
    may still know."""
    last = committed_epoch(table, branch, stream.id)
    if last is None:
        return False
    if stream.checkpoint_id is not None and last.checkpoint_id != stream.checkpoint_id:
        raise other_checkpoint(stream, table, branch)
    return epoch <= last.epoch


def other_checkpoint(stream: StreamId, table: Table, branch: str = MAIN) -> BadRequest:
    return BadRequest(
        f"stream id {stream.id!r}: another checkpoint has written epochs to {table} (branch "
        f"{branch}) under it, and this one's would be taken for those: give this stream another id"
    )
