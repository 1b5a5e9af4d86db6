"""Declarations of the commands on tables; their implementations are imported when they run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from frazil.cli.shared.catalog_command import DRY_RUN, CatalogChoice, add_commands
from frazil.cli.shared.setting_options import Output, OutputOption
from frazil.cli.shared.shell_completion import complete_table

TABLE_HELP = 'The table, as namespace.table; \'["a.b","t"]\' for names with dots.'
SNAPSHOT_HELP = "A snapshot id, a branch or a tag; each ^ after it goes back one parent."

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help=TABLE_HELP, autocompletion=complete_table)
]
TableAtArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE[@REF]",
        help=f"{TABLE_HELP} After @, a branch, a tag or a snapshot id.",
        autocompletion=complete_table,
    ),
]
BranchOption = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch.")]
SaveConflictOption = Annotated[
    str | None,
    typer.Option(
        "--save-conflict", metavar="FILE", help="Save a refusal here for `frazil explain`."
    ),
]


class ManyFiles(TyperCommand):
    """Accepts several values after --add and --remove, such as the expansion of `*.parquet`.

    The table must come first, because after a list of files it would be taken for a file.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0].startswith("-"):
            return super().parse_args(ctx, args)
        expanded: list[str] = []
        flag: str | None = None
        for number, arg in enumerate(args):
            if not arg.startswith("-"):
                expanded += [arg] if flag is None else [flag, arg]
                continue
            has_values = not (args[number + 1 :] or ["-"])[0].startswith("-")
            flag = arg if arg in ("--add", "--remove") and has_values else None
            if flag is None:
                expanded.append(arg)
        return super().parse_args(ctx, expanded)


class IsolationChoice(StrEnum):
    """Values of --isolation."""

    SERIALIZABLE = "serializable"
    SNAPSHOT = "snapshot"


def register_reads(app: typer.Typer) -> None:
    """Add the commands that read tables to the command tree."""
    add_commands(app, {"ls": ls, "show": show, "log": log, "diff": diff, "plan": plan})


def register_commit(app: typer.Typer) -> None:
    """Add `commit`, and what explains its errors, to the command tree."""
    add_commands(app, {"commit": commit}, dry_run=DRY_RUN, kind=ManyFiles)
    app.command("explain")(explain)


def ls(
    choice: CatalogChoice,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAMESPACE|TABLE[@REF]",
            help="A namespace or a table; by default all namespaces.",
            autocompletion=complete_table,
        ),
    ] = None,
) -> None:
    """List namespaces, the tables and views of one, or the live files of a table."""
    from frazil.cli.tables.ls_command import run

    run(choice, name)


def show(choice: CatalogChoice, table: TableAtArgument) -> None:
    """Show a table: schema, partition spec, sort order, properties, refs, a snapshot; or a view."""
    from frazil.cli.tables import show_command

    show_command.show(choice, table)


def log(
    choice: CatalogChoice,
    table: TableAtArgument,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=1, help="Show the newest N."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show all snapshots, also those on no branch.")
    ] = False,
) -> None:
    """Show the snapshots of a branch or tag, newest first."""
    from frazil.cli.tables import show_command

    show_command.log(choice, table, limit, every)


def diff(
    choice: CatalogChoice,
    table: TableArgument,
    old: Annotated[str, typer.Argument(metavar="FROM", help=SNAPSHOT_HELP)],
    new: Annotated[
        str, typer.Argument(metavar="TO", help=f"{SNAPSHOT_HELP} [default: main]")
    ] = "main",
) -> None:
    """Compare two snapshots: live files added and removed, by partition, and the schema."""
    from frazil.cli.tables.diff_command import run

    run(choice, table, old, new)


def plan(
    choice: CatalogChoice,
    table: TableAtArgument,
    where: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="FILTER",
            help="The rows to scan, such as \"day = '2026-05-01' and id > 7\".",
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column to read.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="SNAPSHOT", help="Plan only files appended after it."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="SNAPSHOT", help="Plan only files appended up to it. [default: main]"
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=0, help="Show only the first N files."),
    ] = None,
) -> None:
    """Show the files that a scan must read, and what is skipped and why."""
    from frazil.cli.tables.plan_command import run

    run(choice, table, where, select=select, start=start, end=end, limit=limit)


def commit(
    choice: CatalogChoice,
    table: TableArgument,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A Parquet file to add; its footer is read."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="A data file to remove, by its path in `frazil ls`."),
    ] = None,
    remove_where: Annotated[
        str | None,
        typer.Option(
            metavar="FILTER",
            help="Remove the data files whose rows all match, such as \"day < '2026-05-01'\".",
        ),
    ] = None,
    replace_partitions: Annotated[
        bool,
        typer.Option(
            "--replace-partitions",
            help="Replace all rows in the partitions of the added files.",
        ),
    ] = False,
    branch: BranchOption = "main",
    partition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="The partition of the added files, if their footers do not prove it.",
        ),
    ] = None,
    summary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An entry for the snapshot summary."),
    ] = None,
    stage_only: Annotated[
        bool,
        typer.Option(
            "--stage-only",
            help="Create the snapshot without moving the branch; cherry-pick it later.",
        ),
    ] = False,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="SNAPSHOT", help="The snapshot that was read. [default: head of the branch]"
        ),
    ] = None,
    isolation: Annotated[
        IsolationChoice | None,
        typer.Option(help="[default: the table's write.*.isolation-level, or serializable]"),
    ] = None,
    conflict_filter: Annotated[
        str | None, typer.Option(metavar="FILTER", help="The rows that the change depends on.")
    ] = None,
    save_conflict: SaveConflictOption = None,
) -> None:
    """Commit Parquet files: append, delete, overwrite or replace partitions.

    The options select the operation: --add appends, --remove deletes, and both overwrite.
    """
    from frazil.cli.tables.commit_command import CommitArguments, run

    args = CommitArguments(
        table=table,
        add=add or (),
        remove=remove or (),
        remove_where=remove_where,
        replace_partitions=replace_partitions,
        branch=branch,
        partition=partition or (),
        summary=summary or (),
        stage_only=stage_only,
        base=base,
        isolation=isolation,
        conflict_filter=conflict_filter,
    )
    run(choice, args)


def explain(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The error as JSON, a whole HTTP response, or a file of --save-conflict; "
            "- is standard input.",
        ),
    ] = "-",
    output: OutputOption = Output.TEXT,
) -> None:
    """Explain why a commit was refused, and what to do."""
    from frazil.cli.shared.conflict_explanation import run

    run(source, output)
