"""Bounds of declared files, encoded for certain columns as a manifest holds them.

The columns decide nearly all bytes but the values: ids and, for numbers, lengths. A plan has these
ready and puts the values between them, all numbers with one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import gt
from struct import Struct
from typing import Any, Final

from frazil.format.avro.avro_types import INTS, LONGS
from frazil.format.declared.declared_values import hex_bound, typed_bound
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
_USES_UNTIL_COMPILED: Final = 32
"""Compiling takes as long as encoding some hundred files: for one that comes alone it is a loss."""
_MOST_COMPILED_COLUMNS: Final = 200

Converter = Callable[[Any], Any]


class BoundsPlan:
    """Encodes the bounds of certain columns from their JSON values."""

    def __init__(self, field_ids: Sequence[int], types: Sequence[Type], *, is_hex: bool) -> None:
        columns = [
            _Column(at, INTS[field_id], type_, is_hex)
            for at, (field_id, type_) in enumerate(zip(field_ids, types, strict=True))
        ]
        self._numbers = [column for column in columns if column.code is not None]
        self._others = [column for column in columns if column.code is None]
        self._boolean_count = sum(column.code == "?" for column in columns)
        head, layout = _SOME + LONGS[len(columns)], "<"
        self._constants: list[bytes] = []
        for column in self._numbers:
            before = head + column.field_id + LONGS[Struct(f"<{column.code}").size]
            layout += f"{len(before)}s{column.code}"
            self._constants.append(before)
            head = b""
        self._head = head
        self._pack = Struct(layout).pack
        self._is_hex = is_hex
        self._decimals = [at for at, type_ in enumerate(types) if type_.type_id is TypeId.DECIMAL]
        self._uses = 0
        self._encode: Callable[[tuple[Any, ...]], bytes] = self._interpret

    def encode(self, values: tuple[Any, ...]) -> bytes:
        """Avro's optional map of the bounds. Raises where a value does not fit, not saying which.

        `struct` takes a bool for a number; only columns of booleans may have one.
        """
        if [*map(type, values)].count(bool) != self._boolean_count:
            raise ValueError("a boolean stands for a number")
        return self._encode(values)

    def is_in_order(self, lower: Sequence[Any], upper: Sequence[Any]) -> bool:
        """Whether the JSON values show at a glance that no lower bound lies above the upper one.

        Dates and times are text: where two are spelled alike, which is nearly always, the text's
        order is theirs. Decimals are compared as floats. False only means: look more closely.
        """
        if self._is_hex:
            return False
        if self._decimals:
            lower, upper = list(lower), list(upper)
            for at in self._decimals:
                lower[at], upper[at] = float(lower[at]), float(upper[at])
        return not any(map(gt, lower, upper))

    def _interpret(self, values: tuple[Any, ...]) -> bytes:
        """As the compiled function does, a column at a time."""
        if not values:
            return _NO_BOUNDS
        self._uses += 1
        if self._uses == _USES_UNTIL_COMPILED and len(values) <= _MOST_COMPILED_COLUMNS:
            self._encode = self._compiled()
        arguments: list[Any] = []
        for before, column in zip(self._constants, self._numbers, strict=True):
            value = values[column.at]
            arguments += (before, value if column.convert is None else column.convert(value))
        parts = [self._head, self._pack(*arguments)]
        for column in self._others:
            assert column.convert is not None
            bound = column.convert(values[column.at])
            parts += (column.field_id, LONGS[len(bound)], bound)
        parts.append(_END)
        return b"".join(parts)

    def _compiled(self) -> Callable[[tuple[Any, ...]], bytes]:
        """Straight code for these columns, in a third of the time: no loop, no list.

        The text is made of positions and of names that stand for the values beside it; nothing
        that a request says is part of it.
        """
        names: dict[str, Any] = {"pack": self._pack, "join": b"".join, "lengths": LONGS}
        count = len(self._numbers) + len(self._others)
        lines = [f"({''.join(f'v{at}, ' for at in range(count))}) = values"]
        for column in (*self._numbers, *self._others):
            if column.convert is not None:
                names[f"convert{column.at}"] = column.convert
                lines.append(f"v{column.at} = convert{column.at}(v{column.at})")
        packed = []
        for position, column in enumerate(self._numbers):
            names[f"before{position}"] = self._constants[position]
            packed.append(f"before{position}, v{column.at}")
        parts = [f"{self._head!r}, pack({', '.join(packed)})"]
        for column in self._others:
            parts.append(f"{column.field_id!r}, lengths[len(v{column.at})], v{column.at}")
        lines.append(f"return join(({', '.join(parts)}, {_END!r}))")
        body = "".join(f"    {line}\n" for line in lines)
        exec(compile(f"def encode(values):\n{body}", "<bounds>", "exec"), names)
        encode: Callable[[tuple[Any, ...]], bytes] = names["encode"]
        return encode


class _Column:
    __slots__ = ("at", "code", "convert", "field_id")

    def __init__(self, at: int, field_id: bytes, type_: Type, is_hex: bool) -> None:
        self.at = at
        self.field_id = field_id
        self.code = None if is_hex else _NUMBERS.get(type_.type_id)
        """How `struct` packs it; None for a column whose bounds vary in length."""
        self.convert = _hex(type_) if is_hex else _converter(type_)
        """Makes of the JSON value the number or the bytes; None where it is the number."""


def _converter(type_: Type) -> Converter | None:
    if type_.type_id in _AS_IN_JSON:
        return None
    if type_.type_id is TypeId.STRING:
        return str.encode
    if type_.type_id is TypeId.BOOLEAN:
        return partial(from_json, type_)
    return _remembering(type_)


@lru_cache(maxsize=64)
def _remembering(type_: Type) -> Converter:
    """One for all columns of a type: values that take long to read nearly always come again."""
    read = from_json if type_.type_id in _NUMBERS else typed_bound
    return lru_cache(_REMEMBERED_VALUES)(partial(read, type_))


def _hex(type_: Type) -> Converter:
    return partial(hex_bound, type_)
