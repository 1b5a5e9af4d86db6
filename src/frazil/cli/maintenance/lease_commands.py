"""`frazil maintain leases` and `intents`: who holds snapshots and folders of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, add_commands
from frazil.cli.shared.printing import print_json, print_table, time_text
from frazil.cli.shared.typed_names import table_name
from frazil.cli.tables.table_commands import TableArgument


def register(group: typer.Typer) -> None:
    """Add the commands to `frazil maintain`."""
    add_commands(group, {"leases": leases, "intents": intents})


def leases(
    choice: CatalogChoice,
    table: TableArgument,
    release: Annotated[
        str | None, typer.Option(metavar="ID", help="End this lease, whoever has taken it.")
    ] = None,
) -> None:
    """List the leases on a table, or end one that its holder has forgotten."""
    from msgspec import to_builtins

    name = table_name(table)
    with choice.connect() as client:
        found = client.leases.list(name)
        if release is not None:
            if release not in {lease.lease_id for lease in found}:
                choice.fail(f"{name} has no lease {release}")
            client.leases.release(name, release)
            found = client.leases.list(name)
    if choice.as_json:
        print_json({"leases": to_builtins(found)})
        return
    if release is not None:
        typer.echo(f"released lease {release}")
    if not found:
        typer.echo(f"{name} has no leases")
    else:
        print_table(
            ("lease", "snapshot", "until", "principal", "holder"),
            [
                (
                    lease.lease_id,
                    lease.snapshot_id,
                    time_text(lease.expires_at_ms),
                    lease.principal or None,
                    lease.holder,
                )
                for lease in found
            ],
        )


def intents(
    choice: CatalogChoice,
    table: TableArgument,
    end: Annotated[
        str | None, typer.Option(metavar="ID", help="End this intent, whoever has declared it.")
    ] = None,
) -> None:
    """List the folders that writers use now, or end the intent of one that has died."""
    from msgspec import to_builtins

    name = table_name(table)
    with choice.connect() as client:
        found = client.intents.list(name)
        if end is not None:
            if end not in {intent.intent_id for intent in found}:
                choice.fail(f"{name} has no intent {end}")
            client.intents.end(name, end)
            found = client.intents.list(name)
    if choice.as_json:
        print_json({"intents": to_builtins(found)})
        return
    if end is not None:
        typer.echo(f"ended intent {end}: what its writer has not committed is deleted")
    if not found:
        typer.echo(f"{name} has no intents")
    else:
        print_table(
            ("intent", "prefix", "until", "principal", "holder"),
            [
                (
                    intent.intent_id,
                    intent.prefix,
                    time_text(intent.expires_at_ms),
                    intent.principal or None,
                    intent.holder,
                )
                for intent in found
            ],
            unbroken=True,
        )
