"""Calls our planner in process as the edge does, with small pages so that a plan has several."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from frazil.plan.planner import PlanLimits, Planner
from frazil.wire.errors import FrazilError
from frazil.wire.json_bodies import decode
from frazil.wire.scan_planning import FetchScanTasksRequest, PlanTableScanRequest
from tests.commit.requests import Driver, context, name
from tests.oracle.plans.files import Doc

PAGE_FILES = 3
CRASH = "crash"


class OwnPlans:
    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def plan(self, table: str, scan: Doc) -> Doc:
        """Return the `tasks` of a scan, or `error` and `message`."""
        body = {key: value for key, value in scan.items() if value is not None}
        try:
            request = decode(PlanTableScanRequest, json.dumps(body).encode())
            answer = json.loads(self._planner.plan(context(), name(table), request))
            assert answer["status"] == "completed", answer
            return {"tasks": [*self._pages(table, answer)]}
        except FrazilError as error:
            return {"error": error.type, "message": error.message}
        except Exception as error:
            # A defect. Return it, so that the comparison reports it together with its scan.
            return {"error": CRASH, "message": repr(error)}

    def _pages(self, table: str, answer: Any) -> Iterator[Doc]:
        yield from tasks_of(answer)
        for task in answer.get("plan-tasks", ()):
            request = FetchScanTasksRequest(plan_task=task)
            page = json.loads(self._planner.tasks(context(), name(table), request))
            assert "plan-tasks" not in page, page
            yield from tasks_of(page)


def tasks_of(answer: Any) -> Iterator[Doc]:
    """Return the tasks of one answer, with delete files in place of references to them."""
    files = answer.get("delete-files", [])
    for task in answer.get("file-scan-tasks", []):
        deletes = [files[at] for at in task.get("delete-file-references", ())]
        yield {
            "path": task["data-file"]["file-path"],
            "deletes": [[file["file-path"], file.get("content-offset")] for file in deletes],
            "residual": task["residual-filter"],
        }


@contextmanager
def opened_plans(driver: Driver) -> Iterator[OwnPlans]:
    planner = Planner(driver.catalog, b"planning" * 4, PlanLimits(page_files=PAGE_FILES))
    try:
        yield OwnPlans(planner)
    finally:
        planner.close()
