"""Updates of snapshots, refs, statistics files and encryption keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Raw
from msgspec.structs import replace

from frazil.format.metadata.raw_json import InvalidMetadata
from frazil.format.metadata.snapshots import (
    BRANCH,
    MAIN_BRANCH,
    Snapshot,
    SnapshotRef,
    check_ref,
    new_ref,
    parse_snapshot,
    snapshot_log_entry,
)
from frazil.format.metadata.table_files import (
    parse_encrypted_key,
    parse_partition_statistics_file,
    parse_statistics_file,
)
from frazil.format.metadata.table_metadata import MIN_FORMAT_VERSION_ROW_LINEAGE
from frazil.format.metadata.table_state import TableState
from frazil.wire.errors import BadRequest, CommitFailed
from frazil.wire.updates import (
    AddEncryptionKey,
    AddSnapshot,
    RemoveEncryptionKey,
    RemovePartitionStatistics,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetPartitionStatistics,
    SetSnapshotRef,
    SetStatistics,
)

T = TypeVar("T")

_MAX_LONG = 2**63 - 1


def _from_request(parse: Callable[[Raw, str], T], raw: Raw, field: str) -> T:
    try:
        return parse(raw, field)
    except InvalidMetadata as error:
        raise BadRequest(str(error)) from None


def add_snapshot(state: TableState, update: AddSnapshot) -> None:
    snapshot = _from_request(parse_snapshot, update.snapshot, "add-snapshot.snapshot")
    _check_addable(state, snapshot)
    if state.format_version >= MIN_FORMAT_VERSION_ROW_LINEAGE:
        state.next_row_id = _next_row_id(state, snapshot)
    state.last_sequence_number = snapshot.sequence_number
    state.snapshots = state.snapshots.append(snapshot)
    state.added_snapshot_ids.add(snapshot.snapshot_id)


def _check_addable(state: TableState, snapshot: Snapshot) -> None:
    for name, there in (
        ("schema", state.schemas),
        ("partition spec", state.partition_specs),
        ("sort order", state.sort_orders),
    ):
        if not there:
            raise BadRequest(f"Attempting to add a snapshot before a {name} is added")
    if snapshot.snapshot_id in state.snapshots:
        raise CommitFailed(f"Snapshot already exists for id: {snapshot.snapshot_id}")
    if state.format_version == 1:
        if snapshot.sequence_number != 0:
            raise BadRequest(
                "add-snapshot.snapshot.sequence-number: must be 0 in format v1, "
                f"not {snapshot.sequence_number}"
            )
        return
    if snapshot.manifest_list is None:
        raise BadRequest(
            f"add-snapshot.snapshot.manifest-list: missing; format v{state.format_version} "
            "has no inline manifests"
        )
    _check_sequence_number(state, snapshot)


def _check_sequence_number(state: TableState, snapshot: Snapshot) -> None:
    """A snapshot without a parent may repeat the last sequence number: concurrent replacements of
    a table do (Java checks only snapshots with a parent, and fails later on a lower number)."""
    last = state.last_sequence_number
    number = snapshot.sequence_number
    if number > last or (number == last and snapshot.parent_snapshot_id is None):
        return
    raise CommitFailed(
        f"Cannot add snapshot with sequence number {number} older than last sequence number {last}"
    )


def _next_row_id(state: TableState, snapshot: Snapshot) -> int:
    """Row ids below the answer are taken. Java adds only added-rows, which would hand out the same
    ids again after a snapshot that starts above the table's next-row-id."""
    if snapshot.first_row_id is None or snapshot.added_rows is None:
        raise BadRequest(
            "add-snapshot.snapshot.first-row-id: Cannot add a snapshot: first-row-id is null, "
            "which format v3 requires"
        )
    if snapshot.first_row_id < state.next_row_id:
        raise CommitFailed(
            "Cannot add a snapshot, first-row-id is behind table next-row-id: "
            f"{snapshot.first_row_id} < {state.next_row_id}"
        )
    next_row_id = snapshot.first_row_id + snapshot.added_rows
    if next_row_id > _MAX_LONG:
        raise BadRequest("add-snapshot.snapshot.added-rows: row ids would exceed 64 bits")
    return next_row_id


def set_snapshot_ref(state: TableState, update: SetSnapshotRef) -> None:
    name = update.ref_name
    if not name:
        raise BadRequest("set-snapshot-ref.ref-name: must not be empty")
    existing = state.refs.get(name)
    ref = new_ref(
        update.snapshot_id,
        update.type.lower(),
        min_snapshots_to_keep=update.min_snapshots_to_keep,
        max_snapshot_age_ms=update.max_snapshot_age_ms,
        max_ref_age_ms=update.max_ref_age_ms,
        replaced=existing,
    )
    try:
        check_ref(ref, "set-snapshot-ref")
    except InvalidMetadata as error:
        raise BadRequest(str(error)) from None
    if existing is not None and _same_ref(existing, ref):
        return
    snapshot = state.snapshots.bare(ref.snapshot_id)
    if snapshot is None:
        raise BadRequest(f"Cannot set {name} to unknown snapshot: {ref.snapshot_id}")
    if name == MAIN_BRANCH:
        if ref.type != BRANCH:
            raise BadRequest(f"Cannot set {MAIN_BRANCH} to a tag, it must be a branch")
        _set_current_snapshot(state, snapshot)
    state.refs[name] = ref


def _same_ref(one: SnapshotRef, other: SnapshotRef) -> bool:
    return replace(one, raw=b"") == replace(other, raw=b"")


def _set_current_snapshot(state: TableState, snapshot: Snapshot) -> None:
    """A new snapshot enters the log with its own time, an older one with the time of the change."""
    added = snapshot.snapshot_id in state.added_snapshot_ids
    timestamp_ms = snapshot.timestamp_ms if added else state.now_ms
    state.current_snapshot_id = snapshot.snapshot_id
    state.log_entries.append(snapshot_log_entry(timestamp_ms, snapshot.snapshot_id))


def remove_snapshot_ref(state: TableState, update: RemoveSnapshotRef) -> None:
    """Without main there is no current snapshot; the snapshot log stays, as in Java."""
    _remove_ref(state, update.ref_name)


def _remove_ref(state: TableState, name: str) -> None:
    if name == MAIN_BRANCH:
        state.current_snapshot_id = None
    state.refs.pop(name, None)


def remove_snapshots(state: TableState, update: RemoveSnapshots) -> None:
    """Statistics of a removed snapshot and refs that name it go with it."""
    gone = {snapshot_id for snapshot_id in update.snapshot_ids if snapshot_id in state.snapshots}
    if not gone:
        return
    state.snapshots = state.snapshots.without(gone)
    state.snapshots_removed = True
    state.statistics = tuple(file for file in state.statistics if file.snapshot_id not in gone)
    state.partition_statistics = tuple(
        file for file in state.partition_statistics if file.snapshot_id not in gone
    )
    for name in [name for name, ref in state.refs.items() if ref.snapshot_id in gone]:
        _remove_ref(state, name)


def set_statistics(state: TableState, update: SetStatistics) -> None:
    file = _from_request(parse_statistics_file, update.statistics, "set-statistics.statistics")
    if update.snapshot_id is not None and update.snapshot_id != file.snapshot_id:
        raise BadRequest(
            f"set-statistics.snapshot-id: {update.snapshot_id} differs from "
            f"statistics.snapshot-id {file.snapshot_id}"
        )
    others = [known for known in state.statistics if known.snapshot_id != file.snapshot_id]
    if file not in state.statistics or len(others) + 1 != len(state.statistics):
        state.statistics = (*others, file)


def remove_statistics(state: TableState, update: RemoveStatistics) -> None:
    state.statistics = tuple(
        file for file in state.statistics if file.snapshot_id != update.snapshot_id
    )


def set_partition_statistics(state: TableState, update: SetPartitionStatistics) -> None:
    file = _from_request(
        parse_partition_statistics_file,
        update.partition_statistics,
        "set-partition-statistics.partition-statistics",
    )
    known = state.partition_statistics
    others = [other for other in known if other.snapshot_id != file.snapshot_id]
    if file not in known or len(others) + 1 != len(known):
        state.partition_statistics = (*others, file)


def remove_partition_statistics(state: TableState, update: RemovePartitionStatistics) -> None:
    state.partition_statistics = tuple(
        file for file in state.partition_statistics if file.snapshot_id != update.snapshot_id
    )


def add_encryption_key(state: TableState, update: AddEncryptionKey) -> None:
    """A key id that is there already is left as it is, as in Java."""
    key = _from_request(
        parse_encrypted_key, update.encryption_key, "add-encryption-key.encryption-key"
    )
    if all(known.key_id != key.key_id for known in state.encryption_keys):
        state.encryption_keys = (*state.encryption_keys, key)


def remove_encryption_key(state: TableState, update: RemoveEncryptionKey) -> None:
    state.encryption_keys = tuple(
        key for key in state.encryption_keys if key.key_id != update.key_id
    )
