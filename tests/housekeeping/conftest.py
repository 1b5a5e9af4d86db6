"""Databases for the tests of housekeeping: a test that uses `database` runs on each."""

from __future__ import annotations

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
