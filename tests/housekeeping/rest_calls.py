"""Calls of the routes of housekeeping: jobs, leases and intents, without the client's help."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.patience import wait_until

_FINAL = ("succeeded", "failed", "cancelled")


class Refused(Exception):
    """The server has refused a request, or a job has failed."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(f"{status} {kind}: {message}")
        self.status = status
        self.kind = kind


@dataclass(frozen=True)
class Routes:
    """The routes below one table."""

    url: str
    table: str
    """The name, with one level of namespace."""

    def call(self, method: str, path: str, body: Any = None) -> Any:
        namespace, _, name = self.table.rpartition(".")
        url = f"{self.url}/frazil/v1/namespaces/{namespace}/tables/{name}/{path}"
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            model = json.loads(error.read())["error"]
            raise Refused(model["code"], model["type"], model["message"]) from None
        return json.loads(content) if content else None

    def run_job(
        self, operation: str, options: Mapping[str, str] | None = None, *, dry_run: bool = False
    ) -> Any:
        """Start a job and wait for its result. Raises Refused."""
        body = {"operation": operation, "options": dict(options or {}), "dry-run": dry_run}
        job = self.call("POST", "jobs", body)
        while job["state"] not in _FINAL:
            job = self._later(job["job-id"], job)
        if job["state"] != "succeeded":
            error = job.get("error") or {"code": 0, "type": job["state"], "message": ""}
            raise Refused(error["code"], error["type"], error["message"])
        return job["result"]

    def _later(self, job_id: str, known: Any) -> Any:
        found: list[Any] = []

        def has_ended() -> bool:
            found[:] = [self.call("GET", f"jobs/{job_id}")]
            return found[0]["state"] in _FINAL

        wait_until(has_ended, f"the job {known} does not end", pause_s=0.005)
        return found[0]

    def wait_for_jobs(self) -> None:
        """Wait until no job of the table is left to do."""

        def are_done() -> bool:
            return all(job["state"] in _FINAL for job in self.call("GET", "jobs")["jobs"])

        wait_until(are_done, "a job does not end")

    def take_lease(self, snapshot_id: int, ttl_ms: int) -> str:
        body = {"snapshot-id": snapshot_id, "ttl-ms": ttl_ms, "holder": "a test"}
        return str(self.call("POST", "leases", body)["lease-id"])

    def renew_lease(self, lease_id: str, ttl_ms: int) -> None:
        self.call("POST", f"leases/{lease_id}", {"ttl-ms": ttl_ms})

    def release_lease(self, lease_id: str) -> None:
        self.call("DELETE", f"leases/{lease_id}")

    def declare_intent(self, prefix: str, ttl_ms: int) -> str:
        body = {"prefix": prefix, "ttl-ms": ttl_ms, "holder": "a test"}
        return str(self.call("POST", "intents", body)["intent-id"])

    def end_intent(self, intent_id: str) -> None:
        self.call("DELETE", f"intents/{intent_id}")
