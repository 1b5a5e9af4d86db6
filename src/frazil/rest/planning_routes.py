"""Routes of scan planning.

They change nothing, so an Idempotency-Key on them says nothing: whoever sends the same request
again gets the same answer.
"""

from __future__ import annotations

from frazil.rest.call import Call
from frazil.rest.edge import Edge
from frazil.rest.reply import NO_CONTENT, Reply
from frazil.rest.request_headers import (
    EXPLAIN_HEADER,
    SEQUENCE_NUMBERS_HEADER,
    explains,
    wants_sequence_numbers,
)
from frazil.wire.planning import FetchScanTasksRequest, PlanTableScanRequest, check_plan_request


async def plan_table_scan(edge: Edge, call: Call) -> Reply:
    request = call.request_as(PlanTableScanRequest)
    check_plan_request(request)
    identifier, explain = call.table(), explains(call.headers.get(EXPLAIN_HEADER))
    sequence_numbers = wants_sequence_numbers(call.headers.get(SEQUENCE_NUMBERS_HEADER))
    body = await edge.planning(
        edge.planner.plan,
        call.context(),
        identifier,
        request,
        explain=explain,
        sequence_numbers=sequence_numbers,
    )
    return Reply(200, (body,))


async def fetch_planning_result(edge: Edge, call: Call) -> Reply:
    identifier, plan_id = call.table(), call.plan_id()
    explain = explains(call.headers.get(EXPLAIN_HEADER))
    # Only what is planned again takes long, and that is the planner's to bound.
    body = await edge.planning(
        edge.planner.fetch, call.context(), identifier, plan_id, explain=explain
    )
    return Reply(200, (body,))


async def cancel_planning(edge: Edge, call: Call) -> Reply:
    identifier, plan_id = call.table(), call.plan_id()
    # Not behind the plans: it may be the one that holds them up that is to be cancelled.
    await edge.blocking(edge.planner.cancel, call.context(), identifier, plan_id)
    return NO_CONTENT


async def fetch_scan_tasks(edge: Edge, call: Call) -> Reply:
    request = call.request_as(FetchScanTasksRequest)
    identifier = call.table()
    body = await edge.planning(edge.planner.tasks, call.context(), identifier, request)
    return Reply(200, (body,))
