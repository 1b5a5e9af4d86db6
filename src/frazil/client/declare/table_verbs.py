"""The methods that change a table at once or in a transaction of several tables, and their result.

Each method creates a `Change`, which never changes itself. A change that depends on the state of
the table is rebuilt on fresh metadata after a failed requirement. A change that only declares files
is sent as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, Unpack

from msgspec import Struct

from frazil.client.declare import metadata_updates
from frazil.client.declare.column_verbs import ColumnVerbs, Part
from frazil.client.declare.file_operations import CommitOptions, FileVerbs, check_options
from frazil.client.declare.metadata_updates import (
    BranchOptions,
    Built,
    JsonParts,
    MetadataUpdates,
    RefOptions,
    decoded_updates,
)
from frazil.client.rows.row_verbs import extra_named
from frazil.wire.errors import BadRequest, FrazilError
from frazil.wire.file_actions import MAIN, FileUpdate, Once
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table
    from frazil.client.rows.row_input import Rows
    from frazil.client.rows.row_statements import StagedRows


class CommittedSnapshot(Struct, frozen=True, rename="kebab"):
    """The snapshot that one update of a request created."""

    update: int
    """Index in the request's `updates`."""
    snapshot_id: int
    sequence_number: int
    operation: str
    superseded_files: tuple[str, ...] = ()
    """Declared Puffin files that the table does not need, because the server merged their
    vectors."""


class Commit(Struct, frozen=True, kw_only=True):
    """The result of a commit for one table."""

    identifier: Identifier
    metadata_location: str
    snapshots: tuple[CommittedSnapshot, ...] = ()
    """Empty if only properties or refs changed."""
    already_committed: bool = False
    """With `once`: this epoch had been committed before, so nothing changed now."""
    attempts: int = 1
    """How often a request was sent."""

    @property
    def snapshot_id(self) -> int | None:
        """The id of the last snapshot that the commit created."""
        return self.snapshots[-1].snapshot_id if self.snapshots else None

    @property
    def sequence_number(self) -> int | None:
        return self.snapshots[-1].sequence_number if self.snapshots else None

    @property
    def operation(self) -> str | None:
        return self.snapshots[-1].operation if self.snapshots else None


R = TypeVar("R")
P = ParamSpec("P")

TableName: TypeAlias = "str | tuple[str, ...] | Identifier | Table"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a table that can be applied to any state of it."""

    build: Callable[[Table], Built]
    rebuilds: bool = False
    """Whether the change depends on the table's state, so that rebuilding it can succeed."""
    once: Once | None = None
    part: Part | None = None
    """The part of the definition that is built from its state, and which therefore only one change
    in a request may have."""


class TableVerbs(FileVerbs[R], ColumnVerbs[R]):
    """The methods that change a table; each returns `R`."""

    @abstractmethod
    def _apply(self, change: Change) -> R:
        """Commit the change, or add it to a transaction."""

    def _declare(self, update: FileUpdate, options: CommitOptions) -> R:
        return self._apply(Change(lambda _: ((update,), ()), once=options.get("once")))

    # --- refs and properties -------------------------------------------------------------------

    def create_branch(
        self, name: str, snapshot: str | int | None = None, **options: Unpack[BranchOptions]
    ) -> R:
        """Create a branch at a snapshot (an id, a branch or a tag), by default the head of main."""
        check_options(options, BranchOptions)
        return self._rebuild(metadata_updates.create_ref, "branch", name, snapshot, options)

    def create_tag(
        self, name: str, snapshot: str | int | None = None, **options: Unpack[RefOptions]
    ) -> R:
        """Create a tag at a snapshot (an id, a branch or a tag), by default the head of main."""
        check_options(options, RefOptions)
        return self._rebuild(metadata_updates.create_ref, "tag", name, snapshot, options)

    def remove_branch(self, name: str) -> R:
        """Remove a branch; its snapshots stay until they expire."""
        return self._rebuild(metadata_updates.remove_ref, name, "branch")

    def remove_tag(self, name: str) -> R:
        """Remove a tag; its snapshot stays until it expires."""
        return self._rebuild(metadata_updates.remove_ref, name, "tag")

    def rollback(
        self,
        snapshot: str | int | None = None,
        *,
        timestamp_ms: int | None = None,
        branch: str = MAIN,
    ) -> R:
        """Move a branch back to an ancestor of its head; later snapshots stay in the table."""
        return self._rebuild(metadata_updates.rollback, snapshot, timestamp_ms, branch)

    def fast_forward(self, branch: str, to: str | int) -> R:
        """Move a branch ahead to a descendant of its head."""
        return self._rebuild(metadata_updates.fast_forward, branch, to)

    def cherry_pick(self, snapshot_id: int, branch: str = MAIN) -> R:
        """Apply the changes of a snapshot, often a staged one, to a branch."""
        return self._apply(Change(lambda _: metadata_updates.cherry_pick(snapshot_id, branch)))

    def set_properties(self, updates: Mapping[str, str]) -> R:
        """Set properties of the table; its others stay."""
        return self._apply(Change(lambda _: metadata_updates.change_properties(updates, ())))

    def remove_properties(self, *names: str) -> R:
        """Remove properties of the table; those that are not set are ignored."""
        return self._apply(Change(lambda _: metadata_updates.change_properties({}, names)))

    def change_metadata(self, build: Callable[[Table], MetadataUpdates]) -> R:
        """Apply updates under requirements, both in the JSON of Iceberg's REST specification.

        `build` is called again with fresh metadata after a failed requirement.
        """
        return self._apply(Change(lambda table: decoded_updates(*build(table)), rebuilds=True))

    def declare_metadata(self, updates: JsonParts, requirements: JsonParts = ()) -> R:
        """Apply updates under requirements that a failed requirement does not rebuild."""
        built = decoded_updates(updates, requirements)
        return self._apply(Change(lambda _: built))

    def _change_part(self, part: Part, build: Callable[[Table], MetadataUpdates]) -> R:
        return self._apply(
            Change(lambda table: decoded_updates(*build(table)), rebuilds=True, part=part)
        )

    def _rebuild(self, build: Callable[..., Built], *args: Any, **kwargs: Any) -> R:
        def built(table: Table) -> Built:
            return build(table, *args, **kwargs)

        return self._apply(Change(built, rebuilds=True))


def _by_name(
    method: Callable[Concatenate[TableVerbs[R], P], R],
) -> Callable[Concatenate[CatalogVerbs[R], TableName, P], R]:
    """Return the method with the name of the table as its first argument."""

    @wraps(method)
    def call(self: CatalogVerbs[R], table: TableName, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self.table(table), *args, **kwargs)

    return call


class CatalogVerbs(ABC, Generic[R]):
    """The methods of `TableVerbs` for a client or a transaction, which name the table first."""

    @abstractmethod
    def table(self, name: TableName) -> TableVerbs[R]:
        """Return an object with the methods for one table."""

    append_files = _by_name(TableVerbs[R].append_files)
    delete_files = _by_name(TableVerbs[R].delete_files)
    overwrite_files = _by_name(TableVerbs[R].overwrite_files)
    row_delta = _by_name(TableVerbs[R].row_delta)
    rewrite_files = _by_name(TableVerbs[R].rewrite_files)
    replace_partitions = _by_name(TableVerbs[R].replace_partitions)
    create_branch = _by_name(TableVerbs[R].create_branch)
    create_tag = _by_name(TableVerbs[R].create_tag)
    remove_branch = _by_name(TableVerbs[R].remove_branch)
    remove_tag = _by_name(TableVerbs[R].remove_tag)
    rollback = _by_name(TableVerbs[R].rollback)
    fast_forward = _by_name(TableVerbs[R].fast_forward)
    cherry_pick = _by_name(TableVerbs[R].cherry_pick)
    set_properties = _by_name(TableVerbs[R].set_properties)
    remove_properties = _by_name(TableVerbs[R].remove_properties)
    add_column = _by_name(TableVerbs[R].add_column)
    add_columns = _by_name(TableVerbs[R].add_columns)
    rename_column = _by_name(TableVerbs[R].rename_column)
    drop_column = _by_name(TableVerbs[R].drop_column)
    update_column = _by_name(TableVerbs[R].update_column)
    move_column = _by_name(TableVerbs[R].move_column)
    set_identifier_fields = _by_name(TableVerbs[R].set_identifier_fields)
    add_partition_field = _by_name(TableVerbs[R].add_partition_field)
    drop_partition_field = _by_name(TableVerbs[R].drop_partition_field)
    replace_partition_field = _by_name(TableVerbs[R].replace_partition_field)
    set_sort_order = _by_name(TableVerbs[R].set_sort_order)
    change_metadata = _by_name(TableVerbs[R].change_metadata)
    declare_metadata = _by_name(TableVerbs[R].declare_metadata)


# --- transactions -------------------------------------------------------------------------------


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

    def append(self, table: TableName, rows: Rows, **options: Unpack[CommitOptions]) -> None:
        """Write rows now and add them with the other changes; see `Client.append`."""
        self.table(table).append(rows, **options)

    def commit(self) -> tuple[Commit, ...]:
        """Commit all changes; without changes nothing is sent."""
        if self._ended:
            raise BadRequest("this transaction has ended: begin a new one")
        self._ended = True
        changed = [table for table in self._tables.values() if table.changes]
        if changed:
            self.commits = self._committed(changed)
        return self.commits

    def _committed(self, changed: Sequence[TableInTransaction]) -> tuple[Commit, ...]:
        try:
            commits = self._commit([(table.table, tuple(table.changes)) for table in changed])
        except FrazilError as error:
            for table in changed:
                table.failed(error)
            raise
        for table, commit in zip(changed, commits, strict=True):
            table.committed(commit)
        return commits

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._ended:
            self.commit()
        elif not self._ended:
            for table in self._tables.values():
                table.failed(None)
        self._ended = True


class TableInTransaction(TableVerbs[None]):
    """The methods of a table inside a transaction, which collects their changes in order."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.changes: list[Change] = []
        self._staged: list[StagedRows] = []

    def append(self, rows: Rows, **options: Unpack[CommitOptions]) -> None:
        """Write rows now, and add them when the transaction commits."""
        with extra_named():
            from frazil.client.rows.row_statements import stage_append
        staged = stage_append(self.table, rows, options)
        self._staged.append(staged)
        if staged.files:
            self.append_files(staged.files, **options)

    def committed(self, commit: Commit) -> None:
        for staged in self._staged:
            staged.committed(commit)

    def failed(self, error: FrazilError | None) -> None:
        """Remove the files of staged rows, unless the outcome is unknown."""
        for staged in self._staged:
            staged.failed(error)

    def _base(self) -> Table:
        return self.table

    def _apply(self, change: Change) -> None:
        if change.part is not None and any(known.part == change.part for known in self.changes):
            raise BadRequest(
                f"{self.table}: this transaction changes its {change.part} already; commit that "
                "first, or use a call that makes all changes, such as add_columns"
            )
        self.changes.append(change)
