"""Writes durations for people."""

from __future__ import annotations


def duration_text(seconds: float) -> str:
    """Return how long a duration is, in its largest fitting unit and without its sign.

    >>> [duration_text(each) for each in (-0.25, 90, 3600, -172_800, 31_535_991)]
    ['0.2 s', '90 s', '60 minutes', '2 days', '365 days']
    """
    size = abs(seconds)
    if size < 600:
        return f"{size:.1f} s" if size < 10 else f"{size:.0f} s"
    for unit, unit_s, limit in (("minutes", 60, 120), ("hours", 3600, 48)):
        if size / unit_s < limit:
            return f"{size / unit_s:.0f} {unit}"
    return f"{size / 86_400:.0f} days"
