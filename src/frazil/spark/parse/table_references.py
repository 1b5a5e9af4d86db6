"""Which tables a query names, and where in its text.

A table's name can stand behind FROM, JOIN, TABLE and the commas of a FROM. Names of common table
expressions are not tables, nor are functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from frazil.spark.parse.sql_tokens import Cursor, Kind, Name, Token

_QUERY: Final = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "MAP", "REDUCE"})
"""A parenthesis that begins with one of these holds a query."""
_NO_TABLE: Final = _QUERY | {"LATERAL", "UNNEST", "STREAM"}
_CLAUSES: Final = frozenset(
    {
        *("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"),
        *("WINDOW", "QUALIFY", "UNION", "EXCEPT", "MINUS", "INTERSECT", "PIVOT", "UNPIVOT"),
        "SELECT",
    }
)
_ENDS_FROM: Final = _CLAUSES | {"|>", "VIEW"}
_NO_ALIAS: Final = _CLAUSES | {
    *("ON", "USING", "JOIN", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI"),
    *("NATURAL", "LATERAL", "TABLESAMPLE", "SET", "WHEN", "INSERT", "WITH", "WATERMARK", "FROM"),
}
_VERSION: Final = frozenset({"VERSION", "SYSTEM_VERSION"})
_TIMESTAMP: Final = frozenset({"TIMESTAMP", "SYSTEM_TIME"})
_OPERATORS: Final = frozenset({"+", "-", "*", "/", "||", "::", "%"})


@dataclass(frozen=True)
class Reference:
    """A place where a table is named."""

    name: Name
    start: int
    end: int
    """Behind the name and the words that say which snapshot."""
    version: str | int | None = None
    """Of VERSION AS OF: a snapshot's id, or the name of a branch or tag."""
    timestamp: str | None = None
    """The expression of TIMESTAMP AS OF."""
    alias_at: int | None = None
    """Where an alias must be put in so that columns can go on using the table's own name; None
    where the statement has one already or cannot have one."""


@dataclass
class _Level:
    """What is between two parentheses."""

    expects_table: bool = False
    in_from: bool = False
    in_query: bool = False
    with_names: bool = False
    """Between WITH and the query that it belongs to."""
    ctes: set[str] = field(default_factory=set)
    pending: str | None = None


def references(text: str, *, relation: bool = False) -> tuple[Reference, ...]:
    """The tables that a query names, or an expression with queries inside; `relation`: the text is
    what stands behind FROM."""
    return _Finder(text, relation).found()


class _Finder:
    def __init__(self, text: str, relation: bool) -> None:
        self.cursor = Cursor(text)
        first = _Level(expects_table=relation, in_from=relation, in_query=relation)
        self.levels = [first]
        self.references: list[Reference] = []

    def found(self) -> tuple[Reference, ...]:
        while not self.cursor.at_end:
            self._step()
        return tuple(self.references)

    def _step(self) -> None:
        token = self.cursor.take()
        level = self.levels[-1]
        if token.word == "(":
            self._open(level)
        elif token.word == ")":
            self._close()
        elif level.with_names:
            self._in_with(level, token)
        elif level.expects_table and token.is_name and token.word not in _NO_TABLE:
            level.expects_table = False
            self._table(token)
        else:
            self._in_query(level, token)

    def _open(self, level: _Level) -> None:
        following = self.cursor.peek()
        word = "" if following is None else following.word
        inherits = level.expects_table and word not in _QUERY
        level.expects_table = False
        self.levels.append(_Level(expects_table=inherits, in_from=inherits, in_query=inherits))

    def _close(self) -> None:
        if len(self.levels) > 1:
            self.levels.pop()
        level = self.levels[-1]
        if level.pending is not None and self._is_definition_closed():
            level.ctes.add(level.pending)
            level.pending = None

    def _is_definition_closed(self) -> bool:
        # Behind the names of a definition's columns AS follows, behind the definition never.
        return not self.cursor.at("AS")

    def _in_with(self, level: _Level, token: Token) -> None:
        if token.word == "RECURSIVE":
            return
        if token.word in _QUERY - {"WITH"} or token.word in ("INSERT", "MERGE", "DELETE", "UPDATE"):
            level.with_names = False
            self._in_query(level, token)
        elif token.is_name and level.pending is None and token.word not in ("AS", "MATERIALIZED"):
            level.pending = token.value.lower()
            if self._recursive():
                level.ctes.add(level.pending)

    def _recursive(self) -> bool:
        before = self.cursor.tokens[: self.cursor.position]
        return any(token.word == "RECURSIVE" for token in before)

    def _in_query(self, level: _Level, token: Token) -> None:
        word = token.word if self._is_free() else ""
        if word == "WITH" and not level.in_query:
            level.with_names = True
        elif word == "FROM" and self._is_clause(level):
            level.expects_table = level.in_from = level.in_query = True
        elif word == "JOIN":
            level.expects_table = True
        elif word == "TABLE":
            level.expects_table = not self.cursor.at("(")
            if not level.expects_table:
                self.cursor.take()
                self.levels.append(_Level(expects_table=True))
        elif word == "," and level.in_from:
            level.expects_table = True
        elif word == "LATERAL" and level.expects_table:
            pass
        elif word in _ENDS_FROM:
            level.expects_table = level.in_from = False
            level.in_query = level.in_query or word == "SELECT"
        else:
            level.expects_table = False

    def _is_clause(self, level: _Level) -> bool:
        """Not that of `extract(day FROM ts)`, nor that of `a IS DISTINCT FROM b`."""
        position = self.cursor.position - 1
        before = self.cursor.tokens[position - 1].word if position else "("
        if before == "DISTINCT":
            return False
        return level.in_query or before == "("

    def _is_free(self) -> bool:
        position = self.cursor.position - 1
        return position == 0 or self.cursor.tokens[position - 1].word != "."

    # --- one table --------------------------------------------------------------------------------

    def _table(self, first: Token) -> None:
        cursor = self.cursor
        position = cursor.position - 1
        parts = [first.value]
        while cursor.at(".") and (after := cursor.peek(1)) is not None and after.is_name:
            cursor.position += 2
            parts.append(after.value)
        if cursor.at("("):
            return
        if len(parts) == 1 and any(parts[0].lower() in level.ctes for level in self.levels):
            return
        version, timestamp = self._moment()
        end = cursor.tokens[cursor.position - 1].end
        alone = position > 0 and self._behind_table(position)
        alias_at = None if alone else self._alias_at()
        found = Reference(tuple(parts), first.start, end, version, timestamp, alias_at)
        self.references.append(found)

    def _behind_table(self, position: int) -> bool:
        """`TABLE name` takes no alias."""
        before = self.cursor.tokens[position - 1].word
        if before == "(":
            before = self.cursor.tokens[position - 2].word if position > 1 else ""
        return before == "TABLE"

    def _moment(self) -> tuple[str | int | None, str | None]:
        cursor = self.cursor
        ahead = 1 if cursor.at("FOR") else 0
        token = cursor.peek(ahead)
        kind = "" if token is None else token.word
        words = [self._word(ahead + 1), self._word(ahead + 2)]
        if kind not in _VERSION | _TIMESTAMP or words != ["AS", "OF"]:
            return None, None
        cursor.position += ahead + 3
        if kind in _TIMESTAMP:
            return None, self._value()
        version = cursor.peek()
        if version is not None and version.kind is Kind.STRING:
            return cursor.string(), None
        return cursor.whole_number("a snapshot's id, or a branch or tag in quotes"), None

    def _word(self, ahead: int) -> str:
        token = self.cursor.peek(ahead)
        return "" if token is None else token.word

    def _value(self) -> str:
        """An expression with no words around it that say where it ends."""
        cursor = self.cursor
        first = cursor.position
        while True:
            if cursor.at("("):
                cursor.skip_enclosed()
            else:
                self._operand()
            if self._word(0) not in _OPERATORS:
                return cursor.cut(first, cursor.position)
            cursor.take()

    def _operand(self) -> None:
        cursor = self.cursor
        if cursor.accept("INTERVAL"):
            amount = cursor.take()
            if amount.kind is Kind.NUMBER or self._word(0).rstrip("S") in _UNITS:
                cursor.identifier("a unit of time")
            return
        token = cursor.take()
        if not token.is_name:
            return
        while cursor.accept("."):
            cursor.identifier()
        following = cursor.peek()
        if cursor.at("("):
            cursor.skip_enclosed()
        elif following is not None and following.kind is Kind.STRING:
            cursor.string()

    def _alias_at(self) -> int | None:
        cursor = self.cursor
        at = cursor.tokens[cursor.position - 1].end
        ahead = 0
        if cursor.at("TABLESAMPLE"):
            here = cursor.position
            cursor.take()
            cursor.skip_enclosed()
            if cursor.accept("REPEATABLE"):
                cursor.skip_enclosed()
            at = cursor.tokens[cursor.position - 1].end
            ahead = cursor.position - here
            cursor.position = here
        following = cursor.peek(ahead)
        if following is None or not following.is_name:
            return at
        if following.kind is Kind.WORD and following.word in _NO_ALIAS:
            return at
        return None


_UNITS: Final = frozenset(
    {"YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}
)


# --- putting other names in ---------------------------------------------------------------------


def replaced(
    text: str,
    names: Mapping[Reference, str],
    full_names: Mapping[Reference, Name] | None = None,
    *,
    braces: bool = False,
) -> str:
    """The text with other names for the tables, and their own as aliases where they need them.

    `full_names` are the tables' names with all that a column's qualifier may begin with. `braces`:
    it will go through `str.format`, so that its own braces are doubled.
    """
    edits = [(found.start, found.end, name) for found, name in names.items()]
    for found in names:
        if found.alias_at is not None:
            edits.append((found.alias_at, found.alias_at, f" AS {quoted(found.name[-1])}"))
    edits.extend(_qualifiers(text, names, full_names or {}))
    edits.sort(key=lambda edit: (edit[0], edit[1]))
    parts, done = [], 0
    for start, end, new in edits:
        parts.append(_plain(text[done:start], braces))
        parts.append(new)
        done = end
    parts.append(_plain(text[done:], braces))
    return "".join(parts)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _plain(text: str, braces: bool) -> str:
    return text.replace("{", "{{").replace("}", "}}") if braces else text


def _qualifiers(
    text: str, found: Iterable[Reference], full_names: Mapping[Reference, Name]
) -> list[tuple[int, int, str]]:
    """`ns.t.id` for a column of `ns.t`: with an alias in place of the name only `t.id` is known."""
    names: dict[Name, Name] = {}
    for one in found:
        if one.alias_at is not None:
            names.update(qualifiers_of(full_names.get(one, one.name)))
    return qualifier_edits(text, names, [(one.start, one.end) for one in found])


def qualifiers_of(name: Name) -> dict[Name, Name]:
    """The ways to name a table's columns with more than the table's own name, in lower case."""
    lowered = tuple(part.lower() for part in name)
    return {lowered[first:]: name for first in range(len(name) - 1)}


def qualifier_edits(
    text: str, names: Mapping[Name, Name], taken: Iterable[tuple[int, int]] = ()
) -> list[tuple[int, int, str]]:
    """Edits that leave of a column's qualifier only the table's own name; `names` in lower case."""
    if not names:
        return []
    tokens = Cursor(text).tokens
    places = [range(start, end) for start, end in taken]
    edits = []
    position = 0
    while position < len(tokens):
        dotted = [position]
        while tokens[dotted[-1]].is_name and _continues(tokens, dotted[-1]):
            dotted.append(dotted[-1] + 2)
        parts = tuple(tokens[at].value.lower() for at in dotted)
        for length in range(2, len(parts)):
            start, end = tokens[dotted[0]].start, tokens[dotted[length - 1]].end
            if parts[:length] in names and not any(start in place for place in places):
                edits.append((start, end, quoted(names[parts[:length]][-1])))
                break
        position = dotted[-1] + 1
    return edits


def _continues(tokens: Sequence[Token], position: int) -> bool:
    """Whether a dot follows, and then a name or all columns."""
    if position + 2 >= len(tokens) or tokens[position + 1].word != ".":
        return False
    return tokens[position + 2].is_name or tokens[position + 2].word == "*"


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
