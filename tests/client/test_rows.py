"""Rows are appended, replaced, deleted and upserted; others read the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib.util import find_spec
from typing import Any
from uuid import UUID

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client, CommitStateUnknown, Table, ValidationError
from frazil.client.rows import row_statements, row_upserts
from frazil.client.rows.write_folders import data_location
from frazil.datafiles.reading.file_storage import storage_of
from frazil.wire.errors import BadRequest
from tests.support.duck import attach
from tests.support.duck import connect as duck_connect
from tests.support.server import RunningServer

MAY_1, MAY_2 = dt.date(2026, 5, 1), dt.date(2026, 5, 2)
COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
VERSIONS = [
    pytest.param(1, COPY_ON_WRITE, id="v1"),
    pytest.param(2, COPY_ON_WRITE, id="v2-copy"),
    pytest.param(2, MERGE_ON_READ, id="v2-merge"),
    pytest.param(3, COPY_ON_WRITE, id="v3-copy"),
    pytest.param(3, MERGE_ON_READ, id="v3-merge"),
]
ROWS = [
    {"id": 1, "day": MAY_1, "item": "apple"},
    {"id": 2, "day": MAY_1, "item": "pear"},
    {"id": 3, "day": MAY_2, "item": None},
]


@pytest.fixture
def new_table(client: Client, namespace: str) -> Callable[..., Table]:
    def make(version: int = 2, mode: str = COPY_ON_WRITE, **options: Any) -> Table:
        properties = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
        return client.create_table(
            f"{namespace}.t",
            "id long not null, day date, item string",
            partition_by=["day"],
            identifier_fields=["id"],
            format_version=version,
            properties={**properties, "frazil.commit.verify-files": "footer"},
            **options,
        )

    return make


@pytest.fixture
def table(new_table: Callable[..., Table]) -> Table:
    return new_table()


@pytest.fixture(scope="module")
def duck(catalog: RunningServer) -> Iterator[duckdb.DuckDBPyConnection]:
    with duck_connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        attach(connection, catalog.url)
        yield connection


def read(client: Client, table: Table) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(row.values()) for row in client.scan(table.identifier).to_pylist()), key=repr
    )


def ids(client: Client, table: Table) -> list[int]:
    return sorted(row["id"] for row in client.scan(table.identifier, columns=["id"]).to_pylist())


def strays(client: Client, table: Table) -> set[str]:
    """Return the files in the table's data folder that belong to no snapshot."""
    loaded = client.load_table(table.identifier)
    declared: set[str] = set()
    for snapshot in loaded.snapshots:
        for task in loaded.plan(snapshot=snapshot.snapshot_id).tasks:
            declared |= {task.data_file.file_path, *(file.file_path for file in task.delete_files)}
    return set(storage_of(loaded.config).list(data_location(loaded))) - declared


# --- forms of rows --------------------------------------------------------------------------------


def arrow_rows() -> pa.Table:
    return pa.Table.from_pylist(ROWS)


def polars_rows(lazy: bool) -> Any:
    import polars as pl

    frame = pl.DataFrame(ROWS)
    return frame.lazy() if lazy else frame


FORMS: dict[str, Callable[[], Any]] = {
    "table": arrow_rows,
    "batch": lambda: arrow_rows().to_batches()[0],
    "reader": lambda: arrow_rows().to_reader(),
    "duckdb": lambda: duckdb.from_arrow(arrow_rows()),
    "pandas": lambda: pd.DataFrame(ROWS),
    "dicts": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
}
if find_spec("polars") is not None:
    FORMS["polars"] = lambda: polars_rows(lazy=False)
    FORMS["lazy polars"] = lambda: polars_rows(lazy=True)


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_any_form(client: Client, table: Table, form: str) -> None:
    commit = table.append(FORMS[form]())
    assert (commit.operation, commit.attempts) == ("append", 1)
    assert read(client, table) == [(1, MAY_1, "apple"), (2, MAY_1, "pear"), (3, MAY_2, None)]
    frame = client.scan(table.identifier).to_pandas()
    assert sorted(frame["id"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": [1]}, "rows: give a pyarrow Table, .* not a dict"),
        ([1], "rows: give a pyarrow Table, .* not a list of int"),
        (pa.schema([("id", pa.int64())]), "rows: give a pyarrow Table, .* not a Schema of Field"),
        (5, "rows: give a pyarrow Table, .* not a int"),
        ([{"id": "x"}], "column id: a value does not fit int64"),
        ([{"id": 1, "nope": 2}], "column nope: the table has no such column"),
        ([{"day": MAY_1}], "column id is required, but the rows do not have it"),
        (pd.DataFrame({"id": [1, "x"]}), "rows: pandas cannot convert them"),
    ],
)
def test_wrong_rows_are_refused_and_leave_nothing(
    client: Client, table: Table, rows: Any, message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        table.append(rows)
    assert client.load_table(table.identifier).snapshots == ()
    assert strays(client, table) == set()


def test_a_datetime_says_what_its_zone_is(client: Client, namespace: str) -> None:
    name = f"{namespace}.t"
    client.create_table(name, "at timestamptz, local timestamp, more struct<at timestamptz>")
    naive, aware = dt.datetime(2026, 5, 1), dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
    for row, column in (
        ({"at": naive}, "column at: 2026-05-01T00:00:00 has no zone"),
        ({"local": aware}, r"column local: 2026-05-01T00:00:00\+00:00 has a zone"),
        ({"more": {"at": naive}}, "column more.at: .* has no zone"),
    ):
        with pytest.raises(BadRequest, match=column):
            client.append(name, [row])
    with pytest.raises(BadRequest, match=r"column at is a timestamptz.*tz_localize"):
        client.append(name, pd.DataFrame({"at": [naive]}))
    client.append(name, [{"at": aware, "local": naive, "more": {"at": aware}}])
    assert client.scan(name).to_pylist() == [{"at": aware, "local": naive, "more": {"at": aware}}]


def test_no_rows_make_no_snapshot(client: Client, table: Table) -> None:
    for commit in (
        table.append([]),
        table.append(arrow_rows().slice(0, 0)),
        table.overwrite_partitions([]),
        table.upsert([]),
        table.delete("id = 7"),
        table.overwrite([], "id = 7"),
    ):
        assert (commit.snapshot_id, commit.attempts) == (None, 0)
    assert client.load_table(table.identifier).snapshots == ()
    assert client.scan(table.identifier).to_arrow().num_rows == 0


def test_a_table_takes_the_columns_that_it_has_now(client: Client, table: Table) -> None:
    client.add_column(table.identifier, "size", "int")
    table.append([{"id": 1, "size": 5}])
    assert client.scan(table.identifier).to_pylist() == [
        {"id": 1, "day": None, "item": None, "size": 5}
    ]


def test_unknown_options_are_refused(table: Table) -> None:
    calls: list[Callable[..., Any]] = [
        lambda **options: table.append(ROWS, **options),
        lambda **options: table.overwrite(ROWS, **options),
        lambda **options: table.overwrite_partitions(ROWS, **options),
        lambda **options: table.upsert(ROWS, **options),
        lambda **options: table.delete("id = 1", **options),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="'branc' is not an option; did you mean 'branch'"):
            call(branc="audit")


def test_a_staged_table_appears_with_its_rows(client: Client, namespace: str) -> None:
    name = f"{namespace}.t"
    staged = client.stage_table(name, arrow_rows().schema)
    assert not client.table_exists(name)
    staged.append(arrow_rows())
    assert client.scan(name).count() == 3


# --- changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), VERSIONS)
def test_a_life_of_rows_that_others_read(
    client: Client,
    new_table: Callable[..., Table],
    catalog: RunningServer,
    duck: duckdb.DuckDBPyConnection,
    version: int,
    mode: str,
) -> None:
    table = new_table(version, mode)
    name = str(table.identifier)
    client.append(name, ROWS)
    client.append(name, [{"id": each, "day": MAY_2, "item": f"n{each}"} for each in range(10, 20)])
    client.delete(name, "id = 2 or id in (11, 12)")
    client.upsert(
        name,
        [
            {"id": 1, "day": MAY_2, "item": "moved"},
            {"id": 13, "day": MAY_2, "item": "changed"},
            {"id": 50, "day": None, "item": "new"},
        ],
    )
    client.delete(name, "id >= 18")
    client.overwrite(name, [{"id": 30, "item": "replaced"}], "id = 14 or id = 50")
    client.overwrite_partitions(name, [{"id": 40, "day": MAY_1, "item": "the whole day"}])
    expected = sorted(
        [
            (1, MAY_2, "moved"),
            (3, MAY_2, None),
            (10, MAY_2, "n10"),
            (13, MAY_2, "changed"),
            *((each, MAY_2, f"n{each}") for each in (15, 16, 17)),
            (30, None, "replaced"),
            (40, MAY_1, "the whole day"),
        ],
        key=repr,
    )
    assert read(client, table) == expected
    assert sorted(duck.execute(f"SELECT * FROM ice.{name}").fetchall(), key=repr) == expected
    if version < 3 or mode == COPY_ON_WRITE:
        stock = RestCatalog("stock", uri=catalog.url).load_table(name)
        rows = stock.scan().to_arrow().to_pylist()
        assert sorted((tuple(row.values()) for row in rows), key=repr) == expected
    assert strays(client, table) == set()


@pytest.mark.parametrize("mode", [COPY_ON_WRITE, MERGE_ON_READ])
def test_rows_of_version_3_keep_their_ids(
    client: Client, new_table: Callable[..., Table], mode: str
) -> None:
    table = new_table(3, mode)
    table.append(ROWS)
    table.upsert([{"id": 2, "day": MAY_2, "item": "moved"}, {"id": 9, "day": None, "item": "new"}])
    table.delete("id = 1")
    columns = ["id", "_row_id", "_last_updated_sequence_number"]
    rows = client.scan(table.identifier, columns=columns).to_pylist()
    found = {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in rows}
    assert found[2] == (1, 2)
    assert found[3] == (2, 1)
    assert found[9][0] not in (0, 1, 2)


def test_modes_decide_how_rows_are_removed(client: Client, new_table: Callable[..., Table]) -> None:
    table = new_table(3)
    table.append(ROWS)
    table.delete("id = 1", mode=MERGE_ON_READ)
    (vector,) = (
        file
        for task in client.load_table(table.identifier).plan().tasks
        for file in task.delete_files
    )
    assert vector.file_format == "puffin"
    commit = table.delete("day = DATE '2026-05-02'")
    assert commit.operation == "delete"
    summary = client.history(table.identifier)[0].summary
    assert summary["deleted-data-files"] == "1"
    assert "added-data-files" not in summary
    with pytest.raises(BadRequest, match="mode: 'copy' must be copy-on-write or merge-on-read"):
        table.delete("id = 1", mode="copy")


def test_an_overwrite_of_everything(client: Client, table: Table) -> None:
    table.append(ROWS)
    client.overwrite(table.identifier, [{"id": 7}])
    assert ids(client, table) == [7]
    client.delete(table.identifier, "true")
    assert ids(client, table) == []


def test_branches_have_rows_of_their_own(client: Client, table: Table) -> None:
    table.append(ROWS)
    client.create_branch(table.identifier, "audit")
    client.append(table.identifier, [{"id": 4}], branch="audit")
    client.delete(table.identifier, "id = 1", branch="audit")
    client.upsert(table.identifier, [{"id": 4, "day": MAY_1, "item": "x"}], branch="audit")
    assert ids(client, table) == [1, 2, 3]
    audit = client.scan(table.identifier, snapshot="audit").to_pylist()
    assert sorted(row["id"] for row in audit) == [2, 3, 4]


# --- keys -----------------------------------------------------------------------------------------

KEYED = "a int not null, b string not null, at timestamptz, price decimal(9, 2), u uuid, f fixed[2]"


@pytest.mark.parametrize("count", [3, 500])
def test_upserts_by_several_keys_of_any_type(client: Client, namespace: str, count: int) -> None:
    name = f"{namespace}.t"
    client.create_table(name, KEYED + ", n int", format_version=3)
    start = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)

    def rows(numbers: range, value: int) -> list[dict[str, Any]]:
        return [
            {
                "a": number % 7,
                "b": f"b{number}",
                "at": start + dt.timedelta(microseconds=number),
                "price": Decimal(number) / 100,
                "u": UUID(int=number),
                "f": number.to_bytes(2, "big"),
                "n": value,
            }
            for number in numbers
        ]

    keys = ["a", "b", "at", "price", "u", "f"]
    client.append(name, rows(range(count), 1))
    client.upsert(name, rows(range(count - 1, 2 * count), 2), keys)
    found = client.scan(name).to_pylist()
    assert len(found) == 2 * count
    assert {row["b"] for row in found if row["n"] == 1} == {f"b{each}" for each in range(count - 1)}


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [
        (ROWS, ["nope"], "keys: there is no column 'nope'; the columns are id, day, item"),
        (ROWS, "id", "keys: give a list of columns"),
        ([{"id": 1, "day": None, "item": None}], ["item"], "keys: column item is null in some"),
        ([*ROWS, ROWS[0]], ["id"], "keys: 2 of the rows have the key id=1"),
        ([{"id": 1}], ["id"], "column day: the rows do not have it, and its values"),
    ],
)
def test_wrong_keys_are_refused(table: Table, rows: Any, keys: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        table.upsert(rows, keys)


def test_a_table_without_identifier_fields_needs_keys(client: Client, namespace: str) -> None:
    table = client.create_table(f"{namespace}.t", "id long, n double")
    with pytest.raises(BadRequest, match=r"keys: name the columns .* set_identifier_fields"):
        table.upsert([{"id": 1, "n": 1.0}])
    with pytest.raises(BadRequest, match="keys: column n is a double, by which rows"):
        table.upsert([{"id": 1, "n": 1.0}], ["n"])


# --- files ----------------------------------------------------------------------------------------

TRANSFORMS = [
    "id",
    "bucket(4, id)",
    "truncate(10, id)",
    "day(at)",
    "hour(at)",
    "month(ns)",
    "ns",
    "year(day)",
    "bucket(8, u)",
    "u",
    "truncate(2, name)",
    "truncate(5, price)",
    "bucket(4, price)",
    "bucket(4, ns)",
    "place.city",
    "raw",
    "flag",
]


@pytest.mark.parametrize("term", TRANSFORMS)
def test_every_transform_divides_rows_as_others_do(
    client: Client, namespace: str, duck: duckdb.DuckDBPyConnection, term: str
) -> None:
    """The catalog proves each partition with the footers, and filters find all rows."""
    name = f"{namespace}.t"
    client.create_table(
        name,
        "id long, at timestamptz, ns timestamp_ns, day date, u uuid, name string, "
        "price decimal(9, 2), place struct<city: string>, raw binary, flag boolean",
        partition_by=[term],
        format_version=3,
        properties={"frazil.commit.verify-files": "footer"},
    )
    start = dt.datetime(1969, 12, 31, 22, tzinfo=dt.UTC)
    moments = [start + dt.timedelta(hours=13 * each) for each in range(12)]
    rows = {
        "id": [*range(-6, 6)],
        "at": moments,
        "ns": pa.array([int(m.timestamp()) * 10**9 + 1 for m in moments], pa.timestamp("ns")),
        "day": [m.date() for m in moments],
        "u": [UUID(int=each).bytes for each in range(12)],
        "name": ["äöü", "äö", "", None, *"abcdefgh"],
        "price": [Decimal(each) / 7 for each in range(-6, 6)],
        "place": [{"city": "x" if each % 2 else None} for each in range(11)] + [None],
        "raw": [bytes([each % 3]) for each in range(12)],
        "flag": [True, False, None] * 4,
    }
    rows["price"] = [each.quantize(Decimal("0.01")) for each in rows["price"]]
    client.append(name, pa.table(rows))
    for number, moment in zip(range(-6, 6), moments, strict=True):
        found = client.scan(name, f"id = {number} and at = TIMESTAMP '{moment.isoformat()}'")
        assert [row["id"] for row in found.to_pylist()] == [number]
    assert client.scan(name).count() == 12
    assert len(duck.execute(f"SELECT * FROM ice.{name}").fetchall()) == 12


def test_properties_of_the_table_shape_its_files(client: Client, namespace: str) -> None:
    name = f"{namespace}.t"
    properties = {
        "write.target-file-size-bytes": "20000",
        "write.parquet.row-group-size-bytes": "8000",
        "write.parquet.compression-codec": "snappy",
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.id": "full",
    }
    table = client.create_table(name, "id long, note string", properties=properties)
    client.append(name, [{"id": each, "note": f"{each:040}"} for each in range(5_000)])
    plan = client.load_table(name).plan(stats_fields=["id", "note"])
    assert len(plan.files) > 1
    for file in plan.files:
        assert file.file_path.startswith(f"{table.location}/data/")
        assert file.lower_bounds is not None
        assert list(file.lower_bounds.keys) == [1]
    import pyarrow.parquet as pq

    footer = pq.read_metadata(plan.files[0].file_path.removeprefix("file://"))
    assert footer.row_group(0).column(0).compression == "SNAPPY"


# --- transactions ---------------------------------------------------------------------------------


def test_a_transaction_appends_to_several_tables(client: Client, namespace: str) -> None:
    names = [f"{namespace}.a", f"{namespace}.b"]
    tables = [client.create_table(name, "id long") for name in names]
    with client.transaction() as tx:
        for name in names:
            tx.append(name, [{"id": 1}])
            tx.append(name, [{"id": 2}])
        tx.append(names[0], [])
        tx.set_properties(names[0], {"owner": "docs"})
    assert [len(commit.snapshots) for commit in tx.commits] == [2, 2]
    for table in tables:
        assert ids(client, table) == [1, 2]
        assert strays(client, table) == set()


def test_rows_of_a_dropped_transaction_are_removed(client: Client, table: Table) -> None:
    with pytest.raises(ZeroDivisionError), client.transaction() as tx:
        tx.append(table.identifier, ROWS)
        assert len(strays(client, table)) == 2
        raise ZeroDivisionError
    assert strays(client, table) == set()


def test_rows_of_a_refused_transaction_are_removed(client: Client, table: Table) -> None:
    client.append(table.identifier, ROWS)
    with pytest.raises(ValidationError), client.transaction() as tx:
        tx.append(table.identifier, [{"id": 7}])
        tx.delete_files(table.identifier, [f"{table.location}/data/missing.parquet"])
    assert strays(client, table) == set()
    assert ids(client, table) == [1, 2, 3]


def test_rows_of_a_transaction_with_an_unknown_outcome_stay(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> Any:
        raise CommitStateUnknown("the answer was lost")

    tx = client.transaction()
    tx.append(table.identifier, ROWS)
    monkeypatch.setattr(tx, "_commit", lost)
    with pytest.raises(CommitStateUnknown):
        tx.commit()
    assert len(strays(client, table)) == 2


# --- other writers --------------------------------------------------------------------------------


def once_before_the_commit(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, other: Callable[[], Any]
) -> None:
    """Let another writer commit after the first call of a function."""
    call = getattr(module, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(module, name, call)
        result = call(*args, **kwargs)
        other()
        return result

    monkeypatch.setattr(module, name, called)


@pytest.mark.parametrize("mode", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_delete_that_lost_a_race_is_applied_again(
    client: Client, new_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    table = new_table(3, mode)
    table.append(ROWS)
    once_before_the_commit(
        monkeypatch,
        row_statements,
        "matching_rows",
        lambda: client.append(table.identifier, [{"id": 2, "day": MAY_1, "item": "late"}]),
    )
    table.delete("id = 2")
    assert ids(client, table) == [1, 3]
    assert strays(client, table) == set()


def test_an_upsert_that_lost_a_race_is_applied_again(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_before_the_commit(
        monkeypatch,
        row_upserts,
        "planned_tasks",
        lambda: client.append(table.identifier, [{"id": 5, "day": MAY_1, "item": "theirs"}]),
    )
    table.upsert([{"id": 5, "day": MAY_1, "item": "ours"}])
    assert read(client, table) == [(5, MAY_1, "ours")]
    assert strays(client, table) == set()


def test_an_overwrite_through_a_table_is_checked_against_what_it_was_loaded_with(
    client: Client, table: Table
) -> None:
    client.append(table.identifier, ROWS)
    loaded = client.load_table(table.identifier)
    client.append(table.identifier, [{"id": 4, "day": MAY_1, "item": "late"}])
    with pytest.raises(ValidationError, match="Added by snapshot"):
        loaded.overwrite([{"id": 7, "day": MAY_1}], "day = DATE '2026-05-01'")
    with pytest.raises(ValidationError, match="Added by snapshot"):
        loaded.overwrite([{"id": 7, "day": MAY_1}], "id <> 2")
    with pytest.raises(ValidationError):
        loaded.overwrite_partitions([{"id": 7, "day": MAY_1}])
    assert strays(client, table) == set()
    assert ids(client, table) == [1, 2, 3, 4]
    loaded.overwrite([{"id": 7, "day": MAY_1}], "id <> 2", isolation="snapshot")
    assert ids(client, table) == [2, 4, 7]
    client.overwrite(table.identifier, [{"id": 8, "day": MAY_1}], "day = DATE '2026-05-01'")
    assert ids(client, table) == [8]


def test_an_overwrite_through_the_client_is_applied_again(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.append(table.identifier, ROWS)
    once_before_the_commit(
        monkeypatch,
        row_statements,
        "matching_rows",
        lambda: client.append(table.identifier, [{"id": 2, "day": MAY_1, "item": "late"}]),
    )
    client.overwrite(table.identifier, [{"id": 7}], "id = 2")
    assert ids(client, table) == [1, 3, 7]
    assert strays(client, table) == set()


def test_the_retries_of_the_table_limit_how_often(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(ROWS)
    client.set_properties(table.identifier, {"commit.retry.num-retries": "0"})
    once_before_the_commit(
        monkeypatch,
        row_statements,
        "matching_rows",
        lambda: client.append(table.identifier, [{"id": 2, "day": MAY_1, "item": "late"}]),
    )
    with pytest.raises(ValidationError):
        table.delete("id = 2")
    assert strays(client, table) == set()


def test_files_stay_if_the_outcome_is_unknown(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> Any:
        raise CommitStateUnknown("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "append_files", lost)
        with pytest.raises(CommitStateUnknown):
            table.append(ROWS)
    assert len(strays(client, table)) == 2
