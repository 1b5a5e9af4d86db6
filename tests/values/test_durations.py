"""Durations in messages."""

from __future__ import annotations

import pytest

from frazil.values.durations import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.2 s"),
        (-90, "90 s"),
        (599, "599 s"),
        (600, "10 minutes"),
        (7_100, "118 minutes"),
        (7_200, "2 hours"),
        (172_000, "48 hours"),
        (172_800, "2 days"),
        (-31_535_991, "365 days"),
    ],
)
def test_a_long_duration_is_not_in_seconds(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
