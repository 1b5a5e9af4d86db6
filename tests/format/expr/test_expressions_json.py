"""Expressions in JSON: both forms of the REST specification, and invalid ones."""

from __future__ import annotations

import json
import operator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.expressions import BooleanExpression

from frazil.values.literal_values import TypedLiteral
from frazil.values.transforms import Bucket, parse_transform
from frazil.values.types import DATE, LONG
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    MAX_DEPTH,
    SET_OPERATIONS,
    UNARY_OPERATIONS,
    Expression,
    Not,
    Operation,
    Or,
    Predicate,
    Term,
    all_of,
    any_of,
    expression_json,
    parse_expression,
)

X = Term("x")


def compared(operation: Operation, value: Any) -> Predicate:
    return Predicate(operation, X, (value,))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ALWAYS_TRUE),
        (False, ALWAYS_FALSE),
        ({"type": "true"}, ALWAYS_TRUE),
        ({"type": "false"}, ALWAYS_FALSE),
        ({"type": "literal", "value": True}, ALWAYS_TRUE),
        ({"type": "is-null", "term": "x"}, Predicate(Operation.IS_NULL, X)),
        (
            {"type": "not-nan", "child": {"type": "reference", "id": 3}},
            Predicate(Operation.NOT_NAN, Term(3)),
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
            Predicate(Operation.EQ, X, (TypedLiteral("2024-02-29", DATE),)),
        ),
        (
            {"type": "in", "term": "x", "values": [1, {"type": "literal", "value": 2}]},
            Predicate(Operation.IN, X, (1, 2)),
        ),
        (
            {
                "type": "not-in",
                "child": {"type": "reference", "name": "x"},
                "values": {"type": "literals", "values": ["1970-01-02"], "data-type": "date"},
            },
            Predicate(Operation.NOT_IN, X, (TypedLiteral("1970-01-02", DATE),)),
        ),
        (
            {
                "type": "eq",
                "term": {"type": "transform", "transform": "bucket[4]", "term": "x"},
                "value": 3,
            },
            Predicate(Operation.EQ, Term("x", Bucket(4)), (3,)),
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
                Predicate(Operation.EQ, Term("x", Bucket(4)), (3,)),
            )
            for function in (
                "bucket",
                ["bucket"],
                {"identifier": ["bucket"]},
                {"catalog": "iceberg_functions", "identifier": ["bucket"]},
            )
        ),
        (
            {"type": "and", "left": True, "right": {"type": "false"}},
            ALWAYS_FALSE,
        ),
        (
            {
                "type": "not",
                "child": {
                    "type": "or",
                    "left": {"type": "lt", "term": "x", "value": 1},
                    "right": {"type": "gt", "term": "x", "value": 5},
                },
            },
            Not(Or((compared(Operation.LT, 1), compared(Operation.GT, 5)))),
        ),
    ],
)
def test_forms_are_read(value: Any, expected: Expression) -> None:
    assert parse_expression(value) == expected


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
        parse_expression(value)
    assert named in refused.value.message


def nested(levels: int) -> Any:
    value: Any = True
    for _ in range(levels):
        value = {"type": "not", "child": value}
    return value


def test_depth_is_bounded() -> None:
    parse_expression(nested(MAX_DEPTH))
    with pytest.raises(BadRequest, match="too deeply"):
        parse_expression(nested(MAX_DEPTH + 1))
    with pytest.raises(BadRequest, match="too deeply"):
        parse_expression(nested(100_000))


transforms = st.sampled_from(["identity", "year", "hour", "bucket[7]", "truncate[3]"])
terms = st.builds(
    Term,
    st.text(min_size=1, max_size=5) | st.integers(1, 100),
    st.none() | transforms.map(parse_transform),
)
scalars = (
    st.booleans() | st.integers() | st.text() | st.decimals(allow_nan=False, allow_infinity=False)
)
literals = scalars | st.builds(TypedLiteral, scalars, st.sampled_from([DATE, LONG]))
comparisons = sorted(set(Operation) - UNARY_OPERATIONS - SET_OPERATIONS)
leaves: st.SearchStrategy[Expression] = st.one_of(
    st.sampled_from([ALWAYS_TRUE, ALWAYS_FALSE]),
    st.builds(Predicate, st.sampled_from(sorted(UNARY_OPERATIONS)), terms),
    st.builds(Predicate, st.sampled_from(comparisons), terms, st.tuples(literals)),
    st.builds(
        Predicate,
        st.sampled_from(sorted(SET_OPERATIONS)),
        terms,
        st.lists(literals, max_size=4).map(tuple),
    ),
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.builds(all_of, inner, inner) | st.builds(any_of, inner, inner) | inner.map(operator.inv)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(tree=trees)
def test_what_is_written_is_read_again(tree: Expression) -> None:
    assert parse_expression(expression_json(tree)) == tree


def test_pyiceberg_reads_the_deprecated_form() -> None:
    tree = any_of(
        all_of(compared(Operation.LT, 5), Not(Predicate(Operation.IS_NULL, X))),
        Predicate(Operation.IN, X, (1, 2)),
    )
    read = TypeAdapter(BooleanExpression).validate_python(expression_json(tree))
    assert parse_expression(json.loads(read.model_dump_json())) == tree


def test_numbers_keep_their_digits() -> None:
    assert expression_json(compared(Operation.EQ, Decimal("1.10")))["value"] == Decimal("1.10")
