"""Measures the health of a table: small files, deletes, manifests, snapshots and quarantine.

The sizes come from the columns of manifests, which the caches of the server have for recent tables.
They depend on the metadata alone, so they are kept for as long as a table does not change.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.commit.catalog.operations import Catalog
from frazil.commit.pipeline.pending_requests import Context
from frazil.db.base import Kind
from frazil.db.housekeeping_rows import live_leases
from frazil.db.rows import Database
from frazil.format.manifest.manifest_columns import ManifestColumns, path_hashes
from frazil.format.manifest.manifest_list import DATA, ManifestFile
from frazil.format.manifest.manifest_writer import DEFAULT_TARGET_SIZE_BYTES, TARGET_SIZE_BYTES
from frazil.format.metadata.content_files import EQUALITY_DELETES
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.expiration_plan import ExpireOptions, gc_is_enabled, plan_expiry
from frazil.housekeeping.jobs import Jobs
from frazil.plan.planner import readable
from frazil.wire.errors import NoSuchTable
from frazil.wire.identifiers import Identifier
from frazil.wire.maintenance_settings import (
    PREFIX,
    MaintenanceSettings,
    maintenance_settings,
)
from frazil.wire.rest_messages import table_identifier
from frazil.wire.table_health import (
    DataFileHealth,
    DeleteHealth,
    ManifestHealth,
    QuarantineHealth,
    SnapshotHealth,
    TableHealth,
)

_MIN_SIZE_FRACTION: Final = 0.75
_MAX_SIZE_FRACTION: Final = 1.8
_DELETE_RATIO: Final = 0.3
_DEFAULT_TARGET_BYTES: Final = 512 << 20
_TARGET: Final = "write.target-file-size-bytes"
_MAX_RUNS: Final = 200
_MAX_KNOWN: Final = 1_000
_DAY_MS: Final = 24 * 3_600_000

Files = tuple[DataFileHealth, DeleteHealth, ManifestHealth]


class HealthReports:
    """Measures the tables of a catalog."""

    def __init__(self, database: Database, catalog: Catalog, jobs: Jobs) -> None:
        self._database = database
        self._catalog = catalog
        self._jobs = jobs
        self._known: OrderedDict[tuple[Any, ...], Files] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, identifier: Identifier) -> TableHealth:
        """Measure a table. Raises NoSuchTable, or NotFound if its manifests cannot be read."""
        row = self._database.relation(identifier)
        if row is None or row.kind is not Kind.TABLE:
            raise NoSuchTable(f"Table does not exist: {identifier}")
        loaded = self._catalog.load_table(identifier)
        metadata = loaded.metadata
        properties = self._settings(identifier, metadata.properties)
        settings = maintenance_settings(properties)
        target = settings.target_file_size_bytes or _whole(
            metadata.properties, _TARGET, _DEFAULT_TARGET_BYTES
        )
        now_ms = self._jobs.now_ms()
        asked = {"uuid": row.uuid, "since_ms": now_ms - _DAY_MS}
        scans, commits = (int(n or 0) for n in self._database.fetch("activity_of", asked)[0])
        location = loaded.metadata_location or ""
        with readable():
            data, deletes, manifests = self._files(identifier, location, metadata, settings, target)
        return TableHealth(
            table=table_identifier(identifier),
            table_uuid=row.uuid,
            metadata_location=location,
            now_ms=now_ms,
            gc_enabled=gc_is_enabled(metadata),
            settings=properties,
            target_file_size_bytes=target,
            data_files=data,
            deletes=deletes,
            manifests=manifests,
            snapshots=self._snapshots(row.uuid, metadata, settings, now_ms),
            quarantine=self._quarantine(row.uuid, now_ms),
            scans_per_day=scans,
            commits_per_day=commits,
            runs=self._jobs.list(row.uuid, None, _MAX_RUNS).jobs,
        )

    def _settings(self, identifier: Identifier, own: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a table. The nearest namespace wins over those above it."""
        found: dict[str, str] = {}
        for depth in range(1, len(identifier.namespace) + 1):
            properties = self._database.namespace_properties(identifier.namespace[:depth]) or {}
            found.update(_maintenance(properties))
        return {**found, **_maintenance(own)}

    def _snapshots(
        self, uuid: str, metadata: TableMetadata, settings: MaintenanceSettings, now_ms: int
    ) -> SnapshotHealth:
        times = [snapshot.timestamp_ms for snapshot in metadata.snapshots.bare_items()]
        if not times:
            return SnapshotHealth()
        leases = live_leases(self._database, uuid, now_ms)
        leased = {lease.snapshot_id for lease in leases}
        expirable = _expirable(metadata, settings, leased, now_ms)
        return SnapshotHealth(
            count=len(times),
            oldest_at_ms=min(times),
            newest_at_ms=max(times),
            expirable_count=len(expirable),
            expirable_bytes=_freed_bytes(metadata, expirable),
        )

    def _quarantine(self, uuid: str, now_ms: int) -> QuarantineHealth:
        asked = {"uuid": uuid, "now_ms": now_ms}
        files, size_bytes, due_files = self._database.fetch("doomed_file_totals", asked)[0]
        snapshots, due = self._database.fetch("expired_snapshot_totals", asked)[0]
        intents = self._database.fetch("ended_intent_count", asked)[0][0]
        return QuarantineHealth(
            snapshot_count=snapshots,
            file_count=files,
            size_bytes=size_bytes,
            due_count=due + due_files + intents,
        )

    def _files(
        self,
        identifier: Identifier,
        location: str,
        metadata: TableMetadata,
        settings: MaintenanceSettings,
        target: int,
    ) -> Files:
        key = (location, target, settings.min_input_files)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        found = self._measured(identifier, metadata, settings, target)
        with self._lock:
            self._known[key] = found
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return found

    def _measured(
        self,
        identifier: Identifier,
        metadata: TableMetadata,
        settings: MaintenanceSettings,
        target: int,
    ) -> Files:
        head = metadata.current_snapshot
        manifest_target = _whole(metadata.properties, TARGET_SIZE_BYTES, DEFAULT_TARGET_SIZE_BYTES)
        if head is None:
            return DataFileHealth(), DeleteHealth(), ManifestHealth(target_bytes=manifest_target)
        reader = self._catalog.manifest_reader()
        listed = list(reader.manifest_list(head).manifests)
        deletes = _Deletes()
        for manifest in listed:
            if manifest.content != DATA:
                deletes.add(reader.columns(manifest))
        data = _DataFiles(metadata.default_spec_id, target, settings.min_input_files)
        removed = deletes.by_path()
        for manifest in listed:
            if manifest.content == DATA:
                data.add(manifest.partition_spec_id, reader.columns(manifest), removed)
        return data.health(), deletes.health, self._manifests(identifier, listed, manifest_target)

    def _manifests(
        self, identifier: Identifier, listed: Sequence[ManifestFile], target_bytes: int
    ) -> ManifestHealth:
        context = Context("frazil-health", "")
        rewrite = self._catalog.rewrite_manifests(context, identifier, dry_run=True)
        saved = max(0, rewrite.rewritten_manifests_count - rewrite.added_manifests_count)
        return ManifestHealth(
            count=len(listed),
            size_bytes=sum(manifest.manifest_length for manifest in listed),
            target_bytes=target_bytes,
            rewritten_count=len(listed) - saved,
        )


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Removed:
    """How many rows of files are deleted, by the hashes of their paths."""

    hashes: NDArray[np.uint64]
    rows: NDArray[np.int64]

    def of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        if not len(self.hashes):
            return np.zeros(len(hashes), np.int64)
        places = np.searchsorted(self.hashes, hashes)
        places[places == len(self.hashes)] = 0
        return np.where(self.hashes[places] == hashes, self.rows[places], 0)


@dataclass(slots=True)
class _Deletes:
    health: DeleteHealth = field(default_factory=DeleteHealth)
    paths: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def add(self, columns: ManifestColumns) -> None:
        live = columns.live()
        deletes = columns.deletes
        if deletes is None or not live.any():
            return
        offsets = deletes.content_offset
        equality = live & (columns.content == EQUALITY_DELETES)
        vectors = live & ~equality & (offsets >= 0)
        positions = live & ~equality & ~vectors
        sizes, records = columns.file_size_in_bytes, columns.record_count
        vector_sizes = deletes.content_size_in_bytes
        old = self.health
        self.health = DeleteHealth(
            position_delete_count=old.position_delete_count + int(positions.sum()),
            position_delete_bytes=old.position_delete_bytes + int(sizes[positions].sum()),
            vector_count=old.vector_count + int(vectors.sum()),
            vector_bytes=old.vector_bytes + int(vector_sizes[vectors].sum()),
            equality_delete_count=old.equality_delete_count + int(equality.sum()),
            equality_delete_bytes=old.equality_delete_bytes + int(sizes[equality].sum()),
            deleted_record_count=old.deleted_record_count + int(records[positions | vectors].sum()),
        )
        for row in np.flatnonzero(positions | vectors).tolist():
            path = deletes.referenced_data_file[row]
            if path is not None:
                self.paths.append(path)
                self.rows.append(int(records[row]))

    def by_path(self) -> _Removed:
        hashes, places = np.unique(path_hashes(self.paths), return_inverse=True)
        rows = np.bincount(places, weights=self.rows, minlength=len(hashes)).astype(np.int64)
        return _Removed(hashes, rows)


@dataclass(slots=True)
class _Group:
    """The files of a partition that should be rewritten."""

    count: int = 0
    size_bytes: int = 0
    deleted_bytes: int = 0
    has_deletes: bool = False


@dataclass(slots=True)
class _DataFiles:
    """Counts the files that a bin-pack rewrites, by the rules of `rewrite_data_files`."""

    default_spec_id: int
    target: int
    min_input_files: int
    count: int = 0
    size_bytes: int = 0
    record_count: int = 0
    small_count: int = 0
    groups: dict[Any, _Group] = field(default_factory=dict)

    def add(self, spec_id: int, columns: ManifestColumns, removed: _Removed) -> None:
        live = columns.live()
        sizes, records = columns.file_size_in_bytes[live], columns.record_count[live]
        deleted = removed.of(columns.hashes()[live])
        small = sizes < self.target * _MIN_SIZE_FRACTION
        many = (deleted > 0) & (deleted >= records * _DELETE_RATIO)
        chosen = small | (sizes > self.target * _MAX_SIZE_FRACTION) | many
        self.count += len(sizes)
        self.size_bytes += int(sizes.sum())
        self.record_count += int(records.sum())
        self.small_count += int(small.sum())
        partition = columns.partition[live]
        counts = np.bincount(partition[chosen])
        weights = np.bincount(partition[chosen], weights=sizes[chosen])
        gone = sizes * np.minimum(1.0, deleted / np.maximum(records, 1))
        freed = np.bincount(partition[chosen], weights=gone[chosen])
        with_many = np.bincount(partition[many], minlength=len(counts))
        for number in np.flatnonzero(counts).tolist():
            # Rows of another spec may belong to any partition of the default spec.
            key = repr(columns.partitions[number]) if spec_id == self.default_spec_id else None
            group = self.groups.setdefault(key, _Group())
            group.count += int(counts[number])
            group.size_bytes += int(weights[number])
            group.deleted_bytes += int(freed[number])
            group.has_deletes |= bool(with_many[number])

    def health(self) -> DataFileHealth:
        paying = [group for group in self.groups.values() if self._pays(group)]
        return DataFileHealth(
            count=self.count,
            size_bytes=self.size_bytes,
            record_count=self.record_count,
            small_count=self.small_count,
            rewritable_count=sum(group.count for group in paying),
            rewritable_bytes=sum(group.size_bytes for group in paying),
            rewritten_count=sum(math.ceil(group.size_bytes / self.target) for group in paying),
            deleted_bytes=sum(group.deleted_bytes for group in paying),
        )

    def _pays(self, group: _Group) -> bool:
        several = group.count > 1
        return (
            (several and group.count >= self.min_input_files)
            or (several and group.size_bytes > self.target)
            or group.size_bytes > self.target * _MAX_SIZE_FRACTION
            or group.has_deletes
        )


# --- snapshots and settings -----------------------------------------------------------------------


def _expirable(
    metadata: TableMetadata, settings: MaintenanceSettings, leased: Set[int], now_ms: int
) -> Set[int]:
    """Return the snapshots that would expire now."""
    if not gc_is_enabled(metadata):
        return frozenset()
    age_ms = settings.max_snapshot_age_ms
    options = ExpireOptions(
        older_than_ms=None if age_ms is None else now_ms - age_ms,
        retain_last=settings.min_snapshots_to_keep,
    )
    return plan_expiry(metadata, options, leased, now_ms).snapshot_ids


def _freed_bytes(metadata: TableMetadata, expired: Set[int]) -> int:
    """Add up what the snapshots after an expired one have removed."""
    head = metadata.current_snapshot_id
    if head is None or not expired:
        return 0
    texts = [
        snapshot.summary.get("removed-files-size", "0")
        for snapshot in metadata.ancestors(head)
        if snapshot.parent_snapshot_id in expired
    ]
    return sum(int(text) for text in texts if text.isdecimal())


def _maintenance(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.startswith(PREFIX)}


def _whole(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    return int(text) if text.isdecimal() and int(text) > 0 else default
