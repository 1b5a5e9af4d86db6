"""Random commits, mostly valid. Each is applied or refused as a whole, and its result is
readable."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings

from frazil.format.metadata.metadata_files import decode_metadata_file
from frazil.format.metadata.view_metadata import parse_view_metadata
from tests.hostile.bodies import CREATE_UPDATES, encoded, filled
from tests.hostile.strategies import spoiled, table_commits, view_commits
from tests.hostile.world import World, assert_refused

EXAMPLES = 40
FULL_EXAMPLES = 1500

_CREATE = {"requirements": [{"type": "assert-create"}], "updates": list(CREATE_UPDATES)}


def file_of(answer: httpx.Response) -> bytes:
    location: str = answer.json()["metadata-location"]
    return Path(location.removeprefix("file://")).read_bytes()


def check_table(world: World, body: Any, version: int) -> None:
    """Send one commit to the table that `create_table` makes, and check what must hold
    afterward."""
    before = world.pointer("tables", "t")
    answer = world.send("POST", world.table_path, encoded(filled(body, world)))
    if answer.status_code != 200:
        assert_refused(answer, 400, 409)
        assert world.pointer("tables", "t") == before
        return
    metadata = decode_metadata_file(file_of(answer), 1 << 30, summaries=True)
    assert metadata.table_uuid == world.uuid
    assert answer.json()["metadata"] == world.table()["metadata"]
    if world.pointer("tables", "t") != before:
        world.ok("DELETE", world.table_path)
        world.create_table(version)


def check_view(world: World, body: Any) -> None:
    before = world.pointer("views", "v")
    answer = world.send("POST", world.view_path, encoded(filled(body, world)))
    if answer.status_code != 200:
        assert_refused(answer, 400, 409)
        assert world.pointer("views", "v") == before
        return
    assert parse_view_metadata(file_of(answer)).view_uuid == world.known["view"]["view-uuid"]
    if world.pointer("views", "v") != before:
        world.ok("DELETE", world.view_path)
        world.create_view()


def check_transaction(world: World, body: Any) -> None:
    """Send a transaction whose change to the second table is always valid. Either both tables
    change or none does."""
    before = [world.pointer("tables", name) for name in ("t", "second")]
    change = {"action": "set-properties", "updates": {"a": str(uuid.uuid4())}}
    second = {"identifier": world.identifier("second"), "requirements": [], "updates": [change]}
    first = filled(body, world)
    if isinstance(first, dict):
        first = {"identifier": world.identifier(), **first}
    sent = encoded({"table-changes": [second, first]})
    answer = world.send("POST", "/v1/transactions/commit", sent)
    after = [world.pointer("tables", name) for name in ("t", "second")]
    if answer.status_code == 204:
        assert after[1] != before[1]
    else:
        assert_refused(answer, 400, 409)
        assert after == before
    if after[0] != before[0]:
        world.ok("DELETE", world.table_path)
        world.create_table()


def check_create(world: World, body: Any) -> None:
    """Commit a staged create. Either the whole table exists afterward or nothing does."""
    world.known |= {
        "@new-uuid": str(uuid.uuid4()),
        "@new-location": f"{world.allowed}/{uuid.uuid4()}",
    }
    path = f"{world.path}/tables/created"
    answer = world.send("POST", path, encoded(filled(body, world)))
    if answer.status_code == 200:
        decode_metadata_file(file_of(answer), 1 << 30, summaries=True)
        world.ok("DELETE", path)
    else:
        # Without assert-create the body is a commit to a table that does not exist.
        assert_refused(answer, 400, 404, 409)
        assert_refused(world.send("GET", path), 404)


@pytest.mark.parametrize(
    "max_examples", [EXAMPLES, pytest.param(FULL_EXAMPLES, marks=pytest.mark.full)]
)
class TestRandomCommits:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_to_a_table(self, new_world: World, version: int, max_examples: int) -> None:
        world = new_world
        world.ok("DELETE", world.table_path)
        world.create_table(version)

        @settings(max_examples=max_examples)
        @given(table_commits)
        def run(body: Any) -> None:
            check_table(world, body, version)

        run()

    def test_to_a_view(self, new_world: World, max_examples: int) -> None:
        @settings(max_examples=max_examples)
        @given(view_commits)
        def run(body: Any) -> None:
            check_view(new_world, body)

        run()

    def test_to_two_tables(self, new_world: World, max_examples: int) -> None:
        schema = {"type": "struct", "fields": []}
        new_world.ok("POST", f"{new_world.path}/tables", {"name": "second", "schema": schema})

        @settings(max_examples=max_examples)
        @given(table_commits)
        def run(body: Any) -> None:
            check_transaction(new_world, body)

        run()

    def test_that_create(self, new_world: World, max_examples: int) -> None:
        @settings(max_examples=max_examples)
        @given(spoiled(_CREATE))
        def run(body: Any) -> None:
            check_create(new_world, body)

        run()
