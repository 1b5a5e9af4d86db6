"""Java's rules for single predicates that no Python library implements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundSetPredicate,
    BoundTransform,
    bind,
)
from frazil.format.expr.projection import inclusive_projection, strict_projection
from frazil.format.manifest.manifest_list import PartitionSummary
from frazil.format.metadata.partition_spec import PartitionSpec, parse_partition_spec
from frazil.format.metadata.schema import parse_schema
from frazil.format.pruning.evaluators import (
    IN_PREDICATE_LIMIT,
    inclusive_metrics_evaluator,
    manifest_evaluator,
    partition_evaluator,
    strict_metrics_evaluator,
)
from frazil.values.single_value import to_binary
from frazil.values.types import DOUBLE, INT, STRING, TIMESTAMP
from frazil.wire.expressions import ALWAYS_FALSE, ALWAYS_TRUE, Expression, parse_expression
from tests.support.row_evaluator import row_evaluator

NAMES = {"i": "int", "f": "double", "s": "string", "t": "timestamp", "d": "date"}
IDS = {name: position for position, name in enumerate(NAMES, 1)}
SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"id": IDS[name], "name": name, "type": type_, "required": False}
                for name, type_ in NAMES.items()
            ],
        }
    ).encode()
)


@dataclass
class Metrics:
    record_count: int = 10
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None


def bound(operation: str, term: Any, value: Any = None) -> Expression:
    predicate = {"type": operation, "term": term}
    if isinstance(value, list):
        predicate["values"] = value
    elif value is not None:
        predicate["value"] = value
    return bind(parse_expression(predicate), SCHEMA)


def transformed(transform: str, name: str) -> dict[str, str]:
    return {"type": "transform", "transform": transform, "term": name}


def spec_of(name: str, transform: str) -> PartitionSpec:
    part = {"source-id": IDS[name], "field-id": 1000, "name": "p", "transform": transform}
    return parse_partition_spec(json.dumps({"spec-id": 0, "fields": [part]}).encode())


def test_files_with_one_value_are_excluded_by_negative_predicates() -> None:
    five = to_binary(INT, 5)
    single = Metrics(null_value_counts={1: 0}, lower_bounds={1: five}, upper_bounds={1: five})
    assert not inclusive_metrics_evaluator(bound("not-eq", "i", 5))(single)
    assert not inclusive_metrics_evaluator(bound("not-in", "i", [5, 6]))(single)
    assert inclusive_metrics_evaluator(bound("not-eq", "i", 6))(single)
    single.null_value_counts = {1: 1}
    assert inclusive_metrics_evaluator(bound("not-eq", "i", 5))(single)
    real = to_binary(DOUBLE, 5.0)
    floats = Metrics(null_value_counts={2: 0}, lower_bounds={2: real}, upper_bounds={2: real})
    assert inclusive_metrics_evaluator(bound("not-eq", "f", 5))(floats)
    floats.nan_value_counts = {2: 0}
    assert not inclusive_metrics_evaluator(bound("not-eq", "f", 5))(floats)


def test_manifests_with_one_value_are_excluded_by_negative_predicates() -> None:
    spec, five = spec_of("i", "identity"), to_binary(INT, 5)
    evaluate = manifest_evaluator(inclusive_projection(bound("not-eq", "i", 5), spec), spec)
    assert not evaluate([PartitionSummary(False, False, five, five)])
    assert evaluate([PartitionSummary(True, False, five, five)])
    assert evaluate([PartitionSummary(False, False, five, to_binary(INT, 6))])
    assert evaluate([PartitionSummary(False, False, b"???????", five)])
    assert evaluate([])
    assert evaluate(None)


def test_large_sets_are_not_looked_through() -> None:
    low, high = to_binary(INT, -9), to_binary(INT, -1)
    file = Metrics(lower_bounds={1: low}, upper_bounds={1: high})
    spec = spec_of("i", "identity")
    for count, expected in ((IN_PREDICATE_LIMIT, False), (IN_PREDICATE_LIMIT + 1, True)):
        expression = bound("in", "i", list(range(count)))
        assert inclusive_metrics_evaluator(expression)(file) is expected
        evaluate = manifest_evaluator(inclusive_projection(expression, spec), spec)
        assert evaluate([PartitionSummary(False, None, low, high)]) is expected


def test_strict_answers_need_counts() -> None:
    one = to_binary(INT, 1)
    less = strict_metrics_evaluator(bound("lt", "i", 5))
    assert less(Metrics(null_value_counts={1: 0}, upper_bounds={1: one}))
    assert not less(Metrics(null_value_counts={}, upper_bounds={1: one}))
    assert not less(Metrics(upper_bounds={1: one}))
    real = to_binary(DOUBLE, 1.0)
    floats = Metrics(null_value_counts={2: 0}, upper_bounds={2: real})
    assert not strict_metrics_evaluator(bound("lt", "f", 5))(floats)
    floats.nan_value_counts = {2: 0}
    assert strict_metrics_evaluator(bound("lt", "f", 5))(floats)


def test_record_counts() -> None:
    expression = bound("lt", "i", 5)
    assert not inclusive_metrics_evaluator(expression)(Metrics(record_count=0))
    assert inclusive_metrics_evaluator(expression)(Metrics(record_count=-1))
    assert strict_metrics_evaluator(expression)(Metrics(record_count=0))
    assert not strict_metrics_evaluator(expression)(Metrics(record_count=-1))


def test_unreadable_bounds_exclude_nothing() -> None:
    file = Metrics(null_value_counts={3: 0}, lower_bounds={3: b"\xff"}, upper_bounds={3: b"\xff"})
    for operation in ("eq", "lt", "gt", "starts-with", "not-starts-with", "not-eq"):
        expression = bound(operation, "s", "a")
        assert inclusive_metrics_evaluator(expression)(file)
        assert not strict_metrics_evaluator(expression)(file)


def test_transform_terms_use_the_bounds_of_their_column() -> None:
    hour = 3_600_000_000
    low, high = to_binary(TIMESTAMP, 24 * hour), to_binary(TIMESTAMP, 49 * hour)
    file = Metrics(null_value_counts={4: 0}, lower_bounds={4: low}, upper_bounds={4: high})
    term = transformed("day", "t")
    for day, expected in (("1970-01-01", False), ("1970-01-02", True), ("1970-01-04", False)):
        expression = bound("eq", term, day)
        assert inclusive_metrics_evaluator(expression)(file) is expected
        assert not strict_metrics_evaluator(expression)(file)
    assert inclusive_metrics_evaluator(bound("eq", transformed("bucket[4]", "i"), 3))(file)
    assert row_evaluator(bound("eq", term, "1970-01-02"))({4: 25 * hour})


@pytest.mark.parametrize("project", [inclusive_projection, strict_projection])
def test_transform_terms_match_equal_partition_fields(project: Any) -> None:
    expression = bound("eq", transformed("bucket[4]", "i"), 3)
    same = spec_of("i", "bucket[4]")
    evaluate = partition_evaluator(project(expression, same), same)
    assert [evaluate([value]) for value in (2, 3, None)] == [False, True, False]
    unknown = ALWAYS_FALSE if project is strict_projection else ALWAYS_TRUE
    for other in ("bucket[8]", "truncate[4]", "void"):
        assert project(expression, spec_of("i", other)) == unknown
    # Java compares the column itself with the bucket here. We compare the bucket of the value.
    itself = project(expression, spec_of("i", "identity"))
    assert isinstance(itself.term, BoundTransform)


def literal(expression: Expression) -> tuple[str, Any]:
    assert isinstance(expression, BoundLiteralPredicate)
    return expression.operation.value, expression.value


def members(expression: Expression) -> tuple[str, set[Any]]:
    assert isinstance(expression, BoundSetPredicate)
    return expression.operation.value, set(expression.values)


def test_negative_times_allow_for_what_old_versions_wrote() -> None:
    """The rules are `ProjectionUtil.fixInclusiveTimeProjection` and `fixStrictTimeProjection`."""
    hours, before = spec_of("t", "hour"), "1969-12-31T22:30:00"
    assert literal(inclusive_projection(bound("lt", "t", before), hours)) == ("lt-eq", -1)
    assert literal(inclusive_projection(bound("gt", "t", before), hours)) == ("gt-eq", -2)
    assert members(inclusive_projection(bound("eq", "t", before), hours)) == ("in", {-2, -1})
    assert literal(strict_projection(bound("gt", "t", before), hours)) == ("gt", -1)
    assert literal(strict_projection(bound("lt", "t", before), hours)) == ("lt", -2)
    assert members(strict_projection(bound("not-eq", "t", before), hours)) == ("not-in", {-2, -1})
    days = spec_of("d", "day")
    assert literal(inclusive_projection(bound("eq", "d", -2), days)) == ("eq", -2)
    assert members(inclusive_projection(bound("eq", "d", -2), spec_of("d", "month"))) == (
        "in",
        {-1, 0},
    )


def test_prefixes_on_truncated_partitions() -> None:
    spec = spec_of("s", "truncate[2]")
    for prefix, operation in (("a", "starts-with"), ("ab", "eq")):
        expression = bound("starts-with", "s", prefix)
        assert literal(inclusive_projection(expression, spec)) == (operation, prefix)
        assert literal(strict_projection(expression, spec)) == (operation, prefix)
    longer = bound("starts-with", "s", "abc")
    assert literal(inclusive_projection(longer, spec)) == ("starts-with", "ab")
    assert strict_projection(longer, spec) == ALWAYS_FALSE
    without = bound("not-starts-with", "s", "abc")
    assert inclusive_projection(without, spec) == ALWAYS_TRUE
    assert literal(strict_projection(without, spec)) == ("not-starts-with", "ab")


def test_the_ends_of_a_type_do_not_wrap_around() -> None:
    spec = spec_of("i", "truncate[10]")
    assert inclusive_projection(bound("lt", "i", -(2**31)), spec) == ALWAYS_FALSE
    assert inclusive_projection(bound("gt", "i", 2**31 - 1), spec) == ALWAYS_FALSE
    assert strict_projection(bound("lt-eq", "i", 2**31 - 1), spec) == ALWAYS_FALSE


def test_null_and_nan_match_only_negative_predicates() -> None:
    for value in (None, float("nan")):
        for operation in ("lt", "lt-eq", "gt", "gt-eq", "eq"):
            assert not row_evaluator(bound(operation, "f", 1))({2: value})
        assert row_evaluator(bound("not-eq", "f", 1))({2: value})
        assert row_evaluator(bound("not-in", "f", [1, 2]))({2: value})
    assert row_evaluator(bound("not-starts-with", "s", "a"))({})
    assert not row_evaluator(bound("starts-with", "s", ""))({})


def test_prefixes_and_bounds() -> None:
    def file(lower: str, upper: str) -> Metrics:
        low, high = to_binary(STRING, lower), to_binary(STRING, upper)
        return Metrics(null_value_counts={3: 0}, lower_bounds={3: low}, upper_bounds={3: high})

    starts, lacks = bound("starts-with", "s", "ab"), bound("not-starts-with", "s", "ab")
    for lower, upper, may_start, must_start, may_lack, must_lack in (
        ("aba", "abz", True, True, False, False),
        ("a", "b", True, False, True, False),
        ("ac", "b", False, False, True, True),
        ("", "aa", False, False, True, True),
        ("aa", "ab", True, False, True, False),
    ):
        metrics = file(lower, upper)
        assert inclusive_metrics_evaluator(starts)(metrics) is may_start
        assert strict_metrics_evaluator(starts)(metrics) is must_start
        assert inclusive_metrics_evaluator(lacks)(metrics) is may_lack
        assert strict_metrics_evaluator(lacks)(metrics) is must_lack
