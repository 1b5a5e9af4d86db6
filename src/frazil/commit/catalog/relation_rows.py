"""What tables and views share as rows: drop, rename, and the transaction of one change."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from frazil.commit.pipeline.catalog_answers import Answer, NoContent
from frazil.commit.pipeline.outbox_events import event, pointer_payload, rename_payload
from frazil.commit.pipeline.pending_requests import Context, key_row
from frazil.commit.pipeline.relation_kinds import missing
from frazil.commit.pipeline.simple import Attempt, SimpleCommit
from frazil.db.base import (
    Change,
    Database,
    DropRelation,
    EventRow,
    KeyRow,
    Kind,
    Relation,
    StreamRow,
    SwapRelation,
    Transaction,
)
from frazil.wire.identifiers import Identifier


class Relations:
    """Rows of one kind."""

    def __init__(self, kind: Kind, database: Database, simple: SimpleCommit) -> None:
        self.kind = kind
        self._database = database
        self._simple = simple

    def row(self, identifier: Identifier) -> Relation:
        row = self._database.relation(identifier)
        if row is None or row.kind is not self.kind:
            raise missing(self.kind, identifier)
        return row

    def drop(
        self,
        context: Context,
        identifier: Identifier,
        operation: str = "drop",
        keys: Callable[[Relation], tuple[KeyRow, ...]] | None = None,
        answer: Callable[[Relation], Answer] | None = None,
        dropped: Callable[[Relation], None] | None = None,
    ) -> Answer:
        """Forgets the row. `answer` and `dropped` see the row as it was."""

        def gone(row: Relation) -> Answer:
            if dropped:
                dropped(row)
            return answer(row) if answer else NoContent()

        def prepare() -> Attempt:
            row = self.row(identifier)
            return attempt(
                [DropRelation(row)],
                keys(row) if keys else key_row(context, 204),
                [next_event(context, row, operation)],
                lambda: gone(row),
            )

        return self._simple.run(context, prepare)

    def rename(self, context: Context, source: Identifier, destination: Identifier) -> Answer:
        def prepare() -> Attempt:
            row = self.row(source)
            renamed = replace(row, identifier=destination, version=row.version + 1)
            payload = rename_payload(str(source), str(destination))
            return attempt(
                [SwapRelation(row, renamed)] if source != destination else [],
                key_row(context, 204),
                [event(context, renamed, "rename", payload)] if source != destination else [],
                NoContent,
            )

        return self._simple.run(context, prepare)


def attempt(
    changes: Sequence[Change],
    keys: tuple[KeyRow, ...],
    events: Sequence[EventRow],
    answer: Callable[[], Answer],
    files: dict[str, Sequence[bytes]] | None = None,
    streams: tuple[StreamRow, ...] = (),
    forget_streams: tuple[tuple[str, str], ...] = (),
) -> Attempt:
    transaction = Transaction(
        str(uuid.uuid4()), tuple(changes), keys, tuple(events), forget_streams, streams
    )
    return Attempt(transaction, answer, tuple(_uuids(changes)), files or {})


def _uuids(changes: Sequence[Change]) -> list[str]:
    """Rows that exist before the transaction, for finding out about a lost answer."""
    return [
        change.expected.uuid
        for change in changes
        if isinstance(change, SwapRelation | DropRelation)
    ]


def next_event(context: Context, row: Relation, operation: str) -> EventRow:
    """The event after which this row is no more."""
    payload = pointer_payload(row.metadata_location)
    return event(context, replace(row, version=row.version + 1), operation, payload)
