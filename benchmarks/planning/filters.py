"""The filters of the plans, in the format of each planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.planning.files import DAY, ID, NAME, NAMES, PARTITIONS, ROWS, name_at, partition_day

NO_FILTER: Final = "no filter"
PARTITION: Final = "partition"
LONG_RANGE: Final = "long range"
TEXT_EQUALITY: Final = "string equality"
MANY_VALUES: Final = "IN of 100 longs"
MANY_TEXTS: Final = "IN of 100 strings"
FILTERS: Final = (NO_FILTER, PARTITION, LONG_RANGE, TEXT_EQUALITY, MANY_VALUES, MANY_TEXTS)

_VALUES: Final = 100


@dataclass(frozen=True, slots=True)
class Filter:
    name: str
    json: Mapping[str, Any] | None
    """The filter in a plan request. The Java planner reads the same JSON."""
    text: str | None
    """The filter for PyIceberg's parser."""


def filter_for(name: str, files: int) -> Filter:
    """Return a filter for values from the middle of a table with `files` files."""
    middle = files // 2
    if name == PARTITION:
        return _equal(name, DAY, partition_day(PARTITIONS // 2).isoformat())
    if name == TEXT_EQUALITY:
        return _equal(name, NAME, name_at(middle, "50000"))
    if name == LONG_RANGE:
        return _range(name, middle * ROWS, (middle + max(1, files // 100)) * ROWS)
    # These values span a tenth of the table, so that most files can be skipped even in a scattered
    # one.
    places = [middle + number * files // (10 * _VALUES) for number in range(_VALUES)]
    if name == MANY_VALUES:
        values = [place * ROWS + number for number, place in enumerate(places)]
        return _among(name, ID, values, [str(value) for value in values])
    if name == MANY_TEXTS:
        texts = [name_at(place, f"{number:05}") for number, place in enumerate(places)]
        return _among(name, NAME, texts, [f"'{text}'" for text in texts])
    return Filter(name, None, None)


def _equal(name: str, column: int, value: str) -> Filter:
    term = NAMES[column]
    return Filter(name, {"type": "eq", "term": term, "value": value}, f"{term} = '{value}'")


def _range(name: str, start: int, end: int) -> Filter:
    term = NAMES[ID]
    both = {
        "type": "and",
        "left": {"type": "gt-eq", "term": term, "value": start},
        "right": {"type": "lt", "term": term, "value": end},
    }
    return Filter(name, both, f"{term} >= {start} and {term} < {end}")


def _among(name: str, column: int, values: Sequence[int | str], words: Sequence[str]) -> Filter:
    term = NAMES[column]
    json = {"type": "in", "term": term, "values": list(values)}
    return Filter(name, json, f"{term} in ({', '.join(words)})")
