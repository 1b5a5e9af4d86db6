"""A catalog with a planner in this process, and tables that tests can plan scans for.

Every response is validated against the OpenAPI file. Files are declared and never read, so they
need not exist.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from frazil.db.connect import connect
from frazil.db.rows import Database
from frazil.plan.planner import PlanLimits
from frazil.rest.rest_app import AppSettings
from frazil.rest.server_routes import openapi
from frazil.store.local_store import LocalStore
from tests.commit.finegrained.requests import Json
from tests.commit.finegrained.tables import Answer, Table
from tests.commit.finegrained.world import World, opened_world
from tests.support.patience import HANG_S

NAMESPACE = "plans"
TOKENS = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("ann", "bob")}
_COMPONENTS = json.loads(openapi())["components"]


def validated(document: Any, name: str) -> Any:
    """Return the document after validating it against the OpenAPI file."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": _COMPONENTS}
    Draft202012Validator(schema).validate(document)
    return document


@dataclass
class Planned:
    """The response to a plan request, with all of its pages."""

    table: Table
    body: Json
    pages: list[Json] = field(default_factory=list)

    @property
    def tasks(self) -> list[Json]:
        return [task for page in self.pages for task in page.get("file-scan-tasks", [])]

    @property
    def names(self) -> list[str]:
        """Return the short names of the data files, sorted."""
        return sorted(self.table.short(task["data-file"]["file-path"]) for task in self.tasks)

    def deletes(self) -> dict[str, set[str]]:
        """Return the delete files of each data file that has any."""
        found = {}
        for page in self.pages:
            listed = [
                self.table.short(file["file-path"], file.get("content-offset"))
                for file in page.get("delete-files", [])
            ]
            for task in page.get("file-scan-tasks", []):
                if "delete-file-references" in task:
                    name = self.table.short(task["data-file"]["file-path"])
                    found[name] = {listed[index] for index in task["delete-file-references"]}
        return found

    def residuals(self) -> dict[str, Any]:
        return {
            self.table.short(task["data-file"]["file-path"]): task["residual-filter"]
            for task in self.tasks
        }

    def file(self, name: str) -> Json:
        (found,) = [
            task["data-file"]
            for task in self.tasks
            if self.table.short(task["data-file"]["file-path"]) == name
        ]
        assert isinstance(found, dict)
        return found


def asked(table: Table, principal: str | None = None, **request: Any) -> Answer:
    """Request a plan and return the response; `_` in names stands for `-`."""
    body = {name.replace("_", "-"): value for name, value in request.items()}
    return table.call("POST", f"{table.path}/plan", body, bearer(principal))


def plan(table: Table, principal: str | None = None, **request: Any) -> Planned:
    """Request a plan that completes at once, and return the tasks of all its pages."""
    answer = asked(table, principal, **request)
    assert answer.status == 200, answer.body
    body = validated(answer.body, "PlanTableScanResult")
    assert body["status"] == "completed", body
    return with_pages(table, body, principal)


def with_pages(table: Table, body: Json, principal: str | None = None) -> Planned:
    planned = Planned(table, body, [body])
    waiting = list(body.get("plan-tasks", []))
    while waiting:
        answer = fetch_tasks(table, waiting.pop(), principal)
        assert answer.status == 200, answer.body
        page = validated(answer.body, "FetchScanTasksResult")
        waiting += page.get("plan-tasks", [])
        planned.pages.append(page)
    return planned


def fetch_tasks(table: Table, token: Any, principal: str | None = None) -> Answer:
    return table.call("POST", f"{table.path}/tasks", {"plan-task": token}, bearer(principal))


def fetch_plan(table: Table, plan_id: str, principal: str | None = None) -> Answer:
    return table.call("GET", f"{table.path}/plan/{plan_id}", headers=bearer(principal))


def cancel_plan(table: Table, plan_id: str, principal: str | None = None) -> Answer:
    return table.call("DELETE", f"{table.path}/plan/{plan_id}", headers=bearer(principal))


def bearer(principal: str | None) -> dict[str, str]:
    return {} if principal is None else {"Authorization": f"Bearer {principal}"}


# --- worlds ---------------------------------------------------------------------------------------


class GatedStore(LocalStore):
    """A store whose reads wait while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        """Set when a reader waits at the gate."""

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        if location.endswith(".avro"):
            if not self.gate.is_set():
                self.reached.set()
            assert self.gate.wait(HANG_S)
        return super().get(location, max_bytes)


@dataclass(frozen=True)
class Place:
    """A warehouse and a database. All worlds that are opened on it are replicas."""

    warehouse: Path
    database: Database

    @contextmanager
    def replica(
        self,
        limits: PlanLimits | None = None,
        settings: AppSettings | None = None,
        store: LocalStore | None = None,
    ) -> Iterator[World]:
        with opened_world(self.database, self.warehouse, store, limits, settings) as world:
            yield world


@contextmanager
def new_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="plans-") as name:
        warehouse = Path(name) / "warehouse"
        warehouse.mkdir()
        database = connect(f"sqlite:///{name}/catalog.db")
        database.migrate()
        yield Place(warehouse, database)
        database.close()
