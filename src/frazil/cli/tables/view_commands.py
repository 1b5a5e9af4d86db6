"""Declarations of `frazil view`; the implementation is imported when a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, takes_catalog
from frazil.cli.shared.command_group import CommandGroup
from frazil.cli.shared.shell_completion import complete_table
from frazil.cli.tables.table_change import DryRunOption

_VIEW_HELP = 'The view, as namespace.view; \'["a.b","v"]\' for names with dots.'

ViewArgument = Annotated[
    str, typer.Argument(metavar="VIEW", help=_VIEW_HELP, autocompletion=complete_table)
]
SqlArgument = Annotated[
    str, typer.Argument(metavar="SQL", help="The query; - reads it from standard input.")
]
DialectOption = Annotated[
    str, typer.Option("--dialect", metavar="NAME", help="The SQL dialect of the query.")
]
DefaultNamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--default-namespace",
        metavar="NAMESPACE",
        help="Where names without a namespace belong. [default: the view's namespace]",
    ),
]
CommentOption = Annotated[
    str | None, typer.Option("--comment", metavar="TEXT", help="A comment on the view.")
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="KEY=VALUE", help="Set a property; may be repeated."),
]


def register(app: typer.Typer) -> None:
    """Add the commands on views to the command tree."""
    views = typer.Typer(
        cls=CommandGroup,
        help="Create, replace, rename, drop and show views.",
        no_args_is_help=True,
    )
    for name, command in (
        ("create", create),
        ("replace", replace),
        ("rename", rename),
        ("drop", drop),
        ("show", show),
    ):
        views.command(name)(takes_catalog(command))
    app.add_typer(views, name="view")


def create(
    choice: CatalogChoice,
    view: ViewArgument,
    sql: SqlArgument,
    schema: Annotated[
        str,
        typer.Option("--schema", metavar="COLUMNS", help="The columns, as 'id long, item string'."),
    ],
    dialect: DialectOption = "spark",
    default_namespace: DefaultNamespaceOption = None,
    comment: CommentOption = None,
    properties: PropertyOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Create a view with one query."""
    from frazil.cli.tables import view_actions

    definition = view_actions.Definition(
        sql, dialect, schema, default_namespace, comment, tuple(properties or ())
    )
    view_actions.create(choice, view, definition, dry_run=dry_run)


def replace(
    choice: CatalogChoice,
    view: ViewArgument,
    sql: SqlArgument,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="COLUMNS", help="The columns. [default: those that it has]"
        ),
    ] = None,
    dialect: DialectOption = "spark",
    default_namespace: DefaultNamespaceOption = None,
    comment: CommentOption = None,
    properties: PropertyOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Give a view a new version with another query. It keeps its other properties."""
    from frazil.cli.tables import view_actions

    definition = view_actions.Definition(
        sql, dialect, schema, default_namespace, comment, tuple(properties or ())
    )
    view_actions.replace(choice, view, definition, dry_run=dry_run)


def rename(
    choice: CatalogChoice,
    view: ViewArgument,
    to: Annotated[str, typer.Argument(metavar="NEW", help="The new name, with its namespace.")],
    dry_run: DryRunOption = False,
) -> None:
    """Rename a view, also into another namespace."""
    from frazil.cli.tables import view_actions

    view_actions.rename(choice, view, to, dry_run=dry_run)


def drop(
    choice: CatalogChoice,
    view: ViewArgument,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do nothing if there is no such view.")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Drop a view. The tables that it reads stay."""
    from frazil.cli.tables import view_actions

    view_actions.drop(choice, view, if_exists=if_exists, dry_run=dry_run)


def show(
    choice: CatalogChoice,
    view: Annotated[
        str,
        typer.Argument(
            metavar="VIEW[@VERSION]",
            help=f"{_VIEW_HELP} After @, a version id.",
            autocompletion=complete_table,
        ),
    ],
) -> None:
    """Show a view: columns, queries, versions and properties."""
    from frazil.cli.tables import view_actions

    view_actions.show(choice, view)
