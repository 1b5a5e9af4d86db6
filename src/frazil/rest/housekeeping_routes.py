"""Routes about the files of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.housekeeping.server_operations import ServerTools
from frazil.housekeeping.why import why
from frazil.rest.call import Call
from frazil.rest.reply import Reply, json_reply
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from frazil.rest.rest_app import RestApp


async def explain_file(app: RestApp, call: Call) -> Reply:
    """Say why a file is there, or when it will be deleted."""
    path = call.query("path")
    if not path:
        raise BadRequest("path: missing: give the location of a file, percent-encoded")
    own = app.housekeeping
    tools = ServerTools(own.database, own.store, own.catalog)
    return json_reply(await app.blocking(why, tools, path))
