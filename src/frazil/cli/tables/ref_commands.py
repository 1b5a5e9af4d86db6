"""`frazil branch`, `tag`, `rollback` and `cherry-pick`: list and move the refs of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import typer

from frazil.cli.shared.catalog_command import CatalogChoice, unknown_if_interrupted, usage
from frazil.cli.shared.printing import print_json, print_table, time_text
from frazil.cli.shared.typed_names import table_name
from frazil.cli.tables.snapshot_text import find_snapshot
from frazil.wire.errors import FrazilError, NotFound

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

Kind = Literal["branch", "tag"]


def list_refs(choice: CatalogChoice, kind: Kind, name: str) -> None:
    identifier = table_name(name)
    with choice.connect() as client:
        table = client.load_table(identifier, snapshots="refs")
    refs = {name: ref for name, ref in sorted(table.refs.items()) if ref.type == kind}
    if choice.as_json:
        documents = [
            {"name": name, **_without_nulls(msgspec.to_builtins(ref))} for name, ref in refs.items()
        ]
        print_json({"table": str(identifier), "refs": documents})
        return
    if not refs:
        typer.echo(f"{identifier} has no {kind}")
        return
    times = {each.snapshot_id: time_text(each.timestamp_ms) for each in table.snapshots}
    print_table(
        (kind, "snapshot", "time", "retention"),
        [
            (name, ref.snapshot_id, times.get(ref.snapshot_id), _retention(ref))
            for name, ref in refs.items()
        ],
    )


def _without_nulls(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}


def _retention(ref: Any) -> str | None:
    limits = [
        f"{name.replace('_', ' ')} {value}"
        for name in ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
        if (value := getattr(ref, name)) is not None
    ]
    return ", ".join(limits) or None


def create(
    choice: CatalogChoice,
    kind: Kind,
    table_text: str,
    name: str,
    at: str | None,
    retention: Mapping[str, int | None],
    *,
    replace: bool,
    dry_run: bool,
) -> None:
    def change(table: Table) -> None:
        snapshot_id = None if at is None else _snapshot_id(table, at)
        ages = {key: value for key, value in retention.items() if value is not None}
        make = table.create_branch if kind == "branch" else table.create_tag
        make(name, snapshot_id, replace=replace, **ages)

    _change(choice, table_text, (kind, name), change, dry_run)


def delete(choice: CatalogChoice, kind: Kind, table_text: str, name: str, *, dry_run: bool) -> None:
    def change(table: Table) -> None:
        remove = table.remove_branch if kind == "branch" else table.remove_tag
        remove(name)

    _change(choice, table_text, (kind, name), change, dry_run)


def rollback(
    choice: CatalogChoice,
    table_text: str,
    snapshot: str | None,
    to_timestamp: str | None,
    branch: str,
    *,
    dry_run: bool,
) -> None:
    if (snapshot is None) == (to_timestamp is None):
        usage("rollback: give either a snapshot or --to-timestamp", choice.output)
    timestamp_ms = None if to_timestamp is None else _timestamp_ms(to_timestamp, choice)

    def change(table: Table) -> None:
        target = None if snapshot is None else _snapshot_id(table, snapshot)
        table.rollback(target, timestamp_ms=timestamp_ms, branch=branch)

    _change(choice, table_text, ("branch", branch), change, dry_run)


def cherry_pick(
    choice: CatalogChoice, table_text: str, snapshot: str, branch: str, *, dry_run: bool
) -> None:
    def change(table: Table) -> None:
        table.cherry_pick(_snapshot_id(table, snapshot), branch)

    _change(choice, table_text, ("branch", branch), change, dry_run)


def _change(
    choice: CatalogChoice,
    table_text: str,
    ref: tuple[Kind, str],
    change: Callable[[Table], None],
    dry_run: bool,
) -> None:
    """Change a ref and print its old and new snapshot."""
    identifier = table_name(table_text)
    kind, name = ref
    with choice.connect(dry_run=dry_run) as client:
        before = client.load_table(identifier)
        with unknown_if_interrupted():
            change(before)
        try:
            now = client.load_table(identifier, snapshots="refs")
        except FrazilError as error:
            # The change succeeded, even if reading the table again fails.
            typer.echo(f"done, but the table could not be read again: {error}", err=True)
            return
    old, new = before.refs.get(name), now.refs.get(name)
    old_id = None if old is None else old.snapshot_id
    new_id = None if new is None else new.snapshot_id
    if choice.as_json:
        print_json(
            {
                "table": str(identifier),
                "type": kind,
                "name": name,
                "snapshot-id": new_id,
                "previous-snapshot-id": old_id,
            }
        )
        return
    before_text = "" if old_id is None else f"; it was at {old_id}"
    where = "removed" if new_id is None else f"at {new_id}"
    typer.echo(f"{kind} {name} of {identifier} is {where}{before_text}")


def _snapshot_id(table: Table, text: str) -> int:
    snapshot = find_snapshot(table, text)
    if snapshot is None:
        raise NotFound(
            f"{table} has no snapshot yet" if not table.refs else f"{text} is not a snapshot"
        )
    return snapshot.snapshot_id


def _timestamp_ms(text: str, choice: CatalogChoice) -> int:
    """Parse a time in ISO 8601, by default in UTC like all printed times."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        usage(
            f"--to-timestamp {text} is not a time: write it as 2026-05-01T12:00:00Z", choice.output
        )
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
