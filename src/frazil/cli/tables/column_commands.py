"""Commands that change the columns, partition fields and sort order of a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from frazil.cli.shared.catalog_command import DRY_RUN, CatalogChoice, add_commands
from frazil.cli.tables.table_change import change_table
from frazil.cli.tables.table_commands import TableArgument

ColumnArgument = Annotated[
    str,
    typer.Argument(
        metavar="COLUMN", help="The column; place.city is the field city of the struct place."
    ),
]
DocOption = Annotated[str | None, typer.Option("--doc", metavar="TEXT", help="A comment on it.")]
FirstOption = Annotated[bool, typer.Option("--first", help="Put it before all others.")]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="COLUMN", help="Put it after this column.")
]
TermArgument = Annotated[
    str, typer.Argument(metavar="TERM", help='A column, or a transform such as "day(at)".')
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command tree."""
    add_commands(
        app,
        {
            "add-column": add_column,
            "drop-column": drop_column,
            "rename-column": rename_column,
            "alter-column": alter_column,
            "set-identifier-fields": set_identifier_fields,
            "add-partition-field": add_partition_field,
            "drop-partition-field": drop_partition_field,
            "set-sort-order": set_sort_order,
        },
        dry_run=DRY_RUN,
    )


# --- columns --------------------------------------------------------------------------------------


def add_column(
    choice: CatalogChoice,
    table: TableArgument,
    column: ColumnArgument,
    type: Annotated[
        str,
        typer.Argument(
            metavar="TYPE",
            help='The type, and what may follow it in SQL, such as "int not null default 0".',
        ),
    ],
    doc: DocOption = None,
    first: FirstOption = False,
    after: AfterOption = None,
) -> None:
    """Add a column; existing rows have its default there, or null."""
    change_table(
        choice,
        table,
        lambda loaded: loaded.add_column(column, type, doc=doc, first=first, after=after),
        f"added the column {column}",
    )


def drop_column(choice: CatalogChoice, table: TableArgument, column: ColumnArgument) -> None:
    """Drop a column; files keep its values, but nothing reads them."""
    done = f"dropped the column {column}"
    change_table(choice, table, lambda loaded: loaded.drop_column(column), done)


def rename_column(
    choice: CatalogChoice,
    table: TableArgument,
    column: ColumnArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="The new name.")],
) -> None:
    """Rename a column; its values stay."""
    done = f"renamed the column {column} to {new_name}"
    change_table(choice, table, lambda loaded: loaded.rename_column(column, new_name), done)


def alter_column(
    choice: CatalogChoice,
    table: TableArgument,
    column: ColumnArgument,
    type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="A wider type, such as long for int.")
    ] = None,
    required: Annotated[
        bool | None,
        typer.Option("--required/--optional", help="Whether it must have a value in every row."),
    ] = None,
    doc: DocOption = None,
    default: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="The value of new rows without one, such as 0, \"'none'\" or "
            "\"date '2026-05-01'\".",
        ),
    ] = None,
    first: FirstOption = False,
    after: AfterOption = None,
) -> None:
    """Change the type, the comment, the default or the place of a column, or allow nulls."""
    changes: dict[str, Any] = {
        "type": type,
        "required": required,
        "doc": doc,
        "default": None if default is None else _constant(choice, default),
        "first": first,
        "after": after,
    }
    done = f"changed the column {column}"
    change_table(choice, table, lambda loaded: loaded.update_column(column, **changes), done)


def _constant(choice: CatalogChoice, text: str) -> Any:
    """Parse a constant as in a filter."""
    from frazil.wire.expressions import Predicate
    from frazil.wire.filter_text import parse_filter

    predicate = parse_filter(f"x = {text}")
    if not isinstance(predicate, Predicate) or len(predicate.values) != 1:
        choice.usage(f"--default {text} is not a constant, such as 0 or \"'text'\"")
    return predicate.values[0]


def set_identifier_fields(
    choice: CatalogChoice,
    table: TableArgument,
    columns: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COLUMN...]", help="Required columns. Without any, none."),
    ] = None,
) -> None:
    """Name the columns that identify a row."""
    names = columns or []
    done = f"identifier fields are {', '.join(names) or 'none'}"
    change_table(choice, table, lambda loaded: loaded.set_identifier_fields(*names), done)


# --- partitions and order -------------------------------------------------------------------------


def add_partition_field(
    choice: CatalogChoice,
    table: TableArgument,
    term: TermArgument,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field's name. [default: from the term]")
    ] = None,
) -> None:
    """Partition new files also by a term; older files stay as they are."""
    done = f"new files are partitioned by {term}"
    change_table(choice, table, lambda loaded: loaded.add_partition_field(term, name=name), done)


def drop_partition_field(
    choice: CatalogChoice,
    table: TableArgument,
    term: Annotated[
        str, typer.Argument(metavar="TERM", help="The term, or the name of the field.")
    ],
) -> None:
    """Stop partitioning new files by a term."""
    done = f"new files are not partitioned by {term}"
    change_table(choice, table, lambda loaded: loaded.drop_partition_field(term), done)


def set_sort_order(
    choice: CatalogChoice,
    table: TableArgument,
    terms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TERM...]",
            help='Terms such as "day(at) desc nulls last". Without any, files are not sorted.',
        ),
    ] = None,
) -> None:
    """Sort the rows of new files."""
    names = terms or []
    done = f"new files are sorted by {', '.join(names) or 'nothing'}"
    change_table(choice, table, lambda loaded: loaded.set_sort_order(*names), done)
