"""Parses seeds on a command line: `17 0-99`."""

from __future__ import annotations

from collections.abc import Iterable


def seeds_of(arguments: Iterable[str]) -> list[int]:
    """Return the seeds of the numbers and ranges among the arguments; ignore flags."""
    return [seed for text in arguments if text[0].isdigit() for seed in _range(text)]


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
