"""Runs a job and kills a process at its n-th operation, for each n; the next run must finish it.

A catalog is built once and saved: its files, its database, and what the model knows. For each n it
is restored, the job is run while the server or the client is killed at its n-th operation, and the
server is started again. Then nothing that must be there may be missing; the job runs again and
succeeds; and when the world has settled, nothing is left that nobody needs.
"""

from __future__ import annotations

import copy
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Literal

from frazil import Client
from frazil.client.send.retry_policy import RetryPolicy
from frazil.wire.errors import FrazilError
from tests.housekeeping.machine import DatabaseClock, shown
from tests.housekeeping.maintainers import settle
from tests.housekeeping.rest_calls import Refused, Routes
from tests.housekeeping.world import TableModel, World
from tests.support.fuse import Fuse, ended, run_child, serve, start_child, wait_for
from tests.support.patience import wait_until
from tests.support.postgres import PostgresServer
from tests.support.readme import free_port
from tests.support.server import is_ready

Victim = Literal["server", "client"]
NAMESPACE: Final = "kills"
DATABASE, SAVED_DATABASE = "kill_run", "kill_saved"


def hasty_client(url: str) -> Client:
    """Return a client that reports a killed server soon."""
    return Client(url, retry=RetryPolicy(4, 1, 20, 60_000), outage_timeout_s=0.2)


class KilledCatalog:
    """A catalog that can be saved, restored, killed and started again."""

    def __init__(
        self, folder: Path, victim: Victim, postgres: PostgresServer | None = None
    ) -> None:
        self.folder = folder
        self.victim = victim
        self.postgres = postgres
        self.run = folder / "run"
        self.fuse = Fuse(folder / "fuse")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "server.log"
        self._log.touch()
        self.run.mkdir()
        if postgres is not None:
            postgres.create_database(DATABASE)

    @property
    def database(self) -> str:
        if self.postgres is not None:
            return self.postgres.url(DATABASE)
        return f"sqlite:///{self.run / 'frazil.db'}"

    @contextmanager
    def server(self) -> Iterator[BaseProcess]:
        """Run the server for one block; it is killed at the end, if it still runs."""
        flags = ("--port", str(self.port), "--database", self.database)
        fuse = self.fuse.path if self.victim == "server" else None
        child = start_child(serve, self.run, self._log, flags, fuse=fuse)
        with ended(child):
            self._wait_until_ready(child)
            yield child

    def _wait_until_ready(self, child: BaseProcess) -> None:
        wait_until(lambda: not child.is_alive() or is_ready(self.url), "the server is not ready")
        assert child.is_alive(), self._log.read_text()

    def stop(self, server: BaseProcess) -> None:
        server.terminate()
        assert wait_for(server) == 0, self._log.read_text()

    def save(self) -> None:
        shutil.copytree(self.run, self.folder / "saved")
        if self.postgres is not None:
            self.postgres.execute(f"CREATE DATABASE {SAVED_DATABASE} TEMPLATE {DATABASE}")

    def restore(self) -> None:
        shutil.rmtree(self.run)
        shutil.copytree(self.folder / "saved", self.run)
        if self.postgres is not None:
            self.postgres.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
            self.postgres.execute(f"CREATE DATABASE {DATABASE} TEMPLATE {SAVED_DATABASE}")

    def drop(self) -> None:
        if self.postgres is not None:
            for name in (DATABASE, SAVED_DATABASE):
                self.postgres.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@dataclass(frozen=True)
class KillableJob:
    """A job on the one table of a world."""

    name: str
    run: Callable[[str, str, Mapping[str, str]], None]
    """Runs the job on a table of the server at a URL. It is importable, for child processes."""
    victim: Victim
    prepare: Callable[[World, TableModel], Mapping[str, str]]
    """Makes work for the job, before the catalog is saved; returns the options of the job."""

    @property
    def id(self) -> str:
        return f"{self.name}-{self.victim}"


class Kills:
    """All kill points of one job on one catalog."""

    def __init__(self, catalog: KilledCatalog, job: KillableJob) -> None:
        self.catalog = catalog
        self.job = job
        with catalog.server() as server:
            world = self._world()
            with world.client:
                world.client.create_namespace(NAMESPACE)
                table = world.create_table(3)
                self._name = table.identifier
                self._options = job.prepare(world, table)
                world.observe()
            catalog.stop(server)
        self._saved = world
        catalog.save()
        self.points = self._count()

    def _world(self) -> World:
        clock = DatabaseClock(self.catalog.database)
        return World(self.catalog.url, 1, clock, NAMESPACE)

    def _restored(self) -> World:
        self.catalog.restore()
        world = self._world()
        world.tables = copy.deepcopy(self._saved.tables)
        world.canaries = set(self._saved.canaries)
        world.may_be_purged = self.job.name == "purge"
        return world

    def _count(self) -> int:
        """Return how many operations a run without a kill has."""
        world = self._restored()
        with self.catalog.server():
            points = self._run_armed(0)
            self._finish(world)
        return points

    def kill_at(self, point: int) -> bool:
        """Kill at this operation and check everything; return whether it came so far."""
        world = self._restored()
        with shown(world):
            with self.catalog.server() as server:
                reached = self._run_armed(point) >= point
                if self.job.victim == "server" and reached:
                    assert wait_for(server) == -signal.SIGKILL
            world.say(f"{self.job.name}: the {self.job.victim} was killed at {point}: {reached}")
            DatabaseClock(self.catalog.database).silence_workers()
            with self.catalog.server():
                world.observe()
                self._run()
                if world.client.table_exists(self._name):
                    Routes(self.catalog.url, self._name).wait_for_jobs()
                self._finish(world)
        return reached

    def _run_armed(self, point: int) -> int:
        """Run the job while its victim counts; return the count."""
        fuse = self.catalog.fuse
        fuse.arm(point)
        try:
            if self.job.victim == "client":
                url, name = self.catalog.url, self._name
                run_child(self.job.run, url, name, self._options, fuse=fuse.path)
            else:
                self._run()
        except (FrazilError, Refused, OSError, HTTPException):
            # Otherwise the error is no consequence of a kill.
            if point == 0 or fuse.count < point:
                raise
        finally:
            count = fuse.count
            fuse.disarm()
        return count

    def _run(self) -> None:
        self.job.run(self.catalog.url, self._name, self._options)

    def _finish(self, world: World) -> None:
        with world.client:
            world.observe()
            settle(world)
            world.observe()
