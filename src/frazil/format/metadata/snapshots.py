"""Snapshots, snapshot refs and the two logs of table metadata.

Mirrors Java's SnapshotParser, SnapshotRefParser and SnapshotRef; what those refuse is refused.
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
    """A snapshot. The summary is decoded when it is asked for: histories are long."""

    snapshot_id: Int64
    timestamp_ms: Int64
    sequence_number: Int64 = 0
    parent_snapshot_id: Int64 | None = None
    manifest_list: str | None = None
    manifests: list[str] | None = None
    """Manifest paths inline, as old writers of format version 1 have them."""
    schema_id: Int32 | None = None
    first_row_id: NonNegativeInt64 | None = None
    added_rows: NonNegativeInt64 | None = None
    key_id: str | None = None

    @property
    def summary(self) -> dict[str, str]:
        return decode(_SUMMARY, self.raw, f"snapshot {self.snapshot_id}").summary or {}

    @property
    def operation(self) -> str | None:
        """None without a summary; a summary without an operation counts as an overwrite."""
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
    """All snapshots of a table, found by id without a walk over the history."""

    __slots__ = ()

    def get(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot with its JSON. The newest segments are looked at first."""
        for segment in reversed(self.segments):
            position = _index(segment).get(snapshot_id)
            if position is not None:
                return segment.item(position)
        return None

    def bare(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot's known fields; cheaper than `get`, for walks over the history."""
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
        """The list of just these snapshots, in the order of this one."""
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
        """The list without some snapshots; segments that hold none of them are shared."""
        gone = {snapshot_id for snapshot_id in snapshot_ids if snapshot_id in self}
        if not gone:
            return self
        kept: list[Segment[Snapshot]] = []
        for segment in self.segments:
            if gone.isdisjoint(_index(segment)):
                kept.append(segment)
                continue
            rest = [item for item in segment.items() if item.snapshot_id not in gone]
            if not rest:
                continue
            cut = Segment.of(rest)
            # Neighbours that became small are joined, lest expiry leave a list of crumbs.
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
    """One snapshot, as an update carries it, checked in full."""
    squeezed = without_nulls(compact(raw, field), _SNAPSHOT_NAMES, field)
    snapshot = msgspec.structs.replace(decode(_SNAPSHOT, squeezed, field), raw=squeezed)
    _check_snapshot(snapshot, field)
    decode(_SUMMARY, squeezed, field)
    return snapshot


def parse_snapshots(array: bytes | Raw, field: str = "snapshots") -> SnapshotList:
    """A compact JSON array of snapshots. Summaries are not looked into."""
    if _NULL_MEMBER.search(memoryview(array)):
        given = decode(_RAWS, array, field)
        raws = [
            without_nulls(bytes(raw), _SNAPSHOT_NAMES, f"{field}[{position}]")
            for position, raw in enumerate(given)
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
    # Java's SnapshotRefType.fromString takes any case and writes lower case.
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
    """A ref. Fields of the replaced ref that we do not know are carried over."""
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
    """The checks of Java's SnapshotRef.Builder."""
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
