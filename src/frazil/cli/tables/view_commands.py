"""`frazil view`: create, replace, rename, drop and show views."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.shared.catalog_command import DRY_RUN, CatalogChoice, add_commands
from frazil.cli.shared.command_group import CommandGroup
from frazil.cli.shared.printing import (
    heading,
    identifier_document,
    plain,
    print_json,
    print_pairs,
    print_table,
    time_text,
)
from frazil.cli.shared.shell_completion import complete_table
from frazil.cli.shared.typed_names import (
    BadName,
    key_values,
    namespace_name,
    table_and_ref,
    table_name,
)
from frazil.cli.tables.table_change import change_catalog, change_unless, print_done
from frazil.wire.errors import NoSuchNamespace, NoSuchView

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.declare.client_view import View, ViewOptions, ViewVersion

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
    add_commands(
        views,
        {"create": create, "replace": replace, "rename": rename, "drop": drop},
        dry_run=DRY_RUN,
    )
    add_commands(views, {"show": show})
    app.add_typer(views, name="view")


def create(
    choice: CatalogChoice,
    view: ViewArgument,
    sql: SqlArgument,
    schema: Annotated[
        str, typer.Option(metavar="COLUMNS", help="The columns, as 'id long, item string'.")
    ],
    dialect: DialectOption = "spark",
    default_namespace: DefaultNamespaceOption = None,
    comment: CommentOption = None,
    properties: PropertyOption = None,
) -> None:
    """Create a view with one query."""
    identifier, texts = table_name(view), _texts(choice, sql, dialect)
    options = _options(default_namespace, comment, properties)
    created = change_catalog(
        choice, lambda client: client.create_view(identifier, schema, texts, **options)
    )
    _report(choice, created, "is created")


def replace(
    choice: CatalogChoice,
    view: ViewArgument,
    sql: SqlArgument,
    schema: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="The columns. [default: those that it has]"),
    ] = None,
    dialect: DialectOption = "spark",
    default_namespace: DefaultNamespaceOption = None,
    comment: CommentOption = None,
    properties: PropertyOption = None,
) -> None:
    """Give a view a new version with another query. It keeps its other properties."""
    identifier, texts = table_name(view), _texts(choice, sql, dialect)
    options = _options(default_namespace, comment, properties)

    def change(client: Client) -> View:
        before = client.load_view(identifier)
        if default_namespace is None:
            options["default_namespace"] = before.current_version.default_namespace
        options["default_catalog"] = before.current_version.default_catalog
        return client.replace_view(identifier, schema or before.schema_document, texts, **options)

    changed = change_catalog(choice, change)
    _report(choice, changed, f"is at version {changed.current_version.version_id}")


def _texts(choice: CatalogChoice, sql: str, dialect: str) -> dict[str, str]:
    """Return the query by its dialect."""
    text = sys.stdin.read() if sql == "-" else sql
    if not text.strip():
        choice.usage("the query is empty")
    return {dialect: text.strip().removesuffix(";")}


def _options(
    default_namespace: str | None, comment: str | None, properties: list[str] | None
) -> ViewOptions:
    values = key_values("--property", properties or ())
    if comment is not None:
        values["comment"] = comment
    options: ViewOptions = {"properties": values, "summary": {"engine-name": "frazil"}}
    if default_namespace is not None:
        options["default_namespace"] = namespace_name(default_namespace)
    return options


def _report(choice: CatalogChoice, view: View, what: str) -> None:
    print_done(choice, f"view {view} {what}", _document(view, view.current_version))


def rename(
    choice: CatalogChoice,
    view: ViewArgument,
    to: Annotated[str, typer.Argument(metavar="NEW", help="The new name, with its namespace.")],
) -> None:
    """Rename a view, also into another namespace."""
    old, new = table_name(view), table_name(to)
    change_catalog(choice, lambda client: client.rename_view(old, new))
    document = {"view": str(new), "previous-view": str(old)}
    print_done(choice, f"view {old} is now {new}", document)


def drop(
    choice: CatalogChoice,
    view: ViewArgument,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do nothing if there is no such view.")
    ] = False,
) -> None:
    """Drop a view. The tables that it reads stay."""
    identifier = table_name(view)
    dropped = change_unless(
        choice,
        lambda client: client.drop_view(identifier),
        NoSuchView,
        NoSuchNamespace,
        tolerated=if_exists,
    )
    done = "is dropped" if dropped else "does not exist"
    print_done(choice, f"view {identifier} {done}", {"view": str(identifier), "dropped": dropped})


# --- showing a view -------------------------------------------------------------------------------


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
    identifier, ref = table_and_ref(view)
    with choice.connect() as client:
        loaded = client.load_view(identifier)
    show_view(choice, loaded, ref)


def show_view(choice: CatalogChoice, view: View, ref: str | None = None) -> None:
    """Print a view at its current version, or at the version whose id is `ref`."""
    if ref is not None and not ref.isdigit():
        raise BadName(f"{view}@{ref}: {view} is a view, so a version id follows @, such as @1")
    version = view.current_version if ref is None else view.version(int(ref))
    if choice.as_json:
        print_json(_document(view, version))
    else:
        _print(view, version)


def _document(view: View, version: ViewVersion) -> dict[str, Any]:
    return {
        "view": str(view.identifier),
        "identifier": identifier_document(view.identifier),
        "view-uuid": view.uuid,
        "format-version": view.metadata["format-version"],
        "location": view.location,
        "metadata-location": view.metadata_location,
        "current-version-id": view.current_version.version_id,
        "version": _version(view, version.version_id),
        "schema": dict(view.schema_document_of(version)),
        "properties": dict(view.properties),
        "versions": [_version(view, each.version_id) for each in view.versions],
    }


def _version(view: View, version_id: int) -> dict[str, Any]:
    versions: list[dict[str, Any]] = view.metadata["versions"]
    return next(version for version in versions if version["version-id"] == version_id)


def _print(view: View, version: ViewVersion) -> None:
    from frazil.values.types import fields_by_id

    typer.echo(f"{typer.style(str(view), bold=True)} (view)")
    print_pairs(
        {
            "uuid": view.uuid,
            "format version": view.metadata["format-version"],
            "location": view.location,
            "metadata": view.metadata_location,
            "default catalog": version.default_catalog,
            "default namespace": ".".join(version.default_namespace) or None,
        },
        "  ",
    )
    for dialect, text in version.texts.items():
        heading(f"Query of version {version.version_id}, dialect {plain(dialect)}")
        for line in text.splitlines():
            typer.echo(f"  {plain(line)}")
    heading(f"Schema {version.schema_id}")
    print_table(
        ("id", "column", "type", "doc"),
        [
            (field_id, column.name, column.field.type.short_name, column.field.doc)
            for field_id, column in fields_by_id(view.schema_of(version)).items()
        ],
        right=("id",),
    )
    if view.properties:
        heading("Properties")
        print_pairs(dict(sorted(view.properties.items())), "  ")
    heading("Versions")
    current = view.current_version.version_id
    print_table(
        ("version", "time", "dialects", "engine", "schema", ""),
        [
            (
                each.version_id,
                time_text(each.timestamp_ms),
                ", ".join(each.texts),
                _engine(each),
                each.schema_id,
                "current" if each.version_id == current else "",
            )
            for each in view.versions
        ],
        right=("version", "schema"),
    )


def _engine(version: ViewVersion) -> str | None:
    names = (version.summary.get("engine-name"), version.summary.get("engine-version"))
    return " ".join(name for name in names if name) or None
