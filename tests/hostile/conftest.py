from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import SERVERS
from tests.hostile.counting import COMMAND, Reached
from tests.hostile.world import World
from tests.support.patience import HANG_S
from tests.support.server import RunningServer, running_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="session")
def allowed_folder(hostile_folder: Path) -> Path:
    """Provide an allowed folder outside the warehouse."""
    folder = hostile_folder / "allowed"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def reached(hostile_folder: Path) -> Reached:
    """Provide the record of what the engine of the shared server applied."""
    return Reached(hostile_folder / "reached")


@pytest.fixture(scope="session")
def shared_server(
    hostile_folder: Path, allowed_folder: Path, reached: Reached
) -> Iterator[RunningServer]:
    """Provide one real server for all hostile requests: if one breaks it, later tests fail."""
    flags = ("--allow-location", str(allowed_folder), "--plan-page-files", "1")
    with running_server(
        hostile_folder / "server", *flags, env=reached.environment(), command=COMMAND
    ) as server:
        yield server
        assert "Traceback" not in server.log


@pytest.fixture(scope="session")
def shared_client(shared_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url, timeout=HANG_S) as client:
        yield client


def _build(server: RunningServer, client: httpx.Client, allowed: Path) -> World:
    built = World(server, client, f"n{next(_numbers)}", allowed)
    built.build()
    return built


@pytest.fixture(scope="module")
def module_world(
    shared_server: RunningServer, shared_client: httpx.Client, allowed_folder: Path
) -> World:
    return _build(shared_server, shared_client, allowed_folder)


@pytest.fixture
def world(module_world: World, request: pytest.FixtureRequest) -> World:
    """Provide a namespace with a table and a view for all tests of a module. Each test leaves it
    unchanged or restores what it destroyed."""
    request.node.stash.setdefault(SERVERS, []).append(module_world.server)
    return module_world


@pytest.fixture
def new_world(
    shared_server: RunningServer,
    shared_client: httpx.Client,
    allowed_folder: Path,
    request: pytest.FixtureRequest,
) -> World:
    """Provide a namespace with a table and a view for this test alone."""
    request.node.stash.setdefault(SERVERS, []).append(shared_server)
    return _build(shared_server, shared_client, allowed_folder)
