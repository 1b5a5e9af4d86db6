"""Several writers change different rows of one file, and none of them has to start again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from frazil import Client, Commit, Table
from frazil.client.rows import row_statements
from tests.support.duck import attach
from tests.support.duck import connect as duck_connect
from tests.support.server import RunningServer

WRITERS = 8
ROWS = 400


@pytest.fixture
def table(client: Client, namespace: str) -> Table:
    """Create a table with one file that deletes have a vector for, and without retries."""
    modes = {f"write.{command}.mode": "merge-on-read" for command in ("delete", "update", "merge")}
    table = client.create_table(
        f"{namespace}.items",
        "id long not null, item string",
        identifier_fields=["id"],
        format_version=3,
        properties={**modes, "commit.retry.num-retries": "0"},
    )
    client.append(table.identifier, [{"id": id, "item": "old"} for id in range(ROWS)])
    return client.load_table(table.identifier)


def at_once(work: Callable[[int], Commit]) -> list[Commit]:
    with ThreadPoolExecutor(WRITERS) as threads:
        return list(threads.map(work, range(WRITERS)))


def items_by_id(client: Client, table: Table) -> dict[int, str]:
    return {row["id"]: row["item"] for row in client.scan(table.identifier).to_pylist()}


def puffin_files(table: Table) -> set[Path]:
    return set(Path(urlsplit(table.location).path).rglob("*.puffin"))


def test_deletes_and_upserts_of_one_file_at_once(
    catalog: RunningServer, client: Client, table: Table
) -> None:
    deleted = at_once(
        lambda writer: row_statements.delete(
            table, f"id >= {writer * 10} and id < {writer * 10 + 5}", {}
        )
    )
    expected = {id: "old" for id in range(ROWS) if id >= WRITERS * 10 or id % 10 >= 5}
    assert items_by_id(client, table) == expected
    assert len({commit.snapshot_id for commit in deleted}) == WRITERS

    read = client.load_table(table.identifier)
    # Bounds show that a file with one key has no row that another writer has read.
    at_once(lambda writer: read.upsert([{"id": 100 + writer, "item": "new"}]))
    expected |= {100 + writer: "new" for writer in range(WRITERS)}
    assert items_by_id(client, table) == expected
    with duck_connect() as connection:
        attach(connection, catalog.url)
        read_by_duckdb = connection.execute(f"SELECT * FROM ice.{table.identifier}")
        assert dict(read_by_duckdb.fetchall()) == expected


def test_superseded_vectors_are_removed_by_their_writer(client: Client, table: Table) -> None:
    commits = at_once(lambda writer: row_statements.delete(table, f"id = {writer}", {}))
    superseded = {
        path for commit in commits for made in commit.snapshots for path in made.superseded_files
    }
    assert len(superseded) == WRITERS - 1
    # Each commit has one file with a vector: the first its own, the others one of the server's.
    assert len(puffin_files(table)) == WRITERS
    assert not {Path(urlsplit(path).path) for path in superseded} & puffin_files(table)
