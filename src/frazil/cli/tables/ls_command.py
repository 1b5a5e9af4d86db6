"""`frazil ls`: list namespaces, tables and views, or the live files of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from msgspec import to_builtins

from frazil.cli.shared.catalog_command import CatalogChoice
from frazil.cli.shared.printing import (
    count_text,
    identifier_document,
    plain,
    print_json,
    print_table,
    size_text,
)
from frazil.cli.shared.typed_names import BadName, namespace_name, table_and_ref
from frazil.cli.tables.live_files import FilesUnavailable, LiveFile, open_files
from frazil.cli.tables.snapshot_text import find_snapshot, total_text
from frazil.wire.errors import NoSuchNamespace, NotFound
from frazil.wire.file_actions import MAIN

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.declare.client_table import Table


def run(choice: CatalogChoice, name: str | None) -> None:
    with choice.connect() as client:
        if name is None:
            print_namespaces(choice, client, ())
            return
        try:
            table, ref = _table(client, name)
        except BadName:
            _namespace(choice, client, namespace_name(name))
            return
        except NotFound as missing:
            if "@" in name:
                raise
            try:
                _namespace(choice, client, namespace_name(name))
            except NoSuchNamespace as error:
                raise NotFound(f"{missing.message}\n{error.message}") from None
            return
    _files(choice, table, ref)


def _table(client: Client, name: str) -> tuple[Table, str | None]:
    """Load the table of this name; a dot at the end names the namespace if both exist."""
    identifier, ref = table_and_ref(name)
    return client.load_table(identifier), ref


def print_namespaces(choice: CatalogChoice, client: Client, parent: tuple[str, ...]) -> None:
    """Print all namespaces inside of another one."""
    namespaces = sorted(_descendants(client, parent))
    if choice.as_json:
        print_json({"namespaces": [list(namespace) for namespace in namespaces]})
        return
    for namespace in namespaces:
        typer.echo(plain(".".join(namespace)))


def _descendants(client: Client, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
    namespaces: list[tuple[str, ...]] = []
    for namespace in client.list_namespaces(parent or None):
        namespaces += [namespace, *_descendants(client, namespace)]
    return namespaces


def _namespace(choice: CatalogChoice, client: Client, namespace: tuple[str, ...]) -> None:
    try:
        inner = sorted(client.list_namespaces(namespace))
    except NoSuchNamespace:
        if len(namespace) > 1 and client.view_exists(namespace):
            view = ".".join(namespace)
            choice.fail(f"{view} is a view, so it has no files: see `frazil show`")
        raise
    tables, views = sorted(client.list_tables(namespace)), sorted(client.list_views(namespace))
    if choice.as_json:
        print_json(
            {
                "namespace": list(namespace),
                "namespaces": [list(each) for each in inner],
                "tables": [identifier_document(table) for table in tables],
                "views": [identifier_document(view) for view in views],
            }
        )
        return
    rows = [("namespace", ".".join(each)) for each in inner]
    rows += [("table", str(table)) for table in tables]
    rows += [("view", str(view)) for view in views]
    if not rows:
        typer.echo(f"the namespace {'.'.join(namespace)} is empty")
    for kind, shown in rows:
        typer.echo(f"{kind:<9}  {plain(shown)}")


def _files(choice: CatalogChoice, table: Table, ref: str | None) -> None:
    snapshot = find_snapshot(table, ref or MAIN)
    try:
        with open_files(table) as files:
            live_files = files.live(snapshot)
    except FilesUnavailable as error:
        total = None if snapshot is None else total_text(snapshot.summary)
        known = f" By its summary the snapshot has {total}." if total else ""
        choice.fail(f"{error}.{known} To see the files: {error.fix}")
    live_files.sort(key=lambda file: (file.content != "data", file.partition, file.key[0]))
    if choice.as_json:
        print_json(
            {
                "table": str(table.identifier),
                "snapshot-id": None if snapshot is None else snapshot.snapshot_id,
                "files": to_builtins(live_files),
            }
        )
        return
    print_files(live_files)
    rows = sum(file.record_count for file in live_files if file.content == "data")
    size = size_text(sum(file.size_in_bytes for file in live_files))
    typer.echo(f"{count_text(len(live_files), 'file')}, {count_text(rows, 'row')}, {size}")


def print_files(files: Sequence[LiveFile]) -> None:
    if not files:
        return
    print_table(
        ("content", "partition", "rows", "size", "path"),
        [
            (
                file.content,
                file.partition or "-",
                f"{file.record_count:,}",
                size_text(file.size_in_bytes),
                file.file_path
                if file.content_offset is None
                else f"{file.file_path} at {file.content_offset}",
            )
            for file in files
        ],
        right=("rows", "size"),
        unbroken=True,
    )
