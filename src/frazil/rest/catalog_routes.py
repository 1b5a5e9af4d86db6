"""Routes of namespaces, tables, scans, views, and transactions over several tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from uuid import UUID

from frazil.commit.pipeline.catalog_answers import Answer
from frazil.commit.pipeline.pending_requests import Context
from frazil.plan.plan_leases import OwnLease
from frazil.rest.call import Call, check_same_identifier, matches_etag, prefers_minimal
from frazil.rest.paging import list_reply
from frazil.rest.reply import NO_CONTENT, Reply, json_reply, not_modified
from frazil.wire.errors import BadRequest, UnprocessableEntity
from frazil.wire.file_actions import check_request
from frazil.wire.identifiers import Identifier, Namespace, check_namespace
from frazil.wire.leases import BASE_LEASE_PREFIX, PLAN_LEASE_HEADER
from frazil.wire.rest_messages import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    ListNamespacesResponse,
    ListTablesResponse,
    NamespaceResponse,
    RegisterTableRequest,
    RegisterViewRequest,
    Report,
    ScanReport,
    UpdateNamespacePropertiesRequest,
    table_identifiers,
)
from frazil.wire.scan_planning import (
    FetchScanTasksRequest,
    PlanTableScanRequest,
    check_plan_request,
)

if TYPE_CHECKING:
    from frazil.rest.rest_app import RestApp

_metrics = logging.getLogger("frazil.metrics")

_REFS_ONLY = {None: False, "all": False, "refs": True}
_TABLE_NAMES_IN_LOG = 5
_EXPLAIN_HEADER = "X-Frazil-Explain"
"""Asks for the counts of what planning read and skipped."""
_SEQUENCE_NUMBERS_HEADER = "X-Frazil-Sequence-Numbers"
"""Asks for the data sequence numbers of planned files."""
_ALL_DELETES_HEADER = "X-Frazil-All-Deletes"
"""Asks also for equality deletes whose values cannot occur in a data file."""

_ListRelations: TypeAlias = Callable[
    [Namespace, str | None, int | None], tuple[Sequence[Identifier], str | None]
]
_RenameRelation: TypeAlias = Callable[[Context, Identifier, Identifier], Future[Answer]]
R = TypeVar(
    "R",
    bound=CreateTableRequest | RegisterTableRequest | CreateViewRequest | RegisterViewRequest,
)


# --- namespaces -----------------------------------------------------------------------------------


async def list_namespaces(app: RestApp, call: Call) -> Reply:
    return await list_reply(
        app,
        call,
        call.parent(),
        app.catalog.list_namespaces,
        lambda namespaces, token: ListNamespacesResponse(tuple(namespaces), token),
    )


async def create_namespace(app: RestApp, call: Call) -> Reply:
    request = call.request_as(CreateNamespaceRequest)
    namespace = check_namespace(request.namespace)
    call.subject = ".".join(namespace)
    answer = await app.blocking(
        app.catalog.create_namespace, call.context(), namespace, request.properties or {}
    )
    return app.render.answer(answer)


async def load_namespace(app: RestApp, call: Call) -> Reply:
    namespace = call.namespace()
    properties = await app.blocking(app.catalog.load_namespace, namespace)
    return json_reply(NamespaceResponse(namespace, properties))


async def namespace_exists(app: RestApp, call: Call) -> Reply:
    await app.blocking(app.catalog.namespace_exists, call.namespace())
    return NO_CONTENT


async def drop_namespace(app: RestApp, call: Call) -> Reply:
    namespace = call.namespace()
    answer = await app.blocking(app.catalog.drop_namespace, call.context(), namespace)
    return app.render.answer(answer)


async def update_properties(app: RestApp, call: Call) -> Reply:
    request = call.request_as(UpdateNamespacePropertiesRequest)
    namespace = call.namespace()
    # A key that appears twice in `removals` counts once.
    removals = tuple(dict.fromkeys(request.removals or ()))
    updates = request.updates or {}
    both = [key for key in removals if key in updates]
    if both:
        shown = ", ".join(repr(key[:100]) for key in both[:10])
        raise UnprocessableEntity(
            f"{shown}: in `removals` and in `updates`; name a key in one of them"
        )
    answer = await app.blocking(
        app.catalog.update_namespace_properties, call.context(), namespace, removals, updates
    )
    return app.render.answer(answer)


# --- tables ---------------------------------------------------------------------------------------


async def list_tables(app: RestApp, call: Call) -> Reply:
    return await _list(app, call, app.catalog.list_tables)


async def create_table(app: RestApp, call: Call) -> Reply:
    return await _create(app, call, "table", CreateTableRequest, app.catalog.create_table)


async def register_table(app: RestApp, call: Call) -> Reply:
    return await _create(app, call, "table", RegisterTableRequest, app.catalog.register_table)


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
    await app.by_size(call.body_bytes, _check_table_changes, request)
    future = app.catalog.commit_transaction(call.context(), request)
    minimal = prefers_minimal(call.headers.get("prefer"))
    return app.render.answer(await app.submitted(future), minimal=minimal)


def _check_table_changes(request: CommitTransactionRequest) -> None:
    """Refuse a transaction if one of its table changes is invalid by itself."""
    for index, change in enumerate(request.table_changes):
        check_request(change.updates, change.once, f"table-changes[{index}].")


async def drop_table(app: RestApp, call: Call) -> Reply:
    identifier = call.table()
    purge = call.query_boolean("purgeRequested")
    now = call.query_boolean("frazil-now")
    if now and not purge:
        raise BadRequest("frazil-now: it deletes files at once: send purgeRequested=true with it")
    future = app.catalog.drop_table(call.context(), identifier, purge, now)
    return app.render.answer(await app.submitted(future))


async def unregister_table(app: RestApp, call: Call) -> Reply:
    future = app.catalog.unregister_table(call.context(), call.table())
    return app.render.unregistered(await app.submitted(future))


async def rename_table(app: RestApp, call: Call) -> Reply:
    return await _rename(app, call, "table", app.catalog.rename_table)


async def report_metrics(app: RestApp, call: Call) -> Reply:
    """Log the report at debug level, and count a scan. The server counts its commits itself."""
    report = call.request_as(Report)
    identifier = call.table()
    is_scan = isinstance(report, ScanReport)
    note = app.catalog.count_scan if is_scan else app.catalog.table_exists
    await app.blocking(note, identifier)
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


# --- scans ----------------------------------------------------------------------------------------

# They change nothing, so they ignore an Idempotency-Key: repeating a request is always safe.


async def plan_table_scan(app: RestApp, call: Call) -> Reply:
    request = call.request_as(PlanTableScanRequest)
    check_plan_request(request)
    lease_id = call.headers.get(PLAN_LEASE_HEADER.lower())
    own_lease = None if lease_id is None else OwnLease(_plan_lease_id(lease_id), call.principal)
    body = await app.planning(
        app.planner.plan,
        call.context(),
        call.table(),
        request,
        explain=call.header_boolean(_EXPLAIN_HEADER),
        sequence_numbers=call.header_boolean(_SEQUENCE_NUMBERS_HEADER),
        all_deletes=call.header_boolean(_ALL_DELETES_HEADER),
        own_lease=own_lease,
    )
    if own_lease is None or not own_lease.is_taken:
        return Reply(200, (body,))
    header = PLAN_LEASE_HEADER.lower().encode(), own_lease.lease_id.encode()
    return Reply(200, (body,), (header,))


def _plan_lease_id(text: str) -> str:
    base = BASE_LEASE_PREFIX if text.startswith(BASE_LEASE_PREFIX) else ""
    try:
        return base + str(UUID(text.removeprefix(base)))
    except ValueError:
        raise BadRequest(f"{PLAN_LEASE_HEADER}: {text[:64]!r} is not a UUID") from None


async def fetch_planning_result(app: RestApp, call: Call) -> Reply:
    identifier, plan_id = call.table(), call.plan_id()
    explain = call.header_boolean(_EXPLAIN_HEADER)
    # This is slow only if the scan must be planned again, and the planner limits that.
    body = await app.planning(
        app.planner.fetch, call.context(), identifier, plan_id, explain=explain
    )
    return Reply(200, (body,))


async def cancel_planning(app: RestApp, call: Call) -> Reply:
    identifier, plan_id = call.table(), call.plan_id()
    # Not on the planning threads: the plan to cancel may be blocking them.
    await app.blocking(app.planner.cancel, call.context(), identifier, plan_id)
    return NO_CONTENT


async def fetch_scan_tasks(app: RestApp, call: Call) -> Reply:
    request = call.request_as(FetchScanTasksRequest)
    identifier = call.table()
    body = await app.planning(app.planner.tasks, call.context(), identifier, request)
    return Reply(200, (body,))


# --- views ----------------------------------------------------------------------------------------


async def list_views(app: RestApp, call: Call) -> Reply:
    return await _list(app, call, app.catalog.list_views)


async def create_view(app: RestApp, call: Call) -> Reply:
    return await _create(app, call, "view", CreateViewRequest, app.catalog.create_view)


async def register_view(app: RestApp, call: Call) -> Reply:
    return await _create(app, call, "view", RegisterViewRequest, app.catalog.register_view)


async def load_view(app: RestApp, call: Call) -> Reply:
    identifier = call.view()
    if_none_match = call.headers.get("if-none-match")

    def load() -> Reply:
        view = app.catalog.load_view(identifier)
        etag = view.etag()
        if matches_etag(if_none_match, etag):
            return not_modified(etag)
        return app.render.loaded_view(view)

    return await app.blocking(load)


async def view_exists(app: RestApp, call: Call) -> Reply:
    await app.blocking(app.catalog.view_exists, call.view())
    return NO_CONTENT


async def replace_view(app: RestApp, call: Call) -> Reply:
    request = call.request_as(CommitViewRequest)
    identifier = call.view()
    check_same_identifier(request.identifier, identifier, "view")
    future = app.catalog.commit_view(call.context(), identifier, request)
    return app.render.answer(await app.submitted(future))


async def drop_view(app: RestApp, call: Call) -> Reply:
    future = app.catalog.drop_view(call.context(), call.view())
    return app.render.answer(await app.submitted(future))


async def rename_view(app: RestApp, call: Call) -> Reply:
    return await _rename(app, call, "view", app.catalog.rename_view)


# --- tables and views -----------------------------------------------------------------------------


async def _list(app: RestApp, call: Call, read: _ListRelations) -> Reply:
    return await list_reply(
        app,
        call,
        call.namespace(),
        read,
        lambda identifiers, token: ListTablesResponse(table_identifiers(identifiers), token),
    )


async def _create(
    app: RestApp,
    call: Call,
    kind: str,
    body: type[R],
    create: Callable[[Context, Identifier, R], Answer],
) -> Reply:
    """Create or register a table or view; the reply is that of loading it."""
    request = call.request_as(body)
    identifier = call.relation(request.name, kind)
    answer = await app.blocking(create, call.context(), identifier, request)
    return app.render.created(answer)


async def _rename(app: RestApp, call: Call, kind: str, rename: _RenameRelation) -> Reply:
    source, destination = call.rename(kind)
    future = rename(call.context(), source, destination)
    return app.render.answer(await app.submitted(future))
