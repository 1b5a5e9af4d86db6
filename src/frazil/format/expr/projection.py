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
from frazil.format.expr.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    And,
    Expression,
    Operation,
    Or,
    and_,
    or_,
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

_TIME_TRANSFORMS: Final = Year | Month | Day | Hour
_PREFIXES: Final = (Operation.STARTS_WITH, Operation.NOT_STARTS_WITH)


def inclusive_projection(expression: Expression, spec: PartitionSpec) -> Expression:
    """What holds for the partition of every row that a bound expression matches."""
    return _Projection(spec, strict=False).project(expression)


def strict_projection(expression: Expression, spec: PartitionSpec) -> Expression:
    """What holds only for partitions all of whose rows a bound expression matches."""
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
            left, right = self.project(expression.left), self.project(expression.right)
            return and_(left, right) if isinstance(expression, And) else or_(left, right)
        if isinstance(expression, BoundUnaryPredicate | BoundLiteralPredicate | BoundSetPredicate):
            return self._project_predicate(expression)
        return expression

    def _project_predicate(self, predicate: BoundPredicate) -> Expression:
        """All fields of one source together: each inclusive one excludes, each strict one proves.

        A predicate that no field can say anything about may match, and is not proven.
        """
        result: Expression = ALWAYS_FALSE if self._strict else ALWAYS_TRUE
        for part in self._parts.get(predicate.term.ref.field_id, ()):
            projected = _project(part, predicate, self._strict)
            if projected is not None:
                result = or_(result, projected) if self._strict else and_(result, projected)
        return result


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
    projected = (projector.strict if strict else projector.inclusive)(predicate)
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

    def inclusive(self, predicate: BoundLiteralPredicate | BoundSetPredicate) -> Expression | None:
        if isinstance(predicate, BoundSetPredicate):
            return self._set(predicate) if predicate.operation is Operation.IN else None
        operation, literal = predicate.operation, predicate.value
        if operation is Operation.EQ:
            return self._compare(operation, self._apply(literal))
        if isinstance(self._transform, Bucket):
            return None
        if operation in _PREFIXES:
            return self._prefix(operation, literal, self._transform, strict=False)
        step = _INCLUSIVE_STEPS.get(operation)
        if step is None:
            return None
        try:
            boundary = _moved(self._source, literal, step)
        except InvalidValue:
            # Nothing is below the least or above the greatest value of the type.
            return ALWAYS_FALSE
        closed = Operation.LT_EQ if operation in _LESS else Operation.GT_EQ
        return self._compare(closed, self._apply(boundary))

    def strict(self, predicate: BoundLiteralPredicate | BoundSetPredicate) -> Expression | None:
        if isinstance(predicate, BoundSetPredicate):
            return self._set(predicate) if predicate.operation is Operation.NOT_IN else None
        operation, literal = predicate.operation, predicate.value
        if operation is Operation.NOT_EQ:
            return self._compare(operation, self._apply(literal))
        if isinstance(self._transform, Bucket):
            return None
        if operation in _PREFIXES:
            return self._prefix(operation, literal, self._transform, strict=True)
        step = _STRICT_STEPS.get(operation)
        if step is None:
            return None
        try:
            boundary = _moved(self._source, literal, step)
        except InvalidValue:
            return None
        opened = Operation.LT if operation in _LESS else Operation.GT
        return self._compare(opened, self._apply(boundary))

    def _prefix(
        self, operation: Operation, prefix: str, transform: transforms.Transform, strict: bool
    ) -> Expression | None:
        """Values truncated to a width show a prefix only as far as they reach."""
        if not isinstance(transform, Truncate):
            return None
        positive = operation is Operation.STARTS_WITH
        if len(prefix) < transform.width:
            return self._compare(operation, prefix)
        if len(prefix) == transform.width:
            return self._compare(Operation.EQ if positive else Operation.NOT_EQ, prefix)
        # A longer prefix: its beginning is necessary to have it, and sufficient to lack it.
        return self._compare(operation, self._apply(prefix)) if positive != strict else None


_LESS: Final = frozenset({Operation.LT, Operation.LT_EQ})

# An open bound of whole numbers is a closed bound one further, and the other way around; the
# strict projection must not reach into the partition that the boundary itself lies in.
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
    """The value that is some steps away; strings and bytes have no neighbours and stay."""
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
    """Versions up to 0.10 wrote negative years, months, days and hours one too large.

    Only the day of a date was never wrong. `ProjectionUtil.fixInclusiveTimeProjection`.
    """
    if not isinstance(transform, _TIME_TRANSFORMS):
        return False
    return not (isinstance(transform, Day) and source.type_id is TypeId.DATE)


def _fix_inclusive(projected: Expression) -> Expression:
    """Lets the wrong value match beside the right one."""
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
    """Lets the wrong value prove nothing."""
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
