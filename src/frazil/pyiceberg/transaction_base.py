"""PyIceberg's table with another kind of transaction, and what both kinds share.

One kind commits through a Frazil server, the other one retries on any catalog.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cached_property, wraps
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pyiceberg.expressions.visitors import (
    ROWS_MIGHT_NOT_MATCH,
    ROWS_MUST_MATCH,
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
)
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction, UpsertResult
from pyiceberg.table.maintenance import MaintenanceTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import (
    ExpireSnapshots,
    ManageSnapshots,
    UpdateSnapshot,
    _DeleteFiles,
    _SnapshotProducer,
)
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.concurrent import ExecutorFactory

from frazil.client.declare.file_operations import Command, Isolation, isolation_of
from frazil.pyiceberg.manifest_reading import RowFilter
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    import pyarrow as pa

AnyTable = TypeVar("AnyTable", bound=Table)
P = ParamSpec("P")


class TransactingTable(Table):
    """A table that begins every commit with `begin`."""

    @abstractmethod
    def begin(self, *, autocommit: bool = False) -> Transaction:
        """Return a transaction; with `autocommit` it commits each change at once."""

    def transaction(self) -> Transaction:
        return self.begin()

    @property
    def maintenance(self) -> MaintenanceTable:
        return _Maintenance(self)

    def manage_snapshots(self) -> ManageSnapshots:
        return ManageSnapshots(transaction=self.begin(autocommit=True))

    def update_statistics(self) -> UpdateStatistics:
        return UpdateStatistics(transaction=self.begin(autocommit=True))

    def update_schema(
        self, allow_incompatible_changes: bool = False, case_sensitive: bool = True
    ) -> UpdateSchema:
        return UpdateSchema(
            transaction=self.begin(autocommit=True),
            allow_incompatible_changes=allow_incompatible_changes,
            case_sensitive=case_sensitive,
            name_mapping=self.name_mapping(),
        )

    def update_sort_order(self, case_sensitive: bool = True) -> UpdateSortOrder:
        return UpdateSortOrder(self.begin(autocommit=True), case_sensitive=case_sensitive)

    def update_spec(self, case_sensitive: bool = True) -> UpdateSpec:
        return UpdateSpec(self.begin(autocommit=True), case_sensitive=case_sensitive)


class _Maintenance(MaintenanceTable):
    tbl: TransactingTable

    def expire_snapshots(self) -> ExpireSnapshots:
        return ExpireSnapshots(transaction=self.tbl.begin(autocommit=True))


def copy_as(kind: type[AnyTable], table: Table) -> AnyTable:
    """Return a table of another class with the same state."""
    return kind(
        identifier=table.name(),
        metadata=table.metadata,
        metadata_location=table.metadata_location,
        io=table.io,
        catalog=table.catalog,
        config=table.config,
    )


# --- transactions -------------------------------------------------------------------------------


def within_operation(
    method: Callable[Concatenate[Transaction, P], None],
) -> Callable[Concatenate[TrackingTransaction, P], None]:
    """Return PyIceberg's method inside of `operation`."""

    @wraps(method)
    def call(transaction: TrackingTransaction, /, *args: P.args, **kwargs: P.kwargs) -> None:
        with transaction.operation():
            method(transaction, *args, **kwargs)

    return call


class TrackingTransaction(Transaction):
    """A transaction that knows the files it wrote and the table as its operations see it."""

    def __init__(self, table: Table, users_table: Table, autocommit: bool) -> None:
        super().__init__(table, autocommit)
        self._users_table = users_table
        """The table that the user has, which a commit refreshes."""
        self._staged: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @abstractmethod
    def operation(self) -> AbstractContextManager[None]:
        """Track the files that an operation writes."""

    @abstractmethod
    def _upserting(
        self, df: pa.Table, join_cols: list[str] | None, case_sensitive: bool, branch: str | None
    ) -> AbstractContextManager[None]:
        """Track an upsert, and the rows of its keys that it reads."""

    @abstractmethod
    def _roll_back(self) -> None:
        """End a transaction that will not be committed."""

    @property
    def table_metadata(self) -> TableMetadata:
        """Return the metadata with staged updates, which a commit needs many times; cached."""
        metadata, updates, staged = self._table.metadata, self._updates, self._staged
        if staged is None or staged[0] is not metadata or staged[1] is not updates:
            staged = self._staged = (metadata, updates, self._apply_updates(metadata, updates))
        return staged[2]

    _apply_updates: Callable[[TableMetadata, tuple[TableUpdate, ...]], TableMetadata] = (
        staticmethod(update_table_metadata)
    )

    def isolation(self, command: Command) -> Isolation:
        """Return the isolation level that the table's properties give a command."""
        try:
            return isolation_of(self.table_metadata.properties, command)
        except BadRequest as error:
            raise ValueError(error.message) from error

    def _add_updates(
        self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
    ) -> None:
        """Stage updates. Keep the first requirement about each subject, which is about the base."""
        for requirement in requirements:
            requirement.validate(self.table_metadata)
        self._updates += updates
        known = {_subject(requirement) for requirement in self._requirements}
        for requirement in requirements:
            if _subject(requirement) not in known:
                known.add(_subject(requirement))
                self._requirements += (self._on_base(requirement),)

    def _on_base(self, requirement: TableRequirement) -> TableRequirement:
        """Return the requirement as the catalog must check it."""
        return requirement

    append = within_operation(Transaction.append)

    def upsert(
        self,
        df: pa.Table,
        join_cols: list[str] | None = None,
        when_matched_update_all: bool = True,
        when_not_matched_insert_all: bool = True,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
    ) -> UpsertResult:
        with self._upserting(df, join_cols, case_sensitive, branch):
            return super().upsert(
                df,
                join_cols,
                when_matched_update_all,
                when_not_matched_insert_all,
                case_sensitive,
                branch,
                snapshot_properties,
            )

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        if exctype is None:
            self.commit_transaction()
        else:
            self._roll_back()

    def _check_usable(self) -> None:
        if self._failed:
            raise RuntimeError(
                "This transaction failed to commit and cannot be reused; create a new transaction."
            )


def _subject(requirement: TableRequirement) -> tuple[type, str | None]:
    """Return what a requirement is about: its type, and the ref it names."""
    return type(requirement), getattr(requirement, "ref", None)


def key_columns(schema: Schema, join_cols: list[str] | None) -> list[str]:
    """Return the key columns of an upsert, by default the identifier fields."""
    if join_cols is not None:
        return join_cols
    names = map(schema.find_column_name, schema.identifier_field_ids)
    return [name for name in names if name is not None]


# --- snapshot producers -------------------------------------------------------------------------


def command_of(operation: Operation) -> Command:
    """Return the command of an operation; all that write rows count as updates."""
    return "update" if operation == Operation.OVERWRITE else "delete"


def parent_snapshot(producer: _SnapshotProducer[Any]) -> Snapshot | None:
    """Return the snapshot that a producer's snapshot follows; it may be a staged one."""
    parent_id = producer._parent_snapshot_id
    if parent_id is None:
        return None
    return producer._transaction.table_metadata.snapshot_by_id(parent_id)


class ProducerFactory(UpdateSnapshot):
    """Creates other producers than PyIceberg's."""

    def _arguments(self, operation: Operation) -> dict[str, Any]:
        return {
            "operation": operation,
            "transaction": self._transaction,
            "io": self._io,
            "branch": self._branch,
            "snapshot_properties": self._snapshot_properties,
        }

    def _overwrite_arguments(self, commit_uuid: uuid.UUID | None) -> dict[str, Any]:
        is_empty = self._transaction.table_metadata.snapshot_by_name(self._branch) is None
        operation = Operation.APPEND if is_empty else Operation.OVERWRITE
        return {**self._arguments(operation), "commit_uuid": commit_uuid}


class PlannedDelete(_DeleteFiles):
    """Plans a delete like PyIceberg, but without writing the remaining manifests."""

    @cached_property
    def _compute_deletes(self) -> tuple[list[ManifestFile], list[ManifestEntry], bool]:
        """Plan once: no manifests, the entries to drop, and whether other files match in part."""
        schema = self._transaction.table_metadata.schema()
        must_match = _StrictMetricsEvaluator(schema, self._predicate, self._case_sensitive).eval
        may_match = _InclusiveMetricsEvaluator(schema, self._predicate, self._case_sensitive).eval
        dropped: list[ManifestEntry] = []
        others_may_match = False
        for entry in self._entries_that_may_match():
            if must_match(entry.data_file) == ROWS_MUST_MATCH:
                dropped.append(entry)
            elif may_match(entry.data_file) != ROWS_MIGHT_NOT_MATCH:
                others_may_match = True
        self._deleted_data_files = {entry.data_file for entry in dropped}
        return [], dropped, others_may_match

    def _entries_that_may_match(self) -> Iterable[ManifestEntry]:
        parent = parent_snapshot(self)
        if parent is None:
            return
        metadata = self._transaction.table_metadata
        rows = RowFilter(self._predicate, metadata.schema(), self._case_sensitive)
        manifests = [
            manifest
            for manifest in parent.manifests(self._io)
            if manifest.content == ManifestContent.DATA
            and rows.may_match_manifest(manifest, metadata)
        ]
        executor = ExecutorFactory.get_or_create()
        yield from chain.from_iterable(executor.map(self.fetch_manifest_entry, manifests))
