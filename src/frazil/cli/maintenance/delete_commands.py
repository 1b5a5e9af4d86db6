"""`frazil maintain rewrite-position-delete-files` and `convert-equality-deletes`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, add_commands, progress
from frazil.cli.shared.printing import count_text, print_json, size_text
from frazil.cli.shared.typed_names import key_values, table_name
from frazil.cli.tables.table_commands import BranchOption, TableArgument


def register(group: typer.Typer) -> None:
    """Add the commands to `frazil maintain`."""
    add_commands(
        group,
        {
            "rewrite-position-delete-files": rewrite_position_delete_files,
            "convert-equality-deletes": convert_equality_deletes,
        },
        dry_run="Print what would be rewritten, and change nothing.",
    )


def rewrite_position_delete_files(
    choice: CatalogChoice,
    table: TableArgument,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Only partitions that may have matching rows."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An option of Iceberg's procedure, such as min-input-files=2.",
        ),
    ] = None,
    branch: BranchOption = "main",
) -> None:
    """Rewrite small files of position deletes into few, or into deletion vectors."""
    from frazil.maintenance import rewrite_position_delete_files as rewrite
    from frazil.maintenance.position_delete_rewrite import DeleteRewriteOptions
    from frazil.wire.errors import BadRequest

    options = key_values("--option", option or ())
    try:
        DeleteRewriteOptions.of(options, {})
    except BadRequest as error:
        choice.usage(f"--option: {error.message.removeprefix('options.')}")
    name = table_name(table)
    with choice.connect() as client, progress(f"rewrite {name}") as shown:
        result = rewrite(
            client.load_table(name),
            where=where,
            branch=branch,
            options=options,
            properties=choice.properties,
            dry_run=choice.dry_run,
            progress=shown,
        )
    if choice.as_json:
        print_json(asdict(result))
        return
    files = count_text(result.rewritten_delete_files_count, "delete file")
    size = size_text(result.rewritten_bytes_count)
    if result.dry_run:
        typer.echo(f"{name}: would rewrite {files} ({size})")
        return
    added = count_text(result.added_delete_files_count, "delete file")
    typer.echo(f"{name}: rewrote {files} ({size}) into {added}")
    _echo_dangling(result.removed_dangling_delete_files_count)
    _fail(choice, result.failed_delete_files_count, "rewritten")


def convert_equality_deletes(
    choice: CatalogChoice,
    table: TableArgument,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Only deletes of files that may have matching rows."),
    ] = None,
    branch: BranchOption = "main",
) -> None:
    """Replace equality deletes by deletion vectors, or by position deletes in format version 2."""
    from frazil.maintenance import convert_equality_deletes as convert

    name = table_name(table)
    with choice.connect() as client, progress(f"convert {name}") as shown:
        result = convert(
            client.load_table(name),
            where=where,
            branch=branch,
            properties=choice.properties,
            dry_run=choice.dry_run,
            progress=shown,
        )
    if choice.as_json:
        print_json(asdict(result))
        return
    files = count_text(result.converted_equality_delete_files_count, "equality delete file")
    searched = count_text(result.searched_data_files_count, "data file")
    if result.dry_run:
        typer.echo(f"{name}: would convert {files}, and search {searched}")
        return
    added = count_text(result.added_position_delete_files_count, "delete")
    rows = count_text(result.deleted_rows_count, "row")
    typer.echo(f"{name}: converted {files} into {added} by position, of {rows} in {searched}")
    _echo_dangling(result.removed_dangling_delete_files_count)
    _fail(choice, result.failed_equality_delete_files_count, "converted")


def _echo_dangling(removed: int) -> None:
    if removed:
        typer.echo(f"  removed {count_text(removed, 'dangling delete file')}")


def _fail(choice: CatalogChoice, failed: int, done: str) -> None:
    if failed:
        files = count_text(failed, "delete file")
        choice.fail(f"{files} could not be {done}; the log says why. Run the command again")
