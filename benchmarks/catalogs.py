"""The catalogs under measurement, with one interface: REST by raw HTTP, and any PyIceberg
catalog.

Raw HTTP measures only the server: one connection stays open, the body is ready before the clock
starts, and the answer is read to its end but not parsed. PyIceberg runs in a process of its own,
so that its heap of Python objects slows nothing else down.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from benchmarks.histories import NAMESPACE, Commit, Seed, seed_of
from benchmarks.measure import Block, repeat
from benchmarks.processes import cpu_seconds

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120
SETTLE_S = 0.01
IDLE_S = 5


class Catalog(Protocol):
    pid: int
    """The process whose CPU time counts as the catalog's."""

    def register(self, table: str, metadata_location: str) -> None: ...

    def load(self, table: str, snapshots: str, most: int, limit_s: float) -> Block: ...

    def commit(self, table: str, commits: Sequence[Commit], limit_s: float) -> Block:
        """Send the commits, at least one. Start none after the limit."""
        ...

    def snapshot_ids(self, table: str) -> tuple[int, int]:
        """Return the number of snapshots of the table and the id of the current one."""
        ...


class HttpCatalog:
    def __init__(self, url: str, pid: int) -> None:
        self.pid = pid
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
        self._used_at = time.monotonic()

    def close(self) -> None:
        self._connection.close()

    def create_namespace(self) -> None:
        self._send("POST", "/v1/namespaces", _json({"namespace": [NAMESPACE]}))

    def register(self, table: str, metadata_location: str) -> None:
        body = {"name": table, "metadata-location": metadata_location}
        self._send("POST", f"/v1/namespaces/{NAMESPACE}/register", _json(body))

    def load(self, table: str, snapshots: str, most: int, limit_s: float) -> Block:
        path = f"{_path(table)}?snapshots={snapshots}"
        self._refresh_connection()
        sizes: set[int] = set()

        def one() -> float:
            seconds, answer = self._timed("GET", path)
            sizes.add(len(answer))
            return seconds

        before = cpu_seconds(self.pid)
        seconds = repeat(one, most, limit_s)
        cpu_s = _settled_cpu_seconds(self.pid) - before
        return Block(seconds, cpu_s, answer_bytes=max(sizes))

    def commit(self, table: str, commits: Sequence[Commit], limit_s: float) -> Block:
        path = _path(table)
        self._refresh_connection()
        waiting = iter(commits)

        def one() -> float:
            return self._timed("POST", path, next(waiting).body())[0]

        before = cpu_seconds(self.pid)
        seconds = repeat(one, len(commits), limit_s)
        return Block(seconds, _settled_cpu_seconds(self.pid) - before)

    def loaded(self, table: str, snapshots: str) -> dict[str, Any]:
        """Return the metadata of a table from the server's answer."""
        answer = json.loads(self._send("GET", f"{_path(table)}?snapshots={snapshots}"))
        metadata: dict[str, Any] = answer["metadata"]
        return metadata

    def metadata_location(self, table: str) -> str:
        answer = json.loads(self._send("GET", f"{_path(table)}?snapshots=refs"))
        return str(answer["metadata-location"])

    def snapshot_ids(self, table: str) -> tuple[int, int]:
        metadata = self.loaded(table, "all")
        return len(metadata["snapshots"]), int(metadata["current-snapshot-id"])

    def config(self) -> None:
        self._send("GET", "/v1/config")

    def _refresh_connection(self) -> None:
        """Connect again. A server may close an idle connection while other systems are measured."""
        if time.monotonic() - self._used_at > IDLE_S:
            self._connection.close()
            self._connection.connect()

    def _send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        self._refresh_connection()
        return self._timed(method, path, body)[1]

    def _timed(self, method: str, path: str, body: bytes | None = None) -> tuple[float, bytes]:
        headers = {} if body is None else {"content-type": "application/json"}
        started = time.perf_counter()
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        seconds = time.perf_counter() - started
        self._used_at = time.monotonic()
        if response.status not in (200, 204):
            said = answer.decode(errors="replace")[:2000]
            raise RuntimeError(f"{method} {path} was answered with {response.status}: {said}")
        return seconds, answer


class PyIcebergCatalog:
    """A catalog as stock PyIceberg opens it, in its own process."""

    def __init__(self, process: subprocess.Popen[str], server_pid: int | None) -> None:
        self._process = process
        self._server_pid = server_pid
        self.pid = process.pid if server_pid is None else server_pid

    def seed(self, commits: int) -> Seed:
        found = self._ask("seed", appends=commits + 1)["found"]
        return seed_of(found["metadata"], found["rows"])

    def register(self, table: str, metadata_location: str) -> None:
        self._ask("register", table=table, metadata_location=metadata_location)

    def load(self, table: str, snapshots: str, most: int, limit_s: float) -> Block:
        """Over REST PyIceberg chooses the snapshot mode itself (`all`). SQL has no such mode."""
        return self._measured("load", table=table, most=most, limit_s=limit_s)

    def commit(self, table: str, commits: Sequence[Commit], limit_s: float) -> Block:
        sent = [
            {"requirements": commit.requirements(), "updates": commit.updates()}
            for commit in commits
        ]
        return self._measured("commit", table=table, commits=sent, limit_s=limit_s)

    def append(self, table: str, most: int, limit_s: float) -> Block:
        return self._measured("append", table=table, most=most, limit_s=limit_s)

    def snapshot_ids(self, table: str) -> tuple[int, int]:
        count, current = self._ask("snapshot_ids", table=table)["found"]
        return count, current

    def rows(self, table: str) -> int:
        return int(self._ask("rows", table=table)["found"])

    def _measured(self, do: str, **arguments: object) -> Block:
        before = 0.0 if self._server_pid is None else cpu_seconds(self._server_pid)
        answer = self._ask(do, **arguments)
        if self._server_pid is None:
            return Block(answer["seconds"], answer["cpu_s"])
        server_cpu_s = _settled_cpu_seconds(self._server_pid) - before
        return Block(answer["seconds"], server_cpu_s, client_cpu_s=answer["cpu_s"])

    def _ask(self, do: str, **arguments: object) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"PyIceberg's process ended while it was to {do}: see its error")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def pyiceberg_catalog(
    properties: Mapping[str, str], server_pid: int | None = None
) -> Iterator[PyIcebergCatalog]:
    """Start PyIceberg with these properties. `server_pid` is the server it connects to, for its
    CPU."""
    command = [sys.executable, "-m", "benchmarks.pyiceberg_worker", json.dumps(dict(properties))]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield PyIcebergCatalog(process, server_pid)
    finally:
        # The worker ends when its input ends.
        process.communicate(timeout=TIMEOUT_S)


def _settled_cpu_seconds(pid: int) -> float:
    """Return the CPU time, including the work after the last answer: log lines and file deletes."""
    time.sleep(SETTLE_S)
    return cpu_seconds(pid)


def _path(table: str) -> str:
    return f"/v1/namespaces/{NAMESPACE}/tables/{table}"


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
