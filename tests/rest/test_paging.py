"""Pages list every entry once and accept only page tokens of the same list."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frazil.rest.paging import Listing
from frazil.wire.errors import BadRequest
from tests.rest.stand_in import Client, StandInCatalog

NAMES = sorted(["a", "b", "c.d", "e/f", "ü", "氷", "zz zz"])
LISTS = [
    ("/v1/namespaces?", "namespaces"),
    ("/v1/namespaces?parent=x%1Fy&", "namespaces"),
    ("/v1/namespaces/x/tables?", "identifiers"),
    ("/v1/namespaces/x/views?", "identifiers"),
]


def name_of(entry: list[str] | dict[str, str]) -> str:
    return entry["name"] if isinstance(entry, dict) else entry[-1]


@pytest.mark.parametrize(("target", "field"), LISTS)
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_pages_hold_every_entry_once(
    client: Client, catalog: StandInCatalog, target: str, field: str, size: int
) -> None:
    catalog.names = NAMES
    token: str | None = ""
    found: list[str] = []
    while token is not None:
        page = client("GET", f"{target}pageSize={size}&pageToken={token}").json
        assert len(page[field]) <= size
        found += [name_of(entry) for entry in page[field]]
        token = page["next-page-token"]
    assert found == NAMES


@pytest.mark.parametrize(("target", "field"), LISTS)
def test_without_page_parameters_everything_is_answered(
    client: Client, catalog: StandInCatalog, target: str, field: str
) -> None:
    catalog.names = NAMES
    page = client("GET", target).json
    assert [name_of(entry) for entry in page[field]] == NAMES
    assert page["next-page-token"] is None
    assert catalog.calls[0][1][1:] == (None, None)


def test_sizes(make_client: Callable[..., Client], catalog: StandInCatalog) -> None:
    client = make_client(default_page_size=50, max_page_size=500)
    asked = [
        ("pageToken=", (None, 50)),
        ("pageSize=2", (None, 2)),
        ("pageSize=501&pageToken=", (None, 500)),
        ("pageSize=" + "9" * 5000, (None, 500)),
        ("pageSize=007", (None, 7)),
    ]
    for query, expected in asked:
        catalog.calls.clear()
        assert client("GET", f"/v1/namespaces/a/tables?{query}").status == 200
        assert catalog.asked("list_tables") == (("a",), *expected)


@pytest.mark.parametrize("size", ["0", "-1", "", "x", "1.5", "1e3", "000", "%20", "٣"])
def test_bad_sizes(client: Client, size: str) -> None:
    for target, _ in LISTS:
        got = client("GET", f"{target}pageSize={size}")
        assert got.status == 400
        assert got.error["message"].startswith("pageSize: ")
    assert not client.catalog.calls


def test_a_token_works_only_for_its_own_list() -> None:
    token = Listing("listTables", ("a", "b")).token("x")
    assert token is not None
    assert Listing("listTables", ("a", "b")).read_token(token) == "x"
    for other in (Listing("listViews", ("a", "b")), Listing("listTables", ("a",))):
        with pytest.raises(BadRequest, match="pageToken: not a token of this list"):
            other.read_token(token)


@pytest.mark.parametrize("token", ["x", "AAAA", "A" * 9, "%00", "ü", "____", "=", "A" * 5000])
def test_bad_tokens(client: Client, token: str) -> None:
    for target, _ in LISTS:
        got = client("GET", f"{target}pageToken={token}".encode())
        assert got.status == 400
        assert got.error["message"].startswith("pageToken: ")
    assert not client.catalog.calls


def test_a_changed_token_is_refused(client: Client, catalog: StandInCatalog) -> None:
    catalog.names = NAMES
    token = client("GET", "/v1/namespaces?pageSize=2&pageToken=").json["next-page-token"]
    for index, char in enumerate(token):
        changed = token[:index] + ("A" if char != "A" else "B") + token[index + 1 :]
        got = client("GET", f"/v1/namespaces?pageSize=2&pageToken={changed}")
        assert got.status == 400, changed


def test_parent(client: Client, catalog: StandInCatalog) -> None:
    for query, parent in (("", ()), ("?parent=", ()), ("?parent=a%1Fb+c", ("a", "b c"))):
        catalog.calls.clear()
        assert client("GET", f"/v1/namespaces{query}").status == 200
        assert catalog.asked("list_namespaces")[0] == parent
