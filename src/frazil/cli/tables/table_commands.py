"""Declarations of the commands on tables; their implementations are imported when they run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from frazil.cli.shared.catalog_command import CatalogChoice, takes_catalog, usage
from frazil.cli.shared.setting_options import Output, OutputOption
from frazil.cli.shared.shell_completion import complete_table
from frazil.cli.tables.table_change import DryRunOption

TABLE_HELP = 'The table, as namespace.table; \'["a.b","t"]\' for names with dots.'
_SNAPSHOT_HELP = "A snapshot id, a branch or a tag; each ^ after it goes back one parent."

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
RefArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Its name. Without a name, all are listed.")
]
AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="SNAPSHOT", help=f"{_SNAPSHOT_HELP} [default: head of main]"),
]
DeleteOption = Annotated[bool, typer.Option("--delete", help="Remove it.")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Move it if it exists already.")]
RefAgeOption = Annotated[
    int | None,
    typer.Option("--max-ref-age-ms", metavar="MS", min=1, help="Expire it at this age."),
]
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


def register(app: typer.Typer) -> None:
    """Add the commands on tables to the command tree."""
    for name, command in (
        ("ls", ls),
        ("show", show),
        ("log", log),
        ("diff", diff),
        ("plan", plan),
        ("branch", branch),
        ("tag", tag),
        ("rollback", rollback),
        ("cherry-pick", cherry_pick),
    ):
        app.command(name)(takes_catalog(command))
    app.command("commit", cls=ManyFiles)(takes_catalog(commit))
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
    old: Annotated[str, typer.Argument(metavar="FROM", help=_SNAPSHOT_HELP)],
    new: Annotated[
        str, typer.Argument(metavar="TO", help=f"{_SNAPSHOT_HELP} [default: main]")
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
        list[str] | None,
        typer.Option("--select", metavar="COLUMN", help="A column to read."),
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
    from frazil.cli.tables.plan_command import PlanArguments, run

    run(choice, PlanArguments(table, where, tuple(select or ()), start, end, limit))


def commit(
    choice: CatalogChoice,
    table: TableArgument,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="FILE", help="A Parquet file to add; its footer is read."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove", metavar="PATH", help="A data file to remove, by its path in `frazil ls`."
        ),
    ] = None,
    remove_where: Annotated[
        str | None,
        typer.Option(
            "--remove-where",
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
            "--partition",
            metavar="NAME=VALUE",
            help="The partition of the added files, if their footers do not prove it.",
        ),
    ] = None,
    summary: Annotated[
        list[str] | None,
        typer.Option("--summary", metavar="KEY=VALUE", help="An entry for the snapshot summary."),
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
            "--base",
            metavar="SNAPSHOT",
            help="The snapshot that was read. [default: head of the branch]",
        ),
    ] = None,
    isolation: Annotated[
        IsolationChoice | None,
        typer.Option(
            "--isolation", help="[default: the table's write.*.isolation-level, or serializable]"
        ),
    ] = None,
    conflict_filter: Annotated[
        str | None,
        typer.Option(
            "--conflict-filter", metavar="FILTER", help="The rows that the change depends on."
        ),
    ] = None,
    save_conflict: SaveConflictOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Commit Parquet files: append, delete, overwrite or replace partitions.

    The options select the operation: --add appends, --remove deletes, and both overwrite.
    """
    from frazil.cli.tables.commit_command import CommitArguments, run

    args = CommitArguments(
        table=table,
        add=tuple(add or ()),
        remove=tuple(remove or ()),
        remove_where=remove_where,
        replace_partitions=replace_partitions,
        branch=branch,
        partition=tuple(partition or ()),
        summary=tuple(summary or ()),
        stage_only=stage_only,
        base=base,
        isolation=None if isolation is None else isolation.value,
        conflict_filter=conflict_filter,
        dry_run=dry_run,
    )
    run(choice, args)


def branch(
    choice: CatalogChoice,
    table: TableArgument,
    name: RefArgument = None,
    at: AtOption = None,
    delete: DeleteOption = False,
    replace: ReplaceOption = False,
    min_snapshots_to_keep: Annotated[
        int | None,
        typer.Option(
            "--min-snapshots-to-keep",
            metavar="N",
            min=1,
            help="Always keep N snapshots.",
        ),
    ] = None,
    max_snapshot_age_ms: Annotated[
        int | None,
        typer.Option("--max-snapshot-age-ms", metavar="MS", min=1, help="Expire older snapshots."),
    ] = None,
    max_ref_age_ms: RefAgeOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """List, create, move or remove branches."""
    retention = {
        "min_snapshots_to_keep": min_snapshots_to_keep,
        "max_snapshot_age_ms": max_snapshot_age_ms,
        "max_ref_age_ms": max_ref_age_ms,
    }
    _ref(choice, "branch", table, name, at, delete, replace, retention, dry_run)


def tag(
    choice: CatalogChoice,
    table: TableArgument,
    name: RefArgument = None,
    at: AtOption = None,
    delete: DeleteOption = False,
    replace: ReplaceOption = False,
    max_ref_age_ms: RefAgeOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """List, create, move or remove tags."""
    retention = {"max_ref_age_ms": max_ref_age_ms}
    _ref(choice, "tag", table, name, at, delete, replace, retention, dry_run)


def _ref(
    choice: CatalogChoice,
    kind: Literal["branch", "tag"],
    table: str,
    name: str | None,
    at: str | None,
    delete: bool,
    replace: bool,
    retention: dict[str, int | None],
    dry_run: bool,
) -> None:
    from frazil.cli.tables import ref_commands

    changes = at is not None or replace or any(value is not None for value in retention.values())
    if name is None:
        if changes or delete or dry_run:
            usage(f"{kind}: give the name of the {kind}", choice.output)
        ref_commands.list_refs(choice, kind, table)
    elif delete:
        if changes:
            usage("--delete cannot be combined with options that change the ref", choice.output)
        ref_commands.delete(choice, kind, table, name, dry_run=dry_run)
    else:
        ref_commands.create(
            choice, kind, table, name, at, retention, replace=replace, dry_run=dry_run
        )


def rollback(
    choice: CatalogChoice,
    table: TableArgument,
    snapshot: Annotated[str | None, typer.Argument(metavar="SNAPSHOT", help=_SNAPSHOT_HELP)] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option(
            "--to-timestamp",
            metavar="TIME",
            help="The last snapshot at this time, such as 2026-05-01T12:00:00Z.",
        ),
    ] = None,
    branch: BranchOption = "main",
    dry_run: DryRunOption = False,
) -> None:
    """Move a branch back to an earlier snapshot; later snapshots stay in the table."""
    from frazil.cli.tables import ref_commands

    ref_commands.rollback(choice, table, snapshot, to_timestamp, branch, dry_run=dry_run)


def cherry_pick(
    choice: CatalogChoice,
    table: TableArgument,
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The staged snapshot's id.")],
    branch: BranchOption = "main",
    save_conflict: SaveConflictOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Publish a staged snapshot on a branch."""
    from frazil.cli.tables import ref_commands

    ref_commands.cherry_pick(choice, table, snapshot, branch, dry_run=dry_run)


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
