"""Routes of scan planning.

They change nothing, so they ignore an Idempotency-Key: repeating a request is always safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.rest.call import Call
from frazil.rest.reply import NO_CONTENT, Reply
from frazil.wire.scan_planning import (
    FetchScanTasksRequest,
    PlanTableScanRequest,
    check_plan_request,
)

if TYPE_CHECKING:
    from frazil.rest.rest_app import RestApp


_EXPLAIN_HEADER = "X-Frazil-Explain"
"""Asks for the counts of what planning read and skipped."""
_SEQUENCE_NUMBERS_HEADER = "X-Frazil-Sequence-Numbers"
"""Asks for the data sequence numbers of planned data files."""


async def plan_table_scan(app: RestApp, call: Call) -> Reply:
    request = call.request_as(PlanTableScanRequest)
    check_plan_request(request)
    body = await app.planning(
        app.planner.plan,
        call.context(),
        call.table(),
        request,
        explain=call.header_boolean(_EXPLAIN_HEADER),
        sequence_numbers=call.header_boolean(_SEQUENCE_NUMBERS_HEADER),
    )
    return Reply(200, (body,))


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
