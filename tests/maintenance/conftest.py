"""A real catalog, as for the tests of the client, and tables to rewrite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil import Client, Table
from frazil.client.rows.write_folders import Write
from frazil.wire.declared_content import EqualityDeleteFile
from tests.client.conftest import catalog, client, namespace

__all__ = ["catalog", "client", "namespace"]

FILES, ROWS = 6, 10


@pytest.fixture
def new_table(client: Client, namespace: str) -> Callable[..., Table]:
    def make(version: int, **properties: str) -> Table:
        """Create a table with six files of ten rows each."""
        table = client.create_table(
            f"{namespace}.t",
            "id long not null, kind string, item string",
            identifier_fields=["id"],
            format_version=version,
            properties={
                "write.delete.mode": "merge-on-read" if version > 1 else "copy-on-write",
                "write.merge.mode": "merge-on-read" if version > 1 else "copy-on-write",
                **properties,
            },
        )
        for start in range(0, FILES * ROWS, ROWS):
            client.append(table.identifier, [row(id) for id in range(start, start + ROWS)])
        return client.load_table(table.identifier)

    return make


def row(id: int, item: str = "old") -> dict[str, Any]:
    return {"id": id, "kind": "ab"[id % 2], "item": item}


def rows(client: Client, table: Table) -> dict[int, str]:
    found = client.scan(table.identifier).to_pylist()
    ids = [row["id"] for row in found]
    assert len(ids) == len(set(ids))
    return {row["id"]: row["item"] for row in found}


def lineage(client: Client, table: Table) -> dict[int, tuple[int, int]]:
    columns = ["id", "_row_id", "_last_updated_sequence_number"]
    found = client.scan(table.identifier, columns=columns).to_pylist()
    return {row["id"]: (row["_row_id"], row[columns[2]]) for row in found}


def data_files(client: Client, table: Table) -> list[str]:
    return [task.data_file.file_path for task in client.load_table(table.identifier).plan().tasks]


def parquet_files(table: Table) -> set[Path]:
    return set(Path(urlsplit(table.location).path).rglob("*.parquet"))


def during_the_rewrite(
    monkeypatch: pytest.MonkeyPatch, *others: Callable[[], object], rounds: int = 1
) -> None:
    """Let others commit after a group was written, before each of its first commits."""
    commit = Write.commit
    left = [rounds]

    def called(self: Write, *args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            with monkeypatch.context() as patch:
                patch.setattr(Write, "commit", commit)
                for other in others:
                    other()
        return commit(self, *args)

    monkeypatch.setattr(Write, "commit", called)


def everything(*without: int) -> dict[int, str]:
    return {id: "old" for id in range(FILES * ROWS) if id not in without}


def equality_delete(client: Client, table: Table, *ids: int) -> None:
    """Delete rows by their id, as streaming writers do."""
    path = f"{table.location}/data/by-id-{'-'.join(map(str, ids))}.parquet"
    local = Path(urlsplit(path).path)
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"id": list(ids)}, schema=schema), local)
    deletes = EqualityDeleteFile(
        spec_id=0,
        partition=(),
        file_path=path,
        file_format="parquet",
        file_size_in_bytes=local.stat().st_size,
        record_count=len(ids),
        equality_ids=(1,),
    )
    client.row_delta(table.identifier, (), [deletes], command="delete", isolation="snapshot")
