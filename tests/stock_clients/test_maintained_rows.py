"""Operations of maintenance leave all rows as they were, as stock Spark and PyIceberg read them.

In format version 3 this includes row ids and the sequence numbers of the last update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from frazil.maintenance import (
    convert_equality_deletes,
    rewrite_data_files,
    rewrite_position_delete_files,
)
from tests.housekeeping.machine import DatabaseClock, sqlite_url
from tests.housekeeping.maintainers import (
    DAY_MS,
    expire_everything,
    remove_orphans,
    sweep,
    undo,
)
from tests.housekeeping.rest_calls import Routes
from tests.housekeeping.world import TableModel, World
from tests.housekeeping.writers import Step, append, delete, equality_delete, upsert
from tests.stock_clients.stock import spark_rows
from tests.support.oracle_rows import rows_of
from tests.support.server import RunningServer

ALL: dict[str, str] = {"rewrite-all": "true"}


@pytest.fixture
def world(catalog_server: RunningServer, namespace: str) -> Iterator[World]:
    clock = DatabaseClock(sqlite_url(catalog_server))
    world = World(catalog_server.url, 1, clock, namespace)
    with world.client:
        yield world


def with_deletes(world: World, version: int) -> TableModel:
    """Return a table whose rows have been deleted and updated in every way."""
    table = world.create_table(version, partitioned=version == 3)
    for step in (append, append, append, delete, upsert, equality_delete, append, delete):
        step(world, table)
        world.observe()
    return table


Operation = Callable[[World, TableModel], object]


def rewrite(strategy: str = "binpack", order: str | None = None) -> Operation:
    def run(world: World, table: TableModel) -> object:
        return rewrite_data_files(
            world.load(table), options=ALL, strategy=strategy, sort_order=order
        )

    return run


def job(operation: str, **options: str) -> Operation:
    def run(world: World, table: TableModel) -> object:
        return Routes(world.url, table.identifier).run_job(operation, options)

    return run


def later(step: Step) -> Operation:
    """Return a step after the leases of readers and the quarantine have ended."""

    def run(world: World, table: TableModel) -> object:
        world.pass_time(2 * DAY_MS)
        return step(world, table)

    return run


OPERATIONS: dict[str, Operation] = {
    "manifests with equality deletes": job("rewrite_manifests"),
    "equality deletes": lambda world, table: convert_equality_deletes(world.load(table)),
    "position deletes": lambda world, table: rewrite_position_delete_files(
        world.load(table), options=ALL
    ),
    "manifests": job("rewrite_manifests"),
    "binpack": rewrite(),
    "dangling deletes": job("remove_dangling_deletes"),
    "more deletes": lambda world, table: (delete(world, table), upsert(world, table)),
    "manifests with deletes": job("rewrite_manifests", sort_by=""),
    "sort": rewrite("sort", "item DESC"),
    "zorder": rewrite("sort", "zorder(id, item)"),
    "expire": later(expire_everything),
    "undo": undo,
    "sweep": later(sweep),
    "orphans": remove_orphans,
}
"""In this order on one table. Those that change rows make work for those that follow."""
CHANGE_ROWS = ("more deletes",)


class Readers:
    """Reads the rows of a table with stock clients and with the oracle."""

    def __init__(
        self, world: World, table: TableModel, sql: SparkSession, iceberg: Catalog
    ) -> None:
        self._world = world
        self._table = table
        self._sql = sql
        self._iceberg = iceberg

    def spark(self) -> list[tuple[Any, ...]]:
        lineage = ", _row_id, _last_updated_sequence_number" if self._table.version == 3 else ""
        _, _, name = self._table.identifier.rpartition(".")
        return spark_rows(self._sql, f"SELECT id, kind, item{lineage} FROM {name} ORDER BY id")

    def oracle(self) -> list[tuple[Any, ...]]:
        self._world.observe()
        tree = self._table.tree
        rows = rows_of(tree.snapshots[tree.refs["main"]["snapshot-id"]], (1, 2, 3))
        lineage = self._table.version == 3
        return sorted(
            (*row.values, row.row_id, row.last_updated) if lineage else row.values for row in rows
        )

    def pyiceberg(self) -> list[tuple[Any, ...]]:
        found = self._iceberg.load_table(self._table.identifier).scan().to_arrow()
        return sorted(
            zip(*(found[name].to_pylist() for name in ("id", "kind", "item")), strict=True)
        )


@pytest.mark.parametrize("version", [2, 3])
def test_every_operation_keeps_all_rows(
    world: World, sql: SparkSession, iceberg: Catalog, version: int
) -> None:
    table = with_deletes(world, version)
    readers = Readers(world, table, sql, iceberg)
    before = readers.spark()
    assert before == readers.oracle()
    for name, operation in OPERATIONS.items():
        assert operation(world, table) is not None, f"{name} had nothing to do"
        if name in CHANGE_ROWS:
            before = readers.oracle()
        after = readers.spark()
        assert after == before, name
        assert readers.oracle() == before, name
        # PyIceberg reads no equality deletes.
        if name != "manifests with equality deletes":
            assert readers.pyiceberg() == [row[:3] for row in before], name
