"""Exactly once for streams: an epoch that a stream has committed before is not applied again.

What decides is the stream's row, written in the transaction of the swap. Where there is none, the
summaries of the branch's ancestors do, as in Java's SparkWrite: a stream that another server or a
classic client has committed for is recognised too. A branch that moves backwards loses its rows,
because it lost the files of those epochs.

Everything here is pure but for the rows that `Streams` asks for.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from frazil.db.base import StreamRow
from frazil.format.metadata.snapshots import MAIN_BRANCH, Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.file_actions import CommitUpdate, FileUpdate, FineGrainedUpdate, Once
from frazil.wire.rest_messages import CommitTableRequest
from frazil.wire.rest_updates import AssignUUID


@dataclass(frozen=True, slots=True)
class CommittedSnapshot:
    """One entry of an answer's `committed` list."""

    update: int
    snapshot_id: int
    sequence_number: int
    operation: str | None


class _Entry(msgspec.Struct, frozen=True, rename="kebab"):
    update: int
    snapshot_id: int
    sequence_number: int
    operation: str | None


_ENTRIES: msgspec.json.Decoder[tuple[_Entry, ...]] = msgspec.json.Decoder(tuple[_Entry, ...])


def committed_json(committed: Iterable[CommittedSnapshot]) -> bytes:
    return msgspec.json.encode(
        [_Entry(c.update, c.snapshot_id, c.sequence_number, c.operation) for c in committed]
    )


def committed_from_json(content: bytes) -> tuple[CommittedSnapshot, ...]:
    """What `committed_json` wrote, read again."""
    return tuple(
        CommittedSnapshot(e.update, e.snapshot_id, e.sequence_number, e.operation)
        for e in _ENTRIES.decode(content)
    )


QUERY_ID: Final = "spark.sql.streaming.queryId"
EPOCH_ID: Final = "spark.sql.streaming.epochId"

LoadStream: TypeAlias = Callable[[str, str], StreamRow | None]
"""The row of a branch and a stream's id, as the requests before have left it."""

_NEVER_ESCAPED: Final = frozenset(string.ascii_letters + string.digits + "-_.")


@dataclass(frozen=True, slots=True)
class CommittedEpoch:
    """The last epoch of a stream that is in a branch, and the snapshots that it made there."""

    epoch: int
    committed: tuple[CommittedSnapshot, ...]


def already_committed(
    state: TableMetadata, once: Once, updates: Sequence[CommitUpdate], load: LoadStream
) -> tuple[CommittedSnapshot, ...] | None:
    """What a request's epoch has already committed; None: it is to be applied.

    Asked before the requirements are checked, since those held when the epoch was first sent. The
    tuple is empty for an epoch below the last one, whose snapshots nobody remembers.
    """
    branch = branch_of(updates)
    last = committed_epoch(state, once, branch, load(branch, once.id), updates)
    if last is None or once.epoch > last.epoch:
        return None
    return last.committed if once.epoch == last.epoch else ()


def repeated_epoch(
    state: TableMetadata, request: CommitTableRequest, load: LoadStream
) -> tuple[CommittedSnapshot, ...] | None:
    """What a stream's epoch has committed that was to create the table, and comes again; None
    where the table is not the one that the request names by its uuid, or the epoch is new."""
    once, updates = request.once, request.updates
    own = any(isinstance(item, AssignUUID) and item.uuid == state.table_uuid for item in updates)
    return already_committed(state, once, updates, load) if own and once is not None else None


def committed_epoch(
    state: TableMetadata,
    once: Once,
    branch: str,
    row: StreamRow | None,
    updates: Sequence[CommitUpdate] = (),
) -> CommittedEpoch | None:
    """The last epoch of this stream in the branch; None: there is none."""
    if row is not None:
        return CommittedEpoch(row.epoch, committed_from_json(row.committed))
    found = _last_of_history(state, once.id, branch)
    if found is None:
        return None
    epoch, snapshots = found
    return CommittedEpoch(epoch, _as_committed(snapshots, updates))


def branch_of(updates: Sequence[CommitUpdate]) -> str:
    """The one branch that the updates of a request under `once` name."""
    return next(update.branch for update in updates if isinstance(update, FineGrainedUpdate))


def summary_of(once: Once | None) -> tuple[tuple[str, str], ...]:
    """What the summaries of a request's snapshots say of its stream."""
    return () if once is None else ((QUERY_ID, once.id), (EPOCH_ID, str(once.epoch)))


def stream_row(
    uuid: str, once: Once, branch: str, committed: Iterable[CommittedSnapshot]
) -> StreamRow:
    """The row that a request leaves behind when it is applied."""
    return StreamRow(uuid, branch, once.id, once.epoch, committed_json(committed))


def branches_moved_back(before: TableMetadata, after: TableMetadata) -> frozenset[str]:
    """Branches that are gone, or whose head no longer has the old head as its ancestor."""
    if before.refs is after.refs:
        return frozenset()
    return frozenset(
        name
        for name, ref in before.refs.items()
        if ref.is_branch and not _goes_on(before, after, name, ref.snapshot_id)
    )


class Streams:
    """The rows of a table's streams during a round, as one accepted request after another leaves
    them; in the end, what the swap's transaction has to write."""

    def __init__(self, uuid: str, load: Callable[[str, str, str], StreamRow | None]) -> None:
        """`load` is `stream` of the database, or of the session that holds the table's row."""
        self._uuid = uuid
        self._load = load
        self._rows: dict[tuple[str, str], StreamRow] = {}
        self._forgotten: set[str] = set()

    def __call__(self, branch: str, stream_id: str) -> StreamRow | None:
        """A request sees what the requests before it in its group have committed."""
        row = self._rows.get((branch, stream_id))
        if row is not None or branch in self._forgotten:
            return row
        return self._load(self._uuid, branch, stream_id)

    def accept(self, moved_back: Iterable[str], rows: Iterable[StreamRow] = ()) -> None:
        """Takes in what a request has done: `branches_moved_back` by it, then its rows."""
        for branch in moved_back:
            self._forgotten.add(branch)
            for key in [key for key in self._rows if key[0] == branch]:
                del self._rows[key]
        for row in rows:
            self._rows[row.branch, row.id] = row

    @property
    def written(self) -> tuple[StreamRow, ...]:
        """For `Transaction.streams`."""
        return tuple(self._rows.values())

    @property
    def forgotten(self) -> tuple[tuple[str, str], ...]:
        """For `Transaction.forget_streams`."""
        return tuple((self._uuid, branch) for branch in sorted(self._forgotten))


# --- the history ------------------------------------------------------------------------------


def _last_of_history(
    state: TableMetadata, stream_id: str, branch: str
) -> tuple[int, list[Snapshot]] | None:
    """The epoch of the newest ancestor that names the stream, and its snapshots, oldest first.

    The snapshots of one request stand in a row. A branch that does not exist yet will start at the
    head of main, with all that is in it.
    """
    ref = state.ref(branch) or state.ref(MAIN_BRANCH)
    if ref is None:
        return None
    last: int | None = None
    snapshots: list[Snapshot] = []
    for snapshot in _that_may_name(state, stream_id, ref.snapshot_id):
        epoch = None if snapshot is None else _epoch_of(snapshot, stream_id)
        if last is None:
            last = epoch
        elif epoch != last:
            break
        if snapshot is not None and epoch is not None:
            snapshots.insert(0, snapshot)
    return None if last is None else (last, snapshots)


def _that_may_name(state: TableMetadata, stream_id: str, head_id: int) -> Iterator[Snapshot | None]:
    """The ancestors, newest first; None for one that cannot name the stream. Their text is
    searched first: decoding ten thousand summaries takes its time."""
    plain = _NEVER_ESCAPED.issuperset(stream_id)
    needle = (stream_id if plain else QUERY_ID).encode()
    segments = [segment for segment in state.snapshots.segments if needle in segment.json]
    if not segments:
        return
    ids = {item.snapshot_id for segment in segments for item in segment.bare_items}
    for snapshot_id in state.ancestor_ids(head_id):
        yield state.snapshot(snapshot_id) if snapshot_id in ids else None


def _epoch_of(snapshot: Snapshot, stream_id: str) -> int | None:
    summary = snapshot.summary
    if summary.get(QUERY_ID) != stream_id:
        return None
    text = summary.get(EPOCH_ID, "")
    # A writer that names the stream without an epoch has not committed one.
    return int(text) if text.isascii() and text.isdigit() else None


def _as_committed(
    snapshots: Sequence[Snapshot], updates: Sequence[CommitUpdate]
) -> tuple[CommittedSnapshot, ...]:
    """Says which update made which snapshot, where the request that comes again has as many
    updates that make one; the history alone does not know."""
    indexes = [index for index, update in enumerate(updates) if isinstance(update, FileUpdate)]
    if len(indexes) != len(snapshots):
        return ()
    return tuple(
        CommittedSnapshot(index, item.snapshot_id, item.sequence_number, item.operation)
        for index, item in zip(indexes, snapshots, strict=True)
    )


def _goes_on(before: TableMetadata, after: TableMetadata, name: str, old_id: int) -> bool:
    ref = after.ref(name)
    if ref is None or not ref.is_branch:
        return False
    seen: set[int] = set()
    wanted: int | None = ref.snapshot_id
    # The request may have expired what lies between: then the old state still knows it.
    while wanted is not None and wanted not in seen:
        if wanted == old_id:
            return True
        seen.add(wanted)
        found = after.snapshots.bare(wanted) or before.snapshots.bare(wanted)
        wanted = None if found is None else found.parent_snapshot_id
    return False
