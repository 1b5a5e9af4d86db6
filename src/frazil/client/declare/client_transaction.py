"""Several changes of several tables that take place together, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from frazil.client.declare.table_verbs import Change, Changes, Commit, OfTables, TableName, of_table
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

Pending: TypeAlias = "tuple[Table, tuple[Change, ...]]"


class Transaction(OfTables[None]):
    """Collects changes; leaving its `with` block commits them, an exception drops them."""

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
        """One for each table, in the order in which they were first named; filled by `commit`."""

    def table(self, name: TableName) -> TableInTransaction:
        """The verbs of a table; it is read when it is first named, which is its base."""
        if self._ended:
            raise BadRequest("this transaction has ended: begin a new one")
        table = self._load(name)
        return self._tables.setdefault(table.identifier, TableInTransaction(table))

    append_files = of_table(Changes[None].append_files)
    delete_files = of_table(Changes[None].delete_files)
    overwrite_files = of_table(Changes[None].overwrite_files)
    row_delta = of_table(Changes[None].row_delta)
    rewrite_files = of_table(Changes[None].rewrite_files)
    replace_partitions = of_table(Changes[None].replace_partitions)
    create_branch = of_table(Changes[None].create_branch)
    create_tag = of_table(Changes[None].create_tag)
    remove_branch = of_table(Changes[None].remove_branch)
    remove_tag = of_table(Changes[None].remove_tag)
    rollback = of_table(Changes[None].rollback)
    fast_forward = of_table(Changes[None].fast_forward)
    cherry_pick = of_table(Changes[None].cherry_pick)
    set_properties = of_table(Changes[None].set_properties)
    remove_properties = of_table(Changes[None].remove_properties)
    change_metadata = of_table(Changes[None].change_metadata)
    declare_metadata = of_table(Changes[None].declare_metadata)

    def commit(self) -> tuple[Commit, ...]:
        """Commits all changes; nothing is sent where there are none."""
        if self._ended:
            raise BadRequest("this transaction has ended: begin a new one")
        self._ended = True
        pending = [
            (table.read, tuple(table.changes)) for table in self._tables.values() if table.changes
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


class TableInTransaction(Changes[None]):
    """A table's verbs inside a transaction: each is remembered, in order."""

    def __init__(self, read: Table) -> None:
        self.read = read
        self.changes: list[Change] = []

    def _target(self) -> Table:
        return self.read

    def _change(self, change: Change) -> None:
        self.changes.append(change)
