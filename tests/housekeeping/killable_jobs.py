"""The jobs that are killed at each of their operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frazil.maintenance import (
    convert_equality_deletes,
    rewrite_data_files,
    rewrite_position_delete_files,
)
from tests.housekeeping import writers
from tests.housekeeping.killed import KillableJob, hasty_client
from tests.housekeeping.maintainers import DAY_MS, expire_everything, routes
from tests.housekeeping.rest_calls import Refused, Routes
from tests.housekeeping.world import HOUR_MS, ORPHAN_AGE_MS, TableModel, World, now_ms

Options = Mapping[str, str]
NO_OPTIONS: Final[Options] = {}

# --- what there is to do --------------------------------------------------------------------------


def small_files(world: World, table: TableModel) -> Options:
    """Write small files, of which some have deleted rows."""
    for _ in range(3):
        writers.append(world, table)
    world.observe()
    writers.delete(world, table)
    return NO_OPTIONS


def equality_deletes(world: World, table: TableModel) -> Options:
    """Delete rows by equality, some of which are in files with other deletes."""
    small_files(world, table)
    for _ in range(2):
        world.observe()
        writers.equality_delete(world, table)
    return NO_OPTIONS


def dangling_deletes(world: World, table: TableModel) -> Options:
    """Delete rows by equality, then rewrite their files and leave the deletes there."""
    equality_deletes(world, table)
    options = {"rewrite-all": "true", "remove-dangling-deletes": "false"}
    rewrite_data_files(world.load(table), options=options)
    return NO_OPTIONS


def old_snapshots(world: World, table: TableModel) -> Options:
    """Rewrite files, so that only old snapshots need the old ones; keep one of those."""
    small_files(world, table)
    world.observe()
    writers.set_statistics(world, table)
    first = world.by_age(table, table.tree.snapshots)[1]
    world.client.create_tag(table.identifier, "kept", first)
    table.tags["kept"] = first
    run_rewrite_data_files(world.url, table.identifier, NO_OPTIONS)
    # The plans of the rewrite hold leases for a day.
    world.pass_time(2 * DAY_MS)
    return {"older_than": str(now_ms() + DAY_MS), "retain_last": "1"}


def old_snapshots_without_quarantine(world: World, table: TableModel) -> Options:
    table.quarantine_ms = 0
    world.client.set_properties(table.identifier, {"frazil.gc.quarantine-ms": "0"})
    return old_snapshots(world, table)


def expired_snapshots(world: World, table: TableModel) -> Options:
    """Expire snapshots, of which the first is undone by the job."""
    old_snapshots(world, table)
    world.observe()
    expire_everything(world, table)
    world.observe()
    return {"snapshot_id": str(min(table.quarantined))}


def due_files(world: World, table: TableModel) -> Options:
    """Let the quarantine of snapshots end, and the intent of a writer."""
    expired_snapshots(world, table)
    folder = f"file://{table.location}/data/dead"
    routes(world, table).declare_intent(folder, HOUR_MS)
    writers.write_parquet(f"{table.location}/data/dead/left.parquet", {"id": [1]})
    world.pass_time(DAY_MS)
    return NO_OPTIONS


def loose_files(world: World, table: TableModel) -> Options:
    small_files(world, table)
    for _ in range(3):
        writers.leave_loose_file(world, table)
    world.pass_time(2 * DAY_MS)
    writers.leave_loose_file(world, table)
    return {"older_than": str(now_ms() - ORPHAN_AGE_MS), "max_orphan_share": "1"}


def purged_table(world: World, table: TableModel) -> Options:
    old_snapshots(world, table)
    world.observe()
    world.purge(table)
    world.pass_time(DAY_MS)
    return NO_OPTIONS


# --- the jobs -------------------------------------------------------------------------------------


def run_rewrite_data_files(url: str, name: str, options: Options) -> None:
    with hasty_client(url) as client:
        rewrite_data_files(client.load_table(name), options={"rewrite-all": "true"})


def run_convert_equality_deletes(url: str, name: str, options: Options) -> None:
    with hasty_client(url) as client:
        convert_equality_deletes(client.load_table(name))


def run_rewrite_position_delete_files(url: str, name: str, options: Options) -> None:
    with hasty_client(url) as client:
        rewrite_position_delete_files(client.load_table(name), options={"rewrite-all": "true"})


class ServerJob:
    """Starts a job of the server and waits for its end."""

    def __init__(self, operation: str) -> None:
        self.operation = operation

    def __call__(self, url: str, name: str, options: Options) -> None:
        Routes(url, name).run_job(self.operation, options)


def run_undo(url: str, name: str, options: Options) -> None:
    """Bring a snapshot back. The run that was killed may have done it."""
    try:
        Routes(url, name).run_job("undo", options)
    except Refused as refused:
        with hasty_client(url) as client:
            known = {own.snapshot_id for own in client.load_table(name).snapshots}
        if int(options["snapshot_id"]) not in known:
            raise refused


def run_purge(url: str, name: str, options: Options) -> None:
    with hasty_client(url) as client:
        client.drop_table(name, purge=True, if_exists=True)


def run_sweep_of_purged(url: str, name: str, options: Options) -> None:
    """Delete the files of a purged table, of which nothing is known afterwards."""
    try:
        Routes(url, name).run_job("delete_unreachable_files")
    except Refused as refused:
        if refused.status != 404:
            raise


JOBS = [
    KillableJob("rewrite_data_files", run_rewrite_data_files, "client", small_files),
    KillableJob("rewrite_data_files", run_rewrite_data_files, "server", small_files),
    KillableJob(
        "convert_equality_deletes", run_convert_equality_deletes, "client", equality_deletes
    ),
    KillableJob(
        "rewrite_position_delete_files", run_rewrite_position_delete_files, "client", small_files
    ),
    KillableJob("rewrite_manifests", ServerJob("rewrite_manifests"), "server", small_files),
    KillableJob(
        "remove_dangling_deletes", ServerJob("remove_dangling_deletes"), "server", dangling_deletes
    ),
    KillableJob("expire_snapshots", ServerJob("expire_snapshots"), "server", old_snapshots),
    KillableJob(
        "expire_and_delete",
        ServerJob("expire_snapshots"),
        "server",
        old_snapshots_without_quarantine,
    ),
    KillableJob(
        "delete_unreachable_files", ServerJob("delete_unreachable_files"), "server", due_files
    ),
    KillableJob("remove_orphan_files", ServerJob("remove_orphan_files"), "server", loose_files),
    KillableJob("undo", run_undo, "server", expired_snapshots),
    KillableJob("purge", run_purge, "server", old_snapshots),
    KillableJob("delete_purged_table", run_sweep_of_purged, "server", purged_table),
]
