"""Checks the column metrics of declared files and encodes their bounds as manifests store them.

Bounds are JSON single values or hexadecimal digits (spec, Appendix D). The files of one request
nearly always have metrics for the same columns, so everything that depends only on the columns is
computed once for each list of field ids: a `BoundsPlan` has the encoded ids and lengths ready, and
packs all numbers of a file with one call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import gt, itemgetter
from struct import Struct
from typing import Any, Final

from frazil.format.avro.avro_types import INTS, LONGS
from frazil.format.metadata.content_files import EncodedBounds
from frazil.format.metadata.schema import Schema
from frazil.values.single_value import (
    INT_BITS,
    InvalidValue,
    from_binary,
    from_json,
    min_big_endian,
    to_binary,
)
from frazil.values.types import (
    BOOLEAN,
    INT,
    LONG,
    STRING,
    UNKNOWN,
    DecimalType,
    FixedType,
    Type,
    TypeId,
)
from frazil.wire.declared_content import CountMap, DeclaredContentFile, ValueMap

CONVERSION_ERRORS: Final = (ValueError, TypeError, OverflowError, struct.error)
"""The errors of a converter for an invalid value."""

_WIDTHS: Final = {
    **{kind: bits // 8 for kind, bits in INT_BITS.items()},
    TypeId.BOOLEAN: 1,
    TypeId.FLOAT: 4,
    TypeId.DOUBLE: 8,
    TypeId.UUID: 16,
}
"""The widths at which any bytes are a value. Other widths are checked."""
_POINT_BYTES: Final = (16, 24, 32)
_HAS_NO_JSON: Final = frozenset({TypeId.GEOMETRY, TypeId.GEOGRAPHY, TypeId.VARIANT})


class Misfit(ValueError):
    """A part of a declared file that does not fit its table."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        """The name of the member in JSON."""
        self.problem = problem


def typed_bound(type_: Type, value: Any) -> bytes:
    """Return the bytes of a bound that is a JSON single value."""
    if type_.type_id in _HAS_NO_JSON:
        raise InvalidValue(
            f"a bound of type {type_} has no JSON value: send hexadecimal digits and "
            '"bounds-encoding": "hex"'
        )
    if isinstance(type_, FixedType):
        return _short_fixed(type_, value)
    if isinstance(type_, DecimalType) and isinstance(value, str):
        plain = _plain_decimal(type_, value)
        if plain is not None:
            return plain
    return to_binary(type_, from_json(type_, value))


def _short_fixed(type_: FixedType, value: Any) -> bytes:
    """Return the bytes of a fixed bound, which may be shorter because writers truncate long
    bounds."""
    if isinstance(value, str) and len(value) < 2 * type_.length:
        return bytes(from_json(FixedType(len(value) // 2), value))
    return bytes(from_json(type_, value))


def _plain_decimal(type_: DecimalType, text: str) -> bytes | None:
    """Return the bytes of a decimal in its usual form, as `12.30` with scale 2, or else None."""
    whole, point, fraction = text.partition(".")
    if len(fraction) != type_.scale or (point == "") != (type_.scale == 0):
        return None
    digits = whole + fraction
    figures = digits.removeprefix("-")
    if not (figures.isdecimal() and figures.isascii() and whole not in ("", "-")):
        return None
    number = int(digits)
    return min_big_endian(number) if abs(number) < 10**type_.precision else None


def hex_bound(type_: Type, text: str) -> bytes:
    """Return the bytes of a bound in hexadecimal digits."""
    data = bytes.fromhex(text)
    if len(data) == _WIDTHS.get(type_.type_id):
        return data
    if type_.type_id in (TypeId.GEOMETRY, TypeId.GEOGRAPHY):
        if len(data) not in _POINT_BYTES:
            raise InvalidValue(
                f"{len(data)} bytes are not a point: give 2 to 4 coordinates of 8 bytes each"
            )
    elif type_.type_id is not TypeId.VARIANT:
        from_binary(type_, data)
    return data


# --- order ------------------------------------------------------------------------------------

_ORDERED: Final = frozenset(
    {
        *(TypeId.BOOLEAN, TypeId.FLOAT, TypeId.DOUBLE, TypeId.DECIMAL, TypeId.STRING),
        *INT_BITS,
    }
)
"""The other types have no certain order: Java compares the halves of a UUID as signed numbers, and
writers order binary values differently."""


def is_above(type_: Type, lower: bytes, upper: bytes) -> bool:
    """Check whether a lower bound is certainly above an upper bound."""
    if lower == upper or type_.type_id not in _ORDERED:
        return False
    if type_.type_id in INT_BITS and len(lower) == len(upper):
        return int.from_bytes(lower, "little", signed=True) > int.from_bytes(
            upper, "little", signed=True
        )
    if type_.type_id is TypeId.STRING and lower < upper:
        return False
    low, high = from_binary(type_, lower), from_binary(type_, upper)
    if low <= high or type_.type_id is not TypeId.STRING:
        return bool(low > high)
    # Some writers order text by code points, others by UTF-16 units as Java does.
    return bool(low.encode("utf-16-be") > high.encode("utf-16-be"))


_NOT_NULL: Final = b"\x02"
_END: Final = b"\x00"
_NO_BOUNDS: Final = _NOT_NULL + _END
_MAX_CACHED_VALUES: Final = 1 << 12

_NUMBERS: Final = {
    **{kind: "i" if bits == 32 else "q" for kind, bits in INT_BITS.items()},
    TypeId.BOOLEAN: "?",
    TypeId.FLOAT: "f",
    TypeId.DOUBLE: "d",
}
"""The `struct` code of each type."""
_AS_IN_JSON: Final = frozenset({TypeId.INT, TypeId.LONG, TypeId.FLOAT, TypeId.DOUBLE})

Converter = Callable[[Any], Any]


class BoundsPlan:
    """Encodes the bounds of a fixed list of columns from their JSON values."""

    def __init__(self, field_ids: Sequence[int], types: Sequence[Type], *, is_hex: bool) -> None:
        codes = [None if is_hex else _NUMBERS.get(type_.type_id) for type_ in types]
        converters = [partial(hex_bound, type_) if is_hex else _converter(type_) for type_ in types]
        numbers = [at for at, code in enumerate(codes) if code is not None]
        self._converted_numbers = [
            (at, convert) for at in numbers if (convert := converters[at]) is not None
        ]
        self._others = [
            (at, convert, INTS[field_ids[at]])
            for at, convert in enumerate(converters)
            if codes[at] is None and convert is not None
        ]
        self._boolean_count = codes.count("?")
        self._head = _NOT_NULL + LONGS[len(field_ids)]
        constants = [INTS[field_ids[at]] + LONGS[Struct(f"<{codes[at]}").size] for at in numbers]
        layout = [
            f"{len(before)}s{codes[at]}" for before, at in zip(constants, numbers, strict=True)
        ]
        self._pack = Struct("<" + "".join(layout)).pack
        self._constants = tuple(constants)
        """What the map has before each number."""
        self._arguments: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda _: ()
        """Picks the arguments of `_pack` from the values and the constants behind them."""
        if numbers:
            pairs = enumerate(numbers, len(field_ids))
            self._arguments = itemgetter(*chain.from_iterable(pairs))
        self._is_hex = is_hex
        self._decimals = [at for at, type_ in enumerate(types) if type_.type_id is TypeId.DECIMAL]

    def encode(self, values: tuple[Any, ...]) -> bytes:
        """Return Avro's optional map of the bounds. Raise an error if any value does not fit.

        `struct` accepts booleans as numbers, so their count is checked.
        """
        if [*map(type, values)].count(bool) != self._boolean_count:
            raise ValueError("a boolean stands for a number")
        if not values:
            return _NO_BOUNDS
        if self._converted_numbers:
            converted = [*values]
            for at, convert in self._converted_numbers:
                converted[at] = convert(values[at])
            values = tuple(converted)
        parts = [self._head, self._pack(*self._arguments(values + self._constants))]
        lengths = LONGS
        for at, convert, field_id in self._others:
            bound = convert(values[at])
            parts += (field_id, lengths[len(bound)], bound)
        parts.append(_END)
        return b"".join(parts)

    def is_in_order(self, lower: Sequence[Any], upper: Sequence[Any]) -> bool:
        """Check quickly whether no lower bound is above its upper bound.

        Dates and times are compared as text, which is correct for the usual form. Decimals are
        compared as floats. False means that a full check is needed.
        """
        if self._is_hex:
            return False
        if self._decimals:
            lower, upper = list(lower), list(upper)
            for at in self._decimals:
                lower[at], upper[at] = float(lower[at]), float(upper[at])
        return not any(map(gt, lower, upper))


def _converter(type_: Type) -> Converter | None:
    """Return what converts a JSON value to a number or bytes, or None if it is the number."""
    if type_.type_id in _AS_IN_JSON:
        return None
    if type_.type_id is TypeId.STRING:
        return str.encode
    if type_.type_id is TypeId.BOOLEAN:
        return partial(from_json, type_)
    return _cached_converter(type_)


@lru_cache(maxsize=64)
def _cached_converter(type_: Type) -> Converter:
    """Return a cached converter for all columns of a type. Slow values are often repeated."""
    read = from_json if type_.type_id in _NUMBERS else typed_bound
    return lru_cache(_MAX_CACHED_VALUES)(partial(read, type_))


FIRST_RESERVED_ID: Final = 2**31 - 1 - 200
"""Spec, "Reserved Field IDs": no column of a table has this id or a higher one."""

_RESERVED: Final[Mapping[int, tuple[str, Type]]] = {
    2147483646: ("_file", STRING),
    2147483645: ("_pos", LONG),
    2147483644: ("_deleted", BOOLEAN),
    2147483643: ("_spec_id", INT),
    2147483546: ("file_path", STRING),
    2147483545: ("pos", LONG),
    2147483543: ("_change_type", STRING),
    2147483542: ("_change_ordinal", INT),
    2147483541: ("_commit_snapshot_id", LONG),
    2147483540: ("_row_id", LONG),
    2147483539: ("_last_updated_sequence_number", LONG),
}
_MAX_CACHED_PLANS: Final = 64

_LOWER: Final = "lower-bounds"
_UPPER: Final = "upper-bounds"


class Columns:
    """The columns that a file of the table may have: those of all schemas, and reserved ones.

    A file may be older than the current schema. If the type of a column was promoted, the newest
    type is used, because readers read bounds with it.
    """

    def __init__(self, schemas: Sequence[Schema], current: Schema) -> None:
        self._types: dict[int, tuple[str, Type]] = dict(_RESERVED)
        for schema in (*sorted(schemas, key=lambda schema: schema.schema_id), current):
            for field_id, field in schema.fields_by_id.items():
                self._types[field_id] = schema.full_names[field_id], field.type
        required = [field.field_id for field in current.struct.fields if field.required]
        self.required_ids = frozenset(required)
        """The required top-level columns. A nested column is null if its parent is."""

    def check(self, name: str, field_ids: Sequence[int]) -> None:
        for field_id in field_ids:
            if field_id not in self._types and field_id < FIRST_RESERVED_ID:
                raise Misfit(name, f"{field_id} is not the id of a column in a schema of the table")

    def type(self, field_id: int) -> Type:
        return self._types.get(field_id, ("", UNKNOWN))[1]

    def shown(self, field_id: int) -> str:
        name, type_ = self._types.get(field_id, ("reserved", UNKNOWN))
        return f"field {field_id} ({name}, {type_})"


@lru_cache(maxsize=64)
def metrics_reader(schemas: tuple[Schema, ...], current: Schema) -> MetricsReader:
    """Return the shared reader for the schemas of a table."""
    return MetricsReader(schemas, current)


class MetricsReader:
    """Reads the metrics of files of one table. Its caches never become invalid, so several threads
    may use it."""

    def __init__(self, schemas: Sequence[Schema], current: Schema) -> None:
        self._columns = Columns(schemas, current)
        self._known_ids: set[tuple[int, ...]] = set()
        self._plans: dict[tuple[tuple[int, ...], bool], BoundsPlan] = {}

    # --- counts -----------------------------------------------------------------------------

    def check_ids(self, name: str, counts: CountMap | None) -> None:
        """Refuse counts of columns that the table never had."""
        if counts is None or counts.keys in self._known_ids:
            return
        self._columns.check(name, counts.keys)
        if len(self._known_ids) >= _MAX_CACHED_PLANS:
            self._known_ids.clear()
        self._known_ids.add(counts.keys)

    def check_counts(self, file: DeclaredContentFile, *, is_data: bool) -> None:
        """Refuse impossible counts, and nulls in required columns."""
        nulls, nans, totals = file.null_value_counts, file.nan_value_counts, file.value_counts
        if nulls is not None and any(nulls.values):
            self._check_part("null-value-counts", nulls, totals)
            if is_data and self._columns.required_ids:
                self._check_required(nulls)
        if nans is not None and any(nans.values):
            self._check_part("nan-value-counts", nans, totals)

    def _check_part(self, name: str, part: CountMap, whole: CountMap | None) -> None:
        if whole is None:
            return
        if part.keys == whole.keys and not any(map(gt, part.values, whole.values)):
            return
        for field_id, count in part.items():
            total = whole.get(field_id)
            if total is not None and count > total:
                raise Misfit(
                    name,
                    f"{self._columns.shown(field_id)} has {count}, more than the {total} of "
                    "value-counts",
                )

    def _check_required(self, nulls: CountMap) -> None:
        for field_id, count in zip(nulls.keys, nulls.values, strict=True):
            if count and field_id in self._columns.required_ids:
                raise Misfit(
                    "null-value-counts",
                    f"{self._columns.shown(field_id)} is required, but the file has {count} nulls "
                    "in it",
                )

    # --- bounds -----------------------------------------------------------------------------

    def bounds(
        self, file: DeclaredContentFile
    ) -> tuple[EncodedBounds | None, EncodedBounds | None]:
        """Return the lower and the upper bounds."""
        lower, upper = file.lower_bounds, file.upper_bounds
        is_hex = file.bounds_encoding is not None
        lows = None if lower is None else self._encode(_LOWER, lower, is_hex)
        highs = None if upper is None else self._encode(_UPPER, upper, is_hex)
        if lows is not None and highs is not None:
            assert lower is not None
            assert upper is not None
            plan = self._plans.get((lower.keys, is_hex)) if lower.keys == upper.keys else None
            if plan is None or not plan.is_in_order(lower.values, upper.values):
                self._check_order(lows, highs)
        return lows, highs

    def _encode(self, name: str, bounds: ValueMap, is_hex: bool) -> EncodedBounds:
        plan = self._plans.get((bounds.keys, is_hex)) or self._plan(name, bounds.keys, is_hex)
        try:
            return EncodedBounds(plan.encode(bounds.values))
        except CONVERSION_ERRORS:
            raise self._misfit(name, bounds, is_hex) from None

    def _plan(self, name: str, field_ids: tuple[int, ...], is_hex: bool) -> BoundsPlan:
        self._columns.check(name, field_ids)
        types = tuple(self._columns.type(field_id) for field_id in field_ids)
        for field_id, type_ in zip(field_ids, types, strict=True):
            if not type_.is_primitive and type_.type_id is not TypeId.VARIANT:
                raise Misfit(
                    name,
                    f"{self._columns.shown(field_id)} is not primitive, it has no bounds: "
                    "remove it",
                )
        plan = BoundsPlan(field_ids, types, is_hex=is_hex)
        if len(self._plans) >= _MAX_CACHED_PLANS:
            self._plans.clear()
        self._plans[field_ids, is_hex] = plan
        return plan

    def _misfit(self, name: str, bounds: ValueMap, is_hex: bool) -> Misfit:
        """Return the error for the first value that does not fit."""
        convert: Callable[[Type, Any], bytes] = hex_bound if is_hex else typed_bound
        for field_id, value in zip(bounds.keys, bounds.values, strict=True):
            try:
                convert(self._columns.type(field_id), value)
            except CONVERSION_ERRORS as error:
                return Misfit(name, f"{self._columns.shown(field_id)}: {error}")
        raise AssertionError("every bound can be converted")

    def _check_order(self, lower: EncodedBounds, upper: EncodedBounds) -> None:
        """Refuse a lower bound above its upper bound, which would hide all rows of the file."""
        highs = dict(upper.items())
        for field_id, low in lower.items():
            high = highs.get(field_id)
            if high is not None and is_above(self._columns.type(field_id), low, high):
                raise Misfit(_LOWER, f"{self._columns.shown(field_id)} lies above its upper bound")
