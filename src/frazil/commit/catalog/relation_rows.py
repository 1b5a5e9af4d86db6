"""Looks up, drops and renames the rows of tables and views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from frazil.commit.pipeline.catalog_answers import Answer, NoContent
from frazil.commit.pipeline.idempotency import key_row
from frazil.commit.pipeline.outbox_events import event, pointer_payload, rename_payload
from frazil.commit.pipeline.pending_requests import Attempt, Context, Operation
from frazil.commit.pipeline.relation_kinds import missing
from frazil.db.base import Database, DropRelation, EventRow, KeyRow, Kind, Relation, SwapRelation
from frazil.wire.identifiers import Identifier


class RelationRows:
    """The rows of tables, or the rows of views."""

    def __init__(self, kind: Kind, database: Database) -> None:
        self.kind = kind
        self._database = database

    def row(self, identifier: Identifier) -> Relation:
        row = self._database.relation(identifier)
        if row is None or row.kind is not self.kind:
            raise missing(self.kind, identifier)
        return row

    def drop(
        self,
        operation: Operation,
        identifier: Identifier,
        *,
        event_name: str = "drop",
        keys: Callable[[Relation], tuple[KeyRow, ...]] | None = None,
        answer: Callable[[Relation], Answer] | None = None,
    ) -> Attempt:
        """Delete the row. `keys` and `answer` are called with the deleted row."""
        row = self.row(identifier)
        context = operation.context
        return operation.carry_out(
            [DropRelation(row)],
            keys(row) if keys else key_row(context, 204),
            [last_event(context, row, event_name)],
            lambda: answer(row) if answer else NoContent(),
        )

    def rename(self, operation: Operation, source: Identifier, destination: Identifier) -> Attempt:
        row = self.row(source)
        context = operation.context
        if source == destination:
            return operation.carry_out([], key_row(context, 204), [], NoContent)
        renamed = replace(row, identifier=destination, version=row.version + 1)
        payload = rename_payload(str(source), str(destination))
        return operation.carry_out(
            [SwapRelation(row, renamed)],
            key_row(context, 204),
            [event(context, renamed, "rename", payload)],
            NoContent,
        )


def last_event(context: Context, row: Relation, event_name: str) -> EventRow:
    """Return the last event of a row, after which the row no longer exists."""
    payload = pointer_payload(row.metadata_location)
    return event(context, replace(row, version=row.version + 1), event_name, payload)
