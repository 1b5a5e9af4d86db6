"""Commits whose updates the server computes from the head, such as the expiry of snapshots.

After a lost swap they are computed again, from the new head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from frazil.commit.pipeline.created_tables import CreatedTable
from frazil.commit.pipeline.relation_kinds import RelationChange, TableKind, missing
from frazil.commit.snapshot.apply_request import Applied
from frazil.commit.snapshot.commit_environment import Environment
from frazil.db.housekeeping_changes import HousekeepingChange
from frazil.format.metadata.table_builder import apply_update
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_state import TableState, build
from frazil.wire.rest_updates import TableUpdate


@dataclass(frozen=True, slots=True)
class ComputedUpdates:
    updates: tuple[TableUpdate, ...]
    """If there are none, nothing is committed."""
    housekeeping: tuple[HousekeepingChange, ...] = ()
    """What the transaction checks and records too."""
    records_removals: bool = True
    restored: Callable[[TableState], None] | None = None
    """Changes the metadata in a way for which there is no update."""


ComputeUpdates: TypeAlias = Callable[[TableMetadata, str, int], ComputedUpdates]
"""Computes the updates from the head, the uuid of the table, and the time of the attempt. It may be
called again."""


@dataclass(frozen=True, slots=True)
class ComputedRequest:
    compute: ComputeUpdates
    updates: tuple[TableUpdate, ...] = ()
    """None, because they are computed."""


class ComputedTableKind(TableKind):
    """The kind of a `ComputedRequest`."""

    def is_exclusive(self, state: TableMetadata, request: object) -> bool:
        return False

    def asserts_ref(self, request: object) -> bool:
        return False

    def has_happened(self, state: TableMetadata, request: object) -> bool:
        return False

    def apply(
        self,
        state: TableMetadata | None,
        change: RelationChange,
        environment: Environment,
        *,
        alone: bool,
    ) -> tuple[Applied[TableMetadata], CreatedTable | None]:
        if state is None:
            raise missing(self.kind, change.identifier)
        request: ComputedRequest = change.request
        computed = request.compute(state, environment.table_uuid, environment.now_ms)
        if not computed.updates and computed.restored is None:
            return Applied(state, updates=()), None
        new = TableState.of(state, now_ms=environment.now_ms)
        if computed.restored is not None:
            computed.restored(new)
        for update in computed.updates:
            apply_update(new, update)
        applied = Applied(
            build(new),
            updates=computed.updates,
            housekeeping=computed.housekeeping,
            records_removals=computed.records_removals,
        )
        return applied, None
