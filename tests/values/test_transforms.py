from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID as PythonId  # noqa: N811

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import transforms as oracle
from pyiceberg import types as oracle_types

from frazil.values import single_value
from frazil.values.transforms import (
    IDENTITY,
    VOID,
    Bucket,
    InvalidTransform,
    Transform,
    Truncate,
    Unknown,
    apply,
    hash_value,
    parse_transform,
)
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
    GeographyType,
    GeometryType,
    ListType,
    NestedField,
    StructType,
    Type,
)

DECIMAL = DecimalType(9, 2)
FIXED = FixedType(4)
ALL_TYPES: list[Type] = [
    BOOLEAN,
    INT,
    LONG,
    FLOAT,
    DOUBLE,
    DECIMAL,
    DATE,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TIMESTAMP_NS,
    TIMESTAMPTZ_NS,
    STRING,
    UUID,
    FIXED,
    BINARY,
    UNKNOWN,
    VARIANT,
    GeometryType(),
    GeographyType(),
    StructType(),
    ListType(NestedField(1, "element", INT, required=True)),
]


def value_of(type_: Type, text: str) -> Any:
    return single_value.from_json(type_, text)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (INT, 34, 2017239379),
        (LONG, 34, 2017239379),
        (DECIMAL, Decimal("14.20"), -500754589),
        (DATE, value_of(DATE, "2017-11-16"), -653330422),
        (TIME, value_of(TIME, "22:31:08"), -662762989),
        (TIMESTAMP, value_of(TIMESTAMP, "2017-11-16T22:31:08"), -2047944441),
        (TIMESTAMP, value_of(TIMESTAMP, "2017-11-16T22:31:08.000001"), -1207196810),
        (TIMESTAMPTZ, value_of(TIMESTAMPTZ, "2017-11-16T22:31:08+00:00"), -2047944441),
        (TIMESTAMP_NS, value_of(TIMESTAMP_NS, "2017-11-16T22:31:08"), -2047944441),
        (TIMESTAMP_NS, value_of(TIMESTAMP_NS, "2017-11-16T22:31:08.000001001"), -1207196810),
        (
            TIMESTAMPTZ_NS,
            value_of(TIMESTAMPTZ_NS, "2017-11-16T22:31:08.000001001+00:00"),
            -1207196810,
        ),
        (STRING, "iceberg", 1210000089),
        (UUID, PythonId("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340),
        (FIXED, bytes([0, 1, 2, 3]), -188683207),
        (BINARY, bytes([0, 1, 2, 3]), -188683207),
    ],
)
def test_hashes_as_the_specification_says(type_: Type, value: Any, expected: int) -> None:
    assert hash_value(type_, value) == expected
    assert apply(Bucket(16), type_, value) == (expected & 0x7FFFFFFF) % 16


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("identity", "identity"),
        ("Identity", "identity"),
        ("bucket[16]", "bucket[16]"),
        ("BUCKET[16]", "bucket[16]"),
        ("truncate[4]", "truncate[4]"),
        ("YEAR", "year"),
        ("month", "month"),
        ("day", "day"),
        ("hour", "hour"),
        ("void", "void"),
        ("zorder", "zorder"),
        ("Bucket_v2[16,7]", "Bucket_v2[16,7]"),
        ("days", "days"),
    ],
)
def test_reads_any_case_and_writes_the_canonical_text(text: str, canonical: str) -> None:
    transform = parse_transform(text)
    assert str(transform) == canonical
    assert parse_transform(canonical) == transform


@pytest.mark.parametrize("text", ["bucket[0]", "truncate[0]", "bucket[2147483648]"])
def test_refuses_impossible_parameters(text: str) -> None:
    with pytest.raises(InvalidTransform, match="must be 1 to 2147483647"):
        parse_transform(text)


TIMESTAMPS: set[Type] = {TIMESTAMP, TIMESTAMPTZ, TIMESTAMP_NS, TIMESTAMPTZ_NS}
HASHABLE: set[Type] = {INT, LONG, DECIMAL, DATE, TIME, STRING, UUID, FIXED, BINARY} | TIMESTAMPS
ACCEPTED: dict[str, set[Type]] = {
    "identity": HASHABLE | {BOOLEAN, FLOAT, DOUBLE, UNKNOWN},
    "bucket[8]": HASHABLE,
    "truncate[8]": {INT, LONG, DECIMAL, STRING, BINARY},
    "year": {DATE} | TIMESTAMPS,
    "month": {DATE} | TIMESTAMPS,
    "day": {DATE} | TIMESTAMPS,
    "hour": TIMESTAMPS,
    "void": set(ALL_TYPES),
    "mystery": set(ALL_TYPES),
}


@pytest.mark.parametrize(("text", "accepted"), ACCEPTED.items())
def test_accepts_the_types_that_java_accepts(text: str, accepted: set[Type]) -> None:
    transform = parse_transform(text)
    assert {type_ for type_ in ALL_TYPES if transform.accepts(type_)} == accepted


@pytest.mark.parametrize(
    ("text", "result", "preserves_order"),
    [
        ("identity", DECIMAL, True),
        ("bucket[8]", INT, False),
        ("truncate[8]", DECIMAL, True),
        ("year", INT, True),
        ("month", INT, True),
        ("day", DATE, True),
        ("hour", INT, True),
        ("void", DECIMAL, False),
        ("mystery", STRING, False),
    ],
)
def test_result_types_and_order(text: str, result: Type, preserves_order: bool) -> None:
    transform = parse_transform(text)
    assert transform.result_type(DECIMAL) == result
    assert transform.preserves_order is preserves_order


@pytest.mark.parametrize(
    ("transform", "type_", "value", "expected"),
    [
        (Truncate(10), INT, 1, 0),
        (Truncate(10), INT, -1, -10),
        (Truncate(10), LONG, 1_099_511_627_783, 1_099_511_627_780),
        (Truncate(50), DECIMAL, Decimal("10.65"), Decimal("10.50")),
        (Truncate(50), DECIMAL, Decimal("-0.05"), Decimal("-0.50")),
        (Truncate(3), STRING, "iceberg", "ice"),
        (Truncate(2), STRING, "\U0001f9ca\U0001f30a!", "\U0001f9ca\U0001f30a"),
        (Truncate(3), BINARY, b"\x01\x02\x03\x04\x05", b"\x01\x02\x03"),
        (IDENTITY, STRING, "a", "a"),
        (VOID, STRING, "a", None),
    ],
)
def test_applies(transform: Transform, type_: Type, value: Any, expected: Any) -> None:
    result = apply(transform, type_, value)
    assert result == expected
    assert str(result) == str(expected)


@pytest.mark.parametrize(
    ("text", "year", "month", "day", "hour"),
    [
        ("1970-01-01T00:00:00", 0, 0, 0, 0),
        ("1969-12-31T23:59:59.999999", -1, -1, -1, -1),
        ("2017-11-16T22:31:08", 47, 574, 17486, 419686),
        ("0001-01-01T00:00:00", -1969, -23628, -719162, -17259888),
        ("+12345-12-01T00:00:00", 10375, 124511, 3789725, 90953400),
        ("-0001-03-01T00:00:00", -1971, -23650, -719834, -17276016),
    ],
)
def test_time_transforms_before_and_after_the_epoch(
    text: str, year: int, month: int, day: int, hour: int
) -> None:
    micros = value_of(TIMESTAMP, text)
    expected = {"year": year, "month": month, "day": day, "hour": hour}
    for name, wanted in expected.items():
        assert apply(parse_transform(name), TIMESTAMP, micros) == wanted
        assert apply(parse_transform(name), TIMESTAMPTZ, micros) == wanted
        if name != "hour":
            assert apply(parse_transform(name), DATE, day) == wanted


def test_nanoseconds_fall_in_the_same_partitions() -> None:
    nanos = value_of(TIMESTAMP_NS, "1969-12-31T23:59:59.999999999")
    for name in ("year", "month", "day", "hour"):
        assert apply(parse_transform(name), TIMESTAMP_NS, nanos) == -1


def test_null_stays_null_and_misfits_are_refused() -> None:
    assert apply(Bucket(4), INT, None) is None
    with pytest.raises(InvalidTransform, match="does not accept the type boolean"):
        apply(Bucket(4), BOOLEAN, True)
    with pytest.raises(InvalidTransform, match="'mystery' is not known"):
        apply(Unknown("mystery"), INT, 1)
    with pytest.raises(single_value.InvalidValue, match="'1' is not a int value"):
        apply(Bucket(4), INT, "1")


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**31 - 1))
def test_longs_agree_with_pyiceberg(value: int, width: int) -> None:
    source = oracle_types.LongType()
    bucket = oracle.BucketTransform(width).transform(source, bucket=True)
    assert apply(Bucket(width), LONG, value) == bucket(value)
    truncate: Callable[[Any], Any] = oracle.TruncateTransform(width).transform(source)
    assert apply(Truncate(width), LONG, value) == truncate(value)


@given(st.text(), st.integers(1, 2**31 - 1))
def test_strings_agree_with_pyiceberg(value: str, width: int) -> None:
    source = oracle_types.StringType()
    bucket = oracle.BucketTransform(width).transform(source, bucket=True)
    assert apply(Bucket(width), STRING, value) == bucket(value)


@given(st.integers(-719162, 2932896))
def test_dates_agree_with_pyiceberg(days: int) -> None:
    source = oracle_types.DateType()
    year: Callable[[Any], Any] = oracle.YearTransform().transform(source)
    month: Callable[[Any], Any] = oracle.MonthTransform().transform(source)
    assert apply(parse_transform("year"), DATE, days) == year(days)
    assert apply(parse_transform("month"), DATE, days) == month(days)
