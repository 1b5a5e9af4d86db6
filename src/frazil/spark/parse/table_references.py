"""Find the tables that a query names, replace their names, and find what the query can need.

A table name can follow FROM, JOIN, TABLE and the commas of a FROM clause. Names of common table
expressions and functions are not tables. Spark parses the query itself; this module only reads
tokens, so that the rest of the text reaches Spark unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from frazil.spark.core.name_matching import quoted
from frazil.spark.parse.sql_tokens import Cursor, Edit, Kind, Name, Token, apply_edits

_QUERY: Final = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "MAP", "REDUCE"})
"""Parentheses that begin with one of these words contain a query."""
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
_UNITS: Final = frozenset(
    {"YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}
)


@dataclass(frozen=True)
class Reference:
    """A table name in the text of a query."""

    name: Name
    start: int
    name_end: int
    end: int
    """The end of the name and of the time travel clause after it."""
    version: str | int | None = None
    """The snapshot ID, branch or tag of VERSION AS OF."""
    timestamp: str | None = None
    """The expression of TIMESTAMP AS OF."""
    alias_at: int | None = None
    """Where to insert an alias, so that columns can still be qualified with the table's name. None
    if the reference has an alias or cannot have one."""


@dataclass
class _Level:
    """The state of the search between two parentheses."""

    expects_table: bool = False
    in_from: bool = False
    in_query: bool = False
    in_with: bool = False
    """True between WITH and the query that it belongs to."""
    ctes: set[str] = field(default_factory=set)
    pending_cte: str | None = None
    """The name of the common table expression that is being read."""


def references(text: str, *, relation: bool = False) -> tuple[Reference, ...]:
    """Return the tables that a query, or an expression with subqueries, names.

    `relation` says that the text is what follows FROM.
    """
    return _ReferenceFinder(text, relation).find()


class _ReferenceFinder:
    """Reads a query token by token and collects table references."""

    def __init__(self, text: str, relation: bool) -> None:
        self.cursor = Cursor(text)
        first = _Level(expects_table=relation, in_from=relation, in_query=relation)
        self.levels = [first]
        self.references: list[Reference] = []

    def find(self) -> tuple[Reference, ...]:
        while not self.cursor.at_end:
            self._step()
        return tuple(self.references)

    def _step(self) -> None:
        token = self.cursor.take()
        level = self.levels[-1]
        # A namespace may have the name of a keyword, as in `stream.events`.
        may_be_table = token.word not in _NO_TABLE or self.cursor.word() == "."
        if token.word == "(":
            self._open(level)
        elif token.word == ")":
            self._close()
        elif level.in_with:
            self._in_with(level, token)
        elif level.expects_table and token.is_name and may_be_table:
            level.expects_table = False
            self._table(token)
        else:
            self._in_query(level, token)

    def _open(self, level: _Level) -> None:
        inherits = level.expects_table and self.cursor.word() not in _QUERY
        level.expects_table = False
        self.levels.append(_Level(expects_table=inherits, in_from=inherits, in_query=inherits))

    def _close(self) -> None:
        if len(self.levels) > 1:
            self.levels.pop()
        level = self.levels[-1]
        # AS follows the column names of a definition, but never the definition itself.
        if level.pending_cte is not None and not self.cursor.at("AS"):
            level.ctes.add(level.pending_cte)
            level.pending_cte = None

    def _in_with(self, level: _Level, token: Token) -> None:
        if token.word == "RECURSIVE":
            return
        if token.word in _QUERY - {"WITH"} or token.word in ("INSERT", "MERGE", "DELETE", "UPDATE"):
            level.in_with = False
            self._in_query(level, token)
        elif (
            token.is_name and level.pending_cte is None and token.word not in ("AS", "MATERIALIZED")
        ):
            level.pending_cte = token.value.lower()
            before = self.cursor.tokens[: self.cursor.position]
            if any(token.word == "RECURSIVE" for token in before):
                level.ctes.add(level.pending_cte)

    def _in_query(self, level: _Level, token: Token) -> None:
        word = token.word if self.cursor.is_standalone(self.cursor.position - 1) else ""
        if word == "WITH" and not level.in_query:
            level.in_with = True
        elif word == "FROM" and self._is_from_clause(level):
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

    def _is_from_clause(self, level: _Level) -> bool:
        """Return False for the FROM of `extract(day FROM ts)` and `a IS DISTINCT FROM b`."""
        position = self.cursor.position - 1
        before = self.cursor.tokens[position - 1].word if position else "("
        if before == "DISTINCT":
            return False
        return level.in_query or before == "("

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
        name_end = cursor.tokens[cursor.position - 1].end
        version, timestamp = self._time_travel()
        end = cursor.tokens[cursor.position - 1].end
        takes_no_alias = position > 0 and self._follows_table(position)
        alias_at = None if takes_no_alias else self._alias_at()
        self.references.append(
            Reference(tuple(parts), first.start, name_end, end, version, timestamp, alias_at)
        )

    def _follows_table(self, position: int) -> bool:
        """Return whether the reference is `TABLE name`, which takes no alias."""
        before = self.cursor.tokens[position - 1].word
        if before == "(":
            before = self.cursor.tokens[position - 2].word if position > 1 else ""
        return before == "TABLE"

    def _time_travel(self) -> tuple[str | int | None, str | None]:
        """Read VERSION AS OF or TIMESTAMP AS OF and return the version and the timestamp."""
        cursor = self.cursor
        ahead = 1 if cursor.at("FOR") else 0
        kind = cursor.word(ahead)
        words = [cursor.word(ahead + 1), cursor.word(ahead + 2)]
        if kind not in _VERSION | _TIMESTAMP or words != ["AS", "OF"]:
            return None, None
        cursor.position += ahead + 3
        if kind in _TIMESTAMP:
            return None, self._timestamp_expression()
        if cursor.at_string:
            return cursor.string(), None
        return cursor.whole_number("a snapshot ID, or a branch or tag in quotes"), None

    def _timestamp_expression(self) -> str:
        """Read an expression whose end no keyword marks."""
        cursor = self.cursor
        first = cursor.position
        while True:
            if cursor.at("("):
                cursor.skip_enclosed()
            else:
                self._operand()
            if cursor.word() not in _OPERATORS:
                return cursor.cut(first, cursor.position)
            cursor.take()

    def _operand(self) -> None:
        cursor = self.cursor
        if cursor.accept("INTERVAL"):
            amount = cursor.take()
            if amount.kind is Kind.NUMBER or cursor.word().rstrip("S") in _UNITS:
                cursor.identifier("a unit of time")
            return
        token = cursor.take()
        if not token.is_name:
            return
        while cursor.accept("."):
            cursor.identifier()
        if cursor.at("("):
            cursor.skip_enclosed()
        elif cursor.at_string:
            cursor.string()

    def _alias_at(self) -> int | None:
        cursor = self.cursor
        start = cursor.position
        if cursor.accept("TABLESAMPLE"):
            cursor.skip_enclosed()
            if cursor.accept("REPEATABLE"):
                cursor.skip_enclosed()
        end = cursor.tokens[cursor.position - 1].end
        following = cursor.peek()
        cursor.position = start
        has_alias = following is not None and following.is_name and following.word not in _NO_ALIAS
        return None if has_alias else end


# --- replace names --------------------------------------------------------------------------------


def replaced(
    text: str, names: Mapping[Reference, str], full_names: Mapping[Reference, Name] | None = None
) -> str:
    """Return the text with other names for the tables, as `table_edits` gives them."""
    return apply_edits(text, table_edits(text, names, full_names or {}))


def table_edits(
    text: str,
    names: Mapping[Reference, str],
    full_names: Mapping[Reference, Name],
) -> list[Edit]:
    """Return the edits that give the tables of a text other names.

    Where columns may still use a table's own name, that name becomes an alias. `full_names` are the
    names of the tables with all parts that a column's qualifier may begin with.
    """
    edits = [(reference.start, reference.end, name) for reference, name in names.items()]
    qualifiers: dict[Name, Name] = {}
    for reference in names:
        if reference.alias_at is not None:
            alias = f" AS {quoted(reference.name[-1])}"
            edits.append((reference.alias_at, reference.alias_at, alias))
            qualifiers.update(qualifiers_of(full_names.get(reference, reference.name)))
    taken = [(reference.start, reference.end) for reference in names]
    return edits + qualifier_edits(text, qualifiers, taken)


def qualifiers_of(name: Name) -> dict[Name, Name]:
    """Return the longer qualifiers of a table's columns, such as `ns.t`, in lower case."""
    lowered = tuple(part.lower() for part in name)
    return {lowered[first:]: name for first in range(len(name) - 1)}


def qualifier_edits(
    text: str, names: Mapping[Name, Name], taken: Iterable[tuple[int, int]] = ()
) -> list[Edit]:
    """Return edits that shorten `ns.t.id` to `t.id`, because Spark knows only the alias `t`.

    `names` are the qualifiers in lower case. Parts of the text in `taken` are not edited.
    """
    if not names:
        return []
    tokens = Cursor(text).tokens
    taken_ranges = [range(start, end) for start, end in taken]
    edits = []
    position = 0
    while position < len(tokens):
        dotted = [position]
        while tokens[dotted[-1]].is_name and _continues(tokens, dotted[-1]):
            dotted.append(dotted[-1] + 2)
        parts = tuple(tokens[index].value.lower() for index in dotted)
        for length in range(2, len(parts)):
            start, end = tokens[dotted[0]].start, tokens[dotted[length - 1]].end
            if parts[:length] in names and not any(start in taken for taken in taken_ranges):
                edits.append((start, end, quoted(names[parts[:length]][-1])))
                break
        position = dotted[-1] + 1
    return edits


def _continues(tokens: Sequence[Token], position: int) -> bool:
    """Return whether a dot follows, and then a name or `*`."""
    if position + 2 >= len(tokens) or tokens[position + 1].word != ".":
        return False
    return tokens[position + 2].is_name or tokens[position + 2].word == "*"


# --- what a query needs ---------------------------------------------------------------------------
# Spark pushes columns and conditions into scans itself. But the files to read are planned before
# Spark sees the query, and files with deleted rows are read by our own reader.

_BEFORE_WILDCARD: Final = frozenset({"SELECT", "DISTINCT", "ALL", ",", ".", "("})
_ALL_COLUMNS: Final = frozenset(
    {"NATURAL", "PIVOT", "UNPIVOT", "TABLE", "|>", "TRANSFORM", "IDENTIFIER"}
)
"""Words that can make a query read columns that it does not name."""
_AFTER_WHERE: Final = (
    *("GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"),
    *("WINDOW", "QUALIFY", "UNION", "EXCEPT", "MINUS", "INTERSECT", "LATERAL", "|>"),
)


@dataclass(frozen=True)
class QueryNeeds:
    """The columns and rows of a table that a query can read."""

    names: frozenset[str] | None = None
    """All names in the query, in lower case. None if it may read any column."""
    where: str | None = None
    """A condition that every row of the query's only table must meet."""
    alias: str | None = None
    """What the condition calls the table."""

    def columns(self, known: Sequence[str]) -> list[str] | None:
        """Return the columns of a table that the query can read, at least one; None for all."""
        if self.names is None:
            return None
        named = [name for name in known if name.lower() in self.names]
        return named or list(known[:1])

    def metadata_columns(self, known: Sequence[str], possible: Sequence[str]) -> list[str]:
        """Return the metadata columns that the query names and no column of the table hides."""
        if self.names is None:
            return []
        taken = {name.lower() for name in known}
        return [name for name in possible if name in self.names and name not in taken]


def needs_of(text: str, tables: Sequence[Reference]) -> QueryNeeds:
    """Return what a query can read of each of its tables."""
    tokens = Cursor(text).tokens
    names = None if _may_need_all(tokens) else frozenset(_names(tokens))
    if len(tables) != 1:
        return QueryNeeds(names)
    where, alias = _only_condition(text, tables[0])
    return QueryNeeds(names, where, alias)


def _names(tokens: Sequence[Token]) -> list[str]:
    # Strings too: a session may be configured to take names in double quotes.
    return [token.value.lower() for token in tokens if token.is_name or token.kind is Kind.STRING]


def _may_need_all(tokens: Sequence[Token]) -> bool:
    words = [token.word for token in tokens]
    if "SELECT" not in words or any(word in _ALL_COLUMNS for word in words):
        return True
    for position, word in enumerate(words):
        before = words[position - 1] if position else "("
        if word == "FROM" and before == "(":
            return True  # FROM alone is a query too, of all columns.
        is_count = before == "(" and position > 1 and words[position - 2] == "COUNT"
        if word == "*" and before in _BEFORE_WILDCARD and not is_count:
            return True
    return False


def _only_condition(text: str, table: Reference) -> tuple[str | None, str | None]:
    """Return the condition and alias if the query is only SELECT … FROM table WHERE …."""
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
