"""Evaluates Iceberg's filters on Arrow batches, row by row.

In Iceberg a comparison with null is false and its negation is true: `not-eq`, `not-in`,
`not-starts-with` and `not-nan` match null. NaN has no order, and zeros have no sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.array_conversion import convert_leaf, is_uuid, scalar_of
from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.writing.row_partitions import transformed
from frazil.values.literal_values import OutOfRange, literal_value
from frazil.values.single_value import InvalidValue
from frazil.values.transforms import IDENTITY
from frazil.values.types import NestedField, StructType, Type, TypeId
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    PREFIX_OPERATIONS,
    SET_OPERATIONS,
    UNARY_OPERATIONS,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Expression,
    Operation,
    Or,
    Predicate,
    names_in,
    without_not,
)
from frazil.wire.near_names import no_column

_FLOATS: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "eq": pc.equal,
    "not-eq": pc.not_equal,
    "lt": pc.less,
    "lt-eq": pc.less_equal,
    "gt": pc.greater,
    "gt-eq": pc.greater_equal,
}


@dataclass(frozen=True)
class RowFilter:
    """A filter for batches with (at least) the columns that it names."""

    expression: Expression
    schema: StructType

    @cached_property
    def _by_name(self) -> Mapping[str, tuple[tuple[str, ...], NestedField]]:
        return {
            ".".join(path): (path, field) for path, field in _struct_fields(self.schema.fields, ())
        }

    def columns(self) -> tuple[NestedField, ...]:
        """Return the top-level columns that are read, in the order of the schema."""
        tops = {self._find(name)[0][0] for name in names_in(self.expression)}
        return tuple(field for field in self.schema.fields if field.name in tops)

    def check(self) -> None:
        """Raise BadRequest if the filter does not fit the schema, even if there are no rows."""
        schema = arrow_schema(StructType(self.columns()))
        self.mask(
            pa.RecordBatch.from_arrays([pa.nulls(0, each) for each in schema.types], schema=schema)
        )

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return which rows match, without nulls."""
        mask = self._mask(without_not(self.expression), batch)
        if isinstance(mask, bool):
            return pa.repeat(pa.scalar(mask), batch.num_rows)
        return mask

    def _mask(self, expression: Expression, batch: pa.RecordBatch) -> Any:
        if isinstance(expression, AlwaysTrue | AlwaysFalse):
            return isinstance(expression, AlwaysTrue)
        if isinstance(expression, And | Or):
            masks = [self._mask(operand, batch) for operand in expression.operands]
            return _joined(masks, is_and=isinstance(expression, And))
        assert isinstance(expression, Predicate)
        return self._predicate(expression, batch)

    def _find(self, name: str) -> tuple[tuple[str, ...], NestedField]:
        found = self._by_name.get(name)
        if found is None:
            raise BadRequest(f"filter: {no_column(name, self._by_name)}")
        return found

    def _predicate(self, predicate: Predicate, batch: pa.RecordBatch) -> Any:
        path, field = self._find(predicate.term.name)
        operation, type_ = predicate.operation, field.type
        if type_.type_id is TypeId.UNKNOWN:
            # Files have no such columns: all values are null.
            return operation in _MATCHES_NULL
        column = batch.column(path[0])
        for name in path[1:]:
            column = pc.struct_field(column, name)
        if operation in (Operation.IS_NULL, Operation.NOT_NULL):
            return column.is_null() if operation is Operation.IS_NULL else column.is_valid()
        if not type_.is_primitive:
            raise BadRequest(f"filter on {predicate.term}: a {type_.short_name} has no order")
        transform = predicate.term.transform
        if transform is not None and transform != IDENTITY:
            source = convert_leaf(column, pa.string(), path[-1]) if is_uuid(column.type) else column
            column, type_ = transformed(transform, type_, source), transform.result_type(type_)
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        if operation in UNARY_OPERATIONS:
            return _nan(predicate, column, type_)
        return _compared(predicate, column, type_)


_MATCHES_NULL: Final = frozenset(
    {
        Operation.IS_NULL,
        Operation.NOT_NAN,
        Operation.NOT_EQ,
        Operation.NOT_IN,
        Operation.NOT_STARTS_WITH,
    }
)


def _struct_fields(
    fields: Sequence[NestedField], parents: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    """Return the columns and the fields of structs, which alone have one value in each row."""
    for field in fields:
        path = (*parents, field.name)
        yield path, field
        if isinstance(field.type, StructType):
            yield from _struct_fields(field.type.fields, path)


def _joined(masks: Sequence[Any], *, is_and: bool) -> Any:
    arrays = [mask for mask in masks if not isinstance(mask, bool)]
    if (not is_and) in [mask for mask in masks if isinstance(mask, bool)]:
        return not is_and
    if not arrays:
        return is_and
    return reduce(pc.and_ if is_and else pc.or_, arrays)


def _nan(predicate: Predicate, column: pa.Array, type_: Type) -> Any:
    if type_.type_id not in _FLOATS:
        raise BadRequest(
            f"filter on {predicate.term}: {predicate.operation} needs a float or double, and it is "
            f"{type_}"
        )
    is_nan = pc.fill_null(pc.is_nan(column), False)
    return is_nan if predicate.operation is Operation.IS_NAN else pc.invert(is_nan)


def _compared(predicate: Predicate, column: pa.Array, type_: Type) -> Any:
    operation, negated = predicate.operation, predicate.operation in _MATCHES_NULL
    if operation in PREFIX_OPERATIONS and type_.type_id is not TypeId.STRING:
        raise BadRequest(f"filter on {predicate.term}: {operation} needs a string")
    values = [_literal(type_, value, predicate) for value in predicate.values]
    if operation in PREFIX_OPERATIONS:
        starts = pc.fill_null(pc.starts_with(column, values[0]), False)
        return pc.invert(starts) if negated else starts
    if operation in SET_OPERATIONS:
        known = [_scalar(each, column.type) for each in values if not isinstance(each, OutOfRange)]
        is_in = _in_set(column, known)
        return pc.invert(is_in) if negated else is_in
    (value,) = values
    if isinstance(value, OutOfRange):
        # All values are on one side of the constant. Like Java, ignore nulls and NaN.
        side = "lt" if value is OutOfRange.ABOVE_MAX else "gt"
        return negated or operation.startswith(side)
    return pc.fill_null(_COMPARISONS[operation](column, _scalar(value, column.type)), negated)


def _in_set(column: pa.Array, values: Sequence[pa.Scalar]) -> pa.Array:
    if not pa.types.is_floating(column.type):
        arrays = [pa.repeat(value, 1) for value in values]
        value_set = pa.concat_arrays(arrays) if arrays else pa.nulls(0, column.type)
        return pc.is_in(column, value_set)
    # `is_in` tells the two zeros apart.
    masks = [pc.fill_null(pc.equal(column, value), False) for value in values]
    return reduce(pc.or_, masks, pa.repeat(pa.scalar(False), len(column)))


def _literal(type_: Type, value: Any, predicate: Predicate) -> Any:
    try:
        return literal_value(type_, value)
    except InvalidValue as error:
        raise BadRequest(f"filter on {predicate.term}: {error}") from None


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    return scalar_of(getattr(value, "bytes", value), type_)
