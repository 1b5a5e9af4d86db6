"""Scans return the rows of a snapshot as Arrow, whoever wrote them."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client, Table, col
from frazil.wire.errors import BadRequest, NotFound
from tests.support.server import RunningServer


@pytest.fixture
def table(client: Client, namespace: str) -> Table:
    table = client.create_table(
        f"{namespace}.t",
        "id long, item string, place struct<city: string, zip: int>",
        partition_by=["bucket(2, id)"],
        format_version=3,
    )
    rows = [{"id": n, "item": f"i{n}", "place": {"city": "Ulm", "zip": n}} for n in range(10)]
    table.append(rows)
    return client.load_table(table.identifier)


def ids(scan: Any) -> list[int]:
    return sorted(scan.to_arrow().column("id").to_pylist())


def test_columns_filters_and_limits(table: Table) -> None:
    scan = table.scan((col("id") >= 3) & (col("place.zip") != 5), ["item", "id"])
    rows = scan.to_arrow()
    assert rows.schema == pa.schema([("item", pa.string()), ("id", pa.int64())])
    assert rows.schema.metadata is None
    assert rows.schema.field("id").metadata is None
    assert ids(scan) == [3, 4, 6, 7, 8, 9]
    assert scan.count() == 6
    for limit in (0, 1, 4, 100):
        limited = table.scan("id >= 3", ["item"], limit=limit)
        assert limited.to_arrow().num_rows == limited.count() == min(limit, 7)
    assert table.scan("false").to_arrow().num_rows == 0
    assert table.scan(columns=[]).to_arrow().num_rows == 10


def test_all_results_have_the_same_rows(table: Table) -> None:
    scan = table.scan("id < 4", ["id"])
    expected = [{"id": number} for number in range(4)]
    for found in (
        scan.to_pylist(),
        scan.to_batches().read_all().to_pylist(),
        scan.to_pandas().to_dict("records"),
        duckdb.from_arrow(scan.to_batches()).order("id").to_arrow_table().to_pylist(),
        pa.table(scan).to_pylist(),
    ):
        assert sorted(found, key=lambda row: row["id"]) == expected


def test_a_missing_library_is_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(BadRequest, match="polars is not installed: install it, or use to_arrow"):
        table.scan().to_polars()


def test_a_reader_that_is_not_read_to_its_end(table: Table) -> None:
    reader = table.scan().to_batches()
    assert reader.read_next_batch().num_rows
    reader.close()


def test_snapshots_branches_and_times(client: Client, table: Table) -> None:
    first = table.snapshots[0]
    client.create_tag(table.identifier, "ten")
    client.delete(table.identifier, "id < 5")
    client.rename_column(table.identifier, "item", "name")
    now = client.load_table(table.identifier)
    before = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, dt.UTC)
    for scan in (
        now.scan("item = 'i1'", snapshot="ten"),
        now.scan("item = 'i1'", snapshot=first.snapshot_id),
        now.scan("item = 'i1'", as_of=before),
        client.scan(table.identifier, "item = 'i1'", as_of=first.timestamp_ms),
        client.scan(table.identifier, "item = 'i1'", snapshot=first.snapshot_id),
    ):
        assert [row["item"] for row in scan.to_pylist()] == ["i1"]
    assert now.scan("name = 'i1'").to_pylist() == []
    assert [row["name"] for row in now.scan("name = 'i7'", snapshot="main").to_pylist()] == ["i7"]
    # A table shows what it was loaded with.
    assert table.scan().count() == 10
    with pytest.raises(NotFound, match="had no snapshot at 1970"):
        now.scan(as_of=5)


def test_columns_are_those_of_the_schema_that_is_read(client: Client, table: Table) -> None:
    name = table.identifier
    client.add_column(name, "n", "int", default=7)
    client.add_column(name, "place.street", "string", first=True)
    client.rename_column(name, "place.city", "town")
    client.drop_column(name, "item")
    client.add_column(name, "item", "double")
    client.add_column(name, "nothing", "unknown")
    client.append(name, [{"id": 10, "n": 1, "item": 0.5, "place": {"town": "Köln"}}])
    old, new = client.scan(name, "id in (1, 10)").to_arrow().sort_by("id").to_pylist()
    assert old == {
        "id": 1,
        "place": {"street": None, "town": "Ulm", "zip": 1},
        "n": 7,
        "item": None,
        "nothing": None,
    }
    assert new == {
        "id": 10,
        "place": {"street": None, "town": "Köln", "zip": None},
        "n": 1,
        "item": 0.5,
        "nothing": None,
    }
    assert client.scan(name, "nothing is null and n = 7").count() == 10


def test_metadata_columns(client: Client, table: Table) -> None:
    client.delete(table.identifier, "id = 4", mode="merge-on-read")
    columns = ["_pos", "id", "_file", "_spec_id", "_row_id", "_last_updated_sequence_number"]
    rows = client.scan(table.identifier, columns=columns).to_pylist()
    assert [list(row) for row in rows] == [columns] * 9
    files = {task.data_file.file_path for task in client.table(table.identifier).plan().tasks}
    assert {row["_file"] for row in rows} == files
    assert {row["_row_id"] for row in rows} < set(range(10))
    assert {(row["_spec_id"], row["_last_updated_sequence_number"]) for row in rows} == {(0, 1)}


def test_every_type_comes_back_as_it_went(client: Client, namespace: str) -> None:
    name = f"{namespace}.t"
    client.create_table(
        name,
        "b boolean, i int, l long, f float, d double, p decimal(9, 2), day date, t time, "
        "local timestamp, at timestamptz, ns timestamp_ns, s string, u uuid, x fixed[2], "
        "raw binary, g geometry, tags list<string>, m map<string, struct<a: int>>",
        format_version=3,
    )
    utc = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
    row = {
        "b": True,
        "i": -1,
        "l": 2**40,
        "f": 0.5,
        "d": 0.1,
        "p": Decimal("12.50"),
        "day": utc.date(),
        "t": utc.time(),
        "local": utc.replace(tzinfo=None),
        "at": utc,
        "ns": utc.replace(tzinfo=None),
        "s": "ü",
        "u": bytes(16),
        "x": b"ab",
        "raw": b"\0",
        "g": b"\1\2",
        "tags": ["a", None],
        "m": {"k": {"a": 5}},
    }
    nothing = dict.fromkeys(row)
    client.append(name, [row, nothing])
    found = client.scan(name).to_arrow()
    assert found.schema.field("g").type == pa.binary()
    full, empty = found.sort_by("i").to_pylist()
    assert empty == nothing
    assert full["u"].int == 0
    assert full["m"] == [("k", {"a": 5})]
    assert full["ns"].value == int(utc.timestamp()) * 10**9
    same = row.keys() - {"u", "m", "ns"}
    assert {key: full[key] for key in same} == {key: row[key] for key in same}


def test_rows_of_pyiceberg(client: Client, namespace: str, catalog: RunningServer) -> None:
    stock = RestCatalog("stock", uri=catalog.url)
    rows = pa.table({"id": pa.array(range(100)), "name": [f"n{each % 7}" for each in range(100)]})
    written = stock.create_table(f"{namespace}.t", rows.schema)
    written.append(rows)
    written.delete("id < 10")
    with written.update_schema() as update:
        update.rename_column("name", "label")
    written.append(pa.table({"id": [200], "label": ["n3"]}))
    expected = written.scan("label = 'n3'").to_arrow().sort_by("id")
    found = client.scan(f"{namespace}.t", "label = 'n3'").to_arrow().sort_by("id")
    assert found.to_pylist() == expected.to_pylist()
    assert len(found) == 14


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"columns": ["nope"]},
            "columns: there is no column 'nope'; the columns are id",
        ),
        ({"columns": "id"}, "columns: give a list of names"),
        ({"columns": ["id", "id"]}, "columns: a name is given twice"),
        ({"filter": "nope = 1"}, "filter: there is no column 'nope'"),
        ({"filter": 5}, "filter must be an expression"),
        ({"limit": -1}, "scan: the limit -1 is negative"),
        ({"snapshot": 1, "as_of": 1}, "scan: give either snapshot or as_of"),
        ({"as_of": dt.datetime(2026, 5, 1)}, "as_of: give the datetime a zone"),
    ],
)
def test_wrong_scans_are_refused(table: Table, options: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        table.scan(**options)


@pytest.mark.parametrize("filter", ["id = 'x'", "item > 5", "nope = 1", "id is nan"])
def test_a_wrong_filter_is_refused_without_rows_too(
    client: Client, namespace: str, filter: str
) -> None:
    made = client.create_table(f"{namespace}.empty", "id long, item string")
    with pytest.raises(BadRequest, match="filter"):
        made.scan(filter)


def test_a_scan_is_shown_without_its_metadata(table: Table) -> None:
    assert len(repr(table)) < 500
    assert len(repr(table.scan("id > 1"))) < 1000
    with pytest.raises(TypeError, match="'case_sensitive' is not an option"):
        table.scan(case_sensitive=False)  # type: ignore[call-arg]


def test_rows_have_ids_since_version_3(client: Client, namespace: str) -> None:
    table = client.create_table(f"{namespace}.t", "id long", format_version=2)
    with pytest.raises(BadRequest, match=r"column _row_id: .* has format version 2"):
        table.scan(columns=["_row_id"])
