"""The verbs of a table: what can be changed, whether at once or as part of a transaction.

Each verb makes a `Change`, an immutable intent. One that depends on the table's state is built
again on fresh metadata after a failed requirement; one that only declares files never has to be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, Unpack

from msgspec import Struct

from frazil.client.declare import file_operations, metadata_updates
from frazil.client.declare.file_operations import (
    CheckOptions,
    CommitOptions,
    RemovedData,
    RemovedDeletes,
)
from frazil.client.declare.metadata_updates import Built, OwnParts, OwnUpdates, own_updates
from frazil.wire.declared_content import AddedDataFile, AddedDeleteFile, DeclaredDataFile
from frazil.wire.file_actions import MAIN, FileUpdate, Once
from frazil.wire.filter_builders import Filter
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table


class CommittedSnapshot(Struct, frozen=True, rename="kebab"):
    """The snapshot that one update of the request has made."""

    update: int
    """Index in the request's `updates`."""
    snapshot_id: int
    sequence_number: int
    operation: str


class Commit(Struct, frozen=True, kw_only=True):
    """One table's part of a commit that took place."""

    identifier: Identifier
    metadata_location: str
    snapshots: tuple[CommittedSnapshot, ...] = ()
    """Empty where only properties or refs changed."""
    already_committed: bool = False
    """Under `once`: this epoch had been committed before, so nothing was done now."""
    attempts: int = 1
    """How often something was sent."""

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot that it made."""
        return self.snapshots[-1].snapshot_id if self.snapshots else None

    @property
    def sequence_number(self) -> int | None:
        return self.snapshots[-1].sequence_number if self.snapshots else None

    @property
    def operation(self) -> str | None:
        return self.snapshots[-1].operation if self.snapshots else None


R = TypeVar("R")
P = ParamSpec("P")

NewData: TypeAlias = AddedDataFile | str | Path
"""A data file, or the path of a Parquet file whose footer is read."""

TableName: TypeAlias = "str | tuple[str, ...] | Identifier | Table"


@dataclass(frozen=True, slots=True)
class Change:
    """An intent: what is to become of a table, whatever state it is found in."""

    build: Callable[[Table], Built]
    rebuilds: bool = False
    """Whether it is built from the table's state, so that building it again can help."""
    once: Once | None = None


class Changes(ABC, Generic[R]):
    """The verbs; `R` is what each gives back."""

    @abstractmethod
    def _target(self) -> Table:
        """The table as it was read."""

    @abstractmethod
    def _change(self, change: Change) -> R: ...

    # --- the six operations --------------------------------------------------------------------

    def append_files(self, files: Iterable[NewData], **options: Unpack[CommitOptions]) -> R:
        """Adds data files. Never conflicts with anything."""
        table = self._target()
        return self._declare(
            file_operations.append_files(table, _read(table, files), options), options
        )

    def delete_files(
        self,
        files: Iterable[RemovedData] = (),
        *,
        row_filter: Filter | None = None,
        **options: Unpack[CheckOptions],
    ) -> R:
        """Removes data files by path, and those whose rows all match a filter."""
        update = file_operations.delete_files(self._target(), files, row_filter, options)
        return self._declare(update, options)

    def overwrite_files(
        self,
        add: Iterable[NewData] = (),
        remove: Iterable[RemovedData] = (),
        *,
        row_filter: Filter | None = None,
        **options: Unpack[CheckOptions],
    ) -> R:
        """Replaces data files, by path or by a filter: copy-on-write."""
        table = self._target()
        update = file_operations.overwrite_files(
            table, _read(table, add), remove, row_filter, options
        )
        return self._declare(update, options)

    def row_delta(
        self,
        add_data: Iterable[NewData] = (),
        add_deletes: Iterable[AddedDeleteFile] = (),
        *,
        remove_data: Iterable[RemovedData] = (),
        remove_deletes: Iterable[RemovedDeletes] = (),
        referenced_data_files: Iterable[str] = (),
        **options: Unpack[CheckOptions],
    ) -> R:
        """Adds rows and deletes of rows: merge-on-read.

        `referenced_data_files` are those that position deletes refer to without saying so in
        `referenced-data-file`.
        """
        table = self._target()
        update = file_operations.row_delta(
            table,
            _read(table, add_data),
            add_deletes,
            remove_data,
            remove_deletes,
            referenced_data_files,
            options,
        )
        return self._declare(update, options)

    def rewrite_files(
        self,
        remove_data: Iterable[RemovedData] = (),
        add_data: Iterable[NewData] = (),
        *,
        remove_deletes: Iterable[RemovedDeletes] = (),
        add_deletes: Iterable[AddedDeleteFile] = (),
        data_sequence_number: int | None = None,
        **options: Unpack[CheckOptions],
    ) -> R:
        """Puts the same rows into other files: compaction."""
        table = self._target()
        update = file_operations.rewrite_files(
            table,
            remove_data,
            _read(table, add_data),
            remove_deletes,
            add_deletes,
            data_sequence_number,
            options,
        )
        return self._declare(update, options)

    def replace_partitions(self, add: Iterable[NewData], **options: Unpack[CheckOptions]) -> R:
        """Replaces all rows of the partitions that the new files belong to."""
        table = self._target()
        update = file_operations.replace_partitions(table, _read(table, add), options)
        return self._declare(update, options)

    def _declare(self, update: FileUpdate, options: CommitOptions) -> R:
        return self._change(Change(lambda _: ((update,), ()), once=options.get("once")))

    # --- refs and properties -------------------------------------------------------------------

    def create_branch(
        self,
        name: str,
        snapshot: str | int | None = None,
        *,
        replace: bool = False,
        max_ref_age_ms: int | None = None,
        max_snapshot_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
    ) -> R:
        """A branch at a snapshot, given by its id, a branch or a tag; else at the head of main."""
        return self._rebuild(
            metadata_updates.create_ref,
            "branch",
            name,
            snapshot,
            replace=replace,
            max_ref_age_ms=max_ref_age_ms,
            max_snapshot_age_ms=max_snapshot_age_ms,
            min_snapshots_to_keep=min_snapshots_to_keep,
        )

    def create_tag(
        self,
        name: str,
        snapshot: str | int | None = None,
        *,
        replace: bool = False,
        max_ref_age_ms: int | None = None,
    ) -> R:
        return self._rebuild(
            metadata_updates.create_ref,
            "tag",
            name,
            snapshot,
            replace=replace,
            max_ref_age_ms=max_ref_age_ms,
        )

    def remove_branch(self, name: str) -> R:
        return self._rebuild(metadata_updates.remove_ref, name, "branch")

    def remove_tag(self, name: str) -> R:
        return self._rebuild(metadata_updates.remove_ref, name, "tag")

    def rollback(
        self,
        snapshot: str | int | None = None,
        *,
        timestamp_ms: int | None = None,
        branch: str = MAIN,
    ) -> R:
        """Moves a branch back to one of its ancestors; later snapshots stay in the table."""
        return self._rebuild(metadata_updates.rollback, snapshot, timestamp_ms, branch)

    def fast_forward(self, branch: str, to: str | int) -> R:
        return self._rebuild(metadata_updates.fast_forward, branch, to)

    def cherry_pick(self, snapshot_id: int, branch: str = MAIN) -> R:
        """Publishes a staged snapshot on a branch."""
        return self._change(Change(lambda _: metadata_updates.cherry_pick(snapshot_id, branch)))

    def set_properties(self, updates: Mapping[str, str]) -> R:
        return self._change(Change(lambda _: metadata_updates.change_properties(updates, ())))

    def remove_properties(self, *names: str) -> R:
        return self._change(Change(lambda _: metadata_updates.change_properties({}, names)))

    def change_metadata(self, build: Callable[[Table], OwnUpdates]) -> R:
        """Iceberg's own updates and the requirements that guard them, both in the JSON of its REST
        specification; built again on fresh metadata where a requirement does not hold."""
        return self._change(Change(lambda table: own_updates(*build(table)), rebuilds=True))

    def declare_metadata(self, updates: OwnParts, requirements: OwnParts = ()) -> R:
        """The same, made for the table as it was loaded: a failed requirement ends it."""
        built = own_updates(updates, requirements)
        return self._change(Change(lambda _: built))

    def _rebuild(self, build: Callable[..., Built], *args: Any, **kwargs: Any) -> R:
        def built(table: Table) -> Built:
            return build(table, *args, **kwargs)

        return self._change(Change(built, rebuilds=True))


def of_table(
    verb: Callable[Concatenate[Changes[R], P], R],
) -> Callable[Concatenate[OfTables[R], TableName, P], R]:
    """The verb with the table's name as its first argument."""

    @wraps(verb)
    def call(self: OfTables[R], table: TableName, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return verb(self.table(table), *args, **kwargs)

    return call


class OfTables(ABC, Generic[R]):
    """The same verbs for a client or a transaction, which have many tables."""

    @abstractmethod
    def table(self, name: TableName) -> Changes[R]:
        """The verbs of one table."""


def _read(table: Table, files: Iterable[NewData]) -> tuple[AddedDataFile, ...]:
    """Data files as they are, paths by their footers, which are read in parallel."""
    given = tuple(files)
    paths = [str(file) for file in given if not isinstance(file, DeclaredDataFile)]
    if not paths:
        return tuple(file for file in given if isinstance(file, DeclaredDataFile))
    from frazil.datafiles.footers.files_from_parquet import read_data_files

    read = iter(read_data_files(paths, table))
    return tuple(file if isinstance(file, DeclaredDataFile) else next(read) for file in given)
