"""Reads the metadata, manifest list and manifests of a committed snapshot from disk.

It uses only `json` and `fastavro` and its own version of the specification's inheritance rules,
so that it shares no code with the code under test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
DATA_MANIFEST, DELETE_MANIFEST = 0, 1


@dataclass(frozen=True)
class Entry:
    """A file in one manifest, with its inherited values."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    content: int
    file_path: str
    content_offset: int | None
    content_size_in_bytes: int | None
    referenced_data_file: str | None
    record_count: int
    file_size_in_bytes: int
    partition: tuple[Any, ...]
    spec_id: int
    first_row_id: int | None
    manifest_path: str
    data_file: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int | None]:
        """Return the identity of the file."""
        return self.file_path, self.content_offset

    @property
    def is_data(self) -> bool:
        return self.content == DATA

    @property
    def is_live(self) -> bool:
        return self.status != DELETED

    @property
    def counted_bytes(self) -> int:
        """Return the size that summaries count: for a deletion vector its blob, not the Puffin
        file."""
        if self.content_size_in_bytes is not None:
            return self.content_size_in_bytes
        return self.file_size_in_bytes


@dataclass(frozen=True)
class Tree:
    """A snapshot with its manifest list and the entries of all manifests."""

    snapshot: Mapping[str, Any]
    manifests: tuple[Mapping[str, Any], ...]
    entries: tuple[Entry, ...]

    @property
    def live(self) -> dict[tuple[str, int | None], Entry]:
        return {entry.key: entry for entry in self.entries if entry.is_live}

    def of(self, manifest: Mapping[str, Any]) -> list[Entry]:
        path = manifest["manifest_path"]
        return [entry for entry in self.entries if entry.manifest_path == path]


def local(location: str) -> Path:
    """Return the local path; `file:///a`, `file:/a` (as Hadoop writes it) and `/a` are the same
    file."""
    return Path(location.removeprefix("file:").replace("///", "/"))


@lru_cache(maxsize=4096)
def avro_records(location: str) -> tuple[tuple[Any, ...], Mapping[str, str]]:
    """Return the records and the header of a file. They are cached because tree files never
    change."""
    with open(local(location), "rb") as file:
        reader = fastavro.reader(file)
        return tuple(reader), dict(reader.metadata)


def snapshot_of(metadata: Mapping[str, Any], snapshot_id: int) -> Mapping[str, Any]:
    (found,) = [s for s in metadata["snapshots"] if s["snapshot-id"] == snapshot_id]
    assert isinstance(found, dict)
    return found


def read_tree(metadata: Mapping[str, Any], snapshot_id: int) -> Tree:
    snapshot = snapshot_of(metadata, snapshot_id)
    manifests, _ = avro_records(snapshot["manifest-list"])
    entries = [entry for manifest in manifests for entry in manifest_entries(manifest)]
    return Tree(snapshot, manifests, tuple(entries))


def manifest_entries(manifest: Mapping[str, Any]) -> Iterator[Entry]:
    records, _ = avro_records(manifest["manifest_path"])
    next_row_id = manifest.get("first_row_id")
    for record in records:
        file = record["data_file"]
        first_row_id = file.get("first_row_id")
        if record["status"] != DELETED and first_row_id is None and next_row_id is not None:
            first_row_id = next_row_id
            next_row_id += file["record_count"]
        yield _entry(manifest, record, first_row_id)


def _entry(
    manifest: Mapping[str, Any], record: Mapping[str, Any], first_row_id: int | None
) -> Entry:
    file = record["data_file"]
    listed_sequence_number = manifest.get("sequence_number", 0)
    inherits = record["status"] == ADDED or listed_sequence_number == 0
    sequence_number = record.get("sequence_number")
    file_sequence_number = record.get("file_sequence_number")
    snapshot_id = record["snapshot_id"]
    return Entry(
        status=record["status"],
        snapshot_id=manifest["added_snapshot_id"] if snapshot_id is None else snapshot_id,
        sequence_number=(
            listed_sequence_number if sequence_number is None and inherits else sequence_number
        ),
        file_sequence_number=(
            listed_sequence_number
            if file_sequence_number is None and inherits
            else file_sequence_number
        ),
        content=file.get("content") or DATA,
        file_path=file["file_path"],
        content_offset=file.get("content_offset"),
        content_size_in_bytes=file.get("content_size_in_bytes"),
        referenced_data_file=file.get("referenced_data_file"),
        record_count=file["record_count"],
        file_size_in_bytes=file["file_size_in_bytes"],
        partition=tuple(file["partition"].values()),
        spec_id=manifest["partition_spec_id"],
        first_row_id=first_row_id,
        manifest_path=manifest["manifest_path"],
        data_file=file,
    )


# --- what must hold for every snapshot that is committed ------------------------------------------


def check_tree(metadata: Mapping[str, Any], snapshot_id: int, *, totals: bool = True) -> Tree:
    """Check the invariants of a snapshot that the server built, and return its tree."""
    tree = read_tree(metadata, snapshot_id)
    _check_snapshot(metadata, tree)
    for manifest in tree.manifests:
        _check_manifest(metadata, tree, manifest)
    live = [entry.key for entry in tree.entries if entry.is_live]
    assert len(live) == len(set(live)), "a file is live twice"
    if totals:
        _check_totals(tree)
    parent_id = tree.snapshot.get("parent-snapshot-id")
    known = {s["snapshot-id"] for s in metadata["snapshots"]}
    if parent_id is not None and parent_id in known:
        _check_step(read_tree(metadata, parent_id), tree)
    if metadata["format-version"] >= 3:
        _check_row_ids(metadata, tree)
    return tree


def _check_snapshot(metadata: Mapping[str, Any], tree: Tree) -> None:
    snapshot = tree.snapshot
    version = metadata["format-version"]
    assert snapshot["schema-id"] == metadata["current-schema-id"] or snapshot["schema-id"] in {
        schema["schema-id"] for schema in metadata["schemas"]
    }
    assert snapshot.get("sequence-number", 0) <= metadata.get("last-sequence-number", 0)
    if version > 1:
        assert snapshot["sequence-number"] > 0
    _, header = avro_records(snapshot["manifest-list"])
    assert header["format-version"] == str(version)
    assert header["snapshot-id"] == str(snapshot["snapshot-id"])
    if version > 1:
        assert header["sequence-number"] == str(snapshot["sequence-number"])


def _check_manifest(metadata: Mapping[str, Any], tree: Tree, manifest: Mapping[str, Any]) -> None:
    entries = tree.of(manifest)
    assert entries, "a manifest without entries"
    assert manifest["manifest_length"] == local(manifest["manifest_path"]).stat().st_size
    for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
        found = [entry for entry in entries if entry.status == status]
        assert manifest[f"{name}_files_count"] == len(found)
        assert manifest[f"{name}_rows_count"] == sum(entry.record_count for entry in found)
    is_deletes = manifest.get("content", 0) == DELETE_MANIFEST
    assert all(entry.is_data != is_deletes for entry in entries)
    for entry in entries:
        if entry.status != EXISTING:
            assert entry.snapshot_id == manifest["added_snapshot_id"]
        if metadata["format-version"] > 1:
            assert entry.sequence_number is not None
            assert entry.file_sequence_number is not None
    if metadata["format-version"] > 1:
        numbers = [entry.sequence_number or 0 for entry in entries if entry.is_live]
        if numbers:
            assert manifest["min_sequence_number"] == min(numbers)
    _check_partitions(metadata, manifest, entries)


def _check_partitions(
    metadata: Mapping[str, Any], manifest: Mapping[str, Any], entries: Sequence[Entry]
) -> None:
    """Check only whether there are nulls, as for every type; the writer's tests cover bounds."""
    (spec,) = [
        s for s in metadata["partition-specs"] if s["spec-id"] == manifest["partition_spec_id"]
    ]
    summaries = manifest["partitions"]
    if not spec["fields"]:
        assert not summaries
        return
    assert len(summaries) == len(spec["fields"])
    for index, summary in enumerate(summaries):
        values = [entry.partition[index] for entry in entries]
        assert summary["contains_null"] == any(value is None for value in values)
        assert (summary["lower_bound"] is None) == all(value is None for value in values)


def _check_totals(tree: Tree) -> None:
    summary = tree.snapshot["summary"]
    live = list(tree.live.values())
    data = [entry for entry in live if entry.is_data]
    deletes = [entry for entry in live if not entry.is_data]
    wanted = {
        "total-data-files": len(data),
        "total-delete-files": len(deletes),
        "total-records": sum(entry.record_count for entry in data),
        "total-files-size": sum(entry.counted_bytes for entry in live),
        "total-position-deletes": _rows(deletes, POSITION_DELETES),
        "total-equality-deletes": _rows(deletes, EQUALITY_DELETES),
    }
    assert {name: summary.get(name) for name in wanted} == {
        name: str(value) for name, value in wanted.items()
    }


def _rows(entries: Sequence[Entry], content: int) -> int:
    return sum(entry.record_count for entry in entries if entry.content == content)


def _check_step(before: Tree, after: Tree) -> None:
    """Check that from parent to child every file is unchanged, added or removed."""
    snapshot_id = after.snapshot["snapshot-id"]
    added = {e.key: e for e in after.entries if e.status == ADDED and e.snapshot_id == snapshot_id}
    deleted = {
        e.key: e for e in after.entries if e.status == DELETED and e.snapshot_id == snapshot_id
    }
    old, new = before.live, after.live
    assert set(new) == (set(old) - set(deleted)) | set(added)
    assert set(deleted) <= set(old)
    for key in set(old) & set(new) - set(added):
        kept, was = new[key], old[key]
        for name in (
            "snapshot_id",
            "sequence_number",
            "file_sequence_number",
            "first_row_id",
            "partition",
            "record_count",
        ):
            # After an upgrade a table has no row ids before its first commit as version 3.
            if name != "first_row_id" or was.first_row_id is not None:
                assert getattr(kept, name) == getattr(was, name), (key, name)
    for key, entry in deleted.items():
        assert entry.sequence_number == old[key].sequence_number
        assert entry.file_sequence_number == old[key].file_sequence_number
    _check_counts(after, added, deleted, before)


def _check_counts(
    after: Tree, added: Mapping[Any, Entry], deleted: Mapping[Any, Entry], before: Tree
) -> None:
    summary = after.snapshot["summary"]
    counts = {
        "added-data-files": sum(e.is_data for e in added.values()),
        "deleted-data-files": sum(e.is_data for e in deleted.values()),
        "added-delete-files": sum(not e.is_data for e in added.values()),
        "removed-delete-files": sum(not e.is_data for e in deleted.values()),
        "added-records": sum(e.record_count for e in added.values() if e.is_data),
        "deleted-records": sum(e.record_count for e in deleted.values() if e.is_data),
        "added-files-size": sum(e.counted_bytes for e in added.values()),
        "removed-files-size": sum(e.counted_bytes for e in deleted.values()),
    }
    for name, count in counts.items():
        assert summary.get(name) == (str(count) if count else None), name
    paths = {manifest["manifest_path"] for manifest in after.manifests}
    kept = paths & {manifest["manifest_path"] for manifest in before.manifests}
    assert summary["manifests-created"] == str(len(paths - kept))
    assert summary["manifests-kept"] == str(len(kept))


def _check_row_ids(metadata: Mapping[str, Any], tree: Tree) -> None:
    ranges = []
    for entry in tree.entries:
        if entry.is_live and entry.is_data:
            assert entry.first_row_id is not None, entry.file_path
            ranges.append((entry.first_row_id, entry.first_row_id + entry.record_count))
    ranges.sort()
    for (_, end), (start, _) in pairwise(ranges):
        assert end <= start, "two files share row ids"
    snapshot = tree.snapshot
    assert snapshot["first-row-id"] + snapshot["added-rows"] <= metadata["next-row-id"]
    if ranges:
        assert ranges[-1][1] <= metadata["next-row-id"]
    for manifest in tree.manifests:
        if manifest["content"] == DELETE_MANIFEST:
            # DuckDB writes one for its delete manifests, which are kept unchanged.
            is_own = manifest["added_snapshot_id"] == snapshot["snapshot-id"]
            assert manifest["first_row_id"] is None or not is_own
        else:
            assert manifest["first_row_id"] is not None
