"""Columns are found by their names as the session compares names."""

from __future__ import annotations

import pytest

from frazil.spark.core.name_matching import NameMatcher
from frazil.values.types import LONG, NestedField, StructType
from frazil.wire.errors import BadRequest

SCHEMA = StructType(
    (
        NestedField(1, "id", LONG, required=False),
        NestedField(2, "ID", LONG, required=False),
        NestedField(3, "Day", LONG, required=False),
    )
)


def chosen(names: NameMatcher, *wanted: str) -> list[str]:
    return [field.name for field in names.chosen(SCHEMA, wanted, "ns.t")]


def test_a_column_of_exactly_that_name_comes_first() -> None:
    any_case = NameMatcher(case_sensitive=False)
    assert chosen(any_case, "DAY", "id", "ID") == ["Day", "id", "ID"]
    with pytest.raises(BadRequest, match="has no column hour; it has id, ID, Day"):
        chosen(any_case, "hour")


def test_case_counts_where_the_session_says_so() -> None:
    exact = NameMatcher(case_sensitive=True)
    assert chosen(exact, "Day", "ID") == ["Day", "ID"]
    with pytest.raises(BadRequest, match="no column day"):
        chosen(exact, "day")
