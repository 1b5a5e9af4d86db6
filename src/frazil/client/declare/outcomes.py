"""What a commit has done."""

from __future__ import annotations

from msgspec import Struct

from frazil.wire.identifiers import Identifier


class CommittedSnapshot(Struct, frozen=True, rename="kebab"):
    """The snapshot that one update of the request has made."""

    update: int
    """Index in the request's `updates`."""
    snapshot_id: int
    sequence_number: int
    operation: str


class Commit(Struct, frozen=True, kw_only=True):
    """One table's part of a commit that took place."""

    identifier: Identifier
    metadata_location: str
    snapshots: tuple[CommittedSnapshot, ...] = ()
    """Empty where only properties or refs changed."""
    already_committed: bool = False
    """Under `once`: this epoch had been committed before, so nothing was done now."""
    attempts: int = 1
    """How often something was sent."""

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot that it made."""
        return self.snapshots[-1].snapshot_id if self.snapshots else None

    @property
    def sequence_number(self) -> int | None:
        return self.snapshots[-1].sequence_number if self.snapshots else None

    @property
    def operation(self) -> str | None:
        return self.snapshots[-1].operation if self.snapshots else None
