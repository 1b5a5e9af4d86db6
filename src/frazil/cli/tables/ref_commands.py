"""`frazil branch`, `tag`, `rollback` and `cherry-pick`: list and move the refs of a table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from frazil.cli.shared.catalog_command import (
    DRY_RUN,
    CatalogChoice,
    add_commands,
    unknown_if_interrupted,
)
from frazil.cli.shared.printing import print_json, print_table, time_text
from frazil.cli.shared.typed_names import table_name
from frazil.cli.tables.table_change import print_done
from frazil.cli.tables.table_commands import (
    SNAPSHOT_HELP,
    BranchOption,
    SaveConflictOption,
    TableArgument,
)
from frazil.wire.errors import FrazilError, NotFound

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

Kind = Literal["branch", "tag"]

RefArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Its name. Without a name, all are listed.")
]
AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="SNAPSHOT", help=f"{SNAPSHOT_HELP} [default: head of main]"),
]
DeleteOption = Annotated[bool, typer.Option("--delete", help="Remove it.")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Move it if it exists already.")]
RefAgeOption = Annotated[
    int | None,
    typer.Option("--max-ref-age-ms", metavar="MS", min=1, help="Expire it at this age."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command tree."""
    add_commands(
        app,
        {"branch": branch, "tag": tag, "rollback": rollback, "cherry-pick": cherry_pick},
        dry_run=DRY_RUN,
    )


def branch(
    choice: CatalogChoice,
    table: TableArgument,
    name: RefArgument = None,
    at: AtOption = None,
    delete: DeleteOption = False,
    replace: ReplaceOption = False,
    min_snapshots_to_keep: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Always keep N snapshots.")
    ] = None,
    max_snapshot_age_ms: Annotated[
        int | None, typer.Option(metavar="MS", min=1, help="Expire older snapshots.")
    ] = None,
    max_ref_age_ms: RefAgeOption = None,
) -> None:
    """List, create, move or remove branches."""
    retention = {
        "min_snapshots_to_keep": min_snapshots_to_keep,
        "max_snapshot_age_ms": max_snapshot_age_ms,
        "max_ref_age_ms": max_ref_age_ms,
    }
    _ref(choice, "branch", table, name, at, delete, replace, retention)


def tag(
    choice: CatalogChoice,
    table: TableArgument,
    name: RefArgument = None,
    at: AtOption = None,
    delete: DeleteOption = False,
    replace: ReplaceOption = False,
    max_ref_age_ms: RefAgeOption = None,
) -> None:
    """List, create, move or remove tags."""
    retention = {"max_ref_age_ms": max_ref_age_ms}
    _ref(choice, "tag", table, name, at, delete, replace, retention)


def _ref(
    choice: CatalogChoice,
    kind: Kind,
    table: str,
    name: str | None,
    at: str | None,
    delete: bool,
    replace: bool,
    retention: dict[str, int | None],
) -> None:
    ages = {key: value for key, value in retention.items() if value is not None}
    changes = at is not None or replace or bool(ages)
    if name is None:
        if changes or delete or choice.dry_run:
            choice.usage(f"{kind}: give the name of the {kind}")
        _list_refs(choice, kind, table)
    elif delete:
        if changes:
            choice.usage("--delete cannot be combined with options that change the ref")

        def remove(loaded: Table) -> None:
            remove_ref = loaded.remove_branch if kind == "branch" else loaded.remove_tag
            remove_ref(name)

        _change(choice, table, (kind, name), remove)
    else:

        def create(loaded: Table) -> None:
            make = loaded.create_branch if kind == "branch" else loaded.create_tag
            make(name, None if at is None else _snapshot_id(loaded, at), replace=replace, **ages)

        _change(choice, table, (kind, name), create)


def _list_refs(choice: CatalogChoice, kind: Kind, name: str) -> None:
    identifier = table_name(name)
    with choice.connect() as client:
        table = client.load_table(identifier, snapshots="refs")
    refs = {name: ref for name, ref in sorted(table.refs.items()) if ref.type == kind}
    if choice.as_json:
        from msgspec import to_builtins

        documents = [{"name": name, **to_builtins(ref)} for name, ref in refs.items()]
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


def _retention(ref: Any) -> str | None:
    limits = [
        f"{name.replace('_', ' ')} {value}"
        for name in ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
        if (value := getattr(ref, name)) is not None
    ]
    return ", ".join(limits) or None


def rollback(
    choice: CatalogChoice,
    table: TableArgument,
    snapshot: Annotated[str | None, typer.Argument(metavar="SNAPSHOT", help=SNAPSHOT_HELP)] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="The last snapshot at this time, such as 2026-05-01T12:00:00Z."
        ),
    ] = None,
    branch: BranchOption = "main",
) -> None:
    """Move a branch back to an earlier snapshot; later snapshots stay in the table."""
    if (snapshot is None) == (to_timestamp is None):
        choice.usage("rollback: give either a snapshot or --to-timestamp")
    timestamp_ms = None if to_timestamp is None else _timestamp_ms(to_timestamp, choice)

    def change(loaded: Table) -> None:
        target = None if snapshot is None else _snapshot_id(loaded, snapshot)
        loaded.rollback(target, timestamp_ms=timestamp_ms, branch=branch)

    _change(choice, table, ("branch", branch), change)


def cherry_pick(
    choice: CatalogChoice,
    table: TableArgument,
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The staged snapshot's id.")],
    branch: BranchOption = "main",
    save_conflict: SaveConflictOption = None,
) -> None:
    """Publish a staged snapshot on a branch."""

    def change(loaded: Table) -> None:
        loaded.cherry_pick(_snapshot_id(loaded, snapshot), branch)

    _change(choice, table, ("branch", branch), change)


def _change(
    choice: CatalogChoice,
    table_text: str,
    ref: tuple[Kind, str],
    change: Callable[[Table], None],
) -> None:
    """Change a ref and print its old and new snapshot."""
    identifier = table_name(table_text)
    kind, name = ref
    with choice.connect() as client:
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
    before_text = "" if old_id is None else f"; it was at {old_id}"
    where = "removed" if new_id is None else f"at {new_id}"
    document = {
        "table": str(identifier),
        "type": kind,
        "name": name,
        "snapshot-id": new_id,
        "previous-snapshot-id": old_id,
    }
    print_done(choice, f"{kind} {name} of {identifier} is {where}{before_text}", document)


def _snapshot_id(table: Table, text: str) -> int:
    from frazil.cli.tables.snapshot_text import find_snapshot

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
        choice.usage(f"--to-timestamp {text} is not a time: write it as 2026-05-01T12:00:00Z")
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
