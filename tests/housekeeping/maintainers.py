"""Random steps of maintenance: rewrites, expiry, sweeps, orphans, leases, intents, undo, time."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from frazil.maintenance import (
    convert_equality_deletes,
    rewrite_data_files,
    rewrite_position_delete_files,
)
from tests.housekeeping.rest_calls import Refused, Routes
from tests.housekeeping.world import (
    HOUR_MS,
    MARGIN_MS,
    ORPHAN_AGE_MS,
    Intent,
    Protected,
    TableModel,
    World,
    kind_of,
    now_ms,
)
from tests.housekeeping.writers import Step, declared, write_parquet

DAY_MS = 24 * HOUR_MS


def routes(world: World, table: TableModel) -> Routes:
    return Routes(world.url, table.identifier)


# --- rewrites -------------------------------------------------------------------------------------


def compact(world: World, table: TableModel) -> str:
    options = {"rewrite-all": "true"} if world.random.random() < 0.5 else {"min-input-files": "2"}
    branch = world.random.choice(sorted(table.heads))
    order = world.random.choice([None, None, "item DESC", "zorder(id, item)"])
    result = rewrite_data_files(
        world.load(table),
        branch=branch,
        options=options,
        strategy="binpack" if order is None else "sort",
        sort_order=order,
    )
    return f"compact {branch} by {order}: {result.rewritten_data_files_count} files"


def rewrite_manifests(world: World, table: TableModel) -> str:
    branch = world.random.choice(sorted(table.heads))
    result = routes(world, table).run_job("rewrite_manifests", {"branch": branch})
    return f"rewrite manifests of {branch}: {result}"


def remove_dangling(world: World, table: TableModel) -> str:
    branch = world.random.choice(sorted(table.heads))
    result = routes(world, table).run_job("remove_dangling_deletes", {"branch": branch})
    return f"remove dangling deletes of {branch}: {result}"


def rewrite_position_deletes(world: World, table: TableModel) -> str:
    branch = world.random.choice(sorted(table.heads))
    options = {"rewrite-all": "true"} if world.random.random() < 0.5 else {"min-input-files": "2"}
    result = rewrite_position_delete_files(world.load(table), branch=branch, options=options)
    return f"rewrite position deletes of {branch}: {result}"


def convert_deletes(world: World, table: TableModel) -> str:
    branch = world.random.choice(sorted(table.heads))
    result = convert_equality_deletes(world.load(table), branch=branch)
    return f"convert equality deletes of {branch}: {result}"


# --- expiry ---------------------------------------------------------------------------------------


def removable(world: World, table: TableModel) -> list[int]:
    heads = {ref["snapshot-id"] for ref in table.tree.refs.values()}
    return world.by_age(table, table.tree.snapshots.keys() - heads)


def remove_snapshots(world: World, table: TableModel) -> str | None:
    """Remove snapshots as stock clients do, often such as are leased; their files stay."""
    known = removable(world, table)
    leased = {id for id, entry in table.leases.values() if world.is_held(entry)}
    if world.random.random() < 0.5:
        known = [id for id in known if id in leased]
    if not known:
        return None
    ids = world.random.sample(known, min(len(known), world.random.randint(1, 3)))
    world.client.declare_metadata(
        table.identifier, [{"action": "remove-snapshots", "snapshot-ids": [id]} for id in ids]
    )
    return f"remove the snapshots {ids}"


def expire(world: World, table: TableModel) -> str:
    """Expire by age and count, or by ids; leases must hold what they name."""
    options: dict[str, str] = {"retain_last": str(world.random.randint(1, 4))}
    snapshots = list(table.tree.snapshots.values())
    known = removable(world, table)
    if known and world.random.random() < 0.3:
        ids = world.random.sample(known, min(len(known), 3))
        options = {"snapshot_ids": ",".join(map(str, ids))}
    elif snapshots:
        at = world.random.choice(snapshots).snapshot["timestamp-ms"] + 1
        options["older_than"] = str(at)
    if world.random.random() < 0.5:
        options["clean_expired_metadata"] = "true"
    if world.random.random() < 0.2:
        options["delete_files"] = "false"
        table.is_unrecorded = True
    result = routes(world, table).run_job("expire_snapshots", options)
    return f"expire {options}: {result}"


def expire_everything(world: World, table: TableModel) -> str:
    options = {"older_than": str(now_ms()), "retain_last": "1"}
    result = routes(world, table).run_job("expire_snapshots", options)
    return f"expire everything: {result}"


def undo(world: World, table: TableModel) -> str | None:
    """Bring an expired snapshot back."""
    held = [id for id, entry in table.quarantined.items() if world.is_held(entry)]
    if not held:
        return None
    snapshot_id = world.random.choice(held)
    result = routes(world, table).run_job("undo", {"snapshot_id": str(snapshot_id)})
    tag = f"undo-{snapshot_id}"
    table.tags[tag] = snapshot_id
    return f"bring {snapshot_id} back: {result}"


# --- deletion -------------------------------------------------------------------------------------


def sweep(world: World, table: TableModel) -> str:
    result = routes(world, table).run_job("delete_unreachable_files")
    return f"sweep: {result}"


def remove_orphans(world: World, table: TableModel) -> str:
    options = {"older_than": str(now_ms() - ORPHAN_AGE_MS), "max_orphan_share": "1"}
    result = routes(world, table).run_job("remove_orphan_files", options)
    return f"remove orphans: {result}"


def dry_run(world: World, table: TableModel) -> str:
    """A dry run deletes nothing."""
    before = world.files(table)
    operation = world.random.choice(
        ["expire_snapshots", "delete_unreachable_files", "remove_orphan_files"]
    )
    result = routes(world, table).run_job(operation, dry_run=True)
    assert world.files(table) == before, f"a dry run of {operation} changed files"
    return f"dry run of {operation}: {result}"


# --- leases ---------------------------------------------------------------------------------------


def take_lease(world: World, table: TableModel) -> str | None:
    known = {id: tree.files for id, tree in table.tree.snapshots.items()}
    held = {id: entry.files for id, entry in table.quarantined.items() if world.is_held(entry)}
    known |= held
    if not known:
        return None
    snapshot_id = world.random.choice(list(world.random.choice([known, held or known])))
    ttl_ms = world.random.choice([HOUR_MS, 2 * DAY_MS])
    lease_id = routes(world, table).take_lease(snapshot_id, ttl_ms)
    files = known[snapshot_id]
    table.leases[lease_id] = snapshot_id, Protected(files, now_ms() + ttl_ms)
    return f"lease {snapshot_id} for {ttl_ms / HOUR_MS} hours"


def renew_lease(world: World, table: TableModel) -> str | None:
    held = [id for id, (_, entry) in table.leases.items() if world.is_held(entry)]
    if not held:
        return None
    lease_id = world.random.choice(held)
    snapshot_id, entry = table.leases[lease_id]
    routes(world, table).renew_lease(lease_id, DAY_MS)
    table.leases[lease_id] = snapshot_id, Protected(entry.files, now_ms() + DAY_MS)
    return f"renew the lease on {snapshot_id}"


def release_lease(world: World, table: TableModel) -> str | None:
    held = [id for id, (_, entry) in table.leases.items() if world.is_held(entry)]
    if not held:
        return None
    lease_id = world.random.choice(held)
    routes(world, table).release_lease(lease_id)
    snapshot_id, _ = table.leases.pop(lease_id)
    return f"release the lease on {snapshot_id}"


# --- intents --------------------------------------------------------------------------------------


def declare_intent(world: World, table: TableModel) -> str:
    """Declare a folder and write files into it, of which none is committed yet."""
    folder = f"{table.location}/data/{uuid4()}"
    ttl_ms = world.random.choice([HOUR_MS, DAY_MS])
    intent_id = routes(world, table).declare_intent(f"file://{folder}", ttl_ms)
    kind = kind_of(world.random.randint(0, 1))
    rows = {
        f"{folder}/{number}.parquet": {
            id: item for id, item in world.new_rows(4).items() if kind_of(id) == kind
        }
        for number in range(2)
    }
    for path, own in rows.items():
        write_parquet(path, columns_of(own))
    table.intents[intent_id] = Intent(folder, rows, now_ms() + ttl_ms)
    return f"intend {Path(folder).name} for {ttl_ms / HOUR_MS} hours"


def columns_of(rows: dict[int, str]) -> dict[str, list[object]]:
    return {
        "id": list(rows),
        "kind": [kind_of(id) for id in rows],
        "item": list(rows.values()),
    }


def commit_intended(world: World, table: TableModel) -> str | None:
    """Commit a file of an intent, also of one that has ended, if it was not swept."""
    known = [id for id, intent in table.intents.items() if intent.rows]
    if not known:
        return None
    intent = table.intents[world.random.choice(known)]
    path = world.random.choice(list(intent.rows))
    rows = intent.rows[path]
    is_live = intent.until_ms > now_ms() + MARGIN_MS
    if not Path(path).exists():
        # It must have been swept: then the server refuses it, whatever the client believes.
        assert not is_live, f"{path} was deleted below a live intent"
        del intent.rows[path]
        file = declared(table, path, rows, size=1_000)
        try:
            world.client.append_files(table.identifier, [file])
        except world.refusals as refused:
            return f"{Path(path).name} was swept, and refused: {refused}"
        raise AssertionError(f"{path} was deleted, and then committed")
    world.client.append_files(table.identifier, [declared(table, path, rows)])
    del intent.rows[path]
    table.heads["main"] = {**table.heads["main"], **rows}
    return f"commit {sorted(rows)} of an intent"


def end_intent(world: World, table: TableModel) -> str | None:
    live = [id for id, intent in table.intents.items() if intent.until_ms > now_ms() + MARGIN_MS]
    if not live:
        return None
    intent_id = world.random.choice(live)
    routes(world, table).end_intent(intent_id)
    intent = table.intents[intent_id]
    intent.until_ms = 0
    return f"end the intent {Path(intent.folder).name}"


# --- purge ----------------------------------------------------------------------------------------


def purge(world: World, table: TableModel) -> str | None:
    """Drop a table with its files, which stay until the quarantine has ended."""
    if len(world.live_tables()) < 3:
        return None
    world.purge(table)
    return "purge"


def undo_purge(world: World, table: TableModel) -> str | None:
    if table.purged_until_ms < now_ms() + MARGIN_MS:
        return None
    result = routes(world, table).run_job("undo")
    table.is_dropped = False
    return f"bring the table back: {result}"


# --- time -----------------------------------------------------------------------------------------


def pass_time(world: World, table: TableModel) -> str:
    delta_ms = world.random.choice([HOUR_MS // 2, HOUR_MS, 7 * HOUR_MS, 26 * HOUR_MS])
    world.pass_time(delta_ms)
    return f"{delta_ms / HOUR_MS} hours pass"


def settle(world: World) -> None:
    """End what protects files, and delete everything that nothing reaches."""
    for _ in range(2):
        # What a listing finds is in quarantine first, and deleted by the second round.
        world.pass_time(30 * DAY_MS)
        for table in world.tables:
            if not table.is_dropped:
                remove_orphans(world, table)
            try:
                sweep(world, table)
            except Refused as refused:
                # Nothing is known of a purged table after its files are gone.
                if not table.is_dropped or refused.status != 404:
                    raise
        world.observe()
    for table in world.tables:
        assert not world.garbage(table), sorted(world.garbage(table))
    world.check_events()


MAINTAINERS: dict[str, tuple[Step, int]] = {
    "compact": (compact, 6),
    "rewrite_manifests": (rewrite_manifests, 2),
    "remove_dangling": (remove_dangling, 2),
    "rewrite_position_deletes": (rewrite_position_deletes, 2),
    "convert_deletes": (convert_deletes, 2),
    "remove_snapshots": (remove_snapshots, 4),
    "expire": (expire, 5),
    "expire_everything": (expire_everything, 2),
    "undo": (undo, 3),
    "sweep": (sweep, 6),
    "remove_orphans": (remove_orphans, 3),
    "dry_run": (dry_run, 1),
    "take_lease": (take_lease, 5),
    "renew_lease": (renew_lease, 1),
    "release_lease": (release_lease, 1),
    "declare_intent": (declare_intent, 4),
    "commit_intended": (commit_intended, 4),
    "end_intent": (end_intent, 2),
    "purge": (purge, 1),
    "pass_time": (pass_time, 5),
}
OF_DROPPED_TABLES: dict[str, tuple[Step, int]] = {
    "undo_purge": (undo_purge, 2),
    "sweep": (sweep, 2),
    "pass_time": (pass_time, 1),
}
