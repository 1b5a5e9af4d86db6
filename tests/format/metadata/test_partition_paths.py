"""Partition paths equal those that Java and PyIceberg write, checked against PyIceberg."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec as StockSpec
from pyiceberg.schema import Schema as StockSchema
from pyiceberg.typedef import Record as StockRecord

from frazil.format.metadata.partition_spec import (
    parse_partition_spec,
    partition_path,
    partition_type,
)
from frazil.format.metadata.schema import parse_schema


def documents(*parts: tuple[str, str, str]) -> tuple[str, str]:
    """Return the schema and the spec of partition fields given as (name, source type,
    transform)."""
    columns = [
        {"id": number, "name": f"c{number}", "required": False, "type": type_}
        for number, (_, type_, _) in enumerate(parts, 1)
    ]
    fields = [
        {"source-id": number, "field-id": 999 + number, "name": name, "transform": transform}
        for number, (name, _, transform) in enumerate(parts, 1)
    ]
    schema = {"type": "struct", "schema-id": 0, "fields": columns}
    return json.dumps(schema), json.dumps({"spec-id": 0, "fields": fields})


def path_of(parts: tuple[tuple[str, str, str], ...], *values: Any) -> str:
    schema, spec = documents(*parts)
    parsed = parse_partition_spec(spec.encode())
    type_ = partition_type(parsed, parse_schema(schema.encode()))
    return partition_path(parsed, type_, values)


def stock_path(parts: tuple[tuple[str, str, str], ...], *values: Any) -> str:
    schema, spec = documents(*parts)
    stock = StockSpec.model_validate_json(spec)
    return stock.partition_to_path(StockRecord(*values), StockSchema.model_validate_json(schema))


def both(type_: str, transform: str, value: Any, name: str = "p") -> str:
    """Return our partition path after checking that it equals PyIceberg's."""
    path = path_of(((name, type_, transform),), value)
    assert path == stock_path(((name, type_, transform),), value)
    return path


@pytest.mark.parametrize(
    ("type_", "transform", "value", "text"),
    [
        ("boolean", "identity", True, "true"),
        ("boolean", "identity", False, "false"),
        ("int", "identity", -5, "-5"),
        ("long", "identity", 1 << 40, "1099511627776"),
        ("string", "identity", "eu", "eu"),
        ("string", "identity", "", ""),
        ("string", "truncate[2]", "eu", "eu"),
        ("string", "bucket[16]", 3, "3"),
        ("date", "identity", 19_844, "2024-05-01"),
        ("date", "identity", -1, "1969-12-31"),
        ("date", "year", 54, "2024"),
        ("date", "year", -1, "1969"),
        ("date", "month", 652, "2024-05"),
        ("date", "month", -1, "1969-12"),
        ("date", "month", -12, "1969-01"),
        ("date", "day", 19_844, "2024-05-01"),
        ("timestamptz", "day", -1, "1969-12-31"),
        ("timestamp", "hour", 476_279, "2024-05-01-23"),
        ("timestamp", "hour", -1, "1969-12-31-23"),
        ("decimal(9, 2)", "identity", Decimal("-1.20"), "-1.20"),
        ("decimal(9, 0)", "identity", Decimal("7"), "7"),
        ("uuid", "identity", UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ("binary", "identity", b"\xfb\xff", "%2B%2F8%3D"),
        ("fixed[2]", "identity", b"ab", "YWI%3D"),
    ],
)
def test_each_type_and_transform(type_: str, transform: str, value: Any, text: str) -> None:
    assert both(type_, transform, value) == f"p={text}"


@pytest.mark.parametrize("transform", ["identity", "year", "month", "day", "hour", "bucket[4]"])
def test_no_value(transform: str) -> None:
    assert both("timestamp", transform, None) == "p=null"


def test_a_void_partition_has_no_value() -> None:
    assert path_of((("p", "long", "void"),), None) == "p=null"


def test_fields_follow_each_other() -> None:
    parts = ("day", "date", "identity"), ("region", "string", "identity"), ("n", "int", "identity")
    path = path_of(parts, 19_844, "eu", None)
    assert path == "day=2024-05-01/region=eu/n=null"
    assert path == stock_path(parts, 19_844, "eu", None)


def test_an_unpartitioned_spec_has_no_path() -> None:
    assert path_of(()) == ""


def test_names_and_values_are_escaped() -> None:
    parts = (("a b/ä", "string", "identity"),)
    assert path_of(parts, "x=y/é&") == "a+b%2F%C3%A4=x%3Dy%2F%C3%A9%26"
    assert both("string", "identity", "x=y/é&", "a b/ä") == path_of(parts, "x=y/é&")


def test_two_characters_are_escaped_as_java_does() -> None:
    """Java's URLEncoder keeps an asterisk and escapes a tilde; Python does the opposite."""
    parts = (("p", "string", "identity"),)
    assert path_of(parts, "*~") == "p=*%7E"
    assert stock_path(parts, "*~") == "p=%2A~"


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        ("time", 0, "00:00"),
        ("time", 45_240_000_000, "12:34"),
        ("time", 45_296_000_000, "12:34:56"),
        ("time", 45_296_100_000, "12:34:56.100"),
        ("time", 45_296_123_400, "12:34:56.123400"),
        ("timestamp", 0, "1970-01-01T00:00:00"),
        ("timestamp", 1_000_001, "1970-01-01T00:00:01.000001"),
        ("timestamp", 1_100_000, "1970-01-01T00:00:01.1"),
        ("timestamptz", -1, "1969-12-31T23:59:59.999999+00:00"),
        ("timestamptz", 0, "1970-01-01T00:00:00+00:00"),
        ("timestamp_ns", 1, "1970-01-01T00:00:00.000000001"),
        ("timestamptz_ns", 120, "1970-01-01T00:00:00.00000012+00:00"),
    ],
)
def test_times_have_the_digits_that_java_gives_them(type_: str, value: int, text: str) -> None:
    escaped = text.replace(":", "%3A").replace("+", "%2B")
    assert path_of((("p", type_, "identity"),), value) == f"p={escaped}"


@given(st.text(alphabet=st.characters(exclude_characters="*~", exclude_categories=["Cs"])))
def test_any_text_is_escaped_as_in_pyiceberg(text: str) -> None:
    both("string", "identity", text)


@given(st.integers(-700_000, 2_900_000))
def test_any_day_month_and_hour_is_that_of_pyiceberg(days: int) -> None:
    both("date", "identity", days)
    both("date", "day", days)
    both("timestamp", "month", days // 31)
    both("timestamp", "year", days // 366)
    both("timestamp", "hour", days * 24 + days % 24)
