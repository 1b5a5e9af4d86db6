"""Deletion vectors against deletion vectors, checked whatever the clauses of an update are.

A data file has at most one, so that a new one must carry the positions of the one before. Java
looks for concurrent ones only inside a row delta's conflict filter, and accepts a second one on a
file; both would lose deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from frazil.commit.validate.branch_changes import Evidence, vectors_of
from frazil.commit.validate.conflict_reports import (
    Found,
    Scope,
    conflict_with,
    file_names,
    rejected,
    since,
    snapshot_names,
    start_again,
)
from frazil.format.manifest.manifest_list import DELETES, may_have_live
from frazil.format.metadata.content_files import DeleteFile
from frazil.read.history import UnknownHistory
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow
from frazil.wire.conflicts import Conflict
from frazil.wire.declared_content import delete_file_key
from frazil.wire.file_actions import Append, Replace


def check_deletion_vectors(
    scope: Scope, added: Sequence[DeleteFile], reader: ManifestReader
) -> None:
    """Refuses a vector for a data file that got one since the base, and a vector beside one that is
    live and stays. Where the history since the base is not known, the live state alone decides."""
    data_files = frozenset(
        file.referenced_data_file
        for file in added
        if file.content_offset is not None and file.referenced_data_file is not None
    )
    if not data_files:
        return
    evidence = Evidence(scope, reader)
    concurrent = _concurrent(evidence, data_files)
    reported = {entry.referenced_data_file for entry in concurrent}
    beside = [
        entry
        for entry in _live_and_kept(scope, data_files, reader)
        if entry.referenced_data_file not in reported
    ]
    conflicts = [
        *([_concurrent_conflict(evidence, concurrent)] if concurrent else []),
        *([_beside_conflict(scope, beside)] if beside else []),
    ]
    if conflicts:
        raise rejected(conflicts)


def _concurrent(evidence: Evidence, data_files: frozenset[str]) -> list[ManifestRow]:
    """As in Java a row delta without a base is held against the whole history. A replace is not:
    the vectors that it removes by name are the ones it knows, and they must be live."""
    update = evidence.scope.update
    if update.base_snapshot_id is None and isinstance(update, Replace):
        return []
    try:
        return evidence.new_deletion_vectors(data_files, update.base_snapshot_id)
    except UnknownHistory:
        # What is live tells enough: a vector that the update removes by name is one it knows.
        return []


def _live_and_kept(
    scope: Scope, data_files: frozenset[str], reader: ManifestReader
) -> Iterator[ManifestRow]:
    """The live vectors of the data files that the update does not remove."""
    update, head = scope.update, scope.present_head
    if head is None or isinstance(update, Append):
        return
    removed = {delete_file_key(file) for file in update.remove_delete_files}
    listed = [
        manifest
        for manifest in reader.manifest_list(head).manifests
        if manifest.content == DELETES and may_have_live(manifest)
    ]
    for manifest, columns in zip(listed, reader.columns_of(listed), strict=True):
        rows = np.flatnonzero(vectors_of(columns, data_files))
        for row in rows.tolist():
            entry = ManifestRow(manifest, columns, row)
            path, offset = entry.identity
            if (path, offset) not in removed and (path, None) not in removed:
                yield entry


def _concurrent_conflict(evidence: Evidence, entries: Sequence[ManifestRow]) -> Conflict:
    scope, base = evidence.scope, evidence.scope.update.base_snapshot_id
    found = evidence.blamed(entries, base)
    message = (
        f"Found concurrently added DV for {_data_files(entries)}: {file_names(found)}. "
        f"Added by {snapshot_names(found)}, {since(base)}; its deletes would be lost. "
        f"{start_again(scope.head)}"
    )
    return conflict_with(scope, "dv-conflict", message, found)


def _beside_conflict(scope: Scope, entries: Sequence[ManifestRow]) -> Conflict:
    found = [Found(*entry.identity) for entry in entries]
    message = (
        f"Found an existing DV for {_data_files(entries)}: {file_names(found)}. A data file has "
        "one deletion vector: put the positions of the existing one into the new one, and name "
        "the existing one in remove-delete-files with its content-offset."
    )
    return conflict_with(scope, "dv-conflict", message, found)


def _data_files(entries: Sequence[ManifestRow]) -> str:
    referenced = dict.fromkeys(entry.referenced_data_file or "" for entry in entries)
    return file_names([Found(path) for path in referenced])
