"""The examples of the fine-grained commit document work against a real server."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from frazil.format.manifest import manifest_writer
from frazil.rest.server_routes import openapi
from frazil.wire.conflicts import MAX_CONFLICT_ITEMS, ConflictClause
from frazil.wire.file_actions import MAX_STREAM_BYTES, CommitUpdate, CommitValidation, check_request
from frazil.wire.frazil_properties import IGNORE_MISSING, REJECT_DUPLICATES, VERIFY_FILES
from frazil.wire.json_bodies import decode, known_tags
from frazil.wire.rest_messages import CommitTableRequest, CommitTransactionRequest
from scripts.java import ROOT
from tests.support.patience import HANG_S
from tests.support.server import ServerFactory

TEXT = (ROOT / "docs" / "fine-grained-commits.md").read_text()
FENCE = re.compile(r"^```(\S*) ?([\w-]*) ?(\d*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMPONENTS = json.loads(openapi())["components"]
WAREHOUSE = "file:///warehouse"


@dataclass(frozen=True)
class Block:
    kind: str
    status: int
    line: int
    document: Any


def blocks() -> list[Block]:
    found = []
    for language, kind, status, text in (match.groups() for match in FENCE.finditer(TEXT)):
        assert language == "json", language
        line = TEXT.count("\n", 0, TEXT.index(text)) + 1
        found.append(Block(kind, int(status or 0), line, json.loads(text)))
    return found


BLOCKS = blocks()
REQUESTS = [block for block in BLOCKS if not block.kind.startswith("answer")]
ANSWERS = [block for block in BLOCKS if block.kind.startswith("answer")]


def schema(name: str) -> Draft202012Validator:
    reference = {"$ref": f"#/components/schemas/{name}", "components": COMPONENTS}
    return Draft202012Validator(reference)


@pytest.mark.parametrize("block", REQUESTS, ids=lambda block: f"line {block.line}")
def test_a_request_is_one_that_the_server_reads(block: Block) -> None:
    content = json.dumps(block.document).encode()
    if block.kind == "transaction":
        schema("CommitTransactionRequest").validate(block.document)
        for change in decode(CommitTransactionRequest, content).table_changes:
            check_request(change.updates, change.once)
    else:
        assert block.kind == "request"
        schema("CommitTableRequest").validate(block.document)
        request = decode(CommitTableRequest, content)
        check_request(request.updates, request.once)


@pytest.mark.parametrize("block", ANSWERS, ids=lambda block: f"line {block.line}")
def test_an_answer_has_the_shape_that_the_openapi_file_gives_it(block: Block) -> None:
    if block.status == 409:
        schema("ErrorResponse").validate(block.document)
    elif "tables" in block.document:
        schema("MinimalTransactionResponse").validate(block.document)
    else:
        schema("MinimalCommitResponse").validate(block.document)


def test_every_action_clause_and_conflict_is_shown() -> None:
    sent = {update["action"] for block in REQUESTS for update in updates_of(block)}
    own = set(known_tags(CommitUpdate, "action"))
    assert sent <= own
    assert {"append", "overwrite", "replace", "delete", "cherry-pick"} <= sent
    for clause in known_tags(CommitValidation, "type"):
        assert f"| `{clause}` |" in TEXT
        assert f'"type": "{clause}"' in TEXT
    for clause in ConflictClause.__args__:  # type: ignore[attr-defined]
        assert f"| `{clause}` |" in TEXT


@pytest.mark.parametrize(
    "name",
    [
        REJECT_DUPLICATES,
        IGNORE_MISSING,
        VERIFY_FILES,
        manifest_writer.MERGE_ENABLED,
        manifest_writer.MIN_COUNT_TO_MERGE,
        manifest_writer.TARGET_SIZE_BYTES,
    ],
)
def test_every_property_is_in_the_table(name: str) -> None:
    properties = TEXT.split("## Table properties")[1].split("## ")[0]
    assert f"`{name}`" in properties


def test_limits_are_the_ones_of_the_code() -> None:
    assert f"at most {MAX_CONFLICT_ITEMS} files and {MAX_CONFLICT_ITEMS} snapshots" in TEXT
    assert f"at most {MAX_STREAM_BYTES} bytes" in TEXT


def updates_of(block: Block) -> list[dict[str, Any]]:
    head_changes = block.document.get("table-changes", [block.document])
    return [update for change in head_changes for update in change["updates"]]


# --- the story --------------------------------------------------------------------------------

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
        {"id": 3, "name": "item", "required": False, "type": "string"},
    ],
}
SPEC = {"fields": [{"name": "day", "transform": "identity", "source-id": 2, "field-id": 1000}]}


class Story:
    """Sends the document's examples with the snapshot ids and locations of this server."""

    def __init__(self, client: httpx.Client, warehouse: str) -> None:
        self._client = client
        self._warehouse = warehouse
        self._real_ids: dict[int, int] = {}

    def begin(self) -> None:
        self._client.post("/v1/namespaces", json={"namespace": ["shop"]}).raise_for_status()
        for name in ("orders", "archive"):
            table = {
                "name": name,
                "schema": SCHEMA,
                "partition-spec": SPEC,
                "location": f"{self._warehouse}/shop/{name}",
                "properties": {"format-version": "2"},
            }
            answer = self._client.post("/v1/namespaces/shop/tables", json=table)
            answer.raise_for_status()

    def send(self, block: Block) -> httpx.Response:
        route = "/v1/namespaces/shop/tables/orders"
        if block.kind == "transaction":
            route = "/v1/transactions/commit"
        body = self.here(block.document)
        return self._client.post(route, json=body, headers={"Prefer": "return=minimal"})

    def compare(self, answer: httpx.Response, block: Block) -> None:
        assert answer.status_code == block.status, (block.line, answer.text)
        real, shown = answer.json(), block.document
        for told, written in zip(entries(real), entries(shown), strict=True):
            self._real_ids.setdefault(written["snapshot-id"], told["snapshot-id"])
        assert comparable(real) == comparable(self.here(shown)), block.line

    def here(self, document: Any) -> Any:
        """Return the document with this server's locations and snapshot ids."""
        match document:
            case dict():
                return {name: self._value(name, value) for name, value in document.items()}
            case list():
                return [self.here(item) for item in document]
            case str():
                return document.replace(WAREHOUSE, self._warehouse)
        return document

    def _value(self, name: str, value: Any) -> Any:
        if name in ("snapshot-id", "base-snapshot-id"):
            return self._real_ids[value]
        return self.here(value)


def entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all entries that an answer lists as committed."""
    tables = document.get("tables", [document])
    return [entry for table in tables for entry in table.get("committed", ())]


def comparable(document: Any) -> Any:
    """Return the document without what differs from run to run: the names of metadata files, the
    order of lists, and the variable end of messages."""
    if isinstance(document, list):
        return sorted((comparable(item) for item in document), key=json.dumps)
    if not isinstance(document, dict):
        return document
    kept = {name: comparable(value) for name, value in document.items()}
    if "metadata-location" in kept:
        kept["metadata-location"] = kept["metadata-location"].rsplit("/", 1)[0]
    if "message" in kept:
        kept["message"] = kept["message"].split(" matching ")[0]
    return kept


def test_a_server_answers_as_the_document_says(server: ServerFactory) -> None:
    running = server()
    with httpx.Client(base_url=running.url, timeout=HANG_S) as client:
        story = Story(client, f"file://{running.warehouse}")
        story.begin()
        last: Block | None = None
        answer: httpx.Response | None = None
        for block in BLOCKS:
            if block.kind.startswith("answer"):
                assert last is not None
                if block.kind == "answer-again":
                    answer = story.send(last)
                assert answer is not None
                story.compare(answer, block)
            else:
                last, answer = block, story.send(block)
