"""Snapshots, snapshot refs and the two logs of table metadata.

Mirrors Java's SnapshotParser, SnapshotRefParser and SnapshotRef, and refuses what they refuse.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Self

import msgspec
from msgspec import Raw, Struct

from frazil.format.metadata.raw_json import (
    Int32,
    Int64,
    InvalidMetadata,
    NonNegativeInt64,
    Part,
    compact,
    decode,
    json_names,
    json_object,
    patch_object,
    without_nulls,
)
from frazil.format.metadata.segments import LARGE_SEGMENT, Segment, SegmentedList, merged

MAIN_BRANCH = "main"
BRANCH = "branch"
TAG = "tag"

_NULL_MEMBER = re.compile(rb":null[,}]")


class _Summary(Struct):
    summary: dict[str, str] | None = None


class Snapshot(Part, frozen=True, kw_only=True, gc=False, rename="kebab"):
    """A snapshot. Its summary is decoded only when it is used, because histories are long."""

    snapshot_id: Int64
    timestamp_ms: Int64
    sequence_number: Int64 = 0
    parent_snapshot_id: Int64 | None = None
    manifest_list: str | None = None
    manifests: list[str] | None = None
    """Inline manifest paths of old writers of format version 1."""
    schema_id: Int32 | None = None
    first_row_id: NonNegativeInt64 | None = None
    added_rows: NonNegativeInt64 | None = None
    key_id: str | None = None

    @property
    def summary(self) -> dict[str, str]:
        return decode(_SUMMARY, self.raw, f"snapshot {self.snapshot_id}").summary or {}

    @property
    def operation(self) -> str | None:
        """Return the operation. Without one in its summary it is an overwrite; without a summary,
        None."""
        summary = self.summary
        return summary.get("operation", "overwrite") if summary else None


class SnapshotLogEntry(Part, frozen=True, kw_only=True, gc=False, rename="kebab"):
    timestamp_ms: Int64
    snapshot_id: Int64


class MetadataLogEntry(Part, frozen=True, kw_only=True, gc=False, rename="kebab"):
    timestamp_ms: Int64
    metadata_file: str


class SnapshotRef(Part, frozen=True, kw_only=True, gc=False, rename="kebab"):
    snapshot_id: Int64
    type: str
    min_snapshots_to_keep: Int32 | None = None
    max_snapshot_age_ms: Int64 | None = None
    max_ref_age_ms: Int64 | None = None

    @property
    def is_branch(self) -> bool:
        return self.type == BRANCH


_SUMMARY: msgspec.json.Decoder[_Summary] = msgspec.json.Decoder(_Summary)
_SNAPSHOT: msgspec.json.Decoder[Snapshot] = msgspec.json.Decoder(Snapshot)
_SNAPSHOTS: msgspec.json.Decoder[list[Snapshot]] = msgspec.json.Decoder(list[Snapshot])
_REF: msgspec.json.Decoder[SnapshotRef] = msgspec.json.Decoder(SnapshotRef)
_RAWS: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])
_SNAPSHOT_LOG: msgspec.json.Decoder[list[SnapshotLogEntry]] = msgspec.json.Decoder(
    list[SnapshotLogEntry]
)
_METADATA_LOG: msgspec.json.Decoder[list[MetadataLogEntry]] = msgspec.json.Decoder(
    list[MetadataLogEntry]
)
_SNAPSHOT_NAMES = json_names(Snapshot) | {"summary"}
_REF_NAMES = json_names(SnapshotRef)

SnapshotLog = SegmentedList[SnapshotLogEntry]
MetadataLog = SegmentedList[MetadataLogEntry]


class SnapshotList(SegmentedList[Snapshot]):
    """All snapshots of a table, with an index by id."""

    __slots__ = ()

    def get(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot with its JSON. Search the newest segments first."""
        for segment in reversed(self.segments):
            position = _index(segment).get(snapshot_id)
            if position is not None:
                return segment.item(position)
        return None

    def bare(self, snapshot_id: int) -> Snapshot | None:
        """Return the known fields of a snapshot. This is cheaper than `get`, for long histories."""
        for segment in reversed(self.segments):
            position = _index(segment).get(snapshot_id)
            if position is not None:
                return segment.bare_items[position]
        return None

    def __contains__(self, snapshot_id: object) -> bool:
        return any(snapshot_id in _index(segment) for segment in reversed(self.segments))

    def ids(self) -> set[int]:
        return set().union(*(_index(segment) for segment in self.segments))

    def only(self, snapshot_ids: Collection[int]) -> Self:
        """Return the list with only these snapshots, in the same order."""
        wanted = set(snapshot_ids)
        return self.of(
            [
                segment.item(position)
                for segment in self.segments
                if not wanted.isdisjoint(_index(segment))
                for snapshot_id, position in _index(segment).items()
                if snapshot_id in wanted
            ]
        )

    def without(self, snapshot_ids: Collection[int]) -> Self:
        """Return the list without some snapshots. Segments without them are shared."""
        removed = {snapshot_id for snapshot_id in snapshot_ids if snapshot_id in self}
        if not removed:
            return self
        kept: list[Segment[Snapshot]] = []
        for segment in self.segments:
            if removed.isdisjoint(_index(segment)):
                kept.append(segment)
                continue
            rest = [item for item in segment.items() if item.snapshot_id not in removed]
            if not rest:
                continue
            cut = Segment.of(rest)
            # Join small neighbors, so that expiry does not leave many tiny segments.
            if kept and len(kept[-1]) + len(cut) <= LARGE_SEGMENT // 2:
                cut = merged([kept.pop(), cut])
            kept.append(cut)
        return type(self)(tuple(kept))


def _index(segment: Segment[Snapshot]) -> dict[int, int]:
    if segment.index is None:
        segment.index = {
            item.snapshot_id: position for position, item in enumerate(segment.bare_items)
        }
    return segment.index


def parse_snapshot(raw: bytes | Raw, field: str = "snapshot") -> Snapshot:
    """Parse the snapshot of an update and check it fully."""
    squeezed = without_nulls(compact(raw, field), _SNAPSHOT_NAMES, field)
    snapshot = msgspec.structs.replace(decode(_SNAPSHOT, squeezed, field), raw=squeezed)
    _check_snapshot(snapshot, field)
    decode(_SUMMARY, squeezed, field)
    return snapshot


def parse_snapshots(array: bytes | Raw, field: str = "snapshots") -> SnapshotList:
    """Parse a compact JSON array of snapshots without reading their summaries."""
    if _NULL_MEMBER.search(memoryview(array)):
        members = decode(_RAWS, array, field)
        raws = [
            without_nulls(bytes(raw), _SNAPSHOT_NAMES, f"{field}[{position}]")
            for position, raw in enumerate(members)
        ]
        array = b"[" + b",".join(raws) + b"]"
    snapshots = SnapshotList.from_json(array, _SNAPSHOTS, field)
    for position, snapshot in enumerate(snapshots.bare_items()):
        if snapshot.manifest_list is None or snapshot.first_row_id is not None:
            _check_snapshot(snapshot, f"{field}[{position}]")
    if len(snapshots.ids()) != len(snapshots):
        raise InvalidMetadata(field, "two snapshots have the same snapshot-id")
    return snapshots


def _check_snapshot(snapshot: Snapshot, field: str) -> None:
    if snapshot.manifest_list is None and snapshot.manifests is None:
        raise InvalidMetadata(f"{field}.manifest-list", "missing")
    if snapshot.first_row_id is not None and snapshot.added_rows is None:
        raise InvalidMetadata(f"{field}.added-rows", "required when first-row-id is set")


def check_summaries(snapshots: Iterable[Snapshot]) -> None:
    """Refuse a summary that is not an object of strings."""
    for snapshot in snapshots:
        decode(_SUMMARY, snapshot.raw, f"snapshot {snapshot.snapshot_id}")


def parse_snapshot_log(array: bytes | Raw) -> SnapshotLog:
    return SnapshotLog.from_json(array, _SNAPSHOT_LOG, "snapshot-log")


def parse_metadata_log(array: bytes | Raw) -> MetadataLog:
    return MetadataLog.from_json(array, _METADATA_LOG, "metadata-log")


def snapshot_log_entry(timestamp_ms: int, snapshot_id: int) -> SnapshotLogEntry:
    raw = b'{"timestamp-ms":%d,"snapshot-id":%d}' % (timestamp_ms, snapshot_id)
    return SnapshotLogEntry(timestamp_ms=timestamp_ms, snapshot_id=snapshot_id, raw=raw)


def metadata_log_entry(timestamp_ms: int, metadata_file: str) -> MetadataLogEntry:
    raw = msgspec.json.encode({"timestamp-ms": timestamp_ms, "metadata-file": metadata_file})
    return MetadataLogEntry(timestamp_ms=timestamp_ms, metadata_file=metadata_file, raw=raw)


def parse_ref(raw: bytes | Raw, field: str) -> SnapshotRef:
    squeezed = without_nulls(bytes(raw), _REF_NAMES, field)
    ref = decode(_REF, squeezed, field)
    # Java's SnapshotRefType.fromString accepts any case and writes lower case.
    kind = ref.type.lower()
    if kind != ref.type:
        squeezed = patch_object(squeezed, {"type": kind})
    ref = msgspec.structs.replace(ref, type=kind, raw=squeezed)
    check_ref(ref, field)
    return ref


def new_ref(
    snapshot_id: int,
    kind: str,
    *,
    min_snapshots_to_keep: int | None = None,
    max_snapshot_age_ms: int | None = None,
    max_ref_age_ms: int | None = None,
    replaced: SnapshotRef | None = None,
) -> SnapshotRef:
    """Build a ref. Unknown fields of the replaced ref are kept."""
    known = {
        "snapshot-id": snapshot_id,
        "type": kind,
        "min-snapshots-to-keep": min_snapshots_to_keep,
        "max-snapshot-age-ms": max_snapshot_age_ms,
        "max-ref-age-ms": max_ref_age_ms,
    }
    members: dict[str, object] = {name: value for name, value in known.items() if value is not None}
    if replaced is not None:
        members |= {
            name: value
            for name, value in json_object(replaced.raw, "").items()
            if name not in _REF_NAMES
        }
    return SnapshotRef(
        snapshot_id=snapshot_id,
        type=kind,
        min_snapshots_to_keep=min_snapshots_to_keep,
        max_snapshot_age_ms=max_snapshot_age_ms,
        max_ref_age_ms=max_ref_age_ms,
        raw=msgspec.json.encode(members),
    )


def check_ref(ref: SnapshotRef, field: str) -> None:
    """Check a ref as Java's SnapshotRef.Builder does."""
    if ref.type not in (BRANCH, TAG):
        raise InvalidMetadata(f"{field}.type", f"must be branch or tag, not {ref.type!r}")
    if ref.type == TAG and ref.min_snapshots_to_keep is not None:
        raise InvalidMetadata(f"{field}.min-snapshots-to-keep", "not supported for a tag")
    if ref.type == TAG and ref.max_snapshot_age_ms is not None:
        raise InvalidMetadata(f"{field}.max-snapshot-age-ms", "not supported for a tag")
    for name in ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms"):
        value = getattr(ref, name)
        if value is not None and value <= 0:
            raise InvalidMetadata(f"{field}.{name.replace('_', '-')}", "must be greater than 0")
