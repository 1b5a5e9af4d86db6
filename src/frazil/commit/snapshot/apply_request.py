"""Applies a commit request to metadata and returns the result, or raises the reason for a
refusal.

Applying a request reads the state and never changes the request. So after a lost swap the same
request is applied to the new head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from frazil.commit.snapshot.actions import snapshot_of_action
from frazil.commit.snapshot.commit_environment import Environment
from frazil.commit.snapshot.rebase import NotRebasable, rebase_append
from frazil.commit.snapshot.stream_epochs import (
    CommittedSnapshot,
    already_committed,
    branch_of,
    stream_row,
    summary_of,
)
from frazil.commit.snapshot.table_locations import row_uuid
from frazil.db.base import StreamRow
from frazil.db.housekeeping_changes import HousekeepingChange
from frazil.format.metadata.raw_json import InvalidMetadata
from frazil.format.metadata.snapshots import Snapshot, parse_snapshot
from frazil.format.metadata.table_builder import apply_update, check_requirements, empty_state
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_state import TableState, build, interim
from frazil.format.metadata.view_builder import apply_view_updates, check_view_requirements
from frazil.format.metadata.view_metadata import ViewMetadata
from frazil.store.object_store import StoreError
from frazil.wire.errors import (
    BadRequest,
    CommitFailed,
    FrazilError,
    TooManyRequests,
    ValidationError,
)
from frazil.wire.file_actions import CommitUpdate, FineGrainedUpdate, Replace
from frazil.wire.frazil_properties import REBASE_APPENDS
from frazil.wire.rest_messages import CommitTableRequest, CommitViewRequest
from frazil.wire.rest_updates import (
    AddSnapshot,
    AssertCreate,
    AssertRefSnapshotId,
    SetSnapshotRef,
    TableRequirement,
)

M = TypeVar("M")

_ROUNDS_BEFORE_PAUSE: Final = 3
"""How often a compaction loses to deletes before they wait for it."""


@dataclass(frozen=True, slots=True)
class Applied(Generic[M]):
    """The result of a request for one table or view."""

    metadata: M
    """The same object as before if nothing changed."""
    committed: tuple[CommittedSnapshot, ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()
    """The files that must be durable before the swap, in addition to the metadata file."""
    streams: tuple[StreamRow, ...] = ()
    """The rows to store for the stream that sent the request."""
    already_committed: bool = False
    """Whether the stream's epoch was committed before, so that nothing was applied."""
    updates: Sequence[CommitUpdate] | None = None
    """The updates that the server has computed, if the request has none."""
    housekeeping: tuple[HousekeepingChange, ...] = ()
    """What the transaction checks and records for such updates."""
    records_removals: bool = True
    """Whether removed snapshots are recorded. The files of others are never deleted."""


AppliedTable: TypeAlias = Applied[TableMetadata]


def apply_or_rebase(
    state: TableMetadata, request: CommitTableRequest, environment: Environment
) -> AppliedTable:
    """Apply a request to the state. A repeated classic commit changes nothing. A stale append is
    built again on the head if the table asks for it."""
    if is_fine_grained(request.updates):
        return apply_request(state, request, environment)
    added = added_snapshots(request.updates)
    if already_happened(state, request.updates, added):
        return Applied(state, committed_snapshots(state, added))
    try:
        return apply_request(state, request, environment)
    except CommitFailed as stale:
        return _rebase(state, request, added, environment, stale)


def apply_request(
    base: TableMetadata | None, request: CommitTableRequest, environment: Environment
) -> AppliedTable:
    """Apply a request to exactly this base. Without a base it creates the table."""
    once, updates = request.once, request.updates
    if base is not None:
        if once is not None:
            done = already_committed(base, once, updates, environment.load_stream)
            if done is not None:
                return Applied(base, done, already_committed=True)
        check_requirements(base, request.requirements)
    applied = _apply_updates(base, updates, replace(environment, summary=summary_of(once)))
    classic = committed_snapshots(applied.metadata, added_snapshots(updates))
    committed = (*classic, *applied.committed)
    streams: tuple[StreamRow, ...] = ()
    if once is not None:
        uuid = environment.table_uuid or row_uuid(applied.metadata)
        streams = (stream_row(uuid, once, branch_of(updates), committed),)
    return Applied(applied.metadata, committed, applied.files, streams)


def is_fine_grained(updates: Sequence[CommitUpdate]) -> bool:
    return any(isinstance(update, FineGrainedUpdate) for update in updates)


def _apply_updates(
    base: TableMetadata | None, updates: Sequence[CommitUpdate], environment: Environment
) -> AppliedTable:
    """Apply the updates in order: Iceberg's own updates, and those whose snapshot the server
    builds."""
    now_ms = environment.now_ms
    state = (
        empty_state(updates, now_ms=now_ms) if base is None else TableState.of(base, now_ms=now_ms)
    )
    before = base
    committed: list[CommittedSnapshot] = []
    files: list[tuple[str, bytes]] = []
    for index, update in enumerate(updates):
        if not isinstance(update, FineGrainedUpdate):
            apply_update(state, update)
            continue
        metadata = base if base is not None and index == 0 else interim(state)
        before = before or metadata
        new = snapshot_of_action(before, metadata, update, index, environment)
        for own in new.updates:
            apply_update(state, own)
        # The next update may read these files before they are written.
        environment.pending.update(new.files)
        files += new.files
        committed.append(new.committed)
    return Applied(build(state), tuple(committed), tuple(files))


def apply_view_commit(state: ViewMetadata, request: CommitViewRequest, now_ms: int) -> ViewMetadata:
    check_view_requirements(state, request.requirements)
    return apply_view_updates(state, request.updates, now_ms=now_ms)


def added_snapshots(updates: Sequence[CommitUpdate]) -> list[tuple[int, Snapshot]]:
    """Return the snapshots that a request adds, with the index of each update."""
    return [
        (index, _snapshot_of(update))
        for index, update in enumerate(updates)
        if isinstance(update, AddSnapshot)
    ]


def _snapshot_of(update: AddSnapshot) -> Snapshot:
    try:
        return parse_snapshot(update.snapshot, "add-snapshot.snapshot")
    except InvalidMetadata as error:
        raise BadRequest(str(error)) from None


def already_happened(
    state: TableMetadata, updates: Sequence[CommitUpdate], added: list[tuple[int, Snapshot]]
) -> bool:
    """Return whether these snapshots are in the table because the same request was sent before.

    Clients draw snapshot ids. So an id that is in the table and in the history of the ref that
    the request sets can only mean that an earlier answer was lost. If the request were refused,
    Java's client would append the same files again.
    """
    present = [snapshot for _, snapshot in added if state.snapshot(snapshot.snapshot_id)]
    if not present:
        return False
    refs = {update.ref_name for update in updates if isinstance(update, SetSnapshotRef)}
    if len(present) == len(added) and all(_in_history(state, ref, present) for ref in refs):
        return True
    ids = ", ".join(str(snapshot.snapshot_id) for snapshot in present)
    raise CommitFailed(
        f"Snapshot {ids} is already in the table but not in the history of the ref this "
        "request sets: refresh the table and commit again"
    )


def _in_history(state: TableMetadata, ref_name: str, snapshots: list[Snapshot]) -> bool:
    ref = state.ref(ref_name)
    return ref is not None and all(
        state.is_ancestor(snapshot.snapshot_id, ref.snapshot_id) for snapshot in snapshots
    )


def committed_snapshots(
    metadata: TableMetadata, added: list[tuple[int, Snapshot]]
) -> tuple[CommittedSnapshot, ...]:
    stored = ((index, metadata.snapshot(snapshot.snapshot_id)) for index, snapshot in added)
    return tuple(
        CommittedSnapshot(
            update=index,
            snapshot_id=snapshot.snapshot_id,
            sequence_number=snapshot.sequence_number or 0,
            operation=snapshot.operation,
        )
        for index, snapshot in stored
        if snapshot is not None
    )


def is_create(request: CommitTableRequest) -> bool:
    """Return whether a commit creates its table. Such a commit can have no other requirement."""
    create = any(isinstance(item, AssertCreate) for item in request.requirements)
    if create and not all(isinstance(item, AssertCreate) for item in request.requirements):
        raise BadRequest(
            "requirements: assert-create stands alone, because nothing else can hold for a "
            "table that does not exist yet"
        )
    return create


def asserts_ref(request: CommitTableRequest) -> bool:
    """Return whether a request requires a certain head of a branch."""
    return any(isinstance(item, AssertRefSnapshotId) for item in request.requirements)


def can_wait(request: CommitTableRequest) -> bool:
    """Return whether others may commit before the request.

    It can be applied to any head, and has not lost too often.
    """
    if not is_fine_grained(request.updates) or asserts_ref(request):
        return False
    return _lost_rounds(request) < _ROUNDS_BEFORE_PAUSE


def is_overtaken(request: CommitTableRequest, error: FrazilError) -> bool:
    """Return whether others should wait for the next attempt, after this one was refused.

    A classic commit was built on an older head. Or rows were deleted again and again while their
    files were compacted.
    """
    if isinstance(error, CommitFailed):
        return asserts_ref(request)
    is_last = _lost_rounds(request) >= _ROUNDS_BEFORE_PAUSE - 1
    return is_last and isinstance(error, ValidationError)


def _lost_rounds(request: CommitTableRequest) -> int:
    replaces = (update for update in request.updates if isinstance(update, Replace))
    return max((update.lost_rounds for update in replaces), default=0)


def is_exclusive(state: TableMetadata, request: CommitTableRequest) -> bool:
    """Return whether this request can be applied to this state and to no later one.

    Such a request is applied first in its group, because any commit before it would make it
    stale. Requests whose snapshots the server builds can be applied to any head, so they can
    wait.
    """
    if not asserts_ref(request) or not _holds(state, request.requirements):
        return False
    return not (_rebases_appends(state) and _looks_like_append(request))


# --- rebase of classic appends ---------------------------------------------------------------


def _rebase(
    state: TableMetadata,
    request: CommitTableRequest,
    added: list[tuple[int, Snapshot]],
    environment: Environment,
    stale: CommitFailed,
) -> AppliedTable:
    """Build a stale append again on the current head, if the table asks for it and the client's
    manifests prove that it only appends. Otherwise raise the original error."""
    target = _rebase_target(state, request, added)
    if target is None:
        raise stale
    snapshot, set_ref = target
    try:
        rebased = rebase_append(
            state,
            snapshot,
            set_ref.ref_name,
            environment.store,
            environment.check_readable,
            environment.manifests,
        )
    except StoreError as error:
        raise TooManyRequests(f"a manifest could not be read: {error}") from error
    except TooManyRequests:
        raise
    except FrazilError as error:
        raise CommitFailed(f"{stale.message} (not rebased: {error.message})") from error
    if isinstance(rebased, NotRebasable):
        raise CommitFailed(f"{stale.message} (not rebased: {rebased.reason})")
    updates = tuple(
        AddSnapshot(snapshot=msgspec.Raw(rebased.snapshot))
        if isinstance(update, AddSnapshot)
        else update
        for update in request.updates
    )
    metadata = _apply_updates(state, updates, environment).metadata
    return Applied(metadata, committed_snapshots(metadata, added), rebased.files)


def _rebase_target(
    state: TableMetadata, request: CommitTableRequest, added: list[tuple[int, Snapshot]]
) -> tuple[Snapshot, SetSnapshotRef] | None:
    """Return the one added snapshot and its branch, or None if the request cannot be rebased."""
    if not _rebases_appends(state):
        return None
    refs = [update for update in request.updates if isinstance(update, SetSnapshotRef)]
    if len(request.updates) != 2 or len(added) != 1 or len(refs) != 1:
        return None
    (_, snapshot), set_ref = added[0], refs[0]
    if set_ref.type != "branch" or set_ref.snapshot_id != snapshot.snapshot_id:
        return None
    head = state.ref(set_ref.ref_name)
    if head is None or not head.is_branch:
        return None
    own = [item for item in request.requirements if _is_about(item, set_ref.ref_name)]
    others = [item for item in request.requirements if not _is_about(item, set_ref.ref_name)]
    if not _holds(state, others) or not _parent_fits(state, snapshot, head.snapshot_id, own):
        return None
    return snapshot, set_ref


def _rebases_appends(state: TableMetadata) -> bool:
    return state.properties.get(REBASE_APPENDS, "false").lower() == "true"


def _looks_like_append(request: CommitTableRequest) -> bool:
    """Return whether the summary calls the request an append. This only affects the order of
    requests."""
    try:
        added = added_snapshots(request.updates)
    except BadRequest:
        # The request is refused later by itself, so that the rest of its group is not affected.
        return False
    return len(added) == 1 and added[0][1].operation == "append"


def _is_about(requirement: TableRequirement, ref_name: str) -> bool:
    return isinstance(requirement, AssertRefSnapshotId) and requirement.ref == ref_name


def _holds(state: TableMetadata, requirements: Sequence[TableRequirement]) -> bool:
    try:
        check_requirements(state, requirements)
    except (CommitFailed, BadRequest):
        return False
    return True


def _parent_fits(
    state: TableMetadata,
    snapshot: Snapshot,
    head_id: int,
    own: Sequence[TableRequirement],
) -> bool:
    """Check that the client's base is in the branch's history and equals the base that it
    asserted."""
    parent = snapshot.parent_snapshot_id
    asserted = [item.snapshot_id for item in own if isinstance(item, AssertRefSnapshotId)]
    if parent is None:
        return bool(asserted) and all(base is None for base in asserted)
    return all(base == parent for base in asserted) and state.is_ancestor(parent, head_id)
