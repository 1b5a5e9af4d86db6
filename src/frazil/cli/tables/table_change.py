"""Run one change of a table or of the catalog, and print its result."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, unknown_if_interrupted
from frazil.cli.shared.printing import plain, print_json
from frazil.cli.shared.typed_names import table_name
from frazil.wire.errors import FrazilError

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.declare.client_table import Table
    from frazil.client.declare.table_verbs import Commit

T = TypeVar("T")


def change_table(
    choice: CatalogChoice,
    name: str,
    change: Callable[[Table], Commit],
    done: str | Callable[[Table], str],
) -> None:
    """Change a table; `done` tells people what was changed, perhaps in words about the table."""
    identifier = table_name(name)
    with choice.connect() as client:
        table = client.load_table(identifier, snapshots="refs")
        with unknown_if_interrupted():
            commit = change(table)
    document = {"table": str(identifier), "metadata-location": commit.metadata_location}
    text = done if isinstance(done, str) else done(table)
    print_done(choice, f"{identifier}: {text}", document)


def change_catalog(choice: CatalogChoice, change: Callable[[Client], T]) -> T:
    """Change something other than the metadata of a table, and return what the change returns."""
    with choice.connect() as client, unknown_if_interrupted():
        return change(client)


def change_unless(
    choice: CatalogChoice,
    change: Callable[[Client], object],
    *errors: type[FrazilError],
    tolerated: bool,
) -> bool:
    """Change the catalog; return False if one of the errors shows that there is nothing to do."""
    try:
        change_catalog(choice, change)
    except errors:
        if not tolerated:
            raise
        return False
    return True


def unset_text(keys: Sequence[str], missing: Container[str]) -> str:
    """Return which properties were removed, and which were not set."""
    parts = {
        "unset": [key for key in keys if key not in missing],
        "was not set:": [key for key in keys if key in missing],
    }
    return "; ".join(f"{what} {', '.join(found)}" for what, found in parts.items() if found)


def print_done(choice: CatalogChoice, text: str, document: dict[str, Any]) -> None:
    if choice.as_json:
        print_json(document)
    else:
        typer.echo(plain(text))
