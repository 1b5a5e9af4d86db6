"""Moving a classic append to a newer head: the proof that it is one, and the new snapshot. Pure.

A stock client builds its snapshot on the head it loaded. When the head has moved on, an append can
be built again by the server: its new files are listed before whatever the head lists now. That it
is nothing but an append is proven from manifests. The summary proves nothing, but an operation
other than `append` disproves it: an overwrite that found nothing to remove at its own base has only
additions too, and might have removed files from the newer head.
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
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import MAX_FORMAT_VERSION, TableMetadata

MAX_MANIFESTS: Final = 5_000
"""How many manifests one proof may read; a merge of more is for the client to do again."""

_TOTALS: Final = (
    "total-records",
    "total-files-size",
    "total-data-files",
    "total-delete-files",
    "total-position-deletes",
    "total-equality-deletes",
)
_FOREIGN_INTENT: Final = ("source-snapshot-id", "published-wap-id")
"""Left by a cherry-pick, whose own checks were made against the client's base."""


class RebaseRefused(Exception):
    """Not a proven append, or not to be rebased; the message is the reason."""


@dataclass(frozen=True, slots=True)
class RebaseTarget:
    """The snapshots that take part: the client's, its base, and the head to move it to."""

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
    """How a client's manifest list differs from that of its parent."""

    added: tuple[ManifestFile, ...]
    replaced: tuple[ManifestFile, ...]
    """Manifests of the parent that the client's list does not have."""


@dataclass(frozen=True, slots=True)
class AddedManifest:
    """A manifest of the client with entries to append."""

    listed: ManifestFile
    manifest: Manifest
    entries: tuple[ManifestEntry, ...]
    """The ADDED ones."""
    rewrite: bool
    """Whether it also holds what must not be taken over, so that it cannot be listed as it is."""


@dataclass(frozen=True, slots=True)
class RewrittenManifest:
    path: str
    length: int


def rebase_target(metadata: TableMetadata, snapshot: Snapshot, branch: str) -> RebaseTarget:
    """Finds the snapshots by the metadata alone. Raises RebaseRefused."""
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
    for found in (snapshot, head, parent):
        if found is not None and (found.manifest_list is None or found.key_id is not None):
            raise RebaseRefused(
                f"snapshot {found.snapshot_id} has no manifest list that can be read"
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
    """Compares the client's list with that of its parent. Raises RebaseRefused."""
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
    replaced = tuple(found for path, found in of_parent.items() if path not in of_client)
    for manifest in (*added, *replaced):
        if manifest.encrypted:
            raise RebaseRefused(f"the manifest {manifest.manifest_path} is encrypted")
    if len(added) + len(replaced) > MAX_MANIFESTS:
        raise RebaseRefused(f"it changes more than {MAX_MANIFESTS} manifests")
    return ListDifference(tuple(added), replaced)


def prove_append(
    target: RebaseTarget, difference: ListDifference, manifests: Mapping[str, Manifest]
) -> tuple[AddedManifest, ...]:
    """What the client appends. Raises RebaseRefused unless its manifests show that it appends and
    does nothing else: every live entry of a manifest that it replaced is carried over, and all
    other entries are additions of its own."""
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
    """What never changes about a listed manifest. Row ids do, once, after an upgrade to v3."""
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
    """Every live entry of the replaced manifests by its path, with its partition's field ids."""
    found: dict[str, tuple[ManifestEntry, tuple[int | None, ...]]] = {}
    for listed in replaced:
        manifest = manifests[listed.manifest_path]
        fields = _partition_ids(manifest)
        for entry in inherited(manifest, listed):
            if entry.file_path in found:
                raise RebaseRefused(f"{entry.file_path} is live twice in its parent")
            found[entry.file_path] = entry, fields
    return found


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
    """An EXISTING entry must be that of the parent. Its metrics are not compared: nothing of the
    client's copy is taken over."""
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
    """NaN is equal to itself here."""
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
    """The manifests of the new list: the client's first, then the head's as they are. `rewritten`
    has, by the client's path, the manifests that stand for those which must be rewritten."""
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
    """The client's snapshot on the new head, as JSON: same id, unknown fields kept."""
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
    """The client's summary with the totals of the head plus what the manifests really add. As in
    Java's SnapshotProducer a total goes on only from one that is there and is a number."""
    entries = [entry for manifest in added for entry in manifest.entries]
    additions = {
        "total-records": sum(entry.record_count for entry in entries),
        "total-files-size": sum(entry.file_size_in_bytes or 0 for entry in entries),
        "total-data-files": len(entries),
    }
    summary, previous = target.snapshot.summary, target.head.summary
    for total in _TOTALS:
        before = _number(previous.get(total))
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


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text)
