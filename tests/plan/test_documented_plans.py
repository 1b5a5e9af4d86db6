"""Every example in the document on scan planning works: a real server gives the same responses."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from frazil.plan.planner import MAX_PLAN_ID_LENGTH, PlanLimits
from frazil.wire.frazil_properties import SCAN_PLANNING, ScanPlanningMode
from frazil.wire.json_bodies import decode
from frazil.wire.scan_planning import (
    FetchScanTasksRequest,
    PlanTableScanRequest,
    check_plan_request,
)
from scripts.java import ROOT
from tests.plan.plan_calls import validated
from tests.support.patience import HANG_S
from tests.support.server import ServerFactory

TEXT = (ROOT / "docs" / "planning.md").read_text()
FENCE = re.compile(r"^```(\S*) ?([\w-]*) ?(\d*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAREHOUSE = "file:///tmp/frazil-plans/warehouse"
TABLE = "/v1/namespaces/shop/tables/orders"
ROUTES = {
    "commit": "",
    "plan": "/plan",
    "plan-explained": "/plan",
    "plan-numbered": "/plan",
    "tasks": "/tasks",
}
HEADERS = {
    "commit": {"Prefer": "return=minimal"},
    "plan-explained": {"X-Frazil-Explain": "true"},
    "plan-numbered": {"X-Frazil-Sequence-Numbers": "true"},
}
RESULTS = {
    "plan": "PlanTableScanResult",
    "plan-explained": "PlanTableScanResult",
    "plan-numbered": "PlanTableScanResult",
    "tasks": "FetchScanTasksResult",
    "commit": "MinimalCommitResponse",
}


@dataclass(frozen=True)
class Block:
    kind: str
    status: int
    line: int
    document: Any


def blocks() -> list[Block]:
    found = []
    for match in FENCE.finditer(TEXT):
        language, kind, status, text = match.groups()
        if language != "json":
            continue
        line = TEXT.count("\n", 0, match.start()) + 1
        found.append(Block(kind, int(status or 0), line, json.loads(text)))
    return found


BLOCKS = blocks()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
def test_a_block_has_the_shape_that_the_openapi_file_gives_it(block: Block) -> None:
    content = json.dumps(block.document).encode()
    if block.kind.startswith("plan"):
        validated(block.document, "PlanTableScanRequest")
        check_plan_request(decode(PlanTableScanRequest, content))
    elif block.kind == "tasks":
        validated(block.document, "FetchScanTasksRequest")
        decode(FetchScanTasksRequest, content)
    elif block.kind == "commit":
        validated(block.document, "CommitTableRequest")
    elif block.kind == "submitted":
        validated(block.document, "PlanTableScanResult")
    else:
        assert block.kind == "answer"


def test_every_field_limit_and_mode_is_told() -> None:
    for field in PlanTableScanRequest.__struct_encode_fields__:
        assert f"`{field}`" in TEXT
    limits = PlanLimits()
    assert f"`--plan-page-files` says ({limits.page_files})" in TEXT
    assert f"`--plan-wait-s` ({limits.quick_s:g} s)" in TEXT
    assert f"({MAX_PLAN_ID_LENGTH} characters)" in TEXT
    for mode in ScanPlanningMode:
        assert f"`{mode}`" in TEXT or f"{SCAN_PLANNING}={mode}" in TEXT


class Story:
    """Sends the documented requests, with the ids and locations of this server."""

    def __init__(self, client: httpx.Client, warehouse: str) -> None:
        self._client = client
        self._warehouse = warehouse
        self._real: dict[Any, Any] = {}
        """Maps values in the document to this server's own values."""

    def begin(self) -> None:
        """Run the commands before the first example, except the one that starts the server."""
        _, commands = (text for language, _, _, text in FENCE.findall(TEXT) if language == "sh")
        commands = commands.replace("http://127.0.0.1:8181", str(self._client.base_url).rstrip("/"))
        finished = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands.replace(WAREHOUSE, self._warehouse)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=HANG_S,
            check=True,
        )
        assert re.findall(r"^\d{3}$", finished.stdout, re.MULTILINE) == ["200", "200"]

    def send(self, block: Block) -> httpx.Response:
        return self._client.post(
            TABLE + ROUTES[block.kind],
            json=self.here(block.document),
            headers=HEADERS.get(block.kind, {}),
        )

    def compare(self, asked: Block, answer: httpx.Response, block: Block) -> None:
        assert answer.status_code == block.status, (block.line, answer.text)
        told, written = answer.json(), block.document
        validated(told, RESULTS[asked.kind] if block.status == 200 else "ErrorResponse")
        for real, shown in zip(self._own(told), self._own(written), strict=True):
            self._real[shown] = real
        assert told == self.here(written), block.line

    def _own(self, document: Any) -> list[Any]:
        """Return the values that only this server would answer, in the order of the document."""
        found = [entry["snapshot-id"] for entry in document.get("committed", ())]
        found += [document[name] for name in ("metadata-location", "plan-id") if name in document]
        return found + list(document.get("plan-tasks", ()))

    def here(self, document: Any) -> Any:
        match document:
            case dict():
                return {name: self.here(value) for name, value in document.items()}
            case list():
                return [self.here(item) for item in document]
            case str() if document not in self._real:
                return document.replace(WAREHOUSE, self._warehouse)
            case int() if isinstance(document, bool):
                return document
        return self._real.get(document, document)


def test_a_server_answers_as_the_document_says(server: ServerFactory) -> None:
    running = server("--plan-page-files", "2")
    with httpx.Client(base_url=running.url, timeout=HANG_S) as client:
        story = Story(client, f"file://{running.warehouse}")
        story.begin()
        asked: Block | None = None
        answer: httpx.Response | None = None
        for block in BLOCKS:
            if block.kind == "answer":
                assert asked is not None
                assert answer is not None
                story.compare(asked, answer, block)
            elif block.kind != "submitted":
                asked, answer = block, story.send(block)
