"""Values of every type survive the temporary files of a sorting rewrite."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from frazil import Client
from frazil.maintenance import rewrite_data_files
from tests.maintenance.conftest import data_files, lineage

SCHEMA = (
    "id long, b boolean, i int, f float, d double, n decimal(20, 3), t date, h time, "
    "ts timestamp, tz timestamptz, ns timestamp_ns, s string, u uuid, x fixed[3], y binary, "
    "v variant, g geometry, "
    "st struct<s: string, l: list<int>>, m map<string, double>, k unknown"
)
ORDERS = (
    "s desc, u, b, i, f",
    "d desc nulls first, n, t, h, ts",
    "st.s, tz desc, ns, x, y",
    "zorder(u, s, n, x, d, ns)",
)
POINT = struct.pack("<BIdd", 1, 1, 2.0, 3.0)


def row(id: int) -> dict[str, Any]:
    """Return a row of values, or of nulls."""
    if id % 5 == 4:
        return {"id": id}
    at = datetime(2026, 1, 1 + id % 7, 12, 30)
    return {
        "id": id,
        "b": id % 2 == 0,
        "i": -id,
        "f": id / 4,
        "d": float("nan") if id % 3 == 0 else -id / 8,
        "n": Decimal(id * 7919 % 100) / 1000,
        "t": date(2026, 1, 1 + id % 28),
        "h": time(id % 24),
        "ts": at,
        "tz": at.replace(tzinfo=UTC),
        "ns": at,
        "s": f"text {id * 31 % 17}",
        "u": uuid.UUID(int=id * 7919**8 % 2**128),
        "x": bytes([id, 0, 255 - id]),
        "y": bytes(id % 4),
        "v": {"metadata": b"\x01\x00\x00", "value": bytes([12, id])},
        "g": POINT,
        "st": {"s": f"{id % 3}", "l": [id, None]},
        "m": {"one": 1.5, "id": float(id)},
    }


@pytest.mark.parametrize("sort_order", ORDERS)
def test_values_of_every_type_survive(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch, sort_order: str
) -> None:
    monkeypatch.setattr("frazil.datafiles.ordering.external_sort.RUN_BYTES", 1)
    table = client.create_table(f"{namespace}.t", SCHEMA, format_version=3)
    for start in (0, 20):
        client.append(table.identifier, [row(id) for id in range(start, start + 20)])
    before = client.scan(table.identifier).to_arrow().sort_by("id")
    ids = lineage(client, table)
    rewrite_data_files(
        client.load_table(table.identifier),
        sort_order=sort_order,
        options={"rewrite-all": "true"},
    )
    assert len(data_files(client, table)) == 1
    after = client.scan(table.identifier).to_arrow().sort_by("id")
    assert after.schema == before.schema
    assert texts(after) == texts(before)
    assert lineage(client, table) == ids


def texts(rows: pa.Table) -> list[str]:
    """Return rows as text, because NaN equals nothing."""
    return [repr(row) for row in rows.to_pylist()]
