"""Removes dangling deletes after a rewrite, as a job of the server."""

from __future__ import annotations

import logging
import time
from typing import Final

from frazil.client.declare.client_table import Table
from frazil.maintenance.server_jobs import result_of
from frazil.wire.errors import FrazilError
from frazil.wire.maintenance_operations import REMOVE_DANGLING_DELETES

_LOGGER: Final = logging.getLogger("frazil.maintenance")
_TOTAL: Final = "total-delete-files"
_FIRST_POLL_S: Final = 0.02
_LAST_POLL_S: Final = 0.5
_TIMEOUT_S: Final = 30.0
"""Other jobs of the table may come first. Then the job goes on by itself."""


def remove_dangling_after(table: Table, branch: str) -> int:
    """Remove the deletes of a branch that apply to no data file. Return their number.

    The rewrite has succeeded, so a failure is only logged.
    """
    try:
        table = table.refreshed("refs")
        head = table.head(branch)
        if head is None or table.snapshot(head).summary.get(_TOTAL) == "0":
            return 0
        return _removed(table, branch)
    except FrazilError as error:
        _LOGGER.warning("%s: dangling deletes were not removed: %s", table, error)
        return 0


def _removed(table: Table, branch: str) -> int:
    job = table.jobs.start(table.identifier, REMOVE_DANGLING_DELETES, {"branch": branch})
    give_up_s, pause_s = time.monotonic() + _TIMEOUT_S, _FIRST_POLL_S
    while not job.state.is_final:
        if time.monotonic() > give_up_s:
            _LOGGER.info("%s: dangling deletes are removed later, by job %s", table, job.job_id)
            return 0
        time.sleep(pause_s)
        pause_s = min(_LAST_POLL_S, 2 * pause_s)
        job = table.jobs.get(job)
    return int(result_of(job).values["removed_delete_files_count"])
