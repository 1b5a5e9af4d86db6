"""Routes of views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.rest.call import Call, check_same_identifier, matches_etag
from frazil.rest.paging import list_reply
from frazil.rest.reply import NO_CONTENT, Reply, not_modified
from frazil.wire.rest_messages import (
    CommitViewRequest,
    CreateViewRequest,
    ListTablesResponse,
    RegisterViewRequest,
    table_identifiers,
)

if TYPE_CHECKING:
    from frazil.rest.app import RestApp


async def list_views(app: RestApp, call: Call) -> Reply:
    return await list_reply(
        app,
        call,
        call.namespace(),
        app.catalog.list_views,
        lambda views, token: ListTablesResponse(table_identifiers(views), token),
    )


async def create_view(app: RestApp, call: Call) -> Reply:
    request = call.request_as(CreateViewRequest)
    namespace = call.new_relation(request.name, "view").namespace
    answer = await app.blocking(app.catalog.create_view, call.context(), namespace, request)
    return app.render.answer(answer)


async def register_view(app: RestApp, call: Call) -> Reply:
    request = call.request_as(RegisterViewRequest)
    namespace = call.new_relation(request.name, "view").namespace
    answer = await app.blocking(app.catalog.register_view, call.context(), namespace, request)
    return app.render.answer(answer)


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
    source, destination = call.rename("view")
    future = app.catalog.rename_view(call.context(), source, destination)
    return app.render.answer(await app.submitted(future))
