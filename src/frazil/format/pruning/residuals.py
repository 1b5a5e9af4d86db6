"""Residuals: what is left of a row expression for the rows of one partition.

A predicate that the partition's values prove is true, one that they exclude is false, the others
stay. Mirrors Java's `ResidualEvaluator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundPredicate,
    BoundSetPredicate,
    BoundUnaryPredicate,
)
from frazil.format.expr.expressions import ALWAYS_FALSE, ALWAYS_TRUE, And, Expression, Or, and_, or_
from frazil.format.expr.projection import inclusive_projection, strict_projection
from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.format.pruning.evaluators import partition_evaluator

Residual = Callable[[Sequence[Any]], Expression]


def residual_evaluator(expression: Expression, spec: PartitionSpec) -> Residual:
    """The residual of a bound expression, as a function of a partition of the spec.

    A partition is its internal values in the order of the spec's fields.
    """
    if isinstance(expression, And | Or):
        left = residual_evaluator(expression.left, spec)
        right = residual_evaluator(expression.right, spec)
        join = and_ if isinstance(expression, And) else or_
        return lambda partition: join(left(partition), right(partition))
    if isinstance(expression, BoundUnaryPredicate | BoundLiteralPredicate | BoundSetPredicate):
        return _of_predicate(expression, spec)
    return lambda _: expression


def _of_predicate(predicate: BoundPredicate, spec: PartitionSpec) -> Residual:
    proves = partition_evaluator(strict_projection(predicate, spec), spec)
    allows = partition_evaluator(inclusive_projection(predicate, spec), spec)

    def residual(partition: Sequence[Any]) -> Expression:
        if proves(partition):
            return ALWAYS_TRUE
        return predicate if allows(partition) else ALWAYS_FALSE

    return residual
