"""The summary of a snapshot, counted from the files that a commit adds and removes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from frazil.commit.snapshot.head_changes import FileChanges
from frazil.commit.snapshot.manifest_tree import Head, Tree, schema_for_spec
from frazil.format.manifest.manifest_columns import NONE, ManifestColumns
from frazil.format.metadata.content_files import ContentFile, DeleteFile
from frazil.format.metadata.partition_paths import partition_path
from frazil.format.metadata.partition_spec import PartitionSpec, partition_type
from frazil.format.metadata.snapshot_summary import PARTITION_SUMMARY_LIMIT, Changes, SummaryBuilder
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.updates_table import parse_int
from frazil.read.filters import partitions_of


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
