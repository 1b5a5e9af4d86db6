"""`frazil plan`: the files that a scan must read, and why it can skip the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from frazil.cli.shared.catalog_command import CatalogChoice
from frazil.cli.shared.printing import (
    count_text,
    heading,
    plain,
    print_json,
    print_table,
    print_tree,
    size_text,
    styled,
)
from frazil.cli.shared.typed_names import table_and_ref
from frazil.cli.tables.snapshot_text import find_snapshot
from frazil.values.transforms import calendar_text, parse_transform
from frazil.wire.errors import NotFound
from frazil.wire.expressions import parse_expression
from frazil.wire.file_actions import MAIN
from frazil.wire.filter_builders import filter_json
from frazil.wire.filter_text import filter_text

if TYPE_CHECKING:
    from rich.tree import Tree

    from frazil.client.declare.client_table import Table
    from frazil.client.declare.scan_plans import Plan, Walk
    from frazil.wire.scan_planning import FileScanTask, PlannedDeleteFile


_MAX_RESIDUAL: Final = 100


def run(
    choice: CatalogChoice,
    name: str,
    where: str | None,
    *,
    select: Sequence[str] | None,
    start: str | None,
    end: str | None,
    limit: int | None,
) -> None:
    identifier, ref = table_and_ref(name)
    incremental = start is not None or end is not None
    if ref is not None and incremental:
        choice.usage("--from and --to select the snapshots: leave @ out")
    with choice.connect() as client:
        table = client.load_table(identifier)
        snapshots = _increment(table, start, end) if incremental else {"snapshot": _at(table, ref)}
        plan = table.plan(where, select=select or None, explain=True, max_files=limit, **snapshots)
    if choice.as_json:
        print_json(_document(table, where, snapshots, plan))
    else:
        _print(table, where, snapshots, plan)


def _at(table: Table, ref: str | None) -> str | int | None:
    """Return the snapshot to plan; a ref stays a ref, because branches use the table's schema."""
    if ref is None or ref in table.refs:
        return ref
    snapshot = find_snapshot(table, ref)
    return None if snapshot is None else snapshot.snapshot_id


def _increment(table: Table, start: str | None, end: str | None) -> dict[str, int | None]:
    """Return the range of snapshots; without a start it begins before the first snapshot."""
    first = None if start is None else find_snapshot(table, start)
    last = find_snapshot(table, end or MAIN)
    if last is None:
        raise NotFound(f"{table} has no snapshot for --to")
    return {
        "from_snapshot": None if first is None else first.snapshot_id,
        "to_snapshot": last.snapshot_id,
    }


# --- JSON -----------------------------------------------------------------------------------------


def _document(
    table: Table, where: str | None, snapshots: Mapping[str, Any], plan: Plan
) -> dict[str, Any]:
    return {
        "table": str(table.identifier),
        **_named_snapshots(table, snapshots),
        "filter": None if where is None else filter_json(where),
        "walk": None if plan.walk is None else msgspec.to_builtins(plan.walk),
        "is-whole": plan.is_whole,
        "files": [_file_document(table, task) for task in plan.tasks],
    }


def _named_snapshots(table: Table, snapshots: Mapping[str, Any]) -> dict[str, int | None]:
    if "snapshot" not in snapshots:
        start, end = snapshots["from_snapshot"], snapshots["to_snapshot"]
        return {"from-snapshot-id": start, "to-snapshot-id": end}
    at = snapshots["snapshot"]
    if isinstance(at, str):
        at = table.refs[at].snapshot_id
    return {"snapshot-id": table.head() if at is None else at}


def _file_document(table: Table, task: FileScanTask) -> dict[str, Any]:
    file = task.data_file
    return {
        "file-path": file.file_path,
        "file-format": file.file_format,
        "spec-id": file.spec_id,
        "partition": partition_text(table, file.spec_id, file.partition),
        "record-count": file.record_count,
        "size-in-bytes": file.file_size_in_bytes,
        "delete-files": [_delete_document(file) for file in task.delete_files],
        "residual-filter": task.residual,
    }


def _delete_document(file: PlannedDeleteFile) -> dict[str, Any]:
    document: dict[str, Any] = {
        "content": file.content,
        "file-path": file.file_path,
        "file-format": file.file_format,
        "record-count": file.record_count,
        "size-in-bytes": file.content_size_in_bytes or file.file_size_in_bytes,
    }
    if file.content_offset is not None:
        document["content-offset"] = file.content_offset
    if file.equality_ids is not None:
        document["equality-ids"] = list(file.equality_ids)
    return document


# --- text -----------------------------------------------------------------------------------------


def _print(table: Table, where: str | None, snapshots: Mapping[str, Any], plan: Plan) -> None:
    incremental = "snapshot" not in snapshots
    named = _named_snapshots(table, snapshots)
    if incremental:
        start = named["from-snapshot-id"]
        since = "the beginning" if start is None else f"snapshot {start}"
        which = f"appended after {since}, up to snapshot {named['to-snapshot-id']}"
    else:
        at = named["snapshot-id"]
        which = "no snapshot yet" if at is None else f"snapshot {at}"
    rows = "" if where is None else f", where {plain(where)}"
    typer.echo(f"{styled(str(table.identifier), bold=True)}, {which}{rows}")
    if plan.walk is None:
        typer.echo("this catalog does not report what it skipped")
    else:
        _print_walk(plan.walk, incremental)
    _print_files(table, plan)


def _print_walk(walk: Walk, incremental: bool) -> None:
    nothing = "without added files" if incremental else "without live files"
    _print_tree(
        "data",
        walk.data_manifests,
        {
            nothing: walk.data_manifests_without_live_files,
            "skipped by partition summaries": walk.data_manifests_skipped_by_partition,
        },
        walk.data_files,
        {
            "skipped by partition values": walk.data_files_skipped_by_partition,
            "skipped by column statistics": walk.data_files_skipped_by_statistics,
        },
        "planned",
    )
    if walk.delete_manifests:
        _print_tree(
            "delete",
            walk.delete_manifests,
            {
                "without live files": walk.delete_manifests_without_live_files,
                "skipped by partition summaries": walk.delete_manifests_skipped_by_partition,
            },
            walk.delete_files,
            {"skipped by partition values or column statistics": walk.delete_files_skipped},
            "matched with data files",
        )


def _print_tree(
    kind: str,
    manifests: int,
    manifests_skipped: Mapping[str, int],
    files: int,
    files_skipped: Mapping[str, int],
    rest: str,
) -> None:
    """Print a tree of manifests, and below it the files in the manifests that were read."""
    from rich.tree import Tree

    tree = Tree(count_text(manifests, f"{kind} manifest"))
    read = f"read, with {count_text(files, f'{kind} file')}"
    _leaves(_leaves(tree, manifests, manifests_skipped, read), files, files_skipped, rest)
    print_tree(tree)


def _leaves(tree: Tree, seen: int, reasons: Mapping[str, int], rest: str) -> Tree:
    """Add one leaf for each reason to skip, and return the leaf of the rest."""
    for reason, skipped in reasons.items():
        tree.add(f"{skipped:,} {reason}{_share(skipped, seen)}")
    left = seen - sum(reasons.values())
    return tree.add(f"{left:,} {rest}{_share(left, seen)}")


def _share(part: int, whole: int) -> str:
    """Return a percentage; 0% and 100% only if they are exact."""
    if not whole:
        return ""
    share = part / whole
    if 0 < share < 0.001:
        return " (<0.1%)"
    if 0.999 < share < 1:
        return " (>99.9%)"
    return f" ({share:.1%})"


def _print_files(table: Table, plan: Plan) -> None:
    if plan.tasks:
        heading("Files")
        print_table(
            ("partition", "rows", "size", "deletes", "residual", "path"),
            [_row(table, task) for task in plan.tasks],
            right=("rows", "size"),
        )
    files = plan.files
    rows = count_text(sum(file.record_count for file in files), "row")
    size = size_text(sum(file.file_size_in_bytes for file in files))
    if plan.is_whole:
        typer.echo(f"{count_text(len(files), 'file')}, {rows}, {size}")
    else:
        known = "" if plan.walk is None else f" of {plan.walk.data_files_planned:,}"
        typer.echo(f"the first {len(files):,}{known} files: {rows}, {size}")


def _row(table: Table, task: FileScanTask) -> Sequence[Any]:
    file = task.data_file
    residual = "-" if task.residual is True else residual_text(task.residual)
    if len(residual) > _MAX_RESIDUAL:
        residual = f"{residual[: _MAX_RESIDUAL - 1]}…"
    return (
        partition_text(table, file.spec_id, file.partition) or "-",
        f"{file.record_count:,}",
        size_text(file.file_size_in_bytes),
        _deletes_text(task.delete_files),
        residual,
        file.file_path,
    )


def _deletes_text(files: Sequence[PlannedDeleteFile]) -> str:
    kinds = Counter(
        "deletion vector" if file.content_offset is not None else file.content.removesuffix("s")
        for file in files
    )
    return ", ".join(count_text(number, kind) for kind, number in sorted(kinds.items())) or "-"


def partition_text(table: Table, spec_id: int, values: Sequence[Any]) -> str:
    """Return text such as `day=2026-05-01/item=null`, with readable months and hours."""
    fields = table.spec(spec_id)["fields"]
    return "/".join(
        f"{field['name']}={_value_text(field['transform'], value)}"
        for field, value in zip(fields, values, strict=False)
    )


def _value_text(transform: str, value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return calendar_text(parse_transform(transform), value) or str(value)


def residual_text(residual: bool | Mapping[str, Any]) -> str:
    """Return a residual filter in the syntax of `--filter`."""
    return filter_text(parse_expression(residual))
