"""PyIceberg's transaction, committed as one request of fine-grained changes.

Operations write their data files with PyIceberg's own code. Staged changes are visible only to
later operations of the transaction until the commit. The commit has one of three outcomes:
committed once; refused, and the files that this transaction wrote are deleted; or unknown, and no
file is deleted.
"""

from __future__ import annotations

import copy
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import (
    ALWAYS_TRUE,
    DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE,
    CreateTableTransaction,
    Table,
    TableProperties,
    Transaction,
    _parse_row_filter,
    upsert_util,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertCreate,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import EMPTY_DICT, TableVersion
from pyiceberg.utils.config import Config

from frazil.client.declare.file_operations import Command
from frazil.pyiceberg.commit_messages import ValidationError, proves_rejection
from frazil.pyiceberg.copy_on_write import Rewriter
from frazil.pyiceberg.frazil_producers import FrazilUpdateSnapshot, Reads
from frazil.pyiceberg.row_lineage import UpdatedRows, lineage_metadata
from frazil.pyiceberg.staged_changes import (
    PendingSnapshot,
    StagedChange,
    refuse_staged_ids,
    requirement_on_base,
    with_updates,
)
from frazil.pyiceberg.transaction_base import (
    TrackingTransaction,
    TransactingTable,
    command_of,
    key_columns,
    within_operation,
)
from frazil.pyiceberg.written_files import WrittenFiles
from frazil.wire.conflicts import duplicate_paths


class FrazilTransaction(TrackingTransaction):
    """A transaction on the metadata of the table when the transaction began."""

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        self._written = WrittenFiles(table.io)
        own = copy.copy(table)
        own.io = self._written.begin()
        super().__init__(own, table, autocommit)
        self._depth = 0
        self._reads: Reads | None = None
        self._in_reads = False
        self._updated_rows: UpdatedRows | None = None

    # --- state with staged changes -----------------------------------------------------------

    _apply_updates = staticmethod(with_updates)

    def staged_changes(self) -> Iterator[StagedChange]:
        return (update for update in self._updates if isinstance(update, StagedChange))

    def pending_paths(self) -> set[str]:
        """Return data files that this transaction added and has not removed again."""
        paths: set[str] = set()
        for change in self.staged_changes():
            paths -= change.removed_paths
            paths.update(change.added_paths)
        return paths

    def committed_base(self, snapshot_id: int | None) -> int | None:
        """Return the id of the committed snapshot below one that may be staged."""
        if snapshot_id is None:
            return None
        snapshot = self.table_metadata.snapshot_by_id(snapshot_id)
        if isinstance(snapshot, PendingSnapshot):
            snapshot = snapshot.committed_ancestor
        return None if snapshot is None else snapshot.snapshot_id

    def head_id(self, branch: str | None) -> int | None:
        """Return the head of a branch; a new branch starts at main, as on the server and in
        Java."""
        metadata = self.table_metadata
        head = metadata.snapshot_by_name(branch) or metadata.current_snapshot()
        return None if head is None else head.snapshot_id

    # --- staging -----------------------------------------------------------------------------

    def _stage(
        self,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...] = (),
    ) -> Transaction:
        staged = {change.snapshot.snapshot_id for change in self.staged_changes()}
        for update in updates:
            refuse_staged_ids(update, staged)
        self._add_updates(updates, requirements)
        return self

    def _on_base(self, requirement: TableRequirement) -> TableRequirement:
        return requirement_on_base(requirement, self._table.metadata)

    def _register_snapshot_producer(self, producer: _SnapshotProducer[Any]) -> None:
        """Do nothing: producers are not rebuilt on a newer head."""

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Undo the changes and files of an operation that fails."""
        updates, requirements, paths = self._updates, self._requirements, self._written.paths
        autocommit, self._autocommit = self._autocommit, False
        if self._depth == 0:
            self._table.io = self._written.begin()
        self._depth += 1
        try:
            yield
        except BaseException:
            if self._depth == 1:
                self._updates, self._requirements = updates, requirements
                self._written.abandon(self._table.io, keep=paths)
                self._table.io = self._written.begin()
            raise
        finally:
            self._depth -= 1
            self._autocommit = autocommit
        if autocommit:
            self.commit_transaction()

    @contextmanager
    def _reading(
        self, predicate: BooleanExpression, command: Command, case_sensitive: bool
    ) -> Iterator[None]:
        """Record that an operation reads the rows of the predicate, also in nested operations."""
        if self._in_reads:
            yield
            return
        self._reads = Reads(predicate, self.isolation(command), case_sensitive)
        self._in_reads = True
        try:
            yield
        finally:
            self._reads, self._in_reads = None, False

    def take_reads(self, own: Reads | None) -> Reads | None:
        """Return the reads of the operation once, for its first update; outside of one, `own`."""
        if not self._in_reads:
            return own
        reads, self._reads = self._reads, None
        return reads

    # --- operations --------------------------------------------------------------------------

    def update_snapshot(
        self, snapshot_properties: dict[str, str] = EMPTY_DICT, branch: str | None = MAIN_BRANCH
    ) -> FrazilUpdateSnapshot:
        return FrazilUpdateSnapshot(
            self, io=self._table.io, branch=branch, snapshot_properties=snapshot_properties
        )

    def upgrade_table_version(self, format_version: TableVersion) -> Transaction:
        if format_version != 3:
            return super().upgrade_table_version(format_version)
        if self.table_metadata.format_version < 3:
            upgrade = UpgradeFormatVersionUpdate.model_validate({"format-version": 3})
            self._apply((upgrade,))
        return self

    add_files = within_operation(Transaction.add_files)

    def _find_referenced_data_files(self, file_paths: list[str]) -> list[str]:
        """Look only at this transaction's files; the server checks the committed ones."""
        pending = self.pending_paths()
        return [path for path in file_paths if path in pending]

    def overwrite(
        self,
        df: pa.Table | pa.RecordBatchReader,
        overwrite_filter: BooleanExpression | str = ALWAYS_TRUE,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        predicate = _parse_row_filter(overwrite_filter)
        with self.operation(), self._reading(predicate, "update", case_sensitive):
            if self._updated_rows is None:
                super().overwrite(df, predicate, snapshot_properties, case_sensitive, branch)
                return
            self.delete(predicate, snapshot_properties, case_sensitive, branch)
            self._append_updated(self._updated_rows, df, snapshot_properties, branch)

    def _append_updated(
        self,
        updated: UpdatedRows,
        df: pa.Table,
        snapshot_properties: dict[str, str],
        branch: str | None,
    ) -> None:
        """Append updated rows, which keep their row ids."""
        self._check_schema(df)
        with self._append_snapshot_producer(snapshot_properties, branch) as appending:
            metadata = lineage_metadata(self.table_metadata)
            for file in self._write(updated.with_row_ids(df), appending.commit_uuid, metadata):
                appending.append_data_file(file)

    def delete(
        self,
        delete_filter: str | BooleanExpression,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        _isolation_operation: Operation | None = None,
    ) -> None:
        predicate = _parse_row_filter(delete_filter)
        command = command_of(_isolation_operation or Operation.DELETE)
        self._warn_of_merge_on_read()
        with self.operation(), self._reading(predicate, command, case_sensitive):
            matched = self._delete(predicate, snapshot_properties, case_sensitive, branch)
        if not matched:
            warnings.warn("Delete operation did not match any records", stacklevel=2)

    def _delete(
        self,
        predicate: BooleanExpression,
        snapshot_properties: dict[str, str],
        case_sensitive: bool,
        branch: str | None,
    ) -> bool:
        """Drop files whose rows all match, then rewrite files with some matching rows."""
        update = self.update_snapshot(snapshot_properties, branch)
        rewriter = Rewriter(
            self.table_metadata, self._table.io, predicate, case_sensitive, self._updated_rows
        )
        with update.delete() as dropping:
            dropping._carries_row_ids = self._updated_rows is not None
            dropping.delete_by_predicate(predicate, case_sensitive)
        if self._updated_rows is not None:
            rewriter.note_rows_of(dropping._deleted_data_files, dropping._parent_snapshot_id)
        if not dropping.rewrites_needed:
            return bool(dropping.files_affected)
        rewritten = rewriter.rewritten_files(self.table_metadata, self.head_id(branch))
        if rewritten:
            with update.overwrite() as rewriting:
                rewriting._starting_snapshot_id = dropping._starting_snapshot_id
                rewriting._carried_from = set()
                rewriting.commit_uuid = rewriter.commit_uuid
                for original, remaining in rewritten:
                    rewriting.delete_data_file(original)
                    if remaining:
                        rewriting._carried_from.add(original)
                    for file in remaining:
                        rewriting.append_data_file(file)
        return True

    def _warn_of_merge_on_read(self) -> None:
        mode = self.table_metadata.properties.get(
            TableProperties.DELETE_MODE, TableProperties.DELETE_MODE_DEFAULT
        )
        if mode == TableProperties.DELETE_MODE_MERGE_ON_READ:
            warnings.warn(
                "Merge on read is not yet supported, falling back to copy-on-write", stacklevel=3
            )

    @contextmanager
    def _upserting(
        self, df: pa.Table, join_cols: list[str] | None, case_sensitive: bool, branch: str | None
    ) -> Iterator[None]:
        columns = self._key_columns(df, join_cols)
        keys = upsert_util.create_match_filter(df, columns) if columns else AlwaysFalse()
        with (
            self.operation(),
            self._reading(keys, "merge", case_sensitive),
            self._keeping_row_ids(columns),
        ):
            yield

    def _key_columns(self, df: pa.Table, join_cols: list[str] | None) -> list[str]:
        """Return the key columns of an upsert; none if PyIceberg will refuse the upsert.

        All keys are read, also missing ones: nobody may have added their rows concurrently.
        """
        columns = key_columns(self.table_metadata.schema(), join_cols)
        known = set(df.column_names)
        return columns if len(df) > 0 and known.issuperset(columns) else []

    @contextmanager
    def _keeping_row_ids(self, key_columns: list[str]) -> Iterator[None]:
        if self.table_metadata.format_version >= 3 and key_columns:
            self._updated_rows = UpdatedRows(tuple(key_columns))
        try:
            yield
        finally:
            self._updated_rows = None

    def dynamic_partition_overwrite(
        self,
        df: pa.Table,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        if not isinstance(df, pa.Table):
            raise ValueError(f"Expected PyArrow table, got: {df}")
        spec = self.table_metadata.spec()
        if spec.is_unpartitioned():
            raise ValueError("Cannot apply dynamic overwrite on an unpartitioned table.")
        self._check_schema(df)
        if df.num_rows == 0:
            return
        with self.operation():
            if all(isinstance(field.transform, IdentityTransform) for field in spec.fields):
                self._overwrite_partitions(df, snapshot_properties, branch)
            else:
                self._replace_partitions(df, snapshot_properties, branch)

    def _overwrite_partitions(
        self, df: pa.Table, snapshot_properties: dict[str, str], branch: str | None
    ) -> None:
        """Overwrite identity partitions, whose values are a predicate on rows in any file."""
        metadata = self.table_metadata
        columns = [
            metadata.schema().find_column_name(field.source_id) or field.name
            for field in metadata.spec().fields
        ]
        write_uuid = uuid.uuid4()
        files = list(self._write(df, write_uuid, metadata))
        predicate = self._build_partition_predicate({file.partition for file in files}, columns)
        with self._reading(predicate, "update", case_sensitive=True):
            self.delete(predicate, snapshot_properties, branch=branch)
            with self._append_snapshot_producer(snapshot_properties, branch) as appending:
                appending.commit_uuid = write_uuid
                for file in files:
                    appending.append_data_file(file)

    def _check_schema(self, df: pa.Table) -> None:
        _check_pyarrow_schema_compatible(
            self.table_metadata.schema(),
            provided_schema=df.schema,
            downcast_ns_timestamp_to_us=Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE)
            or False,
            format_version=self.table_metadata.format_version,
        )

    def _replace_partitions(
        self, df: pa.Table, snapshot_properties: dict[str, str], branch: str | None
    ) -> None:
        update = self.update_snapshot(snapshot_properties, branch)
        with update.replace_partitions() as replacing:
            replacing.refuse_other_specs()
            for file in self._write(df, replacing.commit_uuid, self.table_metadata):
                replacing.append_data_file(file)

    def _write(
        self, df: pa.Table, write_uuid: uuid.UUID, metadata: TableMetadata
    ) -> Iterable[DataFile]:
        return _dataframe_to_data_files(
            table_metadata=metadata, write_uuid=write_uuid, df=df, io=self._table.io
        )

    # --- commit ------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        self._failed = True
        self._written.discard()

    def commit_transaction(self) -> Table:
        self._check_usable()
        if self._updates:
            self._commit_once(self._final_requirements())
        # Delete files that were written but are in no change.
        self._written.discard()
        self._updates = ()
        self._requirements = ()
        return self._users_table

    def _final_requirements(self) -> tuple[TableRequirement, ...]:
        return (*self._requirements, AssertTableUUID(uuid=self.table_metadata.table_uuid))

    def _commit_once(self, requirements: tuple[TableRequirement, ...]) -> None:
        try:
            answer = self._table.catalog.commit_table(self._table, requirements, self._updates)
            added = (path for change in self.staged_changes() for path in change.added_paths)
            self._written.forget(frozenset(added))
            Table._check_uuid(self._table.metadata, answer.metadata)
        except BaseException as error:
            self._failed = True
            if proves_rejection(error.__cause__):
                kept = error.conflicts if isinstance(error, ValidationError) else ()
                self._written.discard(keep=frozenset(duplicate_paths(kept)))
            else:
                self._written.forget()
            raise
        for table in (self._table, self._users_table):
            table.metadata = answer.metadata
            table.metadata_location = answer.metadata_location


class FrazilCreateTableTransaction(CreateTableTransaction, FrazilTransaction):
    """Creates a table together with its first changes."""

    def commit_transaction(self) -> Table:
        return FrazilTransaction.commit_transaction(self)

    def _final_requirements(self) -> tuple[TableRequirement, ...]:
        return (AssertCreate(),)


class FrazilTable(TransactingTable):
    """PyIceberg's table with commits of fine-grained changes."""

    def begin(self, *, autocommit: bool = False) -> FrazilTransaction:
        return FrazilTransaction(self, autocommit)
