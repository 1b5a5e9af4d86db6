"""Requests without a valid token get 401 and learn nothing from the answer."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable

import pytest

from frazil.rest.rest_app import AppSettings
from frazil.rest.routes import ROUTES
from frazil.rest.routing import Route
from tests.rest.stand_in import NAMES, Client, StandInCatalog

TOKENS = {
    name: hashlib.sha256(token.encode()).hexdigest()
    for name, token in (("ann", "secret-a"), ("bob", "secret-b"))
}


@pytest.fixture
def guarded(make_client: Callable[..., Client]) -> Client:
    return make_client(tokens=TOKENS)


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic c2VjcmV0LWE=",
        "secret-a",
        "Bearer wrong",
        "Bearer secret-a secret-b",
        "Bearer Secret-a",
        f"Bearer {TOKENS['ann']}",
        "Bearer \xff",
    ],
)
def test_without_a_known_token_everything_is_401(
    guarded: Client, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    targets = [(route.method, route.path.format_map(NAMES)) for route in ROUTES if not route.open]
    for method, target in [*targets, ("GET", "/nope"), ("PUT", "/v1/namespaces")]:
        got = guarded(method, target, headers=headers)
        assert got.status == 401, target
        assert got.headers["www-authenticate"] == "Bearer"
        if method != "HEAD":
            assert got.error["type"] == "NotAuthorizedException"
    assert not guarded.catalog.calls


@pytest.mark.parametrize(
    ("authorization", "principal"),
    [("Bearer secret-a", "ann"), ("bearer secret-b", "bob"), ("BEARER  secret-b ", "bob")],
)
def test_the_token_is_the_principal(
    guarded: Client, catalog: StandInCatalog, authorization: str, principal: str
) -> None:
    headers = {"Authorization": authorization}
    assert guarded("DELETE", "/v1/namespaces/a", headers=headers).status == 204
    assert catalog.asked("drop_namespace")[0].principal == principal


# --- read-only tokens -----------------------------------------------------------------------------

BODIES: dict[str, object] = {
    "planTableScan": {},
    "fetchScanTasks": {"plan-task": "p"},
    "reportMetrics": {
        "report-type": "commit-report",
        "table-name": "t",
        "snapshot-id": 1,
        "sequence-number": 1,
        "operation": "append",
        "metrics": {},
    },
}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_a_read_only_token_may_do_what_changes_nothing(
    make_client: Callable[..., Client], route: Route
) -> None:
    guarded = make_client(tokens=TOKENS, read_only=frozenset({"ann"}))
    body = BODIES.get(route.operation)
    ann, bob = ({"Authorization": f"Bearer {token}"} for token in ("secret-a", "secret-b"))
    got = guarded(route.method, route.path.format_map(NAMES), body, headers=ann)
    assert (got.status == 403) == route.changes
    if route.changes:
        assert got.error["type"] == "ForbiddenException"
        assert "the token 'ann' is read-only" in got.error["message"]
        assert not guarded.catalog.calls
        assert guarded(route.method, route.path.format_map(NAMES), headers=bob).status != 403


def test_replaced_tokens_hold_for_the_next_request(guarded: Client) -> None:
    ann = {"Authorization": "Bearer secret-a"}
    assert guarded("DELETE", "/v1/namespaces/a", headers=ann).status == 204
    guarded.app.use_tokens({"ann": TOKENS["ann"]}, frozenset({"ann"}))
    assert guarded("DELETE", "/v1/namespaces/a", headers=ann).status == 403
    # Without any token left, nobody may do anything: the server does not become open.
    guarded.app.use_tokens({}, frozenset())
    for headers in (ann, {}):
        assert guarded("GET", "/v1/namespaces", headers=headers).status == 401


def test_health_needs_no_token(guarded: Client) -> None:
    assert guarded("GET", "/healthz").status == 200
    assert guarded("GET", "/readyz").status == 200


def test_settings_refuse_what_would_leak_or_never_match() -> None:
    make_settings: Callable[..., AppSettings] = AppSettings
    with pytest.raises(ValueError, match="'ann': the SHA-256"):
        AppSettings(tokens={"ann": "secret"})
    for key in ("s3.secret-access-key", "s3.access-key-id", "token", "s3.session-token"):
        for place in ("config_defaults", "config_overrides", "table_config"):
            with pytest.raises(ValueError, match="looks like a secret"):
                make_settings(**{place: {key: "x"}})


# --- the log --------------------------------------------------------------------------------------


def test_one_line_a_request(guarded: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "frazil.access")
    headers = {"Authorization": "Bearer secret-a", "X-Request-Id": "r1"}
    guarded("GET", "/v1/namespaces/a%1Fb/tables/t?token=secret-q", headers=headers)
    guarded("GET", "/v1/namespaces/a/tables/t", headers={"Authorization": "Bearer wrong-w"})
    guarded("GET", b"/nope\n\xff", headers=headers)
    records = [record for record in caplog.records if record.name == "frazil.access"]
    fields = ("principal", "method", "path", "operation", "table", "status", "outcome")
    assert [tuple(record.__dict__[name] for name in fields) for record in records] == [
        ("ann", "GET", "/v1/namespaces/a%1Fb/tables/t", "loadTable", "a.b.t", 200, "ok"),
        (
            None,
            "GET",
            "/v1/namespaces/a/tables/t",
            "unknown",
            None,
            401,
            "NotAuthorizedException",
        ),
        ("ann", "GET", "/nope\n\\xff", "unknown", None, 404, "NotFoundException"),
    ]
    assert records[0].__dict__["id"] == "r1"
    assert records[0].__dict__["ms"] >= 0
    everything = "".join(str(record.__dict__) for record in caplog.records)
    for secret in ("secret-a", "wrong-w", "secret-q"):
        assert secret not in everything


def test_a_client_that_went_away_is_logged_too(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "frazil.access")
    client("POST", "/v1/namespaces", parts=(b"{",), disconnect=True)
    (record,) = (record for record in caplog.records if record.name == "frazil.access")
    assert (record.__dict__["status"], record.__dict__["outcome"]) == (499, "ClientGone")
