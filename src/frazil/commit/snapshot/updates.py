"""The updates of one request, in order: Iceberg's own, and those whose snapshot we build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.commit.snapshot.cherry_pick import cherry_pick
from frazil.commit.snapshot.commit_environment import Environment
from frazil.commit.snapshot.committed_snapshots import CommittedSnapshot
from frazil.commit.snapshot.snapshot_builder import Produced, Tools, produce
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.metadata.table_builder import apply_update, empty_state
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_state import TableState, build, interim
from frazil.store.object_store import StoreError
from frazil.wire.errors import TooManyRequests, ValidationError
from frazil.wire.file_actions import CherryPick, CommitUpdate, FineGrainedUpdate

Summary = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Updated:
    """What the updates make of a table."""

    metadata: TableMetadata
    committed: tuple[CommittedSnapshot, ...]
    """The snapshots that the server built; those of `add-snapshot` are the client's."""
    files: tuple[tuple[str, bytes], ...]


def is_fine_grained(updates: Sequence[CommitUpdate]) -> bool:
    return any(isinstance(update, FineGrainedUpdate) for update in updates)


def updated(
    base: TableMetadata,
    updates: Sequence[CommitUpdate],
    environment: Environment,
    summary: Summary = (),
) -> Updated:
    """The base after the updates; the base itself where they change nothing."""
    state = TableState.of(base, now_ms=environment.now_ms)
    return _run(state, base, updates, environment, summary)


def created(
    updates: Sequence[CommitUpdate], environment: Environment, summary: Summary = ()
) -> Updated:
    """A table that a commit with assert-create brings to life."""
    state = empty_state(updates, now_ms=environment.now_ms)
    return _run(state, None, updates, environment, summary)


def _run(
    state: TableState,
    base: TableMetadata | None,
    updates: Sequence[CommitUpdate],
    environment: Environment,
    summary: Summary,
) -> Updated:
    tools = Tools(
        reader=environment.reader,
        check_places=environment.check_places,
        verify_files=environment.verify_files,
        commit_uuid=environment.commit_uuid,
        now_ms=environment.now_ms,
        place=environment.place,
        summary=summary,
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
        produced = _produced(before, metadata, update, index, tools)
        for own in produced.updates:
            apply_update(state, own)
        # The next update may read them before they are written.
        environment.pending.update(produced.files)
        files += produced.files
        committed.append(
            CommittedSnapshot(
                index, produced.snapshot_id, produced.sequence_number, produced.operation
            )
        )
    return Updated(build(state), tuple(committed), tuple(files))


def _produced(
    before: TableMetadata,
    metadata: TableMetadata,
    update: FineGrainedUpdate,
    index: int,
    tools: Tools,
) -> Produced:
    try:
        if isinstance(update, CherryPick):
            return cherry_pick(metadata, update, index, tools)
        return produce(before, metadata, update, index, tools)
    except StoreError as error:
        raise TooManyRequests(f"a file of the table could not be read: {error}") from error
    except UnreadableAvro as error:
        raise ValidationError(f"a manifest of the table cannot be read: {error}") from error
