"""A snapshot produced from declared files: Java's snapshot producers, on the server.

The way of one action: its files are held against the table, its clauses against the history since
its base, its removals against the head of its branch; then the tree and the summary are built.
Nothing is changed and nothing is written: a lost swap is answered by producing again on a fresh
head, under the same snapshot id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from frazil.commit.snapshot.head_changes import FileChanges, Resolver, grouped
from frazil.commit.snapshot.manifest_tree import (
    AddedFiles,
    Head,
    Tree,
    TreeTarget,
    build_tree,
    schema_for_spec,
)
from frazil.commit.validate.clauses import (
    Scope,
    check_base,
    check_deletion_vectors,
    check_validations,
)
from frazil.format.declared.declared_files import DeclaredFiles
from frazil.format.manifest.manifest_columns import NONE, ManifestColumns
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.format.metadata.content_files import ContentFile, DataFile, DeleteFile
from frazil.format.metadata.partition_spec import PartitionSpec, partition_path, partition_type
from frazil.format.metadata.snapshot_summary import PARTITION_SUMMARY_LIMIT, Changes, SummaryBuilder
from frazil.format.metadata.snapshots import MAIN_BRANCH, Snapshot, SnapshotRef
from frazil.format.metadata.table_metadata import MIN_FORMAT_VERSION_ROW_LINEAGE, TableMetadata
from frazil.format.metadata.table_updates import parse_int
from frazil.read.filters import partitions_of
from frazil.read.history import APPEND, DELETE, OVERWRITE, REPLACE
from frazil.read.manifest_cache import ManifestReader
from frazil.wire import declared_content as wire
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import ALWAYS_FALSE, parse_expression
from frazil.wire.file_actions import Append, Delete, FileUpdate, Overwrite, Replace
from frazil.wire.rest_updates import AddSnapshot, SetSnapshotRef

_ENCRYPTION_KEY: Final = "encryption.key-id"
_MAX_LONG: Final = 2**63 - 1

CheckPlaces: TypeAlias = Callable[[TableMetadata, Sequence[str], str], None]
"""Refuses paths that a table must not name; the last argument says where they stand."""
VerifyFiles: TypeAlias = Callable[
    [TableMetadata, Sequence[DataFile], Sequence[DeleteFile], str], None
]


@dataclass(frozen=True, slots=True)
class Tools:
    """What producing a snapshot may look at beside the metadata, and what it is given."""

    reader: ManifestReader
    check_places: CheckPlaces
    verify_files: VerifyFiles
    commit_uuid: bytes
    """Drawn once for a request: it keeps its snapshot ids however often it is applied."""
    now_ms: int
    place: str = ""
    """Where the table's updates stand in the request, such as `table-changes[1].`."""
    summary: tuple[tuple[str, str], ...] = ()
    """What the server adds to the summaries of this request."""


@dataclass(frozen=True, slots=True)
class Produced:
    """A new snapshot, as the updates that bring it into the table."""

    updates: tuple[AddSnapshot | SetSnapshotRef, ...]
    snapshot_id: int
    sequence_number: int
    operation: str
    files: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The branch a snapshot goes to."""

    branch: str
    ref: SnapshotRef | None
    head: Snapshot | None


def produce(
    before: TableMetadata, metadata: TableMetadata, update: FileUpdate, index: int, tools: Tools
) -> Produced:
    """The snapshot of one action. `metadata` is what the earlier updates of its request made of
    `before`: clauses look at history without them, removals at what they left."""
    place = f"{tools.place}updates[{index}]"
    refuse_encrypted(metadata)
    target = target_of(metadata, update.branch, place)
    _check_data_sequence_number(metadata, update, place)
    added = _declared(metadata, update, place, tools)
    replaced = _replaced_partitions(metadata, update, added)
    scope = Scope(
        metadata=metadata,
        head=target_of(before, update.branch, place).head,
        update=update,
        index=index,
        added_partitions=replaced,
        place=tools.place,
    )
    check_base(scope)
    check_validations(scope, tools.reader)
    check_deletion_vectors(scope, _delete_files(added), tools.reader)
    head = head_of(target, tools.reader)
    resolver = Resolver(metadata, update, index, place, head, tools.reader)
    changes = resolver.resolve(added, replaced)
    return build_snapshot(
        metadata,
        target,
        head,
        changes,
        operation=operation_of(update),
        properties=(*update.summary.items(), *_own_properties(update)),
        stage_only=update.stage_only,
        index=index,
        tools=tools,
    )


# --- the target ------------------------------------------------------------------------------


def target_of(metadata: TableMetadata, branch: str, place: str) -> Target:
    """A branch that does not exist yet starts at main's head."""
    ref = metadata.ref(branch)
    if ref is not None and not ref.is_branch:
        raise BadRequest(
            f"{place}.branch: {branch} is a tag, and tags cannot be targets of a commit: name a "
            "branch"
        )
    start = ref or metadata.ref(MAIN_BRANCH)
    head = None if start is None else metadata.snapshot(start.snapshot_id)
    return Target(branch, ref, head)


def head_of(target: Target, reader: ManifestReader) -> Head:
    if target.head is None:
        return Head(None, None)
    return Head.at(target.head, reader.manifest_list(target.head))


def refuse_encrypted(metadata: TableMetadata) -> None:
    """Manifests of an encrypted table must be encrypted too, by keys that only clients have."""
    if _ENCRYPTION_KEY in metadata.properties:
        raise BadRequest(
            f"the table is encrypted ({_ENCRYPTION_KEY}): the server cannot build its manifests, "
            "commit with a client that builds the snapshot itself"
        )


# --- the declared files ----------------------------------------------------------------------


def _declared(
    metadata: TableMetadata, update: FileUpdate, place: str, tools: Tools
) -> tuple[AddedFiles, ...]:
    """The files that an action adds, held against the table."""
    data: Sequence[wire.DeclaredDataFile] = (
        () if isinstance(update, Delete) else update.add_data_files
    )
    deletes: Sequence[wire.AddedDeleteFile] = ()
    if isinstance(update, Overwrite | Replace):
        deletes = update.add_delete_files
    if not data and not deletes:
        return ()
    declared = DeclaredFiles(metadata)
    added_data = declared.data_files(data, f"{place}.add-data-files")
    added_deletes = declared.delete_files(deletes, f"{place}.add-delete-files")
    for files, name in ((data, "add-data-files"), (deletes, "add-delete-files")):
        if files:
            tools.check_places(metadata, [file.file_path for file in files], f"{place}.{name}")
    tools.verify_files(metadata, added_data, added_deletes, f"{place}.")
    groups: list[AddedFiles] = []
    if added_data:
        number = update.data_sequence_number if isinstance(update, Replace) else None
        groups += grouped(added_data, [file.spec_id for file in data], DATA, number)
    if added_deletes:
        groups += grouped(added_deletes, [file.spec_id for file in deletes], DELETES)
    return tuple(groups)


def _delete_files(added: Sequence[AddedFiles]) -> list[DeleteFile]:
    return [file for group in added for file in group.files if isinstance(file, DeleteFile)]


def _replaced_partitions(
    metadata: TableMetadata, update: FileUpdate, added: Sequence[AddedFiles]
) -> frozenset[tuple[int, tuple[Any, ...]]] | None:
    """What `replace-partitions` replaces; None where it is the whole table, or nothing."""
    if not isinstance(update, Overwrite) or not update.replace_partitions:
        return None
    spec = metadata.spec(added[0].spec_id)
    if spec is None or spec.is_unpartitioned:
        return None
    return frozenset((group.spec_id, file.partition) for group in added for file in group.files)


def _check_data_sequence_number(metadata: TableMetadata, update: FileUpdate, place: str) -> None:
    if not isinstance(update, Replace) or update.data_sequence_number is None:
        return
    if metadata.format_version < 2:
        raise BadRequest(
            f"{place}.data-sequence-number: format version 1 has no sequence numbers, leave it out"
        )
    base = None
    if update.base_snapshot_id is not None:
        base = metadata.snapshot(update.base_snapshot_id)
    if base is not None and update.data_sequence_number > base.sequence_number:
        raise BadRequest(
            f"{place}.data-sequence-number: {update.data_sequence_number} is above the sequence "
            f"number {base.sequence_number} of the base snapshot {base.snapshot_id}: deletes "
            "between the two would be lost"
        )


# --- the operation ---------------------------------------------------------------------------


def operation_of(update: FileUpdate) -> str:
    """Derived from what was asked, as Java's producers do it: other writers' checks read it."""
    match update:
        case Append():
            return APPEND
        case Delete():
            return DELETE
        case Replace():
            return REPLACE
    removes_data = bool(update.remove_data_files) or _filters_rows(update)
    if update.replace_partitions:
        return OVERWRITE
    if update.add_data_files:
        return OVERWRITE if removes_data or update.add_delete_files else APPEND
    return DELETE if removes_data or update.add_delete_files else OVERWRITE


def _filters_rows(update: Overwrite) -> bool:
    """A filter that matches nothing at the moment still asks for a removal; one that never can
    does not, as in Java."""
    raw = update.delete_row_filter
    if raw is None:
        return False
    try:
        return parse_expression(msgspec.json.decode(raw)) != ALWAYS_FALSE
    except (BadRequest, msgspec.DecodeError):
        # It is refused, with its place, when it is bound.
        return True


def _own_properties(update: FileUpdate) -> tuple[tuple[str, str], ...]:
    if isinstance(update, Overwrite) and update.replace_partitions:
        return (("replace-partitions", "true"),)
    return ()


# --- the snapshot ----------------------------------------------------------------------------


def build_snapshot(
    metadata: TableMetadata,
    target: Target,
    head: Head,
    changes: FileChanges,
    *,
    operation: str,
    properties: Sequence[tuple[str, str]],
    stage_only: bool,
    index: int,
    tools: Tools,
) -> Produced:
    """The tree, the summary and the snapshot that these changes make of the head."""
    version = metadata.format_version
    snapshot_id = _snapshot_id(tools.commit_uuid, index)
    sequence_number = 0 if version == 1 else metadata.last_sequence_number + 1
    tree = build_tree(
        TreeTarget(metadata, snapshot_id, sequence_number, head),
        changes.added,
        changes.removals.rows(),
        tools.reader,
    )
    summary = summarised(metadata, head, changes, tree, operation, (*properties, *tools.summary))
    parent = head.snapshot
    snapshot: dict[str, Any] = {
        **({"sequence-number": sequence_number} if version > 1 else {}),
        "snapshot-id": snapshot_id,
        **({"parent-snapshot-id": parent.snapshot_id} if parent else {}),
        "timestamp-ms": max(tools.now_ms, parent.timestamp_ms + 1 if parent else 0),
        "summary": summary,
        "manifest-list": tree.manifest_list,
        "schema-id": metadata.current_schema_id,
        **_row_lineage(metadata, tree),
    }
    updates: list[AddSnapshot | SetSnapshotRef] = [
        AddSnapshot(snapshot=Raw(msgspec.json.encode(snapshot)))
    ]
    if not stage_only:
        updates.append(moved_ref(target, snapshot_id))
    return Produced(tuple(updates), snapshot_id, sequence_number, operation, tree.files)


def moved_ref(target: Target, snapshot_id: int) -> SetSnapshotRef:
    """The branch at its new head; how long its snapshots are kept stays as it is."""
    ref = target.ref
    return SetSnapshotRef(
        ref_name=target.branch,
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
    """A positive number that depends on the request alone. That the table has it already is as
    good as impossible; then the request is refused, and another one draws another id."""
    digest = hashlib.blake2b(b"%d" % index, key=commit_uuid, digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MAX_LONG or 1


def summarised(
    metadata: TableMetadata,
    head: Head,
    changes: FileChanges,
    tree: Tree,
    operation: str,
    properties: Sequence[tuple[str, str]],
) -> dict[str, str]:
    """The whole summary. The totals go on from the head, on a new branch from where it starts."""
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
    for rows in changes.removals.entries.values():
        first = next(iter(rows.values()))
        spec_id, columns = first.listed.partition_spec_id, first.columns
        spec = metadata.spec(spec_id)
        partitions = columns.partitions if spec is None else partitions_of(columns, spec)
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
    """Content, whether it is a deletion vector, records and size."""
    size, is_vector = int(columns.file_size_in_bytes[row]), False
    if columns.deletes is not None and columns.deletes.content_offset[row] != NONE:
        is_vector, size = True, int(columns.deletes.content_size_in_bytes[row])
    return int(columns.content[row]), is_vector, int(columns.record_count[row]), max(0, size)


def _partition_changes(
    metadata: TableMetadata, builder: SummaryBuilder, spec_id: int
) -> Callable[[tuple[Any, ...]], Changes]:
    """The counts of a partition; its path is made once for each tuple."""
    spec = metadata.spec(spec_id)
    if spec is None or not spec.fields:
        unpartitioned = builder.partition("")
        return lambda _: unpartitioned
    known: dict[tuple[Any, ...], Changes] = {}
    path = _path_of(metadata, spec)

    def find(partition: tuple[Any, ...]) -> Changes:
        found = known.get(partition)
        if found is None:
            found = known[partition] = builder.partition(path(partition))
        return found

    return find


def _path_of(metadata: TableMetadata, spec: PartitionSpec) -> Callable[[tuple[Any, ...]], str]:
    schema = schema_for_spec(metadata.schemas, metadata.current_schema_id, spec)
    type_ = partition_type(spec, schema)
    return lambda partition: partition_path(spec, type_, partition)
