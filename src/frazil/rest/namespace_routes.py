"""Routes of namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.rest.call import Call
from frazil.rest.paging import list_reply
from frazil.rest.reply import NO_CONTENT, Reply, json_reply
from frazil.wire.errors import UnprocessableEntity
from frazil.wire.identifiers import check_namespace
from frazil.wire.rest_messages import (
    CreateNamespaceRequest,
    ListNamespacesResponse,
    NamespaceResponse,
    UpdateNamespacePropertiesRequest,
)

if TYPE_CHECKING:
    from frazil.rest.app import RestApp


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
