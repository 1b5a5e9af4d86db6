"""`frazil ns`: list, show, create, change and drop namespaces."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from frazil.cli.shared.catalog_command import DRY_RUN, CatalogChoice, add_commands
from frazil.cli.shared.command_group import CommandGroup
from frazil.cli.shared.printing import plain, print_json, print_pairs
from frazil.cli.shared.shell_completion import complete_namespace
from frazil.cli.shared.typed_names import key_values, namespace_name
from frazil.cli.tables.lifecycle_commands import IfExistsOption, KeysArgument, PropertiesArgument
from frazil.cli.tables.table_change import change_catalog, change_unless, print_done, unset_text
from frazil.wire.errors import AlreadyExists, NotFound

NamespaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE",
        help="The namespace, as parent.child; '[\"a.b\"]' for names with dots.",
        autocompletion=complete_namespace,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command tree."""
    group = typer.Typer(cls=CommandGroup, help="Work on namespaces.", no_args_is_help=True)
    add_commands(group, {"ls": ls, "show": show})
    add_commands(
        group,
        {
            "create": create,
            "drop": drop,
            "set": set_properties,
            "unset": unset_properties,
        },
        dry_run=DRY_RUN,
    )
    app.add_typer(group, name="ns")


def ls(
    choice: CatalogChoice,
    namespace: Annotated[
        str | None,
        typer.Argument(
            metavar="NAMESPACE",
            help="List the namespaces inside of it; by default all.",
            autocompletion=complete_namespace,
        ),
    ] = None,
) -> None:
    """List namespaces."""
    from frazil.cli.tables.ls_command import print_namespaces

    parent = () if namespace is None else namespace_name(namespace)
    with choice.connect() as client:
        print_namespaces(choice, client, parent)


def show(choice: CatalogChoice, namespace: NamespaceArgument) -> None:
    """Show the properties of a namespace."""
    levels = namespace_name(namespace)
    with choice.connect() as client:
        properties = client.load_namespace(levels)
    if choice.as_json:
        print_json({"namespace": list(levels), "properties": properties})
        return
    typer.echo(plain(".".join(levels)))
    print_pairs(dict(sorted(properties.items())), "  ")


def create(
    choice: CatalogChoice,
    namespace: NamespaceArgument,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A property of the namespace."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a namespace that exists as it is.")
    ] = False,
) -> None:
    """Create a namespace."""
    levels = namespace_name(namespace)
    values = key_values("--property", properties or ())
    is_new = change_unless(
        choice,
        lambda client: client.create_namespace(levels, values),
        AlreadyExists,
        tolerated=if_not_exists,
    )
    done = "created" if is_new else "there already"
    _print(choice, levels, done, {"created": is_new})


def drop(
    choice: CatalogChoice,
    namespace: NamespaceArgument,
    if_exists: IfExistsOption = False,
) -> None:
    """Drop an empty namespace."""
    levels = namespace_name(namespace)
    dropped = change_unless(
        choice, lambda client: client.drop_namespace(levels), NotFound, tolerated=if_exists
    )
    done = "dropped" if dropped else "does not exist"
    _print(choice, levels, done, {"dropped": dropped})


def set_properties(
    choice: CatalogChoice,
    namespace: NamespaceArgument,
    properties: PropertiesArgument,
) -> None:
    """Set properties of a namespace."""
    levels = namespace_name(namespace)
    updates = key_values("set", properties)
    change_catalog(choice, lambda client: client.update_namespace(levels, updates))
    _print(choice, levels, f"set {', '.join(sorted(updates))}", {"updated": sorted(updates)})


def unset_properties(
    choice: CatalogChoice,
    namespace: NamespaceArgument,
    keys: KeysArgument,
) -> None:
    """Remove properties of a namespace."""
    levels = namespace_name(namespace)
    missing = change_catalog(choice, lambda client: client.update_namespace(levels, removals=keys))
    removed = [key for key in keys if key not in missing]
    _print(choice, levels, unset_text(keys, missing), {"removed": removed, "missing": missing})


def _print(
    choice: CatalogChoice, levels: tuple[str, ...], done: str, document: dict[str, Any]
) -> None:
    print_done(choice, f"{'.'.join(levels)}: {done}", {"namespace": list(levels), **document})
