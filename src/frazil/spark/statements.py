"""A statement as a whole: what validation has refused is run again from a new scan.

The client retries requests; here everything is done anew, because a conflict means that what was
read is no longer what is there. An attempt cleans up after itself before it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from frazil.spark.context import Context
from frazil.wire.errors import ValidationError

T = TypeVar("T")


def run(context: Context, attempt: Callable[[int], T]) -> T:
    """Runs `attempt` with its number, from 1, until it is not refused or the retries are used up.

    Only a conflict is worth another run. An unknown outcome is not: the first run may have been
    committed, and a second would do the same change twice.
    """
    number = 1
    while True:
        try:
            return attempt(number)
        except ValidationError as error:
            if number > context.settings.statement_retries:
                raise
            context.log.info(
                "attempt %d was refused, the statement is run again from a new scan: %s",
                number,
                error,
            )
        number += 1
