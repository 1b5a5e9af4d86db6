"""Applies Iceberg's table updates to a `TableState`, one function for each action.

A schema, partition spec or sort order that the table already has is used again instead of being
added. The id -1 stands for the one that the same request added last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from frazil.format.metadata.partition_spec import (
    INITIAL_SPEC_ID,
    check_known_transforms,
    check_partition_spec,
    compatible_specs,
    parse_partition_spec,
    with_spec_id,
)
from frazil.format.metadata.raw_json import InvalidMetadata
from frazil.format.metadata.schema import (
    check_schema_for_version,
    parse_schema,
    same_schema,
    with_schema_id,
)
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
from frazil.format.metadata.sort_order import (
    INITIAL_SORT_ORDER_ID,
    UNSORTED,
    SortOrder,
    check_sort_order,
    parse_sort_order,
    same_order,
    with_order_id,
)
from frazil.format.metadata.table_metadata import (
    MAX_FORMAT_VERSION,
    MIN_FORMAT_VERSION_ROW_LINEAGE,
    RESERVED_PROPERTIES,
    PartitionStatisticsFile,
    StatisticsFile,
    parse_encrypted_key,
    parse_partition_statistics_file,
    parse_statistics_file,
    strip_trailing_slash,
)
from frazil.format.metadata.table_properties import check_property_values
from frazil.format.metadata.table_state import TableState
from frazil.values.transforms import Transform
from frazil.wire.errors import BadRequest, CommitFailed
from frazil.wire.frazil_properties import check_table_properties
from frazil.wire.rest_updates import (
    AddEncryptionKey,
    AddPartitionSpec,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AssignUUID,
    RemoveEncryptionKey,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    UpgradeFormatVersion,
)

FORMAT_VERSION_PROPERTY = "format-version"


def assign_uuid(state: TableState, update: AssignUUID) -> None:
    """Set the UUID. Unlike in Java, an existing UUID cannot be changed."""
    if not _is_uuid(update.uuid):
        raise BadRequest(f"assign-uuid.uuid: {update.uuid!r} is not a UUID")
    if state.table_uuid is None:
        state.table_uuid = update.uuid
    elif state.table_uuid.lower() != update.uuid.lower():
        raise BadRequest(
            f"assign-uuid.uuid: cannot reassign the table's UUID {state.table_uuid} "
            f"to {update.uuid}"
        )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def upgrade_format_version(state: TableState, update: UpgradeFormatVersion) -> None:
    _upgrade(state, update.format_version, "upgrade-format-version.format-version")


def _upgrade(state: TableState, version: int, field: str) -> None:
    if version > MAX_FORMAT_VERSION:
        raise BadRequest(
            f"{field}: Cannot upgrade table to unsupported format version: v{version} "
            f"(supported: v{MAX_FORMAT_VERSION})"
        )
    if version < state.format_version:
        raise BadRequest(f"{field}: Cannot downgrade v{state.format_version} table to v{version}")
    state.format_version = version


def set_location(state: TableState, update: SetLocation) -> None:
    location = strip_trailing_slash(update.location)
    if not location:
        raise BadRequest("set-location.location: must not be empty")
    state.location = location


def set_properties(state: TableState, update: SetProperties) -> None:
    """Set properties. Reserved names are not stored, and `format-version` upgrades the table.

    In Java the client does this (replaceProperties), so stock Java clients never send these names.
    """
    check_property_values(dict(update.updates.items() - state.properties.items()))
    check_table_properties(update.updates, state.properties)
    version = update.updates.get(FORMAT_VERSION_PROPERTY)
    if version is not None:
        field = f"set-properties.updates.{FORMAT_VERSION_PROPERTY}"
        _upgrade(state, parse_format_version(version, field), field)
    state.properties |= unreserved(update.updates)


def remove_properties(state: TableState, update: RemoveProperties) -> None:
    for name in update.removals:
        state.properties.pop(name, None)


def unreserved(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES}


def parse_format_version(text: str, field: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadRequest(f"{field}: {text!r} is not a format version (1, 2 or 3)") from None


LAST_ADDED = -1

_MAX_INT = 2**31 - 1


def add_schema(state: TableState, update: AddSchema) -> None:
    """Add a schema, or use an existing equal one.

    In the second case -1 means the existing schema, because a client with an old base cannot know
    that another commit added it. (In Java there is then no last added schema.)
    """
    schema = parse_schema(update.schema)
    check_schema_for_version(schema, state.format_version)
    added = next((known for known in state.schemas if same_schema(known, schema)), None)
    if added is None:
        added = with_schema_id(schema, _next_schema_id(state))
        state.schemas = (*state.schemas, added)
    state.last_column_id = max(state.last_column_id, schema.highest_field_id)
    state.last_added_schema_id = added.schema_id


def _next_schema_id(state: TableState) -> int:
    used = [schema.schema_id + 1 for schema in state.schemas]
    return _assignable(max([state.current_schema_id, *used]), "add-schema.schema")


def _assignable(new_id: int, field: str) -> int:
    """Return a new id. Refuse one above 32 bits, which no reader accepts."""
    if new_id > _MAX_INT:
        raise BadRequest(f"{field}: the table has used its highest id, {_MAX_INT}")
    return new_id


def _resolved_id(requested_id: int, last_added_id: int | None, what: str) -> int:
    """Return the requested id, or the id that the request added last for -1."""
    if requested_id != LAST_ADDED:
        return requested_id
    if last_added_id is None:
        raise BadRequest(f"Cannot set last added {what}: no {what} has been added")
    return last_added_id


def set_current_schema(state: TableState, update: SetCurrentSchema) -> None:
    schema_id = _resolved_id(update.schema_id, state.last_added_schema_id, "schema")
    if state.schema(schema_id) is None:
        raise BadRequest(f"Cannot set current schema to unknown schema: {schema_id}")
    state.current_schema_id = schema_id


def remove_schemas(state: TableState, update: RemoveSchemas) -> None:
    removed = set(update.schema_ids)
    if state.current_schema_id in removed:
        raise BadRequest("Cannot remove the current schema")
    state.removed_schema_ids |= removed & {schema.schema_id for schema in state.schemas}
    state.schemas = tuple(schema for schema in state.schemas if schema.schema_id not in removed)


def add_partition_spec(state: TableState, update: AddPartitionSpec) -> None:
    spec = parse_partition_spec(
        update.spec,
        known_specs=state.partition_specs,
        last_assigned_field_id=state.last_partition_id,
    )
    schema = state.current_schema("add-spec")
    added = next((known for known in state.partition_specs if compatible_specs(spec, known)), None)
    if added is None:
        check_partition_spec(spec, schema)
        _check_transforms(state, [part.transform for part in spec.fields], "partition-spec")
        if state.format_version == 1 and not spec.has_sequential_ids:
            raise BadRequest(
                "add-spec.spec: Spec does not use sequential IDs that are required in v1: "
                f"{[part.field_id for part in spec.fields]}"
            )
        used = [known.spec_id + 1 for known in state.partition_specs]
        added = with_spec_id(spec, _assignable(max([INITIAL_SPEC_ID, *used]), "add-spec.spec"))
        state.partition_specs = (*state.partition_specs, added)
        state.last_partition_id = max(state.last_partition_id, added.last_assigned_field_id)
    state.last_added_spec_id = added.spec_id


def set_default_spec(state: TableState, update: SetDefaultSpec) -> None:
    spec_id = _resolved_id(update.spec_id, state.last_added_spec_id, "spec")
    # As in Java, `build` checks that the spec exists, after all updates.
    state.default_spec_id = spec_id


def remove_partition_specs(state: TableState, update: RemovePartitionSpecs) -> None:
    removed = set(update.spec_ids)
    if state.default_spec_id in removed:
        raise BadRequest("Cannot remove the default partition spec")
    state.partition_specs = tuple(
        spec for spec in state.partition_specs if spec.spec_id not in removed
    )


def _check_transforms(state: TableState, transforms: Sequence[Transform], field: str) -> None:
    """Refuse unknown transforms that the table does not have yet, such as a registered table."""
    own = {part.transform for spec in state.partition_specs for part in spec.fields}
    own |= {part.transform for order in state.sort_orders for part in order.fields}
    check_known_transforms(transforms, field, own)


def add_sort_order(state: TableState, update: AddSortOrder) -> None:
    order = parse_sort_order(update.sort_order)
    schema = state.current_schema("add-sort-order")
    added = next((known for known in state.sort_orders if same_order(known, order)), None)
    if added is None:
        check_sort_order(order, schema)
        _check_transforms(state, [part.transform for part in order.fields], "sort-order")
        added = _numbered(state, order)
        state.sort_orders = (*state.sort_orders, added)
    state.last_added_order_id = added.order_id


def _numbered(state: TableState, order: SortOrder) -> SortOrder:
    if order.is_unsorted:
        return with_order_id(order, UNSORTED.order_id)
    used = [known.order_id + 1 for known in state.sort_orders]
    new_id = _assignable(max([INITIAL_SORT_ORDER_ID, *used]), "add-sort-order.sort-order")
    return with_order_id(order, new_id)


def set_default_sort_order(state: TableState, update: SetDefaultSortOrder) -> None:
    order_id = _resolved_id(update.sort_order_id, state.last_added_order_id, "sort order")
    # As in Java, `build` checks that the order exists, after all updates.
    state.default_sort_order_id = order_id


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
    for name, objects in (
        ("schema", state.schemas),
        ("partition spec", state.partition_specs),
        ("sort order", state.sort_orders),
    ):
        if not objects:
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
    """Refuse a sequence number that is not above the last one.

    A snapshot without a parent may repeat it, as concurrent replacements of a table do. (Java
    checks only snapshots with a parent and fails later.)
    """
    last = state.last_sequence_number
    number = snapshot.sequence_number
    if number > last or (number == last and snapshot.parent_snapshot_id is None):
        return
    raise CommitFailed(
        f"Cannot add snapshot with sequence number {number} older than last sequence number {last}"
    )


def _next_row_id(state: TableState, snapshot: Snapshot) -> int:
    """Return the first row id that is not used.

    Java only adds added-rows. That would assign ids twice after a snapshot that starts above the
    table's next-row-id.
    """
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


def _same_ref(left: SnapshotRef, right: SnapshotRef) -> bool:
    return replace(left, raw=b"") == replace(right, raw=b"")


def _set_current_snapshot(state: TableState, snapshot: Snapshot) -> None:
    """Log a new snapshot with its own time, and an older one with the time of this change."""
    added = snapshot.snapshot_id in state.added_snapshot_ids
    timestamp_ms = snapshot.timestamp_ms if added else state.now_ms
    state.current_snapshot_id = snapshot.snapshot_id
    state.log_entries.append(snapshot_log_entry(timestamp_ms, snapshot.snapshot_id))


def remove_snapshot_ref(state: TableState, update: RemoveSnapshotRef) -> None:
    """Remove a ref. Without main there is no current snapshot. The log stays, as in Java."""
    _remove_ref(state, update.ref_name)


def _remove_ref(state: TableState, name: str) -> None:
    if name == MAIN_BRANCH:
        state.current_snapshot_id = None
    state.refs.pop(name, None)


def remove_snapshots(state: TableState, update: RemoveSnapshots) -> None:
    """Remove snapshots with their statistics and refs."""
    removed = {snapshot_id for snapshot_id in update.snapshot_ids if snapshot_id in state.snapshots}
    if not removed:
        return
    state.snapshots = state.snapshots.without(removed)
    state.snapshots_removed = True
    state.statistics = tuple(file for file in state.statistics if file.snapshot_id not in removed)
    state.partition_statistics = tuple(
        file for file in state.partition_statistics if file.snapshot_id not in removed
    )
    for name in [name for name, ref in state.refs.items() if ref.snapshot_id in removed]:
        _remove_ref(state, name)


def set_statistics(state: TableState, update: SetStatistics) -> None:
    file = _from_request(parse_statistics_file, update.statistics, "set-statistics.statistics")
    if update.snapshot_id is not None and update.snapshot_id != file.snapshot_id:
        raise BadRequest(
            f"set-statistics.snapshot-id: {update.snapshot_id} differs from "
            f"statistics.snapshot-id {file.snapshot_id}"
        )
    state.statistics = _with_file(state.statistics, file)


_File = TypeVar("_File", bound=StatisticsFile | PartitionStatisticsFile)


def _with_file(files: tuple[_File, ...], file: _File) -> tuple[_File, ...]:
    """Replace the statistics file of the same snapshot. Keep the order if nothing changes."""
    others = [known for known in files if known.snapshot_id != file.snapshot_id]
    if file in files and len(others) + 1 == len(files):
        return files
    return (*others, file)


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
    state.partition_statistics = _with_file(state.partition_statistics, file)


def remove_partition_statistics(state: TableState, update: RemovePartitionStatistics) -> None:
    state.partition_statistics = tuple(
        file for file in state.partition_statistics if file.snapshot_id != update.snapshot_id
    )


def add_encryption_key(state: TableState, update: AddEncryptionKey) -> None:
    """Add a key. As in Java, an existing key with the same id stays."""
    key = _from_request(
        parse_encrypted_key, update.encryption_key, "add-encryption-key.encryption-key"
    )
    if all(known.key_id != key.key_id for known in state.encryption_keys):
        state.encryption_keys = (*state.encryption_keys, key)


def remove_encryption_key(state: TableState, update: RemoveEncryptionKey) -> None:
    state.encryption_keys = tuple(
        key for key in state.encryption_keys if key.key_id != update.key_id
    )
