"""What must still hold at the head of a branch before a change planned at a base may land there.

A `Claim` is what one operation has read and what it removes. It never changes: each attempt checks
the same claim against a longer window. A claim that does not hold is a `ValidationException`, which
no retry can help; it names the snapshots and the files in the way.

The checks are those of Java's `MergingSnapshotProducer`, with two differences. A plan made by
reading names every file with a matching row, so a removal of other files since then is none of its
business. And new deletes are looked for on all rows of a removed file, not only on those of the
filter, because a rewritten file carries the others along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table.snapshots import IsolationLevel, Operation, Snapshot

from frazil.pyiceberg.retrying.checks_deletes import NewDelete
from frazil.pyiceberg.retrying.checks_filters import RowFilter
from frazil.pyiceberg.retrying.checks_history import INITIAL_SEQUENCE_NUMBER, Window, operation_of

ADDS_DATA = frozenset({Operation.APPEND, Operation.OVERWRITE})
ADDS_DELETES = frozenset({Operation.OVERWRITE, Operation.DELETE})
REMOVES_DATA = frozenset({Operation.OVERWRITE, Operation.REPLACE, Operation.DELETE})
# A replace changes files and no rows.
REMOVES_ROWS = REMOVES_DATA - {Operation.REPLACE}
NAMED_FILES = 10
DEFAULT_ISOLATION_LEVEL = IsolationLevel.SERIALIZABLE.value


@dataclass(frozen=True)
class Claim:
    """What one operation relies on, on one branch."""

    branch: str | None
    rows: RowFilter
    """Under serializable isolation no row of these may have been added."""
    isolation: IsolationLevel
    reads_kept_rows: bool = False
    """Rows of the filter were read and left where they are: under serializable isolation none of
    them may have been deleted either."""
    removed: frozenset[DataFile] = field(default_factory=frozenset)
    """Must be live, without deletes that the base does not have."""
    added_once: frozenset[str] = field(default_factory=frozenset)
    """Paths that nobody else may have added."""

    @property
    def relies_on_nothing(self) -> bool:
        return self.rows.matches_nothing and not self.removed and not self.added_once


def isolation_level(properties: Mapping[str, str], command: str) -> IsolationLevel:
    """`write.delete|update|merge.isolation-level`, serializable where it is not set."""
    name = f"write.{command}.isolation-level"
    value = properties.get(name, DEFAULT_ISOLATION_LEVEL)
    try:
        return IsolationLevel(value.lower())
    except ValueError:
        raise ValueError(f"{name}: {value!r} is neither 'serializable' nor 'snapshot'") from None


def check(claim: Claim, window: Window) -> None:
    """Raises `ValidationException` where another writer has taken what the claim relies on."""
    if claim.relies_on_nothing or not window.snapshots:
        return
    if claim.isolation == IsolationLevel.SERIALIZABLE and not claim.rows.matches_nothing:
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
    found = _matching(rows, window, ADDS_DATA, ManifestEntryStatus.ADDED)
    _refuse(found, f"Found conflicting files that can contain records matching {rows}")


def _no_deleted_data_files(rows: RowFilter, window: Window) -> None:
    found = _matching(rows, window, REMOVES_ROWS, ManifestEntryStatus.DELETED)
    _refuse(found, f"Found conflicting deleted files that can contain records matching {rows}")


def _no_new_delete_files(rows: RowFilter, window: Window) -> None:
    found = [
        (delete.snapshot, delete.file.file_path)
        for delete in _new_deletes(window)
        if rows.may_match_file(delete.file, window.metadata)
    ]
    _refuse(found, f"Found new conflicting delete files that can apply to records matching {rows}")


def _data_files_exist(removed: frozenset[DataFile], window: Window) -> None:
    paths = {file.file_path for file in removed}
    found = [
        (snapshot, entry.data_file.file_path)
        for snapshot, _, entries in window.entries(ManifestContent.DATA, REMOVES_DATA)
        for entry in entries
        if entry.status == ManifestEntryStatus.DELETED and entry.data_file.file_path in paths
    ]
    _refuse(found, "Cannot commit, missing data files")


def _no_new_deletes_for_data_files(removed: frozenset[DataFile], window: Window) -> None:
    deletes = _new_deletes(window)
    found = [
        (delete.snapshot, f"{delete.file.file_path} for {data_file.file_path}")
        for data_file in sorted(removed, key=lambda file: file.file_path)
        for delete in deletes
        if delete.applies_to(data_file, window.base_sequence_number, window.metadata)
    ]
    _refuse(found, "Cannot commit, found new deletes for replaced data files")


def _not_added_twice(paths: frozenset[str], window: Window) -> None:
    found = [
        (snapshot, entry.data_file.file_path)
        for snapshot, _, entries in window.entries(ManifestContent.DATA, ADDS_DATA)
        for entry in entries
        if entry.status == ManifestEntryStatus.ADDED and entry.data_file.file_path in paths
    ]
    _refuse(found, "Cannot add files that another writer has added")


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
    """Live delete files newer than the base; a table of version 1 has none."""
    if window.metadata.format_version < 2:
        return []
    return [
        NewDelete(entry.data_file, entry.sequence_number or INITIAL_SEQUENCE_NUMBER, snapshot)
        for snapshot, _, entries in window.entries(ManifestContent.DELETES, ADDS_DELETES)
        for entry in entries
        if entry.status != ManifestEntryStatus.DELETED
        and (entry.sequence_number or INITIAL_SEQUENCE_NUMBER) > window.base_sequence_number
    ]


def _refuse(found: Iterable[tuple[Snapshot, str]], message: str) -> None:
    by_snapshot: dict[int, tuple[Snapshot, list[str]]] = {}
    for snapshot, path in found:
        by_snapshot.setdefault(snapshot.snapshot_id, (snapshot, []))[1].append(path)
    if by_snapshot:
        named = "; ".join(_named(snapshot, paths) for snapshot, paths in by_snapshot.values())
        raise ValidationException(f"{message}: {named}")


def _named(snapshot: Snapshot, paths: list[str]) -> str:
    shown = ", ".join(paths[:NAMED_FILES])
    more = f" and {len(paths) - NAMED_FILES} more" if len(paths) > NAMED_FILES else ""
    operation = operation_of(snapshot).value
    return f"snapshot {snapshot.snapshot_id} ({operation}): {shown}{more}"
