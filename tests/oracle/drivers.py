"""Opens a catalog in this process, for suites that compare it with an oracle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frazil.commit.catalog.operations import Catalog
from frazil.db.connect import connect
from frazil.store.local_store import LocalStore
from frazil.store.locations import AllowedLocations
from tests.commit.requests import Driver


@contextmanager
def open_driver(folder: Path) -> Iterator[Driver]:
    """Open our catalog on SQLite and local files, with the namespace `ns`."""
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
