"""What a commit records and checks about leases, intents and files to delete, in the transaction of
its swap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class RecordExpired:
    """Record snapshots that the commit removes. `quarantine_ms` is the time until they are
    deleted."""

    uuid: str
    quarantine_ms: int
    snapshots: tuple[tuple[int, bytes, tuple[str, ...]], ...]
    """Snapshot id, JSON of the snapshot, and paths of its statistics files."""


@dataclass(frozen=True, slots=True)
class RecordDefinitions:
    """Record schemas and specs that the commit removes."""

    uuid: str
    definitions: tuple[tuple[str, int, bytes], ...]
    """`schema` or `spec`, its id, and its JSON."""


@dataclass(frozen=True, slots=True)
class RetireMetadata:
    """Record metadata files that the metadata log no longer names."""

    uuid: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordPurge:
    """Record a table that the transaction drops with purge."""

    uuid: str
    namespace_key: str
    name: str
    metadata_location: str
    locations: tuple[str, ...]
    quarantine_ms: int


@dataclass(frozen=True, slots=True)
class CheckAddedPaths:
    """Refuse declared paths that are being deleted, and release those that are quarantined."""

    uuid: str
    update: int
    """The index of the update in its request."""
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckUnleased:
    """Lose the swap if a live lease names one of the snapshots."""

    uuid: str
    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestoreSnapshots:
    """Take expired snapshots back. The swap is lost if one is no longer quarantined."""

    uuid: str
    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestorePurged:
    """Take a purged table back. The swap is lost if it is no longer quarantined."""

    uuid: str


@dataclass(frozen=True, slots=True)
class StartDeletion:
    """Mark what is deleted next. The swap is lost if a lease or an intent has become live again.

    The caller has locked the table's row and has compared its pointer.
    """

    uuid: str
    files: tuple[tuple[str, str, int | None], ...] = ()
    """Path, reason and size of each file."""
    snapshot_ids: tuple[int, ...] = ()
    intent_ids: tuple[str, ...] = ()
    purged: bool = False


HousekeepingChange: TypeAlias = (
    RecordExpired
    | RecordDefinitions
    | RetireMetadata
    | RecordPurge
    | CheckAddedPaths
    | CheckUnleased
    | RestoreSnapshots
    | RestorePurged
    | StartDeletion
)
