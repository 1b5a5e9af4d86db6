"""Compares two states after a step and describes every difference in words and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.oracle.commits.cases import LATER
from tests.oracle.commits.java_side import Refusal
from tests.oracle.commits.own_side import Rejection
from tests.oracle.commits.states import Entry, Manifest, Snapshot, State

_CLAUSES = (
    "not-allowed-added-data-files",
    "not-allowed-added-delete-files",
    "not-allowed-new-deletes-for-data-files",
    "required-data-files",
    "required-delete-files",
)

CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Found conflicting files that can contain", ("not-allowed-added-data-files",)),
    ("Found new conflicting delete files", ("not-allowed-added-delete-files",)),
    (
        "Cannot commit, found new delete for replaced",
        ("not-allowed-new-deletes-for-data-files",),
    ),
    (
        "Cannot commit, found new position delete for replaced",
        ("not-allowed-new-deletes-for-data-files",),
    ),
    ("Found conflicting deleted files", ("required-data-files",)),
    ("Cannot commit, missing data files", ("required-data-files",)),
    (
        "Missing required files to delete",
        (
            "required-data-files",
            "required-delete-files",
            "removed-file-not-live",
            "cherry-pick",
        ),
    ),
    ("Found concurrently added DV", ("dv-conflict",)),
    ("Cannot delete file where some, but not all", ("partial-row-filter",)),
    ("Invalid REPLACE operation", ("replace-adds-rows",)),
    ("Cannot determine history between", ("base-not-ancestor", *_CLAUSES)),
    ("Cannot cherry", ("cherry-pick",)),
    ("Duplicate request to cherry pick", ("cherry-pick",)),
    ("Cannot delete data files", ("required-data-files",)),
    ("Snapshot ", ("base-not-ancestor",)),
)
"""Prefixes of Java's messages, with the clauses that our answer may name for each."""


@dataclass(frozen=True)
class Difference:
    where: str
    java: Any
    own: Any

    def __str__(self) -> str:
        return f"{self.where}\n    java: {self.java}\n    own:  {self.own}"


def verdicts(refusal: Refusal | None, rejection: Rejection | None) -> list[Difference]:
    """Check that both sides accept, or that both refuse and our reasons include Java's."""
    if refusal is None and rejection is None:
        return []
    if refusal is not None and rejection is not None:
        expected = next(
            (clauses for start, clauses in CHECKS if refusal.message.startswith(start)), ()
        )
        if rejection.clauses & set(expected):
            return []
    return [Difference("verdict", refusal, rejection)]


@dataclass
class Comparison:
    """Compares two tables over their history; tracks what can no longer be equal."""

    row_ids_are_exact: bool = True
    """Becomes false once a side assigns new row ids in a manifest that it rewrites."""

    def states(self, step: int, java: State, own: State) -> list[Difference]:
        found = list(_metadata(java, own))
        for number in range(step, max(java.snapshots, default=0) + 1, LATER):
            if number in java.snapshots and number in own.snapshots:
                self._notice(java, own, number)
                found += self._snapshots(number, java, own)
        if self.row_ids_are_exact and java.next_row_id != own.next_row_id:
            found.append(Difference("next-row-id", java.next_row_id, own.next_row_id))
        if own.snapshots:
            found += _row_ids(own)
        return found

    def _notice(self, java: State, own: State, step: int) -> None:
        for state in (java, own):
            for manifest in state.snapshots[step].manifests:
                if manifest.content == "DATA" and manifest.step == step:
                    self.row_ids_are_exact &= not _existing(manifest)

    def _snapshots(self, step: int, java: State, own: State) -> Iterator[Difference]:
        one, other = java.snapshots[step], own.snapshots[step]
        names = ["parent", "operation", "sequence_number", "schema_id"]
        names += ["first_row_id", "added_rows"] if self.row_ids_are_exact else []
        for name in names:
            values = getattr(one, name), getattr(other, name)
            if values[0] != values[1]:
                yield Difference(f"snapshot {step}: {name}", *values)
        with_row_ids = self.row_ids_are_exact
        for name, left, right in (
            ("live", one.live(), other.live()),
            ("added", one.added(), other.added()),
            ("deleted", one.deleted(), other.deleted()),
        ):
            for difference in _entries(left, right, with_row_ids=with_row_ids):
                yield Difference(
                    f"snapshot {step}: {name} {difference.where}", difference.java, difference.own
                )
        same_trees = _same_trees(step, java, own)
        yield from _summaries(one, other, with_manifests=same_trees)
        if same_trees:
            shapes = _shapes(one, step), _shapes(other, step)
            if shapes[0] != shapes[1]:
                yield Difference(
                    f"snapshot {step}: manifests",
                    sorted(shapes[0] - shapes[1]),
                    sorted(shapes[1] - shapes[0]),
                )


def _existing(manifest: Manifest) -> bool:
    return manifest.counts[2] > 0


def _metadata(java: State, own: State) -> Iterator[Difference]:
    for name in ("format_version", "last_sequence_number", "default_spec_id", "refs", "log"):
        values = getattr(java, name), getattr(own, name)
        if values[0] != values[1]:
            yield Difference(name, *values)
    if java.snapshots.keys() != own.snapshots.keys():
        yield Difference("snapshots", sorted(java.snapshots), sorted(own.snapshots))


def _entries(
    java: Iterable[Entry], own: Iterable[Entry], *, with_row_ids: bool
) -> Iterator[Difference]:
    left = Counter(_compared(entry, with_row_ids=with_row_ids) for entry in java)
    right = Counter(_compared(entry, with_row_ids=with_row_ids) for entry in own)
    only_java, only_own = left - right, right - left
    named = {entry.key: entry for entry in (*only_java, *only_own)}
    for key in sorted(named, key=str):
        kind = "data" if named[key].is_data else "delete"
        yield Difference(
            f"{kind} file {key[0].rsplit('/', 1)[-1]}{'' if key[1] is None else f' at {key[1]}'}",
            [entry[1:] for entry in only_java if entry.key == key],
            [entry[1:] for entry in only_own if entry.key == key],
        )


def _compared(entry: Entry, *, with_row_ids: bool) -> Entry:
    """Return the comparable part of an entry; a carried-over entry may be added or existing."""
    status = "DELETED" if entry.status == "DELETED" else "LIVE"
    first_row_id = entry.first_row_id if with_row_ids else None
    return entry._replace(status=status, first_row_id=first_row_id)


def _summaries(java: Snapshot, own: Snapshot, *, with_manifests: bool) -> Iterator[Difference]:
    for key in sorted(java.summary.keys() | own.summary.keys()):
        if key.startswith("manifests-") and not with_manifests:
            if (key in java.summary) != (key in own.summary):
                yield Difference(f"summary {key}", java.summary.get(key), own.summary.get(key))
            continue
        values = _sorted_counts(java.summary, key), _sorted_counts(own.summary, key)
        if values[0] != values[1]:
            yield Difference(f"snapshot {java.step}: summary {key}", *values)


def _sorted_counts(summary: Mapping[str, str], key: str) -> Any:
    value = summary.get(key)
    if value is not None and key.startswith("partitions."):
        return sorted(value.split(","))
    return value


def _same_trees(step: int, java: State, own: State) -> bool:
    """Return whether both sides started from equal manifests and neither rewrote one."""
    one, other = java.snapshots[step], own.snapshots[step]
    if any(_rewrote(snapshot) for snapshot in (one, other)):
        return False
    if one.parent is None or one.parent not in java.snapshots:
        return one.parent is None
    parents = java.snapshots[one.parent], own.snapshots.get(one.parent)
    if parents[1] is None:
        return False
    return _shapes(parents[0]) == _shapes(parents[1])


def _rewrote(snapshot: Snapshot) -> bool:
    return any(
        manifest.step == snapshot.step and (manifest.counts[2] or manifest.counts[4])
        for manifest in snapshot.manifests
    )


def _shapes(snapshot: Snapshot, step: int | None = None) -> Counter[Any]:
    """Count the manifests without paths and ids, optionally only those of one step."""
    return Counter(
        (
            manifest.content,
            manifest.spec_id,
            manifest.step,
            manifest.sequence_number,
            manifest.min_sequence_number,
            manifest.counts,
            manifest.partitions,
        )
        for manifest in snapshot.manifests
        if step is None or manifest.step == step
    )


def _row_ids(own: State) -> Iterator[Difference]:
    """Check our row ids alone: they are stable and disjoint, and below the next row id."""
    if own.next_row_id is None:
        return
    snapshot = own.snapshots[own.newest()]
    before = own.snapshots.get(snapshot.parent or 0)
    had = {} if before is None else {e.path: e.first_row_id for e in before.live() if e.is_data}
    taken = []
    for entry in snapshot.live():
        if not entry.is_data or entry.first_row_id is None:
            continue
        if had.get(entry.path) not in (None, entry.first_row_id):
            yield Difference("row id changed", had[entry.path], entry)
        taken.append((entry.first_row_id, entry.first_row_id + entry.record_count, entry.path))
    taken.sort()
    for one, other in pairwise(taken):
        if one[1] > other[0]:
            yield Difference("row ids meet", one, other)
    if taken and taken[-1][1] > own.next_row_id:
        yield Difference("row id above the next one", own.next_row_id, taken[-1])
