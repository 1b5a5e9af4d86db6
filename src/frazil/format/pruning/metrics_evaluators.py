"""Evaluators of bound expressions over the column metrics of a file.

The inclusive one tells whether a file may hold a row that matches, the strict one whether every
row must match: Java's `InclusiveMetricsEvaluator` and `StrictMetricsEvaluator`. Each is built once
and applied to many files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundPredicate,
    BoundReference,
    BoundSetPredicate,
    BoundTransform,
    BoundUnaryPredicate,
)
from frazil.format.metadata.content_files import FieldMap, FileMetrics
from frazil.format.pruning.evaluators import (
    Evaluator,
    bound_reader,
    build,
    range_test,
    same_value,
    value_test,
)
from frazil.values.types import TypeId
from frazil.wire.expressions import Expression, Operation

_V = TypeVar("_V")


_Test = Callable[[FileMetrics], bool]


def _get(metrics: FieldMap[_V] | None, field_id: int) -> _V | None:
    return None if metrics is None else metrics.get(field_id)


def _always(answer: bool) -> _Test:
    return lambda file: answer


class _Column:
    """The questions about one column that both evaluators ask."""

    __slots__ = ("_read", "field_id", "is_floating")

    def __init__(self, predicate: BoundPredicate) -> None:
        self.field_id = predicate.term.ref.field_id
        self.is_floating = predicate.term.ref.type.type_id in (TypeId.FLOAT, TypeId.DOUBLE)
        self._read = bound_reader(predicate.term)

    def may_contain_null(self, file: FileMetrics) -> bool:
        return _get(file.null_value_counts, self.field_id) != 0

    def contains_nulls_only(self, file: FileMetrics) -> bool:
        nulls = _get(file.null_value_counts, self.field_id)
        return nulls is not None and nulls == _get(file.value_counts, self.field_id)

    def may_contain_nan(self, file: FileMetrics) -> bool:
        return self.is_floating and _get(file.nan_value_counts, self.field_id) != 0

    def contains_nans_only(self, file: FileMetrics) -> bool:
        nans = _get(file.nan_value_counts, self.field_id)
        return nans is not None and nans == _get(file.value_counts, self.field_id)

    def contains_no_value(self, file: FileMetrics) -> bool:
        """Nothing that a comparison could match."""
        return self.contains_nulls_only(file) or self.contains_nans_only(file)

    def bounds(self, file: FileMetrics) -> tuple[Any, Any]:
        return (
            self._read(_get(file.lower_bounds, self.field_id)),
            self._read(_get(file.upper_bounds, self.field_id)),
        )


# --- inclusive -------------------------------------------------------------------------------


def inclusive_metrics_evaluator(expression: Expression) -> Evaluator[FileMetrics]:
    """Whether a file may hold a row that matches a bound expression; False is certain."""
    evaluate = build(expression, _inclusive)

    def evaluate_file(file: FileMetrics) -> bool:
        # A negative count stands for one that the writer did not know.
        return file.record_count < 0 or (file.record_count > 0 and evaluate(file))

    return evaluate_file


def _inclusive(predicate: BoundPredicate) -> _Test:
    column, operation = _Column(predicate), predicate.operation
    if isinstance(predicate, BoundUnaryPredicate):
        return _inclusive_unary(predicate, column)
    if operation in (Operation.NOT_EQ, Operation.NOT_IN):
        return _inclusive_negative(column, value_test(predicate))
    if isinstance(predicate, BoundLiteralPredicate) and operation in (
        Operation.STARTS_WITH,
        Operation.NOT_STARTS_WITH,
    ):
        return _inclusive_prefix(predicate, column)
    in_range = range_test(predicate)
    return lambda file: not column.contains_no_value(file) and in_range(*column.bounds(file))


def _inclusive_unary(predicate: BoundUnaryPredicate, column: _Column) -> _Test:
    term, operation = predicate.term, predicate.operation
    if operation is Operation.NOT_NULL:
        return lambda file: not column.contains_nulls_only(file)
    if operation is Operation.IS_NULL:
        if isinstance(term, BoundTransform) and not term.transform.preserves_order:
            return _always(True)
        return column.may_contain_null
    if operation is Operation.IS_NAN:
        return lambda file: column.may_contain_nan(file) and not column.contains_nulls_only(file)
    return lambda file: not column.contains_nans_only(file)


def _inclusive_negative(column: _Column, test: Callable[[Any], bool]) -> _Test:
    """Excludes a file only when all its rows are known to have one and the same value."""

    def evaluate(file: FileMetrics) -> bool:
        if column.may_contain_null(file) or column.may_contain_nan(file):
            return True
        lower, upper = column.bounds(file)
        return lower is None or upper is None or not same_value(lower, upper) or test(lower)

    return evaluate


def _inclusive_prefix(predicate: BoundLiteralPredicate, column: _Column) -> _Test:
    prefix: str = predicate.value
    if predicate.operation is Operation.STARTS_WITH:
        if isinstance(predicate.term, BoundTransform):
            return _always(True)
        in_range = range_test(predicate)
        return lambda file: not column.contains_nulls_only(file) and in_range(*column.bounds(file))

    def evaluate_not(file: FileMetrics) -> bool:
        if column.may_contain_null(file):
            return True
        lower, upper = column.bounds(file)
        if lower is None or upper is None:
            return True
        return not (lower.startswith(prefix) and upper.startswith(prefix))

    return evaluate_not


# --- strict ----------------------------------------------------------------------------------


def strict_metrics_evaluator(expression: Expression) -> Evaluator[FileMetrics]:
    """Whether every row of a file must match a bound expression; True is certain.

    A missing null count, and for floats a missing NaN count, may hide rows without a value. Java
    takes it for zero in places, which here could delete rows that a filter does not match. For
    the same reason a record count that is not known proves nothing.
    """
    evaluate = build(expression, _strict)
    return lambda file: file.record_count == 0 or evaluate(file)


def _strict(predicate: BoundPredicate) -> _Test:
    term, operation = predicate.term, predicate.operation
    # A transformed value is not in the metrics, and the counts of a field of a struct do not
    # tell about rows whose struct is null.
    if not isinstance(term, BoundReference) or term.is_nested:
        return _always(False)
    column = _Column(predicate)
    if isinstance(predicate, BoundUnaryPredicate):
        return _strict_unary(operation, column)
    if operation in _STRICT_NEGATIVES:
        return _strict_negative(predicate, column)
    if operation in (Operation.EQ, Operation.IN, Operation.STARTS_WITH):
        holds = _strict_single(predicate)
    else:
        holds = _strict_order(predicate)
    may_contain_null = column.may_contain_null if term.produces_null else _always(False)

    def evaluate(file: FileMetrics) -> bool:
        if may_contain_null(file) or column.may_contain_nan(file):
            return False
        return holds(*column.bounds(file))

    return evaluate


_STRICT_NEGATIVES = frozenset({Operation.NOT_EQ, Operation.NOT_IN, Operation.NOT_STARTS_WITH})


def _strict_unary(operation: Operation, column: _Column) -> _Test:
    if operation is Operation.IS_NULL:
        return column.contains_nulls_only
    if operation is Operation.NOT_NULL:
        return lambda file: not column.may_contain_null(file)
    if operation is Operation.IS_NAN:
        return column.contains_nans_only
    return lambda file: not column.may_contain_nan(file) or column.contains_nulls_only(file)


def _strict_negative(
    predicate: BoundLiteralPredicate | BoundSetPredicate, column: _Column
) -> _Test:
    """Null and NaN differ from every literal; so does a value when no literal is in the bounds."""
    overlaps = _overlap_test(predicate)

    def evaluate(file: FileMetrics) -> bool:
        if column.contains_no_value(file):
            return True
        lower, upper = column.bounds(file)
        return (lower is not None or upper is not None) and not overlaps(lower, upper)

    return evaluate


def _overlap_test(
    predicate: BoundLiteralPredicate | BoundSetPredicate,
) -> Callable[[Any, Any], bool]:
    if isinstance(predicate, BoundLiteralPredicate):
        positive = (
            Operation.EQ if predicate.operation is Operation.NOT_EQ else Operation.STARTS_WITH
        )
        return range_test(BoundLiteralPredicate(positive, predicate.term, predicate.value))
    # One by one, and not as a set, of which the inclusive test looks through no more than a few.
    tests = [
        range_test(BoundLiteralPredicate(Operation.EQ, predicate.term, value))
        for value in predicate.values
    ]
    return lambda lower, upper: any(test(lower, upper) for test in tests)


def _strict_single(predicate: BoundPredicate) -> Callable[[Any, Any], bool]:
    """Both bounds match, and for `eq` and `in` they are one value, which all rows then have."""
    test = value_test(predicate)
    if predicate.operation is Operation.STARTS_WITH:
        return lambda lower, upper: test(lower) and test(upper)
    return lambda lower, upper: lower is not None and lower == upper and test(lower)


def _strict_order(predicate: BoundPredicate) -> Callable[[Any, Any], bool]:
    """The bound that is farthest from matching matches."""
    if predicate.term.type.type_id is TypeId.UUID:
        # Which of the bounds that is depends on the order in which they were written.
        return lambda lower, upper: False
    test = value_test(predicate)
    if predicate.operation in (Operation.LT, Operation.LT_EQ):
        return lambda _, upper: test(upper)
    return lambda lower, _: test(lower)
