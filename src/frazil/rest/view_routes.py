"""Routes of views."""

from __future__ import annotations

from frazil.rest.call import Call
from frazil.rest.edge import Edge
from frazil.rest.paging import Listing
from frazil.rest.reply import NO_CONTENT, Reply, json_reply, not_modified
from frazil.rest.request_headers import none_match_holds
from frazil.rest.table_routes import check_agrees
from frazil.wire.requests import (
    CommitViewRequest,
    CreateViewRequest,
    RegisterViewRequest,
    RenameTableRequest,
)
from frazil.wire.responses import ListTablesResponse, table_identifiers


async def list_views(edge: Edge, call: Call) -> Reply:
    namespace = call.namespace()
    listing = Listing(call.route.operation, namespace)
    page = listing.page(call.query("pageToken"), call.query("pageSize"), edge.settings)
    found, after = await edge.blocking(edge.catalog.list_views, namespace, page.after, page.size)
    return json_reply(ListTablesResponse(table_identifiers(found), listing.token(after)))


async def create_view(edge: Edge, call: Call) -> Reply:
    request = call.request_as(CreateViewRequest)
    namespace = call.new_relation(request.name, "view").namespace
    answer = await edge.blocking(edge.catalog.create_view, call.context(), namespace, request)
    return edge.render.answer(answer)


async def register_view(edge: Edge, call: Call) -> Reply:
    request = call.request_as(RegisterViewRequest)
    namespace = call.new_relation(request.name, "view").namespace
    answer = await edge.blocking(edge.catalog.register_view, call.context(), namespace, request)
    return edge.render.answer(answer)


async def load_view(edge: Edge, call: Call) -> Reply:
    identifier = call.view()
    if_none_match = call.headers.get("if-none-match")

    def load() -> Reply:
        view = edge.catalog.load_view(identifier)
        etag = view.etag()
        return (
            not_modified(etag)
            if none_match_holds(if_none_match, etag)
            else (edge.render.loaded_view(view))
        )

    return await edge.blocking(load)


async def view_exists(edge: Edge, call: Call) -> Reply:
    await edge.blocking(edge.catalog.view_exists, call.view())
    return NO_CONTENT


async def replace_view(edge: Edge, call: Call) -> Reply:
    request = call.request_as(CommitViewRequest)
    identifier = call.view()
    check_agrees(request.identifier, identifier, "view")
    future = edge.catalog.commit_view(call.context(), identifier, request)
    return edge.render.answer(await edge.submitted(future))


async def drop_view(edge: Edge, call: Call) -> Reply:
    future = edge.catalog.drop_view(call.context(), call.view())
    return edge.render.answer(await edge.submitted(future))


async def rename_view(edge: Edge, call: Call) -> Reply:
    request = call.request_as(RenameTableRequest)
    source = request.source.identifier("view")
    destination = request.destination.identifier("view")
    call.subject = str(source)
    future = edge.catalog.rename_view(call.context(), source, destination)
    return edge.render.answer(await edge.submitted(future))
