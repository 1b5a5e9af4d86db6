"""Frazil's server over HTTP: `POST T/plan`, and then all tasks of the plan."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.commit.files import encode
from benchmarks.histories import NAMESPACE, file_url
from benchmarks.measure import Block, repeat
from benchmarks.planning.engine import CACHE_BYTES
from benchmarks.planning.filters import Filter
from benchmarks.planning.trees import Tree
from benchmarks.processes import cpu_seconds
from tests.support.server import RunningServer, start_server

_TABLES: Final = f"/v1/namespaces/{NAMESPACE}/tables"
_TIMEOUT_S: Final = 600


class _Tasks(msgspec.Struct, rename="kebab"):
    """The fields that a client must read to fetch all tasks."""

    status: str | None = None
    plan_tasks: list[str] = []
    file_scan_tasks: list[msgspec.Raw] = []


class ServerPlanner:
    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_TIMEOUT_S)

    def plan(self, table: str, wanted: Filter, most: int, limit_s: float) -> tuple[Block, int]:
        found: set[int] = set()
        answer_bytes = 0

        def one() -> float:
            nonlocal answer_bytes
            started = time.perf_counter()
            files, answer_bytes = self._planned(table, wanted)
            took = time.perf_counter() - started
            found.add(files)
            return took

        before = cpu_seconds(self._server.process.pid)
        seconds = repeat(one, most, limit_s)
        cpu_s = cpu_seconds(self._server.process.pid) - before
        (files,) = found
        return Block(seconds, cpu_s, answer_bytes=answer_bytes), files

    def load(self, table: str) -> None:
        """Load the table, so that the server knows its metadata but not its manifests."""
        self._ask("GET", f"{_TABLES}/{table}", None)

    def _planned(self, table: str, wanted: Filter) -> tuple[int, int]:
        body = {} if wanted.json is None else {"filter": wanted.json}
        content = self._ask("POST", f"{_TABLES}/{table}/plan", body)
        tasks = msgspec.json.decode(content, type=_Tasks)
        if tasks.status != "completed":
            raise RuntimeError(f"the plan of {table} is {tasks.status}, not completed")
        files, size, waiting = len(tasks.file_scan_tasks), len(content), list(tasks.plan_tasks)
        while waiting:
            token = {"plan-task": waiting.pop()}
            content = self._ask("POST", f"{_TABLES}/{table}/tasks", token)
            tasks = msgspec.json.decode(content, type=_Tasks)
            files, size = files + len(tasks.file_scan_tasks), size + len(content)
            waiting += tasks.plan_tasks
        return files, size

    def register(self, tree: Tree) -> None:
        body = {"name": tree.name, "metadata-location": tree.metadata_location}
        self._ask("POST", f"/v1/namespaces/{NAMESPACE}/register", body)

    def create_namespace(self) -> None:
        self._ask("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        content = None if body is None else encode(body)
        self._connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        read = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} answered {answer.status}: {read[:500]!r}")
        return read

    def close(self) -> None:
        self._connection.close()


@contextmanager
def running_server_planner(
    scratch: Path, trees: Path, *, cache_folder: str = ""
) -> Iterator[ServerPlanner]:
    """Start a server whose cache fits all manifests. Without `cache_folder` it keeps none on
    disk."""
    server = start_server(
        scratch,
        *("--allow-location", file_url(trees)),
        *("--manifest-cache-bytes", str(CACHE_BYTES)),
        *("--manifest-cache-folder", cache_folder),
        *("--plan-wait-s", str(_TIMEOUT_S)),
    )
    planner = ServerPlanner(server)
    try:
        yield planner
    finally:
        planner.close()
        server.stop()
