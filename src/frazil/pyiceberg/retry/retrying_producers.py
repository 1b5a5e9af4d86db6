"""PyIceberg's snapshot producers, made so that a retry applies the same intent to a new head.

What a producer adds and removes is fixed when it is committed to its transaction. An attempt only
says where that goes: under which parent, beside which manifests. Every attempt writes its manifests
anew, although Java uses some again: PyIceberg remembers manifests by their path with the sequence
number that they had when it first saw them, and that changes from attempt to attempt.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.expressions.visitors import (
    ROWS_MUST_MATCH,
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
    manifest_evaluator,
)
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
    IsolationLevel,
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AssertRefSnapshotId, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import (
    UpdateSnapshot,
    _DeleteFiles,
    _FastAppendFiles,
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)
from pyiceberg.typedef import EMPTY_DICT, Record

from frazil.pyiceberg.retry.commit_checks import Claim, isolation_level
from frazil.pyiceberg.retry.row_filter import RowFilter, schema_of_spec

if TYPE_CHECKING:
    from frazil.pyiceberg.retry.retrying_transaction import RetryingTransaction

U = TypeVar("U")


class Retryable(_SnapshotProducer[U]):
    """What all producers have in common; a subclass names PyIceberg's own beside it."""

    _transaction: RetryingTransaction

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._referenced: frozenset[str] = frozenset()
        self.files_of_list: dict[str, frozenset[str]] = {}
        """The manifests that each manifest list of this producer refers to."""

    # -- intent

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
        """What this operation relies on; asked for once, after its first `_commit`."""
        return self._claim(AlwaysFalse(), IsolationLevel.SNAPSHOT)

    def _claim(self, rows: Any, isolation: IsolationLevel) -> Claim:
        return Claim(
            branch=self._target_branch,
            rows=RowFilter(rows, self.schema(), self._case_sensitive),
            isolation=isolation,
            removed=frozenset(self._deleted_data_files),
            added_once=self._transaction.added_once(self._added_data_files),
        )

    def _removing_claim(self) -> Claim:
        """A removal by name, with no filter, may have read the whole table (BaseOverwriteFiles)."""
        command = self._transaction.command or (
            "update" if self._isolation_operation == Operation.OVERWRITE else "delete"
        )
        rows = AlwaysTrue() if isinstance(self._predicate, AlwaysFalse) else self._predicate
        metadata = self._transaction.table_metadata
        return self._claim(rows, isolation_level(metadata.properties, command))

    def _fix_spec(self, data_file: DataFile) -> None:
        """A file belongs to the spec it was written for, whatever the default becomes beside it."""
        if not hasattr(data_file, "_spec_id"):
            data_file.spec_id = self._transaction.table_metadata.default_spec_id

    # -- one attempt

    def rebase(self) -> None:
        """Turns to the head that the transaction has now; the snapshot id stays.

        It is the same in every attempt, so that a lost answer can be found in the table.
        """
        self._parent_snapshot_id = self._current_branch_head_id()
        self._io = self._transaction._table.io
        self.commit_uuid = uuid.uuid4()

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        if updates:
            self.files_of_list[self._written_manifest_lists[-1]] = self._referenced
        if not updates or self._target_branch is None:
            # Neither a delete that found nothing nor a staged snapshot moves a ref, and PyIceberg
            # then requires nothing; but what they rely on was read at this head.
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
        parent_id = self._parent_snapshot_id
        metadata = self._transaction.table_metadata
        parent = metadata.snapshot_by_id(parent_id) if parent_id is not None else None
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
        """The manifests of the head, those with a removed file written anew without it.

        Delete manifests are carried over as they are: PyIceberg's reader drops fields of them.
        """
        live = [each for each in manifests if each.has_added_files() or each.has_existing_files()]
        removed = {file.file_path for file in self._deleted_data_files}
        likely, unlikely = self._by_partitions(live, metadata)
        replaced, found = self._rewritten(likely, removed, metadata)
        if removed - found:
            # A file under another partition than its manifest says: looked for by its path.
            others, found_there = self._rewritten(unlikely, removed, metadata)
            replaced |= others
            found |= found_there
        if removed - found:
            missing = ", ".join(sorted(removed - found))
            raise ValidationException(f"Cannot commit, missing data files: {missing}")
        return [replaced.get(manifest.manifest_path, manifest) for manifest in live]

    def _rewritten(
        self, manifests: Iterable[ManifestFile], removed: set[str], metadata: TableMetadata
    ) -> tuple[dict[str, ManifestFile], set[str]]:
        """What takes the place of each manifest with a removed file, and which were found."""
        replaced: dict[str, ManifestFile] = {}
        found: set[str] = set()
        for manifest in manifests if removed else ():
            entries = manifest.fetch_manifest_entry(self._io)
            here = removed & {entry.data_file.file_path for entry in entries}
            if here:
                found |= here
                spec = metadata.specs()[manifest.partition_spec_id]
                replaced[manifest.manifest_path] = self._write(
                    spec, map(self._carried_entry, entries)
                )
        return replaced, found

    def _by_partitions(
        self, manifests: Iterable[ManifestFile], metadata: TableMetadata
    ) -> tuple[list[ManifestFile], list[ManifestFile]]:
        """Data manifests: those whose partitions may have a removed file, and the others."""
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
        """As PyIceberg's, each file under the spec it was written for."""
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
        parent_id = self._parent_snapshot_id
        parent = metadata.snapshot_by_id(parent_id) if parent_id is not None else None
        return update_snapshot_summaries(
            summary=Summary(operation=self._operation, **collector.build(), **snapshot_properties),
            previous_summary=parent.summary if parent is not None else None,
        )


class RetryableFastAppend(Retryable["_FastAppendFiles"], _FastAppendFiles):
    """Appends never conflict."""


class RetryableMergeAppend(Retryable["_FastAppendFiles"], _MergeAppendFiles):
    """Appends never conflict; what is merged depends on the head of the attempt."""


class RetryableOverwrite(Retryable["_OverwriteFiles"], _OverwriteFiles):
    def claim(self) -> Claim:
        return self._removing_claim()


class RetryableDelete(Retryable["_DeleteFiles"], _DeleteFiles):
    """Drops the files whose rows must all match, as they were found at the base.

    A retry looks for these very files: one that came later was never seen and stays.
    """

    def claim(self) -> Claim:
        return self._removing_claim()

    @cached_property
    def _compute_deletes(self) -> tuple[list[ManifestFile], list[ManifestEntry], bool]:
        """The plan, made once: nothing, the entries to drop, and whether others match in part."""
        metadata = self._transaction.table_metadata
        schema = metadata.schema()
        must_match = _StrictMetricsEvaluator(schema, self._predicate, self._case_sensitive).eval
        may_match = _InclusiveMetricsEvaluator(schema, self._predicate, self._case_sensitive).eval
        dropped: list[ManifestEntry] = []
        others_match = False
        for entry in self._entries_to_plan(metadata):
            if must_match(entry.data_file) == ROWS_MUST_MATCH:
                dropped.append(entry)
            elif may_match(entry.data_file):
                others_match = True
        self._deleted_data_files = {entry.data_file for entry in dropped}
        return [], dropped, others_match

    def _entries_to_plan(self, metadata: TableMetadata) -> Iterator[ManifestEntry]:
        parent_id = self._parent_snapshot_id
        parent = metadata.snapshot_by_id(parent_id) if parent_id is not None else None
        rows = RowFilter(self._predicate, metadata.schema(), self._case_sensitive)
        for manifest in parent.manifests(self._io) if parent is not None else ():
            if manifest.content == ManifestContent.DATA and rows.may_match_manifest(
                manifest, metadata
            ):
                yield from manifest.fetch_manifest_entry(self._io)


class RetryableUpdateSnapshot(UpdateSnapshot):
    """Makes the producers above where PyIceberg makes its own."""

    def fast_append(self) -> _FastAppendFiles:
        return RetryableFastAppend(**self._arguments(Operation.APPEND))

    def merge_append(self) -> _MergeAppendFiles:
        return RetryableMergeAppend(**self._arguments(Operation.APPEND))

    def overwrite(self, commit_uuid: uuid.UUID | None = None) -> _OverwriteFiles:
        head = self._transaction.table_metadata.snapshot_by_name(self._branch)
        operation = Operation.OVERWRITE if head is not None else Operation.APPEND
        return RetryableOverwrite(commit_uuid=commit_uuid, **self._arguments(operation))

    def delete(self) -> _DeleteFiles:
        return RetryableDelete(**self._arguments(Operation.DELETE))

    def _arguments(self, operation: Operation) -> dict[str, Any]:
        return {
            "operation": operation,
            "transaction": self._transaction,
            "io": self._io,
            "branch": self._branch,
            "snapshot_properties": self._snapshot_properties,
        }
