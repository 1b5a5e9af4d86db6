"""Iceberg's own updates through the client, and tables that their first change creates."""

from __future__ import annotations

from typing import Any

import pytest

from frazil import Client, CommitFailed, Table
from frazil.wire.errors import AlreadyExists, BadRequest, Conflict, NotFound
from tests.client.conftest import NewTable, declared

SCHEMA = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}
WIDER = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "note", "required": False, "type": "string"},
    ],
}


def _widened(table: Table) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    updates: list[dict[str, Any]] = [
        {"action": "add-schema", "schema": WIDER},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    current = table.metadata["current-schema-id"]
    return updates, [{"type": "assert-current-schema-id", "current-schema-id": current}]


def _staged(client: Client, name: str) -> Table:
    namespace = f"staged_{name}"
    client.create_namespace(namespace)
    properties = {"owner": "tests", "format-version": "2"}
    return client.stage_table(f"{namespace}.t", SCHEMA, properties=properties)


def test_a_staged_table_appears_with_its_first_change(client: Client) -> None:
    table = _staged(client, "first")
    assert not client.table_exists(table.identifier)
    commit = table.append_files([declared(table, "a")])
    made = client.load_table(table.identifier)
    assert made.head() == commit.snapshot_id
    assert (made.uuid, made.location, made.format_version) == (table.uuid, table.location, 2)
    assert made.properties["owner"] == "tests"


def test_a_staged_table_that_somebody_else_has_created(client: Client) -> None:
    table = _staged(client, "race")
    client.create_table(table.identifier, SCHEMA)
    with pytest.raises(Conflict) as refused:
        table.append_files([declared(table, "a")])
    assert isinstance(refused.value, CommitFailed | AlreadyExists)
    assert client.load_table(table.identifier).head() is None


def test_a_schema_and_files_of_it_are_one_commit(new_table: NewTable, client: Client) -> None:
    table = new_table(schema=SCHEMA)
    with client.transaction() as transaction:
        changes = transaction.table(table)
        changes.declare_metadata(*_widened(table))
        changes.append_files([declared(table, "a")])
    made = client.load_table(table.identifier)
    assert [field.name for field in made.schema.fields] == ["id", "note"]
    assert made.head() == transaction.commits[0].snapshot_id


def test_a_change_that_is_built_again_and_one_that_is_not(
    new_table: NewTable, client: Client
) -> None:
    table = new_table(schema=SCHEMA)
    client.change_metadata(table, _widened)
    assert len(client.load_table(table.identifier).schema.fields) == 2
    # The change is built for the schema of the handle, which is no longer current.
    with pytest.raises(CommitFailed):
        table.declare_metadata(*_widened(table))
    # The change is built on the current table.
    table.change_metadata(_widened)


def test_updates_that_are_none_are_refused_before_they_are_sent(new_table: NewTable) -> None:
    with pytest.raises(BadRequest, match="updates: "):
        new_table().declare_metadata([{"action": "no-such-update"}])
    with pytest.raises(BadRequest, match="requirements: "):
        new_table().declare_metadata([], [{"type": "assert-nothing"}])


def test_a_staged_table_cannot_be_loaded(client: Client) -> None:
    with pytest.raises(NotFound):
        client.load_table(_staged(client, "load").identifier)
