"""Draws random predicates: as the JSON that a client sends, and as functions that test a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from frazil.values.single_value import InvalidValue, to_json
from frazil.values.temporal import MICROS_PER_SECOND
from frazil.values.transforms import apply, parse_transform
from frazil.values.types import INT, DecimalType, Type, TypeId
from tests.oracle.plans.columns import TRANSFORMS, Leaf, draw_value, order
from tests.oracle.plans.files import Doc, Row

NEGATED: Final = {
    "is-null": "not-null",
    "is-nan": "not-nan",
    "lt": "gt-eq",
    "lt-eq": "gt",
    "eq": "not-eq",
    "in": "not-in",
    "starts-with": "not-starts-with",
}
NEGATED.update({other: own for own, other in list(NEGATED.items())})
_FLOATS: Final = (TypeId.FLOAT, TypeId.DOUBLE)
_MOMENTS: Final = (TypeId.DATE, TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ)


class Predicate:
    """A test of a row."""

    def json(self) -> Any:
        raise NotImplementedError

    def matches(self, row: Row, *, negated: bool = False) -> bool:
        """Return whether the row matches by Iceberg's rules.

        A null matches no order, equality or prefix. It matches their negations, except those of
        an order. NaN is in no range.
        """
        raise NotImplementedError

    @property
    def is_plain(self) -> bool:
        """Return whether `matches` is exact; it is not if a literal is not of its column's type."""
        return True

    def tests(self, *, negated: bool = False) -> list[tuple[str, ColumnTest]]:
        """Return the column tests and their operations after negations are pushed down."""
        return []


@dataclass(frozen=True)
class Constant(Predicate):
    value: bool

    def json(self) -> Any:
        return self.value

    def matches(self, row: Row, *, negated: bool = False) -> bool:
        return self.value != negated


@dataclass(frozen=True)
class Junction(Predicate):
    kind: str
    left: Predicate
    right: Predicate

    def json(self) -> Any:
        return {"type": self.kind, "left": self.left.json(), "right": self.right.json()}

    def matches(self, row: Row, *, negated: bool = False) -> bool:
        both = (side.matches(row, negated=negated) for side in (self.left, self.right))
        return all(both) if (self.kind == "and") != negated else any(both)

    @property
    def is_plain(self) -> bool:
        return self.left.is_plain and self.right.is_plain

    def tests(self, *, negated: bool = False) -> list[tuple[str, ColumnTest]]:
        return self.left.tests(negated=negated) + self.right.tests(negated=negated)


@dataclass(frozen=True)
class Negation(Predicate):
    child: Predicate

    def json(self) -> Any:
        return {"type": "not", "child": self.child.json()}

    def matches(self, row: Row, *, negated: bool = False) -> bool:
        return self.child.matches(row, negated=not negated)

    @property
    def is_plain(self) -> bool:
        return self.child.is_plain

    def tests(self, *, negated: bool = False) -> list[tuple[str, ColumnTest]]:
        return self.child.tests(negated=not negated)


@dataclass(frozen=True)
class ColumnTest(Predicate):
    """A test of one column or of a transform of it."""

    operation: str
    leaf: Leaf
    transform: str | None
    values: tuple[Any, ...]
    """The internal values of the term's type."""
    literals: tuple[Any, ...]
    """The same values as JSON."""
    name: str
    strange: bool = False
    """Whether a literal is not of the column's type."""

    def json(self) -> Any:
        term: Any = self.name
        if self.transform is not None:
            term = {"type": "transform", "transform": self.transform, "term": self.name}
        document: Doc = {"type": self.operation, "term": term}
        if self.operation in ("in", "not-in"):
            document["values"] = list(self.literals)
        elif self.literals:
            document["value"] = self.literals[0]
        return document

    @property
    def is_plain(self) -> bool:
        return not self.strange

    def tests(self, *, negated: bool = False) -> list[tuple[str, ColumnTest]]:
        return [(NEGATED[self.operation] if negated else self.operation, self)]

    def matches(self, row: Row, *, negated: bool = False) -> bool:
        value = row.get(self.leaf.field_id, self.leaf.default)
        if self.transform is not None:
            value = apply(parse_transform(self.transform), self.leaf.type, value)
        return _is(NEGATED[self.operation] if negated else self.operation, value, self.values)


def _is(operation: str, value: Any, wanted: Sequence[Any]) -> bool:
    if operation in ("is-null", "not-null"):
        return (value is None) == (operation == "is-null")
    is_nan = isinstance(value, float) and math.isnan(value)
    if operation in ("is-nan", "not-nan"):
        return is_nan == (operation == "is-nan")
    if operation in ("not-eq", "not-in", "not-starts-with"):
        return not _is(NEGATED[operation], value, wanted)
    if value is None or is_nan:
        return False
    if operation in ("eq", "in"):
        return any(order(value) == order(one) for one in wanted)
    if operation == "starts-with":
        return bool(value.startswith(wanted[0]))
    own, other = order(value), order(wanted[0])
    compared: dict[str, Callable[[], bool]] = {
        "lt": lambda: own < other,
        "lt-eq": lambda: own <= other,
        "gt": lambda: own > other,
        "gt-eq": lambda: own >= other,
    }
    return compared[operation]()


class PredicateMaker:
    """Draws predicates over some columns and their values."""

    def __init__(
        self,
        random: Random,
        leaves: Sequence[Leaf],
        values: dict[int, list[Any]],
        *,
        transforms: float = 0.12,
        strange: float = 0.03,
    ) -> None:
        self._random = random
        self._leaves = leaves
        self._values = values
        self._transforms = transforms
        self._strange = strange

    def draw(self, *, case_sensitive: bool = True, depth: int = 0) -> Predicate:
        drawn = self._random.random()
        if depth < 3 and drawn < (0.3, 0.25, 0.15)[depth]:
            left = self.draw(case_sensitive=case_sensitive, depth=depth + 1)
            right = self.draw(case_sensitive=case_sensitive, depth=depth + 1)
            return Junction(self._random.choice(("and", "or")), left, right)
        if depth < 3 and drawn > 0.92:
            return Negation(self.draw(case_sensitive=case_sensitive, depth=depth + 1))
        if drawn > 0.905:
            return Constant(self._random.random() < 0.7)
        return self._test(case_sensitive)

    def _test(self, case_sensitive: bool) -> ColumnTest:
        leaf = self._random.choice(self._leaves)
        name = (
            leaf.name if case_sensitive else self._random.choice((leaf.name, leaf.name.swapcase()))
        )
        transform, type_ = None, leaf.type
        if self._random.random() < self._transforms:
            known = [one for one in TRANSFORMS[leaf.type.type_id] if one != "identity"]
            if known:
                transform = self._random.choice(known)
                type_ = parse_transform(transform).result_type(leaf.type)
        operation = self._operation(type_)
        if operation in ("is-null", "not-null", "is-nan", "not-nan"):
            return ColumnTest(operation, leaf, transform, (), (), name)
        count = 1
        if operation in ("in", "not-in"):
            count = self._random.choice(
                (1, 2, 2, 3, 5, 250) if self._random.random() < 0.2 else (1, 2, 3)
            )
        values = [self._value(leaf, transform) for _ in range(count)]
        values = [value for value in values if _has_json(type_, value)] or [
            self._finite(leaf, transform)
        ]
        if operation in ("starts-with", "not-starts-with"):
            text = values[0]
            values = [text[: self._random.randint(0, len(text))]]
        if self._random.random() < self._strange:
            odd = self._random.choice((True, 7, 1.5, "x", "2020-01-01", 2**40, 10**30, ""))
            return ColumnTest(operation, leaf, transform, (), (odd,), name, strange=True)
        literals = tuple(self._literal(type_, value) for value in values)
        return ColumnTest(operation, leaf, transform, tuple(values), literals, name)

    def _operation(self, type_: Type) -> str:
        comparisons = ("eq", "not-eq", "lt", "lt-eq", "gt", "gt-eq")
        kinds = [*comparisons, *comparisons, "in", "in", "not-in", "is-null", "not-null"]
        if type_.type_id in _FLOATS:
            kinds += ["is-nan", "not-nan"] * 2
        if type_.type_id is TypeId.STRING:
            kinds += ["starts-with", "not-starts-with"] * 2
        return self._random.choice(kinds)

    def _value(self, leaf: Leaf, transform: str | None) -> Any:
        known = self._values.get(leaf.field_id)
        if known and self._random.random() < 0.7:
            value = self._random.choice(known)
        else:
            value = draw_value(self._random, leaf.type)
        if transform is not None:
            value = apply(parse_transform(transform), leaf.type, value)
        if isinstance(value, int) and not isinstance(value, bool) and self._random.random() < 0.2:
            nearby = value + self._random.choice((-1, 1))
            value = nearby if _has_json(_result(leaf, transform), nearby) else value
        return value

    def _finite(self, leaf: Leaf, transform: str | None) -> Any:
        type_ = _result(leaf, transform)
        while not _has_json(type_, value := self._value(leaf, transform)):
            pass
        return value

    def _literal(self, type_: Type, value: Any) -> Any:
        """Return the value as JSON, in one of the forms that can be converted to the type."""
        plain = to_json(type_, value)
        if self._random.random() > 0.15:
            return plain
        if isinstance(type_, DecimalType) and type_.precision < 18:
            return int(value) if value == int(value) else float(value)
        if type_.type_id is TypeId.TIMESTAMPTZ and self._random.random() < 0.5:
            ahead = to_json(type_, value + 3600 * MICROS_PER_SECOND)
            return str(ahead).replace("+00:00", "+01:00")
        if type_.type_id in _MOMENTS:
            return value
        if type_.type_id in _FLOATS and value == int(value) and abs(value) < 1e15:
            # An integer cannot represent the sign of -0.0.
            return plain if math.copysign(1, value) < 0 == value else int(value)
        if type_.type_id is TypeId.UUID:
            return plain.upper()
        return plain


def _result(leaf: Leaf, transform: str | None) -> Type:
    if transform is None:
        return leaf.type
    return parse_transform(transform).result_type(leaf.type) or INT


def _has_json(type_: Type, value: Any) -> bool:
    try:
        to_json(type_, value)
    except InvalidValue:
        return False
    return True
