"""Random histories: the catalog accepts the same changes as the model and has the same rows.

Writers read the table at some past snapshot, choose a change based on it, and commit it on the
head with or without clauses. Hypothesis draws one number for each step, so that it can shrink a
failing history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.wire.errors import FrazilError
from tests.commit.finegrained.conftest import TableFactory
from tests.commit.finegrained.model import (
    MAIN,
    Change,
    Clause,
    Data,
    Delete,
    Filter,
    Model,
    Snapshot,
)
from tests.commit.finegrained.requests import TRUE, Json, at_least, at_most, both, in_bucket
from tests.commit.finegrained.tables import Answer, Table
from tests.commit.finegrained.trees import EQUALITY_DELETES, Entry, Tree, check_tree, read_tree
from tests.commit.finegrained.world import World
from tests.commit.requests import TIMEOUT_S, Driver, committed, name, table_answer

BUCKETS = 3
IDS = 12
BRANCHES = (MAIN, MAIN, MAIN, "side")
ACTIONS = (
    "append",
    "append",
    "append again",
    "delete",
    "delete by filter",
    "overwrite",
    "overwrite by filter",
    "row delta",
    "row delta",
    "row delta",
    "rewrite",
    "rewrite",
    "replace partitions",
    "remove deletes",
    "publish",
    "publish",
)
FILTERED = (
    "not-allowed-added-data-files",
    "not-allowed-added-delete-files",
    "required-data-files",
)
Item = TypeVar("Item")


class Picks:
    """Derives a writer's decisions from one number."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def below(self, end: int) -> int:
        return self._random.randrange(end)

    def one(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def some(self, items: Sequence[Item], most: int = 2) -> list[Item]:
        """Return at least one item if there is any."""
        if not items:
            return []
        start = self.below(len(items))
        count = 1 + self.below(most)
        return [items[(start + at) % len(items)] for at in range(min(count, len(items)))]

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == one_in - 1


@dataclass
class Writer:
    """Chooses changes and remembers the content of files, which a real writer would read."""

    model: Model
    files: dict[str, Data] = field(default_factory=dict)
    deletes: dict[str, Delete] = field(default_factory=dict)

    def new_file(self, picks: Picks, bucket: int | None = None) -> Data:
        low = picks.below(IDS)
        rows = tuple(range(low, low + 1 + picks.below(4)))
        chosen = picks.below(BUCKETS) if bucket is None else bucket
        return self.keep(Data(f"f{len(self.files)}", chosen, rows))

    def keep(self, file: Data) -> Data:
        self.files[file.name] = file
        return file

    def change(self, picks: Picks) -> Change | None:
        """Return the next change, or None if there is nothing to change."""
        branch = picks.one(BRANCHES)
        head = self.model.head(branch)
        line = list(self.model.ancestors(head))
        base = picks.one([None, *line[:5], *(self.model.snapshots[:1] if line else [])])
        seen = base or head
        action = picks.one(ACTIONS)
        if action == "publish":
            return self._publication(picks, branch)
        fields = self._fields(action, picks, seen, head)
        if fields is None:
            return None
        if picks.chance(6):
            fields["stage"] = True
        change = Change(branch=branch, base=None if base is None else base.number, **fields)
        return self._with_clauses(change, picks, seen, head)

    def _publication(self, picks: Picks, branch: str) -> Change | None:
        """Publish a snapshot: usually one that is on no branch, sometimes any other."""
        reached = {
            found.number
            for name in self.model.heads
            for found in self.model.ancestors(self.model.head(name))
        }
        numbers = [found.number for found in self.model.snapshots]
        staged = [number for number in numbers if number not in reached]
        chosen = staged if staged and not picks.chance(5) else numbers
        return Change("cherry-pick", branch, pick=picks.one(chosen)) if chosen else None

    def _fields(
        self, action: str, picks: Picks, seen: Snapshot | None, head: Snapshot | None
    ) -> dict[str, Any] | None:
        data = [] if seen is None else list(seen.data.values())
        match action:
            case "append":
                count = 1 + picks.below(2)
                return {"action": action, "add": tuple(self.new_file(picks) for _ in range(count))}
            case "append again":
                return self._again(picks)
            case "delete by filter":
                return {"action": "delete", "row_filter": a_filter(picks)}
            case "overwrite by filter":
                only = (self.new_file(picks),)
                return {"action": "overwrite", "row_filter": a_filter(picks), "add": only}
            case "replace partitions":
                added = tuple(self.new_file(picks) for _ in range(1 + picks.below(2)))
                return {"action": "overwrite", "replace_partitions": True, "add": added}
            case "remove deletes":
                return self._remove_deletes(picks, head)
        if not data:
            return None
        if action == "delete":
            names = tuple(file.name for file in picks.some(data))
            return {"action": "delete", "remove": names}
        if action == "overwrite":
            removed = picks.some(data)
            added = (self.new_file(picks, removed[0].bucket),)
            names = tuple(file.name for file in removed)
            return {"action": "overwrite", "remove": names, "add": added}
        assert seen is not None
        if action == "rewrite":
            return self._rewrite(picks, seen, data)
        return self._row_delta(picks, seen, data)

    def _again(self, picks: Picks) -> dict[str, Any] | None:
        """Append an earlier file again; not with vectors, because one for the file could still
        exist."""
        if not self.files or self.model.has_vectors:
            return None
        return {"action": "append", "add": (picks.one(list(self.files.values())),)}

    def _remove_deletes(self, picks: Picks, head: Snapshot | None) -> dict[str, Any] | None:
        """Remove delete files that still apply to a file; the catalog never drops these by
        itself."""
        if head is None:
            return None
        live = [name for name, delete in head.deletes.items() if head.in_use(delete)]
        gone = [name for name in self.deletes if name not in head.deletes]
        names = picks.some(gone if gone and picks.chance(5) else live, 1)
        return {"action": "delete", "remove_deletes": tuple(names)} if names else None

    def _rewrite(self, picks: Picks, seen: Snapshot, data: Sequence[Data]) -> dict[str, Any]:
        """Rewrite the rows that the writer saw into one file."""
        bucket = picks.one(data).bucket
        removed = picks.some([file for file in data if file.bucket == bucket], 3)
        rows = tuple(row for file in removed for row in seen.rows_of(file))
        if picks.chance(8):
            rows += (*rows, *range(20))
        added = (self.keep(Data(f"f{len(self.files)}", bucket, rows)),) if rows else ()
        names = tuple(file.name for file in removed)
        return {"action": "replace", "remove": names, "add": added}

    def _row_delta(self, picks: Picks, seen: Snapshot, data: Sequence[Data]) -> dict[str, Any]:
        fields: dict[str, Any] = {"action": "overwrite"}
        name = f"d{len(self.deletes)}"
        file = picks.one(data)
        if picks.chance(3):
            ids = frozenset({picks.below(IDS), picks.below(IDS)})
            delete = Delete(name, file.bucket, None, ids)
        else:
            positions = frozenset({picks.below(len(file.rows)), picks.below(len(file.rows))})
            refers = self.model.has_vectors or picks.chance(2)
            if self.model.has_vectors:
                old = [d for d in seen.deletes.values() if d.target == file.name]
                for one in old:
                    positions |= one.values
                fields["remove_deletes"] = tuple(one.name for one in old)
            delete = Delete(name, file.bucket, file.name, positions, refers)
        self.deletes[name] = delete
        fields["add_deletes"] = (delete,)
        if picks.chance(3):
            fields["add"] = (self.new_file(picks),)
        others = [one for one in data if one.name != file.name]
        if others and picks.chance(4):
            fields["remove"] = (picks.one(others).name,)
        return fields

    def _with_clauses(
        self, change: Change, picks: Picks, seen: Snapshot | None, head: Snapshot | None
    ) -> Change:
        clauses = []
        for _ in range(picks.below(3)):
            kind = picks.below(5)
            if kind < 3:
                allowed = picks.one([frozenset(), frozenset({"delete"})])
                chosen = FILTERED[kind]
                clauses.append(
                    Clause(
                        chosen,
                        a_filter(picks),
                        allowed=allowed if chosen == "required-data-files" else frozenset(),
                    )
                )
            elif seen is not None and seen.data:
                files = picks.some(list(seen.data))
                name = "required-data-files" if kind == 3 else FOR_FILES
                clauses.append(Clause(name, paths=tuple(files)))
            elif head is not None and head.deletes:
                live = [n for n, delete in head.deletes.items() if head.in_use(delete)]
                if live:
                    clauses.append(Clause("required-delete-files", paths=(picks.one(live),)))
        if change.action == "replace" and picks.chance(2):
            # The clauses that Java's rewrite always sends.
            clauses = [
                Clause("required-data-files", paths=change.remove),
                Clause(FOR_FILES, paths=change.remove),
            ]
        keeps = change.action == "replace" and change.base is not None and self.model.has_deletes
        return Change(
            **{
                **{name: getattr(change, name) for name in change.__dataclass_fields__},
                "clauses": tuple(clauses),
                "keep_time": keeps and picks.chance(2),
            }
        )


FOR_FILES = "not-allowed-new-deletes-for-data-files"
FOR_PEOPLE = {"dv-conflict", "replace-adds-rows", "base-not-ancestor", "cherry-pick"}
"""Clauses whose reported files are not compared."""


def a_filter(picks: Picks) -> Filter:
    kind = picks.below(4)
    low = picks.below(IDS)
    ids = (low, low + picks.below(6))
    bucket = picks.below(BUCKETS)
    return [Filter(bucket), Filter(), Filter(None, ids), Filter(bucket, ids)][kind]


# --- the same over the wire -----------------------------------------------------------------------


def filter_json(wanted: Filter) -> Json:
    parts = []
    if wanted.bucket is not None:
        parts.append(in_bucket("data", wanted.bucket))
    if wanted.ids is not None:
        parts.append(both(at_least("id", wanted.ids[0]), at_most("id", wanted.ids[1])))
    return TRUE if not parts else parts[0] if len(parts) == 1 else both(*parts)


@dataclass
class Wire:
    """Encodes changes as JSON."""

    table: Table
    ids: dict[int, int] = field(default_factory=dict)
    """Snapshot ids by the model's numbers."""

    def data(self, file: Data) -> Json:
        return self.table.data(file.name, file.bucket, rows=len(file.rows), ids=file.span)

    def delete(self, delete: Delete) -> Json:
        if delete.is_equality:
            return self.table.equality_deletes(delete.name, delete.bucket, rows=len(delete.values))
        target = self.table.data(str(delete.target), delete.bucket)
        rows = len(delete.values)
        if self.table.version == 3:
            return self.table.vector(delete.name, target, rows=rows)
        return self.table.position_deletes(delete.name, target, refer=delete.refers, rows=rows)

    def delete_name(self, name: str, writer: Writer) -> Any:
        declared = self.delete(writer.deletes[name])
        if "content-offset" in declared:
            return {"file-path": declared["file-path"], "content-offset": 4}
        return declared["file-path"]

    def clause(self, clause: Clause, writer: Writer) -> Json:
        sent: Json = {"type": clause.kind}
        if clause.kind == "required-delete-files":
            return sent | {"file-paths": [self.delete_name(p, writer) for p in clause.paths]}
        if clause.paths:
            sent["file-paths"] = [self.table.data_path(path) for path in clause.paths]
        else:
            sent["filter"] = filter_json(clause.filter)
        if clause.allowed:
            sent["allowed-remove-operations"] = sorted(clause.allowed)
        return sent

    def update(self, change: Change, writer: Writer) -> Json:
        model = writer.model
        if change.pick is not None:
            picked = {"action": "cherry-pick", "snapshot-id": self.ids[change.pick]}
            return picked if change.branch == MAIN else picked | {"branch": change.branch}
        sent: Json = {
            "action": change.action,
            "add-data-files": [self.data(file) for file in change.add],
            "add-delete-files": [self.delete(delete) for delete in change.add_deletes],
            "remove-data-files": [self.table.data_path(name) for name in change.remove],
            "remove-delete-files": [self.delete_name(n, writer) for n in change.remove_deletes],
            "commit-validations": [self.clause(clause, writer) for clause in change.clauses],
        }
        sent = {name: value for name, value in sent.items() if value}
        if change.branch != MAIN:
            sent["branch"] = change.branch
        if change.stage:
            sent["stage-only"] = True
        if change.row_filter is not None:
            sent["delete-row-filter"] = filter_json(change.row_filter)
        if change.replace_partitions:
            sent["replace-partitions"] = True
        if change.base is not None:
            sent["base-snapshot-id"] = self.ids[change.base]
            if change.keep_time:
                sent["data-sequence-number"] = model.snapshots[change.base].time
        return sent


# --- what a reader sees ---------------------------------------------------------------------------


def visible(table: Table, tree: Tree, writer: Writer) -> dict[str, list[int]]:
    """Return the rows of a committed tree by the rules of scan planning, from the entries on
    disk."""
    found = {}
    live = tree.live.values()
    for entry in live:
        if not entry.is_data:
            continue
        name = table.short(entry.file_path)
        file = writer.files[name]
        deleted: set[int] = set()
        for delete in live:
            if not delete.is_data and applies(delete, entry):
                known = writer.deletes[table.short(delete.file_path)]
                if known.is_equality or known.target == name:
                    deleted |= known.deletes(file)
        found[name] = [row for at, row in enumerate(file.rows) if at not in deleted]
    return found


def applies(delete: Entry, data: Entry) -> bool:
    if delete.partition != data.partition:
        return False
    number, older = delete.sequence_number or 0, data.sequence_number or 0
    if delete.content == EQUALITY_DELETES:
        return number > older
    wanted = delete.referenced_data_file
    return number >= older and (wanted is None or wanted == data.file_path)


STEPS = st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=20)
EXAMPLES = settings.get_profile(settings.get_current_profile_name()).max_examples // 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", [1, 2, 3])
@settings(max_examples=EXAMPLES)
@given(steps=STEPS, merge_from=st.sampled_from([2, 3, 100]))
def test_the_catalog_agrees_with_the_model(
    world: World, new_table: TableFactory, version: int, steps: list[int], merge_from: int
) -> None:
    """The result does not depend on when manifests are merged."""
    properties = {"commit.manifest.min-count-to-merge": str(merge_from)}
    table = new_table(version=version, properties=properties)
    run = Run(table, world)
    for seed in steps:
        run.step(Picks(seed))


class Run:
    """One history with the table, the model and the writers."""

    def __init__(self, table: Table, world: World) -> None:
        self.table = table
        self.wire = Wire(table)
        self.writer = Writer(Model(has_deletes=table.version > 1, has_vectors=table.version == 3))
        self.driver = Driver(world.catalog, world.database, world.warehouse)

    @property
    def model(self) -> Model:
        return self.writer.model

    def step(self, picks: Picks) -> None:
        """Commit one change, several changes in one request, or several requests in one group."""
        kind = picks.one(["one", "one", "one", "together", "group"])
        changes = [self._wanted(picks, at) for at in range(1 if kind == "one" else 3)]
        wanted = [change for change in changes if change is not None]
        if not wanted:
            return
        if kind == "group":
            self._as_group(wanted)
        else:
            self._as_request(wanted)

    def _wanted(self, picks: Picks, at: int) -> Change | None:
        change = self.writer.change(picks)
        if change is None:
            return None
        if self.table.version == 1 and (change.add_deletes or change.remove_deletes):
            return None
        # The catalog may or may not have dropped delete files that earlier changes left unused.
        unsure = change.remove_deletes and change.action == "delete"
        unsure = unsure or any(c.kind == "required-delete-files" for c in change.clauses)
        return None if at and unsure else change

    # --- requests ---------------------------------------------------------------------------------

    def _as_request(self, changes: Sequence[Change]) -> None:
        updates = [self.wire.update(change, self.writer) for change in changes]
        before, after, heads = self.model, self.model.copy(), dict(self.model.heads)
        made = []
        answer = self.table.post(*updates)
        for index, change in enumerate(changes):
            conflicts = after.conflicts(change, heads)
            if conflicts:
                check_refusal(self.table, answer, conflicts, index)
                return
            made.append(after.commit(change))
        assert answer.status == 200, (changes, answer.body)
        self.table.branch = changes[-1].branch
        self.table.accept(answer)
        self.writer.model = after
        self._check_all(answer.body["committed"], made)
        if len(changes) == 1:
            check_rewrite(changes[0], before, made[0])

    def _as_group(self, changes: Sequence[Change]) -> None:
        """Commit each change as a request of one group, judged on the state after the previous
        ones."""
        identifier = f"{self.table.namespace}.{self.table.name}"
        updates = [self.wire.update(change, self.writer) for change in changes]
        with self.driver.catalog._queues.holding([name(identifier)]):
            futures = [self.driver.submit(identifier, [update]) for update in updates]
        outcomes = [(future.exception(TIMEOUT_S), future) for future in futures]
        self.table.load()
        for change, (error, future) in zip(changes, outcomes, strict=True):
            conflicts = self.model.conflicts(change)
            if conflicts:
                assert isinstance(error, FrazilError), (change, conflicts, "was not refused")
                check_refusal(self.table, Answer(error.status, {}, error.body()), conflicts, 0)
                continue
            assert error is None, (change, error)
            before, snapshot = self.model.copy(), self.model.commit(change)
            made = committed(table_answer(future.result()))
            check_tree(self.table.metadata, made[0]["snapshot-id"])
            self._check_all(made, [snapshot])
            check_rewrite(change, before, snapshot)

    def _check_all(self, answered: Sequence[Json], made: Sequence[Snapshot]) -> None:
        for told, snapshot in zip(answered, made, strict=True):
            self.wire.ids[snapshot.number] = told["snapshot-id"]
            assert told["operation"] == snapshot.operation
            check_tree_of(self.table, told["snapshot-id"], snapshot, self.writer)


def check_rewrite(change: Change, before: Model, snapshot: Snapshot) -> None:
    head = before.head(change.branch)
    if head is not None and is_safe_rewrite(change, before.since(head, change.base)):
        assert all_rows(snapshot) == all_rows(head), "a safe rewrite has changed the rows"


def is_safe_rewrite(change: Change, history: Sequence[Snapshot]) -> bool:
    """Return whether the change is a rewrite with the clauses that Java always sends. These
    clauses do not detect rows that were restored since the base by removing delete files."""
    asked = {clause.kind for clause in change.clauses if clause.paths == change.remove}
    return (
        change.action == "replace"
        and asked == {"required-data-files", FOR_FILES}
        and not any(snapshot.removed_deletes for snapshot in history)
    )


def check_refusal(table: Table, answer: Answer, wanted: dict[str, set[str]], index: int) -> None:
    assert answer.status == 409, (wanted, "was not refused")
    error = answer.body["error"]
    assert error["type"] == "ValidationException"
    conflicts = error["conflicts"]
    assert {found["update"] for found in conflicts} == {index}
    assert {found["clause"] for found in conflicts} <= wanted.keys(), (wanted, conflicts)
    for found in conflicts:
        names = {table.short(file["file-path"]) for file in found["files"]}
        allowed = wanted[found["clause"]]
        if found["clause"] not in FOR_PEOPLE:
            assert names <= allowed, (found, wanted)
            assert names


def check_tree_of(table: Table, snapshot_id: int, snapshot: Snapshot, writer: Writer) -> None:
    tree = read_tree(table.metadata, snapshot_id)
    assert visible(table, tree, writer) == snapshot.visible()
    live = {table.short(path) for path, _ in tree.live}
    in_use = {n for n, delete in snapshot.deletes.items() if snapshot.in_use(delete)}
    assert set(snapshot.data) | in_use <= live <= set(snapshot.data) | set(snapshot.deletes)
    if table.version > 1:
        for entry in tree.live.values():
            name = table.short(entry.file_path)
            known = snapshot.data[name] if entry.is_data else snapshot.deletes[name]
            assert entry.sequence_number == known.time, name


def all_rows(snapshot: Snapshot) -> list[int]:
    return sorted(row for rows in snapshot.visible().values() for row in rows)
