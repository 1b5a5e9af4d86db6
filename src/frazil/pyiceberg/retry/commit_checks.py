"""Check that a change planned at a base may be committed at the head of a branch.

A `Claim` lists what one operation read and what it removes. It never changes; each attempt checks
the same claim against a longer window of snapshots. A violated claim raises a
`ValidationException`, which names the conflicting snapshots and files. Retrying cannot help then.

The checks are those of Java's `MergingSnapshotProducer`, with two differences. A plan made by
reading names every file with a matching row, so it does not matter if other files were removed
since. And new deletes conflict on any row of a removed file, not only on rows of the filter,
because a rewritten file contains the other rows too.

The rules for delete files are those of Java's `DeleteFileIndex`. An equality delete applies if its
sequence number is above the data file's, a position delete also at the same number. Both apply only
within their spec and partition, with two exceptions: an equality delete of an unpartitioned spec
applies to every file, and a position delete that names its data file applies only to that file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from frazil.client.declare.file_operations import Isolation
from frazil.pyiceberg.manifest_reading import RowFilter
from frazil.pyiceberg.retry.history_window import INITIAL_SEQUENCE_NUMBER, Window, operation_of
from frazil.values.column_matching import DELETE_FILE_PATH_ID

ADDS_DATA = frozenset({Operation.APPEND, Operation.OVERWRITE})
ADDS_DELETES = frozenset({Operation.OVERWRITE, Operation.DELETE})
REMOVES_DATA = frozenset({Operation.OVERWRITE, Operation.REPLACE, Operation.DELETE})
# A replace changes files, but no rows.
REMOVES_ROWS = REMOVES_DATA - {Operation.REPLACE}
MAX_NAMED_FILES = 10


@dataclass(frozen=True)
class Claim:
    """What one operation relies on, on one branch."""

    branch: str | None
    rows: RowFilter
    """Under serializable isolation, no rows that match may have been added."""
    isolation: Isolation
    reads_kept_rows: bool = False
    """Rows of the filter were read but not changed: under serializable isolation none of them may
    have been deleted either."""
    removed: frozenset[DataFile] = field(default_factory=frozenset)
    """Files that must still be live and must have no new deletes."""
    added_once: frozenset[str] = field(default_factory=frozenset)
    """Paths that no other commit may have added."""

    @property
    def relies_on_nothing(self) -> bool:
        return self.rows.matches_nothing and not self.removed and not self.added_once


def check(claim: Claim, window: Window) -> None:
    """Raise `ValidationException` if another commit violates the claim."""
    if claim.relies_on_nothing or not window.snapshots:
        return
    if claim.isolation is Isolation.SERIALIZABLE and not claim.rows.matches_nothing:
        _no_added_data_files(claim.rows, window)
        if claim.reads_kept_rows:
            _no_deleted_data_files(claim.rows, window)
            _no_new_delete_files(claim.rows, window)
    if claim.removed:
        _data_files_exist(claim.removed, window)
        _no_new_deletes_for_data_files(claim.removed, window)
    if claim.added_once:
        _not_added_twice(claim.added_once, window)


def _no_added_data_files(rows: RowFilter, window: Window) -> None:
    conflicts = _matching(rows, window, ADDS_DATA, ManifestEntryStatus.ADDED)
    _raise_conflicts(conflicts, f"Found conflicting files that can contain records matching {rows}")


def _no_deleted_data_files(rows: RowFilter, window: Window) -> None:
    conflicts = _matching(rows, window, REMOVES_ROWS, ManifestEntryStatus.DELETED)
    _raise_conflicts(
        conflicts, f"Found conflicting deleted files that can contain records matching {rows}"
    )


def _no_new_delete_files(rows: RowFilter, window: Window) -> None:
    conflicts = [
        (delete.snapshot, delete.file.file_path)
        for delete in _new_deletes(window)
        if rows.may_match_file(delete.file, window.metadata)
    ]
    _raise_conflicts(
        conflicts, f"Found new conflicting delete files that can apply to records matching {rows}"
    )


def _data_files_exist(removed: frozenset[DataFile], window: Window) -> None:
    paths = frozenset(file.file_path for file in removed)
    conflicts = _of_paths(paths, window, REMOVES_DATA, ManifestEntryStatus.DELETED)
    _raise_conflicts(conflicts, "Cannot commit, missing data files")


def _no_new_deletes_for_data_files(removed: frozenset[DataFile], window: Window) -> None:
    deletes = _new_deletes(window)
    conflicts = [
        (delete.snapshot, f"{delete.file.file_path} for {data_file.file_path}")
        for data_file in sorted(removed, key=lambda file: file.file_path)
        for delete in deletes
        if delete.applies_to(data_file, window.base_sequence_number, window.metadata)
    ]
    _raise_conflicts(conflicts, "Cannot commit, found new deletes for replaced data files")


def _not_added_twice(paths: frozenset[str], window: Window) -> None:
    conflicts = _of_paths(paths, window, ADDS_DATA, ManifestEntryStatus.ADDED)
    _raise_conflicts(conflicts, "Cannot add files that another writer has added")


def _of_paths(
    paths: frozenset[str],
    window: Window,
    operations: frozenset[Operation],
    status: ManifestEntryStatus,
) -> list[tuple[Snapshot, str]]:
    return [
        (snapshot, entry.data_file.file_path)
        for snapshot, _, entries in window.entries(ManifestContent.DATA, operations)
        for entry in entries
        if entry.status == status and entry.data_file.file_path in paths
    ]


def _matching(
    rows: RowFilter,
    window: Window,
    operations: frozenset[Operation],
    status: ManifestEntryStatus,
) -> list[tuple[Snapshot, str]]:
    return [
        (snapshot, entry.data_file.file_path)
        for snapshot, manifest, entries in window.entries(ManifestContent.DATA, operations)
        if rows.may_match_manifest(manifest, window.metadata)
        for entry in entries
        if entry.status == status
        and entry.snapshot_id == snapshot.snapshot_id
        and rows.may_match_file(entry.data_file, window.metadata)
    ]


def _new_deletes(window: Window) -> list[NewDelete]:
    """Return live delete files newer than the base; tables of version 1 have none."""
    if window.metadata.format_version < 2:
        return []
    return [
        NewDelete(entry.data_file, entry.sequence_number or INITIAL_SEQUENCE_NUMBER, snapshot)
        for snapshot, _, entries in window.entries(ManifestContent.DELETES, ADDS_DELETES)
        for entry in entries
        if entry.status != ManifestEntryStatus.DELETED
        and (entry.sequence_number or INITIAL_SEQUENCE_NUMBER) > window.base_sequence_number
    ]


def _raise_conflicts(conflicts: Iterable[tuple[Snapshot, str]], message: str) -> None:
    by_snapshot: dict[int, tuple[Snapshot, list[str]]] = {}
    for snapshot, path in conflicts:
        by_snapshot.setdefault(snapshot.snapshot_id, (snapshot, []))[1].append(path)
    if by_snapshot:
        named = "; ".join(_named(snapshot, paths) for snapshot, paths in by_snapshot.values())
        raise ValidationException(f"{message}: {named}")


def _named(snapshot: Snapshot, paths: list[str]) -> str:
    shown = ", ".join(paths[:MAX_NAMED_FILES])
    more = f" and {len(paths) - MAX_NAMED_FILES} more" if len(paths) > MAX_NAMED_FILES else ""
    operation = operation_of(snapshot).value
    return f"snapshot {snapshot.snapshot_id} ({operation}): {shown}{more}"


# The index of `referenced_data_file` in a data file of version 3.
_REFERENCED_DATA_FILE = 17


@dataclass(frozen=True, slots=True)
class NewDelete:
    """A delete file and the snapshot that added it."""

    file: DataFile
    sequence_number: int
    snapshot: Snapshot

    def applies_to(
        self, data_file: DataFile, sequence_number: int, metadata: TableMetadata
    ) -> bool:
        """Check whether it may delete rows of a data file with at most this sequence number."""
        if self.file.content == DataFileContent.EQUALITY_DELETES:
            return self.sequence_number > sequence_number and self._equality_may_match(
                data_file, metadata
            )
        return self.sequence_number >= sequence_number and self._position_may_match(data_file)

    def _position_may_match(self, data_file: DataFile) -> bool:
        referenced = _referenced_data_file(self.file)
        if referenced is not None:
            return referenced == data_file.file_path
        return self._same_partition(data_file) and _path_in_bounds(self.file, data_file.file_path)

    def _equality_may_match(self, data_file: DataFile, metadata: TableMetadata) -> bool:
        is_global = metadata.specs()[self.file.spec_id].is_unpartitioned()
        if not is_global and not self._same_partition(data_file):
            return False
        schema = metadata.schema()
        ids = self.file.equality_ids or ()
        return all(_may_share_values(field_id, self.file, data_file, schema) for field_id in ids)

    def _same_partition(self, data_file: DataFile) -> bool:
        return self.file.spec_id == data_file.spec_id and self.file.partition == data_file.partition


def _referenced_data_file(file: DataFile) -> str | None:
    named: str | None = file[_REFERENCED_DATA_FILE] if len(file) > _REFERENCED_DATA_FILE else None
    if named is not None:
        return named
    lower = (file.lower_bounds or {}).get(DELETE_FILE_PATH_ID)
    upper = (file.upper_bounds or {}).get(DELETE_FILE_PATH_ID)
    return lower.decode() if lower is not None and lower == upper else None


def _path_in_bounds(file: DataFile, path: str) -> bool:
    lower = (file.lower_bounds or {}).get(DELETE_FILE_PATH_ID)
    upper = (file.upper_bounds or {}).get(DELETE_FILE_PATH_ID)
    encoded = path.encode()
    return (lower is None or lower <= encoded) and (upper is None or encoded <= upper)


def _may_share_values(field_id: int, delete: DataFile, data: DataFile, schema: Schema) -> bool:
    """Return False only if the two files cannot share a value of an equality column."""
    if _may_contain_null(field_id, delete) and _may_contain_null(field_id, data):
        return True
    if field_id not in schema.field_ids:
        return True
    field_type = schema.find_type(field_id)
    ends = [
        (bounds or {}).get(field_id)
        for bounds in (
            delete.lower_bounds,
            delete.upper_bounds,
            data.lower_bounds,
            data.upper_bounds,
        )
    ]
    if not isinstance(field_type, PrimitiveType) or None in ends:
        return True
    if isinstance(field_type, FloatType | DoubleType):
        # Bounds ignore NaN, which both files may contain.
        return True
    try:
        values = [from_bytes(field_type, end) for end in ends if end is not None]
    except (struct.error, UnicodeDecodeError):
        # The bounds predate a promotion or end inside a character, so they prove nothing.
        return True
    delete_lower, delete_upper, data_lower, data_upper = values
    return bool(delete_lower <= data_upper and data_lower <= delete_upper)


def _may_contain_null(field_id: int, file: DataFile) -> bool:
    return (file.null_value_counts or {}).get(field_id) != 0
