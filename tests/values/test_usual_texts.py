"""The fast path for common dates and timestamps gives the same numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.values.temporal import (
    date_from_days,
    days_from_date,
    micros_from_timestamp,
    nanos_from_timestamp,
    timestamp_from_micros,
)


@given(st.integers(-(2**62), 2**62))
def test_every_written_timestamp_is_read_back(micros: int) -> None:
    plain = timestamp_from_micros(micros, with_zone=False)
    assert micros_from_timestamp(plain, with_zone=False) == micros
    zoned = timestamp_from_micros(micros, with_zone=True)
    assert micros_from_timestamp(zoned, with_zone=True) == micros
    assert micros_from_timestamp(zoned.removesuffix("+00:00") + "Z", with_zone=True) == micros
    assert nanos_from_timestamp(plain, with_zone=False) == micros * 1000


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_written_date_is_read_back(days: int) -> None:
    assert days_from_date(date_from_days(days)) == days


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01T00:00:00,123456",
        "2024-01-01 00:00:00.123456",
        "2024-01-01T00:00:00.12345x",
        "2024-01-01T24:00:00",
        "2024-01-01T00:60:00",
        "2024-02-30T00:00:00",
        "2024-W01-1T00:00:00",
        "2024-01-01T00:00:00+00:00",
        "2024-01-01T00:00+00:00:00",
        "2024-01-01T00:00:00.+00:00",
        "٢٠٢٤-01-01T00:00:00",
    ],
)
def test_nothing_else_is_let_in_by_the_short_way(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        micros_from_timestamp(text, with_zone=False)


@pytest.mark.parametrize(
    "text", ["2024-02-30", "2024-W01-1", "20240101xx", "2024-1-010", "۲۰۲۴-01-01"]
)
def test_no_other_date_is_let_in(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        days_from_date(text)


def test_a_zone_other_than_utc_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        micros_from_timestamp("2024-01-01T00:00:00+01:00", with_zone=True)
    with pytest.raises(ValueError, match="zone"):
        micros_from_timestamp("2024-01-01T00:00:00", with_zone=True)


def test_years_outside_pythons_calendar_are_read_too() -> None:
    assert micros_from_timestamp("0000-01-01T00:00:00", with_zone=False) == -62167219200_000_000
    assert days_from_date("0000-01-01") == -719528
