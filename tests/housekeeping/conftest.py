"""Databases for the tests of housekeeping: a test that uses `database` runs on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from frazil.db.connect import connect
from tests.commit.finegrained.conftest import fast_folder
from tests.commit.finegrained.world import World, opened_world
from tests.db.conftest import (
    database,
    database_url,
    empty_database,
    postgres_url,
    shared_postgres_database,
    sqlite_url,
)
from tests.housekeeping.orphan_fixtures import any_shop, shop

__all__ = [
    "any_shop",
    "database",
    "database_url",
    "empty_database",
    "postgres_url",
    "shared_postgres_database",
    "shop",
    "sqlite_url",
]


@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.process)]
)
def shared_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Open one catalog on each database for all tests; each test has its own tables."""
    with fast_folder() as folder:
        (folder / "warehouse").mkdir()
        url = f"sqlite:///{folder}/catalog.db"
        if request.param == "postgres":
            url = request.getfixturevalue("postgres_server").create_database()
        database = connect(url)
        database.migrate()
        with opened_world(database, folder / "warehouse") as world:
            yield world
        database.close()
