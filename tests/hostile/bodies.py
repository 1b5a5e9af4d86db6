"""Commit bodies: a valid example of each update and requirement, and ways to make them wrong.

The examples contain marks such as `@location`. `filled` replaces them with the values of a
table, so that the same bodies work for any table.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tests.hostile.world import SCHEMA, VIEW_VERSION, World

Path: TypeAlias = tuple[str | int, ...]

_NUMBER = re.compile(r'"@number:([^"]*)"')

_SNAPSHOT = {
    "snapshot-id": 3,
    "parent-snapshot-id": 2,
    "sequence-number": 3,
    "timestamp-ms": "@now",
    "manifest-list": "@location/metadata/snap-3.avro",
    "summary": {"operation": "append"},
    "schema-id": 0,
    "first-row-id": 2,
    "added-rows": 1,
    "key-id": "k",
}
_STATISTICS = {
    "snapshot-id": 2,
    "statistics-path": "@location/metadata/stats.puffin",
    "file-size-in-bytes": 100,
    "file-footer-size-in-bytes": 10,
    "blob-metadata": [
        {
            "type": "apache-datasketches-theta-v1",
            "snapshot-id": 2,
            "sequence-number": 2,
            "fields": [1],
            "properties": {"ndv": "1"},
        }
    ],
}
_WIDER = {
    "type": "struct",
    "schema-id": 1,
    "identifier-field-ids": [1],
    "fields": [
        *SCHEMA["fields"],
        {
            "id": 4,
            "name": "deep",
            "required": False,
            "doc": "a list",
            "type": {
                "type": "list",
                "element-id": 5,
                "element-required": False,
                "element": {
                    "type": "map",
                    "key-id": 6,
                    "key": "string",
                    "value-id": 7,
                    "value-required": False,
                    "value": "decimal(9, 2)",
                },
            },
        },
    ],
}

UPDATES: tuple[dict[str, Any], ...] = (
    {"action": "assign-uuid", "uuid": "@uuid"},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": _WIDER, "last-column-id": 7},
    {"action": "set-current-schema", "schema-id": 0},
    {
        "action": "add-spec",
        "spec": {
            "spec-id": 1,
            "fields": [
                {"source-id": 1, "field-id": 1001, "name": "bucket", "transform": "bucket[4]"}
            ],
        },
    },
    {"action": "set-default-spec", "spec-id": 0},
    {
        "action": "add-sort-order",
        "sort-order": {
            "order-id": 1,
            "fields": [
                {
                    "source-id": 1,
                    "transform": "identity",
                    "direction": "asc",
                    "null-order": "nulls-first",
                }
            ],
        },
    },
    {"action": "set-default-sort-order", "sort-order-id": 0},
    {"action": "add-snapshot", "snapshot": _SNAPSHOT},
    {
        "action": "set-snapshot-ref",
        "ref-name": "side",
        "type": "branch",
        "snapshot-id": 2,
        "max-ref-age-ms": 1000,
        "max-snapshot-age-ms": 1000,
        "min-snapshots-to-keep": 1,
    },
    {"action": "remove-snapshots", "snapshot-ids": [1]},
    {"action": "remove-snapshot-ref", "ref-name": "kept"},
    {"action": "set-location", "location": "@location"},
    {"action": "set-properties", "updates": {"a": "b", "commit.retry.num-retries": "3"}},
    {"action": "remove-properties", "removals": ["owner"]},
    {"action": "set-statistics", "snapshot-id": 2, "statistics": _STATISTICS},
    {"action": "remove-statistics", "snapshot-id": 2},
    {
        "action": "set-partition-statistics",
        "partition-statistics": {
            "snapshot-id": 2,
            "statistics-path": "@location/metadata/partition-stats.parquet",
            "file-size-in-bytes": 100,
        },
    },
    {"action": "remove-partition-statistics", "snapshot-id": 2},
    {"action": "remove-partition-specs", "spec-ids": [7]},
    {"action": "remove-schemas", "schema-ids": [7]},
    {
        "action": "add-encryption-key",
        "encryption-key": {
            "key-id": "k",
            "encrypted-key-metadata": "YQ==",
            "encrypted-by-id": "m",
            "properties": {"a": "b"},
        },
    },
    {"action": "remove-encryption-key", "key-id": "k"},
)

REQUIREMENTS: tuple[dict[str, Any], ...] = (
    {"type": "assert-table-uuid", "uuid": "@uuid"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
)
"""All requirements except assert-create, which only applies where there is no table."""

VIEW_UPDATES: tuple[dict[str, Any], ...] = (
    {"action": "assign-uuid", "uuid": "@view-uuid"},
    {"action": "upgrade-format-version", "format-version": 1},
    {"action": "add-schema", "schema": _WIDER, "last-column-id": 7},
    {"action": "set-location", "location": "@view-location"},
    {"action": "set-properties", "updates": {"comment": "b"}},
    {"action": "remove-properties", "removals": ["comment"]},
    {
        "action": "add-view-version",
        "view-version": VIEW_VERSION
        | {"version-id": 2, "default-catalog": "c", "timestamp-ms": "@now"},
    },
    {"action": "set-current-view-version", "view-version-id": 1},
)
VIEW_REQUIREMENTS: tuple[dict[str, Any], ...] = (
    {"type": "assert-view-uuid", "uuid": "@view-uuid"},
)

CREATE_UPDATES: tuple[dict[str, Any], ...] = (
    {"action": "assign-uuid", "uuid": "@new-uuid"},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "add-schema", "schema": SCHEMA},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
    {"action": "set-default-spec", "spec-id": -1},
    {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
    {"action": "set-default-sort-order", "sort-order-id": -1},
    {"action": "set-location", "location": "@new-location"},
    {"action": "set-properties", "updates": {}},
)
"""The updates of a staged create's commit, whose only requirement is assert-create."""


def number(text: str) -> str:
    """Return a mark for a number that JSON allows but Python's JSON encoder cannot write.
    `encoded` replaces it."""
    return f"@number:{text}"


def encoded(body: Any) -> bytes:
    return _NUMBER.sub(lambda found: found[1], json.dumps(body)).encode()


def filled(body: Any, world: World) -> Any:
    """Return the body with its marks replaced by the values of the world's table and view."""
    marks: dict[str, Any] = {
        "@uuid": world.uuid,
        "@now": int(time.time() * 1000),
        "@view-uuid": world.known["view"]["view-uuid"],
        "@view-location": world.known["view"]["location"],
        "@location": world.location,
    } | {name: value for name, value in world.known.items() if name.startswith("@")}
    return _filled(body, marks)


def _filled(body: Any, marks: Mapping[str, Any]) -> Any:
    if isinstance(body, dict):
        return {key: _filled(value, marks) for key, value in body.items()}
    if isinstance(body, list | tuple):
        return [_filled(value, marks) for value in body]
    if not isinstance(body, str) or not body.startswith("@"):
        return body
    if body in marks:
        return marks[body]
    mark, slash, rest = body.partition("/")
    return f"{marks[mark]}/{rest}" if slash and mark in marks else body


def paths(body: Any, so_far: Path = ()) -> Iterator[Path]:
    """Yield the path of everything inside a JSON value, except for the value itself."""
    items: Sequence[tuple[str | int, Any]] = ()
    if isinstance(body, dict):
        items = list(body.items())
    elif isinstance(body, list | tuple):
        items = list(enumerate(body))
    for key, value in items:
        yield (*so_far, key)
        yield from paths(value, (*so_far, key))


def at(body: Any, path: Path) -> Any:
    for key in path:
        body = body[key]
    return body


def replaced(body: Any, path: Path, value: Any) -> Any:
    """Return a copy that has another value at a path."""
    changed = copy.deepcopy(body)
    at(changed, path[:-1])[path[-1]] = value
    return changed


def without(body: Any, path: Path) -> Any:
    changed = copy.deepcopy(body)
    del at(changed, path[:-1])[path[-1]]
    return changed
