"""Bounds of declared files, encoded for certain columns as a manifest holds them.

The columns decide nearly all bytes but the values: ids and, for numbers, lengths. A plan has these
ready and puts the values between them, all numbers with one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import gt, itemgetter
from struct import Struct
from typing import Any, Final

from frazil.format.avro_numbers import INTS, LONGS
from frazil.format.declared_values import hex_bound, typed_bound
from frazil.values.single_value import from_json
from frazil.values.types import Type, TypeId

_SOME: Final = b"\x02"
_END: Final = b"\x00"
_NO_BOUNDS: Final = _SOME + _END
_REMEMBERED_VALUES: Final = 1 << 12

_NUMBERS: Final = {
    TypeId.BOOLEAN: "?",
    TypeId.INT: "i",
    TypeId.LONG: "q",
    TypeId.FLOAT: "f",
    TypeId.DOUBLE: "d",
    TypeId.DATE: "i",
    TypeId.TIME: "q",
    TypeId.TIMESTAMP: "q",
    TypeId.TIMESTAMPTZ: "q",
    TypeId.TIMESTAMP_NS: "q",
    TypeId.TIMESTAMPTZ_NS: "q",
}
"""How `struct` packs the values of a type."""
_AS_IN_JSON: Final = frozenset({TypeId.INT, TypeId.LONG, TypeId.FLOAT, TypeId.DOUBLE})
_COMPARED_AS_JSON: Final = frozenset({*_NUMBERS, TypeId.STRING})
"""Types whose JSON values Python orders as Iceberg orders the values. Dates and times are text;
where two of them are spelled alike, which is nearly always, it is the text's own order."""

Converter = Callable[[Any], Any]


class BoundsPlan:
    """Encodes the bounds of certain columns from their JSON values."""

    def __init__(self, field_ids: Sequence[int], types: Sequence[Type], *, is_hex: bool) -> None:
        columns = list(enumerate(zip(field_ids, types, strict=True)))
        numbers = [column for column in columns if column[1][1].type_id in _NUMBERS and not is_hex]
        others = [column for column in columns if column not in numbers]
        self._boolean_count = 0 if is_hex else [t.type_id for t in types].count(TypeId.BOOLEAN)
        self._numbers = _picker([at for at, _ in numbers])
        self._parsers = [
            (2 * position + 1, parser)
            for position, (_, (_, type_)) in enumerate(numbers)
            if (parser := _parser(type_)) is not None
        ]
        self._others = [
            (at, INTS[field_id], _hex(type_) if is_hex else _other(type_))
            for at, (field_id, type_) in others
        ]
        head, layout = _SOME + LONGS[len(columns)], "<"
        self._arguments: list[Any] = []
        for _, (field_id, type_) in numbers:
            code = _NUMBERS[type_.type_id]
            before = head + INTS[field_id] + LONGS[Struct(f"<{code}").size]
            layout += f"{len(before)}s{code}"
            self._arguments += (before, None)
            head = b""
        self._head = head
        self._pack = Struct(layout).pack
        self._comparable = not is_hex and all(type_.type_id in _COMPARED_AS_JSON for type_ in types)

    def encode(self, values: tuple[Any, ...]) -> bytes:
        """Avro's optional map of the bounds. Raises where a value does not fit, not saying which.

        `struct` takes a bool for a number; only columns of booleans may have one.
        """
        if not values:
            return _NO_BOUNDS
        if [*map(type, values)].count(bool) != self._boolean_count:
            raise ValueError("a boolean stands for a number")
        arguments = self._arguments.copy()
        arguments[1::2] = self._numbers(values)
        for position, parse in self._parsers:
            arguments[position] = parse(arguments[position])
        parts = [self._head, self._pack(*arguments)]
        for at, field_id, convert in self._others:
            bound = convert(values[at])
            parts += (field_id, LONGS[len(bound)], bound)
        parts.append(_END)
        return b"".join(parts)

    def is_in_order(self, lower: Sequence[Any], upper: Sequence[Any]) -> bool:
        """Whether the values show at a glance that no lower bound lies above the upper one."""
        return self._comparable and not any(map(gt, lower, upper))


def _picker(positions: Sequence[int]) -> Callable[[tuple[Any, ...]], Sequence[Any]]:
    """What stands at some positions of a tuple, in their order."""
    if len(positions) > 1:
        return itemgetter(*positions)
    one = slice(positions[0], positions[0] + 1) if positions else slice(0, 0)
    return itemgetter(one)


def _parser(type_: Type) -> Converter | None:
    """Makes a number of the JSON value where it is none."""
    if type_.type_id in _AS_IN_JSON:
        return None
    if type_.type_id is TypeId.BOOLEAN:
        return partial(from_json, type_)
    return lru_cache(_REMEMBERED_VALUES)(partial(from_json, type_))


def _other(type_: Type) -> Converter:
    if type_.type_id is TypeId.STRING:
        return str.encode
    return lru_cache(_REMEMBERED_VALUES)(partial(typed_bound, type_))


def _hex(type_: Type) -> Converter:
    return partial(hex_bound, type_)
