"""The health of a table: what its maintenance depends on."""

from __future__ import annotations

from frazil.wire.job_messages import Job
from frazil.wire.rest_messages import Response, TableIdentifier


class DataFileHealth(Response, frozen=True, kw_only=True):
    """The live data files of the branch main."""

    count: int = 0
    size_bytes: int = 0
    record_count: int = 0
    small_count: int = 0
    """Files below 75 % of the target size."""
    rewritable_count: int = 0
    """Files that `rewrite_data_files` would rewrite."""
    rewritable_bytes: int = 0
    rewritten_count: int = 0
    """The files that would take their place, estimated."""
    deleted_bytes: int = 0
    """The bytes of deleted rows in those files, estimated."""


class DeleteHealth(Response, frozen=True, kw_only=True):
    """The live delete files and deletion vectors of the branch main."""

    position_delete_count: int = 0
    position_delete_bytes: int = 0
    vector_count: int = 0
    vector_bytes: int = 0
    equality_delete_count: int = 0
    equality_delete_bytes: int = 0
    deleted_record_count: int = 0
    """Rows that position deletes and vectors remove."""


class ManifestHealth(Response, frozen=True, kw_only=True):
    """The manifests of the branch main."""

    count: int = 0
    size_bytes: int = 0
    target_bytes: int = 0
    rewritten_count: int = 0
    """The manifests that `rewrite_manifests` would leave, estimated."""


class SnapshotHealth(Response, frozen=True, kw_only=True):
    count: int = 0
    oldest_at_ms: int | None = None
    newest_at_ms: int | None = None
    expirable_count: int = 0
    """Snapshots that the settings do not keep."""
    expirable_bytes: int = 0
    """The files that only they reach, estimated from the summaries of main."""


class QuarantineHealth(Response, frozen=True, kw_only=True):
    """What nothing reaches any more, and is not deleted yet."""

    snapshot_count: int = 0
    """Expired snapshots that can be brought back."""
    file_count: int = 0
    size_bytes: int = 0
    """Of the files whose size is known."""
    due_count: int = 0
    """Snapshots and files that may be deleted now."""


class TableHealth(Response, frozen=True, kw_only=True):
    table: TableIdentifier
    table_uuid: str
    metadata_location: str
    now_ms: int
    """By the database's clock, as all times."""
    gc_enabled: bool
    settings: dict[str, str]
    """The properties `frazil.maintenance.…` of the table, and of its namespaces."""
    target_file_size_bytes: int
    data_files: DataFileHealth
    deletes: DeleteHealth
    manifests: ManifestHealth
    snapshots: SnapshotHealth
    quarantine: QuarantineHealth
    scans_per_day: int
    commits_per_day: int
    runs: tuple[Job, ...]
    """The last jobs, newest first."""
