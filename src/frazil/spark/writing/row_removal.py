"""Merge-on-read: positions of deleted rows become deletion vectors (v3) or position deletes (v2).

A data file of version 3 has one vector at most, so that a new one takes in the old one and the
position deletes that are left from version 2, and these go in the same commit (spec, "Deletion
Vectors"). In version 2 the same is done with position deletes that are for one data file alone;
those that several files share stay and keep applying.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import PositionDeleteFile
from frazil.datafiles.reading.scan_tasks import DeletedRows, is_deletion_vector
from frazil.datafiles.writing.delete_file_writer import (
    PositionDeleteWork,
    VectorWork,
    encode_group,
    is_file_scoped,
)
from frazil.datafiles.writing.write_properties import delete_file_options
from frazil.spark.core.context import Context
from frazil.spark.writing import file_jobs
from frazil.spark.writing.file_jobs import Item, Work
from frazil.spark.writing.write_folder import WriteFolder
from frazil.wire.declared_content import DeleteFileReference
from frazil.wire.errors import BadRequest, UnsupportedOperation

GRANULARITY_PROPERTY: Final = "write.delete.granularity"
_GRANULARITIES: Final = ("file", "partition")
_MAX_LOCAL_GROUPS: Final = 256
"""Few bytes are written for each: a job is worth it for more of them than of copies."""
_GROUP_BYTES: Final = 64 << 10
"""What opening and closing a file costs, in bytes that could be copied meanwhile."""

RemovedDeletes: TypeAlias = DeleteFileReference | str


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    added: tuple[PositionDeleteFile, ...]
    removed: tuple[RemovedDeletes, ...]
    """What the added ones have taken in."""


def write_deletes(
    context: Context, table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> WrittenDeletes:
    """Writes the deletes of the touched files; every one of them has a position at least."""
    if not touched:
        return WrittenDeletes((), ())
    if table.format_version < 2:
        raise UnsupportedOperation(
            f"{table} has format version {table.format_version}, which has no delete files: "
            "upgrade it to version 2, or set its mode to copy-on-write"
        )
    whole_files = table.format_version >= 3 or granularity(table.properties) == "file"
    groups = [[one] for one in touched] if whole_files else list(_by_partition(touched))
    written = file_jobs.run(
        context.spark,
        _work(table, folder, whole_files),
        [_item(group) for group in groups],
        max_local_items=_MAX_LOCAL_GROUPS,
    )
    added = tuple(msgspec.json.decode(one, type=PositionDeleteFile) for one in written)
    return WrittenDeletes(added, tuple(_taken_in(touched)) if whole_files else ())


def granularity(properties: Mapping[str, str]) -> str:
    """As stock Spark has it: one delete file for each data file unless the table says otherwise."""
    chosen = properties.get(GRANULARITY_PROPERTY, "file").lower()
    if chosen not in _GRANULARITIES:
        raise BadRequest(f"{GRANULARITY_PROPERTY}: {chosen!r} is neither file nor partition")
    return chosen


def _work(table: Table, folder: WriteFolder, whole_files: bool) -> Work:
    if table.format_version >= 3:
        return VectorWork(folder.storage, folder.location)
    return PositionDeleteWork(
        folder.storage,
        folder.location,
        delete_file_options(table.properties),
        takes_in=whole_files,
    )


def _by_partition(touched: Sequence[DeletedRows]) -> Iterator[list[DeletedRows]]:
    groups: dict[tuple[object, ...], list[DeletedRows]] = {}
    for one in touched:
        file = one.task.data_file
        groups.setdefault((file.spec_id, *file.partition), []).append(one)
    yield from groups.values()


def _item(group: Sequence[DeletedRows]) -> Item:
    payload = encode_group(group)
    read = sum(
        file.content_size_in_bytes or file.file_size_in_bytes
        for one in group
        for file in one.task.position_deletes
    )
    return Item(payload, len(payload) + read + _GROUP_BYTES)


def _taken_in(touched: Sequence[DeletedRows]) -> Iterator[RemovedDeletes]:
    """Deletes that are for one touched file alone. Shared ones may be needed by other files."""
    for one in touched:
        for file in one.task.position_deletes:
            if is_deletion_vector(file):
                yield DeleteFileReference(file.file_path, file.content_offset)
            elif is_file_scoped(file):
                yield file.file_path
