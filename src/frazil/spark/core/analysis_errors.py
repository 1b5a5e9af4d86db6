"""Spark's errors about a statement, in the terms of the user's text and table.

Spark sees another text than the user: names of temporary views stand for tables, expressions are
cut out, and frames have columns of their own. Its positions and suggestions would mislead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Final

from pyspark.errors import AnalysisException, ParseException

from frazil.wire.errors import BadRequest
from frazil.wire.near_names import name_hint

UNRESOLVED_COLUMN: Final = frozenset(
    {"UNRESOLVED_COLUMN.WITH_SUGGESTION", "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION"}
)
_OBJECT: Final = "objectName"
_POSITION: Final = re.compile(r"; line (\d+) pos (\d+).*", re.DOTALL)
"""The position at the end of a message, and the plan after it, which shows temporary names."""


def at_position(
    error: AnalysisException, position: Callable[[int, int], str] = lambda *_: ""
) -> AnalysisException:
    """Return the error with another position, by default none, and without Spark's plan.

    `position` gets the line, from 1, and the column, from 0, of the text that Spark has seen.
    """
    condition = error.getCondition()
    message = _POSITION.sub(lambda found: position(int(found[1]), int(found[2])), str(error))
    return AnalysisException(
        message.removeprefix(f"[{condition}] "),
        errorClass=condition,
        messageParameters=error.getMessageParameters(),
    )


@contextmanager
def own_columns(table: object, columns: Mapping[str, Iterable[str]]) -> Iterator[None]:
    """Raise Spark's errors about expressions without the columns and positions of our frames.

    `columns` are what an expression can name, by the alias before them. If there are none, Spark's
    suggestions stay.
    """
    try:
        yield
    except ParseException:
        raise
    except AnalysisException as error:
        if not columns or error.getCondition() not in UNRESOLVED_COLUMN:
            raise at_position(error) from None
        name = (error.getMessageParameters() or {}).get(_OBJECT, "").replace("`", "")
        alias, _, last = name.rpartition(".")
        known = columns.get(alias) or chain.from_iterable(columns.values())
        hint = name_hint(last, dict.fromkeys(known), "columns")
        raise BadRequest(f"{table}: there is no column {name} here: {hint}") from None
