"""Routes of namespaces."""

from __future__ import annotations

from frazil.rest.call import Call
from frazil.rest.edge import Edge
from frazil.rest.paging import Listing
from frazil.rest.reply import NO_CONTENT, Reply, json_reply
from frazil.wire.errors import UnprocessableEntity
from frazil.wire.identifiers import check_namespace
from frazil.wire.requests import CreateNamespaceRequest, UpdateNamespacePropertiesRequest
from frazil.wire.responses import ListNamespacesResponse, NamespaceResponse


async def list_namespaces(edge: Edge, call: Call) -> Reply:
    parent = call.parent()
    listing = Listing(call.route.operation, parent)
    page = listing.page(call.query("pageToken"), call.query("pageSize"), edge.settings)
    found, after = await edge.blocking(edge.catalog.list_namespaces, parent, page.after, page.size)
    return json_reply(ListNamespacesResponse(tuple(found), listing.token(after)))


async def create_namespace(edge: Edge, call: Call) -> Reply:
    request = call.request_as(CreateNamespaceRequest)
    namespace = check_namespace(request.namespace)
    call.subject = ".".join(namespace)
    answer = await edge.blocking(
        edge.catalog.create_namespace, call.context(), namespace, request.properties or {}
    )
    return edge.render.answer(answer)


async def load_namespace(edge: Edge, call: Call) -> Reply:
    namespace = call.namespace()
    properties = await edge.blocking(edge.catalog.load_namespace, namespace)
    return json_reply(NamespaceResponse(namespace, properties))


async def namespace_exists(edge: Edge, call: Call) -> Reply:
    await edge.blocking(edge.catalog.namespace_exists, call.namespace())
    return NO_CONTENT


async def drop_namespace(edge: Edge, call: Call) -> Reply:
    namespace = call.namespace()
    answer = await edge.blocking(edge.catalog.drop_namespace, call.context(), namespace)
    return edge.render.answer(answer)


async def update_properties(edge: Edge, call: Call) -> Reply:
    request = call.request_as(UpdateNamespacePropertiesRequest)
    namespace = call.namespace()
    # The same key twice in `removals` means what it means once.
    removals = tuple(dict.fromkeys(request.removals or ()))
    updates = request.updates or {}
    both = [key for key in removals if key in updates]
    if both:
        shown = ", ".join(repr(key[:100]) for key in both[:10])
        raise UnprocessableEntity(
            f"{shown}: in `removals` and in `updates`; name a key in one of them"
        )
    answer = await edge.blocking(
        edge.catalog.update_namespace_properties, call.context(), namespace, removals, updates
    )
    return edge.render.answer(answer)
