"""Each listed difference has a fixed case: what Java does, what we do, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from frazil.values.transforms import apply, parse_transform
from tests.oracle.commits.cases import Doc, SpecField, Step, Table
from tests.oracle.commits.differences import LISTED
from tests.oracle.commits.histories import History, World
from tests.oracle.commits.synthetic import FILE_PATH_ID, TYPES

BY_NAME: Final = (SpecField(2, 1000, "name", "identity"),)
ACCEPTED: Final = "accepted"


@dataclass(frozen=True)
class Files:
    """Creates files in the folder of one table."""

    location: str

    def path(self, name: str) -> str:
        return f"{self.location}/data/{name}.parquet"

    def data(self, name: str, *partition: Any, spec_id: int = 0, **more: Any) -> Doc:
        return self._file(name, "data", partition, spec_id) | _wired(more)

    def position(self, name: str, *partition: Any, **more: Any) -> Doc:
        return self._file(name, "position-deletes", partition, 0) | _wired(more)

    def equality(self, name: str, *partition: Any, **more: Any) -> Doc:
        return self._file(name, "equality-deletes", partition, 0) | _wired(more)

    def vector(self, name: str, target: str, *partition: Any) -> Doc:
        return self._file(name, "position-deletes", partition, 0) | {
            "file-path": f"{self.location}/data/{name}.puffin",
            "file-format": "puffin",
            "content-offset": 4,
            "content-size-in-bytes": 40,
            "referenced-data-file": self.path(target),
        }

    def key(self, name: str) -> tuple[str, int]:
        """Return the path and content offset of the vector with that name."""
        return f"{self.location}/data/{name}.puffin", 4

    def _file(
        self, name: str, content: str, partition: Iterable[Any], spec_id: int
    ) -> dict[str, Any]:
        return {
            "spec-id": spec_id,
            "content": content,
            "file-path": self.path(name),
            "file-format": "parquet",
            "partition": list(partition),
            "file-size-in-bytes": 101,
            "record-count": 1,
        }


def _wired(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in fields.items()}


@dataclass(frozen=True)
class Case:
    """Steps whose last one shows the difference."""

    table: Table
    steps: Callable[[Files], list[Step]]
    java: str
    """The start of Java's message, or `accepted` if it accepts the step."""
    own: frozenset[str] | str
    also: frozenset[str] = field(default_factory=frozenset)
    """Other listed differences that the same steps show."""


def append(*docs: Doc, **more: Any) -> Step:
    return Step(kind="append", add_data=docs, **more)


def dv_against_dv(files: Files) -> list[Step]:
    return [
        append(files.data("a"), files.data("b")),
        Step(kind="row-delta", base=1, add_deletes=(files.vector("one", "a"),)),
        Step(kind="row-delta", base=2, add_deletes=(files.vector("two", "a"),)),
    ]


def required_file_never_seen(files: Files) -> list[Step]:
    deletes = (files.position("p"),)
    return [
        append(files.data("a"), files.data("b")),
        Step(kind="row-delta", base=1, add_deletes=deletes, referenced=(files.path("nowhere"),)),
    ]


def missing_removals(files: Files) -> list[Step]:
    return [
        append(files.data("a"), files.data("b")),
        Step(kind="delete", remove_data=(files.path("a"),)),
        Step(kind="delete", remove_data=(files.path("a"), files.path("b"))),
    ]


def base_not_ancestor(files: Files) -> list[Step]:
    return [
        append(files.data("a")),
        append(files.data("b"), branch="other"),
        append(files.data("c")),
        Step(
            kind="overwrite",
            base=2,
            add_data=(files.data("d"),),
            remove_data=(files.path("a"),),
        ),
    ]


def delete_of_removed_file(files: Files) -> list[Step]:
    named = files.position("p", referenced_data_file=files.path("a"))
    step = Step(kind="row-delta", base=1, add_deletes=(named,), remove_data=(files.path("a"),))
    return [append(files.data("a"), files.data("b")), step]


def unnamed_delete_of_removed_file(files: Files) -> list[Step]:
    return [
        append(files.data("a"), files.data("b")),
        Step(
            kind="row-delta",
            base=1,
            add_deletes=(files.position("p"),),
            remove_data=(files.path("a"),),
            referenced=(files.path("a"),),
        ),
    ]


def history_of_required_files(files: Files) -> list[Step]:
    expire = {"action": "remove-snapshots", "snapshot-ids": [{"step": 1}]}
    return [
        append(files.data("a")),
        append(files.data("b")),
        Step(kind="metadata", updates=(expire,)),
        Step(
            kind="delete",
            remove_data=(files.path("a"),),
            calls=frozenset({"validateFilesExist"}),
        ),
    ]


def left_over_deletes(files: Files) -> list[Step]:
    """The vector of the removed data file is in a partition that Java does not examine."""
    return [
        append(files.data("a", "x")),
        append(files.data("b", "y")),
        Step(kind="row-delta", base=2, add_deletes=(files.vector("one", "a", "x"),)),
        Step(kind="row-delta", base=3, add_deletes=(files.vector("two", "b", "y"),)),
        Step(
            kind="row-delta",
            base=4,
            add_deletes=(files.vector("three", "a", "x"),),
            remove_data=(files.path("b"),),
            remove_deletes=(files.key("one"),),
        ),
    ]


def deletes_of_rewritten_files(files: Files) -> list[Step]:
    """The equality delete applies to the rewritten file as it did to the original."""
    return [
        append(files.data("a")),
        Step(kind="row-delta", base=1, add_deletes=(files.equality("e", equality_ids=[1]),)),
        append(files.data("b")),
        Step(
            kind="rewrite",
            base=1,
            add_data=(files.data("c"),),
            remove_data=(files.path("a"),),
            data_sequence_number=1,
        ),
    ]


def row_delta_operation(files: Files) -> list[Step]:
    return [
        append(files.data("a"), files.data("b")),
        Step(kind="row-delta", base=1, remove_data=(files.path("a"),)),
    ]


def transform_on_identity(files: Files) -> list[Step]:
    term = {"type": "transform", "transform": "bucket[3]", "term": "name"}
    # A bucket other than that of "x", so that the file added after the base does not conflict.
    bucket = (apply(parse_transform("bucket[3]"), TYPES[2], "x") + 1) % 3
    return [
        append(files.data("a", "x")),
        append(files.data("b", "x")),
        Step(
            kind="overwrite",
            base=1,
            remove_data=(files.path("a"),),
            conflict_filter={"type": "eq", "term": term, "value": bucket},
            calls=frozenset({"validateNoConflictingData"}),
        ),
    ]


def order_of_null(files: Files) -> list[Step]:
    """Java removes the file of the null partition, though its rows do not match."""
    return [
        append(files.data("a", None), files.data("b", "b"), files.data("z", "z")),
        Step(kind="delete", row_filter={"type": "lt", "term": "name", "value": "c"}),
    ]


def prefix_of_null(files: Files) -> list[Step]:
    return [
        append(files.data("a", None), files.data("x", "x")),
        Step(kind="delete", row_filter={"type": "starts-with", "term": "name", "value": "x"}),
    ]


def clauses_first(files: Files) -> list[Step]:
    return [
        append(files.data("a"), files.data("b")),
        Step(kind="delete", remove_data=(files.path("a"),)),
        Step(
            kind="delete",
            remove_data=(files.path("a"),),
            row_filter={"type": "eq", "term": "id", "value": 7},
            calls=frozenset({"validateFilesExist"}),
        ),
    ]


def duplicate_file(files: Files) -> list[Step]:
    return [append(files.data("a")), append(files.data("a"))]


def revived_rows(files: Files) -> list[Step]:
    return [
        append(files.data("a"), files.data("b")),
        Step(kind="row-delta", base=1, add_deletes=(files.vector("one", "a"),)),
        Step(kind="rewrite", base=2, add_data=(files.data("c"),), remove_data=(files.path("a"),)),
    ]


def branch_totals(files: Files) -> list[Step]:
    return [append(files.data("a")), append(files.data("b"), branch="other")]


V2, V3 = Table(2), Table(3)
CASES: Final[Mapping[str, Case]] = {
    "dv-against-dv": Case(V3, dv_against_dv, ACCEPTED, frozenset({"dv-conflict"})),
    "required-file-never-seen": Case(
        V2, required_file_never_seen, ACCEPTED, frozenset({"required-data-files"})
    ),
    "missing-removals": Case(V2, missing_removals, ACCEPTED, frozenset({"removed-file-not-live"})),
    "base-not-ancestor": Case(
        V2,
        base_not_ancestor,
        ACCEPTED,
        frozenset({"base-not-ancestor"}),
        frozenset({"branch-totals"}),
    ),
    "delete-of-removed-file": Case(
        V2, delete_of_removed_file, ACCEPTED, frozenset({"required-data-files"})
    ),
    "unnamed-delete-of-removed-file": Case(
        V2, unnamed_delete_of_removed_file, "Cannot delete data files", ACCEPTED
    ),
    "history-of-required-files": Case(
        V2, history_of_required_files, ACCEPTED, frozenset({"required-data-files"})
    ),
    "left-over-deletes": Case(Table(3, BY_NAME), left_over_deletes, ACCEPTED, ACCEPTED),
    "deletes-of-rewritten-files": Case(V2, deletes_of_rewritten_files, ACCEPTED, ACCEPTED),
    "row-delta-operation": Case(V2, row_delta_operation, ACCEPTED, ACCEPTED),
    "transform-on-identity": Case(
        Table(2, BY_NAME), transform_on_identity, "Invalid value for conversion", ACCEPTED
    ),
    "order-of-null": Case(Table(2, BY_NAME), order_of_null, ACCEPTED, ACCEPTED),
    "prefix-of-null": Case(Table(2, BY_NAME), prefix_of_null, "Cannot invoke", ACCEPTED),
    "clauses-first": Case(
        V2, clauses_first, "Cannot delete file where some", frozenset({"required-data-files"})
    ),
    "duplicate-file": Case(V2, duplicate_file, ACCEPTED, frozenset({"duplicate-file"})),
    "revived-rows": Case(V3, revived_rows, ACCEPTED, frozenset({"replace-adds-rows"})),
    "branch-totals": Case(V2, branch_totals, ACCEPTED, ACCEPTED),
}


@pytest.mark.parametrize("name", [item.name for item in LISTED])
def test_differential_listed_difference(world: World, name: str) -> None:
    case = CASES[name]
    history = world.run_steps(case.table, lambda location: case.steps(Files(location)))
    assert not history.unlisted(), history.shown()
    last = history.taken[-1]
    assert name in last.listed, history.shown()
    assert history.listed().keys() <= {name} | case.also, history.shown()
    assert outcome(history) == (case.java, case.own), history.shown()


def outcome(history: History) -> tuple[str, frozenset[str] | str]:
    """Return the verdicts on the last step; Java's is the start of its message."""
    last = history.taken[-1]
    java, own = ACCEPTED, ACCEPTED
    if last.refusal is not None:
        starts = [case.java for case in CASES.values() if case.java != ACCEPTED]
        java = next(
            (start for start in starts if last.refusal.message.startswith(start)),
            last.refusal.message,
        )
    return java, own if last.rejection is None else last.rejection.clauses


def test_differential_every_case_is_listed() -> None:
    assert CASES.keys() == {item.name for item in LISTED}


# --- the same where the difference ends ---------------------------------------------------------


def test_differential_missing_removals_by_property(world: World) -> None:
    """With the table property, our catalog behaves like Java."""
    table = Table(2, properties={"frazil.commit.ignore-missing-removals": "true"})
    history = world.run_steps(table, lambda location: missing_removals(Files(location)))
    assert not history.unlisted(), history.shown()
    assert not history.listed()
    assert history.state is not None
    assert history.state.live("main") == []


def test_differential_delete_files_by_metrics(world: World) -> None:
    """A row filter also removes an equality delete whose keys match it."""
    history = world.run_steps(V2, lambda location: delete_files_by_metrics(Files(location)))
    assert not history.unlisted(), history.shown()
    assert not history.listed()
    assert history.state is not None
    assert [entry.path.rpartition("/")[2] for entry in history.state.live("main")] == ["a.parquet"]


def delete_files_by_metrics(files: Files) -> list[Step]:
    bounds: dict[str, Any] = {
        "value_counts": {"keys": [1], "values": [1]},
        "null_value_counts": {"keys": [1], "values": [0]},
        "lower_bounds": {"keys": [1], "values": ["0700000000000000"]},
        "upper_bounds": {"keys": [1], "values": ["0700000000000000"]},
    }
    others: dict[str, Any] = {
        **bounds,
        "lower_bounds": {"keys": [1], "values": ["0900000000000000"]},
        "upper_bounds": {"keys": [1], "values": ["0900000000000000"]},
    }
    return [
        append(files.data("a", **others)),
        append(files.data("b", **bounds)),
        Step(
            kind="row-delta", base=2, add_deletes=(files.equality("e", equality_ids=[1], **bounds),)
        ),
        Step(kind="delete", row_filter={"type": "eq", "term": "id", "value": 7}),
    ]


def test_differential_named_by_bounds(world: World) -> None:
    """The bounds of the path also identify the data file of a position delete."""

    def steps(files: Files) -> list[Step]:
        path = files.path("a").encode().hex().upper()
        bound = {"keys": [FILE_PATH_ID], "values": [path]}
        named = files.position("p", lower_bounds=bound, upper_bounds=bound)
        return [
            append(files.data("a"), files.data("b")),
            Step(
                kind="row-delta",
                base=1,
                add_deletes=(named,),
                remove_data=(files.path("a"),),
                referenced=(files.path("a"),),
            ),
        ]

    history = world.run_steps(V2, lambda location: steps(Files(location)))
    assert not history.unlisted(), history.shown()
    assert history.taken[-1].rejection is not None
