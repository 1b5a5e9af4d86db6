"""The examples of the fine-grained commit document work against a real server."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
STATUS = re.compile(r"^(\d{3})$", re.MULTILINE)
SNAPSHOT_ID = re.compile(r'(snapshot-id": )(\d+)')
HOME = "/tmp/frazil"
"""The folder of the document's server."""


@dataclass(frozen=True)
class Block:
    kind: str
    status: int
    line: int
    document: Any
    text: str


def blocks() -> list[Block]:
    found = []
    for language, kind, status, text in (match.groups() for match in FENCE.finditer(TEXT)):
        if language != "json":
            continue
        line = TEXT.count("\n", 0, TEXT.index(text)) + 1
        found.append(Block(kind, int(status or 0), line, json.loads(text), text))
    return found


def setup() -> str:
    """Return the commands before the first example, without the one that starts the server."""
    commands = [text for language, _, _, text in FENCE.findall(TEXT) if language == "sh"]
    lines = [line for line in "".join(commands).splitlines() if "frazil serve" not in line]
    return "\n".join(lines)


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


class Story:
    """Pastes the document's examples into a shell, with the snapshot ids of this server."""

    def __init__(self, url: str, warehouse: Path) -> None:
        self._url = url
        self._warehouse = warehouse
        self._real_ids: dict[int, int] = {}
        self._setup = self._here(setup())
        # The namespace and two tables.
        assert STATUS.findall(self._shell(self._setup)) == ["200"] * 3

    def send(self, block: Block) -> tuple[int, Any]:
        route = "namespaces/shop/tables/orders"
        if block.kind == "transaction":
            route = "transactions/commit"
        function = self._setup[self._setup.index("post() {") : self._setup.index("\n}\n") + 2]
        text = self._here(block.text)
        text = SNAPSHOT_ID.sub(lambda found: f"{found[1]}{self._real_ids[int(found[2])]}", text)
        output = self._shell(f"{function}\npost {route} <<'JSON'\n{text}JSON")
        body, status = output.rstrip().rsplit("\n", 1)
        return int(status), json.loads(body)

    def compare(self, answer: tuple[int, Any], block: Block) -> None:
        status, real = answer
        assert status == block.status, (block.line, real)
        shown = json.loads(self._here(block.text))
        for told, written in zip(entries(real), entries(shown), strict=True):
            self._real_ids.setdefault(written["snapshot-id"], told["snapshot-id"])
        assert comparable(real) == comparable(self._with_real_ids(shown)), block.line

    def _shell(self, commands: str) -> str:
        finished = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    def _here(self, text: str) -> str:
        """Return the text with the address and the folders of this server."""
        text = text.replace("http://127.0.0.1:8181", self._url)
        text = text.replace(f"{HOME}/warehouse", str(self._warehouse))
        return text.replace(HOME, str(self._warehouse.parent))

    def _with_real_ids(self, document: Any) -> Any:
        match document:
            case dict():
                return {name: self._value(name, value) for name, value in document.items()}
            case list():
                return [self._with_real_ids(item) for item in document]
        return document

    def _value(self, name: str, value: Any) -> Any:
        if name == "snapshot-id":
            return self._real_ids[value]
        return self._with_real_ids(value)


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
    story = Story(running.url, Path(running.warehouse))
    last: Block | None = None
    answer: tuple[int, Any] | None = None
    for block in BLOCKS:
        if block.kind.startswith("answer"):
            assert last is not None
            if block.kind == "answer-again":
                answer = story.send(last)
            assert answer is not None
            story.compare(answer, block)
        else:
            last, answer = block, story.send(block)
