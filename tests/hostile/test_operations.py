"""Schemathesis runs our OpenAPI file and Iceberg's own against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import requests

from frazil.wire.json_bodies import known_tags
from frazil.wire.rest_updates import TableRequirement, TableUpdate, ViewRequirement, ViewUpdate
from tests.hostile.bodies import REQUIREMENTS, UPDATES, VIEW_REQUIREMENTS, VIEW_UPDATES
from tests.hostile.counting import APPLIED, COMMAND, REFUSED, Reached
from tests.hostile.operations import NOT_SERVED, Operation, documents, operations, own_document, run
from tests.hostile.strategies import one_of_each
from tests.hostile.world import World
from tests.support.patience import HANG_S
from tests.support.server import running_server

EXAMPLES = 6
FULL_EXAMPLES = 200
COMMITS = {
    "updateTable": one_of_each(UPDATES, REQUIREMENTS),
    "commitTransaction": [],
    "replaceView": one_of_each(VIEW_UPDATES, VIEW_REQUIREMENTS),
}
COMMIT_EXAMPLES = 25

_operations = {
    (which, operation_id): operation
    for which, document in documents().items()
    for operation_id, operation in operations(document).items()
}
_each = pytest.mark.parametrize(
    ("which", "operation"),
    [(which, operation) for (which, _), operation in _operations.items()],
    ids=[f"{which}-{operation_id}" for which, operation_id in _operations],
)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


def test_the_file_that_is_served_is_the_one_that_is_tested(world: World) -> None:
    assert world.ok("GET", "/openapi.json").json() == own_document()


@_each
def test_an_operation(
    world: World,
    session: requests.Session,
    which: str,
    operation: Operation,
) -> None:
    _run(world, session, which, operation, EXAMPLES)


@pytest.mark.full
@_each
def test_an_operation_at_length(
    world: World,
    session: requests.Session,
    which: str,
    operation: Operation,
) -> None:
    _run(world, session, which, operation, FULL_EXAMPLES)


def _run(
    world: World,
    session: requests.Session,
    which: str,
    operation: Operation,
    max_examples: int,
) -> None:
    statuses = run(operation, world, session, max_examples, described=which == "own")
    if operation.definition.raw["operationId"] in NOT_SERVED:
        assert set(statuses) == {404}
    else:
        assert set(statuses) - {404}, "no case was answered with anything but 404"


@pytest.mark.parametrize("document", documents().values(), ids=documents())
def test_the_config_names_what_is_served_and_nothing_else(
    world: World, document: dict[str, Any]
) -> None:
    named = set(world.ok("GET", "/v1/config").json()["endpoints"])
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method == "parameters" or not path.startswith("/v1/") or path == "/v1/config":
                continue
            endpoint = f"{method.upper()} {path.replace('/v1/', '/v1/{prefix}/', 1)}"
            assert (endpoint in named) == (operation["operationId"] not in NOT_SERVED), endpoint


def test_every_update_and_requirement_reaches_the_engine(
    tmp_path: Path, session: requests.Session
) -> None:
    """They are counted inside the server where each is applied. What the REST layer refuses does
    not count."""
    reached = Reached(tmp_path / "reached")
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    with (
        running_server(
            tmp_path / "server",
            "--allow-location",
            str(allowed),
            env=reached.environment(),
            command=COMMAND,
        ) as server,
        httpx.Client(base_url=server.url, timeout=HANG_S) as client,
    ):
        world = World(server, client, "n", allowed)
        world.build()
        for operation_id, first in COMMITS.items():
            operation = _operations["own", operation_id]
            run(operation, world, session, COMMIT_EXAMPLES, described=True, first=first)
        assert "Traceback" not in server.log
    requirements = {*_tags(TableRequirement, "type"), *_tags(ViewRequirement, "type")}
    assert reached.names("table", APPLIED) == _tags(TableUpdate, "action")
    assert reached.names("view", APPLIED) == _tags(ViewUpdate, "action")
    assert reached.names("requirement") == requirements
    assert reached.names("requirement", REFUSED)
    assert len(reached.names("table")) == 23
    assert len(requirements) == 9


def _tags(kind: Any, field: str) -> set[str]:
    return set(known_tags(kind, field)) if not isinstance(kind, type) else {_tag(kind)}


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)
