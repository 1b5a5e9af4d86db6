"""Analyze the ON condition of a MERGE and build the filter of the target rows that it reads.

Keys tie target columns to source expressions. Iceberg's own planner knows nothing about them, but
the collected keys of the source say which target rows the MERGE reads: a row with another key
neither matches nor prevents an insert. Another commit on such rows is a conflict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from sqlglot import Token, TokenType, exp

from frazil.spark.conditions.sql_columns import (
    ColumnNames,
    FoundColumn,
    names_in_tree,
    parse,
    tokens_in,
)
from frazil.spark.conditions.sql_conditions import converted_tree
from frazil.spark.conditions.sql_constants import Zone
from frazil.spark.schema.spark_types import FLOATS, NANOS
from frazil.values import single_value
from frazil.values.temporal import NANOS_PER_MICRO
from frazil.values.transforms import parse_transform
from frazil.values.types import Type, TypeId
from frazil.wire.expressions import Expression, Operation, Predicate, Term, all_of, any_of
from frazil.wire.filter_builders import always_false, always_true, col

_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})
_EQUALITIES: Final = frozenset({TokenType.EQ, TokenType.NULLSAFE_EQ})
_REPEATABLE: Final = (
    exp.Cast,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Nullif,
    exp.Lower,
    exp.Upper,
    exp.Trim,
    exp.Concat,
    exp.Substring,
    exp.Length,
    exp.Abs,
    exp.Connector,
)
"""Functions that always return the same value for the same row."""


@dataclass(frozen=True)
class Key:
    """A conjunct `target column = source expression`."""

    column: FoundColumn
    source: str
    """The text of the expression, which Spark evaluates on the source."""
    null_safe: bool
    """True for `<=>`, with which null matches null."""


@dataclass(frozen=True)
class OnParts:
    """The parts of an ON condition that limit which target rows can match."""

    keys: tuple[Key, ...]
    target_only: Expression
    """A condition that all matching target rows meet."""


@dataclass(frozen=True)
class SourceNames:
    """The columns of the source, and the alias that the statement gives it."""

    columns: tuple[str, ...]
    alias: str | None = None
    case_sensitive: bool = False

    def has(self, parts: Sequence[str]) -> bool:
        """Return whether a name may be a column of the source."""
        folded = [self._folded(part) for part in parts[:2]]
        columns = {self._folded(name) for name in self.columns}
        qualified = self.alias is not None and folded[0] == self._folded(self.alias)
        return folded[0] in columns or (qualified and len(folded) == 2 and folded[1] in columns)

    def is_qualified(self, parts: Sequence[str]) -> bool:
        """Return whether the name is the source's alias and a column."""
        return (
            self.alias is not None
            and self._folded(parts[0]) == self._folded(self.alias)
            and self.has(parts)
        )

    def _folded(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()


class Side(Enum):
    """The side of a MERGE that an expression reads."""

    TARGET = auto()
    SOURCE = auto()
    CONSTANT = auto()
    MIXED = auto()
    """Both sides, or unknown."""


def on_parts(on: str, target: ColumnNames, source: SourceNames, zone: Zone) -> OnParts:
    """Split an ON condition into keys and conditions on the target alone.

    A target row can match only if all conjuncts are true. A conjunct that is neither a key nor a
    condition on the target is ignored, which only makes the result match more rows.
    """
    keys: list[Key] = []
    conditions: list[Expression] = []
    for text in conjuncts(on):
        tree = parse(text)
        if tree is None:
            continue
        key = _key(text, target, source)
        if key is not None:
            keys.append(key)
        elif side_of(tree, target, source) is Side.TARGET:
            converted = converted_tree(tree, target, zone, has_escapes="\\" in text)
            conditions.append(converted.expression)
    return OnParts(tuple(keys), all_of(*conditions))


def side_of(tree: exp.Expression, target: ColumnNames, source: SourceNames) -> Side:
    """Return which side's columns an expression reads."""
    if any(tree.find_all(exp.Query, exp.Lambda, exp.Placeholder, exp.Parameter)):
        return Side.MIXED
    sides = {_side_of_name(parts, target, source) for parts in names_in_tree(tree)}
    if not sides:
        return Side.CONSTANT
    return sides.pop() if len(sides) == 1 else Side.MIXED


def _side_of_name(parts: tuple[str, ...], target: ColumnNames, source: SourceNames) -> Side:
    in_target, in_source = target.is_qualified(parts), source.is_qualified(parts)
    if not in_target and not in_source:
        in_target, in_source = target.find_parts(parts) is not None, source.has(parts)
    if in_target == in_source:
        return Side.MIXED
    return Side.TARGET if in_target else Side.SOURCE


def _key(text: str, target: ColumnNames, source: SourceNames) -> Key | None:
    halves = _halves(text)
    if halves is None:
        return None
    left, right, null_safe = halves
    for column_text, source_text in ((left, right), (right, left)):
        column, expression = parse(column_text), parse(source_text)
        if column is None or expression is None:
            continue
        target_column = target.find(column)
        of_target = side_of(column, target, source) is Side.TARGET
        of_source = side_of(expression, target, source) is Side.SOURCE
        if target_column and of_target and of_source and _is_repeatable(expression):
            return Key(target_column, source_text, null_safe)
    return None


def _is_repeatable(tree: exp.Expression) -> bool:
    """Return False for `rand()` and the like: keys are collected before the join evaluates them."""
    return all(isinstance(function, _REPEATABLE) for function in tree.find_all(exp.Func))


# --- split texts ----------------------------------------------------------------------------------


def conjuncts(text: str) -> list[str]:
    """Return the texts between the outermost ANDs."""
    tokens = tokens_in(text)
    inner = _within_parentheses(text, tokens)
    if inner is not None:
        return conjuncts(inner)
    depth, betweens, start = 0, 0, 0
    parts: list[str] = []
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > 0:
            continue
        if token.token_type is TokenType.OR:
            return [text]
        if token.token_type is TokenType.BETWEEN:
            betweens += 1
        elif token.token_type is TokenType.AND and betweens:
            betweens -= 1
        elif token.token_type is TokenType.AND:
            parts.append(text[start : token.start])
            start = token.end + 1
    if not parts:
        return [text]
    return [conjunct for part in (*parts, text[start:]) for conjunct in conjuncts(part)]


def _halves(text: str) -> tuple[str, str, bool] | None:
    """Return both sides of an equality, and whether it is `<=>`; None for any other text."""
    tokens = tokens_in(text)
    tree = parse(text)
    if not isinstance(tree, exp.EQ | exp.NullSafeEQ):
        return None
    depth = 0
    equalities: list[Token] = []
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type in _EQUALITIES:
            equalities.append(token)
    if len(equalities) != 1:
        return None
    (equality,) = equalities
    null_safe = equality.token_type is TokenType.NULLSAFE_EQ
    return text[: equality.start].strip(), text[equality.end + 1 :].strip(), null_safe


def _within_parentheses(text: str, tokens: Sequence[Token]) -> str | None:
    """Return the text inside one pair of parentheses around the whole text; None without one."""
    if len(tokens) < 3 or tokens[0].token_type is not TokenType.L_PAREN:
        return None
    depth = 0
    for token in tokens[:-1]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return None
    if tokens[-1].token_type is not TokenType.R_PAREN:
        return None
    return text[tokens[0].end + 1 : tokens[-1].start]


# --- filters for conflicts ------------------------------------------------------------------------

MAX_KEYS: Final = 1000
"""The most keys that a filter lists. More keys are described by their partitions and range."""
RANGED_KEYS: Final = 200
"""From this number of keys on, a filter also has their range, because catalogs do not compare
longer lists with the bounds of each file."""
_UNRANGED: Final = frozenset({TypeId.BOOLEAN, TypeId.UUID, TypeId.FIXED})
"""Types without a range: UUIDs have two orders, and keys for a fixed column may have any length."""


@dataclass(frozen=True, kw_only=True)
class KeyValues:
    """The keys that a source has for one target column, as the column's internal values.

    For timestamps with nanoseconds they are microseconds, which is what Spark sees.
    """

    name: str
    type: Type
    has_null: bool = False
    """Whether there are nulls that can match."""
    has_nan: bool = False
    lowest: Any = None
    """None if there are only nulls and NaNs."""
    highest: Any = None
    values: frozenset[Any] | None = None
    """The keys without nulls and NaNs; None if there are too many."""
    transformed: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    """The results of partition transforms of the keys, by the text of the transform."""


def key_filter(keys: KeyValues) -> Expression:
    """Return a filter that matches at least the rows whose column has one of the keys."""
    operand = col(keys.name)
    parts = [_numbers(keys)]
    if keys.has_nan:
        parts.append(operand.is_nan())
    if keys.has_null:
        parts.append(operand.is_null())
    return any_of(*parts)


def merge_filter(
    keys: Iterable[Expression],
    target_only: Expression,
    unmatched: Iterable[Expression],
) -> Expression:
    """Return the target rows that a MERGE reads.

    These are the rows that can match, and those of the WHEN NOT MATCHED BY SOURCE clauses, whose
    conditions are in `unmatched`.
    """
    return any_of(all_of(*keys, target_only), *unmatched)


def _numbers(keys: KeyValues) -> Expression:
    if keys.lowest is None:
        return always_false()
    bounds = (keys.lowest, keys.highest)
    if any(isinstance(bound, float) and math.isinf(bound) for bound in bounds):
        # JSON cannot represent infinity.
        return always_true()
    few = keys.values is not None and len(keys.values) <= MAX_KEYS
    if few and keys.type.type_id not in NANOS:
        assert keys.values is not None
        listed = _within(Term(keys.name), keys.type, keys.values)
        return listed if len(keys.values) <= RANGED_KEYS else all_of(listed, _range(keys))
    return all_of(*_transform_parts(keys), _range(keys))


def _within(term: Term, type_: Type, values: Iterable[Any]) -> Expression:
    distinct = set(values)
    if not distinct:
        return always_false()
    literals = [single_value.to_json(type_, value) for value in distinct]
    if type_.type_id in FLOATS and 0.0 in distinct:
        # 0.0 and -0.0 are equal in Spark and different in Iceberg.
        literals = [value for value in literals if value != 0] + [0.0, -0.0]
    return Predicate(Operation.IN, term, tuple(sorted(literals)))


def _transform_parts(keys: KeyValues) -> Iterable[Expression]:
    for text, values in sorted(keys.transformed.items()):
        if 0 < len(values) <= MAX_KEYS:
            transform = parse_transform(text)
            result = transform.result_type(keys.type)
            yield _within(Term(keys.name, transform), result, values)


def _range(keys: KeyValues) -> Expression:
    type_, lowest, highest = keys.type, keys.lowest, keys.highest
    if type_.type_id in _UNRANGED:
        return always_true()
    if type_.type_id in NANOS:
        lowest = lowest * NANOS_PER_MICRO
        highest = highest * NANOS_PER_MICRO + NANOS_PER_MICRO - 1
    if type_.type_id in FLOATS:
        lowest, highest = (-0.0 if lowest == 0 else lowest), (0.0 if highest == 0 else highest)
    term = Term(keys.name)
    return all_of(
        Predicate(Operation.GT_EQ, term, (single_value.to_json(type_, lowest),)),
        Predicate(Operation.LT_EQ, term, (single_value.to_json(type_, highest),)),
    )
