"""Random steps that write: rows, refs, staged snapshots, statistics, and writers that die.

A step changes the catalog through the client, and the model after it has succeeded. It returns a
text for the log, or None if it had nothing to do.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from frazil import Client
from frazil.wire.declared_content import DeclaredDataFile, EqualityDeleteFile, ValueMap
from tests.housekeeping.world import Rows, TableModel, World, kind_of, sent, without

Step: TypeAlias = Callable[[World, TableModel], "str | None"]


def some_branch(world: World, table: TableModel) -> str:
    return world.random.choice(sorted(table.heads))


def some_ids(world: World, table: TableModel, branch: str, most: int = 4) -> list[int]:
    ids = sorted(table.heads[branch])
    return world.random.sample(ids, min(len(ids), world.random.randint(1, most)))


def one_of(ids: list[int]) -> str:
    return " or ".join(f"id = {id}" for id in ids)


# --- rows -----------------------------------------------------------------------------------------


def append(world: World, table: TableModel) -> str:
    branch = some_branch(world, table)
    rows = world.new_rows(world.random.randint(1, 6))
    world.client.append(table.identifier, sent(rows), branch=branch)
    table.heads[branch] = {**table.heads[branch], **rows}
    return f"append {sorted(rows)} to {branch}"


def delete(world: World, table: TableModel) -> str | None:
    branch = some_branch(world, table)
    ids = some_ids(world, table, branch)
    if not ids:
        return None
    mode = world.random.choice(["merge-on-read", "merge-on-read", "copy-on-write"])
    world.client.delete(table.identifier, one_of(ids), branch=branch, mode=mode)
    table.heads[branch] = without(table.heads[branch], ids)
    return f"delete {ids} from {branch}, {mode}"


def upsert(world: World, table: TableModel) -> str:
    branch = some_branch(world, table)
    rows = {id: world.new_item() for id in some_ids(world, table, branch)}
    rows |= world.new_rows(1)
    world.client.upsert(table.identifier, sent(rows), branch=branch)
    table.heads[branch] = {**table.heads[branch], **rows}
    return f"upsert {sorted(rows)} on {branch}"


def overwrite(world: World, table: TableModel) -> str | None:
    branch = some_branch(world, table)
    ids = some_ids(world, table, branch)
    if not ids:
        return None
    rows = world.new_rows(2)
    world.client.overwrite(table.identifier, sent(rows), one_of(ids), branch=branch)
    table.heads[branch] = {**without(table.heads[branch], ids), **rows}
    return f"overwrite {ids} by {sorted(rows)} on {branch}"


def equality_delete(world: World, table: TableModel) -> str | None:
    """Delete rows by their id, as streaming writers do."""
    branch = some_branch(world, table)
    ids = some_ids(world, table, branch)
    if not ids:
        return None
    if table.partitioned:
        ids = [id for id in ids if kind_of(id) == kind_of(ids[0])]
    equality_delete_of(table, ids, world.client, branch)
    table.heads[branch] = without(table.heads[branch], ids)
    return f"delete {ids} from {branch} by equality"


def equality_delete_of(
    table: TableModel, ids: list[int], client: Client, branch: str = "main"
) -> None:
    """Commit one equality-delete file for each kind among the rows."""
    kinds = {kind_of(id) for id in ids} if table.partitioned else {None}
    for kind in sorted(kinds, key=str):
        own = [id for id in ids if kind is None or kind_of(id) == kind]
        _equality_delete(table, own, kind, client, branch)


def _equality_delete(
    table: TableModel, ids: list[int], kind: str | None, client: Client, branch: str
) -> None:
    path = f"{table.location}/data/equality-{uuid4()}.parquet"
    write_parquet(path, {"id": ids})
    file = EqualityDeleteFile(
        spec_id=0,
        partition=() if kind is None else (kind,),
        file_path=f"file://{path}",
        file_format="parquet",
        file_size_in_bytes=Path(path).stat().st_size,
        record_count=len(ids),
        equality_ids=(1,),
        lower_bounds=ValueMap(keys=(1,), values=(min(ids),)),
        upper_bounds=ValueMap(keys=(1,), values=(max(ids),)),
    )
    client.row_delta(
        table.identifier, (), [file], command="delete", isolation="snapshot", branch=branch
    )


def write_parquet(path: str, columns: dict[str, list[Any]]) -> None:
    """Write columns with the field ids of the tables of the state machine."""
    ids = {"id": "1", "kind": "2", "item": "3"}
    types = {"id": pa.int64(), "kind": pa.string(), "item": pa.string()}
    schema = pa.schema(
        [pa.field(name, types[name], metadata={"PARQUET:field_id": ids[name]}) for name in columns]
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns, schema=schema), path)


# --- staged snapshots, refs, statistics -----------------------------------------------------------


def stage(world: World, table: TableModel) -> str:
    rows = world.new_rows(2)
    commit = world.client.append(table.identifier, sent(rows), stage_only=True)
    assert commit.snapshot_id is not None
    table.staged[commit.snapshot_id] = rows
    return f"stage {sorted(rows)} as {commit.snapshot_id}"


def cherry_pick(world: World, table: TableModel) -> str | None:
    if not table.staged:
        return None
    branch = some_branch(world, table)
    snapshot_id = world.random.choice(list(table.staged))
    world.client.cherry_pick(table.identifier, snapshot_id, branch)
    table.heads[branch] = {**table.heads[branch], **table.staged.pop(snapshot_id)}
    return f"cherry-pick {snapshot_id} to {branch}"


def branch_or_tag(world: World, table: TableModel) -> str | None:
    known = world.by_age(table, table.by_snapshot)
    if not known:
        return None
    at = world.random.choice(known)
    name = f"ref-{world.number()}"
    if len(table.heads) < 3 and world.random.random() < 0.4:
        world.client.create_branch(table.identifier, name, at)
        table.heads[name] = table.by_snapshot[at]
        return f"branch {name} at {at}"
    if world.random.random() < 0.3:
        world.client.create_tag(table.identifier, name, at, max_ref_age_ms=1)
        table.aging.add(name)
    else:
        world.client.create_tag(table.identifier, name, at)
    table.tags[name] = at
    return f"tag {name} at {at}"


def remove_ref(world: World, table: TableModel) -> str | None:
    names = sorted({*table.heads, *table.tags} - {"main"} - table.aging)
    if not names:
        return None
    name = world.random.choice(names)
    if name in table.heads:
        world.client.remove_branch(table.identifier, name)
        del table.heads[name]
    else:
        world.client.remove_tag(table.identifier, name)
        del table.tags[name]
    return f"remove {name}"


def rollback(world: World, table: TableModel) -> str | None:
    branch = some_branch(world, table)
    ref = table.tree.refs.get(branch)
    if ref is None:
        return None
    ancestors = list(table.tree.ancestors(ref["snapshot-id"]))[:4]
    known = [id for id in ancestors if id in table.by_snapshot]
    if not known:
        return None
    to = world.random.choice(known)
    world.client.rollback(table.identifier, to, branch=branch)
    table.heads[branch] = table.by_snapshot[to]
    return f"roll {branch} back to {to}"


def set_statistics(world: World, table: TableModel) -> str | None:
    ref = table.tree.refs.get("main")
    if ref is None:
        return None
    path = f"{table.location}/metadata/{uuid4()}.stats"
    footer = write_statistics(path, ref["snapshot-id"])
    document = {
        "snapshot-id": ref["snapshot-id"],
        "statistics-path": f"file://{path}",
        "file-size-in-bytes": Path(path).stat().st_size,
        "file-footer-size-in-bytes": footer,
        "blob-metadata": [],
    }
    world.client.declare_metadata(
        table.identifier, [{"action": "set-statistics", "statistics": document}]
    )
    return f"statistics of {ref['snapshot-id']}"


def write_statistics(path: str, snapshot_id: int) -> int:
    """Write a Puffin file with one blob; return the size of its footer."""
    blob = {
        "type": "apache-datasketches-theta-v1",
        "fields": [1],
        "snapshot-id": snapshot_id,
        "sequence-number": 1,
        "offset": 4,
        "length": 4,
    }
    payload = json.dumps({"blobs": [blob], "properties": {}}).encode()
    footer = b"PFA1" + payload + struct.pack("<i4s4s", len(payload), bytes(4), b"PFA1")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(b"PFA1blob" + footer)
    return len(footer)


def change_definition(world: World, table: TableModel) -> str:
    """Add and drop a column, so that schemas are left that no snapshot needs."""
    name = f"extra{world.number()}"
    world.client.add_column(table.identifier, name, "int")
    world.client.drop_column(table.identifier, name)
    return f"add and drop {name}"


# --- writers that die -----------------------------------------------------------------------------


def leave_loose_file(world: World, table: TableModel) -> str:
    """Write a file and die: only its age protects it."""
    path = f"{table.location}/data/loose-{uuid4()}.parquet"
    write_parquet(path, {"id": [1], "kind": ["a"], "item": ["lost"]})
    table.loose.add(path)
    return f"a writer dies and leaves {Path(path).name}"


def declare_loose_file(world: World, table: TableModel) -> str | None:
    """Commit a file that was written before, while the garbage collection was running."""
    path = f"{table.location}/data/late-{uuid4()}.parquet"
    rows = world.new_rows(2)
    kind = kind_of(min(rows))
    if table.partitioned:
        rows = {id: item for id, item in rows.items() if kind_of(id) == kind}
    write_parquet(
        path,
        {
            "id": list(rows),
            "kind": [kind_of(id) for id in rows],
            "item": list(rows.values()),
        },
    )
    world.client.append_files(table.identifier, [declared(table, path, rows)])
    table.heads["main"] = {**table.heads["main"], **rows}
    table.declared[path] = rows
    return f"append the file {Path(path).name}"


def remove_file(world: World, table: TableModel) -> str | None:
    """Remove a file by its path; `add_file_again` may bring it back."""
    files = head_files(table)
    known = [path for path in table.declared if path in files]
    if not known:
        return None
    path = world.random.choice(known)
    world.client.delete_files(table.identifier, [files[path]])
    # Rows that were updated since are in other files.
    own = table.declared[path].items()
    table.heads["main"] = dict(table.heads["main"].items() - own)
    return f"remove the file {Path(path).name}"


def add_file_again(world: World, table: TableModel) -> str | None:
    """Append a file that was removed, and that old or expired snapshots still reach."""
    files = head_files(table)
    known = [
        path
        for path, rows in table.declared.items()
        if path not in files and Path(path).exists() and not rows.keys() & table.heads["main"]
    ]
    if not known:
        return None
    path = world.random.choice(known)
    rows = table.declared[path]
    world.client.append_files(table.identifier, [declared(table, path, rows)])
    table.heads["main"] = {**table.heads["main"], **rows}
    # The rows get new ids on main, and keep the old ones on other branches.
    table.ambiguous |= set(rows.items())
    return f"append the file {Path(path).name} again"


def head_files(table: TableModel) -> dict[str, str]:
    """Return the paths of the data files of main."""
    ref = table.tree.refs.get("main")
    if ref is None:
        return {}
    return {path: f"file://{path}" for path in table.tree.snapshots[ref["snapshot-id"]].data}


def declared(table: TableModel, path: str, rows: Rows, size: int | None = None) -> DeclaredDataFile:
    """Return a file of rows of one kind, with the bounds of their ids."""
    return DeclaredDataFile(
        spec_id=0,
        partition=(kind_of(min(rows)),) if table.partitioned else (),
        file_path=f"file://{path}",
        file_format="parquet",
        file_size_in_bytes=Path(path).stat().st_size if size is None else size,
        record_count=len(rows),
        lower_bounds=ValueMap(keys=(1,), values=(min(rows),)),
        upper_bounds=ValueMap(keys=(1,), values=(max(rows),)),
    )


WRITERS: dict[str, tuple[Step, int]] = {
    "append": (append, 12),
    "delete": (delete, 10),
    "upsert": (upsert, 8),
    "overwrite": (overwrite, 4),
    "equality_delete": (equality_delete, 4),
    "stage": (stage, 3),
    "cherry_pick": (cherry_pick, 3),
    "branch_or_tag": (branch_or_tag, 5),
    "remove_ref": (remove_ref, 4),
    "rollback": (rollback, 3),
    "set_statistics": (set_statistics, 2),
    "change_definition": (change_definition, 1),
    "leave_loose_file": (leave_loose_file, 2),
    "declare_loose_file": (declare_loose_file, 3),
    "remove_file": (remove_file, 3),
    "add_file_again": (add_file_again, 3),
}
"""Each step with its weight."""
