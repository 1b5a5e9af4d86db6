"""PyIceberg's snapshot producers, each of which commits one fine-grained update.

A producer collects files like PyIceberg's own. Then it stages a wire update with its clauses and,
for the rest of the transaction, a `PendingSnapshot` in memory. It writes no manifest and no
manifest list, and requires nothing of the branch's head.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import UpdatesAndRequirements
from pyiceberg.table.update.snapshot import (
    _FastAppendFiles,
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)
from pyiceberg.typedef import EMPTY_DICT, Record

from frazil.client.declare.file_operations import Isolation, replacement_clauses
from frazil.pyiceberg.staged_changes import IsRemoved, PendingSnapshot, StagedChange, StagedRef
from frazil.pyiceberg.transaction_base import (
    PlannedDelete,
    ProducerFactory,
    command_of,
    parent_snapshot,
)
from frazil.pyiceberg.wire_conversion import added_data_file, conflict_filter
from frazil.wire.file_actions import (
    MAIN,
    Append,
    CommitValidation,
    Delete,
    FileUpdate,
    NotAllowedAddedDataFiles,
    NotAllowedNewDeletesForDataFiles,
    Overwrite,
    RequiredDataFiles,
    is_server_key,
)

if TYPE_CHECKING:
    from frazil.pyiceberg.frazil_transaction import FrazilTransaction


@dataclass(frozen=True)
class Reads:
    """The rows that an operation read, and its isolation from concurrent commits.

    An operation such as an upsert stages several updates. The first of them carries the clause
    about the rows that were read.
    """

    predicate: BooleanExpression
    isolation: Isolation
    case_sensitive: bool = True


def checked_summary(properties: dict[str, str]) -> dict[str, str]:
    """Refuse keys that the server computes, before anything is written."""
    for key in properties:
        if is_server_key(key):
            raise ValueError(
                f"snapshot_properties: {key!r} is computed by the server and cannot be set"
            )
    return {key: str(value) for key, value in properties.items()}


class _FineGrained(_SnapshotProducer[Any]):
    """Base of all producers: stages an update instead of writing manifests."""

    _transaction: FrazilTransaction

    def _current_branch_head_id(self) -> int | None:
        """Return the head of the branch; a new branch starts at main, as on the server and in
        Java."""
        return self._transaction.head_id(self._target_branch)

    def _change(self) -> FileUpdate | None:
        """Return the wire update; None if nothing would change."""
        raise NotImplementedError

    def _removed_files(self) -> tuple[IsRemoved | None, Iterable[str]]:
        """Return a check for removed files, used inside the transaction, and their known paths."""
        paths = frozenset(file.file_path for file in self._deleted_data_files)
        return (lambda file: file.file_path in paths) if paths else None, paths

    def _commit(self) -> UpdatesAndRequirements:
        change = self._change()
        if change is None:
            return (), ()
        metadata = self._transaction.table_metadata
        if not metadata.snapshots and self._target_branch not in (None, MAIN_BRANCH):
            # PyIceberg refuses this too. The table would have rows, but an empty main.
            raise CommitFailedException(
                f"Table has no snapshots and can only be written to the {MAIN_BRANCH} BRANCH."
            )
        is_removed, paths = self._removed_files()
        snapshot = PendingSnapshot.of(
            metadata,
            parent_snapshot(self),
            snapshot_id=self._snapshot_id,
            added=self._added_data_files,
            is_removed=is_removed,
            # The server computes the counts; until then only the operation is needed.
            summary=Summary(operation=self._operation, **self.snapshot_properties),
        )
        staged = StagedChange.of(snapshot, change, paths)
        if self._target_branch is None:
            return (staged,), ()
        moved = StagedRef.model_validate(
            {
                "snapshot-id": self._snapshot_id,
                "ref-name": self._target_branch,
                "type": SnapshotRefType.BRANCH,
            }
        )
        return (staged, moved), ()

    def _common(self) -> dict[str, Any]:
        return {
            "branch": self._target_branch or MAIN,
            "stage_only": self._target_branch is None,
            "summary": checked_summary(self.snapshot_properties),
            "case_sensitive": True,
        }

    def _with_clauses(self, clauses: Iterable[CommitValidation]) -> dict[str, Any]:
        """Return the clauses and the base they refer to; without clauses no base is needed."""
        validations = tuple(clauses)
        if not validations:
            return {}
        base = self._transaction.committed_base(self._starting_snapshot_id)
        return {"commit_validations": validations, "base_snapshot_id": base}

    def _read_clause(self, own: Reads | None = None) -> Iterable[CommitValidation]:
        reads = self._transaction.take_reads(own)
        if reads is None or reads.isolation is not Isolation.SERIALIZABLE:
            return ()
        if isinstance(reads.predicate, AlwaysFalse):
            return ()
        schema = self._transaction.table_metadata.schema()
        return (
            NotAllowedAddedDataFiles(
                filter_json=conflict_filter(
                    reads.predicate, schema, case_sensitive=reads.case_sensitive
                )
            ),
        )

    def _own_reads(self) -> Reads:
        """Return the reads of a producer on its own; without a predicate it may have read all
        rows."""
        unknown = isinstance(self._predicate, AlwaysFalse)
        return Reads(
            AlwaysTrue() if unknown else self._predicate,
            self._transaction.isolation(command_of(self._isolation_operation)),
            self._case_sensitive,
        )

    def _committed(self, files: Iterable[DataFile]) -> tuple[str, ...]:
        """Return the paths of committed files, without those that this transaction adds."""
        own = self._transaction.pending_paths()
        return tuple(sorted(file.file_path for file in files if file.file_path not in own))

    def _added(self) -> tuple[Any, ...]:
        metadata = self._transaction.table_metadata
        return tuple(added_data_file(file, metadata) for file in self._added_data_files)


class _Appending(_FineGrained):
    def _change(self) -> FileUpdate | None:
        if not self._added_data_files:
            return None
        return Append(
            add_data_files=self._added(),
            **self._common(),
            **self._with_clauses(self._read_clause()),
        )


class FrazilFastAppend(_Appending, _FastAppendFiles):
    """The same as a merge append, because the server decides when to merge manifests."""


class FrazilMergeAppend(_Appending, _MergeAppendFiles):
    """The same as a fast append, because the server decides when to merge manifests."""


class FrazilOverwrite(_FineGrained, _OverwriteFiles):
    """Removes files by name and adds others."""

    _carried_from: set[DataFile] | None = None
    """Removed files whose remaining rows are in the added files; None means all."""

    def _change(self) -> FileUpdate | None:
        removed = self._deleted_data_files
        if not removed:
            if not self._added_data_files:
                return None
            if self._operation == Operation.APPEND:
                clauses = self._with_clauses(self._read_clause())
                return Append(add_data_files=self._added(), **self._common(), **clauses)
        return Overwrite(
            add_data_files=self._added(),
            remove_data_files=tuple(sorted(file.file_path for file in removed)),
            **self._common(),
            **self._with_clauses(self._clauses()),
        )

    def _clauses(self) -> Iterable[CommitValidation]:
        yield from _required_files(self._committed(self._deleted_data_files))
        carried = self._deleted_data_files if self._carried_from is None else self._carried_from
        if self._added_data_files and (paths := self._committed(carried)):
            yield NotAllowedNewDeletesForDataFiles(file_paths=paths)
        yield from self._read_clause(self._own_reads())


class FrazilReplacePartitions(_FineGrained, _OverwriteFiles):
    """Replaces the partitions of the added files, for any partition transform."""

    def _change(self) -> FileUpdate | None:
        if not self._added_data_files:
            return None
        return Overwrite(
            add_data_files=self._added(),
            replace_partitions=True,
            **self._common(),
            **self._with_clauses(replacement_clauses(self._transaction.isolation("update"))),
        )

    def _removed_files(self) -> tuple[IsRemoved | None, Iterable[str]]:
        spec_id = self._transaction.table_metadata.default_spec_id
        partitions = {_partition_key(file.partition) for file in self._added_data_files}

        def is_removed(file: DataFile) -> bool:
            return file.spec_id == spec_id and _partition_key(file.partition) in partitions

        return is_removed, ()

    def refuse_other_specs(self) -> None:
        """Refuse if files of an older spec may contain rows of a replaced partition."""
        metadata = self._transaction.table_metadata
        parent = parent_snapshot(self)
        for manifest in [] if parent is None else parent.manifests(self._io):
            if manifest.content != ManifestContent.DATA:
                continue
            if manifest.partition_spec_id == metadata.default_spec_id:
                continue
            if self.fetch_manifest_entry(manifest):
                raise ValueError(
                    "dynamic_partition_overwrite: the table has data files of partition spec "
                    f"{manifest.partition_spec_id} beside the current spec "
                    f"{metadata.default_spec_id}, whose rows it would not replace: use overwrite "
                    "with a filter, or rewrite those files first"
                )


class FrazilDelete(_FineGrained, PlannedDelete):
    """Drops the files whose rows all match."""

    _carries_row_ids = False
    """Whether the dropped rows return as updated rows; then nobody may have deleted them since."""

    def _change(self) -> FileUpdate | None:
        if not self.files_affected:
            return None
        return Delete(
            remove_data_files=tuple(sorted(file.file_path for file in self._deleted_data_files)),
            **self._common(),
            **self._with_clauses(self._clauses()),
        )

    def _clauses(self) -> Iterable[CommitValidation]:
        paths = self._committed(self._deleted_data_files)
        yield from _required_files(paths)
        if self._carries_row_ids and paths:
            yield NotAllowedNewDeletesForDataFiles(file_paths=paths)
        yield from self._read_clause(self._own_reads())


class FrazilUpdateSnapshot(ProducerFactory):
    """Creates producers that stage fine-grained updates."""

    _transaction: FrazilTransaction

    def __init__(
        self,
        transaction: FrazilTransaction,
        io: FileIO,
        branch: str | None = MAIN_BRANCH,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
    ) -> None:
        checked_summary(snapshot_properties)
        super().__init__(transaction, io, branch, snapshot_properties)

    def fast_append(self) -> FrazilFastAppend:
        return FrazilFastAppend(**self._arguments(Operation.APPEND))

    def merge_append(self) -> FrazilMergeAppend:
        return FrazilMergeAppend(**self._arguments(Operation.APPEND))

    def overwrite(self, commit_uuid: uuid.UUID | None = None) -> FrazilOverwrite:
        return FrazilOverwrite(**self._overwrite_arguments(commit_uuid))

    def replace_partitions(self) -> FrazilReplacePartitions:
        return FrazilReplacePartitions(**self._arguments(Operation.OVERWRITE))

    def delete(self) -> FrazilDelete:
        return FrazilDelete(**self._arguments(Operation.DELETE))


def _required_files(paths: tuple[str, ...]) -> Iterable[CommitValidation]:
    if paths:
        yield RequiredDataFiles(file_paths=paths)


def _partition_key(partition: Record) -> tuple[Any, ...]:
    return tuple(partition[index] for index in range(len(partition)))
