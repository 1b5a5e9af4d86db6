"""A statement keeps its work if a compaction has moved its rows to other files meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil import Client, Table, ValidationError
from frazil.client.rows import row_statements, row_upserts
from frazil.client.rows.row_files import planned_tasks
from frazil.client.rows.row_removal import copy_files
from frazil.client.rows.write_folders import committing, new_folder
from frazil.datafiles.reading.row_positions import Positions
from frazil.datafiles.reading.scan_tasks import DeletedRows
from frazil.wire.expressions import ALWAYS_TRUE

ROWS = 40


@pytest.fixture
def table(client: Client, namespace: str) -> Table:
    """Create a table with four files, and without retries."""
    modes = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")}
    table = client.create_table(
        f"{namespace}.t",
        "id long not null, item string",
        identifier_fields=["id"],
        format_version=3,
        properties={**modes, "commit.retry.num-retries": "0"},
    )
    for start in range(0, ROWS, 10):
        client.append(
            table.identifier, [{"id": id, "item": "old"} for id in range(start, start + 10)]
        )
    return client.load_table(table.identifier)


def compact(client: Client, table: Table) -> None:
    """Write the live rows of each file to a new one, in one commit."""
    table = client.load_table(table.identifier)
    tasks = planned_tasks(table, ALWAYS_TRUE, table.head())
    with committing(new_folder(table)) as write:
        copies = copy_files(table, [DeletedRows(task, Positions()) for task in tasks], write.folder)
        write.commit(
            {file.file_path for file in copies},
            lambda: table.rewrite_files([task.file_path for task in tasks], copies),
        )


def before_the_commit(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *others: Callable[[], Any]
) -> None:
    """Let others commit after a statement has found its rows."""
    call = getattr(module, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(module, name, call)
        result = call(*args, **kwargs)
        for other in others:
            other()
        return result

    monkeypatch.setattr(module, name, called)


def items(client: Client, table: Table) -> dict[int, str]:
    return {row["id"]: row["item"] for row in client.scan(table.identifier).to_pylist()}


def row_ids(client: Client, table: Table) -> dict[int, int]:
    scan = client.scan(table.identifier, columns=["id", "_row_id"])
    return {row["id"]: row["_row_id"] for row in scan.to_pylist()}


def test_a_delete_beside_a_compaction(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_commit(monkeypatch, row_statements, "matching_rows", lambda: compact(client, table))
    table.delete("id = 3 or id = 15 or id = 16")
    assert items(client, table) == {id: "old" for id in range(ROWS) if id not in (3, 15, 16)}


def test_an_upsert_beside_a_compaction_keeps_row_ids(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = row_ids(client, table)
    before_the_commit(monkeypatch, row_upserts, "planned_tasks", lambda: compact(client, table))
    table.upsert([{"id": 3, "item": "new"}])
    assert items(client, table) == dict.fromkeys(range(ROWS), "old") | {3: "new"}
    assert row_ids(client, table) == ids


def test_two_compactions_and_a_delete_of_other_rows(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_commit(
        monkeypatch,
        row_statements,
        "matching_rows",
        lambda: compact(client, table),
        lambda: client.delete(table.identifier, "id = 4"),
        lambda: compact(client, table),
    )
    table.delete("id = 3")
    assert items(client, table) == {id: "old" for id in range(ROWS) if id not in (3, 4)}


@pytest.mark.parametrize("other", ["delete", "upsert"])
def test_a_row_that_was_changed_before_the_compaction(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    def change() -> None:
        if other == "delete":
            client.delete(table.identifier, "id = 3")
        else:
            client.upsert(table.identifier, [{"id": 3, "item": "theirs"}])

    before_the_commit(
        monkeypatch, row_upserts, "planned_tasks", change, lambda: compact(client, table)
    )
    with pytest.raises(ValidationError):
        table.upsert([{"id": 3, "item": "ours"}])
    theirs = {} if other == "delete" else {3: "theirs"}
    assert items(client, table) == {id: "old" for id in range(ROWS) if id != 3} | theirs


def test_a_file_that_was_overwritten_is_no_compaction(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_commit(
        monkeypatch,
        row_statements,
        "matching_rows",
        lambda: client.overwrite(table.identifier, [{"id": 7, "item": "theirs"}], "id < 10"),
    )
    with pytest.raises(ValidationError):
        table.delete("id = 3")
