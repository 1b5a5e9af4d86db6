"""Every field of every update, requirement and request, with every value it cannot have."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile.bodies import (
    REQUIREMENTS,
    UPDATES,
    VIEW_REQUIREMENTS,
    VIEW_UPDATES,
    Path,
    at,
    encoded,
    filled,
    number,
    paths,
    replaced,
)
from tests.hostile.world import SCHEMA, SPEC, VIEW_VERSION, World, assert_refused

UNREADABLE = number("1e99999999999999999999")

# Wrong values for each JSON type. A null is allowed and means that the field is absent.
WRONG: dict[type, tuple[Any, ...]] = {
    int: ("1", True, 1.5, number("1e400"), UNREADABLE, 2**63, [], {}),
    str: (1, True, 1.5, number("1e400"), [], {}),
    bool: (1, "true", [], {}),
    list: (1, "x", True, {}),
    dict: (1, "x", True, []),
}

OPEN = ("summary", "properties", "updates")
"""Objects whose keys the client chooses: their keys are data."""


def wrong_values(body: Any) -> Iterator[tuple[Path, Any]]:
    for path in paths(body):
        good = at(body, path)
        kind = int if good == "@now" else type(good)
        for value in WRONG[kind]:
            yield path, value
        if kind is int:
            yield path, number(str(2**31) if _is_int32(path) else str(2**63))
            yield path, number(str(-(2**63) - 1))


def _is_int32(path: Path) -> bool:
    """Snapshot ids, sequence numbers, times and sizes are longs; every other number is an int."""
    names = [part for part in path if isinstance(part, str)]
    longs = (
        "snapshot-id",
        "snapshot-ids",
        "sequence-number",
        "parent-snapshot-id",
        "first-row-id",
        "added-rows",
    )
    return names[-1] not in longs and not names[-1].endswith(("-ms", "-in-bytes"))


def naming(path: Path, value: Any) -> set[str]:
    """Return the names of which the message must contain one. This is usually the field's own
    name. The parent's name also counts if the parent is an object with data as keys, and any
    name of the path counts if the number is unreadable."""
    names = [part for part in path if isinstance(part, str)]
    if value == UNREADABLE:
        return set(names)
    return set(names[-2:]) if names[-2:-1] and names[-2] in OPEN else {names[-1]}


def refuse_all(world: World, method: str, url: str, body: Any, prefix: Path) -> None:
    """Send the body once for every wrong value below a path, and check that it is refused."""
    for path, value in wrong_values(at(body, prefix)):
        where = (*prefix, *path)
        answer = world.send(method, url, encoded(replaced(body, where, value)))
        message = assert_refused(answer, 400)
        assert any(name in message for name in naming(where, value)), (where, value, message)


@pytest.mark.parametrize("example", UPDATES, ids=lambda example: example["action"])
def test_a_field_of_a_table_update(world: World, example: dict[str, Any]) -> None:
    body = {"requirements": [], "updates": [filled(example, world)]}
    with world.unchanged():
        refuse_all(world, "POST", world.table_path, body, ("updates", 0))


@pytest.mark.parametrize("example", REQUIREMENTS, ids=lambda example: example["type"])
def test_a_field_of_a_table_requirement(world: World, example: dict[str, Any]) -> None:
    body = {"requirements": [filled(example, world)], "updates": []}
    with world.unchanged():
        refuse_all(world, "POST", world.table_path, body, ("requirements", 0))


@pytest.mark.parametrize(
    ("part", "example"),
    [("updates", example) for example in VIEW_UPDATES]
    + [("requirements", example) for example in VIEW_REQUIREMENTS],
    ids=lambda value: value.get("action", value.get("type")) if isinstance(value, dict) else value,
)
def test_a_field_of_a_view_commit(world: World, part: str, example: dict[str, Any]) -> None:
    body = {"requirements": [], "updates": []} | {part: [filled(example, world)]}
    with world.unchanged():
        refuse_all(world, "POST", world.view_path, body, (part, 0))


def requests(world: World) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the other requests with a body. `@` stands for this world's namespace."""
    here = world.identifier
    new_table = {
        "name": "new",
        "schema": SCHEMA,
        "location": f"{world.allowed}/new",
        "partition-spec": SPEC,
        "write-order": {"order-id": 0, "fields": []},
        "stage-create": False,
        "properties": {"a": "b"},
    }
    new_view = {
        "name": "new",
        "schema": SCHEMA,
        "view-version": VIEW_VERSION,
        "location": f"{world.allowed}/new",
        "properties": {"a": "b"},
    }
    registered = {"name": "new", "metadata-location": world.pointer("tables", "t")}
    commit = {"identifier": here(), "requirements": [], "updates": []}
    return {
        "create-namespace": ("/v1/namespaces", {"namespace": ["x"], "properties": {"a": "b"}}),
        "properties": (f"{world.path}/properties", {"removals": ["a"], "updates": {"b": "c"}}),
        "create-table": (f"{world.path}/tables", new_table),
        "register": (f"{world.path}/register", {**registered, "overwrite": False}),
        "rename": ("/v1/tables/rename", {"source": here(), "destination": here("new")}),
        "transaction": ("/v1/transactions/commit", {"table-changes": [commit]}),
        "commit": (world.table_path, commit),
        "create-view": (f"{world.path}/views", new_view),
        "register-view": (f"{world.path}/register-view", registered),
        "rename-view": ("/v1/views/rename", {"source": here("v"), "destination": here("new")}),
        "commit-view": (world.view_path, {**commit, "identifier": here("v")}),
    }


REQUESTS = (
    "create-namespace",
    "properties",
    "create-table",
    "register",
    "rename",
    "transaction",
    "commit",
    "create-view",
    "register-view",
    "rename-view",
    "commit-view",
)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_field_of_a_request(world: World, name: str) -> None:
    url, body = requests(world)[name]
    with world.unchanged():
        refuse_all(world, "POST", url, body, ())


@pytest.mark.parametrize("name", REQUESTS)
def test_a_field_that_no_request_has(world: World, name: str) -> None:
    url, body = requests(world)[name]
    with world.unchanged():
        for place in [(), *closed_objects(body)]:
            changed = copy.deepcopy(body)
            at(changed, place)["frobnicate"] = 1
            assert "frobnicate" in assert_refused(world.send("POST", url, changed), 400)


def closed_objects(body: Any) -> Iterator[Path]:
    """Yield the paths of identifiers and table changes. Metadata objects may have fields of
    later versions, so they are left out."""
    for path in paths(body):
        if isinstance(at(body, path), dict) and {"namespace", "updates"} & set(at(body, path)):
            yield path


@pytest.mark.parametrize("example", UPDATES, ids=lambda example: example["action"])
def test_a_field_that_no_update_has(world: World, example: dict[str, Any]) -> None:
    with world.unchanged():
        answer = world.commit(filled(example, world) | {"frobnicate": 1})
        assert "updates[0].frobnicate" in assert_refused(answer, 400)


@pytest.mark.parametrize("example", REQUIREMENTS, ids=lambda example: example["type"])
def test_a_field_that_no_requirement_has(world: World, example: dict[str, Any]) -> None:
    with world.unchanged():
        answer = world.commit(requirements=[filled(example, world) | {"frobnicate": 1}])
        assert "requirements[0].frobnicate" in assert_refused(answer, 400)


def test_fields_of_metadata_that_nobody_knows_are_kept(new_world: World) -> None:
    world = new_world
    odd = {
        "frobnicate": [1, {"deep": None}],
        "huge": number("1e400"),
        "long": number("9" * 40),
        "minus": number("-0"),
        "": "empty name",
    }
    body = {
        "requirements": [],
        "updates": [filled(update, world) for update in UPDATES if "schema" in update],
    }
    body["updates"][0]["schema"] |= odd
    answer = world.send("POST", world.table_path, encoded(body))
    assert answer.status_code == 200, answer.text
    for kept in ("1E+400", "9" * 40, '"frobnicate":[1,{"deep":null}]', '"":"empty name"'):
        assert kept in answer.text


@pytest.mark.parametrize(
    "tag", ["", "append-all-the-things", "ADD-SCHEMA", "add-schema ", "x" * 9000]
)
def test_an_unknown_action(world: World, tag: str) -> None:
    with world.unchanged():
        message = assert_refused(world.commit({"action": tag}), 400)
        assert "updates[0].action" in message
        assert "add-snapshot" in message
        answer = world.commit(requirements=[{"type": tag}])
        message = assert_refused(answer, 400)
        assert "requirements[0].type" in message
        assert "assert-create" in message
        assert len(message) < 2000


def test_updates_of_views_are_unknown_to_tables_and_the_other_way_round(world: World) -> None:
    view_only = [example for example in VIEW_UPDATES if "view-version" in str(example["action"])]
    known = {example["action"] for example in VIEW_UPDATES}
    table_only = [example for example in UPDATES if example["action"] not in known]
    assert view_only
    assert table_only
    with world.unchanged():
        for example in view_only:
            assert_refused(world.commit(filled(example, world)), 400)
        for example in table_only:
            body = {"requirements": [], "updates": [filled(example, world)]}
            assert_refused(world.send("POST", world.view_path, body), 400)
