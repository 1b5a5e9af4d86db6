"""Soundness against rows: real rows with their partitions and metrics, and random expressions.

If any row matches, every inclusive answer must be true. If a strict answer is true, all rows
must match.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.format.expr.expression_binding import bind
from frazil.format.expr.projection import inclusive_projection, strict_projection
from frazil.format.manifest.manifest_list import PartitionSummary, is_nan
from frazil.format.metadata.partition_spec import PartitionSpec, parse_partition_spec
from frazil.format.metadata.schema import parse_schema
from frazil.format.pruning.evaluators import (
    inclusive_metrics_evaluator,
    manifest_evaluator,
    partition_evaluator,
    strict_metrics_evaluator,
)
from frazil.values import transforms
from frazil.values.single_value import InvalidValue, to_binary, to_json
from frazil.values.transforms import parse_transform
from frazil.values.types import Type
from frazil.wire.expressions import Expression, parse_expression
from tests.support.row_evaluator import row_evaluator

HOUR = 3_600_000_000
COLUMNS: dict[str, tuple[str, list[Any], list[str]]] = {
    "i": ("int", [-(2**31), -11, -10, -1, 0, 1, 9, 10, 2**31 - 1], ["truncate[10]", "bucket[3]"]),
    "l": ("long", [-(2**63), -5, 0, 5, 2**63 - 1], ["truncate[5]", "bucket[2]"]),
    "d": ("date", [-366, -365, -32, -31, -1, 0, 1, 31, 365], ["year", "month", "day", "bucket[2]"]),
    "t": (
        "timestamp",
        [-8760 * HOUR - 1, -24 * HOUR, -HOUR, -HOUR - 1, -1, 0, 1, HOUR - 1, HOUR, 24 * HOUR],
        ["year", "month", "day", "hour"],
    ),
    "n": (
        "decimal(5,2)",
        [Decimal(text) for text in ("-999.99", "-10.01", "-0.01", "0.00", "0.50", "999.99")],
        ["truncate[50]", "bucket[2]"],
    ),
    "s": (
        "string",
        ["", "a", "ab", "abc", "abcd", "abd", "b", "\uffff", "\U00010000", "\U0010ffff" * 4],
        ["truncate[1]", "truncate[3]", "bucket[3]"],
    ),
    "b": ("binary", [b"", b"\x00", b"\x7f\xff", b"\xff\xff\xff\xff"], ["truncate[2]", "bucket[2]"]),
    "f": ("double", [float("-inf"), -1.5, -0.0, 0.0, 1.5, float("inf"), float("nan")], []),
    "r": ("int", [-2, -1, 0, 1, 2], ["truncate[2]"]),
}
IDS = {name: position for position, name in enumerate(COLUMNS, 1)}
SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"id": IDS[name], "name": name, "type": type_, "required": name == "r"}
                for name, (type_, _, _) in COLUMNS.items()
            ],
        }
    ).encode()
)
TYPES: dict[str, Type] = {name: SCHEMA.fields_by_id[IDS[name]].type for name in COLUMNS}

Row = dict[int, Any]


def values(name: str) -> st.SearchStrategy[Any]:
    known = st.sampled_from(COLUMNS[name][1])
    return known if name == "r" else st.none() | known


rows = st.fixed_dictionaries({IDS[name]: values(name) for name in COLUMNS})


@st.composite
def predicates(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(list(COLUMNS)))
    type_, column_values, column_transforms = TYPES[name], *COLUMNS[name][1:]
    term: Any = name
    literals = [to_json(type_, value) for value in column_values if not _infinite(value)]
    if column_transforms and draw(st.integers(0, 3)) == 0:
        text = draw(st.sampled_from(column_transforms))
        transform = parse_transform(text)
        term = {"type": "transform", "transform": text, "term": name}
        results = {transforms.apply(transform, type_, value) for value in column_values}
        result_type = transform.result_type(type_)
        literals = [
            str(result) if isinstance(result, Decimal) else to_json(result_type, result)
            for result in results
            if not (isinstance(result, int) and abs(result) > 2**31)
        ]
    kinds = ["unary", "literal", "literal", "set"] + (
        ["prefix"] if isinstance(literals[0], str) and name == "s" else []
    )
    kind = draw(st.sampled_from(kinds))
    if kind == "unary":
        nan = ["is-nan", "not-nan"] if name == "f" else []
        return {"type": draw(st.sampled_from(["is-null", "not-null", *nan])), "term": term}
    if kind == "set":
        chosen = draw(st.lists(st.sampled_from(literals), max_size=4))
        return {"type": draw(st.sampled_from(["in", "not-in"])), "term": term, "values": chosen}
    operations = ["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq"]
    if kind == "prefix":
        operations = ["starts-with", "not-starts-with"]
    operation = draw(st.sampled_from(operations))
    return {"type": operation, "term": term, "value": draw(st.sampled_from(literals))}


def _infinite(value: Any) -> bool:
    return isinstance(value, float) and (is_nan(value) or abs(value) == float("inf"))


trees: st.SearchStrategy[Expression] = st.recursive(
    predicates(),
    lambda inner: st.one_of(
        st.builds(lambda child: {"type": "not", "child": child}, inner),
        st.builds(
            lambda kind, left, right: {"type": kind, "left": left, "right": right},
            st.sampled_from(["and", "or"]),
            inner,
            inner,
        ),
    ),
    max_leaves=4,
).map(lambda value: bind(parse_expression(value), SCHEMA))


@dataclass
class Metrics:
    record_count: int
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


def truncated(value: Any, upper: bool, width: int = 2) -> Any:
    """Return a bound as writers truncate it. An upper bound is incremented, or None if that is
    impossible."""
    if not isinstance(value, str | bytes) or len(value) <= width:
        return value
    if not upper:
        return value[:width]
    for end in range(width, 0, -1):
        if isinstance(value, bytes) and value[end - 1] < 255:
            return value[: end - 1] + bytes([value[end - 1] + 1])
        if isinstance(value, str) and ord(value[end - 1]) < 0x10FFFF:
            grown = ord(value[end - 1]) + 1
            return value[: end - 1] + chr(0xE000 if 0xD800 <= grown < 0xE000 else grown)
    return None


def measure(file: Sequence[Row], dropped: frozenset[tuple[str, int]]) -> Metrics:
    metrics = Metrics(len(file))
    for name, field_id in IDS.items():
        column = [row[field_id] for row in file]
        known = [value for value in column if value is not None and not is_nan(value)]
        metrics.value_counts[field_id] = len(column)
        metrics.null_value_counts[field_id] = sum(value is None for value in column)
        if name == "f":
            metrics.nan_value_counts[field_id] = sum(map(is_nan, column))
        if known:
            lower, upper = truncated(min(known), False), truncated(max(known), True)
            metrics.lower_bounds[field_id] = to_binary(TYPES[name], lower)
            if upper is not None:
                metrics.upper_bounds[field_id] = to_binary(TYPES[name], upper)
    for kind, field_id in dropped:
        getattr(metrics, kind).pop(field_id, None)
    return metrics


KINDS = [
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
]
dropped_metrics = st.frozensets(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(list(IDS.values()))), max_size=6
)


@settings(max_examples=200, deadline=None)
@given(
    tree=trees,
    file=st.lists(rows, min_size=0, max_size=4),
    dropped=st.just(frozenset[tuple[str, int]]()) | dropped_metrics,
)
def test_metrics_evaluators_are_sound(
    tree: Expression, file: list[Row], dropped: frozenset[tuple[str, int]]
) -> None:
    matches = [row_evaluator(tree)(row) for row in file]
    metrics = measure(file, dropped)
    assert inclusive_metrics_evaluator(tree)(metrics) or not any(matches)
    assert all(matches) or not strict_metrics_evaluator(tree)(metrics)


@st.composite
def specs(draw: st.DrawFn) -> PartitionSpec:
    options = [
        (name, text)
        for name, (_, _, column_transforms) in COLUMNS.items()
        for text in ["identity", "void", *column_transforms]
    ]
    chosen = draw(st.lists(st.sampled_from(options), max_size=4, unique=True))
    fields = [
        {"source-id": IDS[name], "name": f"p{position}", "transform": text}
        for position, (name, text) in enumerate(chosen)
    ]
    return parse_partition_spec(json.dumps({"spec-id": 1, "fields": fields}).encode())


def partition_of(row: Mapping[int, Any], spec: PartitionSpec, wrong: bool = False) -> list[Any]:
    """Return the partition values of a row; `wrong` applies the error of old Java versions for
    negative times."""
    found = []
    for part in spec.fields:
        source = SCHEMA.fields_by_id[part.source_id].type
        value = transforms.apply(part.transform, source, row[part.source_id])
        if wrong and str(part.transform) in ("year", "month", "day", "hour") and value is not None:
            is_date = str(part.transform) == "day" and str(source) == "date"
            value = value if is_date or value >= 0 else value + 1
        found.append(value)
    return found


def _bound(type_: Type, value: Any) -> bytes:
    """Encode a bound. A truncated value may be invalid for its type; then the bound cannot be
    read."""
    try:
        return to_binary(type_, value)
    except InvalidValue:
        return b""


def summaries(spec: PartitionSpec, partitions: Sequence[Sequence[Any]]) -> list[PartitionSummary]:
    found = []
    for position, part in enumerate(spec.fields):
        type_ = part.transform.result_type(SCHEMA.fields_by_id[part.source_id].type)
        column = [partition[position] for partition in partitions]
        known = [value for value in column if value is not None and not is_nan(value)]
        bounds = [_bound(type_, extreme(known)) for extreme in (min, max)] if known else [None] * 2
        found.append(
            PartitionSummary(
                contains_null=None in column,
                contains_nan=any(map(is_nan, column)),
                lower_bound=bounds[0],
                upper_bound=bounds[1],
            )
        )
    return found


@settings(max_examples=200, deadline=None)
@given(
    tree=trees,
    spec=specs(),
    file=st.lists(rows, min_size=1, max_size=5),
    wrong=st.booleans(),
)
def test_projections_are_sound(
    tree: Expression, spec: PartitionSpec, file: list[Row], wrong: bool
) -> None:
    matches = [row_evaluator(tree)(row) for row in file]
    partitions = [partition_of(row, spec, wrong) for row in file]
    inclusive, strict = inclusive_projection(tree, spec), strict_projection(tree, spec)
    may_match, must_match = partition_evaluator(inclusive, spec), partition_evaluator(strict, spec)
    for matched, partition in zip(matches, partitions, strict=True):
        if wrong and _has_transform(tree):
            continue
        assert may_match(partition) or not matched
        assert matched or not must_match(partition)
    matching = [may_match(partition) for partition in partitions]
    assert manifest_evaluator(inclusive, spec)(summaries(spec, partitions)) or not any(matching)
    assert manifest_evaluator(inclusive, spec)(None)


def _has_transform(tree: Expression) -> bool:
    """Return whether a filter names a transform. As in Java, it is then compared without an
    allowance for wrong negative times."""
    return "BoundTransform" in repr(tree)
