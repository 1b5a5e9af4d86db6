"""Names in the clauses of a MERGE that see one side only.

WHEN NOT MATCHED has no target row and WHEN NOT MATCHED BY SOURCE no source row, so that a name
without an alias is of the other side there, even where both have a column of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import sqlglot
from pyspark.sql import Column
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from frazil.spark.conditions.sql_conditions import DIALECT
from frazil.spark.core.name_matching import quoted

_NAME_TOKENS: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER})


def of_side(
    value: str | Column, alias: str, columns: Iterable[str], *, case_sensitive: bool
) -> str | Column:
    """The expression with the alias before each column that has none."""
    if not isinstance(value, str):
        return value
    try:
        tokens = sqlglot.tokenize(value, dialect=DIALECT)
    except SqlglotError:
        return value
    kinds = [token.token_type for token in tokens]
    if TokenType.ARROW in kinds or TokenType.SELECT in kinds:
        # Parameters of functions and the tables of a subquery have names of their own.
        return value
    known = {name if case_sensitive else name.lower() for name in columns}
    text, end = "", 0
    for at, token in enumerate(tokens):
        name = token.text if case_sensitive else token.text.lower()
        if token.token_type not in _NAME_TOKENS or name not in known:
            continue
        before = kinds[at - 1] if at else None
        after = kinds[at + 1] if at + 1 < len(kinds) else None
        is_alias = after is TokenType.DOT and name == (alias if case_sensitive else alias.lower())
        if before is TokenType.DOT or after is TokenType.L_PAREN or is_alias:
            continue
        text += f"{value[end : token.start]}{quoted(alias)}."
        end = token.start
    return text + value[end:]
