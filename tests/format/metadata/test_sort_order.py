from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.format.metadata.schema import parse_schema
from frazil.format.metadata.sort_order import (
    UNSORTED,
    NullOrder,
    SortDirection,
    SortOrder,
    check_sort_order,
    freshen_sort_order,
    parse_sort_order,
    same_order,
    with_order_id,
)
from frazil.wire.errors import BadRequest

SCHEMA = parse_schema(
    b'{"type":"struct","fields":[{"id":1,"name":"id","required":true,"type":"long"},'
    b'{"id":2,"name":"s","required":true,"type":{"type":"struct","fields":[]}}]}'
)


def part(source: int | None = 1, **more: Any) -> dict[str, Any]:
    whole = {
        "transform": "identity",
        "source-id": source,
        "direction": "asc",
        "null-order": "nulls-first",
    } | {key.replace("_", "-"): value for key, value in more.items()}
    return {key: value for key, value in whole.items() if value is not None}


def order(*fields: dict[str, Any], order_id: int | None = None) -> SortOrder:
    value: dict[str, Any] = {} if order_id is None else {"order-id": order_id}
    return parse_sort_order(json.dumps(value | {"fields": fields}).encode())


def test_reads_fields_and_keeps_what_it_does_not_know() -> None:
    raw = (
        b'{ "order-id": 4, "fields": [ {"transform": "Bucket[4]", "source-id": 1, '
        b'"direction": "DESC", "null-order": "nulls-LAST", "x": 0.50} ], "y": [] }'
    )
    parsed = parse_sort_order(raw)
    assert parsed.raw == (
        b'{"order-id":4,"fields":[{"transform":"bucket[4]","source-id":1,'
        b'"direction":"desc","null-order":"nulls-last","x":0.50}],"y":[]}'
    )
    (only,) = parsed.fields
    assert only.source_ids == (1,)
    assert only.direction is SortDirection.DESC
    assert only.null_order is NullOrder.NULLS_LAST
    assert str(only) == "bucket[4](1) desc nulls-last"
    moved = with_order_id(parsed, 5)
    assert moved.raw == parsed.raw.replace(b'"order-id":4', b'"order-id":5')
    assert with_order_id(moved, 5) is moved
    assert same_order(moved, parsed)
    assert moved != parsed


def test_the_unsorted_order_is_zero_and_no_other_is() -> None:
    assert parse_sort_order(b'{"fields":[]}') == UNSORTED
    assert parse_sort_order(UNSORTED.raw) == UNSORTED
    assert UNSORTED.is_unsorted
    assert order(part()).order_id == 1
    with pytest.raises(BadRequest, match="Sort order ID 0 is reserved for unsorted order"):
        order(part(), order_id=0)
    with pytest.raises(BadRequest, match="Unsorted order ID must be 0"):
        order(order_id=1)


def test_same_order_compares_every_part_of_a_field() -> None:
    base = order(part(), order_id=1)
    assert same_order(base, order(part(transform="IDENTITY"), order_id=2))
    for other in (
        order(part(2)),
        order(part(transform="bucket[2]")),
        order(part(direction="desc")),
        order(part(null_order="nulls-last")),
        order(part(), part(2)),
        UNSORTED,
    ):
        assert not same_order(base, other)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([1], "sort-order.fields[0] must be an object"),
        ([part(None)], "sort-order.fields[0]: 'source-id' is missing"),
        ([part(transform=None)], "sort-order.fields[0]: 'transform' is missing"),
        ([part(direction="up")], "'direction' 'up' is not one of asc, desc"),
        ([part(null_order=None)], "'null-order' is missing"),
        ([part(null_order="first")], "'null-order' 'first' is not one of nulls-first, nulls-last"),
    ],
)
def test_names_what_is_wrong(fields: list[Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        order(*fields)
    assert message in str(caught.value)


def test_fits_the_schema() -> None:
    check_sort_order(UNSORTED, SCHEMA)
    check_sort_order(order(part(), part(transform="mystery")), SCHEMA)
    with pytest.raises(BadRequest, match="Cannot find source column for sort field"):
        check_sort_order(order(part(9)), SCHEMA)
    with pytest.raises(BadRequest, match="Cannot sort by non-primitive source field: struct<>"):
        check_sort_order(order(part(2)), SCHEMA)
    with pytest.raises(BadRequest, match="Invalid source type long for transform: day"):
        check_sort_order(order(part(transform="day")), SCHEMA)


def test_freshens_for_a_new_table() -> None:
    sent = order(part(3, x=1), part(None, source_ids=[3, 4], transform="zorder"), order_id=9)
    fresh = freshen_sort_order(sent, {3: 1, 4: 2})
    assert fresh.order_id == 1
    assert [p.source_ids for p in fresh.fields] == [(1,), (1, 2)]
    assert b'"x":1' in fresh.raw
    assert freshen_sort_order(UNSORTED, {}) == UNSORTED
    with pytest.raises(BadRequest, match="Cannot find source column for sort field"):
        freshen_sort_order(sent, {3: 1})
