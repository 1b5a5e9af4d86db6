"""Values of every type survive a rewrite that Spark sorts in several tasks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from frazil.client.catalog_client import Client
from frazil.spark.session import Session
from tests.maintenance.test_sorted_types import ORDERS, SCHEMA, row, texts

LINEAGE = ("_row_id", "_last_updated_sequence_number")


@pytest.mark.parametrize("sort_order", [ORDERS[1], ORDERS[3]])
def test_values_of_every_type_survive(
    client: Client, session: Session, namespace: str, sort_order: str
) -> None:
    """Rows with equal keys, nulls and NaN among them, are split over several ranges."""
    name = f"{namespace}.t"
    client.create_table(name, SCHEMA, format_version=3)
    for start in (0, 20, 40):
        client.append(name, [row(id) for id in range(start, start + 20)])
    before = rows(client, name)
    size = max(task.data_file.file_size_in_bytes for task in client.load_table(name).plan().tasks)
    options: dict[str, Any] = {
        "frazil.engine": "spark",
        "rewrite-all": "true",
        "target-file-size-bytes": str(size),
    }
    result = session.rewrite_data_files(name, sort_order=sort_order, options=options)
    assert result.added_data_files_count > 1
    after = rows(client, name)
    assert after.schema == before.schema
    assert texts(after) == texts(before)


def rows(client: Client, name: str) -> pa.Table:
    columns = [field.name for field in client.load_table(name).schema.fields]
    return client.scan(name, columns=[*columns, *LINEAGE]).to_arrow().sort_by("id")
