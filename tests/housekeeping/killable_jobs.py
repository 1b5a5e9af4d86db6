"""The jobs that are killed at each of their operations."""

from __future__ import annotations

from frazil.maintenance import convert_equality_deletes, rewrite_data_files
from tests.housekeeping import writers
from tests.housekeeping.killed import KillableJob, hasty_client
from tests.housekeeping.rest_calls import Routes
from tests.housekeeping.world import QUARANTINE_MS, TableModel, World, now_ms


def run_rewrite_data_files(url: str, name: str) -> None:
    with hasty_client(url) as client:
        rewrite_data_files(client.load_table(name), options={"rewrite-all": "true"})


def small_files(world: World, table: TableModel) -> None:
    """Write small files, of which some have deleted rows."""
    for _ in range(3):
        writers.append(world, table)
    world.observe()
    writers.delete(world, table)


def run_convert_equality_deletes(url: str, name: str) -> None:
    with hasty_client(url) as client:
        convert_equality_deletes(client.load_table(name))


def equality_deletes(world: World, table: TableModel) -> None:
    """Delete rows by equality, some of which are in files with other deletes."""
    small_files(world, table)
    for _ in range(2):
        world.observe()
        writers.equality_delete(world, table)


def run_rewrite_manifests(url: str, name: str) -> None:
    Routes(url, name).run_job("rewrite_manifests")


def run_remove_dangling_deletes(url: str, name: str) -> None:
    Routes(url, name).run_job("remove_dangling_deletes")


def dangling_deletes(world: World, table: TableModel) -> None:
    """Delete rows by equality, then rewrite their files."""
    small_files(world, table)
    world.observe()
    writers.equality_delete(world, table)
    run_rewrite_data_files(world.url, table.identifier)


def run_expire_snapshots(url: str, name: str) -> None:
    Routes(url, name).run_job("expire_snapshots", {"older_than": str(now_ms()), "retain_last": "1"})


def run_sweep(url: str, name: str) -> None:
    Routes(url, name).run_job("delete_unreachable_files")


def compacted(world: World, table: TableModel) -> None:
    """Replace files, so that only old snapshots reach them."""
    small_files(world, table)
    world.observe()
    run_rewrite_data_files(world.url, table.identifier)


def due(world: World, table: TableModel) -> None:
    """Expire snapshots, and let their quarantine pass."""
    compacted(world, table)
    world.observe()
    run_expire_snapshots(world.url, table.identifier)
    world.observe()
    world.pass_time(2 * QUARANTINE_MS)


JOBS = [
    KillableJob("rewrite_data_files", run_rewrite_data_files, "client", small_files),
    KillableJob("rewrite_data_files", run_rewrite_data_files, "server", small_files),
    KillableJob(
        "convert_equality_deletes", run_convert_equality_deletes, "client", equality_deletes
    ),
    KillableJob("rewrite_manifests", run_rewrite_manifests, "server", small_files),
    KillableJob("expire_snapshots", run_expire_snapshots, "server", compacted),
    KillableJob("delete_unreachable_files", run_sweep, "server", due),
    KillableJob("remove_dangling_deletes", run_remove_dangling_deletes, "server", dangling_deletes),
]
