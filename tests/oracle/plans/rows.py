"""Checks a plan by brute force, against the rows of every file.

This check needs no oracle. A plan is right under three conditions. It includes every file with a
matching row. In every planned file the residual separates the matching rows from the others.
Every delete file that deletes a matching row is attached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from frazil.values.single_value import from_json
from frazil.values.transforms import parse_transform
from tests.oracle.plans.columns import Leaf
from tests.oracle.plans.files import DataFile, DeleteFile, Doc
from tests.oracle.plans.predicates import ColumnTest, Constant, Junction, Negation, Predicate
from tests.oracle.plans.tables import PlannedTable, Version


def parsed(expression: Any, leaves: Sequence[Leaf]) -> Predicate:
    """Parse an expression as our planner writes it."""
    if isinstance(expression, bool):
        return Constant(expression)
    kind = expression["type"]
    if kind in ("and", "or"):
        left, right = parsed(expression["left"], leaves), parsed(expression["right"], leaves)
        return Junction(kind, left, right)
    if kind == "not":
        return Negation(parsed(expression["child"], leaves))
    term, transform = expression["term"], None
    if isinstance(term, dict):
        term, transform = term["term"], term["transform"]
    (leaf,) = (leaf for leaf in leaves if leaf.name == term)
    type_ = leaf.type
    if transform is not None:
        type_ = parse_transform(transform).result_type(type_)
    values = expression.get("values", [expression["value"]] if "value" in expression else [])
    internal = tuple(from_json(type_, value) for value in values)
    return ColumnTest(kind, leaf, transform, internal, tuple(values), term)


def problems(
    table: PlannedTable, scan: Doc, predicate: Predicate, leaves: Sequence[Leaf], answer: Doc
) -> Iterator[str]:
    """Return what is wrong with an answer; its residuals are as the planner wrote them."""
    if "error" in answer or not predicate.is_plain:
        return
    files, deletes = _content(table, scan)
    planned = {task["path"]: task for task in answer["tasks"]}
    for path in planned.keys() - {file.path for file, _ in files}:
        yield f"{path} is planned but not live"
    for file, number in files:
        matching = [at for at, row in enumerate(file.rows) if predicate.matches(row)]
        task = planned.get(file.path)
        if task is None:
            if matching:
                row = file.rows[matching[0]]
                yield f"{file.path} is not planned, but its row {matching[0]} matches: {row}"
            continue
        residual = parsed(task["residual"], leaves)
        for at, row in enumerate(file.rows):
            if residual.matches(row) != (at in matching):
                yield f"{file.path}: the residual {task['residual']} is wrong for row {at}: {row}"
        yield from _missing_deletes(file, number, matching, task, deletes)


def _content(
    table: PlannedTable, scan: Doc
) -> tuple[list[tuple[DataFile, int]], list[tuple[DeleteFile, int]]]:
    end = scan.get("end-snapshot-id")
    if end is None:
        chosen = scan.get("snapshot-id")
        version = table.current if chosen is None else table.versions[chosen]
        if version is None:
            return [], []
        return list(version.data.values()), list(version.deletes.values())
    files = []
    version = table.versions.get(end)
    while version is not None and version.snapshot_id != scan.get("start-snapshot-id"):
        if version.operation == "append":
            files += [version.data[path] for path in sorted(version.added)]
        version = _parent(table, version)
    return files, []


def _parent(table: PlannedTable, version: Version) -> Version | None:
    return None if version.parent_id is None else table.versions[version.parent_id]


def _missing_deletes(
    file: DataFile,
    number: int,
    matching: Sequence[int],
    task: Doc,
    deletes: Sequence[tuple[DeleteFile, int]],
) -> Iterator[str]:
    attached = {(path, offset) for path, offset in task["deletes"]}
    applying = [
        delete
        for delete, own in deletes
        if (own > number if delete.kind == "equality" else own >= number)
    ]
    # A vector replaces all older position deletes of its data file (spec, "Deletion Vectors"), so a
    # plan omits those.
    has_vector = any(
        delete.kind == "vector" and any(path == file.path for path, _ in delete.positions)
        for delete in applying
    )
    for delete in applying:
        if delete.kind == "position" and has_vector:
            continue
        gone = [at for at in matching if delete.deletes(file, at)]
        if gone and delete.key not in attached:
            yield f"{file.path}: {delete.key} deletes its row {gone[0]} and is not attached"
