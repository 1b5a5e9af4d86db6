"""`frazil diff`: the files and columns that differ between two snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from msgspec import to_builtins

from frazil.cli.shared.catalog_command import CatalogChoice
from frazil.cli.shared.printing import heading, plain, print_json, print_table, styled, time_text
from frazil.cli.shared.typed_names import table_name
from frazil.cli.tables.live_files import FileChanges, FilesUnavailable, LiveFile, open_files
from frazil.cli.tables.ls_command import print_files
from frazil.cli.tables.snapshot_text import (
    CHANGE_KEYS,
    TOTAL_KEYS,
    counts_text,
    find_snapshot,
    numbers,
)
from frazil.values.types import fields_by_id

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Snapshot, Table


def run(choice: CatalogChoice, name: str, old_text: str, new_text: str) -> None:
    identifier = table_name(name)
    with choice.connect() as client:
        table = client.load_table(identifier)
    old, new = find_snapshot(table, old_text), find_snapshot(table, new_text)
    schema = schema_changes(table, old, new)
    document: dict[str, Any] = {
        "table": str(identifier),
        "from": _snapshot_document(old_text, old),
        "to": _snapshot_document(new_text, new),
        "schema-changes": schema,
    }
    changes: FileChanges | None = None
    try:
        with open_files(table) as files:
            changes = files.changes(old, new)
    except FilesUnavailable as error:
        document |= {"files": None, **summed(table, old, new)}
        document |= {"files-unavailable": {"reason": str(error), "fix": error.fix}}
    else:
        document |= {
            "added": counts(changes.added),
            "removed": counts(changes.removed),
            "partitions": partitions(changes),
            "files": {
                "added": to_builtins(changes.added),
                "removed": to_builtins(changes.removed),
            },
        }
    if choice.as_json:
        print_json(document)
    else:
        _print(document, changes)


def _snapshot_document(text: str, snapshot: Snapshot | None) -> dict[str, Any]:
    return {
        "name": text,
        "snapshot-id": None if snapshot is None else snapshot.snapshot_id,
        "timestamp-ms": None if snapshot is None else snapshot.timestamp_ms,
    }


# --- files ----------------------------------------------------------------------------------------


def counts(files: Iterable[LiveFile]) -> dict[str, int]:
    """Count files and rows. Rows that delete files remove are unknown without reading them."""
    totals = dict.fromkeys(TOTAL_KEYS, 0)
    for file in files:
        data = file.content == "data"
        totals["data-files" if data else "delete-files"] += 1
        totals["records"] += file.record_count if data else 0
        totals["size-in-bytes"] += file.size_in_bytes
    return totals


def partitions(changes: FileChanges) -> list[dict[str, Any]]:
    """Return the counts of each changed partition."""
    by_partition: dict[tuple[int, str], tuple[list[LiveFile], list[LiveFile]]] = {}
    for side, files in enumerate((changes.added, changes.removed)):
        for file in files:
            by_partition.setdefault((file.spec_id, file.partition), ([], []))[side].append(file)
    return [
        {
            "spec-id": spec_id,
            "partition": partition,
            "added": counts(added),
            "removed": counts(removed),
        }
        for (spec_id, partition), (added, removed) in sorted(by_partition.items())
    ]


# --- without the files ----------------------------------------------------------------------------


def summed(table: Table, old: Snapshot | None, new: Snapshot | None) -> dict[str, Any]:
    """Return the changes that the snapshot summaries report.

    If one snapshot is an ancestor of the other, add up the summaries between them; otherwise
    subtract their totals. A file that was added and removed again counts on both sides.
    """
    for first, last, added, removed in (
        (old, new, "added", "removed"),
        # Going back, what was added is removed.
        (new, old, "removed", "added"),
    ):
        snapshots = _snapshots_between(table, first, last)
        if snapshots is not None:
            return {
                "source": "summaries",
                "added": _sum(snapshots, added),
                "removed": _sum(snapshots, removed),
            }
    before = {} if old is None else numbers(old.summary, TOTAL_KEYS)
    after = {} if new is None else numbers(new.summary, TOTAL_KEYS)
    difference = {name: after.get(name, 0) - before.get(name, 0) for name in TOTAL_KEYS}
    return {"source": "totals", "difference": difference}


def _snapshots_between(
    table: Table, old: Snapshot | None, new: Snapshot | None
) -> list[Snapshot] | None:
    """Return the snapshots after `old` up to `new`; None if `old` is not an ancestor of `new`."""
    if new is None:
        return [] if old is None else None
    snapshots: list[Snapshot] = []
    for snapshot in table.ancestors(new.snapshot_id):
        if old is not None and snapshot.snapshot_id == old.snapshot_id:
            return snapshots
        snapshots.append(snapshot)
    return snapshots if old is None and snapshots[-1].parent_snapshot_id is None else None


def _sum(snapshots: Sequence[Snapshot], side: str) -> dict[str, int]:
    counts = [numbers(snapshot.summary, CHANGE_KEYS[side]) for snapshot in snapshots]
    return {name: sum(each.get(name, 0) for each in counts) for name in CHANGE_KEYS[side]}


# --- schemas --------------------------------------------------------------------------------------


def schema_changes(
    table: Table, old: Snapshot | None, new: Snapshot | None
) -> list[dict[str, Any]]:
    """Compare the schemas of two snapshots column by column."""
    if old is None or new is None or old.schema_id is None or new.schema_id is None:
        return []
    if old.schema_id == new.schema_id:
        return []
    before, after = _columns(table, old.schema_id), _columns(table, new.schema_id)
    changes: list[dict[str, Any]] = []
    for field_id in sorted(before.keys() | after.keys()):
        old_column, new_column = before.get(field_id), after.get(field_id)
        if old_column == new_column:
            continue
        if old_column is not None and new_column is not None:
            changes.append(
                {"change": "changed", "id": field_id, "from": old_column, "to": new_column}
            )
        elif new_column is not None:
            changes.append({"change": "added", "id": field_id, **new_column})
        elif old_column is not None:
            changes.append({"change": "dropped", "id": field_id, **old_column})
    return changes


def _columns(table: Table, schema_id: int) -> dict[int, dict[str, Any]]:
    """Describe each column, by field id. Fields inside a struct have their own descriptions."""
    return {
        field_id: {
            "column": column.name,
            "type": column.field.type.short_name,
            "required": column.field.required,
        }
        for field_id, column in fields_by_id(table.schema_by_id(schema_id)).items()
    }


# --- text -----------------------------------------------------------------------------------------


def _print(document: Mapping[str, Any], changes: FileChanges | None) -> None:
    for side in ("from", "to"):
        snapshot = document[side]
        when = (
            "" if snapshot["timestamp-ms"] is None else f"  {time_text(snapshot['timestamp-ms'])}"
        )
        typer.echo(f"{side:<4}  {snapshot['snapshot-id'] or 'empty'}{when}  ({snapshot['name']})")
    for change in document["schema-changes"]:
        typer.echo(_schema_line(change))
    if document.get("source") == "totals":
        texts = [f"{value:+,} {name}" for name, value in document["difference"].items() if value]
        typer.echo(f"difference of the totals: {', '.join(texts) or 'none'}")
    else:
        for sign, side, color in (("+", "added", "green"), ("-", "removed", "red")):
            typer.echo(styled(f"{sign} {counts_text(document[side])}", fg=color))
    if changes is None:
        missing = document["files-unavailable"]
        note = "from the snapshot summaries: a file that was added and removed again counts twice"
        typer.echo(f"\n{note}")
        typer.echo(f"{missing['reason']}\nfor the lists of files: {missing['fix']}", err=True)
        return
    _print_partitions(document["partitions"])
    for title, files in (("Added", changes.added), ("Removed", changes.removed)):
        if files:
            heading(title)
            print_files(sorted(files, key=lambda file: (file.content != "data", file.partition)))


def _schema_line(change: Mapping[str, Any]) -> str:
    if change["change"] != "changed":
        sign = "+" if change["change"] == "added" else "-"
        return f"{sign} column {_column_text(change)} (id {change['id']})"
    return f"~ column {_column_text(change['from'])} is now {_column_text(change['to'])}"


def _column_text(described: Mapping[str, Any]) -> str:
    required = " required" if described["required"] else ""
    return plain(f"{described['column']}: {described['type']}{required}")


def _print_partitions(documents: Sequence[Mapping[str, Any]]) -> None:
    if not any(each["partition"] for each in documents):
        return
    heading("Partitions")
    print_table(
        ("partition", "+files", "+rows", "-files", "-rows"),
        [
            (
                each["partition"] or "unpartitioned",
                *(
                    f"{value:,}"
                    for side in ("added", "removed")
                    for value in (
                        each[side]["data-files"] + each[side]["delete-files"],
                        each[side]["records"],
                    )
                ),
            )
            for each in documents
        ],
        right=("+files", "+rows", "-files", "-rows"),
    )
