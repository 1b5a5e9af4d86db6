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


class KeptCommit(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What a replay of a commit says of one table beside its metadata."""

    committed: msgspec.Raw
    already_committed: bool = False
    uuid: str | None = None
    """The table's, in a transaction; a commit of one table has it in its key's row."""


_KEPT: msgspec.json.Decoder[KeptCommit] = msgspec.json.Decoder(KeptCommit)


def kept_from_json(content: bytes) -> KeptCommit:
    """Read from a key's row: the list alone, or the object where there is more to say."""
    if content.startswith(b"["):
        return KeptCommit(committed=msgspec.Raw(content))
    return _KEPT.decode(content)


def committed_from_json(content: bytes) -> tuple[CommittedSnapshot, ...]:
    """What `committed_json` wrote, read again."""
    return tuple(
        CommittedSnapshot(e.update, e.snapshot_id, e.sequence_number, e.operation)
        for e in _ENTRIES.decode(content)
    )
