"""Evaluating many files at once gives the same answers as evaluating each file."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundReference,
    BoundSetPredicate,
    BoundTransform,
    BoundUnaryPredicate,
)
from frazil.format.manifest.entry_fields import RowMetrics
from frazil.format.manifest.manifest_columns import decode_columns
from frazil.format.pruning.column_evaluators import (
    inclusive_column_evaluator,
    inclusive_mask,
    strict_mask,
)
from frazil.format.pruning.evaluators import inclusive_metrics_evaluator, strict_metrics_evaluator
from frazil.format.pruning.metric_columns import MetricColumns, metrics_of_files
from frazil.format.pruning.metric_decoder import decode_metrics
from frazil.values.single_value import decimal_from_unscaled, to_binary
from frazil.values.transforms import parse_transform
from frazil.values.type_json import parse_type
from frazil.wire.expressions import Expression, Operation, Predicate, Term, all_of, any_of
from tests.format.manifest_files import data_file, encoder_of, manifest_of
from tests.format.metric_worlds import ALL, FIELD_ID, Column, rows_of, tree_of


def check(expression: Expression, rows: Sequence[RowMetrics], metrics: MetricColumns) -> None:
    may = [inclusive_metrics_evaluator(expression)(row) for row in rows]
    must = [strict_metrics_evaluator(expression)(row) for row in rows]
    assert inclusive_mask(expression, metrics).tolist() == may
    assert strict_mask(expression, metrics).tolist() == must


@pytest.mark.parametrize("column", ALL.values(), ids=list(ALL))
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_answers_are_those_of_each_file(column: Column, seed: int) -> None:
    rng = Random(seed)
    rows = rows_of(rng, column)
    metrics = metrics_of_files(rows)
    for _ in range(8):
        check(tree_of(rng, column), rows, metrics)


@pytest.mark.parametrize("column", ALL.values(), ids=list(ALL))
def test_answers_about_decoded_files_are_those_of_each(column: Column) -> None:
    """Many files are decoded together, and the columns get their densest forms."""
    for seed in range(3):
        rng = Random(seed)
        rows = [
            replace(row, record_count=abs(row.record_count))
            for row in rows_of(rng, column, number=130)
        ]
        files = [
            data_file(
                n,
                record_count=row.record_count,
                value_counts=row.value_counts,
                null_value_counts=row.null_value_counts,
                nan_value_counts=row.nan_value_counts,
                lower_bounds=row.lower_bounds,
                upper_bounds=row.upper_bounds,
            )
            for n, row in enumerate(rows)
        ]
        content = manifest_of(encoder_of(), files)
        metrics = decode_metrics(content, decode_columns(content))
        chosen = np.array(rng.sample(range(130), 70)), np.array(rng.sample(range(130), 9))
        for _ in range(6):
            expression = tree_of(rng, column)
            check(expression, rows, metrics)
            for some in chosen:
                check(expression, [rows[n] for n in some], metrics.take(some))


# --- traps -----------------------------------------------------------------------------------


def reference(text: str, *, produces_null: bool = True) -> BoundReference:
    return BoundReference(FIELD_ID, "c", parse_type(text), produces_null)


def file(
    lower: bytes | None,
    upper: bytes | None,
    *,
    rows: int = 10,
    nulls: int | None = 0,
    **counts: Any,
) -> RowMetrics:
    nans = counts.get("nans")
    return RowMetrics(
        rows,
        {FIELD_ID: counts.get("values", rows)},
        None if nulls is None else {FIELD_ID: nulls},
        None if nans is None else {FIELD_ID: nans},
        None if lower is None else {FIELD_ID: lower},
        None if upper is None else {FIELD_ID: upper},
    )


def answers(expression: Expression, files: Sequence[RowMetrics]) -> tuple[list[bool], list[bool]]:
    """Return inclusive and strict answers after checking that they equal those of each file."""
    metrics = metrics_of_files(files)
    check(expression, files, metrics)
    return (
        inclusive_column_evaluator(expression)(metrics).tolist(),
        strict_mask(expression, metrics).tolist(),
    )


def compare(text: str, operation: str, value: Any) -> Expression:
    return BoundLiteralPredicate(Operation(operation), reference(text), value)


def test_promoted_bounds_beside_wide_ones() -> None:
    narrow, wide = (5).to_bytes(4, "little"), (1 << 40).to_bytes(8, "little")
    files = [file(narrow, narrow), file(narrow, wide), file(wide, wide), file(b"12345", wide)]
    assert answers(compare("long", "gt", 7), files)[0] == [False, True, True, True]
    assert answers(compare("long", "eq", 5), files) == (
        [True, True, False, True],
        [True, False, False, False],
    )


def test_dates_that_became_timestamps() -> None:
    day, moment = (19_000).to_bytes(4, "little"), to_binary(parse_type("timestamp"), 1)
    beyond = (2**31 - 1).to_bytes(4, "little")
    files = [file(day, day), file(moment, moment), file(beyond, beyond)]
    literal = 19_000 * 86_400_000_000
    assert answers(compare("timestamp", "eq", literal), files)[0] == [True, False, False]
    assert answers(compare("timestamp", "gt", 2**63 - 1), files)[0] == [False, False, True]


def test_a_bound_that_is_nan_says_nothing() -> None:
    nan, one = struct.pack("<d", math.nan), struct.pack("<d", 1.0)
    files = [file(nan, one, nans=0), file(one, nan, nans=0), file(nan, nan, nans=3)]
    assert answers(compare("double", "gt", 5.0), files)[0] == [False, True, True]
    assert answers(compare("double", "lt", 0.0), files)[0] == [True, False, True]


def test_negative_zero_is_zero() -> None:
    minus, plus = struct.pack("<d", -0.0), struct.pack("<d", 0.0)
    files = [file(minus, minus, nans=0), file(minus, plus, nans=0), file(plus, plus, nans=0)]
    assert answers(compare("double", "eq", 0.0), files) == ([True] * 3, [True] * 3)
    assert answers(compare("double", "eq", -0.0), files) == ([True] * 3, [True] * 3)


def test_a_float_is_compared_as_a_double() -> None:
    tenth = struct.pack("<f", 0.1)
    files = [file(tenth, tenth, nans=0)]
    assert answers(compare("double", "eq", 0.1), files)[0] == [False]
    assert answers(compare("double", "gt", 0.1), files)[0] == [True]


def test_files_without_values_or_rows() -> None:
    one = (1).to_bytes(8, "little")
    files = [
        file(None, None, nulls=10),
        file(one, one, rows=0),
        file(one, one, rows=-1),
        file(None, None, nulls=None),
    ]
    found = answers(compare("long", "eq", 7), files)
    assert found == ([False, False, True, True], [False, True, False, False])
    assert answers(BoundUnaryPredicate(Operation.NOT_NULL, reference("long")), files)[0] == [
        *(False, False, True, True)
    ]


def test_strings_are_ordered_by_code_points() -> None:
    """Java's string comparison uses UTF-16 and orders these two values differently."""
    lower, upper = "\uffff".encode(), "\U00010000".encode()
    assert answers(compare("string", "lt", "\U00010000"), [file(lower, upper)])[0] == [True]
    assert answers(compare("string", "gt", "\U00010000"), [file(lower, upper)])[0] == [False]


@pytest.mark.parametrize("size", [7, 8, 9, 15, 16, 17, 40])
def test_strings_that_differ_behind_the_first_words(size: int) -> None:
    low, high = "x" * (size - 1) + "b", "x" * (size - 1) + "d"
    files = [file(low.encode(), high.encode()), file((low + "\0").encode(), high.encode())]
    for literal, expected in ((low, [True, False]), (low + "\0", [True, True])):
        assert answers(compare("string", "eq", literal), files)[0] == expected
    assert answers(compare("string", "eq", "x" * (size - 1) + "c"), files)[0] == [True, True]
    assert answers(compare("string", "lt", low), files)[0] == [False, False]
    assert answers(compare("string", "gt-eq", high + "\0"), files)[0] == [False, False]
    assert answers(compare("string", "starts-with", low), files)[0] == [True, True]
    assert answers(compare("string", "starts-with", low + "c"), files)[0] == [True, True]
    same = [file(low.encode(), low.encode()), file(low.encode(), (low + "z").encode())]
    assert answers(compare("string", "not-starts-with", low), same) == (
        [False, False],
        [False, False],
    )
    assert answers(compare("string", "not-eq", low), same)[0] == [False, True]
    other = [file(high.encode(), high.encode()), file(low.encode(), high.encode())]
    assert answers(compare("string", "not-starts-with", low), other)[0] == [True, True]
    assert answers(compare("string", "starts-with", low), other)[1] == [False, False]


def test_what_is_not_utf8_says_nothing() -> None:
    files = [file(b"\xc3", b"\xc3"), file(b"a", b"b"), file(b"a" * 20 + b"\xff", b"b" * 20)]
    assert answers(compare("string", "eq", "zz"), files)[0] == [True, False, False]
    assert answers(compare("string", "lt", "a"), files)[0] == [True, False, True]


def test_uuids_are_ordered_as_unsigned_bytes() -> None:
    low, high = UUID(int=1), UUID(int=(1 << 128) - 1)
    files = [file(low.bytes, high.bytes), file(high.bytes, high.bytes), file(low.bytes[1:], None)]
    assert answers(compare("uuid", "lt", UUID(int=1 << 127)), files)[0] == [True, False, True]
    assert answers(compare("uuid", "eq", UUID(int=1 << 64)), files)[0] == [True, False, True]


def test_decimals_of_any_length() -> None:
    kind = parse_type("decimal(38,2)")
    numbers = [decimal_from_unscaled(digits, 2) for digits in (-129, 5, 2**64, 10**38 - 1)]
    files = [file(to_binary(kind, one), to_binary(kind, one)) for one in numbers]
    files.append(file(b"\x00" * 20 + b"\x05", b"\x00" * 20 + b"\x05"))
    for at, number in enumerate(numbers):
        found = [n == at or (at == 1 and n == 4) for n in range(5)]
        assert answers(compare("decimal(38,2)", "eq", number), files) == (found, found)
    assert answers(compare("decimal(38,2)", "lt", Decimal("0.00")), files)[0] == [
        *(True, False, False, False, False)
    ]


@pytest.mark.parametrize("operation", [Operation.IN, Operation.NOT_IN])
@pytest.mark.parametrize("count", [2, 199, 200, 201, 1_000])
def test_sets_of_many_literals(operation: Operation, count: int) -> None:
    """As in Java, a file may always match a set of more than 200 literals. Whether all rows must
    match is decided for any number."""
    rng = Random(count)
    values = frozenset(rng.sample(range(-(10**6), 10**6), count))
    numbers = [rng.randint(-(10**6), 10**6) for _ in range(300)]
    files = [
        file(low.to_bytes(8, "little", signed=True), (low + 900).to_bytes(8, "little", signed=True))
        for low in numbers
    ]
    exact = [next(iter(values)).to_bytes(8, "little", signed=True)] * 2
    files += [file(*exact), file(None, exact[1]), file(exact[0], None)]
    may, must = answers(BoundSetPredicate(operation, reference("long"), values), files)
    if operation is Operation.IN and count > 200:
        assert all(may)
    elif operation is Operation.IN:
        assert not all(may)
    assert any(must) == (operation is Operation.NOT_IN or must[300])
    texts = frozenset(f"customer#{value:09}" for value in values)
    pairs = [
        (f"customer#{low:09}".encode(), f"customer#{low + 900:09}".encode()) for low in numbers
    ]
    expression = BoundSetPredicate(operation, reference("string"), texts)
    answers(expression, [file(low, high) for low, high in pairs])


def test_a_literal_that_does_not_fit_the_column() -> None:
    """A projection or an older client may send such literals."""
    one = (1).to_bytes(4, "little")
    for literal in (2**40, -(2**40), 2**70, -(2**70)):
        for operation in ("lt", "gt", "eq", "not-eq"):
            answers(compare("int", operation, literal), [file(one, one)])
        values = frozenset({literal, 1, 5})
        answers(BoundSetPredicate(Operation.IN, reference("int"), values), [file(one, one)])
        answers(BoundSetPredicate(Operation.NOT_IN, reference("int"), values), [file(one, one)])


def test_a_column_without_statistics_excludes_nothing() -> None:
    files = [file(b"a", b"b"), file(b"c", b"d")]
    term = BoundReference(99, "other", parse_type("string"), True)
    expression = BoundLiteralPredicate(Operation.EQ, term, "x")
    assert answers(expression, files) == ([True, True], [False, False])


def test_trees() -> None:
    one, nine = (1).to_bytes(8, "little"), (9).to_bytes(8, "little")
    files = [file(one, one), file(one, nine), file(nine, nine)]
    low, high = compare("long", "lt", 5), compare("long", "gt", 5)
    assert answers(all_of(low, high), files) == ([False, True, False], [False, False, False])
    assert answers(any_of(low, high), files) == ([True, True, True], [True, False, True])


def test_transforms_over_the_calendar() -> None:
    term = BoundTransform(reference("timestamp"), parse_transform("year"))
    files = [
        file(to_binary(parse_type("timestamp"), low), to_binary(parse_type("timestamp"), high))
        for low, high in [(-1, -1), (0, 0), (-(2**63), 2**63 - 1)]
    ]
    assert answers(BoundLiteralPredicate(Operation.EQ, term, -1), files)[0] == [True, False, True]


def test_only_bound_expressions_are_evaluated() -> None:
    with pytest.raises(TypeError, match="not a bound expression"):
        inclusive_column_evaluator(Predicate(Operation.IS_NULL, Term(1)))
