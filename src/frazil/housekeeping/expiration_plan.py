"""Decides which snapshots and refs of a table expire, exactly as Java's RemoveSnapshots does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from frazil.format.metadata.snapshots import MAIN_BRANCH, SnapshotRef
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.errors import BadRequest, ValidationError

MAX_SNAPSHOT_AGE: Final = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"
GC_ENABLED: Final = "gc.enabled"

_DAY_MS: Final = 24 * 3_600_000
_DEFAULTS: Final = {MAX_SNAPSHOT_AGE: 5 * _DAY_MS, MIN_SNAPSHOTS: 1, MAX_REF_AGE: 2**63 - 1}


@dataclass(frozen=True, slots=True)
class ExpireOptions:
    """The options of Iceberg's procedure."""

    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    clean_expired_metadata: bool = False
    delete_files: bool = True
    """If false, nothing is recorded, and the files of the snapshots stay forever."""


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    refs: tuple[str, ...]
    """The refs to remove."""
    snapshot_ids: frozenset[int]
    """The snapshots to remove."""
    leased_ids: frozenset[int]
    """Those that would be removed if no lease named them."""


NO_EXPIRY: Final = ExpiryPlan((), frozenset(), frozenset())


def gc_is_enabled(metadata: TableMetadata) -> bool:
    return metadata.properties.get(GC_ENABLED, "true").lower() != "false"


def check_gc_enabled(metadata: TableMetadata) -> None:
    if not gc_is_enabled(metadata):
        raise ValidationError(
            "Cannot expire snapshots: GC is disabled (deleting files may corrupt other tables): "
            f"remove {GC_ENABLED} from the properties of the table if its files are its own"
        )


def plan_expiry(
    metadata: TableMetadata, options: ExpireOptions, leased: Collection[int], now_ms: int
) -> ExpiryPlan:
    """Plan the expiry of a table as of one moment. `leased` are the snapshots of live leases."""
    check_gc_enabled(metadata)
    rules = _Rules.of(metadata.properties, options, now_ms)
    refs = {name: ref for name, ref in metadata.refs.items() if _stays(metadata, name, ref, rules)}
    _check_ids(options.snapshot_ids, refs)
    kept = {ref.snapshot_id for ref in refs.values()}
    referenced = set(kept)
    for ref in refs.values():
        if ref.is_branch:
            kept.update(_of_branch(metadata, ref, rules))
            referenced.update(metadata.ancestor_ids(ref.snapshot_id))
    expired = {
        snapshot.snapshot_id
        for snapshot in metadata.snapshots.bare_items()
        if snapshot.snapshot_id not in kept
        and (snapshot.snapshot_id in referenced or snapshot.timestamp_ms < rules.older_than_ms)
    }
    expired.update(own for own in options.snapshot_ids if own in metadata.snapshots)
    gone = tuple(name for name in metadata.refs if name not in refs)
    return ExpiryPlan(gone, frozenset(expired.difference(leased)), frozenset(expired & set(leased)))


def histories_since(metadata: TableMetadata, bases: Collection[int]) -> set[int]:
    """Return the snapshots of branches from these bases of changes on.

    The commit of a change is checked against them. Without them it would be refused, although
    its base is still there.
    """
    kept: set[int] = set()
    for ref in metadata.refs.values() if bases else ():
        newer: list[int] = []
        for snapshot_id in metadata.ancestor_ids(ref.snapshot_id) if ref.is_branch else ():
            newer.append(snapshot_id)
            if snapshot_id in bases:
                kept.update(newer)
                newer.clear()
    return kept


@dataclass(frozen=True, slots=True)
class _Rules:
    now_ms: int
    older_than_ms: int
    min_snapshots: int
    max_ref_age_ms: int

    @classmethod
    def of(cls, properties: Mapping[str, str], options: ExpireOptions, now_ms: int) -> _Rules:
        if options.retain_last is not None and options.retain_last < 1:
            raise BadRequest(
                "retain_last: Number of snapshots to retain must be at least 1, cannot be: "
                f"{options.retain_last}"
            )
        older_than_ms = options.older_than_ms
        if older_than_ms is None:
            older_than_ms = now_ms - _number(properties, MAX_SNAPSHOT_AGE)
        min_snapshots = options.retain_last
        if min_snapshots is None:
            min_snapshots = _number(properties, MIN_SNAPSHOTS)
        return cls(now_ms, older_than_ms, min_snapshots, _number(properties, MAX_REF_AGE))


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name)
    if text is None:
        return _DEFAULTS[name]
    try:
        return int(text)
    except ValueError:
        raise ValidationError(
            f"properties.{name}: {text[:100]!r} is not a whole number: set another value"
        ) from None


def _stays(metadata: TableMetadata, name: str, ref: SnapshotRef, rules: _Rules) -> bool:
    if name == MAIN_BRANCH:
        return True
    head = metadata.snapshots.bare(ref.snapshot_id)
    max_age_ms = rules.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return head is not None and rules.now_ms - head.timestamp_ms <= max_age_ms


def _check_ids(snapshot_ids: Collection[int], refs: Mapping[str, SnapshotRef]) -> None:
    for snapshot_id in snapshot_ids:
        names = sorted(name for name, ref in refs.items() if ref.snapshot_id == snapshot_id)
        if names:
            raise BadRequest(
                f"snapshot_ids: Cannot expire {snapshot_id}. Still referenced by refs: {names}"
            )


def _of_branch(metadata: TableMetadata, ref: SnapshotRef, rules: _Rules) -> Iterator[int]:
    """Yield the snapshots that a branch keeps, which are its newest."""
    older_than_ms = rules.older_than_ms
    if ref.max_snapshot_age_ms is not None:
        older_than_ms = rules.now_ms - ref.max_snapshot_age_ms
    least = rules.min_snapshots if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
    for count, snapshot_id in enumerate(metadata.ancestor_ids(ref.snapshot_id)):
        snapshot = metadata.snapshots.bare(snapshot_id)
        if snapshot is None or (count >= least and snapshot.timestamp_ms < older_than_ms):
            return
        yield snapshot_id
