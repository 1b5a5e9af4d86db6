"""Hostile names of namespaces, tables, views, columns, refs and properties."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.hostile.world import SCHEMA, VIEW_VERSION, World, assert_refused, set_ref

REFUSED = (
    "",
    ".",
    "..",
    "a/../b",
    "../../etc/passwd",
    "./a",
    "a/.",
    "\x00",
    "a\x00b",
    "a\nb",
    "a\r\nX-Injected: 1",
    "\x1f",
    "a\x1fb",
    "\x7f",
    "\x85",
    "x" * 256,
    "é" * 128,
    "😀" * 64,
)
ACCEPTED = (
    "*",
    "%",
    "%2F",
    "%2e%2e",
    "%00",
    "a%2Fb",
    "a/b",
    "/",
    "//",
    "a.b",
    "...",
    "a b",
    " ",
    "a+b",
    "'",
    '"',
    "`",
    "\\",
    "'; DROP TABLE relations; --",
    "x' OR '1'='1",
    "${jndi:ldap://x}",
    "{namespace}",
    "<script>alert(1)</script>",
    "?snapshots=all",
    "#fragment",
    ";",
    ":",
    "@",
    "&",
    "é",
    "e\u0301",
    "\u202egnp.exe",
    "\ufeff",
    "\u2028",
    "名前",
    "😀" * 63,
    "x" * 255,
    "CON",
    "null",
    "-1",
    "register",
    "rename",
)


def encoded(name: str) -> str:
    return quote(name, safe="")


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_a_name_that_is_refused_everywhere(world: World, name: str) -> None:
    bad, here = {"namespace": [world.namespace], "name": name}, world.identifier
    deep = {"namespace": [world.namespace, name], "name": "t"}
    location = world.pointer("tables", "t")
    bodies: list[tuple[str, Any]] = [
        ("/v1/namespaces", {"namespace": [name]}),
        ("/v1/namespaces", {"namespace": [world.namespace, name]}),
        (f"{world.path}/tables", {"name": name, "schema": SCHEMA}),
        (f"{world.path}/tables", {"name": name, "schema": SCHEMA, "stage-create": True}),
        (f"{world.path}/views", {"name": name, "schema": SCHEMA, "view-version": VIEW_VERSION}),
        (f"{world.path}/register", {"name": name, "metadata-location": location}),
        (f"{world.path}/register-view", {"name": name, "metadata-location": location}),
        ("/v1/tables/rename", {"source": here(), "destination": bad}),
        ("/v1/tables/rename", {"source": here(), "destination": deep}),
        ("/v1/tables/rename", {"source": bad, "destination": here("new")}),
        ("/v1/views/rename", {"source": here("v"), "destination": bad}),
    ]
    change = {"identifier": bad, "requirements": [], "updates": []}
    bodies.append(("/v1/transactions/commit", {"table-changes": [change]}))
    with world.unchanged():
        for url, body in bodies:
            message = assert_refused(world.send("POST", url, body), 400)
            assert "name" in message, (url, message)


@pytest.mark.parametrize("name", REFUSED[1:], ids=ascii)
def test_a_name_that_is_refused_in_every_path(world: World, name: str) -> None:
    # `a`, the level separator and `b` form a valid namespace, which does not exist.
    missing = 404 if name == "a\x1fb" else 400
    with world.unchanged():
        for method, path in (
            ("GET", f"/v1/namespaces/{encoded(name)}"),
            ("DELETE", f"/v1/namespaces/{encoded(name)}"),
            ("GET", f"/v1/namespaces/{encoded(name)}/tables/t"),
        ):
            assert_refused(world.send(method, path), missing)
        for method, path in (
            ("GET", f"{world.path}/tables/{encoded(name)}"),
            ("DELETE", f"{world.path}/tables/{encoded(name)}?purgeRequested=true"),
            ("GET", f"{world.path}/views/{encoded(name)}"),
            ("DELETE", f"{world.path}/views/{encoded(name)}"),
        ):
            assert_refused(world.send(method, path), 400)


@pytest.mark.parametrize("name", ACCEPTED, ids=ascii)
def test_a_name_that_is_odd_but_a_name(world: World, name: str) -> None:
    """The name is stored and found unchanged, and its folder is directly below its namespace."""
    table, view = f"{world.path}/tables/{encoded(name)}", f"{world.path}/views/{encoded(name)}"
    before = set(world.server.warehouse.iterdir())
    created = world.ok("POST", f"{world.path}/tables", {"name": name, "schema": SCHEMA}).json()
    listed = world.ok("GET", f"{world.path}/tables").json()["identifiers"]
    assert {"namespace": [world.namespace], "name": name} in listed
    assert world.ok("GET", table).json()["metadata-location"] == created["metadata-location"]
    location = created["metadata"]["location"].removeprefix("file://")
    inside = location.removeprefix(f"{world.server.warehouse}/{world.namespace}/")
    assert inside != location
    assert "/" not in inside
    assert set(world.server.warehouse.iterdir()) == before
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    world.ok("POST", table, body)
    world.ok("DELETE", f"{table}?purgeRequested=true")
    assert_refused(world.send("GET", table), 404)
    world.ok(
        "POST",
        f"{world.path}/views",
        {"name": name, "schema": SCHEMA, "view-version": VIEW_VERSION},
    )
    world.ok("GET", view)
    world.ok("DELETE", view)


@pytest.mark.parametrize("name", ACCEPTED, ids=ascii)
def test_a_namespace_that_is_odd_but_a_name(world: World, name: str) -> None:
    for levels in ([name], [world.namespace, name]):
        path = f"/v1/namespaces/{'%1F'.join(map(encoded, levels))}"
        world.ok("POST", "/v1/namespaces", {"namespace": levels, "properties": {name: name}})
        found = world.ok("GET", path).json()
        assert found["namespace"] == levels
        assert found["properties"][name] == name
        parent = "" if len(levels) == 1 else f"?parent={encoded(levels[0])}"
        assert levels in world.ok("GET", f"/v1/namespaces{parent}").json()["namespaces"]
        world.ok("DELETE", path)


def test_names_that_look_alike_are_different(new_world: World) -> None:
    world = new_world
    names = ["é", "e\u0301", "É", "a/b", "a%2Fb", "a.b", "a b", "a+b", "A B"]
    for name in names:
        world.ok("POST", f"{world.path}/tables", {"name": name, "schema": SCHEMA})
    listed = world.ok("GET", f"{world.path}/tables").json()["identifiers"]
    assert {entry["name"] for entry in listed} == {*names, "t"}
    locations = {world.pointer("tables", name).rpartition("/")[0] for name in names}
    assert len(locations) == len(names)


def test_broken_escapes_in_a_path(world: World) -> None:
    with world.unchanged():
        for name in ("%", "%2", "%zz", "a%G0", "%ff", "%C3", "%ED%A0%80", "%C0%AF"):
            for path in (f"/v1/namespaces/{name}", f"{world.path}/tables/{name}"):
                assert_refused(world.send("GET", path), 400)


def test_paths_that_are_no_route(world: World) -> None:
    with world.unchanged():
        for path in (
            "/",
            "//",
            "/v1",
            "/v1/",
            "/v1//config",
            "/v1/config/",
            "/V1/config",
            "/v2/config",
            f"{world.path}//tables",
            f"{world.path}/tables/",
            f"{world.path}/tables/t/",
            f"{world.path}/tables/t/x",
            "/v1/../healthz",
            "/v1/%2e%2e/healthz",
            "/%2e%2e/%2e%2e/etc/passwd",
            "/.git/config",
            "/v1/prefix/namespaces",
            f"/{'a/' * 5000}",
        ):
            assert_refused(world.send("GET", path), 400, 404)
            assert_refused(world.send("DELETE", path), 400, 404, 405)


@pytest.mark.parametrize("name", ["\x00", "main\n", "x" * 100_000, "../main", "*", "", "main"])
def test_names_of_refs(new_world: World, name: str) -> None:
    """Any ref name is allowed, except for an empty one and for main as a tag."""
    world = new_world
    answer = world.commit(set_ref(1, name, "tag"))
    if name in ("", "main"):
        assert_refused(answer, 400)
    else:
        assert answer.status_code == 200
        assert name in world.table()["metadata"]["refs"]


@pytest.mark.parametrize("name", ["\x00", "a.b", "", "x" * 100_000, "*", "'", "\u202e"])
def test_names_of_columns_and_properties(new_world: World, name: str) -> None:
    world = new_world
    schema = {
        "type": "struct",
        "fields": [
            *SCHEMA["fields"],
            {"id": 9, "name": name, "required": False, "type": "string"},
        ],
    }
    answer = world.commit({"action": "add-schema", "schema": schema})
    assert answer.status_code in (200, 400), answer.text
    world.committed({"action": "set-properties", "updates": {name: name}})
    assert world.table()["metadata"]["properties"][name] == name
    world.committed({"action": "remove-properties", "removals": [name]})
