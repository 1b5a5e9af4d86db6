"""Projections of a bound row expression onto the partition values of a spec.

If an expression matches a row, its inclusive projection matches the row's partition. If the strict
projection matches a partition, the expression matches every row in it. Mirrors Java's
`Projections`, the `project` and `projectStrict` of its transforms, and `ProjectionUtil`.

A projection is bound already: its references carry the ids of partition fields.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundPredicate,
    BoundReference,
    BoundSetPredicate,
    BoundTransform,
    BoundUnaryPredicate,
    bound_set,
)
from frazil.format.metadata.partition_spec import PartitionField, PartitionSpec
from frazil.values import transforms
from frazil.values.single_value import (
    InvalidValue,
    check_value,
    decimal_from_unscaled,
    unscaled,
)
from frazil.values.transforms import Bucket, Day, Hour, Identity, Month, Truncate, Year
from frazil.values.types import DecimalType, Type, TypeId
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    PREFIX_OPERATIONS,
    And,
    Expression,
    Operation,
    Or,
    all_of,
    any_of,
)

_TIME_TRANSFORMS: Final = Year | Month | Day | Hour


def inclusive_projection(expression: Expression, spec: PartitionSpec) -> Expression:
    """Return an expression that matches the partition of every row that a bound one matches."""
    return _Projection(spec, strict=False).project(expression)


def strict_projection(expression: Expression, spec: PartitionSpec) -> Expression:
    """Return an expression that matches only partitions whose rows all match a bound one."""
    return _Projection(spec, strict=True).project(expression)


class _Projection:
    def __init__(self, spec: PartitionSpec, *, strict: bool) -> None:
        self._strict = strict
        self._parts: dict[int, list[PartitionField]] = {}
        for part in spec.fields:
            if len(part.source_ids) == 1:
                self._parts.setdefault(part.source_id, []).append(part)

    def project(self, expression: Expression) -> Expression:
        if isinstance(expression, And | Or):
            join = all_of if isinstance(expression, And) else any_of
            return join(*map(self.project, expression.operands))
        if isinstance(expression, BoundPredicate):
            return self._project_predicate(expression)
        return expression

    def _project_predicate(self, predicate: BoundPredicate) -> Expression:
        """Combine the projections onto all partition fields of the predicate's column.

        Each inclusive projection can exclude a partition; each strict one can prove it. Without any
        projection the predicate may match and is not proven.
        """
        projections = (
            _project(part, predicate, self._strict)
            for part in self._parts.get(predicate.term.ref.field_id, ())
        )
        join = any_of if self._strict else all_of
        return join(*(projected for projected in projections if projected is not None))


def _project(part: PartitionField, predicate: BoundPredicate, strict: bool) -> Expression | None:
    transform, source = part.transform, predicate.term.ref.type
    if not isinstance(transform, Identity | Bucket | Truncate | _TIME_TRANSFORMS):
        return None
    if not transform.accepts(source):
        return None
    # A partition value is null where its source is, whatever the spec's source requires.
    target = BoundReference(part.field_id, part.name, transform.result_type(source), True)
    if isinstance(transform, Identity):
        # The partition value is the column's value, also for a transform of it.
        term = predicate.term
        moved = replace(term, ref=target) if isinstance(term, BoundTransform) else target
        return replace(predicate, term=moved)
    if isinstance(predicate.term, BoundTransform):
        same = predicate.term.transform == transform
        return replace(predicate, term=target) if same else None
    if isinstance(predicate, BoundUnaryPredicate):
        return replace(predicate, term=target)
    projector = _Projector(transform, source, target)
    projected = projector.project(predicate, strict=strict)
    if projected is not None and _was_once_wrong(transform, source):
        return (_fix_strict if strict else _fix_inclusive)(projected)
    return projected


class _Projector:
    """Projects comparisons of one column onto one partition field."""

    def __init__(
        self, transform: transforms.Transform, source: Type, target: BoundReference
    ) -> None:
        self._transform = transform
        self._source = source
        self._target = target

    def _apply(self, value: Any) -> Any:
        return transforms.apply(self._transform, self._source, value)

    def _compare(self, operation: Operation, value: Any) -> Expression:
        return BoundLiteralPredicate(operation, self._target, value)

    def _set(self, predicate: BoundSetPredicate) -> Expression:
        values = frozenset(map(self._apply, predicate.values))
        return bound_set(predicate.operation, self._target, values)

    def project(
        self, predicate: BoundLiteralPredicate | BoundSetPredicate, *, strict: bool
    ) -> Expression | None:
        exact = (Operation.NOT_EQ, Operation.NOT_IN) if strict else (Operation.EQ, Operation.IN)
        operation = predicate.operation
        if isinstance(predicate, BoundSetPredicate):
            return self._set(predicate) if operation in exact else None
        literal = predicate.value
        if operation in exact:
            return self._compare(operation, self._apply(literal))
        if isinstance(self._transform, Bucket):
            return None
        if operation in PREFIX_OPERATIONS:
            return self._prefix(operation, literal, self._transform, strict)
        step = (_STRICT_STEPS if strict else _INCLUSIVE_STEPS).get(operation)
        if step is None:
            return None
        try:
            boundary = _moved(self._source, literal, step)
        except InvalidValue:
            # No value is below the minimum or above the maximum of the type.
            return None if strict else ALWAYS_FALSE
        opened, closed = _LESS if operation in _LESS else _GREATER
        return self._compare(opened if strict else closed, self._apply(boundary))

    def _prefix(
        self, operation: Operation, prefix: str, transform: transforms.Transform, strict: bool
    ) -> Expression | None:
        """Project a prefix: a truncated value has no more characters than the width."""
        if not isinstance(transform, Truncate):
            return None
        positive = operation is Operation.STARTS_WITH
        if len(prefix) < transform.width:
            return self._compare(operation, prefix)
        if len(prefix) == transform.width:
            return self._compare(Operation.EQ if positive else Operation.NOT_EQ, prefix)
        # A longer prefix: its beginning is necessary to have it, and sufficient to lack it.
        return self._compare(operation, self._apply(prefix)) if positive != strict else None


_LESS: Final = (Operation.LT, Operation.LT_EQ)
_GREATER: Final = (Operation.GT, Operation.GT_EQ)

# For whole numbers, an open bound is a closed bound of the next number, and the reverse. The strict
# projection must not include the partition of the boundary itself.
_INCLUSIVE_STEPS: Final = {
    Operation.LT: -1,
    Operation.LT_EQ: 0,
    Operation.GT: 1,
    Operation.GT_EQ: 0,
}
_STRICT_STEPS: Final = {
    Operation.LT: 0,
    Operation.LT_EQ: 1,
    Operation.GT: 0,
    Operation.GT_EQ: -1,
}


def _moved(source: Type, value: Any, step: int) -> Any:
    """Return the value some steps away. Strings and bytes have no next value and stay the same."""
    if step == 0 or isinstance(value, str | bytes):
        return value
    if isinstance(source, DecimalType):
        value = decimal_from_unscaled(unscaled(value) + step, source.scale)
    else:
        value += step
    check_value(source, value)
    return value


# --- partition values written by old versions of Java ----------------------------------------


def _was_once_wrong(transform: transforms.Transform, source: Type) -> bool:
    """Check whether Iceberg versions up to 0.10 wrote wrong values for a transform.

    They wrote negative years, months, days and hours one too large, except for the day of a date
    (Java's `ProjectionUtil.fixInclusiveTimeProjection`).
    """
    if not isinstance(transform, _TIME_TRANSFORMS):
        return False
    return not (isinstance(transform, Day) and source.type_id is TypeId.DATE)


def _fix_inclusive(projected: Expression) -> Expression:
    """Also match the wrong value."""
    if isinstance(projected, BoundSetPredicate):
        return bound_set(projected.operation, projected.term, _with_wrong(projected.values))
    if not isinstance(projected, BoundLiteralPredicate) or projected.value >= 0:
        return projected
    if projected.operation is Operation.EQ:
        return bound_set(Operation.IN, projected.term, _with_wrong({projected.value}))
    if projected.operation is Operation.LT_EQ:
        return replace(projected, value=projected.value + 1)
    return projected


def _fix_strict(projected: Expression) -> Expression:
    """Exclude the wrong value from what is proven."""
    if isinstance(projected, BoundSetPredicate):
        return bound_set(projected.operation, projected.term, _with_wrong(projected.values))
    if not isinstance(projected, BoundLiteralPredicate):
        return projected
    if projected.operation is Operation.NOT_EQ and projected.value < 0:
        return bound_set(Operation.NOT_IN, projected.term, _with_wrong({projected.value}))
    if projected.operation is Operation.GT and projected.value <= 0:
        return replace(projected, value=projected.value + 1)
    return projected


def _with_wrong(values: frozenset[int] | set[int]) -> frozenset[int]:
    return frozenset(values) | {value + 1 for value in values if value < 0}
