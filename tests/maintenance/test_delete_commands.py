"""The commands that rewrite position deletes and convert equality deletes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from frazil import Client, Table
from frazil.cli.app import app
from tests.maintenance.conftest import equality_delete, everything, rows
from tests.support.server import RunningServer

Run = Callable[..., str]


@pytest.fixture
def run(catalog: RunningServer) -> Run:
    def run(*arguments: str, exit_code: int = 0) -> str:
        done = CliRunner().invoke(app, ["maintain", *arguments, "--uri", catalog.url])
        assert done.exit_code == exit_code, done.output
        return done.output

    return run


def as_json(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output)
    return found


def test_equality_deletes_are_converted(
    client: Client, new_table: Callable[..., Table], run: Run
) -> None:
    table = new_table(3)
    equality_delete(client, table, 3, 14)
    name = str(table.identifier)
    planned = run("convert-equality-deletes", name, "--dry-run")
    assert planned == f"{name}: would convert 1 equality delete file, and search 6 data files\n"
    assert run("convert-equality-deletes", name) == (
        f"{name}: converted 1 equality delete file into 2 deletes by position, of 2 rows in "
        "6 data files\n"
    )
    assert rows(client, table) == everything(3, 14)
    again = as_json(run("convert-equality-deletes", name, "--output", "json"))
    assert again["converted_equality_delete_files_count"] == 0


def test_position_deletes_are_rewritten(
    client: Client, new_table: Callable[..., Table], run: Run
) -> None:
    table = new_table(2, **{"write.delete.granularity": "partition"})
    for id in (3, 14):
        client.delete(table.identifier, f"id = {id}")
    name, option = str(table.identifier), ("--option", "min-input-files=2")
    few = run("rewrite-position-delete-files", name)
    assert few == f"{name}: rewrote 0 delete files (0 B) into 0 delete files\n"
    client.set_properties(name, {"write.delete.granularity": "partition"})
    planned = as_json(
        run("rewrite-position-delete-files", name, *option, "--dry-run", "--output", "json")
    )
    assert (planned["rewritten_delete_files_count"], planned["dry_run"]) == (2, True)
    assert "rewrote 2 delete files" in run("rewrite-position-delete-files", name, *option)
    assert rows(client, table) == everything(3, 14)
    wrong = run("rewrite-position-delete-files", name, "--option", "min-input-files=0", exit_code=2)
    assert "min-input-files" in wrong
