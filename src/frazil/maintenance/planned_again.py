"""Commits the rewrite of delete files, and plans it again if other commits change its files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from frazil.client.rows.write_folders import Write
from frazil.wire.errors import ValidationError

_MAX_ROUNDS: Final = 20
_OTHERS_CHANGED_FILES: Final = frozenset(
    {"required-data-files", "required-delete-files", "removed-file-not-live", "dv-conflict"}
)

P = TypeVar("P")
R = TypeVar("R")


def until_committed(
    write: Write, plan: P, commit: Callable[[P], R], plan_again: Callable[[], P | None]
) -> R | None:
    """Commit a plan, or plans for newer heads. Return None if nothing is left to do."""
    for number in range(1, _MAX_ROUNDS + 1):
        try:
            return commit(plan)
        except ValidationError as refused:
            clauses = {conflict["clause"] for conflict in refused.conflicts}
            if not clauses <= _OTHERS_CHANGED_FILES or number == _MAX_ROUNDS:
                raise
        newer = plan_again()
        if newer is None:
            write.fail()
            return None
        plan = newer
    raise AssertionError("unreachable: the loop ends by returning or raising")
