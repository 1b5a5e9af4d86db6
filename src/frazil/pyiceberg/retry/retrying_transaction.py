"""Transactions of PyIceberg that know when to try again and when to stop.

For catalogs where the client builds the snapshot. The loop is that of Java's
`SnapshotProducer.commit`: swap; when another writer was faster, load the table, see whether a
former attempt has landed after all, check every operation against the base it was planned at, build
its manifests on the new head, and swap again. How often and how long: the table's `commit.retry.*`
properties.

An attempt ends in one of three ways, and only the second may delete what the call has written:

    landed     its snapshots are in the table; what lost attempts have left is deleted
    rejected   proven: a failed check, a failed requirement, a refusal by the catalog
    unknown    nothing is proven; the table is asked for the snapshots (`commit.status-check.*`),
               and if they are not there, every file stays and the exception is raised as it is
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
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
from pyiceberg.table import Table, Transaction, UpsertResult
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import IsolationLevel, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import UpdateSnapshot
from pyiceberg.typedef import EMPTY_DICT

from frazil.client.send.retry_policy import AROUND_THE_LIMIT, Clock, RetryBudget, RetryPolicy
from frazil.pyiceberg.retry.commit_checks import Claim, check, isolation_level
from frazil.pyiceberg.retry.history_window import EntryReader, Window
from frazil.pyiceberg.retry.retrying_producers import Retryable, RetryableUpdateSnapshot
from frazil.pyiceberg.retry.row_filter import RowFilter

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# Answers that prove that the catalog has not taken the commit. A later one may be taken:
RETRIED = (CommitFailedException, TooManyRequestsError)
# No later one will be taken:
REJECTIONS = (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchTableError,
    UnauthorizedError,
)


@dataclass(frozen=True, slots=True)
class _Change:
    """Updates that no producer made: sent again as they are, if their requirements still hold."""

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


@dataclass(frozen=True, slots=True)
class _Production:
    producer: Retryable[Any]
    claim: Claim


class RetryingTransaction(Transaction):
    """Works on a table of its own, so that a refresh of the user's does not move its base."""

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        own = Table(
            identifier=table.name(),
            metadata=table.metadata,
            metadata_location=table.metadata_location,
            io=table.io,
            catalog=table.catalog,
            config=table.config,
        )
        super().__init__(own, autocommit)
        self._users_table = table
        self.command: str | None = None
        """Whose isolation level counts, where a call is more than a delete or an update."""
        self._writes_files = False
        self._checks_duplicates = False
        self._staged: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None
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

    @property
    def table_metadata(self) -> TableMetadata:
        """As PyIceberg's, but made once for each state: it is asked for many times a commit."""
        metadata, updates = self._table.metadata, self._updates
        staged = self._staged
        if staged is None or staged[0] is not metadata or staged[1] is not updates:
            staged = self._staged = (metadata, updates, super().table_metadata)
        return staged[2]

    # -- what is staged

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
        made = producer._commit()
        step = _Production(producer, producer.claim())
        self._apply_made(*made)
        self._steps.append(step)
        if self._autocommit:
            self.commit_transaction()

    def _stage(
        self,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...] = (),
    ) -> Transaction:
        self._apply_made(updates, requirements)
        self._steps.append(_Change(updates, requirements))
        return self

    def _apply_made(
        self,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...],
    ) -> None:
        """Keeps the first requirement of each kind, and of each branch: it is that of the base."""
        for requirement in requirements:
            requirement.validate(self.table_metadata)
        self._updates += updates
        known = {_kind(requirement) for requirement in self._requirements}
        self._requirements += tuple(new for new in requirements if _kind(new) not in known)

    # -- what the calls write and read

    def append(self, *args: Any, **kwargs: Any) -> None:
        with self._writing_files():
            super().append(*args, **kwargs)

    def overwrite(self, *args: Any, **kwargs: Any) -> None:
        with self._writing_files():
            super().overwrite(*args, **kwargs)

    def dynamic_partition_overwrite(self, *args: Any, **kwargs: Any) -> None:
        with self._writing_files():
            super().dynamic_partition_overwrite(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> None:
        with self._writing_files():
            super().delete(*args, **kwargs)

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
        read = self.table_metadata
        level = isolation_level(read.properties, "merge")
        with self._writing_files(command="merge"):
            result = super().upsert(
                df,
                join_cols,
                when_matched_update_all,
                when_not_matched_insert_all,
                case_sensitive,
                branch,
                snapshot_properties,
            )
        if level == IsolationLevel.SERIALIZABLE:
            self._reads.append(_keys_read(df, join_cols, read, case_sensitive, branch))
        return result

    def add_files(
        self,
        file_paths: list[str],
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        check_duplicate_files: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Files that are handed in are never deleted, and no two calls may add the same one."""
        self._checks_duplicates = check_duplicate_files
        try:
            super().add_files(file_paths, snapshot_properties, check_duplicate_files, branch)
        finally:
            self._checks_duplicates = False

    @contextmanager
    def _writing_files(self, command: str | None = None) -> Iterator[None]:
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

    # -- the commit

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        if exctype is None:
            self.commit_transaction()
        elif not self._failed:
            # Nothing of this has been sent: it is as good as rejected.
            self._failed = True
            self._delete_all()

    def commit_transaction(self) -> Table:
        if self._failed:
            raise RuntimeError(
                "This transaction failed to commit and cannot be reused; create a new transaction."
            )
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
            self._refresh_after(lost)
            if self._has_landed():
                break
            with self._deleting_all_on_failure():
                if not may_retry:
                    raise lost
                logger.info("Another writer was faster, retry %s: %s", budget.retries, lost)
                self._rebuild()
        self._delete_lost_attempts()

    def _swap(self) -> Exception | None:
        """None when it has landed, the exception when another attempt may land."""
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
        """Asks the table after the snapshots of an attempt that ended with some exception."""
        budget = RetryBudget(RetryPolicy.of_status_checks(self._base.properties), Clock())
        while True:
            try:
                self._refresh()
            except Exception as error:
                logger.warning("The outcome of a commit could not be asked for: %s", error)
            else:
                if self._has_landed():
                    logger.warning("The commit has landed, but its answer was lost: %s", unknown)
                    return None
                if self._is_outrun():
                    self._has_unknown_attempt = True
                    lost = CommitFailedException(f"Another branch has moved: {unknown}")
                    lost.__cause__ = unknown
                    return lost
            if not budget.wait():
                raise unknown

    def _is_outrun(self) -> bool:
        """Whether the attempt's sequence number was given away, so that no catalog takes it now.

        A commit to one branch requires nothing of the others, yet all share the numbers, and
        PyIceberg's own catalogs then fail with an error that does not say so. The next attempt has
        the same snapshot ids, so that at most one of the two can land.
        """
        if self._table.format_version == 1:
            return False
        last = self._table.last_sequence_number
        return any((each.sequence_number or 0) <= last for each in self._added_snapshots())

    def _has_landed(self) -> bool:
        """The snapshot ids are the same in each attempt, so any of them is found."""
        added = self._added_snapshots()
        found = self._table.metadata.snapshot_by_id
        return bool(added) and all(found(each.snapshot_id) is not None for each in added)

    def _added_snapshots(self) -> list[Snapshot]:
        return [each.snapshot for each in self._updates if isinstance(each, AddSnapshotUpdate)]

    def _refresh_after(self, lost: Exception) -> None:
        try:
            self._refresh()
        except Exception as error:
            # Whether a former attempt has landed cannot be seen: nothing is deleted.
            raise lost from error

    def _refresh(self) -> None:
        fresh = self._table.catalog.load_table(self._table.name())
        metadata = fresh.metadata
        if metadata.table_uuid != self._base.table_uuid:
            raise CommitFailedException(
                f"Table {'.'.join(self._table.name())} was replaced by another writer: "
                f"{self._base.table_uuid} is {metadata.table_uuid} now"
            )
        if fresh.catalog.properties.get("snapshot-loading-mode") == "refs":
            # The catalog left out all snapshots but the heads; neither a former attempt nor the
            # history since the base could be found in those.
            metadata = FromInputFile.table_metadata(fresh.io.new_input(fresh.metadata_location))
        self._table.metadata = metadata
        self._table.metadata_location = fresh.metadata_location
        self._table.io = self._reader.io = fresh.io
        self._table.config = fresh.config

    def _rebuild(self) -> None:
        """Checks all that this transaction relies on, then builds it on the new head."""
        self._check_claims()
        self._updates = ()
        self._requirements = ()
        for step in self._steps:
            if isinstance(step, _Change):
                self._apply_made(step.updates, step.requirements)
            else:
                step.producer.rebase()
                self._apply_made(*step.producer._commit())

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
        """A delete that found no row has nothing to commit, but must not have missed one."""
        self._refresh()
        with self._deleting_all_on_failure():
            self._check_claims()

    # -- cleaning up

    @contextmanager
    def _deleting_all_on_failure(self) -> Iterator[None]:
        """For what happens between attempts: all of them are known to have failed."""
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
        """Deletes the manifests that no landed snapshot of this transaction refers to."""
        kept: set[str] = set()
        for producer in self._producers():
            snapshot = self._table.metadata.snapshot_by_id(producer.snapshot_id)
            if not producer.files_of_list:
                continue
            if snapshot is None or snapshot.manifest_list not in producer.files_of_list:
                # The catalog has it in another way than it was sent: what it refers to is unknown.
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
                # An orphan does no harm; the outcome of the commit is what the caller must hear.
                logger.warning("Could not delete %s: %s", path, error)


def _is_rejection(error: Exception) -> bool:
    """Whether it is the catalog's own word that the commit was not taken."""
    if isinstance(error, REJECTIONS):
        return True
    # PyIceberg has no class for each status; the answer is the cause of what it raises.
    status = getattr(getattr(error.__cause__, "response", None), "status_code", None)
    return (
        isinstance(error, RESTError)
        and isinstance(status, int)
        and HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        and status != HTTPStatus.REQUEST_TIMEOUT
    )


def _kind(requirement: TableRequirement) -> tuple[type[TableRequirement], str | None]:
    ref = requirement.ref if isinstance(requirement, AssertRefSnapshotId) else None
    return type(requirement), ref


def _keys_read(
    df: pa.Table,
    join_cols: list[str] | None,
    metadata: TableMetadata,
    case_sensitive: bool,
    branch: str | None,
) -> Claim:
    """What an upsert has read: the rows of its keys, those too that were equal or not there."""
    from pyiceberg.table.upsert_util import create_match_filter

    schema = metadata.schema()
    names = join_cols
    if names is None:
        # PyIceberg has just looked them up itself and refused those that it could not find.
        found = map(schema.find_column_name, schema.identifier_field_ids)
        names = [name for name in found if name is not None]
    return Claim(
        branch=branch,
        rows=RowFilter(create_match_filter(df, names), schema, case_sensitive),
        isolation=IsolationLevel.SERIALIZABLE,
        reads_kept_rows=True,
    )
