"""Files that a filter has chosen are written again with all of their deletes.

The keys of an equality delete may lie outside of the filter. Its rows must not come back with the
rows that stay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil import Client, Table
from frazil.datafiles.footers.files_from_parquet import EqualityDeleteFile
from frazil.maintenance import rewrite_data_files

COPY_ON_WRITE = "copy-on-write"


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": id, "item": f"row {id}"} for id in ids]


@pytest.fixture
def table(client: Client, namespace: str) -> Table:
    """Create a table with one file, of which an equality delete has deleted the row 3."""
    table = client.create_table(
        f"{namespace}.t", "id long not null, item string", identifier_fields=["id"]
    )
    client.append(table.identifier, rows(1, 2, 3, 4))
    path = Path(urlsplit(table.location).path) / "data" / "keys.parquet"
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"id": [3]}, schema=schema), path)
    keys = EqualityDeleteFile.from_parquet(str(path), table, columns=["id"])
    client.row_delta(table.identifier, (), [keys], command="delete", isolation="snapshot")
    return client.load_table(table.identifier)


STATEMENTS: dict[str, tuple[Callable[[Table], object], list[int]]] = {
    "delete": (lambda table: table.delete("id = 1", mode=COPY_ON_WRITE), [2, 4]),
    "overwrite": (
        lambda table: table.overwrite(rows(7), "id = 1", mode=COPY_ON_WRITE),
        [2, 4, 7],
    ),
    "upsert": (lambda table: table.upsert(rows(1, 7), mode=COPY_ON_WRITE), [1, 2, 4, 7]),
    "rewrite": (
        lambda table: rewrite_data_files(table, where="id = 1", options={"rewrite-all": "true"}),
        [1, 2, 4],
    ),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_deleted_keys_outside_of_the_filter_stay_deleted(
    client: Client, table: Table, name: str
) -> None:
    statement, expected = STATEMENTS[name]
    statement(table)
    assert sorted(row["id"] for row in client.scan(table.identifier).to_pylist()) == expected
