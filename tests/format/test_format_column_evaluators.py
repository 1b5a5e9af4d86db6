"""Answers about many files at once are those about each of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.format.column_evaluators import (
    inclusive_mask,
    strict_mask,
)
from frazil.format.expressions import Expression
from frazil.format.manifest_columns import RowMetrics
from frazil.format.metric_columns import MetricColumns, metrics_of_files
from frazil.format.metrics_evaluators import (
    inclusive_metrics_evaluator,
    strict_metrics_evaluator,
)
from tests.format.metric_worlds import ALL, Column, rows_of, tree_of


def check(expression: Expression, rows: Sequence[RowMetrics], metrics: MetricColumns) -> None:
    may = [inclusive_metrics_evaluator(expression)(row) for row in rows]
    must = [strict_metrics_evaluator(expression)(row) for row in rows]
    record_count = metrics.record_count
    assert inclusive_mask(expression, metrics, record_count).tolist() == may
    assert strict_mask(expression, metrics, record_count).tolist() == must


@pytest.mark.parametrize("column", ALL.values(), ids=list(ALL))
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_answers_are_those_of_each_file(column: Column, seed: int) -> None:
    rng = Random(seed)
    rows = rows_of(rng, column)
    metrics = metrics_of_files(rows)
    for _ in range(8):
        check(tree_of(rng, column), rows, metrics)
