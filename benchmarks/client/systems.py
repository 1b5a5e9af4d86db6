"""The compared writers. Each creates its tables from the same start and writes to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.client.operations import APPEND, DECLARED, DELETE, UPSERT
from benchmarks.commit.bursts import Burst, Task
from benchmarks.commit.systems import counted
from benchmarks.commit.writers import Host, running_host
from benchmarks.histories import (
    NAMESPACE,
    PROPERTIES,
    History,
    Seed,
    file_url,
    make_history,
    prepare,
    seed_of,
)
from tests.support.server import RunningServer, start_server

FRAZIL_CATALOG: Final = "FrazilCatalog"
THIN_CLIENT: Final = "frazil.Client and pyarrow"
REST_CATALOG: Final = "PyIceberg RestCatalog on frazil"
SQL_CATALOG: Final = "PyIceberg SqlCatalog"
RETRYING: Final = "retrying(table) on SqlCatalog"

_PYICEBERG: Final = "benchmarks.client.pyiceberg_writer"
_THIN: Final = "benchmarks.client.thin_writer"


@dataclass(slots=True)
class Place:
    """A catalog, with a PyIceberg that creates its tables and reads them back."""

    administrator: Host
    warehouse: Path
    server: RunningServer | None
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_table(self, history: History) -> str:
        """Register a new table with this history and return its name."""
        folder = self.warehouse / NAMESPACE / f"t{next(self.numbers)}"
        made = prepare(history, folder, file_url(folder), dict(PROPERTIES))
        self.administrator.administer(
            "register", table=made.name, metadata_location=made.metadata_location
        )
        return made.name

    def new_buckets(self, writers: int, keys: int) -> str:
        """Create a new table with a bucket for each writer and `keys` rows in each."""
        name = f"t{next(self.numbers)}"
        self.administrator.administer("create buckets", table=name, writers=writers, keys=keys)
        return name

    def counts(self, table: str) -> dict[str, int]:
        """Return the snapshots, the records in the summary, and the rows that a read returns."""
        found: dict[str, int] = self.administrator.administer("counts", table=table)
        return found


@dataclass(slots=True)
class System:
    name: str
    operations: Sequence[str]
    host: Host
    place: Place

    def run(self, task: Task) -> Burst:
        server = self.place.server
        if server is None:
            return self.host.run(task)
        return counted([server.process.pid], lambda: self.host.run(task))


@dataclass(frozen=True, slots=True)
class Systems:
    all: Sequence[System]
    server: RunningServer

    def __iter__(self) -> Iterator[System]:
        return iter(self.all)

    def named(self, name: str) -> System:
        return next(system for system in self.all if system.name == name)

    def seed(self) -> Seed:
        """Return the seed that stock PyIceberg writes. Its files are the head of all histories."""
        place = self.named(SQL_CATALOG).place
        return seed_of(place.administrator.administer("seed"), 0)

    def histories(self, lengths: Sequence[int]) -> list[History]:
        seed = self.seed()
        return [make_history(seed, length) for length in lengths]


@contextmanager
def running_systems(scratch: Path) -> Iterator[Systems]:
    """Start all systems, Frazil first."""
    with ExitStack() as stack:
        # All systems share the seed's manifests, which are outside of each warehouse.
        server = start_server(scratch / "frazil", "--allow-location", file_url(scratch))
        stack.callback(server.stop)
        rest, sql = _rest(server), _sql(scratch / "sql")
        stock_rest = stack.enter_context(running_host(_PYICEBERG, _settings(rest, rest)))
        stock_sql = stock_rest.using(_settings(sql, sql))
        through_frazil = stock_rest.using(_settings(_frazil(server), rest))
        with_retries = stock_rest.using(_settings(sql, sql, retrying=True))
        on_frazil = Place(stock_rest, server.warehouse, server)
        on_sqlite = Place(stock_sql, scratch / "sql" / "warehouse", None)
        for place in (on_frazil, on_sqlite):
            place.administrator.administer("start")
        thin = stack.enter_context(running_host(_THIN, {"uri": server.url}))
        writes = (APPEND, DELETE, UPSERT)
        systems = [
            System(FRAZIL_CATALOG, writes, through_frazil, on_frazil),
            System(THIN_CLIENT, (APPEND, DECLARED), thin, on_frazil),
            System(REST_CATALOG, writes, stock_rest, on_frazil),
            System(SQL_CATALOG, writes, stock_sql, on_sqlite),
            System(RETRYING, writes, with_retries, on_sqlite),
        ]
        yield Systems(systems, server)


def _rest(server: RunningServer) -> dict[str, str]:
    return {"type": "rest", "uri": server.url}


def _frazil(server: RunningServer) -> dict[str, str]:
    return {"py-catalog-impl": "frazil.pyiceberg.FrazilCatalog", "uri": server.url}


def _sql(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": file_url(folder / "warehouse"),
    }


def _settings(
    properties: dict[str, str], administrator: dict[str, str], *, retrying: bool = False
) -> dict[str, Any]:
    return {"properties": properties, "administrator": administrator, "retrying": retrying}
