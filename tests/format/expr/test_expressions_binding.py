"""Binding: names, literals as Java's `Literals` converts them, and constant folding."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundReference,
    BoundSetPredicate,
    BoundTransform,
    BoundUnaryPredicate,
    bind,
)
from frazil.format.metadata.schema import Schema, parse_schema
from frazil.values.transforms import Bucket
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    MAX_DEPTH,
    NEGATED,
    And,
    Expression,
    Operation,
    Or,
    parse_expression,
)


def field(field_id: int, name: str, type_: Any, required: bool = False) -> dict[str, Any]:
    return {"id": field_id, "name": name, "type": type_, "required": required}


PRIMITIVES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal(9,2)",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
    "string",
    "uuid",
    "fixed[2]",
    "binary",
]


def build() -> Schema:
    fields = [
        field(position, type_.split("(")[0].split("[")[0], type_)
        for position, type_ in enumerate(PRIMITIVES, 1)
    ]
    inner = {"type": "struct", "fields": [field(41, "Leaf", "int", True)]}
    fields += [
        field(30, "must", "int", True),
        field(31, "nothing", "unknown"),
        field(40, "outer", inner),
        field(50, "sure", {"type": "struct", "fields": [field(51, "leaf", "int", True)]}, True),
        field(
            60,
            "many",
            {"type": "list", "element-id": 61, "element": "int", "element-required": True},
        ),
    ]
    return parse_schema(json.dumps({"type": "struct", "fields": fields}).encode())


SCHEMA = build()


def bound(value: Any, case_sensitive: bool = True) -> Expression:
    return bind(parse_expression(value), SCHEMA, case_sensitive=case_sensitive)


def literal_of(column: str, value: Any) -> Any:
    found = bound({"type": "eq", "term": column, "value": value})
    assert isinstance(found, BoundLiteralPredicate)
    return found.value


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("boolean", True, True),
        ("int", 5, 5),
        ("long", -(2**63), -(2**63)),
        ("float", Decimal("0.1"), 0.10000000149011612),
        ("double", Decimal("0.1"), 0.1),
        ("double", 3, 3.0),
        ("decimal", "1.5", Decimal("1.50")),
        ("decimal", Decimal("1.500"), Decimal("1.50")),
        ("decimal", 0.5, Decimal("0.50")),
        ("decimal", -7, Decimal("-7.00")),
        ("decimal", "0e9", Decimal("0.00")),
        ("date", "1970-01-03", 2),
        ("date", -4, -4),
        ("time", "00:00:01", 1_000_000),
        ("time", 7, 7),
        ("timestamp", "1970-01-01T00:00:01.000001", 1_000_001),
        ("timestamp", 12, 12),
        ("timestamptz", "1970-01-01T01:00:00+01:00", 0),
        ("timestamptz", "1969-12-31T23:30:00-00:30", 0),
        ("timestamptz", "1970-01-01T00:00:00Z", 0),
        ("timestamp_ns", "1970-01-01T00:00:00.000000001", 1),
        ("timestamp_ns", 2, 2000),
        ("timestamptz_ns", "1970-01-01T00:00:00.000000001+00:00", 1),
        ("string", "a", "a"),
        (
            "uuid",
            "f79c3e09-677c-4bbd-a479-3f349cb785e7",
            UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ),
        ("fixed", "0aFF", b"\x0a\xff"),
        ("binary", "", b""),
        ("date", {"type": "literal", "value": "1970-01-02", "data-type": "date"}, 1),
        ("long", {"type": "literal", "value": 5, "data-type": "int"}, 5),
    ],
)
def test_literals_become_internal_values(column: str, value: Any, expected: Any) -> None:
    found = literal_of(column, value)
    assert (found, type(found)) == (expected, type(expected))
    assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("boolean", 1),
        ("int", "5"),
        ("int", Decimal("5.5")),
        ("int", True),
        ("long", 5.0),
        ("double", "NaN"),
        ("decimal", "1.005"),
        ("decimal", "many"),
        ("decimal", "Infinity"),
        ("date", "1970-02-30"),
        ("date", 1.5),
        ("timestamp", "1970-01-01T00:00:00Z"),
        ("timestamp", "1970-01-01T00:00:00.000000001"),
        ("timestamptz", "1970-01-01T00:00:00"),
        ("timestamptz", "1970-01-01T00:00:00+25:00"),
        ("string", 5),
        ("uuid", "f79c3e09"),
        ("uuid", 5),
        ("fixed", "0a"),
        ("binary", "0"),
        ("nothing", 1),
        ("outer", 1),
        ("many", 1),
        ("string", {"type": "literal", "value": "ab", "data-type": "binary"}),
        ("int", {"type": "literal", "value": "ab", "data-type": "int"}),
    ],
)
def test_a_literal_of_another_type_names_the_column(column: str, value: Any) -> None:
    for predicate in ({"type": "eq", "value": value}, {"type": "in", "values": [value, value]}):
        with pytest.raises(BadRequest, match=f"column '{column}'"):
            bound({"term": column} | predicate)


@pytest.mark.parametrize(
    ("column", "above", "below"),
    [
        ("int", 2**31, -(2**31) - 1),
        ("long", 2**63, -(2**63) - 1),
        ("date", 2**31, -(2**31) - 1),
        ("timestamp_ns", 2**60, -(2**60)),
        ("float", 1e39, -1e39),
        ("float", 10**400, -(10**400)),
        ("decimal", 10**7, "-10000000.00"),
    ],
)
def test_a_literal_out_of_range_folds(column: str, above: Any, below: Any) -> None:
    for operation, is_true in (
        ("lt", True),
        ("lt-eq", True),
        ("not-eq", True),
        ("gt", False),
        ("gt-eq", False),
        ("eq", False),
    ):
        expected = ALWAYS_TRUE if is_true else ALWAYS_FALSE
        assert bound({"type": operation, "term": column, "value": above}) == expected
        mirrored = {"lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq"}
        other = mirrored.get(operation, operation)
        assert bound({"type": other, "term": column, "value": below}) == expected
    assert bound({"type": "in", "term": column, "values": [above, below]}) == ALWAYS_FALSE
    assert bound({"type": "not-in", "term": column, "values": [above]}) == ALWAYS_TRUE
    kept = bound({"type": "in", "term": column, "values": [above, 1]})
    assert isinstance(kept, BoundLiteralPredicate)
    assert kept.operation is Operation.EQ


def test_sets_keep_each_value_once() -> None:
    found = bound({"type": "in", "term": "decimal", "values": ["1.0", "1.00", 2]})
    assert isinstance(found, BoundSetPredicate)
    assert found.values == {Decimal("1.00"), Decimal("2.00")}
    single = bound({"type": "not-in", "term": "int", "values": [3, 3]})
    assert isinstance(single, BoundLiteralPredicate)
    assert single.operation is Operation.NOT_EQ


def test_null_tests_of_what_is_never_or_always_null_fold() -> None:
    for column, is_null in (("must", False), ("sure.leaf", False), ("nothing", True)):
        assert bound({"type": "is-null", "term": column}) == (
            ALWAYS_TRUE if is_null else ALWAYS_FALSE
        )
        assert bound({"type": "not-null", "term": column}) == (
            ALWAYS_FALSE if is_null else ALWAYS_TRUE
        )
    # A required field of an optional struct is null if the struct is null.
    found = bound({"type": "is-null", "term": "outer.Leaf"})
    assert isinstance(found, BoundUnaryPredicate)
    assert found.term == BoundReference(41, "outer.Leaf", SCHEMA.fields_by_id[41].type, True, True)
    assert isinstance(bound({"type": "is-null", "term": "int"}), BoundUnaryPredicate)
    bucketed = {"type": "transform", "transform": "bucket[4]", "term": "must"}
    assert isinstance(bound({"type": "is-null", "term": bucketed}), BoundUnaryPredicate)


def test_names_and_ids_find_columns() -> None:
    by_id = bound({"type": "eq", "left": {"type": "reference", "id": 41}, "right": 1})
    assert by_id == bound({"type": "eq", "term": "outer.Leaf", "value": 1})
    assert by_id == bound({"type": "eq", "term": "OUTER.leaf", "value": 1}, case_sensitive=False)
    for term in ("OUTER.leaf", "absent", {"type": "reference", "id": 99}):
        with pytest.raises(BadRequest, match="no column"):
            bound({"type": "eq", "term": term, "value": 1})
    with pytest.raises(BadRequest, match="inside a list"):
        bound({"type": "is-null", "term": "many.element"})


def test_transform_terms() -> None:
    found = bound(
        {"type": "eq", "term": {"type": "transform", "transform": "day", "term": "timestamp"}}
        | {"value": "1970-01-02"}
    )
    assert isinstance(found, BoundLiteralPredicate)
    assert found.value == 1
    bucket = {"type": "transform", "transform": "bucket[4]", "term": "uuid"}
    found = bound({"type": "in", "term": bucket, "values": [1, 2]})
    assert isinstance(found, BoundSetPredicate)
    assert isinstance(found.term, BoundTransform)
    assert found.term.transform == Bucket(4)
    plain = {"type": "transform", "transform": "identity", "term": "int"}
    assert bound({"type": "is-null", "term": plain}) == bound({"type": "is-null", "term": "int"})
    with pytest.raises(BadRequest, match="cannot transform boolean values of column 'boolean'"):
        bound({"type": "is-null", "term": bucket | {"term": "boolean"}})


@pytest.mark.parametrize(
    "value",
    [
        {"type": "is-nan", "term": "int"},
        {"type": "starts-with", "term": "binary", "value": "00"},
        {"type": "not-starts-with", "term": "int", "value": 5},
    ],
)
def test_an_operation_of_another_type_names_the_column(value: Any) -> None:
    with pytest.raises(BadRequest, match=f"column '{value['term']}'"):
        bound(value)


def test_negations_are_pushed_down() -> None:
    for operation, negated in NEGATED.items():
        column = "double" if operation.endswith("nan") else "string"
        predicate: dict[str, Any] = {"type": operation.value, "term": column}
        if operation in (Operation.IN, Operation.NOT_IN):
            predicate["values"] = ["a", "b"]
        elif not operation.endswith(("null", "nan")):
            predicate["value"] = "a"
        found = bound({"type": "not", "child": predicate})
        assert found == bound(predicate | {"type": negated.value})
    less = {"type": "lt", "term": "int", "value": 1}
    null = {"type": "is-null", "term": "int"}
    both = bound({"type": "not", "child": {"type": "and", "left": less, "right": null}})
    assert isinstance(both, Or)
    either = bound({"type": "not", "child": {"type": "or", "left": less, "right": null}})
    assert isinstance(either, And)
    assert bound({"type": "not", "child": {"type": "not", "child": less}}) == bound(less)
    assert bound({"type": "not", "child": True}) == ALWAYS_FALSE
    assert bound({"type": "or", "left": less, "right": {"type": "not", "child": False}}) == (
        ALWAYS_TRUE
    )


def test_the_deepest_tree_is_bound() -> None:
    value: Any = {"type": "lt", "term": "int", "value": 1}
    for level in range(MAX_DEPTH - 1):
        other = {"type": "gt", "term": "long", "value": level}
        value = {"type": "or" if level % 2 else "and", "left": value, "right": other}
    assert isinstance(bound(value), And | Or)


@pytest.mark.parametrize("zeros", [[-0.0, 0.0], [0.0, -0.0, 1.5]])
def test_both_zeros_of_a_set_are_kept(zeros: list[float]) -> None:
    """The zeros are two values in Iceberg's order, but equal in a Python set."""
    schema = build()
    inside = bind(parse_expression({"type": "in", "term": "double", "values": zeros}), schema)
    outside = bind(parse_expression({"type": "not-in", "term": "double", "values": zeros}), schema)
    assert isinstance(inside, Or)
    assert isinstance(outside, And)
    for joined, single in ((inside, Operation.EQ), (outside, Operation.NOT_EQ)):
        others, negative = joined.operands
        assert isinstance(negative, BoundLiteralPredicate)
        assert negative.operation is single
        assert str(negative.value) == "-0.0"
        assert "-0.0" not in str(others)
