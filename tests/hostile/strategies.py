"""Random commit bodies. Most of each body is valid, because a fully random one fails at the
first check."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.hostile.bodies import (
    REQUIREMENTS,
    UPDATES,
    VIEW_REQUIREMENTS,
    VIEW_UPDATES,
    number,
    paths,
    replaced,
    without,
)

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    "",
    "x",
    "main",
    "\x00",
    "😀" * 300,
    "file:///etc/passwd",
    "@location/../other",
    -1,
    0,
    1,
    2,
    3,
    2**31 - 1,
    2**31,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    number("-0"),
    number("1.0"),
    number("1e400"),
    number("1e99999999999999999999"),
    number("9" * 400),
    0.5,
    [],
    [1, 1],
    [None],
    {},
    {"a": 1},
    [[[[[[[[]]]]]]]],
    "struct",
    "decimal(39, 50)",
    "fixed[99999999999999999999]",
    "bucket[0]",
    "truncate[-5]",
    "timestamptz_ns",
    "unknown",
    "variant",
)


@st.composite
def spoiled(draw: st.DrawFn, example: Any) -> Any:
    """Return an example with one or two values replaced, removed or added."""
    body = example
    for _ in range(draw(st.integers(1, 2))):
        places = list(paths(body))
        if not places:
            break
        place = draw(st.sampled_from(places))
        how = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if how == "remove":
            body = without(body, place)
        elif how == "add" and isinstance(place[-1], str):
            body = replaced(body, (*place[:-1], "frobnicate"), draw(st.sampled_from(HOSTILE)))
        else:
            body = replaced(body, place, draw(st.sampled_from(HOSTILE)))
    return body


def _commits(
    updates: tuple[dict[str, Any], ...], requirements: tuple[dict[str, Any], ...]
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw commits: half of them fully valid in form, half with something spoiled."""
    valid = st.fixed_dictionaries(
        {
            "requirements": st.lists(st.sampled_from(requirements), max_size=2),
            "updates": st.lists(st.sampled_from(updates), min_size=1, max_size=5),
        }
    )
    return valid | valid.flatmap(spoiled)


table_commits = _commits(UPDATES, REQUIREMENTS)
view_commits = _commits(VIEW_UPDATES, VIEW_REQUIREMENTS)


def one_of_each(updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return a commit for each update alone, and one for each requirement alone."""
    return [
        *({"requirements": [], "updates": [update]} for update in updates),
        *({"requirements": [requirement], "updates": []} for requirement in requirements),
    ]
