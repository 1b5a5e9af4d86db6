"""Splits a table's history into micro-batches: which files a stream reads next.

A stream reads the data files that `append` snapshots have added, in the order of the branch. It
skips `replace`, whose rows it has read before, and stops at `delete` and `overwrite`, unless
options say to skip those too. Rules and names of options are Iceberg's (`SparkMicroBatchStream`).

All code here is pure; a function is passed that plans the files of a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from frazil.client.declare.client_table import Snapshot
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.wire.errors import BadRequest, NotFound

APPEND: Final = "append"
REPLACE: Final = "replace"
DELETE: Final = "delete"
OVERWRITE: Final = "overwrite"

SKIP_DELETES: Final = "streaming-skip-delete-snapshots"
SKIP_OVERWRITES: Final = "streaming-skip-overwrite-snapshots"
MAX_FILES: Final = "streaming-max-files-per-micro-batch"
MAX_ROWS: Final = "streaming-max-rows-per-micro-batch"
FROM_TIMESTAMP: Final = "stream-from-timestamp"

_SNAPSHOT_ID: Final = "snapshot-id"
_POSITION: Final = "position"
_SCAN_ALL: Final = "scan-all-files"
_NO_SNAPSHOT: Final = -1
_OF_ICEBERG: Final = "snapshot_id"
"""The name in offsets of Iceberg's own stream reader."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of a stream in the history."""

    snapshot_id: int | None = None
    """The last snapshot that was read, at least in part; None: nothing was read."""
    position: int | None = None
    """How many of its files were read; None: all of them."""
    scan_all: bool = False
    """Whether all files that are live in it are read, and not only those that it has added."""

    def to_json(self) -> dict[str, Any]:
        """Return the offset as JSON; Spark compares its text, so the keys have a fixed order."""
        json: dict[str, Any] = {_SNAPSHOT_ID: _NO_SNAPSHOT}
        if self.snapshot_id is not None:
            json[_SNAPSHOT_ID] = self.snapshot_id
        if self.position is not None:
            json[_POSITION] = self.position
        if self.scan_all:
            json[_SCAN_ALL] = True
        return json


NOTHING: Final = Offset()


def offset_of(json: Mapping[str, Any]) -> Offset:
    if _OF_ICEBERG in json:
        raise BadRequest(
            "this checkpoint is of Iceberg's own stream reader: continue with reader=jar, or start "
            "with a new checkpoint"
        )
    try:
        snapshot_id = int(json[_SNAPSHOT_ID])
        position = json.get(_POSITION)
        return Offset(
            None if snapshot_id == _NO_SNAPSHOT else snapshot_id,
            None if position is None else int(position),
            bool(json.get(_SCAN_ALL, False)),
        )
    except (KeyError, TypeError, ValueError):
        raise BadRequest(f"the checkpoint's offset {dict(json)} is not of this source") from None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one micro-batch, which has at least one file."""

    max_files: int | None = None
    max_rows: int | None = None
    """The file that reaches this number is the last one of the batch."""


@dataclass(frozen=True, slots=True)
class Skips:
    deletes: bool = False
    overwrites: bool = False


FilesOf: TypeAlias = Callable[[Snapshot, bool], Sequence[ScanTask]]
"""Plans the files that a snapshot has added, or all that are live in it, in a fixed order."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The rest of one snapshot, from a position on."""

    snapshot: Snapshot
    position: int
    scan_all: bool


class MicroBatches:
    """The batches of a branch, by its history as it was loaded."""

    def __init__(
        self,
        history: Sequence[Snapshot],
        files_of: FilesOf,
        *,
        skips: Skips | None = None,
        from_timestamp_ms: int | None = None,
    ) -> None:
        """`history` is oldest first."""
        self._history = history
        self._files_of = files_of
        self._skips = skips or Skips()
        self._from_timestamp_ms = from_timestamp_ms
        self._indices = {snapshot.snapshot_id: index for index, snapshot in enumerate(history)}

    def first(self) -> Offset:
        """Return the offset at which a new stream starts.

        Without a timestamp that is the oldest known snapshot. If older ones have expired, it is
        read as a whole, since it is no longer known what they have appended.
        """
        if not self._history:
            return NOTHING
        if self._from_timestamp_ms is None:
            oldest = self._history[0]
            return Offset(oldest.snapshot_id, 0, oldest.parent_snapshot_id is not None)
        start = NOTHING
        for snapshot in reversed(self._history):
            if snapshot.timestamp_ms < self._from_timestamp_ms:
                break
            start = Offset(snapshot.snapshot_id, 0)
        return start

    def end_after(self, start: Offset, limits: Limits) -> Offset:
        """Return the end of the batch that starts at `start`; the same offset if it is empty."""
        end, files, rows = start, 0, 0
        for part in self._parts(start):
            if limits == Limits() or not self._is_read(part):
                end = Offset(part.snapshot.snapshot_id)
                continue
            tasks = self._files_of(part.snapshot, part.scan_all)
            position = part.position
            for task in tasks[position:]:
                if limits.max_files is not None and files >= limits.max_files:
                    return self._within(part, position, len(tasks), end)
                files, rows, position = files + 1, rows + task.data_file.record_count, position + 1
                if limits.max_rows is not None and rows >= limits.max_rows:
                    return self._within(part, position, len(tasks), end)
            end = Offset(part.snapshot.snapshot_id)
        return end

    def between(self, start: Offset, end: Offset) -> Iterator[ScanTask]:
        """Yield the files of the batch."""
        if start == end or end.snapshot_id is None:
            return
        last = self._index(end.snapshot_id)
        for part in self._parts(start):
            index = self._indices[part.snapshot.snapshot_id]
            if index > last:
                return
            if not self._is_read(part):
                continue
            scan_all = part.scan_all or (index == last and end.scan_all)
            tasks = self._files_of(part.snapshot, scan_all)
            yield from tasks[part.position : end.position if index == last else None]

    # --- parts ------------------------------------------------------------------------------------

    def _parts(self, start: Offset) -> Iterator[_Part]:
        """Yield what comes after `start`; raise at the first snapshot that cannot be skipped."""
        begin = self.first() if start.snapshot_id is None else start
        if begin.snapshot_id is None:
            return
        index = self._index(begin.snapshot_id)
        if begin.position is not None:
            yield self._checked(_Part(self._history[index], begin.position, begin.scan_all))
        for snapshot in self._history[index + 1 :]:
            yield self._checked(_Part(snapshot, 0, False))

    def _checked(self, part: _Part) -> _Part:
        operation = part.snapshot.operation
        is_skipped = {DELETE: self._skips.deletes, OVERWRITE: self._skips.overwrites}
        if part.scan_all or operation in (APPEND, REPLACE) or is_skipped.get(operation or ""):
            return part
        skip = {
            DELETE: ("skip_deletes", SKIP_DELETES),
            OVERWRITE: ("skip_overwrites", SKIP_OVERWRITES),
        }.get(operation or "")
        if skip is None:
            raise BadRequest(
                f"snapshot {part.snapshot.snapshot_id} has the operation {operation!r}: a stream "
                "cannot read it"
            )
        raise BadRequest(
            f"snapshot {part.snapshot.snapshot_id} has the operation {operation!r}, which a stream "
            f"of appended rows cannot read: to skip such snapshots pass {skip[0]}=True to "
            f"read_stream, or set the option {skip[1]}=true"
        )

    def _is_read(self, part: _Part) -> bool:
        return part.scan_all or part.snapshot.operation == APPEND

    def _within(self, part: _Part, position: int, files: int, before: Offset) -> Offset:
        if position == files:
            return Offset(part.snapshot.snapshot_id)
        if position == part.position and part.position == 0 and not part.scan_all:
            # The batch has no file of this snapshot: it ends with the snapshot before.
            return before
        return Offset(part.snapshot.snapshot_id, position, part.scan_all)

    def _index(self, snapshot_id: int) -> int:
        index = self._indices.get(snapshot_id)
        if index is None:
            raise NotFound(
                f"snapshot {snapshot_id}, where the stream has stopped, is no longer in the "
                "history: it has expired, or the branch was moved back. Start with a new "
                f"checkpoint, and with {FROM_TIMESTAMP} if rows must not come twice"
            )
        return index
