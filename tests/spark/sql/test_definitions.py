"""Partitioning, sort orders and settings in SQL syntax; these tests do not start Spark."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.client.declare.partition_terms import partition_spec, sort_order
from frazil.spark.core.context import Settings
from frazil.values.type_json import parse_struct
from frazil.wire.errors import BadRequest

SCHEMA = parse_struct(
    {
        "type": "struct",
        "fields": [
            {"id": 1, "name": "id", "required": True, "type": "long"},
            {"id": 2, "name": "ts", "required": False, "type": "timestamptz"},
            {"id": 3, "name": "Name", "required": False, "type": "string"},
            {
                "id": 4,
                "name": "place",
                "required": False,
                "type": {
                    "type": "struct",
                    "fields": [{"id": 5, "name": "city", "required": False, "type": "string"}],
                },
            },
        ],
    },
    "schema",
)


def _fields(*terms: str) -> list[tuple[Any, ...]]:
    spec = partition_spec(SCHEMA, terms)
    return [
        (field["source-id"], field["field-id"], field["transform"], field["name"])
        for field in spec["fields"]
    ]


def test_transforms_are_read_as_spark_writes_them() -> None:
    assert _fields("id", "days(ts)", "bucket(16, id)", "truncate(4, name)", "`place`.`city`") == [
        (1, 1000, "identity", "id"),
        (2, 1001, "day", "ts_day"),
        (1, 1002, "bucket[16]", "id_bucket"),
        (3, 1003, "truncate[4]", "Name_trunc"),
        (5, 1004, "identity", "place.city"),
    ]
    assert [field[2] for field in _fields("years(ts)", "month(ts)", "hours(ts)", "date(ts)")] == [
        "year",
        "month",
        "hour",
        "day",
    ]
    assert _fields("truncate(name, 4)") == [(3, 1000, "truncate[4]", "Name_trunc")]


@pytest.mark.parametrize(
    ("term", "named"),
    [
        ("nothing", "nothing"),
        ("days(id)", "day does not take a long"),
        ("bucket(id)", "a number and a column"),
        ("bucket(16)", "a number and a column"),
        ("days(ts, id)", "one column"),
        ("place", "identity does not take"),
        ("zigzag(id)", "zigzag"),
        ("bucket(0, id)", "bucket"),
    ],
)
def test_what_is_no_transform_is_named(term: str, named: str) -> None:
    with pytest.raises(BadRequest, match=f"partitioned_by: .*{named}"):
        partition_spec(SCHEMA, [term])


def test_sort_orders() -> None:
    order = sort_order(SCHEMA, ["ts DESC", "id", "bucket(4, id) asc nulls last"])
    assert order["order-id"] == 1
    assert [
        (field["source-id"], field["transform"], field["direction"], field["null-order"])
        for field in order["fields"]
    ] == [
        (2, "identity", "desc", "nulls-last"),
        (1, "identity", "asc", "nulls-first"),
        (1, "bucket[4]", "asc", "nulls-last"),
    ]
    assert sort_order(SCHEMA, []) == {"order-id": 0, "fields": []}


@pytest.mark.parametrize(
    ("name", "value"), [("reader", "jvm"), ("writer", "jar"), ("statement_retries", -1)]
)
def test_settings_that_are_none(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=name.replace("_", "-")):
        Settings(**{name: value})
