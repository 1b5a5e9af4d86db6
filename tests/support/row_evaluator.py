"""Evaluates filters over rows, through the evaluator of partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from frazil.format.metadata.partition_spec import PartitionField, PartitionSpec
from frazil.format.pruning.evaluators import partition_evaluator
from frazil.read.filters import bound_terms
from frazil.values.transforms import IDENTITY
from frazil.wire.expressions import Expression


def row_evaluator(expression: Expression) -> Callable[[Mapping[int, Any]], bool]:
    """Return whether a row matches a bound expression. A row has its internal values by field id;
    nulls may be omitted."""
    ids = sorted({term.ref.field_id for term in bound_terms(expression)})
    fields = tuple(PartitionField((each,), each, f"c{each}", IDENTITY) for each in ids)
    matches = partition_evaluator(expression, PartitionSpec(b"", 0, fields))
    return lambda row: matches([row.get(field_id) for field_id in ids])
