"""Say that something is a view where a statement needs a table."""

from __future__ import annotations

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.wire.errors import BadRequest, NoSuchTable
from frazil.wire.identifiers import Identifier


def load_target(client: Client, identifier: Identifier) -> Table:
    """Load the table that a statement writes to; raise BadRequest if it is a view."""
    try:
        return client.load_table(identifier)
    except NoSuchTable:
        refuse_view(client, identifier, "write to the tables that it reads")
        raise


def refuse_view(client: Client, identifier: Identifier, advice: str) -> None:
    """Raise BadRequest if the catalog has a view of this name."""
    if client.view_exists(identifier):
        raise BadRequest(f"{identifier} is a view: {advice}")
