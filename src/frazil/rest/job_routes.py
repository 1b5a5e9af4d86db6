"""Routes of jobs: start, watch and cancel work on tables, and claim it as a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.db.base import Kind
from frazil.housekeeping.services import Housekeeping
from frazil.housekeeping.undo import purged_last
from frazil.rest.call import Call
from frazil.rest.paging import Listing
from frazil.rest.reply import Reply, json_reply
from frazil.rest.routing import decoded
from frazil.wire.errors import NoSuchTable
from frazil.wire.identifiers import Identifier
from frazil.wire.job_messages import (
    ClaimJobRequest,
    ClaimJobResponse,
    Job,
    JobState,
    ListJobsResponse,
    ReportJobRequest,
    StartJobRequest,
)
from frazil.wire.json_bodies import encode
from frazil.wire.maintenance_operations import (
    DELETE_UNREACHABLE_FILES,
    UNDO,
    RunBy,
    operation_of,
)

if TYPE_CHECKING:
    from frazil.rest.rest_app import RestApp

_PAGE_JOBS = "100"
_OF_PURGED_TABLES = (UNDO, DELETE_UNREACHABLE_FILES)


async def start_job(app: RestApp, call: Call) -> Reply:
    """Store a job for the server or for a worker, and answer before it runs."""
    call.context().check_may_change()
    request = call.request_as(StartJobRequest)
    job = await app.blocking(_start, app.housekeeping, call, request)
    app.housekeeping.runner.wake()
    return Reply(202, (encode(job),))


def _start(housekeeping: Housekeeping, call: Call, request: StartJobRequest) -> Job:
    identifier = call.table()
    operation = operation_of(request.operation)
    if operation.run_by is RunBy.SERVER:
        housekeeping.check_available(operation.name)
    if operation.name == UNDO and "as" in request.options:
        # The name may belong to another table by now, which is why a new one is given.
        table_uuid = _purged_uuid(housekeeping, identifier)
    else:
        table_uuid = _uuid(housekeeping, identifier, of_purged=operation.name in _OF_PURGED_TABLES)
    key = None if call.key is None else call.key.key
    return housekeeping.jobs.start(identifier, table_uuid, request, call.principal, key)


def _uuid(housekeeping: Housekeeping, identifier: Identifier, *, of_purged: bool = False) -> str:
    """Return the uuid of a table, or of the table of this name that was purged last."""
    relation = housekeeping.database.relation(identifier)
    if relation is not None and relation.kind is Kind.TABLE:
        return relation.uuid
    if of_purged:
        return _purged_uuid(housekeeping, identifier)
    raise NoSuchTable(f"Table does not exist: {identifier}")


def _purged_uuid(housekeeping: Housekeeping, identifier: Identifier) -> str:
    """Return the uuid of the table of this name that was purged last."""
    row = purged_last(housekeeping.database, identifier)
    if row is None:
        raise NoSuchTable(
            f"Table does not exist: {identifier}: no purged table of this name is in quarantine"
        )
    return row.uuid


async def list_table_jobs(app: RestApp, call: Call) -> Reply:
    """Return the jobs of a table, newest first."""
    table_uuid = await app.blocking(_uuid, app.housekeeping, call.table())
    return await _list(app, call, table_uuid)


async def list_jobs(app: RestApp, call: Call) -> Reply:
    """Return the jobs of all tables, newest first."""
    return await _list(app, call, None)


async def _list(app: RestApp, call: Call, table_uuid: str | None) -> Reply:
    listing = Listing(call.route.operation, (table_uuid or "",))
    size = call.query("pageSize") or _PAGE_JOBS
    wanted = listing.page(call.query("pageToken"), size, app.settings)
    page = await app.blocking(
        app.housekeeping.jobs.list, table_uuid, wanted.after, wanted.size or int(_PAGE_JOBS)
    )
    return json_reply(ListJobsResponse(page.jobs, listing.token(page.after)))


async def load_table_job(app: RestApp, call: Call) -> Reply:
    return json_reply(await app.blocking(_table_job, app.housekeeping, call))


async def cancel_table_job(app: RestApp, call: Call) -> Reply:
    """Cancel a job that waits; ask one that runs to stop."""
    call.context().check_may_change()

    def cancel() -> Job:
        return app.housekeeping.jobs.cancel(_table_job(app.housekeeping, call).job_id)

    return Reply(202, (encode(await app.blocking(cancel)),))


def _table_job(housekeeping: Housekeeping, call: Call) -> Job:
    """Return the job of the path. It keeps the name that its table had."""
    identifier = call.table()
    job = housekeeping.jobs.get(_job_id(call))
    if job.identifier != identifier and job.table_uuid != _uuid(housekeeping, identifier):
        raise NoSuchTable(f"job {job.job_id} belongs to another table: {job.identifier}")
    return job


def _job_id(call: Call) -> str:
    return decoded(call.segments["job-id"], "job id")


async def claim_job(app: RestApp, call: Call) -> Reply:
    """Give a worker the oldest job that it can run now."""
    call.context().check_may_change()
    request = call.request_as(ClaimJobRequest)
    for name in request.operations:
        operation_of(name)
    mine = frozenset(
        name for name in request.operations if operation_of(name).run_by is RunBy.WORKER
    )
    job = await app.blocking(app.housekeeping.jobs.claim, request.worker, mine)
    return json_reply(ClaimJobResponse(job))


async def report_job(app: RestApp, call: Call) -> Reply:
    """Note that a worker is alive, and what it has done. It may give its job back."""
    call.context().check_may_change()
    request = call.request_as(ReportJobRequest)
    jobs, job_id = app.housekeeping.jobs, _job_id(call)

    def report() -> Job:
        if request.state is JobState.RUNNING:
            return jobs.beat(job_id, request.worker, request.progress)
        if request.state is JobState.QUEUED:
            jobs.requeue(job_id, request.worker)
            return jobs.get(job_id)
        return jobs.end(
            job_id,
            request.worker,
            request.state,
            progress=request.progress,
            result=request.result,
            error=request.error,
        )

    return json_reply(await app.blocking(report))


async def get_table_health(app: RestApp, call: Call) -> Reply:
    """Return what maintenance of the table depends on."""
    return json_reply(await app.planning(app.housekeeping.health.of, call.table()))
