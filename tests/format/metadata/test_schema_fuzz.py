"""Any input in place of a metadata object is either parsed or refused with 400."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.format.metadata.partition_spec import (
    check_partition_spec,
    freshen_partition_spec,
    parse_partition_spec,
)
from frazil.format.metadata.schema import (
    Schema,
    assign_fresh_ids,
    check_schema_for_version,
    parse_schema,
)
from frazil.format.metadata.sort_order import check_sort_order, freshen_sort_order, parse_sort_order
from frazil.format.metadata.view_metadata import encode_view_metadata, parse_view_metadata
from frazil.wire.errors import BadRequest

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 1,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "a", "required": True, "type": "long", "initial-default": 3},
        {
            "id": 2,
            "name": "m",
            "required": False,
            "doc": "d",
            "type": {
                "type": "map",
                "key-id": 3,
                "key": "string",
                "value-id": 4,
                "value-required": True,
                "value": {
                    "type": "list",
                    "element-id": 5,
                    "element-required": False,
                    "element": "decimal(9,2)",
                },
            },
        },
        {"id": 6, "name": "t", "required": False, "type": "timestamptz"},
    ],
}
SPEC: dict[str, Any] = {
    "spec-id": 1,
    "fields": [
        {"source-id": 6, "field-id": 1000, "name": "t_day", "transform": "day"},
        {"source-id": 1, "field-id": 1001, "name": "a_bucket", "transform": "bucket[4]"},
    ],
}
ORDER: dict[str, Any] = {
    "order-id": 1,
    "fields": [
        {
            "transform": "identity",
            "source-id": 1,
            "direction": "asc",
            "null-order": "nulls-first",
        }
    ],
}
VIEW: dict[str, Any] = {
    "view-uuid": "u",
    "format-version": 1,
    "location": "file:///v",
    "properties": {"a": "b"},
    "schemas": [SCHEMA],
    "current-version-id": 1,
    "versions": [
        {
            "version-id": 1,
            "timestamp-ms": 1,
            "schema-id": 1,
            "summary": {},
            "default-namespace": ["n"],
            "representations": [{"type": "sql", "sql": "s", "dialect": "d"}],
        }
    ],
    "version-log": [{"timestamp-ms": 1, "version-id": 1}],
}
GOOD_SCHEMA = parse_schema(json.dumps(SCHEMA).encode())


def use_schema(raw: bytes) -> None:
    schema: Schema = parse_schema(raw)
    assert parse_schema(schema.raw) == schema
    assign_fresh_ids(schema)
    check_schema_for_version(schema, 3)


def use_spec(raw: bytes) -> None:
    spec = parse_partition_spec(raw)
    assert parse_partition_spec(spec.raw) == spec
    freshen_partition_spec(spec, {6: 1, 1: 2})
    check_partition_spec(spec, GOOD_SCHEMA)


def use_order(raw: bytes) -> None:
    order = parse_sort_order(raw)
    assert parse_sort_order(order.raw) == order
    freshen_sort_order(order, {1: 2})
    check_sort_order(order, GOOD_SCHEMA)


def use_view(raw: bytes) -> None:
    view = parse_view_metadata(raw)
    assert parse_view_metadata(encode_view_metadata(view)) == view


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in items:
        found += places(child, (*path, key))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:
    if not path:
        return new
    changed = copy.deepcopy(value)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = new
    return changed


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["int", "struct", "decimal(1,1)", "void", "geometry", "variant", "unknown"]),
)
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "id", "name", "fields", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("good", "use"),
    [(SCHEMA, use_schema), (SPEC, use_spec), (ORDER, use_order), (VIEW, use_view)],
    ids=["schema", "spec", "order", "view"],
)
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_read_or_refused(
    good: dict[str, Any], use: Callable[[bytes], None], data: st.DataObject
) -> None:
    use(json.dumps(good).encode())
    path = data.draw(st.sampled_from(places(good)))
    bad = replaced(good, path, data.draw(ANY_JSON))
    with suppress(BadRequest):
        use(json.dumps(bad).encode())
