"""A small model of Iceberg's consistency: snapshots are sets of files, and clauses compare them.

A table is a list of snapshots. Each one has a parent, an operation, the live data files and
delete files, and the files that it added and removed. A data file has a bucket and some rows; a
row is its id. Time is the sequence number: a position delete applies to files of its own time
and before, an equality delete to files before it. The model has no manifests and no columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MAIN = "main"
ADDING = {"append", "overwrite"}
DELETING = {"overwrite", "delete"}
REMOVING = {"overwrite", "replace", "delete"}


@dataclass(frozen=True)
class Data:
    """A data file; row i has the id `rows[i]`."""

    name: str
    bucket: int
    rows: tuple[int, ...]
    time: int = 0

    @property
    def span(self) -> tuple[int, int]:
        return min(self.rows), max(self.rows)


@dataclass(frozen=True)
class Delete:
    """A delete file: by position in one data file, or by id in a bucket."""

    name: str
    bucket: int
    target: str | None
    """The data file of position deletes; None for equality deletes."""
    values: frozenset[int]
    """Positions, or ids for equality deletes."""
    refers: bool = True
    """Whether the file names its data file; otherwise it applies to its whole bucket."""
    time: int = 0

    @property
    def is_equality(self) -> bool:
        return self.target is None

    def applies_to(self, file: Data) -> bool:
        if self.is_equality:
            return self.bucket == file.bucket and self.time > file.time
        return self.target == file.name and self.time >= file.time

    def deletes(self, file: Data) -> set[int]:
        """Return the positions of the file's rows that this deletes."""
        if self.is_equality:
            return {at for at, row in enumerate(file.rows) if row in self.values}
        return set(self.values)


@dataclass(frozen=True)
class Filter:
    """A filter on one bucket, on a range of ids, or on both."""

    bucket: int | None = None
    ids: tuple[int, int] | None = None

    def may_match(self, bucket: int, span: tuple[int, int] | None) -> bool:
        if self.bucket is not None and bucket != self.bucket:
            return False
        if self.ids is None or span is None:
            return True
        return span[0] <= self.ids[1] and self.ids[0] <= span[1]

    def must_match(self, file: Data) -> bool:
        if self.bucket is not None and file.bucket != self.bucket:
            return False
        low, high = file.span
        return self.ids is None or (self.ids[0] <= low and high <= self.ids[1])


@dataclass(frozen=True)
class Clause:
    kind: str
    filter: Filter = Filter()
    paths: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Change:
    """The change that a writer requests."""

    action: str
    branch: str = MAIN
    add: tuple[Data, ...] = ()
    add_deletes: tuple[Delete, ...] = ()
    remove: tuple[str, ...] = ()
    remove_deletes: tuple[str, ...] = ()
    row_filter: Filter | None = None
    replace_partitions: bool = False
    keep_time: bool = False
    """Whether rewritten rows keep the sequence number of the base."""
    base: int | None = None
    clauses: tuple[Clause, ...] = ()
    stage: bool = False
    """Whether the snapshot is created without moving a branch to it."""
    pick: int | None = None
    """The snapshot that a cherry-pick publishes."""


@dataclass(frozen=True)
class Snapshot:
    number: int
    parent: int | None
    operation: str
    time: int
    data: Mapping[str, Data]
    deletes: Mapping[str, Delete]
    added: tuple[Data, ...]
    removed: tuple[Data, ...]
    added_deletes: tuple[Delete, ...]
    removed_deletes: tuple[str, ...]
    replaces_partitions: bool = False
    source: int | None = None
    """The staged snapshot that this one published."""

    def visible(self) -> dict[str, list[int]]:
        """Return the ids that a reader sees, by data file."""
        return {name: self.rows_of(file) for name, file in self.data.items()}

    def rows_of(self, file: Data) -> list[int]:
        deleted: set[int] = set()
        for delete in self.deletes.values():
            if delete.applies_to(file):
                deleted |= delete.deletes(file)
        return [row for at, row in enumerate(file.rows) if at not in deleted]

    def in_use(self, delete: Delete) -> bool:
        """Return whether the delete file applies to any file; otherwise it may be dropped at any
        time."""
        return any(delete.applies_to(file) for file in self.data.values())


@dataclass
class Model:
    has_deletes: bool
    has_vectors: bool
    snapshots: list[Snapshot] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)

    def head(self, branch: str, heads: Mapping[str, int] | None = None) -> Snapshot | None:
        """Return the head of a branch. A missing branch starts at main. `heads` are those of
        another time."""
        chosen = self.heads if heads is None else heads
        number = chosen.get(branch, chosen.get(MAIN))
        return None if number is None else self.snapshots[number]

    def copy(self) -> Model:
        """Return a copy, which is cheap because snapshots never change."""
        return Model(self.has_deletes, self.has_vectors, [*self.snapshots], dict(self.heads))

    def ancestors(self, head: Snapshot | None) -> Iterator[Snapshot]:
        """Yield the head and then its ancestors."""
        while head is not None:
            yield head
            head = None if head.parent is None else self.snapshots[head.parent]

    def since(self, head: Snapshot | None, base: int | None) -> list[Snapshot]:
        found = []
        for snapshot in self.ancestors(head):
            if snapshot.number == base:
                break
            found.append(snapshot)
        return found

    # --- verdicts ---------------------------------------------------------------------------------

    def conflicts(
        self, change: Change, heads: Mapping[str, int] | None = None
    ) -> dict[str, set[str]]:
        """Return the clauses that conflict with a change, each with the files that may be
        reported.

        `heads` are those before the request that contains the change. Clauses ignore what the
        request itself has done, but "live" includes it.
        """
        if change.pick is not None:
            return self._unpublishable(change, self.snapshots[change.pick])
        head, seen = self.head(change.branch), self.head(change.branch, heads)
        if change.base is not None and change.base not in {
            snapshot.number for snapshot in self.ancestors(seen)
        }:
            return {"base-not-ancestor": set()}
        found: dict[str, set[str]] = {}
        for clause in change.clauses:
            files = self._broken(clause, change, seen)
            if files:
                found.setdefault(clause.kind, set()).update(files)
        for kind, files in self._always(change, head, seen).items():
            if files:
                found[kind] = files
        return found

    def _broken(self, clause: Clause, change: Change, head: Snapshot | None) -> set[str]:
        history = self.since(head, change.base)
        match clause.kind:
            case "not-allowed-added-data-files":
                return {
                    file.name
                    for snapshot in history
                    if snapshot.operation in ADDING
                    for file in snapshot.added
                    if clause.filter.may_match(file.bucket, file.span)
                }
            case "not-allowed-added-delete-files":
                return {d.name for d in self._new_deletes(history, clause.filter)}
            case "not-allowed-new-deletes-for-data-files":
                return self._deletes_for(clause, change, head, history)
            case "required-data-files":
                return self._missing(clause, head, history)
            case _:
                return self._missing_deletes(clause, head, history)

    def _new_deletes(self, history: list[Snapshot], wanted: Filter) -> list[Delete]:
        if not self.has_deletes:
            return []
        return [
            delete
            for snapshot in history
            if snapshot.operation in DELETING
            for delete in snapshot.added_deletes
            if wanted.may_match(delete.bucket, None)
        ]

    def _deletes_for(
        self, clause: Clause, change: Change, head: Snapshot | None, history: list[Snapshot]
    ) -> set[str]:
        """Return the new delete files for the clause's data files. A file that is live neither
        at the head nor at the base has no bucket."""
        places = {} if change.base is None else dict(self.snapshots[change.base].data)
        places |= {} if head is None else head.data
        found = set()
        for delete in self._new_deletes(history, clause.filter):
            for name in clause.paths:
                if not delete.is_equality and delete.refers:
                    counts = delete.target == name
                else:
                    counts = name in places and places[name].bucket == delete.bucket
                if counts and not (delete.is_equality and change.keep_time):
                    found.add(delete.name)
        return found

    def _missing(self, clause: Clause, head: Snapshot | None, history: list[Snapshot]) -> set[str]:
        removals = [
            (file.name, snapshot.operation)
            for snapshot in history
            if snapshot.operation in REMOVING
            for file in snapshot.removed
            if clause.filter.may_match(file.bucket, file.span)
        ]
        if not clause.paths:
            return {name for name, operation in removals if operation not in clause.allowed}
        found = set()
        live = set() if head is None else set(head.data)
        for path in clause.paths:
            operations = [operation for name, operation in removals if name == path]
            if any(operation not in clause.allowed for operation in operations) or (
                not operations and path not in live
            ):
                found.add(path)
        return found

    def _missing_deletes(
        self, clause: Clause, head: Snapshot | None, history: list[Snapshot]
    ) -> set[str]:
        live = set() if head is None else set(head.deletes)
        return {path for path in clause.paths if path not in live}

    def _always(
        self, change: Change, head: Snapshot | None, seen: Snapshot | None
    ) -> dict[str, set[str]]:
        data: Mapping[str, Data] = {} if head is None else head.data
        deletes: Mapping[str, Delete] = {} if head is None else head.deletes
        found = {
            "duplicate-file": {f.name for f in change.add if f.name in data}
            | {d.name for d in change.add_deletes if d.name in deletes},
            "removed-file-not-live": {name for name in change.remove if name not in data}
            | {name for name in change.remove_deletes if name not in deletes},
            "partial-row-filter": set(),
            "dv-conflict": self._vectors(change, head, seen),
        }
        if change.row_filter is not None:
            found["partial-row-filter"] = {
                file.name
                for file in data.values()
                if change.row_filter.may_match(file.bucket, file.span)
                and not change.row_filter.must_match(file)
                and file.name not in change.remove
            }
        replaced = self._rows_replaced(change, data, deletes)
        if change.action == "replace" and _rows_added(change) > replaced:
            found["replace-adds-rows"] = {"*"}
        return found

    def _rows_replaced(
        self, change: Change, data: Mapping[str, Data], deletes: Mapping[str, Delete]
    ) -> int:
        """Return the number of rows in the replaced files. Rows that a vector deletes are not
        counted; other deletes change nothing."""
        replaced = {name for name in change.remove if name in data}
        rows = sum(len(data[name].rows) for name in replaced)
        if not self.has_vectors:
            return rows
        return rows - sum(len(d.values) for d in deletes.values() if d.target in replaced)

    def _vectors(self, change: Change, head: Snapshot | None, seen: Snapshot | None) -> set[str]:
        if not self.has_vectors:
            return set()
        targets = {delete.target for delete in change.add_deletes if delete.target is not None}
        new = {
            delete.name
            for snapshot in self.since(seen, change.base)
            for delete in snapshot.added_deletes
            if delete.target in targets
        }
        live = () if head is None else head.deletes.values()
        beside = {
            delete.name
            for delete in live
            if delete.target in targets and delete.name not in change.remove_deletes
        }
        return new | beside

    # --- publishing -------------------------------------------------------------------------------

    def _can_move(self, change: Change, picked: Snapshot) -> bool:
        head = self.head(change.branch)
        return picked.parent == (None if head is None else head.number)

    def _unpublishable(self, change: Change, picked: Snapshot) -> dict[str, set[str]]:
        """Return the conflicts of a cherry-pick by the rules of Java's CherryPickOperation."""
        refused: dict[str, set[str]] = {"cherry-pick": set()}
        head = self.head(change.branch)
        line = list(self.ancestors(head))
        again = picked.operation == "append" or picked.replaces_partitions
        if again and any(picked.number in (found.number, found.source) for found in line):
            return refused
        if self._can_move(change, picked):
            return {}
        if not again:
            return refused
        data: Mapping[str, Data] = {} if head is None else head.data
        if picked.replaces_partitions:
            numbers = {found.number for found in line}
            buckets = {file.bucket for file in picked.added}
            newer = [file for found in self.since(head, picked.parent) for file in found.added]
            if (
                (picked.parent is not None and picked.parent not in numbers)
                or any(file.bucket in buckets for file in newer)
                or any(file.name not in data for file in picked.removed)
            ):
                return refused
        twice = {file.name for file in picked.added if file.name in data}
        return {"duplicate-file": twice} if twice else {}

    def _publish(self, change: Change, picked: Snapshot) -> Snapshot:
        if self._can_move(change, picked):
            self.heads[change.branch] = picked.number
            return picked
        head = self.head(change.branch)
        gone = {file.name for file in picked.removed}
        time = len(self.snapshots) + 1
        added = tuple(Data(f.name, f.bucket, f.rows, time) for f in picked.added)
        data = {} if head is None else dict(head.data)
        deletes = {} if head is None else dict(head.deletes)
        vectors = {n for n, d in deletes.items() if self.has_vectors and d.target in gone}
        snapshot = Snapshot(
            number=len(self.snapshots),
            parent=None if head is None else head.number,
            operation=picked.operation,
            time=time,
            data={n: f for n, f in data.items() if n not in gone} | {f.name: f for f in added},
            deletes={n: d for n, d in deletes.items() if n not in vectors},
            added=added,
            removed=tuple(file for file in data.values() if file.name in gone),
            added_deletes=(),
            removed_deletes=tuple(sorted(vectors)),
            source=picked.number,
        )
        self.snapshots.append(snapshot)
        self.heads[change.branch] = snapshot.number
        return snapshot

    # --- commits ----------------------------------------------------------------------------------

    def commit(self, change: Change) -> Snapshot:
        """Return the snapshot of a change without conflicts."""
        if change.pick is not None:
            return self._publish(change, self.snapshots[change.pick])
        head = self.head(change.branch)
        old_data = {} if head is None else dict(head.data)
        old_deletes = {} if head is None else dict(head.deletes)
        time = len(self.snapshots) + 1
        removed = self._removed(change, old_data)
        born = time
        if change.keep_time and change.base is not None:
            born = self.snapshots[change.base].time
        added = tuple(Data(f.name, f.bucket, f.rows, born) for f in change.add)
        new_deletes = tuple(
            Delete(d.name, d.bucket, d.target, d.values, d.refers, time) for d in change.add_deletes
        )
        gone = set(change.remove_deletes) | self._deletes_of_removed(change, removed, old_deletes)
        data = {n: f for n, f in old_data.items() if f not in removed}
        deletes = {n: d for n, d in old_deletes.items() if n not in gone}
        snapshot = Snapshot(
            number=len(self.snapshots),
            parent=None if head is None else head.number,
            operation=operation_of(change),
            time=time,
            data=data | {file.name: file for file in added},
            deletes=deletes | {delete.name: delete for delete in new_deletes},
            added=added,
            removed=tuple(removed),
            added_deletes=new_deletes,
            removed_deletes=tuple(sorted(gone)),
            replaces_partitions=change.replace_partitions,
        )
        self.snapshots.append(snapshot)
        if not change.stage:
            self.heads[change.branch] = snapshot.number
        return snapshot

    def _removed(self, change: Change, data: Mapping[str, Data]) -> list[Data]:
        buckets = {file.bucket for file in change.add} if change.replace_partitions else set()
        return [
            file
            for name, file in data.items()
            if name in change.remove
            or file.bucket in buckets
            or (change.row_filter is not None and change.row_filter.must_match(file))
        ]

    def _deletes_of_removed(
        self, change: Change, removed: list[Data], deletes: Mapping[str, Delete]
    ) -> set[str]:
        """Return the delete files that are removed with data files: the vectors of these files,
        and all deletes of replaced partitions and whole buckets."""
        gone = set()
        names = {file.name for file in removed}
        for name, delete in deletes.items():
            if self.has_vectors and delete.target in names:
                gone.add(name)
            if change.replace_partitions and delete.bucket in {f.bucket for f in change.add}:
                gone.add(name)
        return gone


def operation_of(change: Change) -> str:
    """Derive the operation from the request, as the interface specifies."""
    if change.action in ("append", "replace", "delete"):
        return change.action
    if change.replace_partitions:
        return "overwrite"
    removes = bool(change.remove) or change.row_filter is not None
    if change.add and not removes and not change.add_deletes and not change.remove_deletes:
        return "append"
    if not change.add and (change.add_deletes or removes or change.remove_deletes):
        return "delete"
    return "overwrite"


def _rows_added(change: Change) -> int:
    """Return the number of added rows, without those that an added position delete removes."""
    own = {file.name for file in change.add}
    rows = sum(len(file.rows) for file in change.add)
    return rows - sum(len(d.values) for d in change.add_deletes if d.refers and d.target in own)
