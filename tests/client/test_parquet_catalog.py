"""pyarrow writes files, the client declares them from their footers, and PyIceberg reads them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs as pafs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes

from frazil import Client, DataFile, Table
from frazil.datafiles.footers.files_from_parquet import EqualityDeleteFile, PositionDeleteFile
from frazil.datafiles.footers.parquet_files import (
    FileDoesNotFit,
    FileNotReadable,
    PartitionNotProven,
)
from frazil.wire.errors import BadRequest
from tests.client.conftest import NewTable
from tests.datafiles.footers.parquet_world import (
    arrow,
    bounds,
    column,
    counts,
    hex_bounds,
    struct,
    write,
)
from tests.support.s3 import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server
from tests.support.server import RunningServer, ServerFactory


@pytest.fixture
def stock(catalog: RunningServer) -> Catalog:
    """Return PyIceberg's own REST catalog."""
    return load_catalog("frazil", type="rest", uri=catalog.url)


def data_folder(table: Table) -> Path:
    folder = Path(table.location.removeprefix("file://")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# --- bounds arrive as they were sent --------------------------------------------------------------

INSTANT = datetime(2026, 5, 1, 12, 30, 15, 123456)
UUIDS = [UUID(int=1), UUID(int=2**128 - 1)]
VALUES: Mapping[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [-math.inf, 0.10000000149011612]),
    "double": (pa.float64(), [0.0, math.inf]),
    "decimal(9, 2)": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01")]),
    "decimal(38, 10)": (pa.decimal128(38, 10), [Decimal("-1.5000000000"), Decimal("9" * 28)]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "time": (pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    "timestamp": (pa.timestamp("us"), [datetime(1, 1, 1), INSTANT]),
    "timestamptz": (pa.timestamp("us", "UTC"), [INSTANT.replace(tzinfo=UTC)] * 2),
    "timestamp_ns": (pa.timestamp("ns"), [-1, 2**62 + 1]),
    "timestamptz_ns": (pa.timestamp("ns", "UTC"), [-(2**62) - 1, 1]),
    "string": (pa.string(), ["", "ein langer Text über 16 Zeichen 😀"]),
    "uuid": (pa.uuid(), [one.bytes for one in UUIDS]),
    "fixed[20]": (pa.binary(20), [b"\x00" * 20, b"\xff" * 20]),
    "binary": (pa.binary(), [b"", b"\xff" * 30]),
}


def test_bounds_of_all_types_come_through_the_catalog(
    new_table: NewTable, client: Client, stock: Catalog
) -> None:
    columns = [column(at, f"c{at}", type_) for at, type_ in enumerate(VALUES, 1)]
    table = new_table(struct(*columns), properties={"format-version": "3"})
    fields = [arrow(f"c{at}", kind, at) for at, (kind, _) in enumerate(VALUES.values(), 1)]
    path = write(data_folder(table), fields, *[_array(*one) for one in VALUES.values()])
    file = DataFile.from_parquet(path, table)
    client.append_files(table, [file])
    (task,) = stock.load_table(str(table.identifier)).scan().plan_files()
    assert task.file.file_path == f"file://{path}"
    assert task.file.lower_bounds == hex_bounds(file.lower_bounds)
    assert task.file.upper_bounds == hex_bounds(file.upper_bounds)
    assert task.file.value_counts == counts(file.value_counts)
    assert task.file.null_value_counts == counts(file.null_value_counts)
    assert task.file.nan_value_counts == counts(file.nan_value_counts) == {4: 0, 5: 0}
    assert task.file.column_sizes == counts(file.column_sizes)
    assert task.file.split_offsets == list(file.split_offsets or ())
    # The binary column has no upper bound because bytes of all 0xff cannot be incremented.
    assert set(task.file.lower_bounds) - set(task.file.upper_bounds) == {len(VALUES)}
    schema = stock.load_table(str(table.identifier)).schema()
    for at, type_ in enumerate(VALUES, 1):
        ours = bounds(file, at, type_)
        if at in task.file.upper_bounds and "uuid" not in type_:
            their_type: Any = schema.find_type(at)
            theirs = (
                from_bytes(their_type, task.file.lower_bounds[at]),
                from_bytes(their_type, task.file.upper_bounds[at]),
            )
            assert theirs == ours
    assert math.copysign(1, bounds(file, 5, "double")[0]) == -1
    assert bounds(file, list(VALUES).index("uuid") + 1, "uuid") == tuple(UUIDS)


def _array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
    if pa.types.is_timestamp(kind) and isinstance(values[0], int):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


# --- nothing is pruned wrongly --------------------------------------------------------------------

EVENTS = struct(
    column(1, "id", "long", required=True),
    column(2, "at", "timestamp"),
    column(3, "name", "string"),
    column(4, "score", "double"),
    column(5, "place", struct(column(7, "x", "int"))),
    column(6, "day", "date"),
)
EVENT_FIELDS = [
    arrow("id", pa.int64(), 1, nullable=False),
    arrow("at", pa.timestamp("us"), 2),
    arrow("name", pa.string(), 3),
    arrow("score", pa.float64(), 4),
    arrow("place", pa.struct([arrow("x", pa.int32(), 7)]), 5),
    arrow("day", pa.date32(), 6),
]
BY_DAY_AND_BUCKET = {
    "spec-id": 0,
    "fields": [
        {"source-id": 2, "field-id": 1000, "name": "at_day", "transform": "day"},
        {"source-id": 3, "field-id": 1001, "name": "name_start", "transform": "truncate[1]"},
    ],
}
Row = dict[str, Any]
ROWS = 6


def events(draw: random.Random, day: int, letter: str, first_id: int) -> list[Row]:
    rows = []
    for number in range(ROWS):
        at = datetime(2026, 5, 1) + timedelta(days=day, microseconds=draw.randrange(86_400 * 10**6))
        rows.append(
            {
                "id": first_id + number,
                "at": at,
                "name": letter + draw.choice(["", "x" * 20, "x" * 20 + "y", "\U0010ffff" * 20]),
                "score": draw.choice([None, math.nan, 0.0, -0.0, draw.uniform(-1, 1), math.inf]),
                "place": draw.choice([None, {"x": None}, {"x": draw.randrange(5)}]),
                "day": draw.choice([None, at.date()]),
            }
        )
    return rows


def _x(row: Row) -> Any:
    return None if row["place"] is None else row["place"]["x"]


def holds(check: Callable[[Any], bool], of: Callable[[Row], Any]) -> Callable[[Row], bool]:
    """Return a row filter that is never true for null, as in SQL."""
    return lambda row: of(row) is not None and check(of(row))


def name(row: Row) -> Any:
    return row["name"]


def score(row: Row) -> Any:
    return row["score"]


def _day(row: Row) -> Any:
    return row["day"]


MIDDAY = "2026-05-02T12:00:00"
LONG = "x" * 20
FILTERS: list[tuple[str, Callable[[Row], bool]]] = [
    ("id = 7", lambda row: row["id"] == 7),
    ("id in (3, 17, 30)", lambda row: row["id"] in (3, 17, 30)),
    (f"at > '{MIDDAY}'", lambda row: row["at"] > datetime(2026, 5, 2, 12)),
    (f"at <= '{MIDDAY}'", lambda row: row["at"] <= datetime(2026, 5, 2, 12)),
    (f"name = 'a{LONG}'", lambda row: row["name"] == f"a{LONG}"),
    (f"name > 'a{LONG}'", holds(lambda one: one > f"a{LONG}", name)),
    (f"name > 'b{LONG}'", holds(lambda one: one > f"b{LONG}", name)),
    ("name like 'bxxx%'", holds(lambda one: one.startswith("bxxx"), name)),
    ("name not in ('a', 'b')", lambda row: row["name"] not in ("a", "b")),
    ("score is null", lambda row: row["score"] is None),
    ("score is not null", lambda row: row["score"] is not None),
    ("score is nan", holds(math.isnan, score)),
    ("score is not nan", lambda row: row["score"] is None or not math.isnan(row["score"])),
    ("score = 0.0", holds(lambda one: one == 0, score)),
    ("place.x = 4", holds(lambda one: one == 4, _x)),
    ("place.x >= 2 and place.x < 4", holds(lambda one: 2 <= one < 4, _x)),
    ("day is null", lambda row: row["day"] is None),
    ("day = '2026-05-02'", lambda row: row["day"] == date(2026, 5, 2)),
    ("day <> '2026-05-02'", holds(lambda one: one != date(2026, 5, 2), _day)),
]


def test_pyiceberg_finds_every_row_by_filters(
    new_table: NewTable, client: Client, stock: Catalog
) -> None:
    table = new_table(EVENTS, spec=BY_DAY_AND_BUCKET)
    draw, rows, paths = random.Random(5), list[Row](), list[str]()
    for day in range(3):
        for letter in "ab":
            own = events(draw, day, letter, len(rows))
            data = pa.Table.from_pylist(own, schema=pa.schema(EVENT_FIELDS))
            path = str(data_folder(table) / f"{day}{letter}.parquet")
            pq.write_table(data, path, row_group_size=2)
            paths.append(path)
            rows += own
    client.append_files(table, paths)
    loaded = stock.load_table(str(table.identifier))
    partitions = {
        (task.file.partition[0], task.file.partition[1]) for task in loaded.scan().plan_files()
    }
    first = (date(2026, 5, 1) - date(1970, 1, 1)).days
    assert partitions == {(first + day, letter) for day in range(3) for letter in "ab"}
    files = {row["id"]: f"file://{paths[row['id'] // ROWS]}" for row in rows}
    for text, matches in FILTERS:
        wanted = {row["id"] for row in rows if matches(row)}
        assert wanted, text
        scan = loaded.scan(row_filter=text)
        planned = {task.file.file_path for task in scan.plan_files()}
        assert {files[number] for number in wanted} <= planned, text
        if " nan" not in text:
            # Arrow itself skips row groups that have NaN and only one other value.
            assert set(scan.to_arrow()["id"].to_pylist()) >= wanted, text
    assert len(list(loaded.scan(row_filter="id = 7").plan_files())) == 1
    assert len(list(loaded.scan(row_filter="name like 'b%'").plan_files())) == 3


def test_a_file_of_two_partitions_is_refused_before_anything_is_sent(
    new_table: NewTable, client: Client
) -> None:
    table = new_table(EVENTS, spec=BY_DAY_AND_BUCKET)
    rows = events(random.Random(1), 0, "a", 0) + events(random.Random(1), 1, "a", 6)
    path = str(data_folder(table) / "both.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(EVENT_FIELDS)), path)
    with pytest.raises(FileDoesNotFit, match="partition field at_day"):
        client.append_files(table, [path])
    assert client.load_table(table.identifier).snapshots == ()


def test_a_file_without_ids_is_read_through_the_name_mapping(
    new_table: NewTable, client: Client, stock: Catalog
) -> None:
    table = new_table(EVENTS)
    fields = [pa.field("id", pa.int64(), False), pa.field("place", pa.struct([("x", pa.int32())]))]
    path = write(data_folder(table), fields, [1, 2], [{"x": 5}, None])
    with pytest.raises(FileDoesNotFit) as caught:
        client.append_files(table, [path])
    mapping = caught.value.reason.rpartition(" to ")[2]
    mapped = new_table(EVENTS, properties={"schema.name-mapping.default": mapping})
    path = write(data_folder(mapped), fields, [1, 2], [{"x": 5}, None])
    client.append_files(mapped, [path])
    found = stock.load_table(str(mapped.identifier)).scan(row_filter="place.x = 5")
    assert found.to_arrow()["id"].to_pylist() == [1]


def test_a_column_that_the_schema_does_not_have_hurts_nobody(
    new_table: NewTable, client: Client, stock: Catalog
) -> None:
    table = new_table(EVENTS)
    fields = [EVENT_FIELDS[0], arrow("more", pa.string(), 99)]
    client.append_files(table, [write(data_folder(table), fields, [1, 2], ["a", "b"])])
    scan = stock.load_table(str(table.identifier)).scan(row_filter="id > 1")
    assert scan.to_arrow()["id"].to_pylist() == [2]


# --- delete files ---------------------------------------------------------------------------------

POSITIONS = [
    arrow("file_path", pa.string(), 2147483546, nullable=False),
    arrow("pos", pa.int64(), 2147483545, nullable=False),
]


def test_position_deletes(new_table: NewTable, client: Client, stock: Catalog) -> None:
    table = new_table(EVENTS)
    data = DataFile.from_parquet(write(data_folder(table), EVENT_FIELDS[:1], list(range(5))), table)
    client.append_files(table, [data])
    path = write(data_folder(table), POSITIONS, [data.file_path] * 2, [1, 3])
    deletes = PositionDeleteFile.from_parquet(path, table)
    assert deletes.referenced_data_file == data.file_path
    assert bounds(deletes, 2147483546, "string") == (data.file_path, data.file_path)
    assert bounds(deletes, 2147483545, "long") == (1, 3)
    client.row_delta(client.load_table(table.identifier), add_deletes=[deletes])
    found = stock.load_table(str(table.identifier)).scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == [0, 2, 4]


def test_position_deletes_of_several_files_refer_to_none(new_table: NewTable) -> None:
    table = new_table(EVENTS)
    path = write(data_folder(table), POSITIONS, ["file:///a", "file:///b"], [1, 3])
    assert PositionDeleteFile.from_parquet(path, table).referenced_data_file is None


def test_deletes_of_a_partition_must_be_given_it(new_table: NewTable) -> None:
    table = new_table(EVENTS, spec=BY_DAY_AND_BUCKET)
    path = write(data_folder(table), POSITIONS, ["file:///a"], [1])
    with pytest.raises(PartitionNotProven, match="at_day"):
        PositionDeleteFile.from_parquet(path, table)
    deletes = PositionDeleteFile.from_parquet(path, table, partition=[date(2026, 5, 1), "a"])
    assert deletes.partition == ("2026-05-01", "a")


def test_other_columns_are_no_position_deletes(new_table: NewTable) -> None:
    table = new_table(EVENTS)
    path = write(data_folder(table), EVENT_FIELDS[:1], [1])
    with pytest.raises(FileDoesNotFit, match="column file_path: is required"):
        PositionDeleteFile.from_parquet(path, table)


def test_equality_deletes(new_table: NewTable, client: Client) -> None:
    table = new_table(EVENTS, spec=BY_DAY_AND_BUCKET)
    fields = [EVENT_FIELDS[1], EVENT_FIELDS[2]]
    instant = datetime(2026, 5, 1, 8)
    path = write(data_folder(table), fields, [instant, instant], ["ab", "ac"])
    deletes = EqualityDeleteFile.from_parquet(path, table, columns=["at", "name"])
    assert deletes.equality_ids == (2, 3)
    assert deletes.partition == ("2026-05-01", "a")
    assert bounds(deletes, 3, "string") == ("ab", "ac")
    commit = client.row_delta(table, add_deletes=[deletes])
    assert commit.operation in ("delete", "overwrite")
    same = EqualityDeleteFile.from_parquet(path, table, equality_ids=[3, 2])
    assert same.equality_ids == (3, 2)
    with pytest.raises(FileDoesNotFit, match="column id: rows are deleted by it, but"):
        EqualityDeleteFile.from_parquet(path, table, columns=["id"])
    with pytest.raises(BadRequest, match="place is not a primitive column"):
        EqualityDeleteFile.from_parquet(path, table, columns=["place"])
    with pytest.raises(BadRequest, match="give one of them"):
        EqualityDeleteFile.from_parquet(path, table)
    only_names = write(data_folder(table), [EVENT_FIELDS[2]], ["ab"])
    with pytest.raises(PartitionNotProven, match="at_day: a delete file does not tell"):
        EqualityDeleteFile.from_parquet(only_names, table, columns=["name"])


# --- S3 -------------------------------------------------------------------------------------------


@pytest.fixture
def on_s3(
    server: ServerFactory, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> RunningServer:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return server("--warehouse", f"{s3_bucket}/warehouse", env=s3_server.environ())


def test_files_on_s3(on_s3: RunningServer, s3_server: S3Server) -> None:
    """The keys are the client's own; endpoint, region and path style come from the catalog."""
    keys = {"s3.access-key-id": ACCESS_KEY_ID, "s3.secret-access-key": SECRET_ACCESS_KEY}
    with Client(on_s3.url, properties=keys) as client:
        client.create_namespace("db")
        table = client.create_table("db.t", EVENTS)
        store = _store(s3_server)
        path = f"{table.location}/data/a.parquet"
        data = pa.Table.from_pylist([{"id": 4}, {"id": 5}], schema=pa.schema(EVENT_FIELDS[:1]))
        pq.write_table(data, path.removeprefix("s3://"), filesystem=store)
        file = DataFile.from_parquet(path, table)
        assert (file.file_path, file.record_count) == (path, 2)
        assert bounds(file, 1, "long") == (4, 5)
        hadoop = path.replace("s3://", "s3a://")
        assert DataFile.from_parquet(hadoop, table).file_path == hadoop
        # A filesystem from the caller takes precedence over all settings.
        elsewhere = replace(table, config={"s3.endpoint": "http://127.0.0.1:9"})
        bare = path.removeprefix("s3://")
        assert DataFile.from_parquet(bare, elsewhere, filesystem=store) == file
        client.append_files(table, [path])
        with pytest.raises(FileNotReadable, match="no such file"):
            DataFile.from_parquet(f"{path}.gone", table)
    stock = load_catalog("frazil", type="rest", uri=on_s3.url, **keys)
    assert stock.load_table("db.t").scan(row_filter="id > 4").to_arrow()["id"].to_pylist() == [5]


def test_the_environment_may_say_where_s3_is(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pa.Table.from_pylist([{"id": 4}], schema=pa.schema(EVENT_FIELDS[:1]))
    pq.write_table(data, f"{s3_bucket[5:]}/a.parquet", filesystem=_store(s3_server))
    for key, value in (
        ("AWS_ENDPOINT_URL_S3", s3_server.endpoint),
        ("AWS_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY),
    ):
        monkeypatch.setenv(key, value)
    file = DataFile.from_parquet(f"{s3_bucket}/a.parquet")
    assert bounds(file, 1, "long") == (4, 4)


def _store(s3_server: S3Server) -> pafs.S3FileSystem:
    return pafs.S3FileSystem(
        access_key=ACCESS_KEY_ID,
        secret_key=SECRET_ACCESS_KEY,
        endpoint_override=s3_server.endpoint,
        region=REGION,
    )
