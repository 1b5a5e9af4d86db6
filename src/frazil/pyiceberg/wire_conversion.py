"""Convert PyIceberg's filters and data files to those of a commit, typed by the table's schema.

PyIceberg's own JSON of filters is incomplete: it writes dates as numbers and cannot write bytes.
Here every predicate is bound first, so that a literal has the type of its column and is written as
the JSON single value of that type.

Chains of `and` and `or` become flat, and equalities on one column become one `in`. Thus an upsert
with many keys exceeds neither Python's stack nor the server's limit of depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec
from pyiceberg import expressions as theirs
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, NestedField

from frazil.datafiles.arrow.metadata_columns import LINEAGE
from frazil.values.single_value import InvalidValue, to_json
from frazil.values.type_json import parse_type
from frazil.values.types import Type, TypeId
from frazil.wire.declared_content import CountMap, DeclaredDataFile, FileFormat, ValueMap
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    And,
    Expression,
    Literal,
    Operation,
    Predicate,
    Term,
    all_of,
    any_of,
)

V = TypeVar("V")

IN_LIMIT: Final = 200
"""Iceberg's metrics evaluators ignore an `in` with more values."""

_LINEAGE_IDS: Final = frozenset(field.field_id for field in LINEAGE.fields)

_OPERATIONS: Final[dict[type[theirs.BoundPredicate], Operation]] = {
    theirs.BoundIsNull: Operation.IS_NULL,
    theirs.BoundNotNull: Operation.NOT_NULL,
    theirs.BoundIsNaN: Operation.IS_NAN,
    theirs.BoundNotNaN: Operation.NOT_NAN,
    theirs.BoundLessThan: Operation.LT,
    theirs.BoundLessThanOrEqual: Operation.LT_EQ,
    theirs.BoundGreaterThan: Operation.GT,
    theirs.BoundGreaterThanOrEqual: Operation.GT_EQ,
    theirs.BoundEqualTo: Operation.EQ,
    theirs.BoundNotEqualTo: Operation.NOT_EQ,
    theirs.BoundStartsWith: Operation.STARTS_WITH,
    theirs.BoundNotStartsWith: Operation.NOT_STARTS_WITH,
    theirs.BoundIn: Operation.IN,
    theirs.BoundNotIn: Operation.NOT_IN,
}


# --- values -------------------------------------------------------------------------------------


@cache
def value_type(iceberg_type: IcebergType) -> Type:
    """Return Frazil's type for a primitive type of PyIceberg."""
    return parse_type(str(iceberg_type))


def value_json(iceberg_type: IcebergType, value: Any) -> Any:
    """Convert a value of PyIceberg to the JSON of its type."""
    type_ = value_type(iceberg_type)
    if type_.type_id is TypeId.UUID and not isinstance(value, UUID):
        value = UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))
    elif type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE) and isinstance(value, int):
        value = float(value)
    return to_json(type_, value)


# --- data files ---------------------------------------------------------------------------------


def spec_id_of(file: DataFile, metadata: TableMetadata) -> int:
    """Return the spec id of a file; a new file has none and uses the table's default spec."""
    return int(getattr(file, "_spec_id", metadata.default_spec_id))


def added_data_file(file: DataFile, metadata: TableMetadata) -> DeclaredDataFile:
    """Convert a file with all of its metrics; bounds keep their bytes."""
    spec_id = spec_id_of(file, metadata)
    spec = metadata.specs().get(spec_id)
    if spec is None:
        raise ValueError(f"{file.file_path}: the table has no partition spec {spec_id}")
    lower, upper = _bounds(file.lower_bounds), _bounds(file.upper_bounds)
    return DeclaredDataFile(
        spec_id=spec_id,
        partition=partition_json(file.partition, spec, metadata.schema()),
        file_path=file.file_path,
        file_format=cast("FileFormat", file.file_format.value.lower()),
        file_size_in_bytes=file.file_size_in_bytes,
        record_count=file.record_count,
        key_metadata=None if file.key_metadata is None else file.key_metadata.hex(),
        split_offsets=tuple(file.split_offsets) if file.split_offsets else None,
        sort_order_id=file.sort_order_id,
        column_sizes=_counts(file.column_sizes),
        value_counts=_counts(file.value_counts),
        null_value_counts=_counts(file.null_value_counts),
        nan_value_counts=_counts(file.nan_value_counts),
        lower_bounds=lower,
        upper_bounds=upper,
        bounds_encoding="hex" if lower is not None or upper is not None else None,
    )


def partition_json(partition: Record, spec: PartitionSpec, schema: Schema) -> tuple[Any, ...]:
    """Return the partition values in the order of the spec's fields."""
    fields = spec.partition_type(schema).fields
    return tuple(
        None if partition[index] is None else _partition_value(field, partition[index])
        for index, field in enumerate(fields)
    )


def _partition_value(field: NestedField, value: Any) -> Any:
    try:
        return value_json(field.field_type, value)
    except InvalidValue as error:
        raise ValueError(
            f"partition field {field.name!r}: {error}, so rows with it cannot be committed to "
            "a partition of their own: filter them out, or partition by another transform"
        ) from error


def _counts(counts: Mapping[int, int] | None) -> CountMap | None:
    if counts is None:
        return None
    own = _of_columns(counts)
    return CountMap(tuple(own), tuple(own.values()))


def _bounds(bounds: Mapping[int, bytes] | None) -> ValueMap | None:
    if bounds is None:
        return None
    own = _of_columns(bounds)
    return ValueMap(tuple(own), tuple(value.hex() for value in own.values()))


def _of_columns(metrics: Mapping[int, V]) -> dict[int, V]:
    """Drop the metrics of row lineage, whose columns are not in the table's schema."""
    return {key: value for key, value in metrics.items() if key not in _LINEAGE_IDS}


# --- filters ------------------------------------------------------------------------------------


def conflict_filter(
    expression: theirs.BooleanExpression, schema: Schema, *, case_sensitive: bool = True
) -> msgspec.Raw:
    """Return a filter that matches at least the rows of the expression and is fast to evaluate.

    It may report a conflict too many, but never misses one.
    """
    try:
        document = _Converter(schema, case_sensitive, widens=True).converted(expression).to_json()
    except (InvalidValue, BadRequest):
        # JSON has no infinities, and a deeply nested filter would be refused.
        document = ALWAYS_TRUE.to_json()
    return msgspec.Raw(msgspec.json.encode(document))


class _Converter:
    def __init__(self, schema: Schema, case_sensitive: bool, *, widens: bool) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._widens = widens

    def converted(self, expression: theirs.BooleanExpression) -> Expression:
        match expression:
            case theirs.AlwaysTrue():
                return ALWAYS_TRUE
            case theirs.AlwaysFalse():
                return ALWAYS_FALSE
            case theirs.Not(child=child):
                # Widening the child would narrow the negation.
                exact = _Converter(self._schema, self._case_sensitive, widens=False)
                return ~exact.converted(child)
            case theirs.And():
                return all_of(*self._operands(expression, theirs.And))
            case theirs.Or():
                return self._any_of(self._operands(expression, theirs.Or))
            case theirs.UnboundPredicate():
                return self.converted(expression.bind(self._schema, self._case_sensitive))
            case theirs.BoundPredicate():
                return self._predicate(expression)
        raise TypeError(f"not an expression of PyIceberg: {expression!r}")

    def _operands(
        self, expression: theirs.And | theirs.Or, kind: type[theirs.And] | type[theirs.Or]
    ) -> list[Expression]:
        """Return the parts of a chain from left to right, without recursion."""
        parts: list[Expression] = []
        pending: list[theirs.BooleanExpression] = [expression]
        while pending:
            part = pending.pop()
            if isinstance(part, kind):
                pending += (part.right, part.left)
            else:
                parts.append(self.converted(part))
        return parts

    def _any_of(self, parts: list[Expression]) -> Expression:
        gathered = self._gathered(parts)
        if self._widens and len(gathered) > IN_LIMIT:
            columns = _columns_of_keys(gathered)
            if columns is not None:
                return all_of(*(self._in(term, list(values)) for term, values in columns.items()))
        return any_of(*gathered)

    def _gathered(self, parts: Iterable[Expression]) -> list[Expression]:
        """Merge equalities and sets of one column into one set, at the position of the first."""
        gathered: list[Expression | Term] = []
        values: dict[Term, dict[Literal, None]] = {}
        for part in parts:
            if not isinstance(part, Predicate) or part.operation not in (
                Operation.EQ,
                Operation.IN,
            ):
                gathered.append(part)
                continue
            if part.term not in values:
                gathered.append(part.term)
            values.setdefault(part.term, {}).update(dict.fromkeys(part.values))
        return [
            self._in(part, list(values[part])) if isinstance(part, Term) else part
            for part in gathered
        ]

    def _predicate(self, predicate: theirs.BoundPredicate) -> Expression:
        operation = _OPERATIONS[type(predicate)]
        field = predicate.term.ref().field
        column = self._schema.find_column_name(field.field_id)
        if column is None:
            raise ValueError(f"the schema has no column with field id {field.field_id}")
        term = Term(column)
        if isinstance(predicate, theirs.BoundLiteralPredicate):
            value = value_json(field.field_type, predicate.literal.value)
            return Predicate(operation, term, (value,))
        if isinstance(predicate, theirs.BoundSetPredicate):
            values = sorted(value_json(field.field_type, value) for value in predicate.value_set)
            if operation is Operation.IN:
                return self._in(term, values)
            return Predicate(operation, term, tuple(values))
        return Predicate(operation, term)

    def _in(self, term: Term, values: list[Any]) -> Expression:
        """Return an `in`, with its range if it has more values than evaluators look at."""
        if len(values) == 1:
            return Predicate(Operation.EQ, term, tuple(values))
        membership = Predicate(Operation.IN, term, tuple(values))
        if not self._widens or len(values) <= IN_LIMIT or not self._is_ordered(term):
            return membership
        return all_of(
            Predicate(Operation.GT_EQ, term, (min(values),)),
            Predicate(Operation.LT_EQ, term, (max(values),)),
            membership,
        )

    def _is_ordered(self, term: Term) -> bool:
        type_ = value_type(self._schema.find_field(term.name).field_type).type_id
        # Dates outside the years 0 to 9999 do not sort like their text, so only these types.
        return type_ in (TypeId.INT, TypeId.LONG, TypeId.STRING)


def _columns_of_keys(parts: Iterable[Expression]) -> dict[Term, dict[Literal, None]] | None:
    """Return the values of each column if every part is one key over the same columns."""
    columns: dict[Term, dict[Literal, None]] = {}
    for part in parts:
        key = _equalities(part)
        if not key or (columns and any(equality.term not in columns for equality in key)):
            return None
        for equality in key:
            columns.setdefault(equality.term, {}).update(dict.fromkeys(equality.values))
        if len(key) != len(columns):
            return None
    return columns


def _equalities(part: Expression) -> Sequence[Predicate]:
    """Return the parts of `a = 1 and b = 2`; nothing for any other expression."""
    operands = part.operands if isinstance(part, And) else (part,)
    equalities = [
        operand
        for operand in operands
        if isinstance(operand, Predicate) and operand.operation is Operation.EQ
    ]
    return equalities if len(equalities) == len(operands) else ()
