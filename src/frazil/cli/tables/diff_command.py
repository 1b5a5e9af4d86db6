"""`frazil diff`: what is live in one snapshot and not in another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, progress
from frazil.cli.shared.printing import (
    count_text,
    heading,
    plain,
    print_json,
    print_table,
    size_text,
    time_text,
)
from frazil.cli.shared.typed_names import table_name
from frazil.cli.tables.live_files import FileChanges, FilesUnavailable, LiveFile, open_files
from frazil.cli.tables.ls_command import print_files
from frazil.cli.tables.show_command import columns
from frazil.cli.tables.snapshot_text import find_snapshot, number

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Snapshot, Table
    from frazil.values.types import NestedField

_SUMMED: Final = {
    "added": {
        "data-files": "added-data-files",
        "delete-files": "added-delete-files",
        "records": "added-records",
        "size-in-bytes": "added-files-size",
    },
    "removed": {
        "data-files": "deleted-data-files",
        "delete-files": "removed-delete-files",
        "records": "deleted-records",
        "size-in-bytes": "removed-files-size",
    },
}
_TOTALS: Final = {
    "data-files": "total-data-files",
    "delete-files": "total-delete-files",
    "records": "total-records",
    "size-in-bytes": "total-files-size",
}


def run(choice: CatalogChoice, name: str, old_text: str, new_text: str) -> None:
    identifier = table_name(name)
    with choice.connect() as client:
        table = client.load_table(identifier)
    old, new = find_snapshot(table, old_text), find_snapshot(table, new_text)
    schema = schema_changes(table, old, new)
    document: dict[str, Any] = {
        "table": str(identifier),
        "from": _place(old_text, old),
        "to": _place(new_text, new),
        "schema-changes": schema,
    }
    changes: FileChanges | None = None
    try:
        with (
            progress("reading manifests") as advance,
            open_files(table, choice.store_properties(), advance) as files,
        ):
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
                "added": [file.document() for file in changes.added],
                "removed": [file.document() for file in changes.removed],
            },
        }
    if choice.as_json:
        print_json(document)
    else:
        _print(document, changes)


def _place(text: str, snapshot: Snapshot | None) -> dict[str, Any]:
    return {
        "name": text,
        "snapshot-id": None if snapshot is None else snapshot.snapshot_id,
        "timestamp-ms": None if snapshot is None else snapshot.timestamp_ms,
    }


# --- files ----------------------------------------------------------------------------------------


def counts(files: Iterable[LiveFile]) -> dict[str, int]:
    """Rows are those of data files; what delete files delete is not known without reading them."""
    found = dict.fromkeys(_TOTALS, 0)
    for file in files:
        data = file.content == "data"
        found["data-files" if data else "delete-files"] += 1
        found["records"] += file.record_count if data else 0
        found["size-in-bytes"] += file.size_bytes
    return found


def partitions(changes: FileChanges) -> list[dict[str, Any]]:
    """The same counts for each partition that changed."""
    by_place: dict[tuple[int, str], tuple[list[LiveFile], list[LiveFile]]] = {}
    for side, files in enumerate((changes.added, changes.removed)):
        for file in files:
            by_place.setdefault((file.spec_id, file.partition), ([], []))[side].append(file)
    return [
        {
            "spec-id": spec_id,
            "partition": partition,
            "added": counts(added),
            "removed": counts(removed),
        }
        for (spec_id, partition), (added, removed) in sorted(by_place.items())
    ]


# --- without the files ----------------------------------------------------------------------------


def summed(table: Table, old: Snapshot | None, new: Snapshot | None) -> dict[str, Any]:
    """What the summaries say: on the way from one to the other where one is the other's ancestor,
    else only the difference of their totals. A file that came and went again counts twice."""
    way = _way(table, old, new)
    if way is not None:
        return {"source": "summaries", "added": _sum(way, "added"), "removed": _sum(way, "removed")}
    back = _way(table, new, old)
    if back is not None:
        return {
            "source": "summaries",
            "added": _sum(back, "removed"),
            "removed": _sum(back, "added"),
        }
    before = {} if old is None else old.summary
    after = {} if new is None else new.summary
    return {
        "source": "totals",
        "difference": {
            name: (number(after, key) or 0) - (number(before, key) or 0)
            for name, key in _TOTALS.items()
        },
    }


def _way(table: Table, old: Snapshot | None, new: Snapshot | None) -> list[Snapshot] | None:
    """The snapshots after `old` up to `new`; None where `old` is not before `new`."""
    if new is None:
        return [] if old is None else None
    way: list[Snapshot] = []
    for one in table.ancestors(new.snapshot_id):
        if old is not None and one.snapshot_id == old.snapshot_id:
            return way
        way.append(one)
    return way if old is None and way[-1].parent_snapshot_id is None else None


def _sum(snapshots: Sequence[Snapshot], side: str) -> dict[str, int]:
    return {
        name: sum(number(one.summary, key) or 0 for one in snapshots)
        for name, key in _SUMMED[side].items()
    }


# --- schemas --------------------------------------------------------------------------------------


def schema_changes(
    table: Table, old: Snapshot | None, new: Snapshot | None
) -> list[dict[str, Any]]:
    """How the schema that the one was written with became that of the other, column by column."""
    if old is None or new is None or old.schema_id is None or new.schema_id is None:
        return []
    if old.schema_id == new.schema_id:
        return []
    before, after = _columns(table, old.schema_id), _columns(table, new.schema_id)
    found: list[dict[str, Any]] = []
    for field_id in sorted(before.keys() | after.keys()):
        one, other = before.get(field_id), after.get(field_id)
        if one == other:
            continue
        if one is not None and other is not None:
            found.append({"change": "changed", "id": field_id, "from": one, "to": other})
        elif other is not None:
            found.append({"change": "added", "id": field_id, **other})
        elif one is not None:
            found.append({"change": "dropped", "id": field_id, **one})
    return found


def _columns(table: Table, schema_id: int) -> dict[int, dict[str, Any]]:
    """What is said of each column, by field id."""
    named = columns(table.schema_by_id(schema_id))
    return {field.field_id: _described(name, field) for name, field in named}


def _described(name: str, field: NestedField) -> dict[str, Any]:
    """Fields inside a struct have lines of their own."""
    kind = field.type.type_id.value if field.type.is_nested else str(field.type)
    return {"column": name, "type": kind, "required": field.required}


# --- for people -----------------------------------------------------------------------------------


def _print(document: Mapping[str, Any], changes: FileChanges | None) -> None:
    for side in ("from", "to"):
        place = document[side]
        when = "" if place["timestamp-ms"] is None else f"  {time_text(place['timestamp-ms'])}"
        typer.echo(f"{side:<4}  {place['snapshot-id'] or 'empty'}{when}  ({place['name']})")
    for change in document["schema-changes"]:
        typer.echo(_schema_line(change))
    if document.get("source") == "totals":
        said = [f"{value:+,} {name}" for name, value in document["difference"].items() if value]
        typer.echo(f"difference of the totals: {', '.join(said) or 'none'}")
    else:
        for sign, side, colour in (("+", "added", "green"), ("-", "removed", "red")):
            typer.echo(typer.style(f"{sign} {_counts_text(document[side])}", fg=colour))
    if changes is None:
        missing = document["files-unavailable"]
        note = "by the snapshots' summaries: a file that came and went again counts on both sides"
        typer.echo(f"\n{note}")
        typer.echo(f"{missing['reason']}\nfor the lists of files: {missing['fix']}", err=True)
        return
    _print_partitions(document["partitions"])
    for title, files in (("Added", changes.added), ("Removed", changes.removed)):
        if files:
            heading(title)
            print_files(sorted(files, key=lambda file: (file.content != "data", file.partition)))


def _counts_text(found: Mapping[str, int]) -> str:
    said = [count_text(found["data-files"], "data file")]
    if found["delete-files"]:
        said.append(count_text(found["delete-files"], "delete file"))
    return ", ".join(
        [*said, count_text(found["records"], "row"), size_text(found["size-in-bytes"])]
    )


def _schema_line(change: Mapping[str, Any]) -> str:
    if change["change"] != "changed":
        sign = "+" if change["change"] == "added" else "-"
        return f"{sign} column {_column_text(change)} (id {change['id']})"
    return f"~ column {_column_text(change['from'])} is now {_column_text(change['to'])}"


def _column_text(described: Mapping[str, Any]) -> str:
    required = " required" if described["required"] else ""
    return plain(f"{described['column']}: {described['type']}{required}")


def _print_partitions(found: Sequence[Mapping[str, Any]]) -> None:
    if not any(one["partition"] for one in found):
        return
    heading("Partitions")
    print_table(
        ("partition", "+files", "+rows", "-files", "-rows"),
        [
            (
                one["partition"] or "unpartitioned",
                *(
                    f"{value:,}"
                    for side in ("added", "removed")
                    for value in (
                        one[side]["data-files"] + one[side]["delete-files"],
                        one[side]["records"],
                    )
                ),
            )
            for one in found
        ],
        right=("+files", "+rows", "-files", "-rows"),
    )
