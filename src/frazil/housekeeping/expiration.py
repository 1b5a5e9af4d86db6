"""Expires snapshots: a commit that the server computes, and the deletion that follows.

The commit records what it removes. Files are deleted by a sweep, after the quarantine of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from frazil.commit.pipeline.computed_changes import ComputedUpdates
from frazil.commit.pipeline.pending_requests import Context
from frazil.commit.snapshot.commit_environment import now_ms
from frazil.db.housekeeping_changes import CheckUnleased
from frazil.db.housekeeping_rows import database_now_ms, live_leases
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.deletion.deleted_counts import DeletedFiles
from frazil.housekeeping.expiration_plan import (
    NO_EXPIRY,
    ExpireOptions,
    ExpiryPlan,
    histories_since,
    plan_expiry,
)
from frazil.housekeeping.own_files import own_files_of
from frazil.housekeeping.reachability import (
    KeptFiles,
    Named,
    TreeReader,
    Unreadable,
    Watch,
    named_by_table,
    tree_reader,
    unreachable_files,
)
from frazil.housekeeping.server_operations import JobRun, ServerTools, current_name, sender
from frazil.housekeeping.sweep import sweep_table
from frazil.wire.errors import ValidationError
from frazil.wire.frazil_properties import quarantine_ms
from frazil.wire.identifiers import Identifier
from frazil.wire.leases import BASE_LEASE_PREFIX
from frazil.wire.maintenance_operations import EXPIRE_SNAPSHOTS, parsed_options
from frazil.wire.rest_updates import (
    RemovePartitionSpecs,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    TableUpdate,
)


class ExpireResult(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The columns of Iceberg's procedure, and what was expired."""

    deleted_data_files_count: int
    deleted_position_delete_files_count: int
    deleted_equality_delete_files_count: int
    deleted_manifest_files_count: int
    deleted_manifest_lists_count: int
    deleted_statistics_files_count: int
    expired_snapshots_count: int
    removed_refs: tuple[str, ...]
    leased_snapshots_count: int
    """Snapshots that stay because of a lease."""
    quarantine_ms: int
    """The files of the counts are deleted after so long. If it is 0, they are gone."""


def expire_snapshots(tools: ServerTools, job: JobRun) -> ExpireResult:
    """Expire snapshots of a table, with Iceberg's options as texts."""
    options = parsed_options(EXPIRE_SNAPSHOTS, job.options)
    chosen = ExpireOptions(
        older_than_ms=options.get("older_than"),
        retain_last=options.get("retain_last"),
        snapshot_ids=options.get("snapshot_ids", ()),
        clean_expired_metadata=options.get("clean_expired_metadata", False),
        delete_files=options.get("delete_files", True),
    )
    watch = Watch(job.progress, job.cancelled)
    name = current_name(tools, job)
    return expire(tools, name, chosen, sender(job), dry_run=job.dry_run, watch=watch)


def expire(
    tools: ServerTools,
    identifier: Identifier,
    options: ExpireOptions,
    context: Context,
    *,
    dry_run: bool = False,
    watch: Watch | None = None,
) -> ExpireResult:
    """Expire snapshots of a table. `dry_run` counts what would be deleted."""
    watch = watch or Watch()
    expiry = _Expiry(tools, options)
    loaded = tools.catalog.load_table(identifier)
    expiry.read_specs(loaded.metadata)
    if dry_run:
        row = tools.database.relation(identifier)
        expiry.compute(loaded.metadata, "" if row is None else row.uuid, now_ms())
    else:
        tools.catalog.change_table(context, identifier, expiry.compute).result()
    counts = DeletedFiles()
    quarantine = quarantine_ms(expiry.base.properties)
    if options.delete_files and expiry.removed:
        if quarantine or dry_run:
            counts = _to_delete(tools, expiry, watch)
        else:
            counts = sweep_table(tools, expiry.table_uuid, watch=watch).deleted
    return ExpireResult(
        **counts.iceberg_counts(),
        expired_snapshots_count=len(expiry.removed),
        removed_refs=expiry.plan.refs,
        leased_snapshots_count=len(expiry.plan.leased_ids),
        quarantine_ms=quarantine,
    )


def _to_delete(tools: ServerTools, expiry: _Expiry, watch: Watch) -> DeletedFiles:
    """Count the files that nothing but the expired snapshots reaches."""
    reader = tree_reader(tools)
    base = expiry.base
    named = named_by_table(base)
    gone = {own.snapshot_id for own in expiry.removed}
    others = tuple(own for own in named.snapshots if own.snapshot_id not in gone)
    statistics = base.statistics_paths()
    removed_files = tuple(path for snapshot_id, path in statistics if snapshot_id in gone)
    kept_files = tuple(path for snapshot_id, path in statistics if snapshot_id not in gone)
    kept = KeptFiles(reader, watch)
    kept.add(Named(others, kept_files))
    removed = Named(expiry.removed, removed_files)
    own_files = own_files_of(tools.catalog.locations, base)
    found = unreachable_files(reader, removed, kept, own_files, watch=watch)
    return DeletedFiles.of(file.kind for file in found)


@dataclass(slots=True)
class _Expiry:
    """Computes the updates of an expiry. It remembers the last attempt, which is the one that was
    committed."""

    tools: ServerTools
    options: ExpireOptions
    specs: dict[int, frozenset[int]] = field(default_factory=dict)
    """The partition specs that the manifests of a snapshot have."""
    plan: ExpiryPlan = NO_EXPIRY
    removed: tuple[Snapshot, ...] = ()
    _base: TableMetadata | None = None
    table_uuid: str = ""

    @property
    def base(self) -> TableMetadata:
        assert self._base is not None
        return self._base

    def compute(self, base: TableMetadata, uuid: str, time_ms: int) -> ComputedUpdates:
        database = self.tools.database
        leases = live_leases(database, uuid, database_now_ms(database))
        self._base, self.table_uuid = base, uuid
        leased = {own.snapshot_id for own in leases}
        bases = {own.snapshot_id for own in leases if own.lease_id.startswith(BASE_LEASE_PREFIX)}
        leased |= histories_since(base, bases)
        self.plan = plan_expiry(base, self.options, leased, time_ms)
        gone = self.plan.snapshot_ids
        self.removed = tuple(own for own in base.snapshots.bare_items() if own.snapshot_id in gone)
        updates: list[TableUpdate] = [RemoveSnapshotRef(name) for name in self.plan.refs]
        if gone:
            updates.append(RemoveSnapshots(tuple(own.snapshot_id for own in self.removed)))
        if self.options.clean_expired_metadata:
            updates += self._unused_definitions(base)
        return ComputedUpdates(
            tuple(updates),
            (CheckUnleased(uuid, tuple(sorted(gone))),) if gone else (),
            records_removals=self.options.delete_files,
        )

    def _unused_definitions(self, base: TableMetadata) -> Iterable[TableUpdate]:
        gone = self.plan.snapshot_ids
        kept = [own for own in base.snapshots.bare_items() if own.snapshot_id not in gone]
        specs = {own.spec_id for own in base.partition_specs}
        if len(specs) > 1:
            self.read_specs(base)
            specs = {base.default_spec_id}.union(*(self.specs[own.snapshot_id] for own in kept))
        schemas = {base.current_schema_id, *(own.schema_id for own in kept)}
        unused_specs = [own.spec_id for own in base.partition_specs if own.spec_id not in specs]
        unused_schemas = [own.schema_id for own in base.schemas if own.schema_id not in schemas]
        if unused_specs:
            yield RemovePartitionSpecs(tuple(unused_specs))
        if unused_schemas:
            yield RemoveSchemas(tuple(unused_schemas))

    def read_specs(self, metadata: TableMetadata) -> None:
        """Read which specs snapshots use. The queue waits only for those that are new."""
        if not self.options.clean_expired_metadata or len(metadata.partition_specs) == 1:
            return
        new = [own for own in metadata.snapshots.bare_items() if own.snapshot_id not in self.specs]
        reader: TreeReader = tree_reader(self.tools)
        for snapshot, manifests in reader.lists(new):
            if isinstance(manifests, Unreadable):
                raise ValidationError(f"{manifests}: nobody knows which partition specs are used")
            self.specs[snapshot.snapshot_id] = frozenset(
                manifest.partition_spec_id for manifest in manifests
            )
