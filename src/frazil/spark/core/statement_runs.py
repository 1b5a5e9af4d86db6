"""A statement as a whole: what was refused because of others is run again from a new scan.

The client retries requests; here everything is done anew, because a conflict means that what was
read is no longer what is there, be it rows or the schema. An attempt cleans up after itself before
it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from frazil.spark.core.context import Context
from frazil.spark.core.results import Result
from frazil.wire.errors import CommitFailed, ValidationError

T = TypeVar("T")


def run(context: Context, attempt: Callable[[int], T]) -> T:
    """Runs `attempt` with its number, from 1, until it is not refused or the retries are used up.

    Only a conflict is worth another run: one of rows, or a requirement about the schema that no
    longer holds. An unknown outcome is not: the first run may have been committed, and a second
    would do the same change twice. A `Result` is given the number of its attempt.
    """
    number = 1
    while True:
        try:
            return _numbered(attempt(number), number)
        except (ValidationError, CommitFailed) as error:
            if number > context.settings.statement_retries:
                raise
            context.log.info(
                "attempt %d was refused, the statement is run again from a new scan: %s",
                number,
                error,
            )
        number += 1


def _numbered(result: T, number: int) -> T:
    return cast(T, replace(result, attempts=number)) if isinstance(result, Result) else result
