"""PyIceberg's expressions as Iceberg JSON that the server's own parser accepts."""

from __future__ import annotations

import functools
import operator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    Not,
    Or,
    Reference,
)
from pyiceberg.expressions import EqualTo as _EqualTo
from pyiceberg.expressions import In as _In
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.pyiceberg.wire_conversion import IN_LIMIT, conflict_filter
from frazil.wire.expressions import And as WireAnd
from frazil.wire.expressions import Expression, parse_expression

SCHEMA = Schema(
    NestedField(1, "flag", BooleanType(), required=False),
    NestedField(2, "number", IntegerType(), required=False),
    NestedField(3, "big", LongType(), required=False),
    NestedField(4, "ratio", FloatType(), required=False),
    NestedField(5, "exact", DoubleType(), required=False),
    NestedField(6, "price", DecimalType(9, 2), required=False),
    NestedField(7, "day", DateType(), required=False),
    NestedField(8, "clock", TimeType(), required=False),
    NestedField(9, "at", TimestampType(), required=False),
    NestedField(10, "at_utc", TimestamptzType(), required=False),
    NestedField(11, "text", StringType(), required=False),
    NestedField(12, "key", UUIDType(), required=False),
    NestedField(13, "hash", FixedType(2), required=False),
    NestedField(14, "bytes", BinaryType(), required=False),
    NestedField(17, "id", LongType(), required=True),
    NestedField(
        15,
        "inner",
        StructType(NestedField(16, "a.b", LongType(), required=False)),
        required=False,
    ),
)

# PyIceberg's classes take positional arguments, but their type annotations disagree.
equal: Any = _EqualTo
inside: Any = _In


def json_of(expression: BooleanExpression | str, **more: bool) -> dict[str, Any]:
    parsed = parse(expression) if isinstance(expression, str) else expression
    raw = conflict_filter(parsed, SCHEMA, **more)
    document: dict[str, Any] = msgspec.json.decode(bytes(raw))
    # The server must be able to parse every document that the client sends.
    parse_expression(document)
    return document


VALUES: list[tuple[str, Any, Any]] = [
    ("flag", True, True),
    ("number", 5, 5),
    ("big", -(2**62), -(2**62)),
    ("ratio", 1.5, 1.5),
    ("exact", 0.1, 0.1),
    ("exact", 2, 2.0),
    ("price", Decimal("12.50"), "12.50"),
    ("day", date(2026, 5, 1), "2026-05-01"),
    ("day", "2026-05-01", "2026-05-01"),
    ("clock", time(1, 2, 3, 4), "01:02:03.000004"),
    ("at", datetime(2026, 5, 1, 1, 2, 3), "2026-05-01T01:02:03.000000"),
    ("at", "2026-05-01T01:02:03", "2026-05-01T01:02:03.000000"),
    (
        "at_utc",
        datetime(2026, 5, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        "2026-04-30T23:00:00.000000+00:00",
    ),
    ("text", "it's", "it's"),
    ("key", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ("hash", b"\x01\xff", "01FF"),
    ("bytes", b"\x00\x10", "0010"),
]


@pytest.mark.parametrize(("column", "value", "written"), VALUES)
def test_literals_have_the_type_of_their_column(column: str, value: Any, written: Any) -> None:
    document = json_of(equal(column, value))
    found = document["value"]
    assert (document["type"], document["term"]) == ("eq", column)
    assert found == written or str(found).lower() == str(written).lower()
    assert type(found) is type(written)
    many = json_of(inside(column, {value}) if column == "flag" else inside(column, [value]))
    assert many["value"] == found


PREDICATES = [
    ("number is null", {"type": "is-null", "term": "number"}),
    ("number is not null", {"type": "not-null", "term": "number"}),
    ("exact is nan", {"type": "is-nan", "term": "exact"}),
    ("exact is not nan", {"type": "not-nan", "term": "exact"}),
    ("number < 5", {"type": "lt", "term": "number", "value": 5}),
    ("number <= 5", {"type": "lt-eq", "term": "number", "value": 5}),
    ("number > 5", {"type": "gt", "term": "number", "value": 5}),
    ("number >= 5", {"type": "gt-eq", "term": "number", "value": 5}),
    ("number != 5", {"type": "not-eq", "term": "number", "value": 5}),
    ("text like 'ab%'", {"type": "starts-with", "term": "text", "value": "ab"}),
    ("text not like 'ab%'", {"type": "not-starts-with", "term": "text", "value": "ab"}),
    ("number in (3, 1, 2)", {"type": "in", "term": "number", "values": [1, 2, 3]}),
    ("number not in (2, 1)", {"type": "not-in", "term": "number", "values": [1, 2]}),
    ("number > 99999999999", {"type": "false"}),
]


@pytest.mark.parametrize(("text", "document"), PREDICATES)
def test_predicates(text: str, document: dict[str, Any]) -> None:
    assert json_of(text) == document
    bound = bind(SCHEMA, parse(text), case_sensitive=True)
    assert json_of(bound) == document


def test_constants_and_operators() -> None:
    one, two = parse("number = 1"), parse("text = 'b'")
    eq_one, eq_two = json_of(one), json_of(two)
    assert json_of(AlwaysTrue()) == {"type": "true"}
    assert json_of(AlwaysFalse()) == {"type": "false"}
    assert json_of(And(one, two)) == {"type": "and", "left": eq_one, "right": eq_two}
    assert json_of(Or(one, two)) == {"type": "or", "left": eq_one, "right": eq_two}
    nested: Any = Not
    assert json_of(nested(And(one, two)))["type"] == "not"
    assert json_of(Or(AlwaysFalse(), one)) == eq_one
    assert json_of(And(one, parse("number > 99999999999"))) == {"type": "false"}


def test_names_are_written_as_the_schema_has_them() -> None:
    document = json_of(parse("TEXT = 'b'"), case_sensitive=False)
    assert document["term"] == "text"
    nested = json_of(equal(Reference("inner.a.b"), 1))
    assert nested["term"] == "inner.a.b"


# --- size and depth -----------------------------------------------------------------------------


def depth(document: Any) -> int:
    if not isinstance(document, dict):
        return 0
    return 1 + max((depth(part) for part in document.values()), default=0)


def operands(document: Any) -> tuple[Expression, ...]:
    """Return the parts of an `and`, however it is nested."""
    expression = parse_expression(document)
    assert isinstance(expression, WireAnd)
    return expression.operands


def test_equalities_of_one_column_become_one_set() -> None:
    chain = functools.reduce(operator.or_, (equal("number", n) for n in (3, 1, 2, 1)))
    assert json_of(chain) == {"type": "in", "term": "number", "values": [3, 1, 2]}
    mixed = Or(parse("number = 1"), parse("text = 'b'"), parse("number in (1, 2)"))
    assert json_of(mixed)["left"] == {"type": "in", "term": "number", "values": [1, 2]}


def test_a_long_chain_is_neither_deep_nor_recursive() -> None:
    """The chain is longer than Python's recursion limit."""
    chain: BooleanExpression = equal("number", 0)
    for number in range(1, 3000):
        chain = Or(chain, And(equal("number", number), equal("text", str(number))))
    assert depth(json_of(chain)) < 20
    negation: Any = Not
    assert depth(json_of(negation(chain))) < 20


def test_many_values_have_their_range_beside_them() -> None:
    many = inside("number", list(range(IN_LIMIT + 1)))
    document = json_of(many)
    right = document["right"]
    assert document["left"] == {"type": "gt-eq", "term": "number", "value": 0}
    assert right["left"] == {"type": "lt-eq", "term": "number", "value": IN_LIMIT}
    assert right["right"]["type"] == "in"
    assert json_of(inside("number", list(range(IN_LIMIT))))["type"] == "in"
    keys = inside("key", [UUID(int=n) for n in range(IN_LIMIT + 1)])
    assert json_of(keys)["type"] == "in"


def test_many_keys_of_several_columns_become_a_set_for_each() -> None:
    keys = [And(equal("number", n), equal("text", str(n % 2))) for n in range(IN_LIMIT + 1)]
    document = json_of(Or(*keys))
    assert document["type"] == "and"
    texts = {"type": "in", "term": "text", "values": ["0", "1"]}
    assert parse_expression(texts) in operands(document)


def test_keys_of_different_columns_are_left_as_they_are() -> None:
    keys: list[BooleanExpression] = [
        And(equal("number", n), equal("text", str(n))) for n in range(IN_LIMIT + 1)
    ]
    keys.append(And(equal("number", 1), equal("day", "2026-05-01")))
    assert json_of(Or(*keys))["type"] == "or"


def test_a_negation_is_never_widened() -> None:
    """Widening an operand of a negation would narrow the whole expression."""
    keys = [And(equal("number", n), equal("text", str(n))) for n in range(IN_LIMIT + 1)]
    negation: Any = Not
    document = json_of(negation(Or(*keys)))
    assert document["type"] == "not"
    assert document["child"]["type"] == "or"


# --- values that JSON lacks ---------------------------------------------------------------------


def test_a_negated_constant_is_a_constant() -> None:
    """A required column is never null, so PyIceberg replaces the test of one by a constant."""
    negation: Any = Not
    assert json_of(negation(parse("number = 1 and id is null"))) == {"type": "true"}
    never = negation(parse("id is not null"))
    assert json_of(Or(never, equal("number", 1)))["type"] == "eq"


def test_an_infinity_widens_a_conflict_filter_to_everything() -> None:
    assert json_of(equal("exact", float("inf"))) == {"type": "true"}
