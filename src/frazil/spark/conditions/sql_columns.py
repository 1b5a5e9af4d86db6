"""Find the columns that SQL text names, as Spark resolves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import sqlglot
from pyspark.sql import Column
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from frazil.spark.core.name_matching import quoted
from frazil.values.types import NestedField, StructType, Type

_DIALECT: Final = "spark"
_NAME_TOKENS: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
Parts: TypeAlias = tuple[str, ...]


def parse(expression: str) -> exp.Expression | None:
    """Parse an expression; return None if sqlglot cannot parse it."""
    try:
        tree = sqlglot.parse_one(expression, dialect=_DIALECT)
    except SqlglotError:
        return None
    return tree if isinstance(tree, exp.Expression) else None


def tokens_in(text: str) -> Sequence[Token]:
    """Split a text into tokens; return none if sqlglot cannot split it."""
    try:
        return sqlglot.tokenize(text, dialect=_DIALECT)
    except SqlglotError:
        return ()


@dataclass(frozen=True)
class FoundColumn:
    """A column, or a field inside structs."""

    name: str
    """The name with dots, as the schema spells it."""
    parts: Parts
    field: NestedField

    @property
    def type(self) -> Type:
        return self.field.type


def columns_of(struct: StructType, parents: Parts = ()) -> Iterator[FoundColumn]:
    """Return all columns and the fields inside structs, each parent before its fields."""
    for field in struct.fields:
        parts = (*parents, field.name)
        yield FoundColumn(".".join(parts), parts, field)
        if isinstance(field.type, StructType):
            yield from columns_of(field.type, parts)


@dataclass(frozen=True)
class ColumnNames:
    """The columns of a table, and the alias that the statement gives the table."""

    schema: StructType
    alias: str | None = None
    case_sensitive: bool = False

    def find(self, node: exp.Expression) -> FoundColumn | None:
        """Return the column that a node names; None if the node is something else."""
        parts = name_parts(node)
        return None if parts is None else self.find_parts(parts)

    def find_parts(self, parts: Parts) -> FoundColumn | None:
        """Like Spark, try the first part as the table's alias, then as a column."""
        if self._is_alias(parts):
            column = self._resolve(parts[1:])
            if column is not None:
                return column
        return self._resolve(parts)

    def find_top(self, parts: Parts) -> set[str]:
        """Return the top-level columns that a name may belong to."""
        wanted = {self.key(part) for part in parts[:2]}
        return {field.name for field in self.schema.fields if self.key(field.name) in wanted}

    def is_qualified(self, parts: Parts) -> bool:
        """Return whether the name is the table's alias and a column."""
        return self._is_alias(parts) and self._resolve(parts[1:]) is not None

    def _is_alias(self, parts: Parts) -> bool:
        return (
            self.alias is not None and len(parts) > 1 and self.key(parts[0]) == self.key(self.alias)
        )

    def _resolve(self, parts: Parts) -> FoundColumn | None:
        names: list[str] = []
        type_: Type = self.schema
        field: NestedField | None = None
        for part in parts:
            field = self._child(type_, part)
            if field is None:
                return None
            names.append(field.name)
            type_ = field.type
        if field is None or self._dotted_counts.get(".".join(names)) != 1:
            return None
        return FoundColumn(".".join(names), tuple(names), field)

    def _child(self, type_: Type, name: str) -> NestedField | None:
        if not isinstance(type_, StructType):
            return None
        wanted = self.key(name)
        matches = [field for field in type_.fields if self.key(field.name) == wanted]
        return matches[0] if len(matches) == 1 else None

    def key(self, name: str) -> str:
        """Return the name in the form in which names are compared."""
        return name if self.case_sensitive else name.lower()

    @cached_property
    def _dotted_counts(self) -> Counter[str]:
        """Return the number of columns by name: `a.b` may be a column and a field of struct a."""
        return Counter(column.name for column in columns_of(self.schema))


# --- names in a tree ------------------------------------------------------------------------------


def name_parts(node: exp.Expression) -> Parts | None:
    """Return `a.b.c` as its parts; None if the node is not a name."""
    if isinstance(node, exp.Paren):
        return name_parts(node.this)
    if isinstance(node, exp.Column):
        parts = [part.name for part in node.parts if isinstance(part, exp.Identifier)]
        return tuple(parts) if len(parts) == len(node.parts) else None
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        parents = name_parts(node.this)
        return None if parents is None else (*parents, node.expression.name)
    return None


def names_in_tree(tree: exp.Expression) -> Iterator[Parts]:
    """Return all names in an expression; `*` for one that cannot be split."""
    for column in tree.find_all(exp.Column):
        node: exp.Expression = column
        while isinstance(node.parent, exp.Dot) and node.parent.this is node:
            node = node.parent
        yield name_parts(node) or name_parts(column) or ("*",)


# --- names in the clauses of a MERGE --------------------------------------------------------------


def qualified(
    expression: str | Column, alias: str, columns: Iterable[str], *, case_sensitive: bool
) -> str | Column:
    """Put the alias before each column that has no qualifier.

    WHEN NOT MATCHED has no target row and WHEN NOT MATCHED BY SOURCE has no source row. A name
    without a qualifier belongs to the only side, even if both sides have a column of that name.
    """
    if not isinstance(expression, str):
        return expression
    tokens = tokens_in(expression)
    kinds = [token.token_type for token in tokens]
    if TokenType.ARROW in kinds or TokenType.SELECT in kinds:
        # Parameters of lambda functions and tables of subqueries have names of their own.
        return expression
    known = {name if case_sensitive else name.lower() for name in columns}
    text, end = "", 0
    for index, token in enumerate(tokens):
        name = token.text if case_sensitive else token.text.lower()
        if token.token_type not in _NAME_TOKENS or name not in known:
            continue
        before = kinds[index - 1] if index else None
        after = kinds[index + 1] if index + 1 < len(kinds) else None
        is_alias = after is TokenType.DOT and name == (alias if case_sensitive else alias.lower())
        if before is TokenType.DOT or after is TokenType.L_PAREN or is_alias:
            continue
        text += f"{expression[end : token.start]}{quoted(alias)}."
        end = token.start
    return text + expression[end:]
