"""The `committed` list of an answer: which update of a request made which snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec


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
