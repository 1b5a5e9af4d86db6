"""Expressions in JSON: both forms of the REST specification, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.expressions import BooleanExpression

from frazil.format.expr.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    MAX_DEPTH,
    SET_OPERATIONS,
    UNARY_OPERATIONS,
    And,
    Expression,
    IdReference,
    Literal,
    LiteralPredicate,
    Not,
    Operation,
    Or,
    Reference,
    SetPredicate,
    TransformTerm,
    UnaryPredicate,
    from_json,
    to_json,
)
from frazil.values.transforms import Bucket, parse_transform
from frazil.values.types import DATE
from frazil.wire.errors import BadRequest

X = Reference("x")


def compared(operation: Operation, value: Any) -> LiteralPredicate:
    return LiteralPredicate(operation, X, Literal(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ALWAYS_TRUE),
        (False, ALWAYS_FALSE),
        ({"type": "true"}, ALWAYS_TRUE),
        ({"type": "false"}, ALWAYS_FALSE),
        ({"type": "literal", "value": True}, ALWAYS_TRUE),
        ({"type": "is-null", "term": "x"}, UnaryPredicate(Operation.IS_NULL, X)),
        (
            {"type": "not-nan", "child": {"type": "reference", "id": 3}},
            UnaryPredicate(Operation.NOT_NAN, IdReference(3)),
        ),
        ({"type": "lt-eq", "term": "x", "value": 5}, compared(Operation.LT_EQ, 5)),
        ({"type": "LT_EQ", "term": "x", "value": 5}, compared(Operation.LT_EQ, 5)),
        (
            {"type": "eq", "left": {"type": "reference", "name": "x"}, "right": "five"},
            compared(Operation.EQ, "five"),
        ),
        (
            {"type": "lt", "left": 5, "right": {"type": "reference", "name": "x"}},
            compared(Operation.GT, 5),
        ),
        (
            {"type": "eq", "term": "x", "value": {"type": "literal", "value": False}},
            compared(Operation.EQ, False),
        ),
        (
            {
                "type": "eq",
                "term": {"type": "reference", "term": "x"},
                "value": {"type": "literal", "value": "2024-02-29", "data-type": "date"},
            },
            LiteralPredicate(Operation.EQ, X, Literal("2024-02-29", DATE)),
        ),
        (
            {"type": "in", "term": "x", "values": [1, {"type": "literal", "value": 2}]},
            SetPredicate(Operation.IN, X, (Literal(1), Literal(2))),
        ),
        (
            {
                "type": "not-in",
                "child": {"type": "reference", "name": "x"},
                "values": {"type": "literals", "values": ["1970-01-02"], "data-type": "date"},
            },
            SetPredicate(Operation.NOT_IN, X, (Literal("1970-01-02", DATE),)),
        ),
        (
            {
                "type": "eq",
                "term": {"type": "transform", "transform": "bucket[4]", "term": "x"},
                "value": 3,
            },
            LiteralPredicate(Operation.EQ, TransformTerm(Bucket(4), X), Literal(3)),
        ),
        *(
            (
                {
                    "type": "eq",
                    "left": {
                        "type": "apply",
                        "function": function,
                        "arguments": [4, {"type": "reference", "name": "x"}],
                    },
                    "right": 3,
                },
                LiteralPredicate(Operation.EQ, TransformTerm(Bucket(4), X), Literal(3)),
            )
            for function in (
                "bucket",
                ["bucket"],
                {"identifier": ["bucket"]},
                {"catalog": "iceberg_functions", "identifier": ["bucket"]},
            )
        ),
        (
            {"type": "not", "child": {"type": "and", "left": True, "right": {"type": "false"}}},
            Not(And(ALWAYS_TRUE, ALWAYS_FALSE)),
        ),
    ],
)
def test_forms_are_read(value: Any, expected: Expression) -> None:
    assert from_json(value) == expected


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "filter"),
        ("x > 5", "filter"),
        ([], "filter"),
        ({}, "filter.type"),
        ({"type": 1}, "filter.type"),
        ({"type": "like", "term": "x", "value": "a%"}, "filter.type"),
        ({"type": "and", "left": True}, "filter.right"),
        ({"type": "or", "left": True, "right": {"type": "not"}}, "filter.right.child"),
        ({"type": "eq", "value": 5}, "filter.left"),
        ({"type": "eq", "term": "x"}, "filter.right"),
        ({"type": "eq", "term": "x", "value": None}, "filter.value"),
        ({"type": "eq", "term": "x", "value": [1]}, "filter.value"),
        ({"type": "eq", "term": "x", "value": float("nan")}, "filter.value"),
        ({"type": "eq", "term": "x", "left": "x", "value": 1}, "left or term"),
        ({"type": "eq", "term": "x", "right": 1, "value": 1}, "right or value"),
        ({"type": "eq", "term": "x", "value": 5, "values": [5]}, "filter.values"),
        ({"type": "is-null", "term": "x", "value": 5}, "filter.value"),
        ({"type": "in", "term": "x", "value": 5, "values": []}, "filter.value"),
        ({"type": "in", "term": "x", "values": 5}, "filter.values"),
        ({"type": "in", "term": "x", "values": [1, None]}, "filter.values[1]"),
        ({"type": "is-null", "term": 5}, "filter.term"),
        ({"type": "is-null", "term": {"type": "reference"}}, "filter.term"),
        ({"type": "is-null", "term": {"type": "reference", "id": "1"}}, "filter.term.id"),
        ({"type": "is-null", "term": {"type": "column"}}, "filter.term.type"),
        (
            {"type": "is-null", "term": {"type": "transform", "transform": "zorder", "term": "x"}},
            "filter.term.transform",
        ),
        (
            {
                "type": "is-null",
                "term": {"type": "transform", "transform": "bucket[0]", "term": "x"},
            },
            "filter.term.transform",
        ),
        (
            {"type": "is-null", "child": {"type": "apply", "function": "f", "arguments": ["x"]}},
            "filter.child.function",
        ),
        (
            {"type": "is-null", "child": {"type": "apply", "function": "day", "arguments": []}},
            "filter.child.arguments",
        ),
        (
            {
                "type": "is-null",
                "child": {
                    "type": "apply",
                    "function": {"catalog": "spark", "identifier": ["day"]},
                    "arguments": ["x"],
                },
            },
            "filter.child.function",
        ),
        (
            {
                "type": "eq",
                "left": {"type": "reference", "name": "x"},
                "right": {"type": "reference", "name": "y"},
            },
            "filter.right",
        ),
        (
            {"type": "eq", "term": "x", "value": {"type": "literal", "value": 1, "data-type": "n"}},
            "filter.value.data-type",
        ),
    ],
)
def test_a_wrong_part_is_named(value: Any, named: str) -> None:
    with pytest.raises(BadRequest) as refused:
        from_json(value)
    assert named in refused.value.message


def nested(levels: int) -> Any:
    value: Any = True
    for _ in range(levels):
        value = {"type": "not", "child": value}
    return value


def test_depth_is_bounded() -> None:
    from_json(nested(MAX_DEPTH))
    with pytest.raises(BadRequest, match="too deeply"):
        from_json(nested(MAX_DEPTH + 1))
    with pytest.raises(BadRequest, match="too deeply"):
        from_json(nested(100_000))


references = st.builds(Reference, st.text(min_size=1, max_size=5)) | st.builds(
    IdReference, st.integers(1, 100)
)
transforms = st.sampled_from(["identity", "year", "hour", "bucket[7]", "truncate[3]"])
terms = references | st.builds(TransformTerm, transforms.map(parse_transform), references)
literals = st.builds(
    Literal,
    st.booleans() | st.integers() | st.text() | st.decimals(allow_nan=False, allow_infinity=False),
)
comparisons = sorted(set(Operation) - UNARY_OPERATIONS - SET_OPERATIONS)
leaves = st.one_of(
    st.sampled_from([ALWAYS_TRUE, ALWAYS_FALSE]),
    st.builds(UnaryPredicate, st.sampled_from(sorted(UNARY_OPERATIONS)), terms),
    st.builds(LiteralPredicate, st.sampled_from(comparisons), terms, literals),
    st.builds(
        SetPredicate,
        st.sampled_from(sorted(SET_OPERATIONS)),
        terms,
        st.lists(literals, max_size=4).map(tuple),
    ),
)
trees: st.SearchStrategy[Expression] = st.recursive(
    leaves,
    lambda inner: (
        st.builds(And, inner, inner) | st.builds(Or, inner, inner) | st.builds(Not, inner)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(tree=trees, deprecated=st.booleans())
def test_what_is_written_is_read_again(tree: Expression, deprecated: bool) -> None:
    assert from_json(to_json(tree, deprecated=deprecated)) == tree


def test_pyiceberg_reads_the_deprecated_form() -> None:
    tree = Or(
        And(compared(Operation.LT, 5), Not(UnaryPredicate(Operation.IS_NULL, X))),
        SetPredicate(Operation.IN, X, (Literal(1), Literal(2))),
    )
    read = TypeAdapter(BooleanExpression).validate_python(to_json(tree, deprecated=True))
    assert from_json(json.loads(read.model_dump_json())) == tree


def test_numbers_keep_their_digits() -> None:
    assert to_json(compared(Operation.EQ, Decimal("1.10")))["right"] == Decimal("1.10")
