"""PyIceberg tables whose commits are retried, for catalogs where the client builds snapshots.

The loop is that of Java's `SnapshotProducer.commit`. Try to swap the metadata. If another writer
was faster, load the table, look whether an earlier attempt was committed after all, check every
operation against its base, rebuild the manifests on the new head, and try again. The table's
`commit.retry.*` properties limit the number of retries and the time.

An attempt has one of three outcomes. Only after a rejection may the written files be deleted.

    committed  the snapshots are in the table; files of lost attempts are deleted
    rejected   certain: a failed check, a failed requirement, or a refusal by the catalog
    unknown    not certain: the table is asked for the snapshots (`commit.status-check.*`), and if
               they are not there, all files stay and the exception is raised unchanged
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    RESTError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StagedTable, StaticTable, Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import UpdateSnapshot
from pyiceberg.typedef import EMPTY_DICT

from frazil.client.declare.file_operations import Command, Isolation
from frazil.client.send.retry_policy import AROUND_THE_LIMIT, Clock, RetryBudget, RetryPolicy
from frazil.pyiceberg.manifest_reading import RowFilter
from frazil.pyiceberg.retry.commit_checks import Claim, check
from frazil.pyiceberg.retry.history_window import EntryReader, Window
from frazil.pyiceberg.retry.retrying_producers import Retryable, RetryableUpdateSnapshot
from frazil.pyiceberg.transaction_base import (
    TrackingTransaction,
    TransactingTable,
    copy_as,
    key_columns,
    within_operation,
)

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# The catalog has certainly not executed the commit. A retry can succeed:
RETRIED = (CommitFailedException, TooManyRequestsError)
# A retry cannot succeed:
REJECTIONS = (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchTableError,
    UnauthorizedError,
)


@dataclass(frozen=True, slots=True)
class _Change:
    """Updates without a producer, sent again unchanged while their requirements hold."""

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


@dataclass(frozen=True, slots=True)
class _Production:
    """A producer and what it relies on."""

    producer: Retryable[Any]
    claim: Claim


class RetryingTransaction(TrackingTransaction):
    """A transaction on a copy of the table, so that refreshing the original keeps the base."""

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        super().__init__(copy_as(Table, table), table, autocommit)
        self.command: Command | None = None
        """The command whose isolation level applies, if a call is more than a delete or update."""
        self._writes_files = False
        self._checks_duplicates = False
        self._begin()

    def _begin(self) -> None:
        self._base = self._table.metadata
        self._updates = ()
        self._requirements = ()
        self._snapshot_producers = []
        self._steps: list[_Change | _Production] = []
        self._reads: list[Claim] = []
        self._written_data_files: set[str] = set()
        self._has_unknown_attempt = False
        self._reader = EntryReader(self._table.io)

    # --- staging --------------------------------------------------------------------------------

    def update_snapshot(
        self,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        branch: str | None = MAIN_BRANCH,
    ) -> UpdateSnapshot:
        return RetryableUpdateSnapshot(
            self, io=self._table.io, branch=branch, snapshot_properties=snapshot_properties
        )

    def stage_producer(self, producer: Retryable[Any]) -> None:
        self._register_snapshot_producer(producer)
        updates, requirements = producer._commit()
        # The claim comes before the updates, which change what the transaction sees.
        self._steps.append(_Production(producer, producer.claim()))
        self._add_updates(updates, requirements)
        if self._autocommit:
            self.commit_transaction()

    def _stage(
        self,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...] = (),
    ) -> Transaction:
        self._add_updates(updates, requirements)
        self._steps.append(_Change(updates, requirements))
        return self

    # --- operations -----------------------------------------------------------------------------

    overwrite = within_operation(Transaction.overwrite)
    dynamic_partition_overwrite = within_operation(Transaction.dynamic_partition_overwrite)
    delete = within_operation(Transaction.delete)

    @contextmanager
    def _upserting(
        self, df: pa.Table, join_cols: list[str] | None, case_sensitive: bool, branch: str | None
    ) -> Iterator[None]:
        """Claim what an upsert reads: the rows of all its keys, also unchanged and missing ones."""
        from pyiceberg.table.upsert_util import create_match_filter

        schema, level = self.table_metadata.schema(), self.isolation("merge")
        with self.operation(command="merge"):
            yield
        if level is Isolation.SERIALIZABLE:
            keys = create_match_filter(df, key_columns(schema, join_cols))
            rows = RowFilter(keys, schema, case_sensitive)
            self._reads.append(Claim(branch, rows, level, reads_kept_rows=True))

    def add_files(
        self,
        file_paths: list[str],
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        check_duplicate_files: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Add existing files, which are never deleted on failure and may be added only once."""
        self._checks_duplicates = check_duplicate_files
        try:
            super().add_files(file_paths, snapshot_properties, check_duplicate_files, branch)
        finally:
            self._checks_duplicates = False

    @contextmanager
    def operation(self, command: Command | None = None) -> Iterator[None]:
        """Record the data files that are added, which are deleted if the commit is refused."""
        before = self._writes_files, self.command
        self._writes_files, self.command = True, command or self.command
        try:
            yield
        finally:
            self._writes_files, self.command = before

    def note_added(self, data_file: DataFile) -> None:
        if self._writes_files:
            self._written_data_files.add(data_file.file_path)

    def added_once(self, data_files: Iterable[DataFile]) -> frozenset[str]:
        if not self._checks_duplicates:
            return frozenset()
        return frozenset(data_file.file_path for data_file in data_files)

    # --- commit ---------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        if not self._failed:
            # Nothing was sent, so the files can be deleted as after a rejection.
            self._failed = True
            self._delete_all()

    def commit_transaction(self) -> Table:
        self._check_usable()
        if not self._updates and not self._snapshot_producers:
            return self._users_table
        try:
            if self._updates:
                self._swap_until_decided()
            else:
                self._check_that_nothing_was_missed()
        except BaseException:
            self._failed = True
            raise
        self._users_table.metadata = self._table.metadata
        self._users_table.metadata_location = self._table.metadata_location
        self._users_table.io = self._table.io
        self._users_table.config = self._table.config
        self._begin()
        return self._users_table

    def _swap_until_decided(self) -> None:
        with self._deleting_all_on_failure():
            policy = RetryPolicy.of(self._base.properties)
            budget = RetryBudget(policy, Clock(), AROUND_THE_LIMIT)
        while True:
            lost = self._swap()
            if lost is None:
                break
            may_retry = budget.wait()
            try:
                self._refresh()
            except Exception as error:
                # An earlier attempt may have been committed, so nothing may be deleted.
                raise lost from error
            if self._is_committed():
                break
            with self._deleting_all_on_failure():
                if not may_retry:
                    raise lost
                logger.info("Another writer was faster, retry %s: %s", budget.retries, lost)
                self._rebuild()
        self._delete_lost_attempts()

    def _swap(self) -> Exception | None:
        """Try to commit; return None on success, or the error if a retry can succeed."""
        requirements = (*self._requirements, AssertTableUUID(uuid=self._base.table_uuid))
        try:
            self._table._do_commit(updates=self._updates, requirements=requirements)
        except RETRIED as lost:
            return lost
        except Exception as error:
            if not _is_rejection(error):
                return self._resolve(error)
            self._delete_all()
            raise
        return None

    def _resolve(self, unknown: Exception) -> Exception | None:
        """Ask the table whether an attempt with an unknown outcome was committed."""
        budget = RetryBudget(RetryPolicy.of_status_checks(self._base.properties), Clock())
        while True:
            try:
                self._refresh()
            except Exception as error:
                logger.warning("Could not ask for the outcome of a commit: %s", error)
            else:
                if self._is_committed():
                    logger.warning("The commit succeeded, but its response was lost: %s", unknown)
                    return None
                if self._is_outdated():
                    self._has_unknown_attempt = True
                    lost = CommitFailedException(f"Another branch has moved: {unknown}")
                    lost.__cause__ = unknown
                    return lost
            if not budget.wait():
                raise unknown

    def _is_outdated(self) -> bool:
        """Check whether another commit used the attempt's sequence number, so it cannot succeed.

        A commit to one branch requires nothing of other branches, but all share the numbers.
        PyIceberg's own catalogs then fail with an unclear error. The next attempt has the same
        snapshot ids, so at most one of the two can be committed.
        """
        if self._table.format_version == 1:
            return False
        last = self._table.last_sequence_number
        return any((each.sequence_number or 0) <= last for each in self._added_snapshots())

    def _is_committed(self) -> bool:
        """Check whether any attempt was committed: all have the same snapshot ids."""
        added = self._added_snapshots()
        snapshot_by_id = self._table.metadata.snapshot_by_id
        return bool(added) and all(snapshot_by_id(each.snapshot_id) for each in added)

    def _added_snapshots(self) -> list[Snapshot]:
        return [each.snapshot for each in self._updates if isinstance(each, AddSnapshotUpdate)]

    def _refresh(self) -> None:
        fresh = self._table.catalog.load_table(self._table.name())
        metadata = fresh.metadata
        if metadata.table_uuid != self._base.table_uuid:
            raise CommitFailedException(
                f"Table {'.'.join(self._table.name())} was replaced by another writer: "
                f"{self._base.table_uuid} is {metadata.table_uuid} now"
            )
        if fresh.catalog.properties.get("snapshot-loading-mode") == "refs":
            # The catalog returned only the heads of refs, which show neither an earlier attempt nor
            # the history since the base.
            metadata = FromInputFile.table_metadata(fresh.io.new_input(fresh.metadata_location))
        self._table.metadata = metadata
        self._table.metadata_location = fresh.metadata_location
        self._table.io = self._reader.io = fresh.io
        self._table.config = fresh.config

    def _rebuild(self) -> None:
        """Check all claims of this transaction, then rebuild it on the new head."""
        self._check_claims()
        self._updates = ()
        self._requirements = ()
        for step in self._steps:
            if isinstance(step, _Change):
                self._add_updates(step.updates, step.requirements)
            else:
                step.producer.rebase()
                self._add_updates(*step.producer._commit())

    def _check_claims(self) -> None:
        windows: dict[str | None, Window] = {}
        claims = [step.claim for step in self._steps if isinstance(step, _Production)]
        for claim in [*claims, *self._reads]:
            if claim.branch not in windows:
                windows[claim.branch] = Window(
                    metadata=self._table.metadata,
                    base=self._base.snapshot_by_name(claim.branch),
                    head=self._table.metadata.snapshot_by_name(claim.branch),
                    reader=self._reader,
                )
            check(claim, windows[claim.branch])

    def _check_that_nothing_was_missed(self) -> None:
        """Check the claims of a delete without matches: it commits nothing, but may have missed
        rows."""
        self._refresh()
        with self._deleting_all_on_failure():
            self._check_claims()

    # --- cleaning up ----------------------------------------------------------------------------

    @contextmanager
    def _deleting_all_on_failure(self) -> Iterator[None]:
        """Delete all written files on failure; only for code between attempts, which all failed."""
        try:
            yield
        except Exception:
            self._delete_all()
            raise

    def _delete_all(self) -> None:
        if self._has_unknown_attempt:
            return
        self._delete(self._written_data_files)
        for producer in self._producers():
            self._delete(producer.written())

    def _delete_lost_attempts(self) -> None:
        """Delete the manifests that no committed snapshot of this transaction uses."""
        kept: set[str] = set()
        for producer in self._producers():
            snapshot = self._table.metadata.snapshot_by_id(producer.snapshot_id)
            if not producer.files_of_list:
                continue
            if snapshot is None or snapshot.manifest_list not in producer.files_of_list:
                # The catalog changed the snapshot, so the files that it uses are unknown.
                return
            kept |= {snapshot.manifest_list, *producer.files_of_list[snapshot.manifest_list]}
        for producer in self._producers():
            self._delete(producer.written() - kept)

    def _producers(self) -> list[Retryable[Any]]:
        return [each for each in self._snapshot_producers if isinstance(each, Retryable)]

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._table.io.delete(path)
            except Exception as error:
                # An orphan file is harmless, and the caller must get the outcome of the commit.
                logger.warning("Could not delete %s: %s", path, error)


def _is_rejection(error: Exception) -> bool:
    """Check that the catalog refused the commit."""
    if isinstance(error, REJECTIONS):
        return True
    # PyIceberg has no class for some statuses; the response is the cause of its exception.
    status = getattr(getattr(error.__cause__, "response", None), "status_code", None)
    return (
        isinstance(error, RESTError)
        and isinstance(status, int)
        and HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        and status != HTTPStatus.REQUEST_TIMEOUT
    )


class RetryingTable(TransactingTable):
    """A table that commits with `RetryingTransaction`, also for single calls."""

    def begin(self, *, autocommit: bool = False) -> Transaction:
        return RetryingTransaction(self, autocommit)


def retrying(table: Table) -> Table:
    """Return the table with commits that are checked against other commits and retried.

    `append`, `overwrite`, `dynamic_partition_overwrite`, `delete`, `upsert`, `add_files` and
    `transaction()` work like PyIceberg's. A conflict raises `ValidationException` at once.
    """
    if isinstance(table, StaticTable | StagedTable):
        raise ValueError(
            f"retrying() needs a table that was loaded from a catalog, got {type(table).__name__}"
        )
    return copy_as(RetryingTable, table)
