"""Draws a history from a seed: first the table, then each step from the current state.

The state is the oracle's. It is deterministic, so a seed always gives the same history. Most
steps are sensible. Some are planned on an older snapshot, name files that are already removed,
or conflict with commits made in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from tests.oracle.commits.cases import MAIN, Doc, SpecField, Step, Table
from tests.oracle.commits.states import Entry, State
from tests.oracle.commits.synthetic import (
    Files,
    Row,
    covering_filter,
    draw_filter,
    draw_row,
    draw_spec,
    partition_of,
)

STEPS: Final = 12
BRANCH: Final = "audit"

_PROPERTIES: Final[tuple[dict[str, str], ...]] = (
    {"commit.manifest-merge.enabled": "false"},
    {"commit.manifest.min-count-to-merge": "2"},
    {"commit.manifest.min-count-to-merge": "4"},
    {"commit.manifest.min-count-to-merge": "2", "commit.manifest.target-size-bytes": "16000"},
    {},
)


class Draws:
    """Draws the steps of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._parts: dict[str, SpecField] = {}
        spec = draw_spec(self.random, self._parts)
        properties = dict(self.random.choice(_PROPERTIES))
        if self.random.random() < 0.2:
            properties["write.summary.partition-limit"] = str(self.random.choice((1, 2, 10)))
        if self.random.random() < 0.2:
            properties["frazil.commit.ignore-missing-removals"] = "true"
        version = self.random.choice((1, 2, 2, 2, 3, 3, 3))
        self.table = Table(version, spec, properties)
        self._specs: dict[int, tuple[SpecField, ...]] = {0: spec}
        nulls, poor = self.random.choice((0.06, 0.06, 0.3)), self.random.choice((0.1, 0.1, 0.5))
        self._files = Files(self.random, "", nulls, poor)
        self._state: State
        self._wap_ids = 0

    def steps(self) -> int:
        return self.random.randint(STEPS - 4, STEPS + 2)

    def crossing(self) -> int | None:
        """Return the step before which the sides exchange their trees, if the history has one."""
        return self.random.randint(3, STEPS - 4) if self._chance(0.25) else None

    def at(self, location: str) -> None:
        """Set the table's location, because files are placed in the table's folder."""
        self._files.location = location

    def next(self, state: State) -> Step:
        """Draw the next step for a table in this state."""
        self._state = state
        if len(state.snapshots) < 2:
            return self._append()
        draws = self._weights()
        while True:
            drawn = self.random.choices(list(draws), list(draws.values()))[0]()
            if drawn is not None:
                return drawn

    def _weights(self) -> dict[Callable[[], Step | None], int]:
        has_deletes = self._state.format_version > 1
        return {
            self._append: 16,
            self._delete: 14,
            self._overwrite: 20,
            self._row_delta: 28 if has_deletes else 6,
            self._rewrite: 12,
            self._rewrite_deletes: 6 if has_deletes else 0,
            self._replace_partitions: 9,
            self._cherry_pick: 4,
            self._metadata: 8,
            self._transaction: 4,
        }

    # --- what a step is made of -------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _branch(self) -> str:
        return BRANCH if self._chance(0.12 if BRANCH not in self._state.refs else 0.25) else MAIN

    def _base(self, branch: str, *, may_be_none: bool = True) -> int | None:
        """Draw the step's base: mostly the head or a recent ancestor."""
        ancestors = self._state.ancestors(self._state.head(branch))
        drawn = self.random.random()
        if not ancestors or (drawn < 0.06 and may_be_none):
            return None
        if drawn < 0.09:
            return self.random.choice(sorted(self._state.snapshots))
        if drawn < 0.45:
            return ancestors[0]
        return self.random.choice(ancestors[: self.random.choice((2, 4, 99))])

    def _calls(self, *names: str) -> frozenset[str]:
        return frozenset(name for name in names if self._chance(0.5))

    def _spec(self) -> tuple[int, tuple[SpecField, ...]]:
        """Draw a spec: mostly the default spec, otherwise one that the table had."""
        spec_id = self._state.default_spec_id
        if self._chance(0.15):
            spec_id = self.random.choice(sorted(self._specs))
        return spec_id, self._specs[spec_id]

    def _new_files(self, most: int, least: int = 1) -> tuple[Doc, ...]:
        made = []
        for _ in range(self.random.randint(least, most)):
            spec_id, spec = self._spec()
            like = self._some(self._state.live(MAIN), 1) if self._chance(0.4) else []
            partition = None
            if like and like[0].is_data and like[0].spec_id == spec_id:
                partition = partition_of(spec, self._files.rows[like[0].path][0])
            made.append(self._files.data_file(spec_id, spec, partition))
        return tuple(made)

    def _some(self, entries: Sequence[Entry], most: int) -> list[Entry]:
        return self.random.sample(entries, min(len(entries), most))

    def _live_data(self, branch: str, base: int | None) -> list[Entry]:
        """Return data files that a step could name; those of its base may no longer be live."""
        return [entry for entry in self._live(branch, base) if entry.is_data]

    def _live_deletes(self, branch: str, base: int | None) -> list[Entry]:
        return [entry for entry in self._live(branch, base) if not entry.is_data]

    def _live(self, branch: str, base: int | None) -> list[Entry]:
        if base is not None and base in self._state.snapshots and self._chance(0.2):
            found = {entry.key: entry for entry in self._state.snapshots[base].live()}
            return [found[key] for key in sorted(found, key=lambda key: (key[0], key[1] or 0))]
        return self._state.live(branch)

    def _doc(self, entry: Entry) -> Doc:
        return self._files.docs[entry.key]

    def _rows(self, entries: Iterable[Entry]) -> list[Row]:
        return [row for entry in entries for row in self._files.rows.get(entry.path, [])]

    def _filter(self, entries: Sequence[Entry]) -> Any:
        rows = self._rows(entries)
        if rows and self._chance(0.3):
            return covering_filter(self.random, rows)
        return draw_filter(self.random, rows)

    def _summary(self) -> dict[str, str]:
        return {"tester": str(self.random.randrange(9))} if self._chance(0.1) else {}

    # --- steps ------------------------------------------------------------------------------

    def _append(self) -> Step:
        branch = self._branch()
        docs = self._new_files(3)
        if self._chance(0.03):
            gone = [doc for doc in self._files.docs.values() if doc["content"] == "data"]
            docs = (*docs, self.random.choice(gone[: -len(docs)] or [docs[0]]))
            docs = tuple({doc["file-path"]: doc for doc in docs}.values())
        return self._staged(
            Step(kind="append", branch=branch, add_data=docs, summary=self._summary())
        )

    def _staged(self, step: Step) -> Step:
        if not self._chance(0.12) or step.branch != MAIN:
            return step
        summary = dict(step.summary)
        if self._chance(0.5):
            self._wap_ids += self.random.choice((0, 1))
            summary["wap.id"] = f"wap-{self._wap_ids}"
        return replace(step, stage_only=True, summary=summary)

    def _delete(self) -> Step | None:
        branch = self._branch()
        live = self._live_data(branch, self._base(branch))
        named = self._some(live, 2) if self._chance(0.55) else []
        row_filter = None
        if not named or self._chance(0.12):
            targets = self._some(live, self.random.choice((1, 2, 9)))
            rows = self._rows(targets)
            covering = bool(rows) and self._chance(0.65)
            row_filter = covering_filter(self.random, rows) if covering else self._filter(targets)
        calls = self._calls("validateFilesExist") if named else frozenset[str]()
        return Step(
            kind="delete",
            branch=branch,
            remove_data=tuple(entry.path for entry in named),
            row_filter=row_filter,
            calls=calls,
            summary=self._summary(),
        )

    def _overwrite(self) -> Step:
        branch = self._branch()
        base = self._base(branch)
        live = self._live_data(branch, base)
        named = self._some(live, 2) if self._chance(0.6) else []
        row_filter = None
        if not named or self._chance(0.15):
            targets = self._some(live, self.random.choice((1, 2, 9)))
            rows = self._rows(targets)
            covering = bool(rows) and self._chance(0.75)
            row_filter = covering_filter(self.random, rows) if covering else self._filter(targets)
        deletes = self._live_deletes(branch, base) if named and self._chance(0.2) else []
        step = Step(
            kind="overwrite",
            branch=branch,
            base=base,
            add_data=self._new_files(2, 0),
            remove_data=tuple(entry.path for entry in named),
            remove_deletes=tuple(entry.key for entry in self._some(deletes, 1)),
            row_filter=row_filter,
            conflict_filter=self._filter(live) if self._chance(0.5) else None,
            calls=self._calls("validateNoConflictingData", "validateNoConflictingDeletes"),
            summary=self._summary(),
        )
        return self._staged(self._in_upper_case(step))

    def _in_upper_case(self, step: Step) -> Step:
        """Return the step with column names that match the table's only if case is ignored."""
        if not self._chance(0.08):
            return step
        return replace(
            step,
            row_filter=_upper(step.row_filter),
            conflict_filter=_upper(step.conflict_filter),
            case_sensitive=False,
        )

    def _row_delta(self) -> Step | None:
        branch = self._branch()
        base = self._base(branch)
        live = self._live_data(branch, base)
        targets = self._some(live, 2)
        add_deletes, removed_deletes = self._new_deletes(branch, targets)
        removed = self._some(live, 1) if self._chance(0.2) else []
        if removed and removed[0] in targets and not self._chance(0.2):
            removed = []
        if self._chance(0.12):
            removed_deletes += tuple(
                entry.key
                for entry in self._some(self._live_deletes(branch, base), 1)
                if entry.key not in removed_deletes
            )
        step = Step(
            kind="row-delta",
            branch=branch,
            base=base,
            add_data=self._new_files(2, 0) if self._chance(0.5) else (),
            add_deletes=add_deletes,
            remove_data=tuple(entry.path for entry in removed),
            remove_deletes=removed_deletes,
            conflict_filter=self._filter(targets or live) if self._chance(0.5) else None,
            referenced=self._referenced(targets, removed),
            calls=self._calls(
                "validateDeletedFiles",
                "validateNoConflictingDataFiles",
                "validateNoConflictingDeleteFiles",
            ),
            summary=self._summary(),
        )
        changes = step.add_data or step.add_deletes or step.remove_data or step.remove_deletes
        return step if changes else None

    def _referenced(self, targets: list[Entry], removed: list[Entry]) -> tuple[str, ...]:
        """Draw the files that must still exist: mostly none that the step itself removes."""
        if self._chance(0.4):
            return ()
        if self._chance(0.9):
            targets = [entry for entry in targets if entry not in removed]
        paths = [entry.path for entry in targets]
        if self._chance(0.04):
            known = self.random.choice(sorted(self._files.rows))
            paths += [known] if known not in paths else []
        return tuple(paths)

    def _new_deletes(
        self, branch: str, targets: list[Entry]
    ) -> tuple[tuple[Doc, ...], tuple[tuple[str, int | None], ...]]:
        """Draw delete files for some data files, and the vectors that new vectors replace."""
        if self._state.format_version == 1 or not targets:
            return (), ()
        made: list[Doc] = []
        removed: list[tuple[str, int | None]] = []
        if self._chance(0.4):
            made.append(self._equality_deletes(targets))
        if not made or self._chance(0.5):
            docs = [self._doc(target) for target in targets]
            if self._state.format_version == 2:
                made += [self._files.position_deletes(doc) for doc in docs[:1]]
            else:
                vectors = self._files.deletion_vectors(docs)
                made += vectors
                if not self._chance(0.1):
                    removed += self._vectors_of({doc["file-path"] for doc in docs}, branch)
        return tuple(made), tuple(removed)

    def _equality_deletes(self, targets: list[Entry]) -> Doc:
        rows = self._rows(targets)
        wanted = [row for row in rows if self._chance(0.7)] or [draw_row(self.random)]
        unpartitioned = [spec_id for spec_id, spec in self._specs.items() if not spec]
        doc = self._doc(targets[0])
        if unpartitioned and self._chance(0.3):
            return self._files.equality_deletes(unpartitioned[0], (), wanted)
        return self._files.equality_deletes(doc["spec-id"], doc["partition"], wanted)

    def _vectors_of(self, paths: set[str], branch: str) -> list[tuple[str, int | None]]:
        return [
            entry.key
            for entry in self._state.live(branch)
            if entry.content_offset is not None
            and self._doc(entry)["referenced-data-file"] in paths
        ]

    def _rewrite(self) -> Step | None:
        branch = self._branch()
        base = self._base(branch)
        live = self._live_data(branch, base)
        if not live:
            return None
        first = self.random.choice(live)
        like = [self._doc(first)["partition"], first.spec_id]
        alike = [e for e in live if [self._doc(e)["partition"], e.spec_id] == like]
        replaced = [first, *self._some([entry for entry in alike if entry != first], 1)]
        added: tuple[Doc, ...] = ()
        if self._chance(0.93):
            spec_id, spec = self._spec()
            added = (self._files.copy_of([self._doc(e) for e in replaced], spec_id, spec),)
        if self._chance(0.05):
            added = (*added, *self._new_files(2))
        number = None
        if base is not None and self._state.format_version > 1 and self._chance(0.4):
            number = self._state.snapshots[base].sequence_number
        removed_deletes: tuple[tuple[str, int | None], ...] = ()
        if self._chance(0.4):
            removed_deletes = tuple(self._vectors_of({e.path for e in replaced}, branch))
        return Step(
            kind="rewrite",
            branch=branch,
            base=base,
            add_data=added,
            remove_data=tuple(entry.path for entry in replaced),
            remove_deletes=removed_deletes,
            data_sequence_number=number,
        )

    def _rewrite_deletes(self) -> Step | None:
        branch = self._branch()
        base = self._base(branch)
        deletes = self._live_deletes(branch, base)
        by_position = [e for e in deletes if e.content == "position_deletes"]
        data = {entry.path: entry for entry in self._state.live(branch) if entry.is_data}
        if not deletes:
            return None
        if not by_position or self._chance(0.3):
            removed = self._some(deletes, 1)
            return Step(
                kind="rewrite",
                branch=branch,
                base=base,
                remove_deletes=tuple(entry.key for entry in removed),
            )
        old = self.random.choice(by_position)
        target = data.get(self._doc(old).get("referenced-data-file", ""))
        if target is None:
            return None
        doc = self._doc(target)
        version = self._state.format_version
        new = (
            [self._files.position_deletes(doc)]
            if version == 2
            else self._files.deletion_vectors([doc])
        )
        return Step(
            kind="rewrite",
            branch=branch,
            base=base,
            add_deletes=tuple(new),
            remove_deletes=(old.key,),
        )

    def _replace_partitions(self) -> Step:
        branch = self._branch()
        base = self._base(branch)
        spec_id, spec = self._spec()
        docs = [self._files.data_file(spec_id, spec) for _ in range(self.random.randint(1, 2))]
        live = [entry for entry in self._state.live(branch) if entry.is_data]
        like = [entry for entry in live if entry.spec_id == spec_id]
        if like and self._chance(0.6):
            row = self._files.rows[self.random.choice(like).path][0]
            docs.append(self._files.data_file(spec_id, spec, partition_of(spec, row)))
        return self._staged(
            Step(
                kind="replace-partitions",
                branch=branch,
                base=base,
                add_data=tuple(docs),
                calls=self._calls("validateNoConflictingData", "validateNoConflictingDeletes"),
                summary=self._summary(),
            )
        )

    def _cherry_pick(self) -> Step | None:
        reachable = {
            step for _, head in self._state.refs.values() for step in self._state.ancestors(head)
        }
        staged = sorted(self._state.snapshots.keys() - reachable)
        if self._chance(0.1):
            staged = sorted(self._state.snapshots)
        if not staged:
            return None
        return Step(kind="cherry-pick", snapshot=self.random.choice(staged))

    def _transaction(self) -> Step | None:
        """Draw several operations for one commit that do not affect each other.

        Validations are left out: Java's see the snapshots of their own transaction, ours do not.
        """
        live = [entry for entry in self._state.live(MAIN) if entry.is_data]
        named = self.random.sample(live, min(len(live), 3))
        parts = [Step(kind="append", add_data=self._new_files(2))]
        if named:
            parts.append(Step(kind="delete", remove_data=(named[0].path,)))
        if len(named) > 1:
            parts.append(
                Step(
                    kind="overwrite",
                    add_data=self._new_files(2),
                    remove_data=(named[1].path,),
                )
            )
        if len(named) > 2:
            spec_id, spec = self._spec()
            copy = self._files.copy_of([self._doc(named[2])], spec_id, spec)
            parts.append(Step(kind="rewrite", add_data=(copy,), remove_data=(named[2].path,)))
        self.random.shuffle(parts)
        return Step(kind="transaction", together=tuple(parts[: self.random.randint(2, 4)]))

    # --- the table itself -------------------------------------------------------------------

    def _metadata(self) -> Step | None:
        draw = self.random.choice(
            (self._new_spec, self._new_spec, self._upgrade, self._move, self._expire)
        )
        return draw()

    def _new_spec(self) -> Step | None:
        spec = draw_spec(self.random, self._parts)
        if self._state.format_version == 1:
            return None
        spec_id = next((number for number, old in self._specs.items() if old == spec), None)
        if spec_id is not None:
            default = {"action": "set-default-spec", "spec-id": spec_id}
            return Step(kind="metadata", updates=(default,))
        spec_id = max(self._specs) + 1
        self._specs[spec_id] = spec
        fields = [part.json() for part in spec]
        return Step(
            kind="metadata",
            updates=(
                {"action": "add-spec", "spec": {"spec-id": spec_id, "fields": fields}},
                {"action": "set-default-spec", "spec-id": -1},
            ),
        )

    def _upgrade(self) -> Step | None:
        if self._state.format_version == 3:
            return None
        version = self._state.format_version + 1
        update = {"action": "upgrade-format-version", "format-version": version}
        return Step(kind="metadata", updates=(update,))

    def _move(self) -> Step | None:
        """Draw a rollback of main, or a step that creates or moves the other branch."""
        name = self.random.choice((MAIN, BRANCH))
        ancestors = self._state.ancestors(self._state.head(MAIN))
        if not ancestors:
            return None
        return Step(
            kind="metadata",
            updates=(
                {
                    "action": "set-snapshot-ref",
                    "ref-name": name,
                    "type": "branch",
                    "snapshot-id": {"step": self.random.choice(ancestors)},
                },
            ),
        )

    def _expire(self) -> Step | None:
        heads = {head for _, head in self._state.refs.values()}
        others = sorted(self._state.snapshots.keys() - heads)
        if not others:
            return None
        update = {
            "action": "remove-snapshots",
            "snapshot-ids": [{"step": self.random.choice(others)}],
        }
        return Step(kind="metadata", updates=(update,))


def _upper(document: Any) -> Any:
    """Return the filter with column names in upper case."""
    if not isinstance(document, dict):
        return document
    return {
        key: value.upper() if key == "term" and isinstance(value, str) else _upper(value)
        for key, value in document.items()
    }
