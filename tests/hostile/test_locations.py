"""Locations outside the allowed folders, through every field that contains a location."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.hostile.world import SCHEMA, VIEW_VERSION, World, assert_refused


@pytest.fixture(scope="module")
def outside(module_world: World) -> dict[str, str]:
    """Provide locations outside the warehouse, each of which uses a different trick."""
    allowed, warehouse = module_world.allowed, module_world.server.warehouse
    secret = allowed.parent / "secret"
    secret.mkdir()
    (allowed / "escape").symlink_to(secret)
    (allowed / "loop").symlink_to(allowed / "loop")
    # An existing folder whose name starts with the name of an allowed one.
    beside = Path(f"{warehouse}_other")
    beside.mkdir()
    return {
        "etc": "file:///etc",
        "etc without scheme": "/etc/frazil",
        "root": "file:///",
        "parent": f"{allowed}/../secret",
        "parent in the middle": f"file://{allowed}/a/../../secret",
        "dot": f"{allowed}/./a",
        "encoded parent": f"file://{allowed}/%2e%2e/secret",
        "encoded slash and parent": f"file://{allowed}/a%2F..%2F..%2Fsecret",
        "symlink": f"{allowed}/escape/t",
        "symlink itself": f"file://{allowed}/escape",
        "loop of symlinks": f"{allowed}/loop/t",
        "common prefix": f"{warehouse}_other/t",
        "remote host": f"file://example.org{allowed}/t",
        "double slash": f"/{allowed}/t",
        "bucket": "s3://another-bucket/t",
        "bucket by another scheme": "s3a://another-bucket/t",
        "memory": "memory://x/t",
        "scheme": "http://169.254.169.254/latest/meta-data",
        "relative": "warehouse/t",
        "empty segments only": "file:",
        "control character": f"{allowed}/a\nb",
        "nul": f"{allowed}/a\x00b",
        "query": f"{allowed}/a?b",
        "fragment": f"{allowed}/a#b",
        "backslash": f"{allowed}\\..\\secret",
        "broken escape of a nul": f"{allowed}/a%00b",
        "too long": f"{allowed}/{'a/' * 3000}",
        "segment too long": f"{allowed}/{'a' * 300}",
        "whole warehouse": str(warehouse),
        "above the warehouse": str(warehouse.parent),
    }


Attempt = Callable[[World, str], httpx.Response]


def _create(field: str) -> Attempt:
    def attempt(world: World, location: str) -> httpx.Response:
        body: dict[str, Any] = {"name": "new", "schema": SCHEMA}
        body |= {"location": location} if field == "location" else {"properties": {field: location}}
        return world.send("POST", f"{world.path}/tables", body)

    return attempt


def _stage(world: World, location: str) -> httpx.Response:
    body = {"name": "new", "schema": SCHEMA, "location": location, "stage-create": True}
    return world.send("POST", f"{world.path}/tables", body)


def _create_view(field: str) -> Attempt:
    def attempt(world: World, location: str) -> httpx.Response:
        body: dict[str, Any] = {"name": "new", "schema": SCHEMA, "view-version": VIEW_VERSION}
        body |= {"location": location} if field == "location" else {"properties": {field: location}}
        return world.send("POST", f"{world.path}/views", body)

    return attempt


def _set_location(world: World, location: str) -> httpx.Response:
    return world.commit({"action": "set-location", "location": location})


def _set_property(field: str) -> Attempt:
    return lambda world, location: world.commit(
        {"action": "set-properties", "updates": {field: location}}
    )


def _in_transaction(world: World, location: str) -> httpx.Response:
    change = {
        "identifier": world.identifier(),
        "requirements": [],
        "updates": [{"action": "set-location", "location": location}],
    }
    return world.send("POST", "/v1/transactions/commit", {"table-changes": [change]})


def _in_transaction_of_two(world: World, location: str) -> httpx.Response:
    bad = {
        "identifier": world.identifier(),
        "requirements": [],
        "updates": [{"action": "set-properties", "updates": {"write.data.path": location}}],
    }
    good = {
        "identifier": world.identifier("second"),
        "requirements": [],
        "updates": [{"action": "set-properties", "updates": {"a": str(uuid.uuid4())}}],
    }
    return world.send("POST", "/v1/transactions/commit", {"table-changes": [good, bad]})


def _create_by_commit(world: World, location: str) -> httpx.Response:
    body = {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": location},
        ],
    }
    return world.send("POST", f"{world.path}/tables/new", body)


def _set_view(update: Callable[[str], dict[str, Any]]) -> Attempt:
    return lambda world, location: world.send(
        "POST", world.view_path, {"requirements": [], "updates": [update(location)]}
    )


def _statistics(world: World, location: str) -> httpx.Response:
    file = {
        "snapshot-id": 2,
        "statistics-path": location,
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    return world.commit({"action": "set-statistics", "statistics": file})


def _partition_statistics(world: World, location: str) -> httpx.Response:
    file = {"snapshot-id": 2, "statistics-path": location, "file-size-in-bytes": 1}
    return world.commit({"action": "set-partition-statistics", "partition-statistics": file})


def _register(route: str) -> Attempt:
    def attempt(world: World, location: str) -> httpx.Response:
        body = {"name": "new", "metadata-location": location}
        return world.send("POST", f"{world.path}/{route}", body)

    return attempt


def _registered_with(change: Callable[[dict[str, Any], str], None]) -> Attempt:
    """Register a metadata file in an allowed folder that contains a location outside of them."""

    def attempt(world: World, location: str) -> httpx.Response:
        metadata = world.known["registrable"] | {"table-uuid": str(uuid.uuid4())}
        change(metadata, location)
        file = world.known["file"]
        file.write_text(json.dumps(metadata))
        return _register("register")(world, str(file))

    return attempt


def _registered_view_with(change: Callable[[dict[str, Any], str], None]) -> Attempt:
    def attempt(world: World, location: str) -> httpx.Response:
        metadata = {**world.known["view"], "view-uuid": str(uuid.uuid4())}
        change(metadata, location)
        file = world.known["file"]
        file.write_text(json.dumps(metadata))
        return _register("register-view")(world, str(file))

    return attempt


def _put(*path: str) -> Callable[[dict[str, Any], str], None]:
    def change(metadata: dict[str, Any], location: str) -> None:
        *above, last = path
        for name in above:
            metadata[name] = dict(metadata.get(name, {}))
            metadata = metadata[name]
        metadata[last] = location

    return change


PROPERTIES = ("write.data.path", "write.metadata.path", "write.object-storage.path")

ATTEMPTS: dict[str, tuple[str, Attempt]] = {
    "create location": ("location", _create("location")),
    "stage-create location": ("location", _stage),
    "set-location": ("location", _set_location),
    "set-location in a transaction": ("location", _in_transaction),
    "create by commit": ("location", _create_by_commit),
    "one of two tables": ("write.data.path", _in_transaction_of_two),
    "statistics": ("statistics-path", _statistics),
    "partition statistics": ("statistics-path", _partition_statistics),
    "view location": ("location", _create_view("location")),
    "view write.metadata.path": ("write.metadata.path", _create_view("write.metadata.path")),
    "view set-location": (
        "location",
        _set_view(lambda location: {"action": "set-location", "location": location}),
    ),
    "view set-properties": (
        "write.metadata.path",
        _set_view(
            lambda location: {
                "action": "set-properties",
                "updates": {"write.metadata.path": location},
            }
        ),
    ),
    "register": ("metadata-location", _register("register")),
    "register-view": ("metadata-location", _register("register-view")),
    "registered location": ("location", _registered_with(_put("location"))),
    "registered view location": ("location", _registered_view_with(_put("location"))),
    "registered view path": (
        "write.metadata.path",
        _registered_view_with(_put("properties", "write.metadata.path")),
    ),
}
for _name in PROPERTIES:
    ATTEMPTS[f"create {_name}"] = (_name, _create(_name))
    ATTEMPTS[f"set {_name}"] = (_name, _set_property(_name))
    ATTEMPTS[f"registered {_name}"] = (_name, _registered_with(_put("properties", _name)))

# The warehouse itself is allowed for these. Only a table's own location must not contain it.
NOT_FOLDERS_OF_TABLES = ("register", "register-view", "statistics", "partition statistics")
VIEWS = ("view", "registered view")


@pytest.fixture(scope="module", autouse=True)
def _prepared(module_world: World) -> None:
    second = {"name": "second", "schema": SCHEMA}
    module_world.ok("POST", f"{module_world.path}/tables", second)
    created = module_world.ok("POST", f"{module_world.path}/tables", {**second, "name": "seed"})
    module_world.ok("DELETE", f"{module_world.path}/tables/seed")
    folder = module_world.allowed / "registrable"
    folder.mkdir()
    module_world.known["registrable"] = created.json()["metadata"] | {"location": str(folder)}
    module_world.known["file"] = folder / "00000-a.metadata.json"
    module_world.known["file"].write_text("{}")


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_location_outside(world: World, outside: dict[str, str], name: str) -> None:
    field, attempt = ATTEMPTS[name]
    with world.unchanged(), _untouched(world):
        for trick, location in outside.items():
            if trick == "whole warehouse" and (name in NOT_FOLDERS_OF_TABLES or _of_view(name)):
                continue
            message = assert_refused(attempt(world, location), 400, 403)
            assert field in message, (trick, message)


def _of_view(name: str) -> bool:
    return name.startswith(VIEWS)


class _untouched:  # noqa: N801
    """Checks that nothing is written next to the allowed folders."""

    def __init__(self, world: World) -> None:
        self._roots = (world.allowed.parent / "secret", Path(f"{world.server.warehouse}_other"))

    def __enter__(self) -> None:
        assert list(self._found()) == []

    def __exit__(self, *args: object) -> None:
        assert list(self._found()) == []

    def _found(self) -> Iterator[str]:
        for root in self._roots:
            for folder, folders, files in os.walk(root):
                yield from (os.path.join(folder, name) for name in (*folders, *files))


@pytest.mark.parametrize(
    "attempt",
    [_create("location"), _stage, _set_location, _create_by_commit, _create("write.data.path")],
    ids=["create", "stage", "set-location", "create-by-commit", "write.data.path"],
)
@pytest.mark.parametrize("where", ["{0}", "{0}/", "{0}/data", "{0}/data/x", "{0}/..", "{1}"])
def test_the_location_of_another_table(world: World, attempt: Attempt, where: str) -> None:
    """A location that equals, is inside or contains another table's location is refused."""
    other = world.ok("GET", f"{world.path}/tables/second").json()["metadata"]["location"]
    location = where.format(other, other.rpartition("/")[0])
    with world.unchanged():
        assert_refused(attempt(world, location), 400, 403)


def test_a_folder_whose_name_begins_like_another_tables_is_another_folder(world: World) -> None:
    other = world.ok("GET", f"{world.path}/tables/second").json()["metadata"]["location"]
    body = {"name": "neighbour", "schema": SCHEMA, "location": f"{other}_other"}
    world.ok("POST", f"{world.path}/tables", body)
    world.ok("DELETE", f"{world.path}/tables/neighbour")


def test_a_file_where_a_folder_should_be(world: World) -> None:
    (world.allowed / "file").write_text("here first")
    for location in (f"{world.allowed}/file", f"{world.allowed}/file/below"):
        for attempt in (
            _create("location"),
            _stage,
            _create("write.metadata.path"),
            _create_by_commit,
            _set_location,
            _set_property("write.metadata.path"),
            _create_view("location"),
        ):
            with world.unchanged():
                assert "location" in assert_refused(attempt(world, location), 400)
    assert (world.allowed / "file").read_text() == "here first"


def test_a_purge_deletes_nothing_outside_of_its_table(new_world: World) -> None:
    """A purge must not follow snapshots, manifests or statistics that name files outside of the
    table."""
    world = new_world
    bystander = world.allowed / f"bystander-{world.namespace}.avro"
    bystander.write_text("not yours")
    link = Path(world.location.removeprefix("file://")) / "metadata" / "link.avro"
    link.symlink_to(bystander)
    for number, path in enumerate((str(bystander), "/etc/hostname", f"file://{link}"), start=3):
        snapshot = {
            "snapshot-id": number,
            "parent-snapshot-id": number - 1,
            "sequence-number": number,
            "timestamp-ms": world.table()["metadata"]["last-updated-ms"],
            "manifest-list": path,
            "summary": {"operation": "append"},
        }
        world.committed({"action": "add-snapshot", "snapshot": snapshot})
    answer = world.send("DELETE", f"{world.table_path}?purgeRequested=true&frazil-now=true")
    assert answer.status_code == 204, answer.text
    assert bystander.read_text() == "not yours"
    assert Path("/etc/hostname").exists()
