"""Routes of tables and of transactions over several tables."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from frazil.rest.call import Call, check_same_identifier, matches_etag, prefers_minimal
from frazil.rest.paging import list_reply
from frazil.rest.reply import NO_CONTENT, Reply, not_modified
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import check_request
from frazil.wire.rest_messages import (
    CommitTableRequest,
    CommitTransactionRequest,
    CreateTableRequest,
    ListTablesResponse,
    RegisterTableRequest,
    Report,
    table_identifiers,
)

if TYPE_CHECKING:
    from frazil.rest.app import RestApp

_metrics = logging.getLogger("frazil.metrics")

_REFS_ONLY = {None: False, "all": False, "refs": True}
_TABLE_NAMES_IN_LOG = 5


async def list_tables(app: RestApp, call: Call) -> Reply:
    return await list_reply(
        app,
        call,
        call.namespace(),
        app.catalog.list_tables,
        lambda tables, token: ListTablesResponse(table_identifiers(tables), token),
    )


async def create_table(app: RestApp, call: Call) -> Reply:
    request = call.request_as(CreateTableRequest)
    namespace = call.new_relation(request.name, "table").namespace
    answer = await app.blocking(app.catalog.create_table, call.context(), namespace, request)
    return app.render.created(answer)


async def register_table(app: RestApp, call: Call) -> Reply:
    request = call.request_as(RegisterTableRequest)
    namespace = call.new_relation(request.name, "table").namespace
    answer = await app.blocking(app.catalog.register_table, call.context(), namespace, request)
    return app.render.created(answer)


async def load_table(app: RestApp, call: Call) -> Reply:
    identifier = call.table()
    snapshots = call.query("snapshots")
    refs_only = _REFS_ONLY.get(snapshots)
    if refs_only is None:
        raise BadRequest(f"snapshots: {str(snapshots)[:32]!r} is neither `all` nor `refs`")
    if_none_match = call.headers.get("if-none-match")

    def load() -> Reply:
        # Render on the worker thread too, because encoding a long history takes time.
        table = app.catalog.load_table(identifier)
        etag = app.render.table_etag(table, refs_only)
        if matches_etag(if_none_match, etag):
            return not_modified(etag)
        return app.render.loaded_table(table, refs_only)

    return await app.blocking(load)


async def table_exists(app: RestApp, call: Call) -> Reply:
    await app.blocking(app.catalog.table_exists, call.table())
    return NO_CONTENT


async def update_table(app: RestApp, call: Call) -> Reply:
    request = call.request_as(CommitTableRequest)
    identifier = call.table()
    check_same_identifier(request.identifier, identifier, "table")
    await app.by_size(call.body_bytes, check_request, request.updates, request.once)
    future = app.catalog.commit_table(call.context(), identifier, request)
    minimal = prefers_minimal(call.headers.get("prefer"))
    return app.render.answer(await app.submitted(future), minimal=minimal)


async def commit_transaction(app: RestApp, call: Call) -> Reply:
    request = call.request_as(CommitTransactionRequest)
    names = [str(identifier) for identifier in request.identifiers()]
    omitted = len(names) - _TABLE_NAMES_IN_LOG
    more = [f"and {omitted} more"] if omitted > 0 else []
    call.subject = ", ".join(names[:_TABLE_NAMES_IN_LOG] + more)
    await app.by_size(call.body_bytes, check_table_changes, request)
    future = app.catalog.commit_transaction(call.context(), request)
    minimal = prefers_minimal(call.headers.get("prefer"))
    return app.render.answer(await app.submitted(future), minimal=minimal)


async def drop_table(app: RestApp, call: Call) -> Reply:
    identifier = call.table()
    purge = call.query_boolean("purgeRequested")
    future = app.catalog.drop_table(call.context(), identifier, purge)
    return app.render.answer(await app.submitted(future))


async def unregister_table(app: RestApp, call: Call) -> Reply:
    future = app.catalog.unregister_table(call.context(), call.table())
    return app.render.unregistered(await app.submitted(future))


async def rename_table(app: RestApp, call: Call) -> Reply:
    source, destination = call.rename("table")
    future = app.catalog.rename_table(call.context(), source, destination)
    return app.render.answer(await app.submitted(future))


async def report_metrics(app: RestApp, call: Call) -> Reply:
    """Log the report at debug level. A report changes nothing."""
    report = call.request_as(Report)
    identifier = call.table()
    await app.blocking(app.catalog.table_exists, identifier)
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


def check_table_changes(request: CommitTransactionRequest) -> None:
    """Refuse a transaction if one of its table changes is invalid by itself."""
    for index, change in enumerate(request.table_changes):
        check_request(change.updates, change.once, f"table-changes[{index}].")
