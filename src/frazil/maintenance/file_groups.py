"""Chooses the data files that a rewrite improves, and packs them into groups.

A file is chosen if its size is outside the wanted range or many of its rows are deleted. The files
of a partition are packed into groups, and a group is rewritten only if that pays: it has enough
files, or more data than a file should have, or files with many deletes. These are the rules of
Iceberg's BinPackRewriteFilePlanner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frazil.datafiles.reading.scan_tasks import EQUALITY_DELETES, ScanTask, is_deletion_vector
from frazil.maintenance.rewrite_options import RewriteOptions

_OTHER_SPECS: Final[tuple[Any, ...]] = ("other specs",)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are rewritten together."""

    tasks: tuple[ScanTask, ...]
    is_one_partition: bool
    """Whether all files are of one partition of the output spec."""

    @property
    def size_in_bytes(self) -> int:
        return sum(task.data_file.file_size_in_bytes for task in self.tasks)


def file_groups(
    tasks: Iterable[ScanTask], options: RewriteOptions, output_spec_id: int
) -> list[FileGroup]:
    """Return the groups to rewrite, in the wanted order."""
    by_partition: dict[tuple[Any, ...], list[ScanTask]] = {}
    for task in tasks:
        file = task.data_file
        own = file.spec_id == output_spec_id
        # Rows of another spec may belong to any partition of the output spec.
        key = (file.spec_id, *map(repr, file.partition)) if own else _OTHER_SPECS
        by_partition.setdefault(key, []).append(task)
    groups = [
        FileGroup(tuple(packed), key is not _OTHER_SPECS)
        for key, of_partition in by_partition.items()
        for packed in _packed(_chosen(of_partition, options), options)
        if options.rewrite_all or _pays(packed, options)
    ]
    return list(_limited(_in_order(groups, options.job_order), options.max_files))


def _chosen(tasks: Sequence[ScanTask], options: RewriteOptions) -> list[ScanTask]:
    if options.rewrite_all:
        return list(tasks)
    return [task for task in tasks if _has_wrong_size(task, options) or _has_deletes(task, options)]


def _has_wrong_size(task: ScanTask, options: RewriteOptions) -> bool:
    size = task.data_file.file_size_in_bytes
    return not options.min_file_size <= size <= options.max_file_size


def _has_deletes(task: ScanTask, options: RewriteOptions) -> bool:
    """Return whether many delete files, or deletes of many rows, apply to the file."""
    if len(task.delete_files) >= options.delete_file_threshold:
        return True
    of_file = [
        file
        for file in task.delete_files
        if file.content != EQUALITY_DELETES
        and (is_deletion_vector(file) or file.referenced_data_file is not None)
    ]
    deleted = sum(file.record_count for file in of_file)
    rows = task.data_file.record_count
    return rows > 0 and deleted > 0 and deleted / rows >= options.delete_ratio_threshold


def _packed(tasks: Sequence[ScanTask], options: RewriteOptions) -> Iterator[list[ScanTask]]:
    """Pack files in their order, so that neighbors stay together."""
    group: list[ScanTask] = []
    size = 0
    for task in tasks:
        own = task.data_file.file_size_in_bytes
        is_full = len(group) >= options.max_file_group_files
        if group and (is_full or size + own > options.max_file_group_size):
            yield group
            group, size = [], 0
        group.append(task)
        size += own
    if group:
        yield group


def _pays(tasks: Sequence[ScanTask], options: RewriteOptions) -> bool:
    size = sum(task.data_file.file_size_in_bytes for task in tasks)
    several = len(tasks) > 1
    return (
        (several and len(tasks) >= options.min_input_files)
        or (several and size > options.target_file_size)
        or size > options.max_file_size
        or any(_has_deletes(task, options) for task in tasks)
    )


def _in_order(groups: list[FileGroup], order: str) -> list[FileGroup]:
    if order == "none":
        return groups
    what, _, direction = order.partition("-")
    if what == "bytes":
        return sorted(groups, key=lambda group: group.size_in_bytes, reverse=direction == "desc")
    return sorted(groups, key=lambda group: len(group.tasks), reverse=direction == "desc")


def _limited(groups: Iterable[FileGroup], max_files: int | None) -> Iterator[FileGroup]:
    left = max_files
    for group in groups:
        if left is None:
            yield group
        elif left > 0:
            tasks = group.tasks[:left]
            left -= len(tasks)
            yield FileGroup(tasks, group.is_one_partition)
