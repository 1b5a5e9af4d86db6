"""Runs random steps on a world: picks a table and a step, checks everything after each."""

from __future__ import annotations

import sqlite3
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg

from tests.housekeeping.maintainers import MAINTAINERS, OF_DROPPED_TABLES, settle
from tests.housekeeping.rest_calls import Refused
from tests.housekeeping.world import HOUR_MS, HousekeepingClock, TableModel, World
from tests.housekeeping.writers import WRITERS, Step
from tests.support.server import RunningServer

STEPS: Mapping[str, tuple[Step, int]] = {**WRITERS, **MAINTAINERS}
TIMES: Mapping[str, tuple[str, ...]] = {
    "leases": ("created_ms", "expires_ms"),
    "intents": ("created_ms", "expires_ms", "ended_ms"),
    "expired_snapshots": ("expired_ms", "delete_after_ms"),
    "removed_definitions": ("removed_ms",),
    "retired_metadata": ("retired_ms",),
    "doomed_files": ("found_ms", "delete_after_ms"),
    "purged_tables": ("purged_ms", "delete_after_ms"),
}
"""The columns with times, which `DatabaseClock` moves back."""
HEARTBEATS = {"jobs": ("heartbeat_ms",), "job_locks": ("heartbeat_ms",)}


@dataclass(frozen=True)
class DatabaseClock(HousekeepingClock):
    """Moves the times of rows back, which is as if the clock had moved ahead."""

    url: str

    def shift(self, delta_ms: int) -> None:
        self._shift(TIMES, delta_ms)

    def silence_workers(self) -> None:
        """Let all workers of jobs be silent for so long that others take their jobs."""
        self._shift(HEARTBEATS, HOUR_MS)

    def events(self) -> list[tuple[str, int, str, bytes]]:
        statement = "SELECT uuid, version, operation, payload FROM outbox ORDER BY id"
        if self.url.startswith("sqlite:"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=60)) as own:
                return own.execute(statement).fetchall()
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement.encode()).fetchall()

    def _shift(self, times: Mapping[str, tuple[str, ...]], delta_ms: int) -> None:
        statements = [
            f"UPDATE {table} SET " + ", ".join(f"{name} = {name} - {delta_ms}" for name in columns)
            for table, columns in times.items()
        ]
        if self.url.startswith("sqlite:"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=60)) as own:
                for statement in statements:
                    own.execute(statement)
                own.commit()
        else:
            with psycopg.connect(self.url) as connection:
                for statement in statements:
                    connection.execute(statement.encode())


def weights(steps: Mapping[str, tuple[Step, int]]) -> tuple[list[str], list[int]]:
    return list(steps), [weight for _, weight in steps.values()]


def run_steps(world: World, count: int) -> Counter[str]:
    """Run random steps; return how often each was run, and how often it was refused."""
    done: Counter[str] = Counter()
    for number in range(count):
        table = world.random.choice(world.tables)
        names, chances = weights(OF_DROPPED_TABLES if table.is_dropped else STEPS)
        name = world.random.choices(names, chances)[0]
        done[run_step(world, table, number, name)] += 1
    return done


def run_step(world: World, table: TableModel, number: int, name: str) -> str:
    """Run a step and check the world; return its name and how it ended."""
    step = (OF_DROPPED_TABLES if table.is_dropped else STEPS)[name][0]
    try:
        text, outcome = step(world, table), name
    except (*world.refusals, Refused) as refused:
        text, outcome = f"{name} refused: {refused}", f"{name} refused"
    if text is None:
        return f"{name} idle"
    world.say(f"{number}: {table.identifier}: {text}")
    try:
        world.observe()
    except Exception:
        world.say(traceback.format_exc())
        raise
    return outcome


@contextmanager
def shown(world: World) -> Iterator[None]:
    """If the block fails, print the seed and the steps."""
    try:
        yield
    except BaseException:
        print(f"--- seed {world.seed}; run it again with")
        print(f"    python -m tests.housekeeping.torture machine --seeds {world.seed}")
        print("\n".join(world.log[-100:]))
        raise


def new_world(url: str, database: str, seed: int, namespace: str) -> World:
    world = World(url, seed, DatabaseClock(database), namespace)
    world.client.create_namespace(namespace)
    world.create_table(2)
    world.create_table(3)
    world.create_table(3, partitioned=True)
    world.create_table(3, quarantine_ms=0)
    return world


def run_seed(
    url: str, database: str, seed: int, steps: int, namespace: str | None = None
) -> Counter[str]:
    """Run a world from a seed: random steps, then let it settle, after which nothing is left."""
    world = new_world(url, database, seed, namespace or f"machine{seed}")
    with shown(world), world.client:
        world.observe()
        done = run_steps(world, steps)
        settle(world)
        world.observe()
    return done


def sqlite_url(server: RunningServer) -> str:
    return f"sqlite:///{server.directory / 'frazil.db'}"
