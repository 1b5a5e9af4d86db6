"""The commands of `frazil spark`: each is only declared here, and imported when it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, takes_catalog
from frazil.cli.tables.table_commands import BranchOption

TableOption = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help='The table, as namespace.table; \'["a.b","t"]\' where a name has dots.',
    ),
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
        help="Do all but the commit: print the request that would be sent, and remove the files.",
    ),
]


class FileFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


FormatOption = Annotated[
    FileFormat | None,
    typer.Option("--format", help="The format of the files. [default: by their names]"),
]


class LoadMode(StrEnum):
    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite-partitions"


class RowMode(StrEnum):
    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"


def register(app: typer.Typer) -> None:
    spark_app = typer.Typer(help="Tables by Spark on this machine.", no_args_is_help=True)
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
        typer.Option("--create", help="Create the table where it does not exist, with its rows."),
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
        LoadMode, typer.Option("--mode", help="What becomes of the rows that are there.")
    ] = LoadMode.APPEND,
    merge_schema: Annotated[
        bool, typer.Option("--merge-schema", help="Add columns that the table lacks, widen types.")
    ] = False,
    option: OptionsOption = None,
    branch: BranchOption = "main",
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Load CSV, JSON or Parquet files into a table, in one commit."""
    from frazil.cli.spark.file_rows import Source
    from frazil.cli.spark.spark_load import LoadOrder, run

    order = LoadOrder(
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
    run(choice, order)


def sql(
    choice: CatalogChoice,
    statement: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="Statements, with semicolons between them."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read them here; - is standard input."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help="Print at most N rows.")
    ] = 100,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Run SQL on the catalog's tables and print what it answers."""
    from frazil.cli.spark.sql_command import SqlOrder, run

    run(choice, SqlOrder(statement, file, limit, tuple(conf or ()), dry_run))


def merge(
    choice: CatalogChoice,
    source: Annotated[
        list[str],
        typer.Option("--source", metavar="FILE", help="A file, folder or pattern of new rows."),
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
        typer.Option("--update/--no-update", help="Rows with a match take the source's values."),
    ] = True,
    insert: Annotated[
        bool, typer.Option("--insert/--no-insert", help="Rows without a match are added.")
    ] = True,
    delete_when: Annotated[
        str | None,
        typer.Option(
            "--delete-when",
            metavar="CONDITION",
            help="Rows with a match are deleted instead where it holds: 'source.gone'.",
        ),
    ] = None,
    delete_missing: Annotated[
        bool,
        typer.Option("--delete-missing", help="Delete the table's rows that the source lacks."),
    ] = False,
    mode: Annotated[
        RowMode | None,
        typer.Option("--mode", help="[default: the table's write.merge.mode]"),
    ] = None,
    format: FormatOption = None,
    option: OptionsOption = None,
    branch: BranchOption = "main",
    save_conflict: Annotated[
        str | None,
        typer.Option(
            "--save-conflict", metavar="FILE", help="Where a refusal is kept for `frazil explain`."
        ),
    ] = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Merge the rows of files into a table: update, insert and delete in one commit."""
    from frazil.cli.spark.file_rows import Source
    from frazil.cli.spark.spark_merge import MergeOrder, run

    order = MergeOrder(
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
    run(choice, order)
