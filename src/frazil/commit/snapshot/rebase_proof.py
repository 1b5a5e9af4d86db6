"""Proves that a classic commit only appends, and builds its snapshot on a newer head. Reads and
writes no files.

A stock client builds its snapshot on the head that it loaded. If the head has changed since
then, the server can build an append again: it lists the new files before everything that the
head lists now. Only the manifests can prove that the commit is a pure append. The summary
cannot, but an operation other than `append` disproves it: an overwrite that found nothing to
remove at its base has only additions too, and might have removed files of the newer head.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frazil.format.manifest import manifest_list as listing
from frazil.format.manifest.manifest_entries import Manifest, ManifestEntry, inherited
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING
from frazil.format.manifest.manifest_list import (
    DATA,
    ListedManifest,
    ManifestFile,
    ManifestList,
    PartitionSummary,
    partition_summaries,
    summarise,
)
from frazil.format.metadata.raw_json import patch_object
from frazil.format.metadata.snapshot_summary import TOTALS, number
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import MAX_FORMAT_VERSION, TableMetadata

MAX_MANIFESTS: Final = 5_000
"""The most manifests that one proof reads. If a merge replaces more, the client must retry."""

_FOREIGN_INTENT: Final = ("source-snapshot-id", "published-wap-id")
"""Set by a cherry-pick, whose own checks were made against the client's base."""


class RebaseRefused(Exception):
    """The commit is not a proven append or must not be rebased. The message is the reason."""


@dataclass(frozen=True, slots=True)
class RebaseTarget:
    """The snapshots of a rebase: the client's snapshot, its parent, and the new head."""

    metadata: TableMetadata
    snapshot: Snapshot
    parent: Snapshot | None
    head: Snapshot

    @property
    def sequence_number(self) -> int:
        if self.metadata.format_version == 1:
            return 0
        return self.metadata.last_sequence_number + 1


@dataclass(frozen=True, slots=True)
class ListDifference:
    """The difference between a client's manifest list and that of its parent."""

    added: tuple[ManifestFile, ...]
    replaced: tuple[ManifestFile, ...]
    """The manifests of the parent that are missing in the client's list."""


@dataclass(frozen=True, slots=True)
class AddedManifest:
    """A manifest of the client that has entries to append."""

    listed: ManifestFile
    manifest: Manifest
    entries: tuple[ManifestEntry, ...]
    """The ADDED entries."""
    rewrite: bool
    """Whether it has other entries too, so that it must be rewritten before it can be listed."""


@dataclass(frozen=True, slots=True)
class RewrittenManifest:
    path: str
    length: int


def rebase_target(metadata: TableMetadata, snapshot: Snapshot, branch: str) -> RebaseTarget:
    """Find the snapshots of a rebase from the metadata alone. Raises RebaseRefused."""
    if metadata.format_version > MAX_FORMAT_VERSION:
        raise RebaseRefused(f"format version {metadata.format_version} is not supported")
    ref = metadata.refs.get(branch)
    if ref is None or not ref.is_branch:
        raise RebaseRefused(f"there is no branch {branch}")
    head = metadata.snapshot(ref.snapshot_id)
    if head is None:
        raise RebaseRefused(f"the head of {branch} is not in the table")
    if snapshot.snapshot_id in metadata.snapshots:
        raise RebaseRefused(f"snapshot {snapshot.snapshot_id} is already in the table")
    parent: Snapshot | None = None
    if snapshot.parent_snapshot_id is not None:
        parent = metadata.snapshot(snapshot.parent_snapshot_id)
        if parent is None or not metadata.is_ancestor(parent.snapshot_id, head.snapshot_id):
            raise RebaseRefused(
                f"its parent {snapshot.parent_snapshot_id} is not an ancestor of {branch}"
            )
    _check_intent(snapshot)
    for read in (snapshot, head, parent):
        if read is not None and (read.manifest_list is None or read.key_id is not None):
            raise RebaseRefused(
                f"snapshot {read.snapshot_id} has no manifest list that can be read"
            )
    return RebaseTarget(metadata, snapshot, parent, head)


def _check_intent(snapshot: Snapshot) -> None:
    summary = snapshot.summary
    operation = summary.get("operation")
    if operation != "append":
        raise RebaseRefused(f"its operation is {operation or 'unknown'}, not append")
    for key in _FOREIGN_INTENT:
        if key in summary:
            raise RebaseRefused(f"its summary has {key}: it publishes another snapshot")


# --- the proof -------------------------------------------------------------------------------


def list_difference(
    target: RebaseTarget, own: ManifestList, parent: ManifestList | None
) -> ListDifference:
    """Compare the client's manifest list with that of its parent. Raises RebaseRefused."""
    of_parent = _by_path(() if parent is None else parent.manifests)
    of_client = _by_path(own.manifests)
    added: list[ManifestFile] = []
    for path, manifest in of_client.items():
        kept = of_parent.get(path)
        if kept is None:
            _check_added(target, manifest)
            added.append(manifest)
        elif _facts(kept) != _facts(manifest):
            raise RebaseRefused(f"its list tells of {path} otherwise than that of its parent")
    replaced = tuple(manifest for path, manifest in of_parent.items() if path not in of_client)
    for manifest in (*added, *replaced):
        if manifest.encrypted:
            raise RebaseRefused(f"the manifest {manifest.manifest_path} is encrypted")
    if len(added) + len(replaced) > MAX_MANIFESTS:
        raise RebaseRefused(f"it changes more than {MAX_MANIFESTS} manifests")
    return ListDifference(tuple(added), replaced)


def prove_append(
    target: RebaseTarget, difference: ListDifference, manifests: Mapping[str, Manifest]
) -> tuple[AddedManifest, ...]:
    """Return the manifests that the client appends. Raises RebaseRefused unless they prove a
    pure append: every live entry of a replaced manifest is carried over, and all other
    entries are the client's own additions."""
    expected = _live_entries(difference.replaced, manifests)
    carried: set[str] = set()
    added: list[AddedManifest] = []
    paths: set[str] = set()
    for listed in difference.added:
        manifest = manifests[listed.manifest_path]
        if target.metadata.format_version > 1 and not manifest.has_sequence_numbers:
            raise RebaseRefused("it was written for format version 1, before the table's upgrade")
        for entry in manifest.entries:
            _check_entry(target.snapshot, listed, entry)
            if entry.file_path in paths:
                raise RebaseRefused(f"its manifests have {entry.file_path} twice")
            paths.add(entry.file_path)
        for entry, fields in _existing(listed, manifest):
            _check_carried(expected.get(entry.file_path), entry, fields)
            carried.add(entry.file_path)
        own = tuple(entry for entry in manifest.entries if entry.status == ADDED)
        if own:
            added.append(AddedManifest(listed, manifest, own, _must_be_rewritten(manifest)))
    lost = expected.keys() - carried
    if lost:
        raise RebaseRefused(f"{len(lost)} files of its parent are gone, {min(lost)} among them")
    return tuple(added)


def _by_path(manifests: Sequence[ManifestFile]) -> dict[str, ManifestFile]:
    by_path = {manifest.manifest_path: manifest for manifest in manifests}
    if len(by_path) != len(manifests):
        raise RebaseRefused("a manifest list has a manifest twice")
    return by_path


def _facts(manifest: ManifestFile) -> tuple[Any, ...]:
    """Return the fields of a listed manifest that never change. Row ids are not among them,
    because an upgrade to v3 sets them once."""
    return (
        manifest.content,
        manifest.partition_spec_id,
        manifest.sequence_number,
        manifest.added_snapshot_id,
    )


def _check_added(target: RebaseTarget, manifest: ManifestFile) -> None:
    path = manifest.manifest_path
    if manifest.added_snapshot_id != target.snapshot.snapshot_id:
        raise RebaseRefused(f"the manifest {path} is neither its own nor its parent's")
    if manifest.content != DATA:
        raise RebaseRefused(f"it has a delete manifest of its own, {path}")
    if target.metadata.format_version > 1:
        stale = target.snapshot.sequence_number
        if manifest.sequence_number != stale:
            raise RebaseRefused(f"the manifest {path} is not of its sequence number {stale}")
    if target.metadata.spec(manifest.partition_spec_id) is None:
        raise RebaseRefused(
            f"the table no longer has the partition spec {manifest.partition_spec_id}"
        )


def _check_entry(snapshot: Snapshot, listed: ManifestFile, entry: ManifestEntry) -> None:
    where = f"{entry.file_path} in {listed.manifest_path}"
    if entry.status == DELETED:
        raise RebaseRefused(f"it deletes {where}")
    if entry.content != 0:
        raise RebaseRefused(f"it lists the delete file {where} as data")
    if entry.status == ADDED:
        if entry.snapshot_id not in (None, snapshot.snapshot_id):
            raise RebaseRefused(f"{where} was added by another snapshot")
        numbers = {entry.sequence_number, entry.file_sequence_number} - {None}
        if numbers - {snapshot.sequence_number}:
            raise RebaseRefused(f"{where} has a sequence number other than the snapshot's")


def _live_entries(
    replaced: Iterable[ManifestFile], manifests: Mapping[str, Manifest]
) -> dict[str, tuple[ManifestEntry, tuple[int | None, ...]]]:
    """Return every live entry of the replaced manifests by path, with the field ids of its
    partition."""
    live: dict[str, tuple[ManifestEntry, tuple[int | None, ...]]] = {}
    for listed in replaced:
        manifest = manifests[listed.manifest_path]
        fields = _partition_ids(manifest)
        for entry in inherited(manifest, listed):
            if entry.file_path in live:
                raise RebaseRefused(f"{entry.file_path} is live twice in its parent")
            live[entry.file_path] = entry, fields
    return live


def _existing(
    listed: ManifestFile, manifest: Manifest
) -> Iterable[tuple[ManifestEntry, tuple[int | None, ...]]]:
    fields = _partition_ids(manifest)
    for entry in inherited(manifest, listed):
        if entry.status == EXISTING:
            yield entry, fields


def _partition_ids(manifest: Manifest) -> tuple[int | None, ...]:
    return tuple(field.field_id for field in manifest.partition_fields)


def _check_carried(
    expected: tuple[ManifestEntry, tuple[int | None, ...]] | None,
    entry: ManifestEntry,
    fields: tuple[int | None, ...],
) -> None:
    """Check that an EXISTING entry equals the parent's entry. Metrics are not compared, because
    the client's copy is not used."""
    if expected is None:
        raise RebaseRefused(f"{entry.file_path} is not in a manifest that it replaced")
    original, original_fields = expected
    if _identity(original, original_fields) != _identity(entry, fields):
        raise RebaseRefused(f"it carries {entry.file_path} over with changes")
    if original.first_row_id not in (None, entry.first_row_id):
        raise RebaseRefused(f"it carries {entry.file_path} over with other row ids")


def _identity(entry: ManifestEntry, fields: tuple[int | None, ...]) -> tuple[Any, ...]:
    partition = {
        field: _comparable(value) for field, value in zip(fields, entry.partition, strict=True)
    }
    return (
        entry.content,
        (entry.file_format or "").upper(),
        entry.record_count,
        entry.file_size_in_bytes,
        entry.snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
        partition,
    )


def _comparable(value: Any) -> Any:
    """Return a form of the value in which NaN equals itself."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def _must_be_rewritten(manifest: Manifest) -> bool:
    return any(
        entry.status != ADDED
        or entry.sequence_number is not None
        or entry.file_sequence_number is not None
        or entry.first_row_id is not None
        for entry in manifest.entries
    )


# --- the new snapshot ------------------------------------------------------------------------


def listed_on_head(
    target: RebaseTarget,
    own: ManifestList,
    head: ManifestList,
    added: Sequence[AddedManifest],
    rewritten: Mapping[str, RewrittenManifest],
) -> list[ListedManifest]:
    """Return the manifests of the new list: the client's first, then the head's unchanged.
    `rewritten` maps the path of a client's manifest to its rewritten version."""
    entries = [
        ListedManifest(
            item.listed,
            own.schema,
            _changes(target, own, item, rewritten.get(item.listed.manifest_path)),
        )
        for item in added
    ]
    paths = {manifest.manifest_path for manifest in head.manifests}
    for item in added:
        if item.listed.manifest_path in paths:
            raise RebaseRefused(f"the head already lists {item.listed.manifest_path}")
    entries += (ListedManifest(manifest, head.schema) for manifest in head.manifests)
    return entries


def _changes(
    target: RebaseTarget, own: ManifestList, added: AddedManifest, new: RewrittenManifest | None
) -> dict[int, Any]:
    changes: dict[int, Any] = {
        listing.LENGTH: added.manifest.length,
        listing.SEQUENCE_NUMBER: target.sequence_number,
        listing.MIN_SEQUENCE_NUMBER: target.sequence_number,
        listing.ADDED_FILES: len(added.entries),
        listing.EXISTING_FILES: 0,
        listing.DELETED_FILES: 0,
        listing.ADDED_ROWS: sum(entry.record_count for entry in added.entries),
        listing.EXISTING_ROWS: 0,
        listing.DELETED_ROWS: 0,
        listing.FIRST_ROW_ID: None,
    }
    if new is not None:
        changes[listing.PATH] = new.path
        changes[listing.LENGTH] = new.length
        changes[listing.PARTITIONS] = _summaries(own, added)
    return changes


def _summaries(own: ManifestList, added: AddedManifest) -> list[PartitionSummary] | None:
    return summarise(
        added.manifest.partition_fields,
        [entry.partition for entry in added.entries],
        partition_summaries(own.schema, added.listed),
    )


def rebased_snapshot(
    target: RebaseTarget,
    added: Sequence[AddedManifest],
    *,
    manifest_list: str,
    kept_manifests: int,
    assigned_rows: int,
) -> bytes:
    """Return the client's snapshot on the new head as JSON. It has the same id and all unknown
    fields."""
    snapshot, head = target.snapshot, target.head
    changes: dict[str, Any] = {
        "parent-snapshot-id": head.snapshot_id,
        "timestamp-ms": max(snapshot.timestamp_ms, head.timestamp_ms + 1),
        "manifest-list": manifest_list,
        "summary": _summary(target, added, kept_manifests),
    }
    if target.metadata.format_version > 1:
        changes["sequence-number"] = target.sequence_number
    if target.metadata.format_version > 2:
        changes["first-row-id"] = target.metadata.next_row_id
        changes["added-rows"] = assigned_rows
    return patch_object(snapshot.raw, changes)


def _summary(
    target: RebaseTarget, added: Sequence[AddedManifest], kept_manifests: int
) -> dict[str, str]:
    """Return the client's summary with totals computed from the head and the added manifests. As
    in Java's SnapshotProducer, a total is dropped if the head's total is missing or not a
    number."""
    entries = [entry for manifest in added for entry in manifest.entries]
    additions = {
        "total-records": sum(entry.record_count for entry in entries),
        "total-files-size": sum(entry.file_size_in_bytes or 0 for entry in entries),
        "total-data-files": len(entries),
    }
    summary, previous = target.snapshot.summary, target.head.summary
    for total, _, _ in TOTALS:
        before = number(previous.get(total))
        if before is None:
            summary.pop(total, None)
        else:
            summary[total] = str(before + additions.get(total, 0))
    counts = {
        "manifests-created": len(added),
        "manifests-kept": kept_manifests,
        "manifests-replaced": 0,
    }
    for key, count in counts.items():
        if key in summary:
            summary[key] = str(count)
    return summary
