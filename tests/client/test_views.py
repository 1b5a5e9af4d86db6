"""Views of a real catalog through the client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from frazil import Client
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    NoSuchNamespace,
    NoSuchTable,
    NoSuchView,
    NotFound,
)
from tests.client.conftest import SCHEMA, NewTable

ALL = "SELECT * FROM orders"
DAYS = "SELECT id, day, item FROM orders"


def test_a_view_from_its_creation_to_its_end(client: Client, namespace: str) -> None:
    name = f"{namespace}.recent"
    made = client.create_view(name, SCHEMA, ALL, properties={"comment": "new ones"})
    assert made.sql() == ALL
    assert made.current_version.default_namespace == (namespace,)
    assert made.current_version.default_catalog is None
    assert [field.name for field in made.schema.fields] == ["id", "day", "item"]
    assert client.view_exists(name)
    assert client.list_views(namespace) == [made.identifier]
    assert client.list_tables(namespace) == []
    assert client.load_view(name) == made
    with pytest.raises(AlreadyExists):
        client.create_view(name, SCHEMA, ALL)
    with pytest.raises(NoSuchTable):
        client.load_table(name)
    client.rename_view(name, f"{namespace}.latest")
    with pytest.raises(NoSuchView):
        client.load_view(name)
    client.drop_view(f"{namespace}.latest")
    assert not client.view_exists(f"{namespace}.latest")
    with pytest.raises(NoSuchView):
        client.drop_view(name)
    with pytest.raises(NoSuchNamespace):
        client.create_view("nowhere.v", SCHEMA, ALL)


def test_a_replacement_adds_a_version_and_keeps_properties(client: Client, namespace: str) -> None:
    name = f"{namespace}.v"
    with pytest.raises(NoSuchView):
        client.replace_view(name, SCHEMA, ALL)
    first = client.replace_view(name, SCHEMA, ALL, or_create=True, properties={"a": "1"})
    second = client.replace_view(
        name,
        "id long, day date, item string",
        DAYS,
        default_namespace=("x", "y"),
        default_catalog="other",
        properties={"b": "2"},
        summary={"engine-name": "me"},
    )
    assert second.uuid == first.uuid
    assert second.schema_document == first.schema_document
    assert second.properties == {"a": "1", "b": "2"}
    assert [version.sql() for version in second.versions] == [ALL, DAYS]
    current = second.current_version
    assert (current.version_id, current.summary) == (2, {"engine-name": "me"})
    assert (current.default_namespace, current.default_catalog) == (("x", "y"), "other")
    changed = client.update_view(name, {"c": "3"}, ["a"])
    assert changed.properties == {"b": "2", "c": "3"}
    with pytest.raises(BadRequest, match="no property to set or to remove was named"):
        client.update_view(name)
    with pytest.raises(NotFound, match="has no version 7; it has 1, 2"):
        changed.version(7)


def test_texts_in_several_dialects(client: Client, namespace: str) -> None:
    texts = {"trino": 'SELECT "id" FROM orders', "Spark": ALL}
    view = client.create_view(f"{namespace}.v", SCHEMA, texts)
    assert view.sql() == ALL
    assert view.sql("TRINO") == texts["trino"]
    with pytest.raises(NotFound, match=r"no SQL in the dialect duckdb; its dialects: trino, spark"):
        view.sql("duckdb")
    with pytest.raises(BadRequest, match="loss of view dialects"):
        client.replace_view(f"{namespace}.v", SCHEMA, DAYS)


def test_replacements_at_the_same_time_all_count(client: Client, namespace: str) -> None:
    name = f"{namespace}.v"
    client.create_view(name, SCHEMA, ALL)
    texts = [f"SELECT {number} AS id" for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda text: client.replace_view(name, SCHEMA, text), texts))
    versions = client.load_view(name).versions
    assert sorted(version.sql() for version in versions) == sorted([ALL, *texts])
    assert len({version.version_id for version in versions}) == len(versions)


def test_a_table_is_not_replaced_by_a_view(client: Client, new_table: NewTable) -> None:
    table = new_table()
    with pytest.raises(AlreadyExists):
        client.replace_view(table.identifier, SCHEMA, ALL, or_create=True)
    with pytest.raises(AlreadyExists):
        client.create_view(table.identifier, SCHEMA, ALL)
