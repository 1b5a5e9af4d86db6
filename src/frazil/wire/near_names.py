"""Names in error messages: the one that the user probably meant, or all that there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

_MAX_LISTED: Final = 20
_MAX_CHARS: Final = 100


def name_hint(name: str, names: Iterable[str], plural: str) -> str:
    """Return `did you mean 'id'?`, or a list of the names if none is similar."""
    known = list(names)
    near = near_name(name, known)
    if near is not None:
        return f"did you mean {near!r}?"
    others = len(known) - _MAX_LISTED
    more = f" and {others} more" if others > 0 else ""
    return f"the {plural} are {', '.join(known[:_MAX_LISTED])}{more}"


def no_column(name: str, names: Iterable[str]) -> str:
    """Return the message about a column that does not exist."""
    return f"there is no column {name!r}; {name_hint(name, names, 'columns')}"


def near_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar; None if no name is."""
    by_lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name[:_MAX_CHARS].lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None
