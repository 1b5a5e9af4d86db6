"""PyIceberg's snapshot producers, whose commit is one fine-grained update.

A producer collects files as PyIceberg's does. What it stages then is a wire update with its clauses
and, for the rest of the transaction, a `PendingSnapshot` in memory: no manifest, no manifest list
and no assertion about the branch's head.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import (
    ROWS_MIGHT_NOT_MATCH,
    ROWS_MUST_MATCH,
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
)
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import UpdatesAndRequirements
from pyiceberg.table.update.snapshot import (
    UpdateSnapshot,
    _DeleteFiles,
    _FastAppendFiles,
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)
from pyiceberg.typedef import EMPTY_DICT, KeyDefaultDict, Record
from pyiceberg.utils.concurrent import ExecutorFactory

from frazil.client.declare.file_operations import Command, Isolation
from frazil.pyiceberg.file_declarations import added_data_file
from frazil.pyiceberg.filter_conversion import conflict_filter
from frazil.pyiceberg.staged_changes import Leaves, PendingSnapshot, StagedChange, StagedRef
from frazil.wire.file_actions import (
    MAIN,
    SERVER_SUMMARY_KEYS,
    Append,
    CommitValidation,
    Delete,
    FileUpdate,
    NotAllowedAddedDataFiles,
    NotAllowedAddedDeleteFiles,
    NotAllowedNewDeletesForDataFiles,
    Overwrite,
    RequiredDataFiles,
)

if TYPE_CHECKING:
    from frazil.pyiceberg.frazil_transaction import FrazilTransaction


@dataclass(frozen=True)
class Reads:
    """What an operation has read, and how far it is kept apart from what others add meanwhile.

    An operation such as an upsert stages several updates; the clause about what it has read is sent
    with the first of them, whichever that is.
    """

    predicate: BooleanExpression
    isolation: Isolation
    case_sensitive: bool = True


def command_of(operation: Operation) -> Command:
    """PyIceberg tells a delete from everything that also writes rows."""
    return "update" if operation == Operation.OVERWRITE else "delete"


def checked_summary(properties: dict[str, str]) -> dict[str, str]:
    """Refuses keys that the server computes, before anything is written."""
    for key in properties:
        if key in SERVER_SUMMARY_KEYS or key.startswith("partitions."):
            raise ValueError(
                f"snapshot_properties: {key!r} is computed by the server and cannot be given"
            )
    return {key: str(value) for key, value in properties.items()}


class _FineGrained(_SnapshotProducer[Any]):
    """What all producers have in common: staging an update in place of writing manifests."""

    _transaction: FrazilTransaction

    def _current_branch_head_id(self) -> int | None:
        """A branch that does not exist yet begins where main is, as the server and Java have it."""
        return self._transaction.head_id(self._target_branch)

    def _change(self) -> FileUpdate | None:
        """The wire update; None where nothing would change."""
        raise NotImplementedError

    def _leaving(self) -> tuple[Leaves | None, Iterable[str]]:
        """Which files leave, for the transaction's own eyes, and those that are known by path."""
        paths = frozenset(file.file_path for file in self._deleted_data_files)
        return (lambda file: file.file_path in paths) if paths else None, paths

    def _commit(self) -> UpdatesAndRequirements:
        change = self._change()
        if change is None:
            return (), ()
        metadata = self._transaction.table_metadata
        leaves, paths = self._leaving()
        parent = None
        if self._parent_snapshot_id is not None:
            parent = metadata.snapshot_by_id(self._parent_snapshot_id)
        snapshot = PendingSnapshot.of(
            metadata,
            parent,
            snapshot_id=self._snapshot_id,
            added=self._added_data_files,
            leaves=leaves,
            # The server counts; only the operation is of use before.
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
        """The base goes along only where something is measured by it."""
        found = tuple(clauses)
        if not found:
            return {}
        base = self._transaction.committed_base(self._starting_snapshot_id)
        return {"commit_validations": found, "base_snapshot_id": base}

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
        """As the producer stands for itself; without a predicate it may have read everything."""
        unknown = isinstance(self._predicate, AlwaysFalse)
        return Reads(
            AlwaysTrue() if unknown else self._predicate,
            self._transaction.isolation(command_of(self._isolation_operation)),
            self._case_sensitive,
        )

    def _committed(self, files: Iterable[DataFile]) -> tuple[str, ...]:
        """Paths that others can know of: not those that this very transaction adds."""
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
    """The same as a merging append: when manifests are merged is the server's affair."""


class FrazilMergeAppend(_Appending, _MergeAppendFiles):
    """The same as a fast append: when manifests are merged is the server's affair."""


class FrazilOverwrite(_FineGrained, _OverwriteFiles):
    """Removes files by name and adds others."""

    _carried_from: set[DataFile] | None = None
    """Files whose rows are carried over into the added ones; None: all that are removed."""

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
        yield from _still_there(self._committed(self._deleted_data_files))
        carried = self._deleted_data_files if self._carried_from is None else self._carried_from
        if self._added_data_files and (paths := self._committed(carried)):
            yield NotAllowedNewDeletesForDataFiles(file_paths=paths)
        yield from self._read_clause(self._own_reads())


class FrazilReplacePartitions(_FineGrained, _OverwriteFiles):
    """Replaces the partitions of the added files, whatever the partition's transforms are."""

    def _change(self) -> FileUpdate | None:
        if not self._added_data_files:
            return None
        return Overwrite(
            add_data_files=self._added(),
            replace_partitions=True,
            **self._common(),
            **self._with_clauses(self._clauses()),
        )

    def _clauses(self) -> Iterable[CommitValidation]:
        """About the replaced partitions, as Java's ReplacePartitions under Spark."""
        if self._transaction.isolation("update") is Isolation.SERIALIZABLE:
            yield NotAllowedAddedDataFiles()
        yield RequiredDataFiles()
        yield NotAllowedAddedDeleteFiles()

    def _leaving(self) -> tuple[Leaves | None, Iterable[str]]:
        spec_id = self._transaction.table_metadata.default_spec_id
        partitions = {_partition_key(file.partition) for file in self._added_data_files}

        def leaves(file: DataFile) -> bool:
            return file.spec_id == spec_id and _partition_key(file.partition) in partitions

        return leaves, ()

    def refuse_other_specs(self) -> None:
        """Rows of a partition may lie in files of an older spec, which replacing would leave."""
        metadata = self._transaction.table_metadata
        head_id = self._parent_snapshot_id
        snapshot = None if head_id is None else metadata.snapshot_by_id(head_id)
        for manifest in [] if snapshot is None else snapshot.manifests(self._io):
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


class FrazilDelete(_FineGrained, _DeleteFiles):
    """Drops the files of which all rows match."""

    _carries_row_ids = False
    """Whether the dropped rows come back as updated ones, which nobody may have deleted since."""

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
        yield from _still_there(paths)
        if self._carries_row_ids and paths:
            yield NotAllowedNewDeletesForDataFiles(file_paths=paths)
        yield from self._read_clause(self._own_reads())

    @cached_property
    def _compute_deletes(self) -> tuple[list[ManifestFile], list[ManifestEntry], bool]:
        """As PyIceberg plans a delete, without writing what remains of the manifests."""
        metadata = self._transaction.table_metadata
        schema = metadata.schema()
        must_match = _StrictMetricsEvaluator(schema, self._predicate, self._case_sensitive).eval
        may_match = _InclusiveMetricsEvaluator(schema, self._predicate, self._case_sensitive).eval
        dropped: list[ManifestEntry] = []
        partly = False
        for entry in self._entries_that_may_match():
            if must_match(entry.data_file) == ROWS_MUST_MATCH:
                dropped.append(entry)
            elif may_match(entry.data_file) != ROWS_MIGHT_NOT_MATCH:
                partly = True
        self._deleted_data_files = {entry.data_file for entry in dropped}
        return [], dropped, partly

    def _entries_that_may_match(self) -> Iterable[ManifestEntry]:
        if self._parent_snapshot_id is None:
            return
        snapshot = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id)
        if snapshot is None:
            return
        evaluators = KeyDefaultDict(self._build_manifest_evaluator)
        manifests = [
            manifest
            for manifest in snapshot.manifests(self._io)
            if manifest.content == ManifestContent.DATA
            and evaluators[manifest.partition_spec_id](manifest)
        ]
        executor = ExecutorFactory.get_or_create()
        yield from chain.from_iterable(executor.map(self.fetch_manifest_entry, manifests))


class FrazilUpdateSnapshot(UpdateSnapshot):
    """Gives out producers that stage fine-grained updates."""

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
        return FrazilFastAppend(operation=Operation.APPEND, **self._arguments())

    def merge_append(self) -> FrazilMergeAppend:
        return FrazilMergeAppend(operation=Operation.APPEND, **self._arguments())

    def overwrite(self, commit_uuid: uuid.UUID | None = None) -> FrazilOverwrite:
        return FrazilOverwrite(
            commit_uuid=commit_uuid, operation=self._overwriting(), **self._arguments()
        )

    def replace_partitions(self) -> FrazilReplacePartitions:
        return FrazilReplacePartitions(operation=Operation.OVERWRITE, **self._arguments())

    def delete(self) -> FrazilDelete:
        return FrazilDelete(operation=Operation.DELETE, **self._arguments())

    def _overwriting(self) -> Operation:
        metadata = self._transaction.table_metadata
        is_empty = metadata.snapshot_by_name(self._branch) is None
        return Operation.APPEND if is_empty else Operation.OVERWRITE

    def _arguments(self) -> dict[str, Any]:
        return {
            "transaction": self._transaction,
            "io": self._io,
            "branch": self._branch,
            "snapshot_properties": self._snapshot_properties,
        }


def _still_there(paths: tuple[str, ...]) -> Iterable[CommitValidation]:
    if paths:
        yield RequiredDataFiles(file_paths=paths)


def _partition_key(partition: Record) -> tuple[Any, ...]:
    return tuple(partition[place] for place in range(len(partition)))
