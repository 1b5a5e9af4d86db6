"""`frazil view`: create, replace, rename, drop and show views."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, unknown_if_interrupted, usage
from frazil.cli.shared.printing import (
    heading,
    plain,
    print_json,
    print_pairs,
    print_table,
    time_text,
)
from frazil.cli.shared.typed_names import (
    BadName,
    key_values,
    namespace_name,
    table_and_ref,
    table_name,
)
from frazil.values.types import fields_by_id
from frazil.wire.errors import NoSuchNamespace, NoSuchView

if TYPE_CHECKING:
    from frazil.client.declare.client_view import View, ViewVersion
    from frazil.client.declare.view_updates import ViewOptions


@dataclass(frozen=True)
class Definition:
    """The options of `create` and `replace` as they were typed."""

    sql: str
    dialect: str
    schema: str | None
    default_namespace: str | None
    comment: str | None
    properties: tuple[str, ...]

    def texts(self, choice: CatalogChoice) -> dict[str, str]:
        """Return the query by its dialect."""
        sql = sys.stdin.read() if self.sql == "-" else self.sql
        if not sql.strip():
            usage("the query is empty", choice.output)
        return {self.dialect: sql.strip().removesuffix(";")}

    def options(self) -> ViewOptions:
        properties = key_values("--property", self.properties)
        if self.comment is not None:
            properties["comment"] = self.comment
        options: ViewOptions = {"properties": properties, "summary": {"engine-name": "frazil"}}
        if self.default_namespace is not None:
            options["default_namespace"] = namespace_name(self.default_namespace)
        return options


def create(choice: CatalogChoice, name: str, definition: Definition, *, dry_run: bool) -> None:
    identifier, texts = table_name(name), definition.texts(choice)
    options = definition.options()
    with choice.connect(dry_run=dry_run) as client, unknown_if_interrupted():
        view = client.create_view(identifier, definition.schema or "", texts, **options)
    _report(choice, view, "is created")


def replace(choice: CatalogChoice, name: str, definition: Definition, *, dry_run: bool) -> None:
    identifier, texts = table_name(name), definition.texts(choice)
    options = definition.options()
    with choice.connect(dry_run=dry_run) as client, unknown_if_interrupted():
        before = client.load_view(identifier)
        schema = definition.schema or before.schema_document
        if definition.default_namespace is None:
            options["default_namespace"] = before.current_version.default_namespace
        options["default_catalog"] = before.current_version.default_catalog
        view = client.replace_view(identifier, schema, texts, **options)
    _report(choice, view, f"is at version {view.current_version.version_id}")


def rename(choice: CatalogChoice, name: str, to: str, *, dry_run: bool) -> None:
    identifier, new = table_name(name), table_name(to)
    with choice.connect(dry_run=dry_run) as client, unknown_if_interrupted():
        client.rename_view(identifier, new)
    if choice.as_json:
        print_json({"view": str(new), "previous-view": str(identifier)})
    else:
        typer.echo(f"view {identifier} is now {new}")


def drop(choice: CatalogChoice, name: str, *, if_exists: bool, dry_run: bool) -> None:
    identifier = table_name(name)
    dropped = True
    with choice.connect(dry_run=dry_run) as client, unknown_if_interrupted():
        try:
            client.drop_view(identifier)
        except (NoSuchView, NoSuchNamespace):
            if not if_exists:
                raise
            dropped = False
    if choice.as_json:
        print_json({"view": str(identifier), "dropped": dropped})
    else:
        typer.echo(f"view {identifier} {'is dropped' if dropped else 'does not exist'}")


def show(choice: CatalogChoice, name: str) -> None:
    identifier, ref = table_and_ref(name)
    with choice.connect() as client:
        view = client.load_view(identifier)
    show_view(choice, view, ref)


def _report(choice: CatalogChoice, view: View, what: str) -> None:
    if choice.as_json:
        print_json(_document(view, view.current_version))
    else:
        typer.echo(f"view {view} {what}")


# --- showing a view -------------------------------------------------------------------------------


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
        "identifier": {
            "namespace": list(view.identifier.namespace),
            "name": view.identifier.name,
        },
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
