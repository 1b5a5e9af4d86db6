"""Evaluates bound expressions over single values, partition summaries and files.

An evaluator is built once from an expression. It is then a plain function for many rows,
partitions, manifests or files. The expressions specification defines comparisons with null and NaN:
only `not-eq`, `not-in`, `not-starts-with` and `not-nan` match a null, and NaN has no order. Java's
`Evaluator` differs: it orders null before and NaN after all values.

The inclusive metrics evaluator decides whether a file may have a matching row, the strict one
whether all its rows must match (Java's `InclusiveMetricsEvaluator` and `StrictMetricsEvaluator`). A
residual is what remains of an expression for the rows of one partition (Java's
`ResidualEvaluator`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundPredicate,
    BoundReference,
    BoundSetPredicate,
    BoundTerm,
    BoundTransform,
    BoundUnaryPredicate,
)
from frazil.format.expr.projection import inclusive_projection, strict_projection
from frazil.format.manifest.manifest_list import PartitionSummary, is_nan
from frazil.format.metadata.content_files import FieldMap, FileMetrics
from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.values import transforms
from frazil.values.single_value import InvalidValue, from_binary, to_binary
from frazil.values.types import Type, TypeId
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Expression,
    Operation,
    Or,
    all_of,
    any_of,
)

IN_PREDICATE_LIMIT: Final = 200
"""As in Java, larger sets are not compared with the bounds of each file or manifest."""

_T = TypeVar("_T")
Evaluator = Callable[[_T], bool]
Test = Callable[[Any], bool]
"""Returns whether one value matches a predicate."""


def build(
    expression: Expression, predicate: Callable[[BoundPredicate], Evaluator[_T]]
) -> Evaluator[_T]:
    """Return the evaluator of a bound tree. `predicate` makes the evaluator of one predicate."""
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        always = isinstance(expression, AlwaysTrue)
        return lambda _: always
    if isinstance(expression, And | Or):
        operands = [build(operand, predicate) for operand in expression.operands]
        if isinstance(expression, And):
            return lambda subject: all(matches(subject) for matches in operands)
        return lambda subject: any(matches(subject) for matches in operands)
    if isinstance(expression, BoundPredicate):
        return predicate(expression)
    raise TypeError(f"{type(expression).__name__} is not a bound expression without negations")


def same_value(left: Any, right: Any) -> bool:
    """Return whether two values are equal in Iceberg's order, which distinguishes the zeros."""
    if not isinstance(left, float) or left:
        return bool(left == right)
    return left == right and math.copysign(1.0, left) == math.copysign(1.0, right)


_UUID_SIGNS: Final = (1 << 127) | (1 << 63)


def other_order(value: UUID | None) -> UUID | None:
    """Return a UUID that represents the given one in Java's order, which compares two signed
    numbers.

    Writers use either order for bounds, so a range excludes a UUID only if it does so in both.
    """
    return None if value is None else UUID(int=value.int ^ _UUID_SIGNS)


# --- values ----------------------------------------------------------------------------------


def partition_evaluator(expression: Expression, spec: PartitionSpec) -> Evaluator[Sequence[Any]]:
    """Return whether a partition matches an expression that was projected onto its spec.

    A partition is its internal values in the order of the spec's fields.
    """
    positions = {part.field_id: position for position, part in enumerate(spec.fields)}

    def on_partition(predicate: BoundPredicate) -> Evaluator[Sequence[Any]]:
        test, term = value_test(predicate), predicate.term
        position = positions[term.ref.field_id]
        if isinstance(term, BoundTransform):
            transform, source = term.transform, term.ref.type
            return lambda partition: test(transforms.apply(transform, source, partition[position]))
        return lambda partition: test(partition[position])

    return build(expression, on_partition)


def value_test(predicate: BoundPredicate) -> Test:
    """Return the predicate as a function of the value of its term, which may be null."""
    if isinstance(predicate, BoundUnaryPredicate):
        return _UNARY_TESTS[predicate.operation]
    if isinstance(predicate, BoundSetPredicate):
        values = predicate.values
        if predicate.operation is Operation.IN:
            return lambda value: value in values
        if 0.0 in values:
            return lambda value: not any(same_value(value, literal) for literal in values)
        return lambda value: value not in values
    return _LITERAL_TESTS[predicate.operation](predicate.value)


_UNARY_TESTS: Final[dict[Operation, Test]] = {
    Operation.IS_NULL: lambda value: value is None,
    Operation.NOT_NULL: lambda value: value is not None,
    Operation.IS_NAN: is_nan,
    Operation.NOT_NAN: lambda value: not is_nan(value),
}
_LITERAL_TESTS: Final[dict[Operation, Callable[[Any], Test]]] = {
    Operation.LT: lambda literal: lambda value: value is not None and value < literal,
    Operation.LT_EQ: lambda literal: lambda value: value is not None and value <= literal,
    Operation.GT: lambda literal: lambda value: value is not None and value > literal,
    Operation.GT_EQ: lambda literal: lambda value: value is not None and value >= literal,
    Operation.EQ: lambda literal: lambda value: value == literal,
    Operation.NOT_EQ: lambda literal: lambda value: not same_value(value, literal),
    Operation.STARTS_WITH: lambda prefix: (
        lambda value: value is not None and value.startswith(prefix)
    ),
    Operation.NOT_STARTS_WITH: lambda prefix: (
        lambda value: value is None or not value.startswith(prefix)
    ),
}


# --- bounds ----------------------------------------------------------------------------------


def bound_reader(term: BoundTerm) -> Callable[[bytes | None], Any]:
    """Return a reader of bounds of a term. It returns None for a bound without information.

    These are bounds that are missing or unreadable, NaN, which marks unreliable bounds, and all
    bounds under a transform that does not preserve the order.
    """
    type_ = term.ref.type
    transform = term.transform if isinstance(term, BoundTransform) else None
    keeps_order = transform is None or transform.preserves_order

    def read(data: bytes | None) -> Any:
        if data is None or not keeps_order:
            return None
        try:
            value = from_binary(type_, data)
            return value if transform is None else transforms.apply(transform, type_, value)
        except InvalidValue:
            return None

    return lambda data: None if is_nan(value := read(data)) else value


def range_test(predicate: BoundLiteralPredicate | BoundSetPredicate) -> Callable[[Any, Any], bool]:
    """Return whether a value between two bounds may match. None stands for an unknown bound.

    Java's inclusive evaluators share these rules. Negative predicates need all values, so they have
    rules of their own.
    """
    test = _range_test(predicate)
    if predicate.term.type.type_id is not TypeId.UUID:
        return test
    swapped = _range_test(in_other_order(predicate))
    return lambda lower, upper: (
        test(lower, upper) or swapped(other_order(lower), other_order(upper))
    )


def in_other_order(
    predicate: BoundLiteralPredicate | BoundSetPredicate,
) -> BoundLiteralPredicate | BoundSetPredicate:
    """Return a predicate about UUIDs for values in the order of `other_order`."""
    if isinstance(predicate, BoundSetPredicate):
        return replace(predicate, values=frozenset(map(other_order, predicate.values)))
    return replace(predicate, value=other_order(predicate.value))


def _range_test(predicate: BoundLiteralPredicate | BoundSetPredicate) -> Callable[[Any, Any], bool]:
    if isinstance(predicate, BoundSetPredicate):
        return _set_range_test(predicate.values)
    literal: Any = predicate.value
    operation = predicate.operation
    if operation is Operation.LT:
        return lambda lower, _: lower is None or lower < literal
    if operation is Operation.LT_EQ:
        return lambda lower, _: lower is None or lower <= literal
    if operation is Operation.GT:
        return lambda _, upper: upper is None or upper > literal
    if operation is Operation.GT_EQ:
        return lambda _, upper: upper is None or upper >= literal
    if operation is Operation.EQ:
        return lambda lower, upper: (
            (lower is None or lower <= literal) and (upper is None or upper >= literal)
        )
    if operation is Operation.STARTS_WITH:
        return _prefix_range_test(literal)
    raise ValueError(f"{operation} cannot be answered by bounds")


def _set_range_test(values: frozenset[Any]) -> Callable[[Any, Any], bool]:
    if len(values) > IN_PREDICATE_LIMIT:
        return lambda lower, upper: True
    return lambda lower, upper: any(
        (lower is None or lower <= value) and (upper is None or upper >= value) for value in values
    )


def _prefix_range_test(prefix: Any) -> Callable[[Any, Any], bool]:
    length = len(prefix)
    return lambda lower, upper: (
        (lower is None or lower[:length] <= prefix) and (upper is None or upper[:length] >= prefix)
    )


# --- manifests -------------------------------------------------------------------------------

Summaries = Sequence[PartitionSummary] | None


def manifest_evaluator(expression: Expression, spec: PartitionSpec) -> Evaluator[Summaries]:
    """Return whether a manifest may have a matching partition, like Java's `ManifestEvaluator`.

    The expression was projected onto the manifest's spec. A manifest without summaries may have any
    partition.
    """
    positions = {part.field_id: position for position, part in enumerate(spec.fields)}

    def on_summary(predicate: BoundPredicate) -> Evaluator[Sequence[PartitionSummary]]:
        test = _summary_test(predicate)
        position = positions[predicate.term.ref.field_id]
        # Summaries that do not fit the spec exclude nothing.
        return lambda summaries: position >= len(summaries) or test(summaries[position])

    evaluate = build(expression, on_summary)
    return lambda summaries: True if summaries is None else evaluate(summaries)


def _summary_test(predicate: BoundPredicate) -> Callable[[PartitionSummary], bool]:
    term = predicate.term
    if not isinstance(term, BoundReference):
        return lambda summary: True
    if isinstance(predicate, BoundUnaryPredicate):
        return _unary_summary_test(predicate.operation, term.type)
    if predicate.operation in (Operation.NOT_EQ, Operation.NOT_IN):
        return _negative_summary_test(predicate, term)
    if (
        isinstance(predicate, BoundLiteralPredicate)
        and predicate.operation is Operation.NOT_STARTS_WITH
    ):
        return _not_prefix_summary_test(to_binary(term.type, predicate.value))
    read, in_range = bound_reader(term), range_test(predicate)
    # Without a lower bound all partition values are null or NaN, which none of these match.
    return lambda summary: (
        summary.lower_bound is not None
        and in_range(read(summary.lower_bound), read(summary.upper_bound))
    )


def _is_floating(type_: Type) -> bool:
    return type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE)


def _unary_summary_test(operation: Operation, type_: Type) -> Callable[[PartitionSummary], bool]:
    floating = _is_floating(type_)

    def only_nulls(summary: PartitionSummary) -> bool:
        without_values = summary.contains_null and summary.lower_bound is None
        return without_values and (not floating or summary.contains_nan is False)

    def only_nans(summary: PartitionSummary) -> bool:
        without_values = not summary.contains_null and summary.lower_bound is None
        return without_values and summary.contains_nan is True

    if operation is Operation.IS_NULL:
        return lambda summary: summary.contains_null
    if operation is Operation.NOT_NULL:
        return lambda summary: not only_nulls(summary)
    if operation is Operation.IS_NAN:
        return lambda summary: summary.contains_nan is not False and not only_nulls(summary)
    return lambda summary: not only_nans(summary)


def _negative_summary_test(
    predicate: BoundPredicate, term: BoundReference
) -> Callable[[PartitionSummary], bool]:
    """Return a test for `not-eq` and `not-in`. They exclude a manifest only if all its partitions
    have one value."""
    test, read, floating = value_test(predicate), bound_reader(term), _is_floating(term.type)

    def evaluate(summary: PartitionSummary) -> bool:
        if summary.contains_null or (floating and summary.contains_nan is not False):
            return True
        lower, upper = read(summary.lower_bound), read(summary.upper_bound)
        return lower is None or upper is None or not same_value(lower, upper) or test(lower)

    return evaluate


def _not_prefix_summary_test(prefix: bytes) -> Callable[[PartitionSummary], bool]:
    """Return a test that is false if both bounds, and so all values, begin with the prefix."""

    def evaluate(summary: PartitionSummary) -> bool:
        lower, upper = summary.lower_bound, summary.upper_bound
        if summary.contains_null or lower is None or upper is None:
            return True
        return not (lower.startswith(prefix) and upper.startswith(prefix))

    return evaluate


Residual = Callable[[Sequence[Any]], Expression]


def residual_evaluator(expression: Expression, spec: PartitionSpec) -> Residual:
    """Return the residual of a bound expression as a function of a partition of the spec.

    A partition is its internal values in the order of the spec's fields.
    """
    if isinstance(expression, And | Or):
        operands = [residual_evaluator(operand, spec) for operand in expression.operands]
        join = all_of if isinstance(expression, And) else any_of
        return lambda partition: join(*(residual(partition) for residual in operands))
    if isinstance(expression, BoundPredicate):
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


_V = TypeVar("_V")


_Test = Callable[[FileMetrics], bool]


def _get(metrics: FieldMap[_V] | None, field_id: int) -> _V | None:
    return None if metrics is None else metrics.get(field_id)


def _always(answer: bool) -> _Test:
    return lambda file: answer


class _Column:
    """The questions about one column that both metrics evaluators ask."""

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
        """Return whether the file has no value that a comparison could match."""
        return self.contains_nulls_only(file) or self.contains_nans_only(file)

    def bounds(self, file: FileMetrics) -> tuple[Any, Any]:
        return (
            self._read(_get(file.lower_bounds, self.field_id)),
            self._read(_get(file.upper_bounds, self.field_id)),
        )


# --- inclusive -------------------------------------------------------------------------------


def inclusive_metrics_evaluator(expression: Expression) -> Evaluator[FileMetrics]:
    """Return whether a file may have a row that matches a bound expression. False is certain."""
    evaluate = build(expression, _inclusive)

    def evaluate_file(file: FileMetrics) -> bool:
        # A negative count stands for an unknown one.
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
    """Exclude a file only if all its rows are known to have the same value."""

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
    """Return whether every row of a file must match a bound expression. True is certain.

    A missing null count, and for floats a missing NaN count, may hide rows without a value. Java
    sometimes takes it for zero, which could delete rows here that a filter does not match. For the
    same reason an unknown record count proves nothing.
    """
    evaluate = build(expression, _strict)
    return lambda file: file.record_count == 0 or evaluate(file)


def _strict(predicate: BoundPredicate) -> _Test:
    term, operation = predicate.term, predicate.operation
    # Metrics do not contain transformed values, and the counts of a struct's field do not include
    # rows whose struct is null.
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
    """Return a test: null and NaN differ from every literal, and so does a value if no literal is
    between the bounds."""
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
    # One by one, because the inclusive test does not compare large sets.
    tests = [
        range_test(BoundLiteralPredicate(Operation.EQ, predicate.term, value))
        for value in predicate.values
    ]
    return lambda lower, upper: any(test(lower, upper) for test in tests)


def _strict_single(predicate: BoundPredicate) -> Callable[[Any, Any], bool]:
    """Return a test: both bounds match, and for `eq` and `in` they are equal."""
    test = value_test(predicate)
    if predicate.operation is Operation.STARTS_WITH:
        return lambda lower, upper: test(lower) and test(upper)
    return lambda lower, upper: lower is not None and lower == upper and test(lower)


def _strict_order(predicate: BoundPredicate) -> Callable[[Any, Any], bool]:
    """Return a test of the bound that is least likely to match."""
    if predicate.term.type.type_id is TypeId.UUID:
        # Which bound that is depends on the order that the writer used.
        return lambda lower, upper: False
    test = value_test(predicate)
    if predicate.operation in (Operation.LT, Operation.LT_EQ):
        return lambda _, upper: test(upper)
    return lambda lower, _: test(lower)
