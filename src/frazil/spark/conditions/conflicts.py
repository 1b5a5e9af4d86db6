"""What a MERGE reads of its target, as an expression: where another commit would be a conflict.

Iceberg's own planner knows nothing of a target that is tied to the source by a key. The keys of the
source say it: a target row with another key is neither matched nor kept from being inserted.
Pure: the keys have been collected, an expression comes out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frazil.client.filter.expressions import (
    Expression,
    Predicate,
    Term,
    all_of,
    always_false,
    always_true,
    any_of,
    col,
)
from frazil.values import single_value
from frazil.values.transforms import parse_transform
from frazil.values.types import Type, TypeId

MAX_KEYS: Final = 1000
"""More are told by their partitions and their range."""
RANGED_KEYS: Final = 200
"""A catalog does not compare longer lists with the bounds of each file."""
_FLOATS: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})
_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_NANOS_PER_MICRO: Final = 1000
_UNRANGED: Final = frozenset({TypeId.BOOLEAN, TypeId.UUID, TypeId.FIXED})
"""Uuids are ordered in two ways, and keys for a fixed column may have any length."""


@dataclass(frozen=True, kw_only=True)
class KeyValues:
    """The keys that a source has for one column of the target, as the column's internal values.

    Of timestamps with nanoseconds Spark sees the microseconds, and these are given.
    """

    name: str
    type: Type
    has_null: bool = False
    """Whether nulls are among them and match."""
    has_nan: bool = False
    lowest: Any = None
    """None: there are only nulls and NaNs."""
    highest: Any = None
    values: frozenset[Any] | None = None
    """Without nulls and NaNs; None where there are too many."""
    transformed: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    """What partition transforms, by their text, make of the keys."""


def key_filter(keys: KeyValues) -> Expression:
    """The rows whose column has one of the keys, and perhaps others."""
    operand = col(keys.name)
    parts = [_numbers(keys)]
    if keys.has_nan:
        parts.append(operand.is_nan())
    if keys.has_null:
        parts.append(operand.is_null())
    return any_of(*parts)


def merge_filter(
    keys: Iterable[Expression],
    target_only: Expression,
    unmatched: Iterable[Expression],
) -> Expression:
    """What a MERGE reads: the rows that can match, and those of NOT MATCHED BY SOURCE.

    `unmatched` has what each of those clauses asks of the target; true where it asks nothing.
    """
    return any_of(all_of(*keys, target_only), *unmatched)


def _numbers(keys: KeyValues) -> Expression:
    if keys.lowest is None:
        return always_false()
    bounds = (keys.lowest, keys.highest)
    if any(isinstance(bound, float) and math.isinf(bound) for bound in bounds):
        # An infinity has no form in JSON.
        return always_true()
    few = keys.values is not None and len(keys.values) <= MAX_KEYS
    if few and keys.type.type_id not in _NANOS:
        assert keys.values is not None
        listed = _within(Term(keys.name), keys.type, keys.values)
        return listed if len(keys.values) <= RANGED_KEYS else all_of(listed, _range(keys))
    return all_of(*_transform_parts(keys), _range(keys))


def _within(term: Term, type_: Type, values: Iterable[Any]) -> Expression:
    given = set(values)
    if not given:
        return always_false()
    found = [single_value.to_json(type_, value) for value in given]
    if type_.type_id in _FLOATS and 0.0 in given:
        # To Spark the two zeros are one; Iceberg tells them apart.
        found = [value for value in found if value != 0] + [0.0, -0.0]
    return Predicate("in", term, tuple(sorted(found)))


def _transform_parts(keys: KeyValues) -> Iterable[Expression]:
    for text, values in sorted(keys.transformed.items()):
        if 0 < len(values) <= MAX_KEYS:
            result = parse_transform(text).result_type(keys.type)
            yield _within(Term(keys.name, text), result, values)


def _range(keys: KeyValues) -> Expression:
    type_, lowest, highest = keys.type, keys.lowest, keys.highest
    if type_.type_id in _UNRANGED:
        return always_true()
    if type_.type_id in _NANOS:
        lowest = lowest * _NANOS_PER_MICRO
        highest = highest * _NANOS_PER_MICRO + _NANOS_PER_MICRO - 1
    if type_.type_id in _FLOATS:
        lowest, highest = (-0.0 if lowest == 0 else lowest), (0.0 if highest == 0 else highest)
    term = Term(keys.name)
    return all_of(
        Predicate("gt-eq", term, (single_value.to_json(type_, lowest),)),
        Predicate("lt-eq", term, (single_value.to_json(type_, highest),)),
    )
