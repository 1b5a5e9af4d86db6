"""One catalog for the whole run behind its own HTTP interface; every test has its own tables."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from frazil.db.connect import connect
from tests.commit.finegrained.tables import BUCKETS, Table
from tests.commit.finegrained.world import World, opened_world

NAMESPACE = "finegrained"
ROOM_BYTES = 1 << 30


@contextmanager
def fast_folder() -> Iterator[Path]:
    """Create a folder, in memory if there is room, because the tests write and sync thousands of
    files."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > ROOM_BYTES
    with tempfile.TemporaryDirectory(prefix="finegrained-", dir=memory if roomy else None) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with fast_folder() as folder:
        warehouse = folder / "warehouse"
        warehouse.mkdir()
        database = connect(f"sqlite:///{folder}/catalog.db")
        database.migrate()
        with opened_world(database, warehouse) as world:
            assert world("POST", "/v1/namespaces", {"namespace": [NAMESPACE]}).status == 200
            yield world
        database.close()


# --- format versions and branches -----------------------------------------------------------------


def places(*versions: int) -> list[Any]:
    """Return format versions with main or another branch; `make test-full` runs every pair."""
    chosen = []
    for version in versions:
        for branch in ("main", "side"):
            usual = (branch == "main") == (version != 2)
            marks = () if usual else (pytest.mark.full,)
            chosen.append(pytest.param((version, branch), id=f"v{version}-{branch}", marks=marks))
    return chosen


ALL_VERSIONS = pytest.mark.parametrize("place", places(1, 2, 3))
WITH_DELETES = pytest.mark.parametrize("place", places(2, 3))
"""Format version 1 has no delete files."""
WITH_POSITION_DELETES = pytest.mark.parametrize("place", places(2))
WITH_VECTORS = pytest.mark.parametrize("place", places(3))


class TableFactory(Protocol):
    def __call__(self, **fields: Any) -> Table: ...


@pytest.fixture(scope="session")
def new_table(world: World) -> TableFactory:
    """Return a function that creates tables from the fields of `Table`."""
    return lambda **fields: Table(world, **{"namespace": NAMESPACE, **fields}).create()


@pytest.fixture
def place() -> tuple[int, str]:
    """Return the format version and branch; the default is version 2 on main."""
    return 2, "main"


@pytest.fixture
def table(new_table: TableFactory, place: tuple[int, str]) -> Table:
    """Create a table partitioned by bucket[16](data), as in Java's tests."""
    version, branch = place
    return new_table(version=version, branch=branch, spec=BUCKETS)
