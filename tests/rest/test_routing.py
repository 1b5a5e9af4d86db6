"""Requests reach the right operation with the right names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.rest.routes import ROUTES
from frazil.wire.identifiers import Identifier
from tests.rest.stand_in import NAMES, Client, StandInCatalog

ID = {"namespace": ["a"], "name": "t"}
OTHER = {"namespace": ["b"], "name": "t"}
VERSION = {"version-id": 1}
SCAN = {
    "report-type": "scan-report",
    "table-name": "t",
    "snapshot-id": -1,
    "filter": True,
    "schema-id": 0,
    "projected-field-ids": [1],
    "projected-field-names": ["x"],
    "metrics": {"result-data-files": {"unit": "count", "value": 1}},
    "from-a-newer-client": 1,
}

REACHES: list[tuple[str, str, Any, str, int]] = [
    ("GET", "/v1/namespaces", None, "list_namespaces", 200),
    ("POST", "/v1/namespaces", {"namespace": ["a"]}, "create_namespace", 200),
    ("GET", "/v1/namespaces/a", None, "load_namespace", 200),
    ("HEAD", "/v1/namespaces/a", None, "namespace_exists", 204),
    ("DELETE", "/v1/namespaces/a", None, "drop_namespace", 204),
    ("POST", "/v1/namespaces/a/properties", {}, "update_namespace_properties", 200),
    ("GET", "/v1/namespaces/a/tables", None, "list_tables", 200),
    ("POST", "/v1/namespaces/a/tables", {"name": "t", "schema": {}}, "create_table", 200),
    (
        "POST",
        "/v1/namespaces/a/register",
        {"name": "t", "metadata-location": "x", "overwrite": True},
        "register_table",
        200,
    ),
    ("GET", "/v1/namespaces/a/tables/t", None, "load_table", 200),
    ("HEAD", "/v1/namespaces/a/tables/t", None, "table_exists", 204),
    (
        "POST",
        "/v1/namespaces/a/tables/t",
        {"requirements": [], "updates": []},
        "commit_table",
        200,
    ),
    ("DELETE", "/v1/namespaces/a/tables/t", None, "drop_table", 204),
    ("POST", "/v1/namespaces/a/tables/t/unregister", None, "unregister_table", 200),
    ("POST", "/v1/namespaces/a/tables/t/metrics", SCAN, "count_scan", 204),
    ("POST", "/v1/namespaces/a/tables/t/plan", {}, "plan", 200),
    ("GET", "/v1/namespaces/a/tables/t/plan/p", None, "fetch", 200),
    ("DELETE", "/v1/namespaces/a/tables/t/plan/p", None, "cancel", 204),
    ("POST", "/v1/namespaces/a/tables/t/tasks", {"plan-task": "p"}, "tasks", 200),
    ("POST", "/v1/tables/rename", {"source": ID, "destination": OTHER}, "rename_table", 204),
    (
        "POST",
        "/v1/transactions/commit",
        {"table-changes": [{"identifier": ID, "requirements": [], "updates": []}]},
        "commit_transaction",
        204,
    ),
    ("GET", "/v1/namespaces/a/views", None, "list_views", 200),
    (
        "POST",
        "/v1/namespaces/a/views",
        {"name": "v", "schema": {}, "view-version": VERSION},
        "create_view",
        200,
    ),
    (
        "POST",
        "/v1/namespaces/a/register-view",
        {"name": "v", "metadata-location": "x"},
        "register_view",
        200,
    ),
    ("GET", "/v1/namespaces/a/views/v", None, "load_view", 200),
    ("HEAD", "/v1/namespaces/a/views/v", None, "view_exists", 204),
    ("POST", "/v1/namespaces/a/views/v", {"updates": []}, "commit_view", 200),
    ("DELETE", "/v1/namespaces/a/views/v", None, "drop_view", 204),
    ("POST", "/v1/views/rename", {"source": ID, "destination": OTHER}, "rename_view", 204),
    ("GET", "/readyz", None, "ready", 200),
    ("HEAD", "/readyz", None, "ready", 200),
]


@pytest.mark.parametrize(("method", "target", "body", "operation", "status"), REACHES)
def test_route_reaches_its_operation(
    client: Client, method: str, target: str, body: Any, operation: str, status: int
) -> None:
    got = client(method, target, body)
    assert got.status == status, got.body
    assert [name for name, _ in client.catalog.calls] == [operation]
    assert (got.body == b"") == (status == 204 or method == "HEAD")


def test_every_route_of_the_table_is_shown_above() -> None:
    shown = {(method, target.split("?")[0]) for method, target, *_ in REACHES}
    # The routes of housekeeping use no operation of the catalog that a stand-in could record.
    of_catalog = [route for route in ROUTES if not route.path.startswith("/frazil/")]
    own = {(route.method, route.path.format_map(NAMES)) for route in of_catalog}
    serviced = {
        ("GET", "/healthz"),
        ("HEAD", "/healthz"),
        ("GET", "/openapi.json"),
        ("GET", "/metrics"),
        ("GET", "/v1/config"),
    }
    assert own == shown | serviced


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ("a/tables/t", Identifier(("a",), "t")),
        ("a%1Fb%1fc/tables/t", Identifier(("a", "b", "c"), "t")),
        ("a%2Fb.c/tables/x%2Fy.z", Identifier(("a/b.c",), "x/y.z")),
        ("%C3%BC/tables/%E6%B0%B7", Identifier(("ü",), "氷")),
        # Java's client encodes a space as `+`, others as `%20`. All encode a plus as `%2B`.
        ("a+b/tables/c%20d", Identifier(("a b",), "c d")),
        ("a%2Bb/tables/c%2bd", Identifier(("a+b",), "c+d")),
        ("100%25/tables/%2525", Identifier(("100%",), "%25")),
        ("tables/tables/rename", Identifier(("tables",), "rename")),
        ("a/tables/metrics", Identifier(("a",), "metrics")),
        ("%3F/tables/%23", Identifier(("?",), "#")),
    ],
)
def test_names_in_paths(
    client: Client, catalog: StandInCatalog, segments: str, expected: Identifier
) -> None:
    assert client("GET", f"/v1/namespaces/{segments}").status == 200
    assert catalog.asked("load_table") == (expected,)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/v1",
        "/v1/",
        "/v1/nope",
        "/v1/prefix/namespaces",
        "/v1/oauth/tokens",
        "//v1/config",
        "/v1/namespaces/a/tables/t/credentials",
        "/v2/config",
        "/v1/config/",
        "/v1/namespaces/a/functions",
        "/v1%2Fconfig",
        "*",
        "/v1/\xff\x00",
    ],
)
def test_unknown_routes_are_404_in_the_standard_shape(client: Client, target: str) -> None:
    for method in ("GET", "POST"):
        got = client(method, target.encode("latin-1"))
        assert (got.status, got.error["type"]) == (404, "NotFoundException")
    assert not client.catalog.calls


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("PUT", "/v1/namespaces", "GET, POST"),
        ("OPTIONS", "/v1/namespaces/a/tables/t", "DELETE, GET, HEAD, POST"),
        ("GET", "/v1/transactions/commit", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("get", "/v1/config", "GET"),
    ],
)
def test_wrong_methods_are_405_and_say_which_are_right(
    client: Client, method: str, target: str, allow: str
) -> None:
    got = client(method, target)
    assert (got.status, got.error["type"]) == (405, "MethodNotAllowedException")
    assert got.headers["allow"] == allow


def test_config_names_exactly_the_routes_that_work(make_client: Callable[..., Client]) -> None:
    client = make_client(
        config_defaults={"s3.endpoint": "http://127.0.0.1:9000"},
        config_overrides={"x": "y", "namespace-separator": "."},
        idempotency_key_lifetime="PT1H",
    )
    config = client("GET", "/v1/config?warehouse=any").json
    assert config["defaults"] == {"s3.endpoint": "http://127.0.0.1:9000"}
    assert config["overrides"] == {"x": "y", "namespace-separator": "%1F"}
    assert config["idempotency-key-lifetime"] == "PT1H"
    assert len(config["endpoints"]) == len(set(config["endpoints"])) == 29
    for endpoint in config["endpoints"]:
        method, _, path = endpoint.partition(" ")
        assert path.startswith("/v1/{prefix}/")
        target = path.replace("{prefix}/", "").format_map(NAMES)
        assert client(method, target).status not in (404, 405), endpoint


def test_every_answer_has_a_request_id(client: Client) -> None:
    sane = "a1.B_2:c/d+e=f@g-h"
    for target in ("/v1/config", "/nope", "/healthz"):
        assert client("GET", target, headers={"X-Request-Id": sane}).headers["x-request-id"] == sane
    for bad in ("", "a b", "x" * 129, "a\tb", "ä", "-x", "a,b"):
        answered = client("GET", "/healthz", headers={"X-Request-Id": bad}).headers["x-request-id"]
        assert len(answered) == 36 != len(bad)
