"""PyIceberg's snapshot producers, which a retry can apply to a new head.

The files that a producer adds and removes are fixed when it is committed to its transaction. An
attempt only decides the parent and the manifests. Every attempt writes new manifests, although Java
reuses some: PyIceberg caches manifests by path with the sequence number of the first attempt, which
changes from attempt to attempt.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.expressions.visitors import manifest_evaluator
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AssertRefSnapshotId, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import (
    _DeleteFiles,
    _FastAppendFiles,
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)
from pyiceberg.typedef import EMPTY_DICT, Record

from frazil.client.declare.file_operations import Isolation
from frazil.pyiceberg.manifest_reading import RowFilter, schema_of_spec
from frazil.pyiceberg.retry.commit_checks import Claim
from frazil.pyiceberg.transaction_base import (
    PlannedDelete,
    ProducerFactory,
    command_of,
    parent_snapshot,
)

if TYPE_CHECKING:
    from frazil.pyiceberg.retry.retrying_transaction import RetryingTransaction

U = TypeVar("U")


class Retryable(_SnapshotProducer[U]):
    """Base of all producers; a subclass also inherits from PyIceberg's producer."""

    _transaction: RetryingTransaction

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._referenced: frozenset[str] = frozenset()
        self.files_of_list: dict[str, frozenset[str]] = {}
        """The manifests of each manifest list that this producer wrote."""

    # --- files ----------------------------------------------------------------------------------

    def append_data_file(self, data_file: DataFile) -> Retryable[U]:
        self._fix_spec(data_file)
        self._transaction.note_added(data_file)
        super().append_data_file(data_file)
        return self

    def delete_data_file(self, data_file: DataFile) -> Retryable[U]:
        self._fix_spec(data_file)
        super().delete_data_file(data_file)
        return self

    def commit(self) -> None:
        self._transaction.stage_producer(self)

    def claim(self) -> Claim:
        """Return what this operation relies on; called once, after its first `_commit`."""
        return self._claim(AlwaysFalse(), Isolation.SNAPSHOT)

    def _claim(self, rows: Any, isolation: Isolation) -> Claim:
        return Claim(
            branch=self._target_branch,
            rows=RowFilter(rows, self.schema(), self._case_sensitive),
            isolation=isolation,
            removed=frozenset(self._deleted_data_files),
            added_once=self._transaction.added_once(self._added_data_files),
        )

    def _removing_claim(self) -> Claim:
        """Return the claim of a removal. Without a filter it may have read the whole table, as in
        Java's BaseOverwriteFiles."""
        command = self._transaction.command or command_of(self._isolation_operation)
        rows = AlwaysTrue() if isinstance(self._predicate, AlwaysFalse) else self._predicate
        return self._claim(rows, self._transaction.isolation(command))

    def _fix_spec(self, data_file: DataFile) -> None:
        """Fix the spec of a new file: the default spec may change before a later attempt."""
        if not hasattr(data_file, "_spec_id"):
            data_file.spec_id = self._transaction.table_metadata.default_spec_id

    # --- one attempt ----------------------------------------------------------------------------

    def rebase(self) -> None:
        """Move to the transaction's current head and keep the snapshot id.

        The id stays the same, so that the table shows whether an earlier attempt was committed.
        """
        self._parent_snapshot_id = self._current_branch_head_id()
        self._io = self._transaction._table.io
        self.commit_uuid = uuid.uuid4()

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        if updates:
            self.files_of_list[self._written_manifest_lists[-1]] = self._referenced
        if not updates or self._target_branch is None:
            # PyIceberg requires nothing if no ref moves: for a delete without matches and for a
            # staged snapshot. But both rely on what was read at this head.
            branch = self._target_branch or MAIN_BRANCH
            head = {"ref": branch, "snapshot-id": self._parent_snapshot_id}
            requirements = (AssertRefSnapshotId.model_validate(head),)
        return updates, requirements

    def written(self) -> set[str]:
        return {*self._written_manifests, *self._written_manifest_lists}

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        metadata = self._transaction.table_metadata
        return write_manifest(
            format_version=metadata.format_version,
            spec=spec,
            schema=schema_of_spec(spec, metadata),
            output_file=self.new_manifest_output(),
            snapshot_id=self._snapshot_id,
            avro_compression=self._compression,
        )

    def _manifests(self) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        parent = parent_snapshot(self)
        current = parent.manifests(self._io) if parent is not None else []
        kept = self._without_removed(current, metadata)
        manifests = self._process_manifests([*self._write_added(metadata), *kept])
        self._referenced = frozenset(manifest.manifest_path for manifest in manifests)
        return manifests

    def _write_added(self, metadata: TableMetadata) -> list[ManifestFile]:
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for data_file in self._added_data_files:
            by_spec[data_file.spec_id].append(data_file)
        return [
            self._write(metadata.specs()[spec_id], map(self._added_entry, data_files))
            for spec_id, data_files in by_spec.items()
        ]

    def _added_entry(self, data_file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=data_file
        )

    def _write(self, spec: PartitionSpec, entries: Iterable[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(spec) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _without_removed(
        self, manifests: Iterable[ManifestFile], metadata: TableMetadata
    ) -> list[ManifestFile]:
        """Return the manifests of the head, rewritten without the removed files.

        Delete manifests are kept as they are, because PyIceberg's reader drops some of their
        fields.
        """
        live = [each for each in manifests if each.has_added_files() or each.has_existing_files()]
        removed = {file.file_path for file in self._deleted_data_files}
        likely, unlikely = self._by_partitions(live, metadata)
        replaced, found_paths = self._rewritten(likely, removed, metadata)
        if removed - found_paths:
            # The manifest does not show the file's partition, so search the others by path.
            others, more_paths = self._rewritten(unlikely, removed, metadata)
            replaced |= others
            found_paths |= more_paths
        if removed - found_paths:
            missing = ", ".join(sorted(removed - found_paths))
            raise ValidationException(f"Cannot commit, missing data files: {missing}")
        return [replaced.get(manifest.manifest_path, manifest) for manifest in live]

    def _rewritten(
        self, manifests: Iterable[ManifestFile], removed: set[str], metadata: TableMetadata
    ) -> tuple[dict[str, ManifestFile], set[str]]:
        """Rewrite each manifest with a removed file; return them by path, and the files found."""
        replaced: dict[str, ManifestFile] = {}
        found_paths: set[str] = set()
        for manifest in manifests if removed else ():
            entries = manifest.fetch_manifest_entry(self._io)
            removed_here = removed & {entry.data_file.file_path for entry in entries}
            if removed_here:
                found_paths |= removed_here
                spec = metadata.specs()[manifest.partition_spec_id]
                replaced[manifest.manifest_path] = self._write(
                    spec, map(self._carried_entry, entries)
                )
        return replaced, found_paths

    def _by_partitions(
        self, manifests: Iterable[ManifestFile], metadata: TableMetadata
    ) -> tuple[list[ManifestFile], list[ManifestFile]]:
        """Split data manifests into those whose partitions may contain a removed file, and
        others."""
        evaluators = self._removal_evaluators(metadata)
        likely: list[ManifestFile] = []
        unlikely: list[ManifestFile] = []
        for manifest in manifests:
            if manifest.content == ManifestContent.DATA:
                evaluator = evaluators.get(manifest.partition_spec_id)
                is_likely = evaluator is not None and evaluator(manifest)
                (likely if is_likely else unlikely).append(manifest)
        return likely, unlikely

    def _removal_evaluators(
        self, metadata: TableMetadata
    ) -> dict[int, Callable[[ManifestFile], bool]]:
        partitions: dict[int, set[Record]] = defaultdict(set)
        for data_file in self._deleted_data_files:
            partitions[data_file.spec_id].add(data_file.partition)
        evaluators: dict[int, Callable[[ManifestFile], bool]] = {}
        for spec_id, records in partitions.items():
            spec = metadata.specs()[spec_id]
            names = [field.name for field in spec.fields]
            predicate = self._transaction._build_partition_predicate(records, names)
            schema = schema_of_spec(spec, metadata)
            evaluators[spec_id] = (
                manifest_evaluator(spec, schema, predicate) if names else lambda _: True
            )
        return evaluators

    def _carried_entry(self, entry: ManifestEntry) -> ManifestEntry:
        removed = entry.data_file in self._deleted_data_files
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED if removed else ManifestEntryStatus.EXISTING,
            snapshot_id=self._snapshot_id if removed else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """Build the summary like PyIceberg, but with each file's own spec."""
        metadata = self._transaction.table_metadata
        limit = metadata.properties.get(
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT,
        )
        collector = SnapshotSummaryCollector(partition_summary_limit=int(limit))
        specs = metadata.specs()
        for added in self._added_data_files:
            spec = specs[added.spec_id]
            collector.add_file(added, schema=schema_of_spec(spec, metadata), partition_spec=spec)
        for removed in self._deleted_data_files:
            spec = specs[removed.spec_id]
            collector.remove_file(
                removed, schema=schema_of_spec(spec, metadata), partition_spec=spec
            )
        parent = parent_snapshot(self)
        return update_snapshot_summaries(
            summary=Summary(operation=self._operation, **collector.build(), **snapshot_properties),
            previous_summary=parent.summary if parent is not None else None,
        )


class RetryableFastAppend(Retryable["_FastAppendFiles"], _FastAppendFiles):
    """Appends never conflict."""


class RetryableMergeAppend(Retryable["_FastAppendFiles"], _MergeAppendFiles):
    """Appends never conflict; the head of the attempt decides which manifests are merged."""


class RetryableOverwrite(Retryable["_OverwriteFiles"], _OverwriteFiles):
    """Removes files by name and adds others."""

    def claim(self) -> Claim:
        return self._removing_claim()


class RetryableDelete(Retryable["_DeleteFiles"], PlannedDelete):
    """Drops the files whose rows all match at the base.

    A retry drops the same files. Files added later were not read and stay.
    """

    def claim(self) -> Claim:
        return self._removing_claim()


class RetryableUpdateSnapshot(ProducerFactory):
    """Creates the producers above instead of PyIceberg's."""

    def fast_append(self) -> _FastAppendFiles:
        return RetryableFastAppend(**self._arguments(Operation.APPEND))

    def merge_append(self) -> _MergeAppendFiles:
        return RetryableMergeAppend(**self._arguments(Operation.APPEND))

    def overwrite(self, commit_uuid: uuid.UUID | None = None) -> _OverwriteFiles:
        return RetryableOverwrite(**self._overwrite_arguments(commit_uuid))

    def delete(self) -> _DeleteFiles:
        return RetryableDelete(**self._arguments(Operation.DELETE))
