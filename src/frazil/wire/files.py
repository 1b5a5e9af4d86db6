"""The answer to the question why a file is there."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class FileState(StrEnum):
    """What becomes of a file."""

    REACHABLE = "reachable"
    """A snapshot of the table, or its metadata, names the file."""
    LEASED = "leased"
    """Only an expired snapshot names it, which a reader leases."""
    QUARANTINED = "quarantined"
    """Nothing needs it, and it is deleted later."""
    DELETING = "deleting"
    """It is being deleted."""
    INTENDED = "intended"
    """It lies in the folder of a writer that has not committed it."""
    UNKNOWN = "unknown"
    """It lies in a table, and nothing names it."""
    OUTSIDE = "outside"
    """It lies in no table."""


class ReachingSnapshot(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A snapshot that names a file."""

    snapshot_id: int
    refs: tuple[str, ...] = ()
    """The branches and tags of which it is the head."""
    leased_by: tuple[str, ...] = ()
    """The holders of its leases."""
    delete_after_ms: int | None = None
    """If it is expired, the end of its quarantine."""


class FileReason(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Why a file is there."""

    path: str
    state: FileState
    message: str
    table: str | None = None
    kind: str | None = None
    """What the file is to the table, such as `data` or `manifest`."""
    size_bytes: int | None = None
    """None if the file does not exist."""
    snapshots: tuple[ReachingSnapshot, ...] = ()
    """The first ten that name the file: heads of refs, then the newest."""
    delete_after_ms: int | None = None
