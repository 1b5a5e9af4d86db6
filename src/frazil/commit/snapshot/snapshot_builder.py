"""Builds the new snapshot of an action: its manifests, its summary, and the updates that add it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw

from frazil.commit.snapshot.commit_environment import Environment
from frazil.commit.snapshot.manifest_tree import (
    AddedFiles,
    Head,
    Tree,
    TreeTarget,
    build_tree,
    schema_for_spec,
)
from frazil.commit.snapshot.stream_epochs import CommittedSnapshot
from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.manifest.manifest_fields import NONE
from frazil.format.metadata.content_files import ContentFile, DeleteFile
from frazil.format.metadata.partition_spec import partition_path, partition_type
from frazil.format.metadata.snapshot_summary import PARTITION_SUMMARY_LIMIT, Changes, SummaryBuilder
from frazil.format.metadata.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from frazil.format.metadata.table_metadata import MIN_FORMAT_VERSION_ROW_LINEAGE, TableMetadata
from frazil.format.metadata.table_properties import parse_int
from frazil.read.filters import partitions_of
from frazil.read.manifest_row import ManifestRow
from frazil.wire.errors import BadRequest
from frazil.wire.rest_updates import AddSnapshot, SetSnapshotRef

_MAX_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Branch:
    """The target branch of a snapshot."""

    name: str
    ref: SnapshotRef | None
    """None if the branch does not exist yet."""
    head: Snapshot | None


@dataclass(frozen=True, slots=True)
class Action:
    """One fine-grained update of a request, and the table it is applied to."""

    metadata: TableMetadata
    """The metadata after the earlier updates of the request."""
    branch: Branch
    head_before: Snapshot | None
    """The head of the branch before the request."""
    index: int
    """The index of the update in its request."""
    json_path: str
    """The JSON path of the update, such as `table-changes[1].updates[0]`."""
    environment: Environment

    def read_head(self) -> Head:
        if self.branch.head is None:
            return Head(None, None)
        return Head.at(self.branch.head, self.environment.reader.manifest_list(self.branch.head))


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files that a snapshot adds and the live entries that it removes."""

    added: Sequence[AddedFiles]
    removed: dict[str, dict[int, ManifestRow]]
    """The removed rows by manifest path, then by row number."""


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """The result of an action: the updates that add its snapshot to the table, and its files."""

    updates: tuple[AddSnapshot | SetSnapshotRef, ...]
    committed: CommittedSnapshot
    files: tuple[tuple[str, bytes], ...] = ()


def branch_of_table(metadata: TableMetadata, name: str, json_path: str) -> Branch:
    """Return the branch to commit to. A branch that does not exist yet starts at main's head."""
    ref = metadata.ref(name)
    if ref is not None and not ref.is_branch:
        raise BadRequest(
            f"{json_path}.branch: {name} is a tag, and tags cannot be targets of a commit: name a "
            "branch"
        )
    start = ref or metadata.ref(MAIN_BRANCH)
    head = None if start is None else metadata.snapshot(start.snapshot_id)
    return Branch(name, ref, head)


def build_snapshot(
    action: Action,
    head: Head,
    changes: FileChanges,
    *,
    operation: str,
    properties: Sequence[tuple[str, str]],
    stage_only: bool,
    tree_of: Callable[[TreeTarget], Tree] | None = None,
) -> NewSnapshot:
    """Build the manifests, the summary and the snapshot that apply these changes to the head.

    `tree_of` builds the manifests in another way, for a change that adds and removes no files.
    """
    metadata, environment = action.metadata, action.environment
    version = metadata.format_version
    snapshot_id = _snapshot_id(environment.commit_uuid, action.index)
    sequence_number = 0 if version == 1 else metadata.last_sequence_number + 1
    target = TreeTarget(metadata, snapshot_id, sequence_number, head)
    if tree_of is None:
        removed = {path: sorted(rows) for path, rows in changes.removed.items()}
        tree = build_tree(target, changes.added, removed, environment.reader)
    else:
        tree = tree_of(target)
    summary = _summary(
        metadata, head, changes, tree, operation, (*properties, *environment.summary)
    )
    parent = head.snapshot
    snapshot: dict[str, Any] = {
        **({"sequence-number": sequence_number} if version > 1 else {}),
        "snapshot-id": snapshot_id,
        **({"parent-snapshot-id": parent.snapshot_id} if parent else {}),
        "timestamp-ms": max(environment.now_ms, parent.timestamp_ms + 1 if parent else 0),
        "summary": summary,
        "manifest-list": tree.manifest_list,
        "schema-id": metadata.current_schema_id,
        **_row_lineage(metadata, tree),
    }
    updates: list[AddSnapshot | SetSnapshotRef] = [
        AddSnapshot(snapshot=Raw(msgspec.json.encode(snapshot)))
    ]
    if not stage_only:
        updates.append(moved_ref(action.branch, snapshot_id))
    committed = CommittedSnapshot(action.index, snapshot_id, sequence_number, operation)
    return NewSnapshot(tuple(updates), committed, tree.files)


def moved_ref(branch: Branch, snapshot_id: int) -> SetSnapshotRef:
    """Return the update that moves the branch to a new head. Its retention settings do not
    change."""
    ref = branch.ref
    return SetSnapshotRef(
        ref_name=branch.name,
        type="branch",
        snapshot_id=snapshot_id,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
        max_ref_age_ms=ref.max_ref_age_ms if ref else None,
    )


def _row_lineage(metadata: TableMetadata, tree: Tree) -> dict[str, int]:
    if metadata.format_version < MIN_FORMAT_VERSION_ROW_LINEAGE:
        return {}
    return {"first-row-id": metadata.next_row_id, "added-rows": tree.written.assigned_rows}


def _snapshot_id(commit_uuid: bytes, index: int) -> int:
    """Return a positive id that depends only on the request. If the table already has this id,
    the request is refused, and a new request gets another id."""
    digest = hashlib.blake2b(b"%d" % index, key=commit_uuid, digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MAX_LONG or 1


# --- the summary -----------------------------------------------------------------------------


def _summary(
    metadata: TableMetadata,
    head: Head,
    changes: FileChanges,
    tree: Tree,
    operation: str,
    properties: Sequence[tuple[str, str]],
) -> dict[str, str]:
    """Return the summary: counts of added and removed files, and totals based on those of the
    head."""
    builder = SummaryBuilder()
    for group in changes.added:
        of_partition = _partition_changes(metadata, builder, group.spec_id)
        for file in group.files:
            _count_added(builder.changes, of_partition(file.partition), file)
    _count_removed(metadata, changes, builder)
    limit = parse_int(metadata.properties.get(PARTITION_SUMMARY_LIMIT, "0"))
    return builder.build(
        operation,
        properties,
        head.snapshot.summary if head.snapshot else None,
        partition_limit=limit or 0,
        manifests_created=tree.manifests_created,
        manifests_kept=tree.manifests_kept,
        manifests_replaced=tree.manifests_replaced,
    )


def _count_added(changes: Changes, of_partition: Changes, file: ContentFile) -> None:
    is_vector, size, content = False, file.file_size_in_bytes, 0
    if isinstance(file, DeleteFile):
        content = file.content
        if file.content_size_in_bytes is not None:
            is_vector, size = True, file.content_size_in_bytes
    changes.added.count(content, is_vector, file.record_count, size)
    of_partition.added.count(content, is_vector, file.record_count, size)


def _count_removed(metadata: TableMetadata, changes: FileChanges, builder: SummaryBuilder) -> None:
    for rows in changes.removed.values():
        first = next(iter(rows.values()))
        spec_id, columns = first.listed.partition_spec_id, first.columns
        partitions = partitions_of(columns, metadata.spec(spec_id))
        of_partition = _partition_changes(metadata, builder, spec_id)
        seen: set[tuple[str, int | None]] = set()
        for row, entry in rows.items():
            key = entry.identity
            if key in seen:
                builder.duplicate_deletes += 1
                continue
            seen.add(key)
            counted = _row(columns, row)
            builder.changes.removed.count(*counted)
            of_partition(partitions[columns.partition[row]]).removed.count(*counted)


def _row(columns: ManifestColumns, row: int) -> tuple[int, bool, int, int]:
    """Return the content type, whether the row is a deletion vector, its record count and its
    size."""
    size, is_vector = int(columns.file_size_in_bytes[row]), False
    if columns.deletes is not None and columns.deletes.content_offset[row] != NONE:
        is_vector, size = True, int(columns.deletes.content_size_in_bytes[row])
    return int(columns.content[row]), is_vector, int(columns.record_count[row]), max(0, size)


def _partition_changes(
    metadata: TableMetadata, builder: SummaryBuilder, spec_id: int
) -> Callable[[tuple[Any, ...]], Changes]:
    """Return a function that returns the counts of a partition. Each partition path is computed
    once."""
    spec = metadata.spec(spec_id)
    if spec is None or not spec.fields:
        unpartitioned = builder.partition("")
        return lambda _: unpartitioned
    schema = schema_for_spec(metadata.schemas, metadata.current_schema_id, spec)
    type_ = partition_type(spec, schema)
    known: dict[tuple[Any, ...], Changes] = {}

    def find(partition: tuple[Any, ...]) -> Changes:
        changes = known.get(partition)
        if changes is None:
            path = partition_path(spec, type_, partition)
            changes = known[partition] = builder.partition(path)
        return changes

    return find
