"""Says what the transaction of a commit records about files that may be deleted later.

Whoever removes snapshots, schemas, partition specs or statistics from a table: the commit records
them. So nobody has to search the store for their files, and they can be brought back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TypeAlias

from frazil.commit.snapshot.apply_request import Applied, added_snapshots
from frazil.db.housekeeping_changes import (
    CheckAddedPaths,
    HousekeepingChange,
    RecordDefinitions,
    RecordExpired,
    RetireMetadata,
)
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_properties import DELETE_OLD_METADATA
from frazil.wire.file_actions import CommitUpdate, FineGrainedUpdate
from frazil.wire.frazil_properties import quarantine_ms
from frazil.wire.rest_updates import (
    AddSnapshot,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveSchemas,
    RemoveSnapshots,
    RemoveStatistics,
    SetPartitionStatistics,
    SetStatistics,
)

_Removal: TypeAlias = (
    RemoveSnapshots
    | RemoveSchemas
    | RemovePartitionSpecs
    | RemoveStatistics
    | RemovePartitionStatistics
    | SetStatistics
    | SetPartitionStatistics
)


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """What a request did to a table."""

    updates: Sequence[CommitUpdate]
    applied: Applied[TableMetadata]


def recorded(
    base: TableMetadata | None,
    new: TableMetadata,
    uuid: str,
    accepted: Sequence[AcceptedChange],
    written: Sequence[str],
) -> Iterator[HousekeepingChange]:
    """Yield what the transaction that replaces `base` by `new` records. `written` are the files
    that the server has written for it."""
    if base is None:
        return
    yield from _added(uuid, accepted, written)
    states = (base, *(change.applied.metadata for change in accepted))
    for change, (before, after) in zip(accepted, pairwise(states), strict=True):
        yield from change.applied.housekeeping
        removes = any(isinstance(update, _Removal) for update in change.updates)
        if removes and change.applied.records_removals:
            yield from _removed(before, after, new, uuid, change.updates)
            yield from _replaced_statistics(before, after, uuid)
    yield from _off_the_log(base, new, uuid)


def recorded_replacement(
    before: TableMetadata, after: TableMetadata, uuid: str
) -> tuple[HousekeepingChange, ...]:
    """Return what is recorded when a table gets other metadata, which may be older."""
    removed = _removed(before, after, after, uuid, ())
    return (*removed, *_replaced_statistics(before, after, uuid))


def _added(
    uuid: str, accepted: Sequence[AcceptedChange], written: Sequence[str]
) -> Iterator[CheckAddedPaths]:
    """Yield the checks of new paths. A group has one, because a group that is refused is applied
    again one by one."""
    by_update = [
        (index, paths)
        for change in accepted
        for index, update in enumerate(change.updates)
        if (paths := added_paths(update))
    ]
    if len(accepted) > 1:
        by_update = [(0, tuple(path for _, paths in by_update for path in paths))]
    first, *others = by_update or [(0, ())]
    if first[1] or written:
        yield CheckAddedPaths(uuid, first[0], (*first[1], *written))
    for index, paths in others:
        yield CheckAddedPaths(uuid, index, paths)


def added_paths(update: CommitUpdate) -> tuple[str, ...]:
    """Return the files that an update adds to the table, as far as it names them."""
    if isinstance(update, FineGrainedUpdate):
        data = getattr(update, "add_data_files", ())
        deletes = getattr(update, "add_delete_files", ())
        return tuple(file.file_path for file in (*data, *deletes))
    if isinstance(update, AddSnapshot):
        ((_, snapshot),) = added_snapshots([update])
        return () if snapshot.manifest_list is None else (snapshot.manifest_list,)
    return ()


def _removed(
    before: TableMetadata,
    after: TableMetadata,
    new: TableMetadata,
    uuid: str,
    updates: Sequence[CommitUpdate],
) -> Iterator[HousekeepingChange]:
    gone = before.snapshots.ids() - after.snapshots.ids()
    snapshots = list(before.snapshots.only(gone)) if gone else []
    # A request may add a snapshot and remove it again.
    snapshots += [own for _, own in added_snapshots(updates) if own.snapshot_id not in gone]
    snapshots = [own for own in snapshots if own.snapshot_id not in new.snapshots]
    if snapshots:
        statistics = _statistics_of(before)
        yield RecordExpired(
            uuid,
            quarantine_ms(new.properties),
            tuple(_expired(own, statistics.get(own.snapshot_id, ())) for own in snapshots),
        )
    schemas = {schema.schema_id for schema in new.schemas}
    specs = {spec.spec_id for spec in new.partition_specs}
    definitions = (
        *(
            ("schema", own.schema_id, bytes(own.raw))
            for own in before.schemas
            if own.schema_id not in schemas
        ),
        *(
            ("spec", own.spec_id, bytes(own.raw))
            for own in before.partition_specs
            if own.spec_id not in specs
        ),
    )
    if definitions:
        yield RecordDefinitions(uuid, definitions)


def _expired(snapshot: Snapshot, statistics: Sequence[str]) -> tuple[int, bytes, tuple[str, ...]]:
    return snapshot.snapshot_id, bytes(snapshot.raw), tuple(statistics)


def _statistics_of(metadata: TableMetadata) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for snapshot_id, path in metadata.statistics_paths():
        found.setdefault(snapshot_id, []).append(path)
    return found


def _replaced_statistics(
    before: TableMetadata, after: TableMetadata, uuid: str
) -> Iterator[RetireMetadata]:
    """Yield the statistics files of snapshots that stay."""
    kept = {path for _, path in after.statistics_paths()}
    paths = [
        path
        for snapshot_id, path in before.statistics_paths()
        if path not in kept and snapshot_id in after.snapshots
    ]
    if paths:
        yield RetireMetadata(uuid, tuple(paths))


def _off_the_log(base: TableMetadata, new: TableMetadata, uuid: str) -> Iterator[RetireMetadata]:
    """Yield the metadata files that the log no longer has, oldest first."""
    if new.properties.get(DELETE_OLD_METADATA, "false").lower() == "true":
        return  # They are deleted at once, as in Java.
    dropped = len(base.metadata_log) + 1 - len(new.metadata_log)
    if dropped > 0:
        entries = islice(base.metadata_log.bare_items(), dropped)
        yield RetireMetadata(uuid, tuple(entry.metadata_file for entry in entries))
