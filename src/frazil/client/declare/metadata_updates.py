"""Changes of table metadata as updates and requirements: refs, properties, staged tables.

A change of a ref requires that the ref has not moved since the change was built, so it cannot undo
a change that it has not seen. If the requirement fails, the change is rebuilt on fresh metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

import msgspec

from frazil.wire.errors import AlreadyExists, BadRequest, NotFound
from frazil.wire.file_actions import MAIN, CherryPick, CommitUpdate
from frazil.wire.rest_updates import (
    AssertRefSnapshotId,
    RemoveProperties,
    RemoveSnapshotRef,
    SetProperties,
    SetSnapshotRef,
    TableRequirement,
    TableUpdate,
)

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Ref, Table


Built: TypeAlias = tuple[tuple[CommitUpdate, ...], tuple[TableRequirement, ...]]
RefType: TypeAlias = Literal["branch", "tag"]


class RefOptions(TypedDict, total=False):
    """Options of a new branch or tag."""

    replace: bool
    max_ref_age_ms: int | None


class BranchOptions(RefOptions, total=False):
    """Options of a new branch."""

    max_snapshot_age_ms: int | None
    min_snapshots_to_keep: int | None


def create_ref(
    table: Table, kind: RefType, name: str, snapshot: str | int | None, options: BranchOptions
) -> Built:
    existing = table.refs.get(name)
    if existing is not None and not options.get("replace"):
        raise AlreadyExists(f"{table} already has a {existing.type} {name}: give replace=True")
    if existing is not None and existing.type != kind:
        raise BadRequest(f"{name} of {table} is a {existing.type}, not a {kind}: remove it first")
    at = MAIN if snapshot is None else snapshot
    update = SetSnapshotRef(
        ref_name=name,
        type=kind,
        snapshot_id=_snapshot_id(table, at),
        max_ref_age_ms=options.get("max_ref_age_ms"),
        max_snapshot_age_ms=options.get("max_snapshot_age_ms"),
        min_snapshots_to_keep=options.get("min_snapshots_to_keep"),
    )
    return (update,), (_unmoved(table, name),)


def remove_ref(table: Table, name: str, kind: RefType) -> Built:
    ref = _ref(table, name)
    if ref.type != kind:
        raise BadRequest(f"{name} of {table} is a {ref.type}, not a {kind}")
    if name == MAIN:
        raise BadRequest(f"main of {table} cannot be removed")
    return (RemoveSnapshotRef(ref_name=name),), (_unmoved(table, name),)


def rollback(
    table: Table, snapshot: str | int | None, timestamp_ms: int | None, branch: str
) -> Built:
    """Move a branch back to an ancestor, given by id, by ref or by a point in time."""
    if (snapshot is None) == (timestamp_ms is None):
        raise BadRequest("rollback: give either a snapshot or timestamp_ms")
    _ref(table, branch)
    ancestors = list(table.ancestors(branch))
    if timestamp_ms is not None:
        older = (ancestor for ancestor in ancestors if ancestor.timestamp_ms <= timestamp_ms)
        target = next(older, None)
        if target is None:
            raise NotFound(f"{branch} of {table} has no snapshot as old as {timestamp_ms}")
        return _move(table, branch, target.snapshot_id)
    assert snapshot is not None
    snapshot_id = _snapshot_id(table, snapshot)
    if snapshot_id not in {ancestor.snapshot_id for ancestor in ancestors}:
        raise BadRequest(
            f"snapshot {snapshot_id} is not an ancestor of {branch} of {table}; "
            "to use a snapshot of another branch, use cherry-pick or a new branch"
        )
    return _move(table, branch, snapshot_id)


def fast_forward(table: Table, branch: str, to: str | int) -> Built:
    """Move a branch ahead to a descendant of its head; create the branch if it is missing."""
    target = _snapshot_id(table, to)
    ref = table.refs.get(branch)
    if ref is not None and ref.snapshot_id not in {
        ancestor.snapshot_id for ancestor in table.ancestors(target)
    }:
        raise BadRequest(f"{branch} of {table} has diverged from {to}: cannot fast-forward")
    return _move(table, branch, target)


def cherry_pick(snapshot_id: int, branch: str) -> Built:
    return (CherryPick(snapshot_id=snapshot_id, branch=branch),), ()


def change_properties(updates: Mapping[str, str], removals: Iterable[str]) -> Built:
    removed = tuple(removals)
    changes: list[CommitUpdate] = []
    if updates:
        changes.append(SetProperties(updates=dict(updates)))
    if removed:
        changes.append(RemoveProperties(removals=removed))
    if not changes:
        raise BadRequest("properties: there is nothing to set and nothing to remove")
    return tuple(changes), ()


def _move(table: Table, branch: str, snapshot_id: int) -> Built:
    """Move a branch to another snapshot and keep its retention settings."""
    ref = table.refs.get(branch)
    if ref is not None and ref.type != "branch":
        raise BadRequest(f"{branch} of {table} is a {ref.type}, not a branch")
    update = SetSnapshotRef(
        ref_name=branch,
        type="branch",
        snapshot_id=snapshot_id,
        max_ref_age_ms=None if ref is None else ref.max_ref_age_ms,
        max_snapshot_age_ms=None if ref is None else ref.max_snapshot_age_ms,
        min_snapshots_to_keep=None if ref is None else ref.min_snapshots_to_keep,
    )
    return (update,), (_unmoved(table, branch),)


def _unmoved(table: Table, name: str) -> AssertRefSnapshotId:
    """Require that the ref is where the table was read."""
    ref = table.refs.get(name)
    return AssertRefSnapshotId(ref=name, snapshot_id=None if ref is None else ref.snapshot_id)


def _ref(table: Table, name: str) -> Ref:
    ref = table.refs.get(name)
    if ref is None:
        known = ", ".join(sorted(table.refs)) or "none"
        raise NotFound(f"{table} has no branch or tag {name}; it has {known}")
    return ref


def _snapshot_id(table: Table, at: str | int) -> int:
    if at == MAIN and MAIN not in table.refs:
        raise NotFound(f"{table} has no snapshot yet")
    return table.snapshot(at).snapshot_id


JsonParts: TypeAlias = Iterable[Mapping[str, Any]]
MetadataUpdates: TypeAlias = tuple[JsonParts, JsonParts]
"""Updates and requirements in the JSON of Iceberg's REST specification."""

LAST_ADDED: Final = -1
"""The id of the schema, spec or sort order that the same request adds."""

_updates: Final = msgspec.json.Decoder(tuple[TableUpdate, ...])
_requirements: Final = msgspec.json.Decoder(tuple[TableRequirement, ...])


def decoded_updates(updates: JsonParts, requirements: JsonParts = ()) -> Built:
    """Check and decode updates and requirements of Iceberg's REST specification."""
    return _decoded(_updates, updates, "updates"), _decoded(
        _requirements, requirements, "requirements"
    )


def _decoded(decoder: msgspec.json.Decoder[Any], parts: JsonParts, name: str) -> Any:
    try:
        return decoder.decode(msgspec.json.encode([dict(part) for part in parts]))
    except msgspec.ValidationError as error:
        raise BadRequest(f"{name}: {error}") from None


def creation(table: Table) -> Built:
    """Create a staged table with all of its metadata, unless it exists already."""
    metadata = table.metadata
    properties = dict(table.properties)
    updates: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": table.uuid},
        {"action": "upgrade-format-version", "format-version": table.format_version},
        {"action": "set-location", "location": table.location},
        *definition(
            metadata["schemas"][0],
            metadata["partition-specs"][0],
            metadata["sort-orders"][0],
            properties,
        ),
    ]
    return decoded_updates(updates, [{"type": "assert-create"}])


def definition(
    schema: Mapping[str, Any],
    spec: Mapping[str, Any],
    order: Mapping[str, Any],
    properties: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return updates that make these the current schema, spec, order and properties."""
    updates: list[dict[str, Any]] = [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": LAST_ADDED},
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": LAST_ADDED},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": LAST_ADDED},
    ]
    if properties:
        updates.append({"action": "set-properties", "updates": dict(properties)})
    return updates
