"""`frazil create`, `drop`, `rename`, `set`, `unset`, `register` and `unregister`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.shared.catalog_command import DRY_RUN, CatalogChoice, add_commands
from frazil.cli.shared.typed_names import BadName, key_values, table_name
from frazil.cli.tables.table_change import (
    change_catalog,
    change_table,
    change_unless,
    print_done,
    unset_text,
)
from frazil.cli.tables.table_commands import TABLE_HELP, TableArgument
from frazil.extras import install_command
from frazil.values.name_mapping import NAME_MAPPING_PROPERTY, name_mapping_of
from frazil.values.parquet_columns import FIELD_ID
from frazil.values.type_json import parse_struct
from frazil.wire.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.declare.client_table import Table
    from frazil.client.declare.table_definition import CreateOptions
    from frazil.wire.identifiers import Identifier

NewTableArgument = Annotated[str, typer.Argument(metavar="TABLE", help=TABLE_HELP)]
PropertiesArgument = Annotated[
    list[str], typer.Argument(metavar="KEY=VALUE...", help="The properties.")
]
KeysArgument = Annotated[list[str], typer.Argument(metavar="KEY...", help="The properties.")]
IfExistsOption = Annotated[bool, typer.Option("--if-exists", help="Succeed if it does not exist.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command tree."""
    add_commands(
        app,
        {
            "create": create,
            "drop": drop,
            "rename": rename,
            "set": set_properties,
            "unset": unset_properties,
            "register": register_table,
            "unregister": unregister,
        },
        dry_run=DRY_RUN,
    )


# --- create ---------------------------------------------------------------------------------------


def create(
    choice: CatalogChoice,
    table: NewTableArgument,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="The columns, such as \"id bigint not null, at timestamptz comment 'when'\", "
            "or Iceberg's JSON.",
        ),
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="FILE", help="A Parquet file with the columns.")
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(metavar="TERM", help='A column, or a transform such as "day(at)".'),
    ] = None,
    sort_by: Annotated[
        list[str] | None,
        typer.Option(metavar="TERM", help='A sort term, such as "at desc nulls last".'),
    ] = None,
    identifier: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A required column that identifies rows."),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="KEY=VALUE", help="A property of the table."),
    ] = None,
    location: Annotated[
        str | None, typer.Option(metavar="URL", help="Where its files are stored.")
    ] = None,
    format_version: Annotated[
        int | None, typer.Option(metavar="N", help="Iceberg's format. [default: 2]")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a table that exists as it is.")
    ] = False,
) -> None:
    """Create a table from columns as text, or with the columns of a Parquet file."""
    name = table_name(table)
    if (schema is None) == (like is None):
        choice.usage("create: give either --schema or --like")
    columns = _columns_of_text(schema) if schema is not None else _columns_of_file(choice, like)
    given = key_values("--property", properties or ())
    options: CreateOptions = {
        "partition_by": partition_by or (),
        "sort_by": sort_by or (),
        "identifier_fields": identifier or (),
        "properties": given if like is None else _with_name_mapping(columns, given),
        "location": location,
        "format_version": format_version,
    }

    def make(client: Client) -> tuple[Table, bool]:
        try:
            return client.create_table(name, columns, **options), True
        except AlreadyExists:
            if not if_not_exists:
                raise
        return client.load_table(name), False

    loaded, is_new = change_catalog(choice, make)
    done = "created, at" if is_new else "there already, at"
    _print_table(choice, name, loaded, done, {"created": is_new})


def _columns_of_text(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadName(f"--schema begins like JSON, but is not: {error}") from None


def _columns_of_file(choice: CatalogChoice, path: str | None) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        choice.fail(f"--like needs pyarrow. Type: {install_command('parquet')}")
    try:
        return pyarrow.parquet.read_schema(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        choice.fail(f"--like {path}: {error}")


def _with_name_mapping(columns: Any, properties: dict[str, str]) -> dict[str, str]:
    """Add the property by which readers find the columns of files without field ids."""
    from frazil.client.declare.table_definition import schema_document

    if any(FIELD_ID in (column.metadata or {}) for column in columns):
        return properties
    # The mapping has no types, and version 3 has all of them.
    document = schema_document(columns, {"format-version": "3"})
    schema = parse_struct(document, "schema")
    return {NAME_MAPPING_PROPERTY: name_mapping_of(schema), **properties}


def _print_table(
    choice: CatalogChoice, name: Identifier, table: Table, done: str, more: dict[str, Any]
) -> None:
    document = {
        "table": str(name),
        "table-uuid": table.uuid,
        "format-version": table.format_version,
        "location": table.location,
        "metadata-location": table.metadata_location,
    }
    print_done(choice, f"{name}: {done} {table.location}", document | more)


# --- drop, rename ---------------------------------------------------------------------------------


def drop(
    choice: CatalogChoice,
    table: TableArgument,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete its files, after their quarantine.")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="With --purge: delete at once. Nothing can come back.")
    ] = False,
    if_exists: IfExistsOption = False,
) -> None:
    """Drop a table; its files stay, unless --purge is given."""
    if now and not purge:
        choice.usage("--now deletes files at once: give --purge with it")
    name = table_name(table)

    def change(client: Client) -> None:
        client.drop_table(name, purge=purge, now=now)

    dropped = change_unless(choice, change, NotFound, tolerated=if_exists)
    files = "its files stay"
    if purge and now:
        files = "and its files are deleted"
    elif purge:
        files = (
            "and its files are deleted at the end of their quarantine (frazil.gc.quarantine-ms, by "
            f"default 3 days); until then, `frazil maintain undo {name}` brings it back"
        )
    done = f"dropped, {files}" if dropped else "does not exist"
    document = {"table": str(name), "dropped": dropped, "purged": dropped and purge}
    print_done(choice, f"{name}: {done}", document)


def rename(
    choice: CatalogChoice,
    table: TableArgument,
    new_name: Annotated[
        str, typer.Argument(metavar="NEW_NAME", help="The new name, as namespace.table.")
    ],
) -> None:
    """Rename a table, or move it to another namespace; its files stay where they are."""
    old, new = table_name(table), table_name(new_name)
    change_catalog(choice, lambda client: client.rename_table(old, new))
    print_done(choice, f"{old}: now {new}", {"table": str(new), "previous-name": str(old)})


# --- properties -----------------------------------------------------------------------------------


def set_properties(
    choice: CatalogChoice, table: TableArgument, properties: PropertiesArgument
) -> None:
    """Set properties of a table."""
    updates = key_values("set", properties)
    done = f"set {', '.join(sorted(updates))}"
    change_table(choice, table, lambda loaded: loaded.set_properties(updates), done)


def unset_properties(choice: CatalogChoice, table: TableArgument, keys: KeysArgument) -> None:
    """Remove properties of a table."""
    change_table(
        choice,
        table,
        lambda loaded: loaded.remove_properties(*keys),
        lambda before: unset_text(keys, set(keys) - before.properties.keys()),
    )


# --- tables of other catalogs ---------------------------------------------------------------------


def register_table(
    choice: CatalogChoice,
    table: NewTableArgument,
    metadata_location: Annotated[
        str,
        typer.Argument(metavar="METADATA", help="The URL of its newest metadata file."),
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a table of this name; its files stay.")
    ] = False,
) -> None:
    """Register a table whose files exist, such as one of another catalog."""
    name = table_name(table)
    loaded = change_catalog(
        choice,
        lambda client: client.register_table(name, metadata_location, overwrite=overwrite),
    )
    _print_table(choice, name, loaded, "registered, at", {})


def unregister(choice: CatalogChoice, table: TableArgument) -> None:
    """Remove a table from the catalog and print what registers it again; all files stay."""
    name = table_name(table)
    location = change_catalog(choice, lambda client: client.unregister_table(name))
    document = {"table": str(name), "metadata-location": location}
    print_done(choice, f"{name}: unregistered, its metadata is {location}", document)
