"""`frazil view`, and views in `frazil show` and `frazil ls`, against a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from frazil.cli.app import app
from tests.cli.shop import Shop

SCHEMA = ("--schema", "id long, item string")


@pytest.fixture
def view(shop: Shop) -> Iterator[str]:
    name = f"{shop.name}_items"
    shop.ok("view", "create", name, f"SELECT id, item FROM {shop.name}", *SCHEMA)
    yield name
    if shop.client.view_exists(name):
        shop.client.drop_view(name)


def test_a_view_is_created_replaced_renamed_and_dropped(shop: Shop) -> None:
    name = f"{shop.name}_v"
    create = ("view", "create", name, "SELECT id FROM orders;", "--schema", "id long")
    options = ("--comment", "c", "--property", "k=v", "--default-namespace", "a.b")
    planned = shop.json(*create, *options, "--dry-run")
    assert (planned["method"], planned["body"]["name"]) == ("POST", name.removeprefix("shop."))
    assert not shop.client.view_exists(name)
    made = shop.json(*create, *options)
    assert made["properties"] == {"comment": "c", "k": "v"}
    assert made["version"]["default-namespace"] == ["a", "b"]
    assert shop.run(*create).exit_code == 1
    changed = shop.json("view", "replace", name, "SELECT 1 AS id", "--property", "k=w")
    assert changed["properties"] == {"comment": "c", "k": "w"}
    assert (changed["current-version-id"], changed["schema"]) == (2, made["schema"])
    assert changed["version"]["default-namespace"] == ["a", "b"]
    done = CliRunner().invoke(
        app,
        ["view", "replace", name, "-", "--schema", "x int", "--uri", shop.server.url],
        input="SELECT 2 AS x\n",
    )
    assert done.stdout == f"view {name} is at version 3\n"
    assert shop.client.load_view(name).sql() == "SELECT 2 AS x"
    assert shop.json("view", "rename", name, f"{name}2") == {
        "view": f"{name}2",
        "previous-view": name,
    }
    assert shop.json("view", "drop", f"{name}2", "--dry-run")["method"] == "DELETE"
    assert shop.ok("view", "drop", f"{name}2") == f"view {name}2 is dropped\n"
    assert shop.run("view", "drop", name).exit_code == 1
    assert shop.json("view", "drop", name, "--if-exists") == {"view": name, "dropped": False}


def test_a_view_is_shown_like_a_table(shop: Shop, view: str) -> None:
    shop.ok("view", "replace", view, f"SELECT id FROM {shop.name}", "--schema", "id long")
    document = shop.json("show", view)
    assert document == shop.json("view", "show", view)
    assert document["version"]["representations"] == [
        {"type": "sql", "dialect": "spark", "sql": f"SELECT id FROM {shop.name}"}
    ]
    assert [field["name"] for field in document["schema"]["fields"]] == ["id"]
    assert [version["version-id"] for version in document["versions"]] == [1, 2]
    first = shop.json("show", f"{view}@1")
    assert [field["name"] for field in first["schema"]["fields"]] == ["id", "item"]
    text = shop.ok("show", view)
    assert text.startswith(f"{view} (view)\n")
    assert f"  SELECT id FROM {shop.name}\n" in text
    assert "Query of version 2, dialect spark" in text
    assert f"  SELECT id, item FROM {shop.name}\n" in shop.ok("show", f"{view}@1")


def test_a_query_cannot_control_the_terminal(shop: Shop, view: str) -> None:
    shop.ok("view", "replace", view, "SELECT '\x1b[2J' AS id,\n 1 AS item")
    assert "\x1b" not in shop.ok("show", view)


def test_views_are_marked_in_lists(shop: Shop, view: str) -> None:
    assert f"view       {view}\n" in shop.ok("ls", "shop")
    listed = shop.json("ls", "shop")
    name = {"namespace": ["shop"], "name": view.removeprefix("shop.")}
    assert name in listed["views"]
    assert name not in listed["tables"]
    done = shop.run("ls", view)
    assert (done.exit_code, "is a view, so it has no files" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "{view}@main"), "a version id follows @"),
        (("show", "{view}@9"), "has no version 9; it has 1"),
        (("view", "show", "{table}"), "View does not exist"),
        (("view", "create", "{table}", "SELECT 1 AS id", *SCHEMA), "exists"),
        (("view", "create", "shop.x", " ", *SCHEMA), "the query is empty"),
        (("view", "create", "shop.x", "SELECT 1", "--schema", "id nothing"), "nothing"),
        (("view", "replace", "{view}", "SELECT 1", "--property", "k"), "key=value"),
        (("view", "replace", "{view}", "SELECT 1", "--dialect", "trino"), "loss of view dialects"),
    ],
)
def test_mistakes_are_named(
    shop: Shop, view: str, arguments: tuple[str, ...], message: str
) -> None:
    done = shop.run(*(part.format(view=view, table=shop.name) for part in arguments))
    assert done.exit_code in (1, 2)
    assert message in done.stderr
