"""What a query can need of the tables that it names, as far as its text alone tells.

Spark pushes columns and conditions into files by itself, but which files are read is settled before
it sees the query; and files with deleted rows are read by us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from frazil.spark.parse.sql_tokens import Cursor, Kind, Token
from frazil.spark.parse.table_references import Reference

_BEFORE_WILDCARD: Final = frozenset({"SELECT", "DISTINCT", "ALL", ",", ".", "("})
_ALL_COLUMNS: Final = frozenset(
    {"NATURAL", "PIVOT", "UNPIVOT", "TABLE", "|>", "TRANSFORM", "IDENTIFIER"}
)
"""Words that can make a query look at columns which it does not name."""
_AFTER_WHERE: Final = (
    *("GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"),
    *("WINDOW", "QUALIFY", "UNION", "EXCEPT", "MINUS", "INTERSECT", "LATERAL", "|>"),
)


@dataclass(frozen=True)
class Needs:
    names: frozenset[str] | None = None
    """In lower case all names that stand in the query; None: any column may be needed."""
    where: str | None = None
    """A condition that every row of the query's only table must meet."""
    alias: str | None = None
    """By which name the condition knows the table."""

    def columns(self, known: Sequence[str]) -> list[str] | None:
        """Those of a table's columns that the query can need, never none; None: all."""
        if self.names is None:
            return None
        named = [name for name in known if name.lower() in self.names]
        return named or list(known[:1])

    def metadata_columns(self, known: Sequence[str], possible: Sequence[str]) -> list[str]:
        """Metadata columns that the query names, where no column of the table has that name."""
        if self.names is None:
            return []
        taken = {name.lower() for name in known}
        return [name for name in possible if name in self.names and name not in taken]


def needs_of(text: str, named: Sequence[Reference]) -> Needs:
    tokens = Cursor(text).tokens
    names = None if _may_need_all(tokens) else frozenset(_names(tokens))
    if len(named) != 1:
        return Needs(names)
    where, alias = _only_condition(text, named[0])
    return Needs(names, where, alias)


def _names(tokens: Sequence[Token]) -> list[str]:
    # Strings too: a session may have it that names stand in double quotes.
    return [token.value.lower() for token in tokens if token.is_name or token.kind is Kind.STRING]


def _may_need_all(tokens: Sequence[Token]) -> bool:
    words = [token.word for token in tokens]
    if "SELECT" not in words or any(word in _ALL_COLUMNS for word in words):
        return True
    for place, word in enumerate(words):
        before = words[place - 1] if place else "("
        if word == "FROM" and before == "(":
            return True  # FROM alone is a query too, of all columns.
        counts = before == "(" and place > 1 and words[place - 2] == "COUNT"
        if word == "*" and before in _BEFORE_WILDCARD and not counts:
            return True
    return False


def _only_condition(text: str, table: Reference) -> tuple[str | None, str | None]:
    """The WHERE of a query that is nothing but SELECT … FROM table WHERE …."""
    cursor = Cursor(text)
    words = [token.word for token in cursor.tokens]
    if words[0] != "SELECT" or "JOIN" in words:
        return None, None
    if words.count("SELECT") != 1 or words.count("WHERE") != 1:
        return None, None
    before = ""
    while (token := cursor.peek()) is not None and token.start < table.end:
        before = token.word if token.start < table.start else before
        if token.word == "(" and token.start < table.start:
            cursor.skip_enclosed()
        else:
            cursor.take()
    if before != "FROM" or cursor.tokens[cursor.position - 1].end != table.end:
        return None, None
    cursor.accept("AS")
    following = cursor.peek()
    alias = table.name[-1]
    if table.alias_at is None:
        if following is None or following.kind not in (Kind.WORD, Kind.QUOTED):
            return None, None
        alias = cursor.identifier()
    if not cursor.accept("WHERE"):
        return None, None
    return cursor.until("a condition", *_AFTER_WHERE), alias
