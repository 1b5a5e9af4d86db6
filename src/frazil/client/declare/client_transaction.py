"""A transaction of changes to several tables, which commit together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from frazil.client.declare.table_verbs import (
    CatalogVerbs,
    Change,
    Commit,
    TableName,
    TableVerbs,
)
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

Pending: TypeAlias = "tuple[Table, tuple[Change, ...]]"


class Transaction(CatalogVerbs[None]):
    """Collects changes. Leaving its `with` block commits them; an exception drops them."""

    def __init__(
        self,
        load: Callable[[TableName], Table],
        commit: Callable[[Sequence[Pending]], tuple[Commit, ...]],
    ) -> None:
        self._load = load
        self._commit = commit
        self._tables: dict[Identifier, TableInTransaction] = {}
        self._ended = False
        self.commits: tuple[Commit, ...] = ()
        """One commit for each table, in the order in which they were first named."""

    def table(self, name: TableName) -> TableInTransaction:
        """Return the methods of a table.

        The table is read when it is first named; that is its base.
        """
        if self._ended:
            raise BadRequest("this transaction has ended: begin a new one")
        table = self._load(name)
        return self._tables.setdefault(table.identifier, TableInTransaction(table))

    def commit(self) -> tuple[Commit, ...]:
        """Commit all changes; without changes nothing is sent."""
        if self._ended:
            raise BadRequest("this transaction has ended: begin a new one")
        self._ended = True
        pending = [
            (table.table, tuple(table.changes)) for table in self._tables.values() if table.changes
        ]
        if pending:
            self.commits = self._commit(pending)
        return self.commits

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and not self._ended:
            self.commit()
        self._ended = True


class TableInTransaction(TableVerbs[None]):
    """The methods of a table inside a transaction, which collects their changes in order."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.changes: list[Change] = []

    def _base(self) -> Table:
        return self.table

    def _apply(self, change: Change) -> None:
        self.changes.append(change)
