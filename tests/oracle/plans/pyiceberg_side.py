"""Uses stock PyIceberg as the second oracle: `scan(...).plan_files()` on the metadata file.

PyIceberg supports neither transforms in filters, nor equality deletes, nor the schema of a
snapshot. It also lacks the JSON forms of literals that a server converts. Only Java judges scans
with those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from pyiceberg import expressions as py
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable

from frazil.values.single_value import to_json
from frazil.values.types import Type, TypeId
from tests.oracle.plans.columns import Leaf
from tests.oracle.plans.files import Doc
from tests.oracle.plans.predicates import ColumnTest, Constant, Junction, Negation, Predicate

_UNARY: Final[Mapping[str, Any]] = {
    "is-null": py.IsNull,
    "not-null": py.NotNull,
    "is-nan": py.IsNaN,
    "not-nan": py.NotNaN,
}
_SETS: Final[Mapping[str, Any]] = {"in": py.In, "not-in": py.NotIn}
_LITERALS: Final[Mapping[str, Any]] = {
    "eq": py.EqualTo,
    "not-eq": py.NotEqualTo,
    "lt": py.LessThan,
    "lt-eq": py.LessThanOrEqual,
    "gt": py.GreaterThan,
    "gt-eq": py.GreaterThanOrEqual,
    "starts-with": py.StartsWith,
    "not-starts-with": py.NotStartsWith,
}
_TEXTS: Final = (TypeId.DATE, TypeId.TIME, TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ)
_NO_LITERALS: Final = (TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS)


class CannotSay(Exception):
    """PyIceberg cannot express the predicate."""


def expression_of(predicate: Predicate) -> py.BooleanExpression:
    """Return the predicate as a user of PyIceberg writes it."""
    if isinstance(predicate, Constant):
        return py.AlwaysTrue() if predicate.value else py.AlwaysFalse()
    if isinstance(predicate, Negation):
        return py.Not(expression_of(predicate.child))
    if isinstance(predicate, Junction):
        join = py.And if predicate.kind == "and" else py.Or
        return join(expression_of(predicate.left), expression_of(predicate.right))
    assert isinstance(predicate, ColumnTest)
    if predicate.transform is not None or predicate.strange:
        raise CannotSay
    if predicate.values and predicate.leaf.type.type_id in _NO_LITERALS:
        raise CannotSay
    values = [_literal(predicate.leaf.type, value) for value in predicate.values]
    made: py.BooleanExpression
    if predicate.operation in _UNARY:
        made = _UNARY[predicate.operation](predicate.name)
    elif predicate.operation in _SETS:
        made = _SETS[predicate.operation](predicate.name, values)
    else:
        made = _LITERALS[predicate.operation](predicate.name, values[0])
    return made


def _literal(type_: Type, value: Any) -> Any:
    return to_json(type_, value) if type_.type_id in _TEXTS else value


class PyIcebergPlanned:
    """One table as PyIceberg reads it."""

    def __init__(self, metadata_location: str) -> None:
        try:
            self._table = StaticTable.from_metadata(metadata_location)
        except TypeError as error:
            # PyIceberg cannot read the default values of some types.
            if "Cannot deserialize bytes, type" not in str(error):
                raise
            raise CannotSay from error

    def plan(self, scan: Doc, predicate: Predicate, leaves: Sequence[Leaf]) -> Doc:
        """Return the `tasks` of a scan, or `error` and `message`."""
        names = {leaf.field_id: leaf for leaf in leaves}
        schema = self._table.schema()
        row_filter = expression_of(predicate)
        try:
            found = self._scan(scan, row_filter)
            tasks = [
                {
                    "path": task.file.file_path,
                    "deletes": [[file.file_path, None] for file in task.delete_files],
                    "residual": _json(task.residual, schema, scan["case-sensitive"], names),
                }
                for task in found.plan_files()
            ]
        except Exception as error:
            # Any exception of PyIceberg counts as its answer.
            return {"error": type(error).__name__, "message": str(error)}
        return {"tasks": tasks}

    def _scan(self, scan: Doc, row_filter: py.BooleanExpression) -> Any:
        if scan["end-snapshot-id"] is not None:
            return self._table.incremental_append_scan(
                from_snapshot_id_exclusive=scan["start-snapshot-id"],
                to_snapshot_id_inclusive=scan["end-snapshot-id"],
                row_filter=row_filter,
                case_sensitive=scan["case-sensitive"],
            )
        return self._table.scan(
            row_filter=row_filter,
            snapshot_id=scan["snapshot-id"],
            case_sensitive=scan["case-sensitive"],
        )


_OPERATIONS: Final = {
    made: name for forms in (_UNARY, _SETS, _LITERALS) for name, made in forms.items()
}


def _json(expression: Any, schema: Schema, case_sensitive: bool, leaves: Mapping[int, Leaf]) -> Any:
    """Return a residual in our JSON form, with literals as PyIceberg converted them."""
    if isinstance(expression, py.AlwaysTrue | py.AlwaysFalse):
        return isinstance(expression, py.AlwaysTrue)
    if isinstance(expression, py.Not):
        return {"type": "not", "child": _json(expression.child, schema, case_sensitive, leaves)}
    if isinstance(expression, py.And | py.Or):
        return {
            "type": "and" if isinstance(expression, py.And) else "or",
            "left": _json(expression.left, schema, case_sensitive, leaves),
            "right": _json(expression.right, schema, case_sensitive, leaves),
        }
    if isinstance(expression, py.UnboundPredicate):
        bound = expression.bind(schema, case_sensitive=case_sensitive)
        return _json(bound, schema, case_sensitive, leaves)
    leaf = leaves[expression.term.ref().field.field_id]
    found: Doc = {"type": _OPERATIONS[expression.as_unbound], "term": leaf.name}
    if isinstance(expression, py.BoundLiteralPredicate):
        found["value"] = _json_value(leaf.type, expression.literal.value)
    elif isinstance(expression, py.BoundSetPredicate):
        found["values"] = [_json_value(leaf.type, one.value) for one in expression.literals]
    return found


def _json_value(type_: Type, value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if type_.type_id is TypeId.UUID and isinstance(value, bytes):
        value = UUID(bytes=value)
    return to_json(type_, value)
