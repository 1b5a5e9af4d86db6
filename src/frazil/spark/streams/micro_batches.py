"""A table's history cut into micro-batches: which files a stream reads next.

A stream reads the data files that `append` snapshots have added, in the order of the branch. It
passes over `replace`, whose rows it has seen, and stops at `delete` and `overwrite`, unless it was
told to pass over those too. Rules and names of options are Iceberg's (`SparkMicroBatchStream`).

Everything here is pure; what a snapshot has added is asked for by a function.
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
"""What Iceberg's own stream reader calls it."""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a stream has come."""

    snapshot_id: int | None = None
    """The last snapshot of which anything was read; None: nothing was."""
    position: int | None = None
    """How many of its files were read; None: all."""
    scan_all: bool = False
    """Whether its files are all that were live in it, and not only those that it has added."""

    def to_json(self) -> dict[str, Any]:
        """Equal offsets have equal texts: Spark compares these."""
        found: dict[str, Any] = {_SNAPSHOT_ID: _NO_SNAPSHOT}
        if self.snapshot_id is not None:
            found[_SNAPSHOT_ID] = self.snapshot_id
        if self.position is not None:
            found[_POSITION] = self.position
        if self.scan_all:
            found[_SCAN_ALL] = True
        return found


NOTHING: Final = Offset()


def offset_of(json: Mapping[str, Any]) -> Offset:
    if _OF_ICEBERG in json:
        raise BadRequest(
            "this checkpoint is of Iceberg's own stream reader: go on with reader=jar, or begin "
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
    """Of one micro-batch, which has one file at least."""

    max_files: int | None = None
    max_rows: int | None = None
    """The file that reaches it is the last one."""

    @property
    def is_none(self) -> bool:
        return self.max_files is None and self.max_rows is None


@dataclass(frozen=True, slots=True)
class Skips:
    deletes: bool = False
    overwrites: bool = False


FilesOf: TypeAlias = Callable[[Snapshot, bool], Sequence[ScanTask]]
"""The files that a snapshot has added, or all that are live in it, always in one order."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is left to read of one snapshot."""

    snapshot: Snapshot
    position: int
    scan_all: bool


class MicroBatches:
    """The batches of a branch, as its history was when it was loaded."""

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
        self._places = {snapshot.snapshot_id: at for at, snapshot in enumerate(history)}

    def first(self) -> Offset:
        """Where a new stream begins.

        Without a timestamp that is the oldest snapshot that is known. Where older ones have expired
        it is read as a whole, since nobody can tell any more what was appended before.
        """
        if not self._history:
            return NOTHING
        if self._from_timestamp_ms is None:
            oldest = self._history[0]
            return Offset(oldest.snapshot_id, 0, oldest.parent_snapshot_id is not None)
        found = NOTHING
        for snapshot in reversed(self._history):
            if snapshot.timestamp_ms < self._from_timestamp_ms:
                break
            found = Offset(snapshot.snapshot_id, 0)
        return found

    def end_after(self, start: Offset, limits: Limits) -> Offset:
        """The end of the batch that begins at `start`; the same offset where there is none."""
        end, files, rows = start, 0, 0
        for part in self._parts(start):
            if limits.is_none or not self._is_read(part):
                end = Offset(part.snapshot.snapshot_id)
                continue
            found = self._files_of(part.snapshot, part.scan_all)
            position = part.position
            for task in found[position:]:
                if limits.max_files is not None and files >= limits.max_files:
                    return self._within(part, position, len(found), end)
                files, rows, position = files + 1, rows + task.data_file.record_count, position + 1
                if limits.max_rows is not None and rows >= limits.max_rows:
                    return self._within(part, position, len(found), end)
            end = Offset(part.snapshot.snapshot_id)
        return end

    def between(self, start: Offset, end: Offset) -> Iterator[ScanTask]:
        """The files of the batch."""
        if start == end or end.snapshot_id is None:
            return
        last = self._place(end.snapshot_id)
        for part in self._parts(start):
            place = self._places[part.snapshot.snapshot_id]
            if place > last:
                return
            if not self._is_read(part):
                continue
            scan_all = part.scan_all or (place == last and end.scan_all)
            found = self._files_of(part.snapshot, scan_all)
            yield from found[part.position : end.position if place == last else None]

    # --- parts ------------------------------------------------------------------------------------

    def _parts(self, start: Offset) -> Iterator[_Part]:
        """What comes after `start`. Raises at the first snapshot that cannot be passed over."""
        begin = self.first() if start.snapshot_id is None else start
        if begin.snapshot_id is None:
            return
        place = self._place(begin.snapshot_id)
        if begin.position is not None:
            yield self._checked(_Part(self._history[place], begin.position, begin.scan_all))
        for snapshot in self._history[place + 1 :]:
            yield self._checked(_Part(snapshot, 0, False))

    def _checked(self, part: _Part) -> _Part:
        operation = part.snapshot.operation
        if part.scan_all or operation in (APPEND, REPLACE):
            return part
        if operation == DELETE and self._skips.deletes:
            return part
        if operation == OVERWRITE and self._skips.overwrites:
            return part
        option = {DELETE: SKIP_DELETES, OVERWRITE: SKIP_OVERWRITES}.get(operation or "")
        if option is None:
            raise BadRequest(
                f"snapshot {part.snapshot.snapshot_id} says of its operation that it is "
                f"{operation!r}: a stream cannot read it"
            )
        raise BadRequest(
            f"snapshot {part.snapshot.snapshot_id} has the operation {operation!r}, which a stream "
            f"of appended rows cannot show: to pass over such snapshots set {option}=true"
        )

    def _is_read(self, part: _Part) -> bool:
        return part.scan_all or part.snapshot.operation == APPEND

    def _within(self, part: _Part, position: int, files: int, before: Offset) -> Offset:
        if position == files:
            return Offset(part.snapshot.snapshot_id)
        if position == part.position and part.position == 0 and not part.scan_all:
            # Nothing of this snapshot is in the batch, so that it ends with the one before.
            return before
        return Offset(part.snapshot.snapshot_id, position, part.scan_all)

    def _place(self, snapshot_id: int) -> int:
        place = self._places.get(snapshot_id)
        if place is None:
            raise NotFound(
                f"snapshot {snapshot_id}, where the stream has stopped, is no longer in the "
                "history: it has expired, or the branch was moved back. Begin with a new "
                f"checkpoint, and with {FROM_TIMESTAMP} where rows must not come twice"
            )
        return place
