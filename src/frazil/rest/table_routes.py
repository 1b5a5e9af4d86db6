"""Routes of tables and of transactions over many of them."""

from __future__ import annotations

import logging

from frazil.rest.call import Call
from frazil.rest.edge import Edge
from frazil.rest.paging import Listing
from frazil.rest.reply import NO_CONTENT, Reply, json_reply, not_modified
from frazil.rest.request_headers import none_match_holds, prefers_minimal
from frazil.wire.actions import check_request
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier
from frazil.wire.requests import (
    CommitTableRequest,
    CommitTransactionRequest,
    CreateTableRequest,
    RegisterTableRequest,
    RenameTableRequest,
    Report,
    TableIdentifier,
)
from frazil.wire.responses import ListTablesResponse, table_identifiers

_metrics = logging.getLogger("frazil.metrics")

_REFS_ONLY = {None: False, "all": False, "refs": True}
_NAMES_IN_LOG = 5


async def list_tables(edge: Edge, call: Call) -> Reply:
    namespace = call.namespace()
    listing = Listing(call.route.operation, namespace)
    page = listing.page(call.query("pageToken"), call.query("pageSize"), edge.settings)
    found, after = await edge.blocking(edge.catalog.list_tables, namespace, page.after, page.size)
    return json_reply(ListTablesResponse(table_identifiers(found), listing.token(after)))


async def create_table(edge: Edge, call: Call) -> Reply:
    request = call.request_as(CreateTableRequest)
    namespace = call.new_relation(request.name, "table").namespace
    answer = await edge.blocking(edge.catalog.create_table, call.context(), namespace, request)
    return edge.render.created(answer)


async def register_table(edge: Edge, call: Call) -> Reply:
    request = call.request_as(RegisterTableRequest)
    namespace = call.new_relation(request.name, "table").namespace
    answer = await edge.blocking(edge.catalog.register_table, call.context(), namespace, request)
    return edge.render.created(answer)


async def load_table(edge: Edge, call: Call) -> Reply:
    identifier = call.table()
    snapshots = call.query("snapshots")
    refs_only = _REFS_ONLY.get(snapshots)
    if refs_only is None:
        raise BadRequest(f"snapshots: {str(snapshots)[:32]!r} is neither `all` nor `refs`")
    if_none_match = call.headers.get("if-none-match")

    def load() -> Reply:
        # On the worker thread to the end: a long history takes its time to become JSON.
        table = edge.catalog.load_table(identifier)
        etag = edge.render.table_etag(table, refs_only)
        if none_match_holds(if_none_match, etag):
            return not_modified(etag)
        return edge.render.loaded_table(table, refs_only)

    return await edge.blocking(load)


async def table_exists(edge: Edge, call: Call) -> Reply:
    await edge.blocking(edge.catalog.table_exists, call.table())
    return NO_CONTENT


async def update_table(edge: Edge, call: Call) -> Reply:
    request = call.request_as(CommitTableRequest)
    identifier = call.table()
    check_agrees(request.identifier, identifier, "table")
    await edge.by_size(call.body_bytes, check_request, request.updates, request.once)
    future = edge.catalog.commit_table(call.context(), identifier, request)
    minimal = prefers_minimal(call.headers.get("prefer"))
    return edge.render.answer(await edge.submitted(future), minimal=minimal)


async def commit_transaction(edge: Edge, call: Call) -> Reply:
    request = call.request_as(CommitTransactionRequest)
    names = [str(identifier) for identifier in request.identifiers()]
    more = [] if len(names) <= _NAMES_IN_LOG else [f"and {len(names) - _NAMES_IN_LOG} more"]
    call.subject = ", ".join(names[:_NAMES_IN_LOG] + more)
    await edge.by_size(call.body_bytes, check_changes, request)
    future = edge.catalog.commit_transaction(call.context(), request)
    minimal = prefers_minimal(call.headers.get("prefer"))
    return edge.render.answer(await edge.submitted(future), minimal=minimal)


async def drop_table(edge: Edge, call: Call) -> Reply:
    identifier = call.table()
    purge = call.query_boolean("purgeRequested")
    future = edge.catalog.drop_table(call.context(), identifier, purge)
    return edge.render.answer(await edge.submitted(future))


async def unregister_table(edge: Edge, call: Call) -> Reply:
    future = edge.catalog.unregister_table(call.context(), call.table())
    return edge.render.unregistered(await edge.submitted(future))


async def rename_table(edge: Edge, call: Call) -> Reply:
    request = call.request_as(RenameTableRequest)
    source = request.source.identifier("table")
    destination = request.destination.identifier("table")
    call.subject = str(source)
    future = edge.catalog.rename_table(call.context(), source, destination)
    return edge.render.answer(await edge.submitted(future))


async def report_metrics(edge: Edge, call: Call) -> Reply:
    """A report is logged where somebody listens; it changes nothing."""
    report = call.request_as(Report)
    identifier = call.table()
    await edge.blocking(edge.catalog.table_exists, identifier)
    _metrics.debug(
        "report",
        extra={
            "id": call.request_id,
            "table": call.subject,
            "report": type(report).__name__,
            "snapshot_id": report.snapshot_id,
        },
    )
    return NO_CONTENT


def check_agrees(sent: TableIdentifier | None, identifier: Identifier, what: str) -> None:
    """A body that names another table than its path was meant for another route."""
    if sent is not None and sent.identifier(what) != identifier:
        raise BadRequest(f"identifier: names another {what} than the path does; leave it out")


def check_changes(request: CommitTransactionRequest) -> None:
    """Refuses a transaction with a table's change that is wrong by its own text."""
    for index, change in enumerate(request.table_changes):
        check_request(change.updates, change.once, f"table-changes[{index}].")
