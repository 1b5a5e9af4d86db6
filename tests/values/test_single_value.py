from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID as PythonId  # noqa: N811

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import conversions as oracle
from pyiceberg import types as oracle_types

from frazil.values import single_value
from frazil.values.single_value import InvalidValue, from_binary, from_json, to_binary, to_json
from frazil.values.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    TIMESTAMPTZ_NS,
    UNKNOWN,
    UUID,
    VARIANT,
    DecimalType,
    FixedType,
    GeometryType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
)

DECIMAL = DecimalType(9, 2)
POINT = StructType(
    (
        NestedField(1, "x", INT, required=False),
        NestedField(2, "y", STRING, required=False),
    )
)
NUMBERS = ListType(NestedField(3, "element", LONG, required=False))
AGES = MapType(
    NestedField(4, "key", STRING, required=True), NestedField(5, "value", DATE, required=False)
)

JSON_EXAMPLES: list[tuple[Type, Any, Any]] = [
    (BOOLEAN, True, True),
    (INT, 34, 34),
    (LONG, -(2**63), -(2**63)),
    (FLOAT, 1.0, 1.0),
    (DOUBLE, 1e300, 1e300),
    (DECIMAL, "14.20", Decimal("14.20")),
    (DECIMAL, "-0.05", Decimal("-0.05")),
    (DATE, "2017-11-16", 17486),
    (DATE, "-0001-03-01", -719834),
    (DATE, "+10000-01-01", 2932897),
    (TIME, "22:31:08.123456", 81068123456),
    (TIMESTAMP, "2017-11-16T22:31:08.123456", 1510871468123456),
    (TIMESTAMP, "1969-12-31T23:59:59.999999", -1),
    (TIMESTAMPTZ, "2017-11-16T22:31:08.123456+00:00", 1510871468123456),
    (TIMESTAMP_NS, "2017-11-16T22:31:08.123456789", 1510871468123456789),
    (TIMESTAMPTZ_NS, "2017-11-16T22:31:08.123456789+00:00", 1510871468123456789),
    (STRING, "iceberg", "iceberg"),
    (
        UUID,
        "f79c3e09-677c-4bbd-a479-3f349cb785e7",
        PythonId("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ),
    (FixedType(4), "000102ff", b"\x00\x01\x02\xff"),
    (BINARY, "000102ff", b"\x00\x01\x02\xff"),
    (BINARY, "", b""),
    (POINT, {"1": 1, "2": "bar"}, {1: 1, 2: "bar"}),
    (NUMBERS, [1, None, 3], [1, None, 3]),
    (
        AGES,
        {"keys": ["a", "b"], "values": ["1970-01-02", None]},
        [("a", 1), ("b", None)],
    ),
]


@pytest.mark.parametrize(("type_", "value", "internal"), JSON_EXAMPLES)
def test_json_both_ways(type_: Type, value: Any, internal: Any) -> None:
    assert from_json(type_, value) == internal
    assert to_json(type_, internal) == value
    assert json.loads(json.dumps(to_json(type_, internal))) == value


@pytest.mark.parametrize(
    ("type_", "value", "internal"),
    [
        (FLOAT, 3, 3.0),
        (DOUBLE, Decimal("0.1"), 0.1),
        (FLOAT, 0.1, 0.10000000149011612),
        (TIME, "22:31", 81060000000),
        (TIMESTAMP, "2017-11-16T22:31:08", 1510871468000000),
        (TIMESTAMPTZ, "2017-11-16T22:31:08Z", 1510871468000000),
        (BINARY, "00FF", b"\x00\xff"),
        (
            UUID,
            "F79C3E09-677C-4BBD-A479-3F349CB785E7",
            PythonId("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ),
        (STRING, None, None),
        (VARIANT, None, None),
    ],
)
def test_json_forms_that_are_read_but_not_written(type_: Type, value: Any, internal: Any) -> None:
    assert from_json(type_, value) == internal


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        (BOOLEAN, 1, "1 is not a boolean value"),
        (INT, True, "True is not a int value"),
        (INT, 1.0, "1.0 is not a int value"),
        (INT, 2**31, "2147483648 does not fit in the 32 bits of int"),
        (LONG, 2**63, "does not fit in the 64 bits of long"),
        (FLOAT, "1.0", "'1.0' is not a float value"),
        (FLOAT, Decimal("1E+300"), "too large for float"),
        (DOUBLE, 10**400, "too large for double"),
        (DOUBLE, Decimal("1E+400"), "1E+400 is too large for double"),
        (DECIMAL, "9" * 300, "does not have the scale 2"),
        (DECIMAL, 14.2, "14.2 is not a decimal(9, 2) value"),
        (DECIMAL, "14.2", "14.2 does not have the scale 2"),
        (DECIMAL, "12345678.90", "has more digits than decimal(9, 2) allows"),
        (DECIMAL, "NaN", "NaN is not a finite decimal"),
        (DECIMAL, "ten", "'ten' is not a decimal(9, 2) value"),
        (DATE, "2017-11-31", "2017-11-31 is not a day of the calendar"),
        (DATE, "16.11.2017", "'16.11.2017' is not a date like 2017-11-16"),
        (DATE, 17486, "17486 is not a date value"),
        (DATE, "+9999999-01-01", "does not fit in the 32 bits of date"),
        (TIME, "24:00:00", "24:00:00 is not a time of day"),
        (TIME, "22:31:08.1234567", "is more precise than microseconds"),
        (TIMESTAMP, "2017-11-16T22:31:08+00:00", "must not have a zone offset"),
        (TIMESTAMPTZ, "2017-11-16T22:31:08", "must end with the zone offset +00:00"),
        (TIMESTAMPTZ, "2017-11-16T22:31:08+01:00", "must end with the zone offset +00:00"),
        (TIMESTAMP_NS, "9999-01-01T00:00:00", "does not fit in the 64 bits of timestamp_ns"),
        (STRING, 1, "1 is not a string value"),
        (UUID, "f79c3e09677c4bbda4793f349cb785e7", "is not a uuid value"),
        (UUID, "not a uuid", "'not a uuid' is not a uuid value"),
        (FixedType(4), "0001", "2 bytes are not a fixed[4]: give exactly 4"),
        (BINARY, "0", "an even number of hexadecimal digits"),
        (BINARY, "0g", "an even number of hexadecimal digits"),
        (POINT, {"9": 1}, "'9' is not the id of a field"),
        (POINT, [], "[] is not a struct value"),
        (NUMBERS, {}, "{} is not a list value"),
        (AGES, {"keys": ["a"], "values": []}, "two lists of one length"),
        (VARIANT, 1, "a variant has no JSON value"),
        (GeometryType(), "POINT (1 1)", "a geometry has no JSON value"),
        (STRING, ["x" * 1000], "..."),
    ],
)
def test_names_what_is_wrong_with_a_json_value(type_: Type, value: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        from_json(type_, value)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidValue, match="nan cannot be written"):
        to_json(DOUBLE, float("nan"))
    with pytest.raises(InvalidValue, match="is not a date value"):
        to_json(DATE, "2017-11-16")
    assert to_json(UNKNOWN, None) is None


BINARY_EXAMPLES: list[tuple[Type, Any, str]] = [
    (BOOLEAN, False, "00"),
    (BOOLEAN, True, "01"),
    (INT, 34, "22000000"),
    (INT, -1, "ffffffff"),
    (LONG, 34, "2200000000000000"),
    (FLOAT, 1.5, "0000c03f"),
    (DOUBLE, 1.5, "000000000000f83f"),
    (DATE, 17486, "4e440000"),
    (TIME, 81068123456, "406509e012000000"),
    (TIMESTAMP, -1, "ffffffffffffffff"),
    (TIMESTAMPTZ_NS, 1, "0100000000000000"),
    (STRING, "eis", "656973"),
    (UUID, PythonId("f79c3e09-677c-4bbd-a479-3f349cb785e7"), "f79c3e09677c4bbda4793f349cb785e7"),
    (FixedType(2), b"\x01\x02", "0102"),
    (BINARY, b"", ""),
    (DECIMAL, Decimal("14.20"), "058c"),
    (DECIMAL, Decimal("0.00"), "00"),
    (DECIMAL, Decimal("-1.28"), "80"),
    (DECIMAL, Decimal("1.28"), "0080"),
    (GeometryType(), b"\x01\x01", "0101"),
]


@pytest.mark.parametrize(("type_", "value", "hexed"), BINARY_EXAMPLES)
def test_binary_both_ways(type_: Type, value: Any, hexed: str) -> None:
    assert to_binary(type_, value).hex() == hexed
    assert from_binary(type_, bytes.fromhex(hexed)) == value


def test_bounds_written_before_a_promotion_are_read() -> None:
    assert from_binary(LONG, to_binary(INT, -7)) == -7
    assert from_binary(DOUBLE, to_binary(FLOAT, 1.5)) == 1.5
    day = to_binary(DATE, 1)
    assert from_binary(TIMESTAMP, day) == 86_400_000_000
    assert from_binary(TIMESTAMP_NS, day) == 86_400_000_000_000
    assert from_binary(FixedType(4), b"\x01") == b"\x01"
    with pytest.raises(InvalidValue, match="4 bytes are not a timestamptz value"):
        from_binary(TIMESTAMPTZ, day)


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (INT, b"\x00"),
        (BOOLEAN, b""),
        (DOUBLE, b"\x00" * 7),
        (STRING, b"\xff"),
        (UUID, b"\x00"),
        (DECIMAL, b""),
        (FixedType(1), b"\x00\x00"),
    ],
)
def test_bytes_of_another_type_are_refused(type_: Type, data: bytes) -> None:
    with pytest.raises(InvalidValue, match="are not the binary form"):
        from_binary(type_, data)


@pytest.mark.parametrize("type_", [UNKNOWN, VARIANT, POINT, NUMBERS, AGES])
def test_some_types_have_no_binary_form(type_: Type) -> None:
    with pytest.raises(InvalidValue, match="has no binary value"):
        from_binary(type_, b"")
    with pytest.raises(InvalidValue, match="has no binary value"):
        to_binary(type_, None)


def test_null_has_no_bytes() -> None:
    with pytest.raises(InvalidValue, match="None is not a int value"):
        to_binary(INT, None)


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_agree_with_pyiceberg(digits: int, scale: int) -> None:
    value = single_value.decimal_from_unscaled(digits, scale)
    mine = to_binary(DecimalType(38, scale), value)
    assert from_binary(DecimalType(38, scale), mine) == value
    assert oracle.from_bytes(oracle_types.DecimalType(38, scale), mine) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_timestamps_come_back_from_their_text(units: int) -> None:
    for type_ in (TIMESTAMP, TIMESTAMPTZ, TIMESTAMP_NS, TIMESTAMPTZ_NS):
        assert from_json(type_, to_json(type_, units)) == units


@given(st.integers(-(2**31), 2**31 - 1))
def test_dates_come_back_from_their_text(days: int) -> None:
    assert from_json(DATE, to_json(DATE, days)) == days
