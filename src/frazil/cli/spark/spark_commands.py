"""Declarations of `frazil spark` commands; their implementations are imported when they run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, takes_catalog
from frazil.cli.shared.command_group import CommandGroup
from frazil.cli.shared.shell_completion import complete_table
from frazil.cli.tables.table_commands import TABLE_HELP, BranchOption, SaveConflictOption

TableOption = Annotated[
    str, typer.Option("--table", metavar="TABLE", help=TABLE_HELP, autocompletion=complete_table)
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="An option of Spark's reader, such as sep=;."
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark, such as spark.driver.memory=4g."
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Do everything except the commit: print the request, and delete the files.",
    ),
]


class FileFormat(StrEnum):
    """Values of --format."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


FormatOption = Annotated[
    FileFormat | None,
    typer.Option("--format", help="Format of the files. [default: from their names]"),
]


class LoadMode(StrEnum):
    """Values of `load --mode`."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite-partitions"


class RowMode(StrEnum):
    """Values of `merge --mode`."""

    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"


def register(app: typer.Typer) -> None:
    spark_app = typer.Typer(
        cls=CommandGroup, help="Work on tables with Spark on this machine.", no_args_is_help=True
    )
    for command in (load, sql, merge):
        spark_app.command(command.__name__)(takes_catalog(command))
    app.add_typer(spark_app, name="spark")


def load(
    choice: CatalogChoice,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Files, folders or patterns that Spark can read."),
    ],
    table: TableOption,
    format: FormatOption = None,
    create: Annotated[
        bool,
        typer.Option("--create", help="Create the table if it does not exist."),
    ] = False,
    partitioned_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partitioned-by",
            metavar="TERM",
            help="With --create: a column or a transform, such as day(ts) or bucket(16, id).",
        ),
    ] = None,
    property: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="KEY=VALUE", help="With --create: a property of the table."
        ),
    ] = None,
    mode: Annotated[
        LoadMode, typer.Option("--mode", help="What happens to existing rows.")
    ] = LoadMode.APPEND,
    merge_schema: Annotated[
        bool,
        typer.Option("--merge-schema", help="Add missing columns and widen types."),
    ] = False,
    option: OptionsOption = None,
    branch: BranchOption = "main",
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Load CSV, JSON or Parquet files into a table, in one commit."""
    from frazil.cli.spark.file_rows import LoadArguments, Source, run_load

    args = LoadArguments(
        source=Source(tuple(files), format and format.value, tuple(option or ())),
        table=table,
        create=create,
        partitioned_by=tuple(partitioned_by or ()),
        properties=tuple(property or ()),
        mode=mode,
        merge_schema=merge_schema,
        branch=branch,
        conf=tuple(conf or ()),
        dry_run=dry_run,
    )
    run_load(choice, args)


def sql(
    choice: CatalogChoice,
    statement: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="Statements separated by semicolons."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Read SQL from a file; - is standard input."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help="Print at most N rows.")
    ] = 100,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Run SQL statements on tables of the catalog and print their results."""
    from frazil.cli.spark.sql_command import SqlArguments, run

    run(choice, SqlArguments(statement, file, limit, tuple(conf or ()), dry_run))


def merge(
    choice: CatalogChoice,
    source: Annotated[
        list[str],
        typer.Option("--source", metavar="FILE", help="A file, folder or pattern with new rows."),
    ],
    table: TableOption,
    on: Annotated[
        list[str],
        typer.Option(
            "--on",
            metavar="COLUMN|CONDITION",
            help="A key column, or a condition such as 'target.id = source.id'.",
        ),
    ],
    update: Annotated[
        bool,
        typer.Option("--update/--no-update", help="Update matching rows with the source's values."),
    ] = True,
    insert: Annotated[
        bool, typer.Option("--insert/--no-insert", help="Insert source rows without a match.")
    ] = True,
    delete_when: Annotated[
        str | None,
        typer.Option(
            "--delete-when",
            metavar="CONDITION",
            help="Delete matching rows instead if this is true, such as 'source.gone'.",
        ),
    ] = None,
    delete_missing: Annotated[
        bool,
        typer.Option("--delete-missing", help="Delete table rows without a match in the source."),
    ] = False,
    mode: Annotated[
        RowMode | None,
        typer.Option("--mode", help="[default: the table's write.merge.mode]"),
    ] = None,
    format: FormatOption = None,
    option: OptionsOption = None,
    branch: BranchOption = "main",
    save_conflict: SaveConflictOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Merge the rows of files into a table: update, insert and delete in one commit."""
    from frazil.cli.spark.file_rows import MergeArguments, Source, run_merge

    args = MergeArguments(
        source=Source(tuple(source), format and format.value, tuple(option or ())),
        table=table,
        on=tuple(on),
        update=update,
        insert=insert,
        delete_when=delete_when,
        delete_missing=delete_missing,
        mode=mode and mode.value,
        branch=branch,
        conf=tuple(conf or ()),
        dry_run=dry_run,
    )
    run_merge(choice, args)
