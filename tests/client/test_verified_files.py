"""Client and server agree on which Parquet files a table can read, for every Arrow type.

The client reads a file's columns when it declares the file. The server reads them if the table
has `frazil.commit.verify-files=footer`. The files and the server are real.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil import Client, DataFile, Table
from frazil.wire.errors import BadRequest
from tests.datafiles.footers.parquet_world import arrow, column, struct, write
from tests.support.server import RunningServer

ROWS = 2

ICEBERG_TYPES = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal(5, 2)",
    "decimal(18, 2)",
    "decimal(38, 2)",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "timestamp_ns",
    "timestamptz_ns",
    "string",
    "uuid",
    "fixed[8]",
    "fixed[16]",
    "binary",
    "geometry",
    "unknown",
    "variant",
)

UNITS = ("s", "ms", "us", "ns")
LEAF_TYPES: Mapping[str, pa.DataType] = {
    str(one): one
    for one in (
        pa.null(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.decimal32(5, 2),
        pa.decimal64(12, 2),
        pa.decimal128(5, 2),
        pa.decimal128(18, 2),
        pa.decimal128(38, 2),
        pa.decimal128(5, 3),
        pa.decimal256(38, 2),
        pa.decimal256(40, 2),
        pa.date32(),
        pa.date64(),
        pa.time32("s"),
        pa.time32("ms"),
        pa.time64("us"),
        pa.time64("ns"),
        *(pa.timestamp(unit) for unit in UNITS),
        *(pa.timestamp(unit, "UTC") for unit in UNITS),
        pa.timestamp("us", "America/New_York"),
        *(pa.duration(unit) for unit in UNITS),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(8),
        pa.binary(16),
        pa.uuid(),
        pa.json_(),
        pa.bool8(),
        pa.opaque(pa.int64(), "money", "test"),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.int64()),
        pa.dictionary(pa.int32(), pa.binary(16)),
    )
}
NOT_WRITTEN = (
    pa.array([None], pa.month_day_nano_interval()),
    pa.array([1], pa.run_end_encoded(pa.int32(), pa.int64())),
    pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
)
"""Arrays of types that pyarrow cannot write to Parquet."""

NESTED_SCHEMAS: Mapping[str, Any] = {
    "list": {
        "type": "list",
        "element-id": 2,
        "element": "long",
        "element-required": False,
    },
    "map": {
        "type": "map",
        "key-id": 2,
        "key": "string",
        "value-id": 3,
        "value": "long",
        "value-required": False,
    },
    "struct": struct(column(2, "a", "long"), column(3, "b", "string")),
}
ELEMENT = arrow("element", pa.int64(), 2)
KEY = arrow("key", pa.string(), 2, nullable=False)
NESTED_TYPES: Mapping[str, pa.DataType] = {
    "list": pa.list_(ELEMENT),
    "large list": pa.large_list(ELEMENT),
    "fixed-size list": pa.list_(ELEMENT, 2),
    "list view": pa.list_view(ELEMENT),
    "large list view": pa.large_list_view(ELEMENT),
    "list of durations": pa.list_(arrow("element", pa.duration("us"), 2)),
    "list of texts": pa.list_(arrow("element", pa.string_view(), 2)),
    "list without ids": pa.list_(pa.field("element", pa.int64())),
    "map": pa.map_(KEY, arrow("value", pa.int64(), 3)),
    "map of texts": pa.map_(KEY, arrow("value", pa.string(), 3)),
    "map of views": pa.map_(
        arrow("key", pa.string_view(), 2, nullable=False), arrow("value", pa.duration("ns"), 3)
    ),
    "struct": pa.struct([arrow("a", pa.int64(), 2), arrow("b", pa.string_view(), 3)]),
    "struct without a field": pa.struct([arrow("b", pa.string(), 3)]),
    "struct of a wrong type": pa.struct([arrow("a", pa.uint64(), 2)]),
    "struct with an unknown field": pa.struct(
        [arrow("a", pa.int64(), 2), pa.field("c", pa.int32())]
    ),
    "variant": pa.struct(
        [
            pa.field("metadata", pa.binary(), nullable=False),
            pa.field("value", pa.binary(), nullable=False),
        ]
    ),
}


@pytest.fixture(scope="module")
def tables(catalog: RunningServer) -> Iterator[tuple[Client, Mapping[str, Table]]]:
    """Create a table with one column `x` for each type; the server verifies its files."""
    with Client(catalog.url) as client:
        client.create_namespace("verified")
        properties = {"format-version": "3", "frazil.commit.verify-files": "footer"}
        types = {one: one for one in ICEBERG_TYPES} | dict(NESTED_SCHEMAS)
        yield (
            client,
            {
                name: client.create_table(
                    f"verified.t{number}", struct(column(1, "x", type_)), properties=properties
                )
                for number, (name, type_) in enumerate(types.items())
            },
        )


def readable(client: Client, tables: Mapping[str, Table], path: str) -> set[str]:
    """Return the column types that can read the file, after checking that both sides agree."""
    accepted = set()
    for name, table in tables.items():
        refusal = client_refusal(path, table)
        message = server_refusal(client, path, table)
        if refusal is None:
            assert message is None, f"{name}: the client declares what the server refuses"
            accepted.add(name)
        else:
            assert message is not None, f"{name}: the server accepts what the client refuses"
            assert refusal in message
    return accepted


def client_refusal(path: str, table: Table) -> str | None:
    """Return the reason for the client's refusal without the path."""
    try:
        DataFile.from_parquet(path, table)
    except BadRequest as error:
        return error.message.removeprefix(f"file://{path}: ")
    return None


def server_refusal(client: Client, path: str, table: Table) -> str | None:
    """Return the server's error for a declaration with only the path, the size and the row
    count."""
    file = DataFile(
        spec_id=0,
        partition=(),
        file_path=f"file://{path}",
        file_format="parquet",
        file_size_in_bytes=Path(path).stat().st_size,
        record_count=ROWS,
    )
    try:
        client.append_files(table, [file])
    except BadRequest as error:
        return error.message
    return None


def table_folder(tables: Mapping[str, Table], tmp_path: Path) -> Path:
    """Return a folder for the test's files; any folder below the warehouse is allowed."""
    warehouse = Path(tables["long"].location.removeprefix("file://")).parent
    folder = warehouse / "files" / tmp_path.name
    folder.mkdir(parents=True)
    return folder


EXPECTED: Mapping[str, set[str]] = {
    "duration[us]": {"long"},
    "string_view": {"string"},
    "binary_view": {"string", "binary", "geometry"},
    "extension<arrow.uuid>": {"uuid"},
    "fixed_size_binary[16]": {"uuid", "fixed[16]"},
    "uint32": set(),
    "int32": {"int", "long"},
    "halffloat": set(),
    "date32[day]": {"date", "timestamp", "timestamp_ns"},
    "timestamp[us, tz=America/New_York]": {"timestamptz"},
    "list view": {"list"},
    "large list view": {"list"},
    "map of views": {"map"},
    "struct without a field": {"struct"},
}
"""Table types that can read certain file types. Every column can also be read as type unknown."""


@pytest.mark.parametrize("name", [*LEAF_TYPES, *NESTED_TYPES])
def test_both_sides_agree_on_every_arrow_type(
    tables: tuple[Client, Mapping[str, Table]], tmp_path: Path, name: str
) -> None:
    client, compared = tables
    folder = table_folder(compared, tmp_path)
    if name in NESTED_TYPES:
        # Only the server refuses ids that the table has not assigned, such as those of nested
        # fields.
        compared = {name: table for name, table in compared.items() if name != "unknown"}
    fields = [arrow("x", {**LEAF_TYPES, **NESTED_TYPES}[name], 1)]
    accepted = readable(client, compared, write(folder, fields, [None] * ROWS))
    if name in EXPECTED:
        assert accepted - {"unknown"} == EXPECTED[name]
        # The Arrow schema that pyarrow stores in the file makes no difference.
        path = write(folder, fields, [None] * ROWS, store_schema=False)
        assert readable(client, compared, path) == accepted


def test_both_sides_agree_on_timestamps_of_96_bits(
    tables: tuple[Client, Mapping[str, Table]], tmp_path: Path
) -> None:
    for zone in (None, "UTC"):
        fields = [arrow("x", pa.timestamp("ns", zone), 1)]
        path = write(
            table_folder(tables[1], tmp_path / str(zone)),
            fields,
            [0] * ROWS,
            use_deprecated_int96_timestamps=True,
        )
        assert readable(*tables, path) == {"timestamp", "timestamptz", "unknown"}


@pytest.mark.parametrize("array", NOT_WRITTEN, ids=lambda array: str(array.type))
def test_no_writable_type_is_left_out(array: pa.Array) -> None:
    """If pyarrow learns to write one of these types, add it to the tests above."""
    with pytest.raises(pa.ArrowNotImplementedError):
        pq.write_table(pa.table({"x": array}), pa.BufferOutputStream())
