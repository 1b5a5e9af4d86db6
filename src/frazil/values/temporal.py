"""Converts ISO 8601 dates, times and timestamps to and from Iceberg's integers.

Python's `datetime` ends at the year 9999 and has no nanoseconds, so only its day arithmetic is
used. Years outside its range are shifted by whole cycles of 400 years.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final

MICROS_PER_SECOND: Final = 1_000_000
NANOS_PER_MICRO: Final = 1_000
SECONDS_PER_DAY: Final = 86_400
MICROS_PER_DAY: Final = SECONDS_PER_DAY * MICROS_PER_SECOND
NANOS_PER_DAY: Final = MICROS_PER_DAY * NANOS_PER_MICRO

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097

_DATE = r"([+-]?[0-9]{4,9})-([0-9]{2})-([0-9]{2})"
_TIME = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
_DATE_TEXT = re.compile(_DATE)
_TIME_TEXT = re.compile(_TIME)
_TIMESTAMP_TEXT = re.compile(f"{_DATE}T{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?")


def days_from_date(text: str) -> int:
    if len(text) == 10 and text[4] == text[7] == "-":
        try:
            return date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
        except ValueError:
            pass
    matched = _DATE_TEXT.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not a date like 2017-11-16")
    return _days(matched[1], matched[2], matched[3])


def date_from_days(days: int) -> str:
    cycles, day = divmod(days, _CYCLE_DAYS)
    near = date.fromordinal(_EPOCH_ORDINAL + day)
    return f"{_year_text(near.year + cycles * _CYCLE_YEARS)}-{near.month:02}-{near.day:02}"


def micros_from_time(text: str) -> int:
    matched = _TIME_TEXT.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not a time like 22:31:08.123456")
    return _micros(_nanos_of_day(*matched.group(1, 2, 3, 4)), text)


def time_from_micros(micros: int) -> str:
    return _time_text(micros, 6)


def micros_from_timestamp(text: str, *, with_zone: bool) -> int:
    if with_zone and text.endswith("+00:00"):
        micros = _micros_of_usual_text(text[:-6])
    else:
        micros = None if with_zone else _micros_of_usual_text(text)
    if micros is not None:
        return micros
    return _micros(nanos_from_timestamp(text, with_zone=with_zone), text)


def _micros_of_usual_text(text: str) -> int | None:
    """Parse the usual form, with whole seconds or six decimal digits, ten times faster.

    `fromisoformat` accepts more forms; the checks of the length and the separators leave only this
    one. Return None for any other text and for days outside Python's calendar.
    """
    if (
        len(text) not in (19, 26)
        or text[4] != "-"
        or text[7] != "-"
        or text[10] != "T"
        or text[13] != ":"
        or text[16] != ":"
        or text[19:20] not in ("", ".")
    ):
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    if parsed.tzinfo is not None:
        return None
    days = parsed.toordinal() - _EPOCH_ORDINAL
    seconds = ((days * 24 + parsed.hour) * 60 + parsed.minute) * 60 + parsed.second
    return seconds * MICROS_PER_SECOND + parsed.microsecond


def nanos_from_timestamp(text: str, *, with_zone: bool) -> int:
    """Parse a timestamp. If it has a zone, it must be UTC, as the spec requires."""
    example = f"2017-11-16T22:31:08.123456{'+00:00' if with_zone else ''}"
    matched = _TIMESTAMP_TEXT.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not a timestamp like {example}")
    zone = matched[8]
    if with_zone and zone not in ("+00:00", "Z"):
        raise ValueError(f"{text!r} must end with the zone offset +00:00, like {example}")
    if not with_zone and zone is not None:
        raise ValueError(f"{text!r} must not have a zone offset: write it like {example}")
    days = _days(matched[1], matched[2], matched[3])
    return days * NANOS_PER_DAY + _nanos_of_day(*matched.group(4, 5, 6, 7))


def timestamp_from_micros(micros: int, *, with_zone: bool) -> str:
    days, rest = divmod(micros, MICROS_PER_DAY)
    return f"{date_from_days(days)}T{_time_text(rest, 6)}{_zone(with_zone)}"


def timestamp_from_nanos(nanos: int, *, with_zone: bool) -> str:
    days, rest = divmod(nanos, NANOS_PER_DAY)
    return f"{date_from_days(days)}T{_time_text(rest, 9)}{_zone(with_zone)}"


def year_and_month(days: int) -> tuple[int, int]:
    """Return the calendar year and month (1 to 12) of a day."""
    cycles, day = divmod(days, _CYCLE_DAYS)
    near = date.fromordinal(_EPOCH_ORDINAL + day)
    return near.year + cycles * _CYCLE_YEARS, near.month


def _days(year_text: str, month: str, day: str) -> int:
    # The shifted year is in [2000, 2400), where Python has a date for each day of the cycle.
    cycles, within = divmod(int(year_text), _CYCLE_YEARS)
    try:
        near = date(2000 + within, int(month), int(day))
    except ValueError:
        raise ValueError(f"{year_text}-{month}-{day} is not a day of the calendar") from None
    return near.toordinal() - _EPOCH_ORDINAL + (cycles - 5) * _CYCLE_DAYS


def _nanos_of_day(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    hours, minutes, seconds = int(hour), int(minute), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{hour}:{minute}:{second or '00'} is not a time of day")
    nanos = int((fraction or "").ljust(9, "0"))
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanos


def _micros(nanos: int, text: str) -> int:
    micros, rest = divmod(nanos, NANOS_PER_MICRO)
    if rest:
        raise ValueError(f"{text!r} is more precise than microseconds")
    return micros


def _time_text(units: int, digits: int) -> str:
    seconds, fraction = divmod(units, 10**digits)
    hours, rest = divmod(seconds, 3600)
    return f"{hours:02}:{rest // 60:02}:{rest % 60:02}.{fraction:0{digits}}"


def _year_text(year: int) -> str:
    if 0 <= year <= 9999:
        return f"{year:04}"
    return f"{'+' if year > 0 else '-'}{abs(year):04}"


def _zone(with_zone: bool) -> str:
    return "+00:00" if with_zone else ""
