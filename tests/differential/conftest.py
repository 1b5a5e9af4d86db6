"""Both sides, made once for the histories of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.commit.catalog import Catalog
from frazil.db.connect import connect
from frazil.store.local import LocalStore
from frazil.store.locations import AllowedLocations
from tests.commit.requests import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.differential.histories import World


@contextmanager
def open_driver(folder: Path) -> Iterator[Driver]:
    """Our catalog on SQLite and local files, with the namespace `ns`."""
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    database = connect(f"sqlite:///{folder}/catalog.db")
    database.migrate()
    root = f"file://{warehouse}"
    catalog = Catalog(
        db=database,
        store=LocalStore(),
        warehouse=root,
        allowed_locations=AllowedLocations(root),
    )
    driver = Driver(catalog, database, warehouse)
    driver.create_namespace("ns")
    try:
        yield driver
    finally:
        catalog.close()
        database.close()


@pytest.fixture(scope="package")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    from tests.differential.histories import World
    from tests.differential.java_side import Java

    java = Java(spark)
    with open_driver(tmp_path_factory.mktemp("differential")) as driver:
        yield World(java, driver)
    java.close()
