"""Applies each epoch of a stream exactly once.

The stream's row, written in the transaction of the swap, is authoritative. If there is none, the
summaries of the branch's ancestors are searched, as in Java's SparkWrite. This also recognizes
streams that another server or a classic client has committed. If a branch moves backwards, its
rows are deleted, because the branch no longer has the files of those epochs.

All functions are pure, except that `Streams` loads rows.
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


class CommittedSnapshot(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """One entry of the `committed` list of an answer."""

    update: int
    snapshot_id: int
    sequence_number: int
    operation: str | None
    superseded_files: tuple[str, ...] = ()
    """Declared Puffin files that no entry names, because the server merged their vectors. The
    writer may delete them."""


_COMMITTED: Final = msgspec.json.Decoder(tuple[CommittedSnapshot, ...])


def committed_json(committed: Iterable[CommittedSnapshot]) -> bytes:
    return msgspec.json.encode(tuple(committed))


QUERY_ID: Final = "spark.sql.streaming.queryId"
EPOCH_ID: Final = "spark.sql.streaming.epochId"

LoadStream: TypeAlias = Callable[[str, str], StreamRow | None]
"""Loads the row of a stream by branch and stream id, including changes by earlier requests."""

_NEVER_ESCAPED: Final = frozenset(string.ascii_letters + string.digits + "-_.")


@dataclass(frozen=True, slots=True)
class CommittedEpoch:
    """The last epoch that a stream committed to a branch, and the snapshots of that epoch."""

    epoch: int
    committed: tuple[CommittedSnapshot, ...]


def already_committed(
    state: TableMetadata, once: Once, updates: Sequence[CommitUpdate], load: LoadStream
) -> tuple[CommittedSnapshot, ...] | None:
    """Return the snapshots that the request's epoch has already committed. Return None if the
    epoch is new and must be applied.

    This is checked before the requirements, because those were true when the epoch was first
    sent. The tuple is empty for an epoch before the last one, because its snapshots are not
    stored.
    """
    branch = branch_of(updates)
    last = committed_epoch(state, once, branch, load(branch, once.id), updates)
    if last is None or once.epoch > last.epoch:
        return None
    return last.committed if once.epoch == last.epoch else ()


def repeated_epoch(
    state: TableMetadata, request: CommitTableRequest, load: LoadStream
) -> tuple[CommittedSnapshot, ...] | None:
    """Return the snapshots of a repeated epoch whose request was to create the table. Return
    None if the request assigns another uuid than the table's or the epoch is new."""
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
    """Return the last epoch of this stream in the branch, or None."""
    if row is not None:
        return CommittedEpoch(row.epoch, _COMMITTED.decode(row.committed))
    last = _last_of_history(state, once.id, branch)
    if last is None:
        return None
    epoch, snapshots = last
    return CommittedEpoch(epoch, _as_committed(snapshots, updates))


def branch_of(updates: Sequence[CommitUpdate]) -> str:
    """Return the single branch that all updates of a request with `once` name."""
    return next(update.branch for update in updates if isinstance(update, FineGrainedUpdate))


def summary_of(once: Once | None) -> tuple[tuple[str, str], ...]:
    """Return the summary entries that identify the stream and epoch of a request."""
    return () if once is None else ((QUERY_ID, once.id), (EPOCH_ID, str(once.epoch)))


def stream_row(
    uuid: str, once: Once, branch: str, committed: Iterable[CommittedSnapshot]
) -> StreamRow:
    """Return the row to store when a request is applied."""
    return StreamRow(uuid, branch, once.id, once.epoch, committed_json(committed))


def branches_moved_back(before: TableMetadata, after: TableMetadata) -> frozenset[str]:
    """Return the branches that were removed, or whose new head does not descend from the old
    head."""
    if before.refs is after.refs:
        return frozenset()
    return frozenset(
        name
        for name, ref in before.refs.items()
        if ref.is_branch and not _descends(before, after, name, ref.snapshot_id)
    )


class Streams:
    """The stream rows of a table during a round, updated by each accepted request. At the end
    they are what the transaction of the swap must write."""

    def __init__(self, uuid: str, load: Callable[[str, str, str], StreamRow | None]) -> None:
        """`load` is the `stream` method of the database, or of a session that has locked the
        table's row."""
        self._uuid = uuid
        self._load = load
        self._rows: dict[tuple[str, str], StreamRow] = {}
        self._forgotten: set[str] = set()

    def __call__(self, branch: str, stream_id: str) -> StreamRow | None:
        """Return the row of a stream, including changes by earlier requests of the group."""
        row = self._rows.get((branch, stream_id))
        if row is not None or branch in self._forgotten:
            return row
        return self._load(self._uuid, branch, stream_id)

    def accept(self, moved_back: Iterable[str], rows: Iterable[StreamRow] = ()) -> None:
        """Record the effects of a request: first the branches it moved back, then its rows."""
        for branch in moved_back:
            self._forgotten.add(branch)
            for key in [key for key in self._rows if key[0] == branch]:
                del self._rows[key]
        for row in rows:
            self._rows[row.branch, row.id] = row

    @property
    def written(self) -> tuple[StreamRow, ...]:
        """The value for `Transaction.streams`."""
        return tuple(self._rows.values())

    @property
    def forgotten(self) -> tuple[tuple[str, str], ...]:
        """The value for `Transaction.forget_streams`."""
        return tuple((self._uuid, branch) for branch in sorted(self._forgotten))


# --- the history ------------------------------------------------------------------------------


def _last_of_history(
    state: TableMetadata, stream_id: str, branch: str
) -> tuple[int, list[Snapshot]] | None:
    """Return the epoch of the newest ancestor that names the stream, and its snapshots, oldest
    first.

    The snapshots of one request are consecutive ancestors. A branch that does not exist yet will
    start at the head of main, so main's history is searched for it.
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
    """Yield the ancestors, newest first, with None for each that cannot name the stream. The
    JSON text is searched first, because decoding ten thousand summaries is slow."""
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
    # A snapshot that names the stream without an epoch does not count as a committed epoch.
    return int(text) if text.isascii() and text.isdigit() else None


def _as_committed(
    snapshots: Sequence[Snapshot], updates: Sequence[CommitUpdate]
) -> tuple[CommittedSnapshot, ...]:
    """Match the snapshots with the updates of the repeated request. The history does not record
    which update made which snapshot, so the result is empty if the numbers differ."""
    indexes = [index for index, update in enumerate(updates) if isinstance(update, FileUpdate)]
    if len(indexes) != len(snapshots):
        return ()
    return tuple(
        CommittedSnapshot(index, item.snapshot_id, item.sequence_number, item.operation)
        for index, item in zip(indexes, snapshots, strict=True)
    )


def _descends(before: TableMetadata, after: TableMetadata, name: str, old_id: int) -> bool:
    """Return whether the branch still exists and its head descends from the old head."""
    ref = after.ref(name)
    if ref is None or not ref.is_branch:
        return False
    seen: set[int] = set()
    wanted: int | None = ref.snapshot_id
    # The request may have expired snapshots in between, so look them up in the old state too.
    while wanted is not None and wanted not in seen:
        if wanted == old_id:
            return True
        seen.add(wanted)
        snapshot = after.snapshots.bare(wanted) or before.snapshots.bare(wanted)
        wanted = None if snapshot is None else snapshot.parent_snapshot_id
    return False
