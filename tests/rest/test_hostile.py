"""Malicious input gets a 4xx in the standard shape and never reaches the catalog."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rest.stand_in import Client, dumped

LONG = "x" * 256
BAD_NAMES = [
    "",
    ".",
    "..",
    "a/../b",
    "./a",
    "a/.",
    LONG,
    "é" * 128,
    "a\x00b",
    "a\nb",
    "\x7f",
    "\x85",
]
PATH_NAMES = ["", ".", "..", "a%2F..%2Fb", LONG, "%C3%A9" * 128, "a%00b", "a%0Ab", "%7f", "%C2%85"]
BROKEN = ["%", "%2", "%zz", "a%G0", "%ff", "%C3", "%ED%A0%80"]

T: dict[str, Any] = {"requirements": [], "updates": []}


@pytest.mark.parametrize("name", PATH_NAMES + BROKEN)
def test_names_in_paths(client: Client, name: str) -> None:
    requests: list[tuple[str, str, Any]] = [
        ("GET", f"/v1/namespaces/{name}", None),
        ("DELETE", f"/v1/namespaces/{name}", None),
        ("GET", f"/v1/namespaces/{name}/tables", None),
        ("GET", f"/v1/namespaces/a%1F{name}/tables/t", None),
        ("GET", f"/v1/namespaces/a/tables/{name}", None),
        ("POST", f"/v1/namespaces/a/tables/{name}", T),
        ("DELETE", f"/v1/namespaces/a/tables/{name}", None),
        ("GET", f"/v1/namespaces/a/views/{name}", None),
    ]
    for method, target, body in requests:
        got = client(method, target, body)
        assert got.status == 400, target
        assert any(word in got.error["message"] for word in ("namespace", "table", "view"))
    assert not client.catalog.calls


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_in_bodies(client: Client, name: str) -> None:
    good = {"namespace": ["a"], "name": "t"}
    bad = [{"namespace": ["a"], "name": name}, {"namespace": ["a", name], "name": "t"}]
    requests: list[tuple[str, Any]] = [
        ("/v1/namespaces", {"namespace": [name]}),
        ("/v1/namespaces", {"namespace": ["a", name]}),
        ("/v1/namespaces/a/tables", {"name": name, "schema": {}}),
        ("/v1/namespaces/a/register", {"name": name, "metadata-location": "x"}),
        ("/v1/namespaces/a/views", {"name": name, "schema": {}, "view-version": {}}),
        ("/v1/namespaces/a/register-view", {"name": name, "metadata-location": "x"}),
    ]
    for identifier in bad:
        for kind in ("tables", "views"):
            target = f"/v1/{kind}/rename"
            requests.append((target, {"source": identifier, "destination": good}))
            requests.append((target, {"source": good, "destination": identifier}))
        changes = [{"identifier": identifier, **T}]
        requests.append(("/v1/transactions/commit", {"table-changes": changes}))
        requests.append(("/v1/namespaces/a/tables/t", {"identifier": identifier, **T}))
    for target, body in requests:
        got = client("POST", target, body)
        assert got.status == 400, (target, body)
        assert got.error["type"] == "BadRequestException"
    assert not client.catalog.calls


BAD_BODIES: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b'"x"',
    b"1",
    b"{",
    b"{}x",
    b"{'a':1}",
    b'{"a":1,}',
    b"\xff\xfe{\x00}\x00",
    b"\x00",
    b'{"\xc3":1}',
    b"[" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"unknown-field":1}',
    b'{"name":1,"namespace":1,"updates":1,"requirements":1,"source":1,"report-type":1}',
    b'{"table-changes":1e999,"namespace":1e999}',
    b"9" * 100_000,
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:20]))
def test_bodies(client: Client, body: bytes) -> None:
    for target in (
        "/v1/namespaces",
        "/v1/namespaces/a/properties",
        "/v1/namespaces/a/tables",
        "/v1/namespaces/a/register",
        "/v1/namespaces/a/tables/t",
        "/v1/namespaces/a/tables/t/metrics",
        "/v1/tables/rename",
        "/v1/transactions/commit",
        "/v1/namespaces/a/views",
        "/v1/namespaces/a/register-view",
        "/v1/namespaces/a/views/v",
        "/v1/views/rename",
    ):
        got = client("POST", target, body)
        assert (got.status, got.error["type"]) == (400, "BadRequestException"), target
    assert not client.catalog.calls


@pytest.mark.parametrize(
    "query",
    [b"pageSize=%ff", b"\xff=1", b"&".join([b"a=1"] * 101), b"snapshots=all&snapshots=refs"],
)
def test_queries(client: Client, query: bytes) -> None:
    for target in (b"/v1/namespaces/a/tables/t?", b"/v1/namespaces?"):
        got = client("GET", target + query)
        assert got.status == 400
    assert not client.catalog.calls


def test_long_values_are_not_repeated_whole(client: Client) -> None:
    huge = "x" * 100_000
    requests: list[tuple[str, str, Any, dict[str, str]]] = [
        ("GET", f"/{huge}", None, {}),
        ("GET", f"/v1/namespaces?pageSize={huge}", None, {}),
        ("DELETE", f"/v1/namespaces/a/tables/t?purgeRequested={huge}", None, {}),
        ("GET", f"/v1/namespaces/a/tables/t?snapshots={huge}", None, {}),
        ("DELETE", "/v1/namespaces/a", None, {"Idempotency-Key": huge}),
        ("POST", "/v1/namespaces", {}, {"Content-Type": huge}),
        ("POST", "/v1/namespaces", {}, {"Content-Encoding": huge}),
        ("POST", "/v1/namespaces/a/tables/t", {**T, "updates": [{"action": huge}]}, {}),
        (huge, "/v1/config", None, {}),
    ]
    for method, target, body, headers in requests:
        got = client(method, target, None if body is None else dumped(body), headers=headers)
        assert 400 <= got.status < 500
        assert len(got.error["message"]) < 1000
