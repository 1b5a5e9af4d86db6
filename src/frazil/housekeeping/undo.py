"""Brings an expired snapshot or a purged table back, as long as it is in quarantine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from frazil.commit.pipeline.computed_changes import ComputedUpdates
from frazil.commit.pipeline.pending_requests import Context
from frazil.db.housekeeping_changes import RestoreSnapshots, RetireMetadata
from frazil.db.housekeeping_rows import (
    DeletionState,
    ExpiredSnapshotRow,
    PurgedTableRow,
    expired_snapshot,
    expired_snapshots,
    purged_table,
    purged_tables,
)
from frazil.db.rows import namespace_key, namespace_of
from frazil.db.sql import Fetch
from frazil.format.metadata.partition_spec import PartitionSpec, parse_partition_spec
from frazil.format.metadata.schema import Schema, parse_schema
from frazil.format.metadata.snapshots import Snapshot, parse_snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_state import TableState
from frazil.housekeeping.expiration_plan import MAX_REF_AGE
from frazil.housekeeping.reachability import Unreadable, tree_reader
from frazil.housekeeping.server_operations import JobRun, ServerTools, sender
from frazil.wire.errors import BadRequest, NotFound, ValidationError
from frazil.wire.identifiers import Identifier, check_identifier
from frazil.wire.maintenance_operations import UNDO, parsed_options
from frazil.wire.rest_messages import RegisterTableRequest
from frazil.wire.rest_updates import SetSnapshotRef

_FOREVER_MS: Final = 2**63 - 1
_SHOWN: Final = 10


class NoSuchQuarantine(NotFound):
    """A snapshot or table that is not in quarantine."""


class UndoResult(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    table: str
    snapshot_id: int | None = None
    tag: str | None = None
    """The tag that keeps the snapshot."""
    restored_schemas: tuple[int, ...] = ()
    restored_specs: tuple[int, ...] = ()


def undo(tools: ServerTools, run: JobRun) -> UndoResult:
    """Bring back the snapshot that the options name, or the table of the job, which was purged."""
    options = parsed_options(UNDO, run.options)
    row = tools.database.relation_by_uuid(run.uuid)
    if row is None:
        name = options.get("as")
        wanted = run.identifier if name is None else _identifier(name)
        return undo_purge(tools, run.uuid, wanted, sender(run), dry_run=run.dry_run)
    if "as" in options:
        raise BadRequest("options.as: it names a purged table, and this one exists: leave it out")
    snapshot_id = options.get("snapshot_id")
    if snapshot_id is None:
        raise BadRequest(f"options.snapshot_id: {_choice(tools, run.uuid, row.identifier)}")
    tag = options.get("tag")
    return undo_expiry(
        tools, row.identifier, snapshot_id, sender(run), tag=tag, dry_run=run.dry_run
    )


def _choice(tools: ServerTools, uuid: str, identifier: Identifier) -> str:
    """Name the snapshots that can come back, the newest first."""
    rows = [
        row
        for row in expired_snapshots(tools.database, uuid)
        if row.state is DeletionState.QUARANTINED
    ]
    if not rows and purged_last(tools.database, identifier) is not None:
        return "another table has the name now: name the purged one anew, with the option as"
    if not rows:
        return "the table exists, and none of its snapshots is in quarantine: nothing can come back"
    snapshots = [parse_snapshot(row.snapshot) for row in rows]
    snapshots.sort(key=lambda own: own.timestamp_ms, reverse=True)
    names = [f"{own.snapshot_id} (of {utc_text(own.timestamp_ms)})" for own in snapshots[:_SHOWN]]
    more = f" and {len(snapshots) - _SHOWN:,} older" if len(snapshots) > _SHOWN else ""
    return f"name the expired snapshot to bring back: {', '.join(names)}{more}"


# --- an expired snapshot --------------------------------------------------------------------------


def undo_expiry(
    tools: ServerTools,
    identifier: Identifier,
    snapshot_id: int,
    context: Context,
    *,
    tag: str | None = None,
    dry_run: bool = False,
) -> UndoResult:
    """Put a snapshot back, with its schema, its specs, and a tag that keeps it."""
    undoing = _Undo(tools, snapshot_id, tag or f"undo-{snapshot_id}")
    if dry_run:
        table = tools.catalog.table_row(identifier)
        undoing.compute(tools.catalog.metadata_at(table.metadata_location), table.uuid, 0)
    else:
        tools.catalog.change_table(context, identifier, undoing.compute).result()
    return UndoResult(
        table=str(identifier),
        snapshot_id=snapshot_id,
        tag=undoing.tag,
        restored_schemas=tuple(schema.schema_id for schema in undoing.schemas),
        restored_specs=tuple(spec.spec_id for spec in undoing.specs),
    )


@dataclass(slots=True)
class _Undo:
    """Computes the metadata with the snapshot. It remembers the last attempt, which is the one that
    was committed."""

    tools: ServerTools
    snapshot_id: int
    tag: str
    schemas: list[Schema] = field(default_factory=list)
    specs: list[PartitionSpec] = field(default_factory=list)

    def compute(self, base: TableMetadata, uuid: str, time_ms: int) -> ComputedUpdates:
        row = self._row(base, uuid)
        snapshot = parse_snapshot(row.snapshot)
        if self.tag in base.refs:
            raise BadRequest(f"options.tag: {self.tag} exists already: give another name")
        self._find_definitions(base, uuid, snapshot)

        def restore(state: TableState) -> None:
            state.snapshots = state.snapshots.append(snapshot)
            state.schemas = (*state.schemas, *self.schemas)
            state.partition_specs = (*state.partition_specs, *self.specs)

        # Nothing restores the statistics files, which the metadata has no entries of any more.
        statistics = (RetireMetadata(uuid, row.statistics),) if row.statistics else ()
        # The next expiry would drop the tag if the table has a limit, because the snapshot is old.
        max_age_ms = _FOREVER_MS if MAX_REF_AGE in base.properties else None
        tag = SetSnapshotRef(self.tag, "tag", self.snapshot_id, max_ref_age_ms=max_age_ms)
        restored = RestoreSnapshots(uuid, (self.snapshot_id,))
        return ComputedUpdates((tag,), (restored, *statistics), restored=restore)

    def _row(self, base: TableMetadata, uuid: str) -> ExpiredSnapshotRow:
        if self.snapshot_id in base.snapshots:
            raise BadRequest(
                f"options.snapshot_id: snapshot {self.snapshot_id} is not expired: it is in the "
                "table"
            )
        row = expired_snapshot(self.tools.database, uuid, self.snapshot_id)
        if row is None:
            raise NoSuchQuarantine(
                f"options.snapshot_id: snapshot {self.snapshot_id} is not in quarantine: it never "
                "was in the table, its files are deleted, or it was expired with "
                "delete_files=false"
            )
        if row.state is DeletionState.DELETING:
            raise ValidationError(f"the files of snapshot {self.snapshot_id} are being deleted")
        return row

    def _find_definitions(self, base: TableMetadata, uuid: str, snapshot: Snapshot) -> None:
        """Find the removed schema and specs of the snapshot. An id may have a new meaning by now,
        because a table gives the highest id of those that it has, plus one."""
        removed = self.tools.database.fetch("removed_definitions", {"uuid": uuid})
        schemas = {own_id: bytes(raw) for kind, own_id, raw in removed if kind == "schema"}
        specs = {own_id: bytes(raw) for kind, own_id, raw in removed if kind == "spec"}
        self.schemas = [
            parse_schema(schemas[own_id])
            for own_id in schemas.keys() & {snapshot.schema_id}
            if _is_free(base.schema(own_id), schemas[own_id], f"schema {own_id}")
        ]
        used = self._specs_of(snapshot) if specs else set()
        self.specs = [
            parse_partition_spec(specs[own_id])
            for own_id in sorted(specs.keys() & used)
            if _is_free(base.spec(own_id), specs[own_id], f"partition spec {own_id}")
        ]

    def _specs_of(self, snapshot: Snapshot) -> set[int]:
        ((_, manifests),) = tree_reader(self.tools).lists([snapshot])
        if isinstance(manifests, Unreadable):
            raise ValidationError(f"the snapshot cannot come back: {manifests}")
        return {manifest.partition_spec_id for manifest in manifests}


def _is_free(known: Schema | PartitionSpec | None, removed: bytes, what: str) -> bool:
    """Return whether a definition has to come back. Raises if its id has a new meaning."""
    if known is not None and bytes(known.raw) != removed:
        raise ValidationError(
            f"the snapshot cannot come back: {what} of the table has another meaning now"
        )
    return known is None


# --- a purged table -------------------------------------------------------------------------------


def undo_purge(
    tools: ServerTools,
    uuid: str,
    identifier: Identifier,
    context: Context,
    *,
    dry_run: bool = False,
) -> UndoResult:
    """Create a purged table again, under a name that is free."""
    row = purged_table(tools.database, uuid)
    if row is None:
        raise NoSuchQuarantine("the table is not in quarantine: it was not purged, or is deleted")
    if row.state is DeletionState.DELETING:
        raise ValidationError(f"the files of {purged_name(row)} are being deleted")
    if not dry_run:
        request = RegisterTableRequest(identifier.name, row.metadata_location)
        tools.catalog.register_table(context, identifier, request)
    return UndoResult(table=str(identifier))


def utc_text(time_ms: int) -> str:
    """Return a time for people. Properties may name one that no calendar has."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms:,} ms after 1970"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _identifier(text: str) -> Identifier:
    *levels, name = text.split(".")
    if not levels:
        raise BadRequest(f"options.as: {text[:100]!r} has no namespace: write namespace.table")
    return check_identifier(levels, name, "table")


def purged_last(database: Fetch, identifier: Identifier) -> PurgedTableRow | None:
    """Return the table of this name that was purged last, if it is in quarantine."""
    place = namespace_key(identifier.namespace), identifier.name
    for row in reversed(purged_tables(database)):
        if (row.namespace_key, row.name) == place:
            return row
    return None


def purged_name(row: PurgedTableRow) -> Identifier:
    return Identifier(namespace_of(row.namespace_key), row.name)
