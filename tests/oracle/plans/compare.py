"""Compares two plans of one scan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.oracle.plans.files import Doc

PLANNED: Final = "planned"
LEFT_OUT: Final = "left out"


@dataclass(frozen=True)
class Difference:
    kind: str
    """`verdict`, `files`, `twice`, `deletes` or `residual`."""
    oracle: str
    scan: Doc
    what: str
    """The path of the file, if the difference is about a file."""
    other: Any
    own: Any

    def __str__(self) -> str:
        return (
            f"  {self.kind} of {_cut(json.dumps(self.scan))}\n    {self.what}\n"
            f"      {self.oracle}: {_cut(str(self.other))}\n      own: {_cut(str(self.own))}"
        )


def _cut(text: str) -> str:
    """Shorten a text, such as a list of hundreds of literals."""
    return text if len(text) < 900 else f"{text[:500]} ... {text[-300:]}"


def settled(expression: Any, *, case_sensitive: bool = True) -> Any:
    """Normalize a bound expression.

    Ignore the order and nesting of its parts and, in a case-insensitive scan, the case of names.
    """
    if not isinstance(expression, dict):
        return expression
    if not case_sensitive:
        expression = _lower(expression)
    kind = expression["type"]
    if kind in ("and", "or"):
        merged = _merged(kind, list(_parts(kind, expression)))
        parts = {json.dumps(part): part for part in merged}
        found = [parts[text] for text in sorted(parts)]
        return found[0] if len(found) == 1 else {"type": kind, "parts": found}
    if kind in ("in", "not-in"):
        return {**expression, "values": sorted(expression["values"], key=json.dumps)}
    return expression


def _merged(kind: str, parts: list[Any]) -> Iterator[Any]:
    """Merge several tests of the same term into one set, as in `x in (1, 2) or x = 3`."""
    one, many = ("eq", "in") if kind == "or" else ("not-eq", "not-in")
    values: dict[str, list[Any]] = {}
    terms: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, dict) or part["type"] not in (one, many):
            yield part
            continue
        key = json.dumps(part["term"])
        terms[key] = part["term"]
        values.setdefault(key, []).extend(part.get("values", [part.get("value")]))
    for key, found in values.items():
        distinct = {json.dumps(value): value for value in found}
        literals = [distinct[text] for text in sorted(distinct)]
        if len(literals) == 1:
            yield {"type": one, "term": terms[key], "value": literals[0]}
        else:
            yield {"type": many, "term": terms[key], "values": literals}


def _lower(expression: Any) -> Any:
    if not isinstance(expression, dict):
        return expression
    found = {key: _lower(expression[key]) for key in ("left", "right") if key in expression}
    term = expression.get("term")
    if isinstance(term, dict):
        found["term"] = {**term, "term": term["term"].lower()}
    elif term is not None:
        found["term"] = term.lower()
    return {**expression, **found}


def _parts(kind: str, expression: Any) -> Iterator[Any]:
    for side in (expression["left"], expression["right"]):
        if isinstance(side, dict) and side["type"] == kind:
            yield from _parts(kind, side)
        else:
            yield settled(side)


def compare(
    oracle: str, scan: Doc, other: Doc, own: Doc, *, residuals: bool = True, deletes: bool = True
) -> Iterator[Difference]:
    """Return how our answer differs from an oracle's; the residuals of both are bound."""
    if "error" in other or "error" in own:
        if ("error" in other) != ("error" in own) or own["error"] == "crash":
            yield Difference("verdict", oracle, scan, "", _verdict(other), _verdict(own))
        return
    ours = {task["path"]: task for task in own["tasks"]}
    theirs = {task["path"]: task for task in other["tasks"]}
    twice = Counter(task["path"] for task in own["tasks"]) - Counter(ours.keys())
    if twice:
        yield Difference("twice", oracle, scan, "", "", sorted(twice))
    for path in sorted(theirs.keys() - ours.keys()):
        yield Difference("files", oracle, scan, path, PLANNED, LEFT_OUT)
    for path in sorted(ours.keys() - theirs.keys()):
        yield Difference("files", oracle, scan, path, LEFT_OUT, PLANNED)
    for path in sorted(ours.keys() & theirs.keys()):
        yield from _compare_task(oracle, scan, theirs[path], ours[path], residuals, deletes)


def _compare_task(
    oracle: str, scan: Doc, other: Doc, own: Doc, residuals: bool, deletes: bool
) -> Iterator[Difference]:
    path = own["path"]
    if deletes:
        both = [sorted(map(tuple, side["deletes"]), key=str) for side in (other, own)]
        if both[0] != both[1]:
            yield Difference("deletes", oracle, scan, path, *both)
    is_sensitive = scan["case-sensitive"]
    ours, theirs = (settled(side["residual"], case_sensitive=is_sensitive) for side in (own, other))
    if residuals and ours != theirs:
        yield Difference("residual", oracle, scan, path, other["residual"], own["residual"])


def _verdict(answer: Doc) -> str:
    if "error" in answer:
        return f"{answer['error']}: {answer['message']}"
    return f"{len(answer['tasks'])} files"
