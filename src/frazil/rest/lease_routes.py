"""Routes of leases and intents.

A lease changes no table, so that a read-only token may take one. The id of an intent is the
request's Idempotency-Key if it has one, so that a repeated request declares one intent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.rest.call import Call
from frazil.rest.reply import NO_CONTENT, Reply, json_reply
from frazil.wire.leases import DeclareIntentRequest, RenewRequest, TakeLeaseRequest

if TYPE_CHECKING:
    from frazil.rest.rest_app import RestApp


async def take_lease(app: RestApp, call: Call) -> Reply:
    request = call.request_as(TakeLeaseRequest)
    context, table = call.context(), call.table()
    return json_reply(await app.blocking(app.leases.take, context, table, request))


async def list_leases(app: RestApp, call: Call) -> Reply:
    return json_reply(await app.blocking(app.leases.list, call.table()))


async def renew_lease(app: RestApp, call: Call) -> Reply:
    request = call.request_as(RenewRequest)
    context, table, lease_id = call.context(), call.table(), call.text_of_path("lease-id")
    return json_reply(await app.blocking(app.leases.renew, context, table, lease_id, request))


async def release_lease(app: RestApp, call: Call) -> Reply:
    context, table, lease_id = call.context(), call.table(), call.text_of_path("lease-id")
    await app.blocking(app.leases.release, context, table, lease_id)
    return NO_CONTENT


async def declare_intent(app: RestApp, call: Call) -> Reply:
    request = call.request_as(DeclareIntentRequest)
    context, table = call.context(), call.table()
    return json_reply(await app.blocking(app.intents.declare, context, table, request))


async def list_intents(app: RestApp, call: Call) -> Reply:
    return json_reply(await app.blocking(app.intents.list, call.table()))


async def renew_intent(app: RestApp, call: Call) -> Reply:
    request = call.request_as(RenewRequest)
    context, table, intent_id = call.context(), call.table(), call.text_of_path("intent-id")
    return json_reply(await app.blocking(app.intents.renew, context, table, intent_id, request))


async def end_intent(app: RestApp, call: Call) -> Reply:
    context, table, intent_id = call.context(), call.table(), call.text_of_path("intent-id")
    is_clean = call.query_boolean("clean")
    await app.blocking(app.intents.end, context, table, intent_id, is_clean=is_clean)
    return NO_CONTENT
