"""Commits rewrites of delete files, and plans them again if other commits change their files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from frazil.client.rows.write_folders import Write
from frazil.wire.errors import FrazilError, ValidationError

FAILURES: Final = (FrazilError, OSError, pa.ArrowException)
"""The errors of a commit that do not stop the others: refusals, and files that cannot be read or
written."""
_MAX_ROUNDS: Final = 20
_OTHERS_CHANGED_FILES: Final = frozenset(
    {"required-data-files", "required-delete-files", "removed-file-not-live", "dv-conflict"}
)

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")


def packed(items: Iterable[T], size_of: Callable[[T], int], max_size: int) -> Iterator[list[T]]:
    """Pack items in their order. Only an item that is larger by itself exceeds the size."""
    some: list[T] = []
    size = 0
    for item in items:
        own = size_of(item)
        if some and size + own > max_size:
            yield some
            some, size = [], 0
        some.append(item)
        size += own
    if some:
        yield some


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
