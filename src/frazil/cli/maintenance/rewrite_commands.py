"""`frazil maintain rewrite-…`: rewrite the files of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, add_commands, progress
from frazil.cli.shared.printing import count_text, print_json, size_text
from frazil.cli.shared.typed_names import key_values, table_name
from frazil.cli.spark.spark_session import ConfOption, spark_session
from frazil.cli.tables.table_commands import BranchOption, TableArgument

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.maintenance.rewrite_engine import RewriteEngine
    from frazil.wire.identifiers import Identifier


class Engine(StrEnum):
    """Values of --engine."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def register(group: typer.Typer) -> None:
    """Add the commands to `frazil maintain`."""
    add_commands(
        group,
        {"rewrite-data-files": rewrite_data_files},
        dry_run="Print what would be rewritten, and change nothing.",
    )


def rewrite_data_files(
    choice: CatalogChoice,
    table: TableArgument,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="binpack (the default) keeps the order of rows; sort sorts them.",
        ),
    ] = None,
    sort_order: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER",
            help="The order of sort, such as 'c1 DESC NULLS LAST, bucket(4, c2)' or "
            "'zorder(c1, c2)'; by default the table's.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Rewrite only files that may have matching rows."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An option of Iceberg's procedure, such as min-input-files=2.",
        ),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(help="Rewrite in this process, or by a local Spark. [default: auto]"),
    ] = None,
    conf: ConfOption = None,
    branch: BranchOption = "main",
) -> None:
    """Rewrite small, large and partly deleted data files into files of the target size."""
    from frazil.maintenance import rewrite_data_files as rewrite
    from frazil.maintenance.rewrite_options import ENGINE_OPTION, parse_options
    from frazil.wire.errors import BadRequest

    options = key_values("--option", option or ())
    if engine is not None:
        options = {**options, ENGINE_OPTION: engine}
    try:
        chosen = parse_options(options, {})
    except BadRequest as error:
        choice.usage(f"--option: {error.message}")
    name = table_name(table)
    with (
        _engines(choice, chosen.engine, conf, name) as (client, spark_engine),
        progress(f"rewrite {name}") as shown,
    ):
        result = rewrite(
            client.load_table(name),
            strategy=strategy,
            sort_order=sort_order,
            where=where,
            branch=branch,
            options=options,
            properties=choice.properties,
            spark_engine=spark_engine,
            dry_run=choice.dry_run,
            progress=shown,
        )
    if choice.as_json:
        print_json(asdict(result))
        return
    files = count_text(result.rewritten_data_files_count, "data file")
    size = size_text(result.rewritten_bytes_count)
    if result.dry_run:
        typer.echo(f"{name}: would rewrite {files} ({size})")
        return
    added = count_text(result.added_data_files_count, "data file")
    typer.echo(f"{name}: rewrote {files} ({size}) into {added}")
    if result.engine:
        typer.echo(f"  engine {result.engine}: {result.engine_reason}")
    if result.removed_delete_files_count:
        typer.echo(f"  removed {count_text(result.removed_delete_files_count, 'delete file')}")
    if result.failed_data_files_count:
        failed = count_text(result.failed_data_files_count, "data file")
        choice.fail(f"{failed} could not be rewritten; the log says why. Run the command again")


@contextmanager
def _engines(
    choice: CatalogChoice, engine: str, conf: Sequence[str] | None, table: Identifier
) -> Iterator[tuple[Client, RewriteEngine | None]]:
    """Yield a client, and the engine Spark if it is asked for."""
    if engine != Engine.SPARK:
        if conf:
            choice.usage("--conf is a setting of Spark: give --engine spark")
        with choice.connect() as client:
            yield client, None
        return
    with spark_session(choice, conf, table=table) as session:
        from frazil.spark.maintenance.spark_engine import SparkEngine

        yield session.client, SparkEngine(session.context)
