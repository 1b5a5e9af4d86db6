"""A catalog with a table and a view, and the checks that follow a hostile request.

Every test has its own namespace on one shared server. `state` is everything that a client or an
operator could see of the catalog. A refused request must not change it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.server import RunningServer

TABLE = "t"
VIEW = "v"

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
        {"id": 3, "name": "note", "required": False, "type": "string"},
    ],
}
SPEC: dict[str, Any] = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "day_part", "transform": "identity"}],
}
VIEW_VERSION: dict[str, Any] = {
    "version-id": 1,
    "timestamp-ms": 1_700_000_000_000,
    "schema-id": 0,
    "summary": {"engine-name": "spark"},
    "default-namespace": ["a"],
    "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
}


def snapshot(location: str, snapshot_id: int, sequence_number: int, **more: Any) -> dict[str, Any]:
    """Return a snapshot as a stock client sends it. Its manifest list need not exist."""
    return {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence_number,
        "timestamp-ms": int(time.time() * 1000),
        "manifest-list": f"{location}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    } | {name.replace("_", "-"): value for name, value in more.items()}


def set_ref(snapshot_id: int, name: str = "main", kind: str = "branch") -> dict[str, Any]:
    return {
        "action": "set-snapshot-ref",
        "ref-name": name,
        "type": kind,
        "snapshot-id": snapshot_id,
    }


def assert_refused(answer: httpx.Response, *statuses: int) -> str:
    """Check that the answer is a clear 4xx in the standard shape, and return its message."""
    status = answer.status_code
    assert 400 <= status < 500, f"{status}: {answer.text[:500]}"
    assert not statuses or status in statuses, f"{status}: {answer.text[:500]}"
    return error_message(answer)


def error_message(answer: httpx.Response) -> str:
    """Return the message of an error, which must have the standard shape."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    assert error["type"]
    assert isinstance(error["type"], str)
    message = error["message"]
    assert isinstance(message, str)
    assert message
    return message


@dataclass
class World:
    server: RunningServer
    client: httpx.Client
    namespace: str
    allowed: Path
    """An allowed folder outside the warehouse."""
    location: str = ""
    uuid: str = ""
    known: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/v1/namespaces/{quote(self.namespace, safe='')}"

    @property
    def table_path(self) -> str:
        return f"{self.path}/tables/{TABLE}"

    @property
    def view_path(self) -> str:
        return f"{self.path}/views/{VIEW}"

    def identifier(self, name: str = TABLE) -> dict[str, Any]:
        return {"namespace": [self.namespace], "name": name}

    # --- making what a test needs -----------------------------------------------------------------

    def build(self) -> None:
        self.ok("POST", "/v1/namespaces", {"namespace": [self.namespace]})
        self.create_table()
        self.create_view()

    def create_table(self, version: int = 2, **properties: str) -> None:
        """Create a partitioned table with two snapshots, a branch, a tag, statistics and a
        property."""
        body = {
            "name": TABLE,
            "schema": SCHEMA,
            "partition-spec": SPEC,
            "properties": {"format-version": str(version), "owner": "me"} | properties,
        }
        metadata = self.ok("POST", f"{self.path}/tables", body).json()["metadata"]
        self.location, self.uuid = metadata["location"], metadata["table-uuid"]
        first, second = snapshot(self.location, 1, 1), snapshot(self.location, 2, 2)
        if version == 1:
            first, second = (made | {"sequence-number": 0} for made in (first, second))
        if version == 3:
            first |= {"first-row-id": 0, "added-rows": 1}
            second |= {"first-row-id": 1, "added-rows": 1}
        self.committed(
            {"action": "add-snapshot", "snapshot": first},
            {"action": "add-snapshot", "snapshot": second | {"parent-snapshot-id": 1}},
            set_ref(1),
            set_ref(2),
            set_ref(1, "kept", "tag"),
        )

    def create_view(self) -> None:
        body = {"name": VIEW, "schema": SCHEMA, "view-version": VIEW_VERSION}
        self.known["view"] = self.ok("POST", f"{self.path}/views", body).json()["metadata"]

    def ensure(self) -> None:
        """Create again whatever a case has destroyed."""
        if self.client.head(self.path).status_code == 404:
            self.ok("POST", "/v1/namespaces", {"namespace": [self.namespace]})
        if self.client.head(self.table_path).status_code == 404:
            self.client.delete(f"{self.path}/views/{TABLE}")
            self.create_table()
        if self.client.head(self.view_path).status_code == 404:
            self.client.delete(f"{self.path}/tables/{VIEW}")
            self.create_view()

    # --- sending ----------------------------------------------------------------------------------

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send any body: bytes unchanged, everything else as JSON. The path is sent unchanged
        too."""
        sent = {"content-type": "application/json"} if body is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        target = {"target": path.encode()}
        return self.client.request(method, "/", content=content, headers=sent, extensions=target)

    def ok(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        answer = self.send(method, path, body, **headers)
        assert answer.status_code in (200, 202, 204), answer.text
        return answer

    def commit(self, *updates: Any, requirements: Any = ()) -> httpx.Response:
        return self.send(
            "POST", self.table_path, {"requirements": list(requirements), "updates": list(updates)}
        )

    def committed(self, *updates: Any) -> dict[str, Any]:
        answer = self.commit(*updates)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def table(self) -> dict[str, Any]:
        document: dict[str, Any] = self.ok("GET", self.table_path).json()
        return document

    # --- looking ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all namespaces, tables, views and files, with what they point to."""
        namespaces = self.ok("GET", "/v1/namespaces").json()["namespaces"]
        properties = self.ok("GET", self.path).json()["properties"]
        pointers = {
            f"{kind}/{entry['name']}": self.pointer(kind, entry["name"])
            for kind in ("tables", "views")
            for entry in self.ok("GET", f"{self.path}/{kind}").json()["identifiers"]
        }
        return {
            "namespaces": sorted(namespaces),
            "properties": properties,
            "pointers": pointers,
            "files": self.files(),
        }

    def pointer(self, kind: str, name: str) -> str:
        loaded = self.ok("GET", f"{self.path}/{kind}/{quote(name, safe='')}").json()
        return str(loaded["metadata-location"])

    def files(self) -> set[str]:
        return {
            os.path.join(folder, name)
            for root in (self.server.warehouse, self.allowed)
            for folder, folders, names in os.walk(root)
            for name in [*folders, *names]
        }

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check that nothing visible of the catalog differs after the block."""
        before = self.state()
        yield
        assert self.state() == before
