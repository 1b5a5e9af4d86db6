"""Random steps of writers and maintenance lose no file that anything needs.

`python -m tests.housekeeping.torture machine` runs many more steps with other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.housekeeping.crowd import Crowd
from tests.housekeeping.machine import STEPS, DatabaseClock, run_seed, shown, sqlite_url
from tests.housekeeping.maintainers import settle
from tests.housekeeping.world import World
from tests.support.server import RunningServer, ServerFactory, running_server

SEEDS = range(6)
STEPS_OF_A_SEED = 60
CROWD_STEPS = 8


@pytest.fixture(scope="module")
def sqlite_server(
    tmp_path_factory: pytest.TempPathFactory, processes: None
) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("machine")) as server:
        yield server


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_lose_nothing(sqlite_server: RunningServer, seed: int) -> None:
    run_seed(sqlite_server.url, sqlite_url(sqlite_server), seed, STEPS_OF_A_SEED)


def test_random_steps_lose_nothing_on_postgres(
    server: ServerFactory, postgres_database: str, tmp_path: Path
) -> None:
    running = server("--database", postgres_database, directory=tmp_path / "server")
    done = run_seed(running.url, postgres_database, 101, 2 * STEPS_OF_A_SEED)
    # Most steps must have something to do.
    assert len([name for name in STEPS if done[name] > 0]) > len(STEPS) * 2 // 3


@pytest.mark.parametrize("version", [2, 3])
def test_a_crowd_loses_nothing(sqlite_server: RunningServer, version: int) -> None:
    """Without quarantine, only leases and intents protect what is not committed or no longer."""
    clock = DatabaseClock(sqlite_url(sqlite_server))
    world = World(sqlite_server.url, version, clock, f"crowd{version}")
    with world.client:
        world.client.create_namespace(world.namespace)
        table = world.create_table(version, quarantine_ms=0, partitioned=version == 3)
        counts = Crowd(world, table, CROWD_STEPS).run()
        assert {"_read", "_compact", "_collect", "_intend"} <= counts.keys()
        with shown(world):
            settle(world)
