"""Random steps of maintenance: rewrites, expiry, sweeps, orphans, leases, intents, undo, time."""

from __future__ import annotations

from frazil.maintenance import rewrite_data_files
from tests.housekeeping.world import HOUR_MS, TableModel, World
from tests.housekeeping.writers import Step

# --- rewrites -------------------------------------------------------------------------------------


def compact(world: World, table: TableModel) -> str:
    options = {"rewrite-all": "true"} if world.random.random() < 0.5 else {"min-input-files": "2"}
    branch = world.random.choice(sorted(table.heads))
    result = rewrite_data_files(world.load(table), branch=branch, options=options)
    return f"compact {branch}: {result.rewritten_data_files_count} files"


# --- expiry ---------------------------------------------------------------------------------------


def removable(world: World, table: TableModel) -> list[int]:
    heads = {ref["snapshot-id"] for ref in table.tree.refs.values()}
    return world.by_age(table, table.tree.snapshots.keys() - heads)


def remove_snapshots(world: World, table: TableModel) -> str | None:
    """Remove snapshots as stock clients do; their files stay."""
    known = removable(world, table)
    if not known:
        return None
    ids = world.random.sample(known, min(len(known), world.random.randint(1, 5)))
    world.client.declare_metadata(
        table.identifier, [{"action": "remove-snapshots", "snapshot-ids": [id]} for id in ids]
    )
    return f"remove the snapshots {ids}"


# --- time -----------------------------------------------------------------------------------------


def pass_time(world: World, table: TableModel) -> str:
    delta_ms = world.random.choice([HOUR_MS // 2, HOUR_MS, 7 * HOUR_MS])
    world.pass_time(delta_ms)
    return f"{delta_ms / HOUR_MS} hours pass"


def settle(world: World) -> None:
    """End what protects files, and delete everything that nothing reaches."""


MAINTAINERS: dict[str, tuple[Step, int]] = {
    "compact": (compact, 6),
    "remove_snapshots": (remove_snapshots, 4),
    "pass_time": (pass_time, 4),
}
