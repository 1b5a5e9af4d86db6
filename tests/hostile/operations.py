"""Cases that Schemathesis makes from an OpenAPI file, most of them for existing tables and
views.

Random names never exist, and most random bodies fail at the first check. So the names in the
path are pinned to an existing table and view, as are identifiers in bodies, and most commit
bodies are valid. The rest stays as Schemathesis drew it.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import requests
import schemathesis
import yaml
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.hostile.bodies import CREATE_UPDATES, encoded, filled
from tests.hostile.scans import SCANNED, SCANS, scan_bodies, scanned, task_bodies
from tests.hostile.strategies import table_commits, view_commits
from tests.hostile.world import SCHEMA, TABLE, VIEW, VIEW_VERSION, World

Operation: TypeAlias = "APIOperation[Any, Any, Any, Any]"

UPSTREAM = Path(__file__).parents[3] / "shared/openapi/rest-catalog-open-api.yaml"
"""Iceberg's own specification, which is not part of this repository."""

NOT_SERVED = {
    "getToken",
    "listFunctions",
    "loadFunction",
    "loadCredentials",
    "signRequest",
}

DESCRIBED: list[Any] = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

_PREFIX = "/{prefix}"
_PINNED_OF_TEN = 8
_HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Idempotency-Key": "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"},
    {"Prefer": "return=minimal"},
)


def own_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        files("frazil.rest").joinpath("openapi.json").read_bytes()
    )
    return document


def upstream_document() -> dict[str, Any]:
    """Return the document without the prefix: this server sends none, so clients leave it out."""
    document: dict[str, Any] = yaml.safe_load(UPSTREAM.read_text())
    document["paths"] = {
        path.replace(_PREFIX, ""): _without_prefix(item) for path, item in document["paths"].items()
    }
    return document


def _without_prefix(item: dict[str, Any]) -> dict[str, Any]:
    kept = [p for p in item.get("parameters", []) if not p.get("$ref", "").endswith("/prefix")]
    return {**item, "parameters": kept}


def documents() -> dict[str, dict[str, Any]]:
    found = {"own": own_document()}
    return {**found, "upstream": upstream_document()} if UPSTREAM.exists() else found


def operations(document: dict[str, Any]) -> dict[str, Operation]:
    """Return the operations by operation id."""
    schema = schemathesis.openapi.from_dict(document)
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    return {operation.definition.raw["operationId"]: operation for operation in found}


def _cases(operation: Operation) -> st.SearchStrategy[Case[Any]]:
    positive = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    # Without a body, a query or headers only the path could be wrong, and the path is pinned.
    if not (len(operation.body) or len(operation.query) or len(operation.headers)):
        return positive
    return positive | _drawable(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))


@st.composite
def _drawable(draw: st.DrawFn, cases: st.SearchStrategy[Case[Any]]) -> Case[Any]:
    """Draw a case. Reject a schema that was made wrong on purpose and that no value can match."""
    try:
        return draw(cases)
    except InvalidSchema:
        reject()


def _bodies(operation_id: str) -> st.SearchStrategy[Any] | None:
    """Return bodies with marks for operations whose random bodies would fail at once."""
    identifier = {"namespace": ["@namespace"], "name": TABLE}
    transactions = table_commits.map(
        lambda commit: {"table-changes": [{"identifier": identifier, **commit}]}
    )
    creates = st.just(
        {"requirements": [{"type": "assert-create"}], "updates": list(CREATE_UPDATES)}
    )
    renames = st.fixed_dictionaries(
        {
            "source": st.just({"namespace": ["@namespace"], "name": "@source"}),
            "destination": st.fixed_dictionaries(
                {
                    "namespace": st.sampled_from([["@namespace"], ["nowhere"]]),
                    "name": st.sampled_from(["moved", TABLE, VIEW]),
                }
            ),
        }
    )
    registered = st.just({"name": "registered", "metadata-location": "@metadata-location"})
    bodies: dict[str, st.SearchStrategy[Any]] = {
        "updateTable": table_commits | creates,
        "commitTransaction": transactions,
        "replaceView": view_commits,
        "renameTable": renames,
        "renameView": renames,
        "registerTable": registered | registered.map(lambda body: {**body, "overwrite": True}),
        "registerView": registered,
        "createTable": st.just({"name": "new", "schema": SCHEMA, "stage-create": True}),
        "createView": st.just({"name": "new", "schema": SCHEMA, "view-version": VIEW_VERSION}),
        "planTableScan": scan_bodies,
        "fetchScanTasks": task_bodies,
    }
    return bodies.get(operation_id)


def run(
    operation: Operation,
    world: World,
    session: requests.Session,
    max_examples: int,
    *,
    described: bool,
    first: Sequence[Any] = (),
) -> Counter[int]:
    """Send all cases and count the statuses. The bodies of `first` are sent first. `described`
    means that the OpenAPI file is ours, so that it must describe every answer."""
    runner = _Runner(operation, world, session, described)
    for body in first:
        runner.send_ours(body, {})
    cases, bodies = _cases(operation), _bodies(runner.operation_id)
    ours = st.tuples(bodies, st.sampled_from(_HEADERS)) if bodies is not None else st.nothing()
    theirs = st.tuples(cases, st.integers(0, 9))

    @settings(max_examples=max_examples)
    @given(st.one_of(ours, ours, theirs))
    def send(drawn: Any) -> None:
        given, how = drawn
        if isinstance(given, Case):
            runner.send_theirs(given, pinned=how < _PINNED_OF_TEN)
        else:
            runner.send_ours(given, how)

    send()
    world.ensure()
    return runner.statuses


class _Runner:
    """Sends the cases of one operation."""

    def __init__(
        self,
        operation: Operation,
        world: World,
        session: requests.Session,
        described: bool,
    ) -> None:
        self.operation_id: str = operation.definition.raw["operationId"]
        self.statuses: Counter[int] = Counter()
        self._operation = operation
        self._world = world
        self._session = session
        self._described = described
        names = [parameter.name for parameter in operation.path_parameters]
        pinned = _pinned(world)
        if self.operation_id in SCANS:
            world.known |= scanned(world)
            pinned |= {"table": SCANNED, "plan-id": world.known["@plan-id"]}
        if "lease-id" in names or "intent-id" in names:
            pinned |= _held(world)
        if "job-id" in names:
            pinned |= _started(world)
        self._path = {name: value for name, value in pinned.items() if name in names}

    def send_ours(self, body: Any, headers: dict[str, str]) -> None:
        case = self._operation.Case(path_parameters=dict(self._path), headers=dict(headers))
        self._send(case, body)

    def send_theirs(self, case: Case[Any], *, pinned: bool) -> None:
        if pinned and self._path:
            case.path_parameters = dict(self._path)
        self._send(case, None)

    def _send(self, case: Case[Any], body: Any) -> None:
        if self._operation.method not in ("get", "head"):
            self._world.ensure()
        request = case.as_transport_kwargs(base_url=self._world.server.url)
        if body is not None:
            request["data"] = encoded(filled(body, _marked(self._world, self.operation_id)))
            request["headers"]["content-type"] = "application/json"
        answer = self._session.request(**request)
        self.statuses[answer.status_code] += 1
        _check(self._operation, case, answer)
        if self._described:
            case.validate_response(answer, checks=DESCRIBED)


def _pinned(world: World) -> dict[str, str]:
    return {
        "namespace": world.namespace,
        "table": TABLE,
        "view": VIEW,
        "function": "f",
    }


def _held(world: World) -> dict[str, str]:
    """Return the ids of a new lease and a new intent."""
    path = f"/frazil{world.table_path}"
    prefix = f"{world.location}/data/{uuid.uuid4()}"
    return {
        "lease-id": world.ok("POST", f"{path}/leases", {}).json()["lease-id"],
        "intent-id": world.ok("POST", f"{path}/intents", {"prefix": prefix}).json()["intent-id"],
    }


def _started(world: World) -> dict[str, str]:
    """Return the id of a new job."""
    job = {"operation": "delete_unreachable_files", "dry-run": True}
    return {"job-id": world.ok("POST", f"/frazil{world.table_path}/jobs", job).json()["job-id"]}


def _marked(world: World, operation_id: str) -> World:
    kind, name = ("views", VIEW) if "View" in operation_id else ("tables", TABLE)
    world.known |= {
        "@namespace": world.namespace,
        "@source": name,
        "@metadata-location": world.pointer(kind, name),
        "@new-uuid": str(uuid.uuid4()),
        "@new-location": f"{world.allowed}/{uuid.uuid4()}",
    }
    return world


def _check(operation: Operation, case: Case[Any], answer: Any) -> None:
    status = answer.status_code
    shown = f"{operation.method} {case.formatted_path}: {status} {answer.text[:500]}"
    assert status < 500, shown
    if status >= 400 and operation.method != "head":
        error = json.loads(answer.content)["error"]
        assert error["code"] == status, shown
        assert error["type"], shown
        assert error["message"], shown
