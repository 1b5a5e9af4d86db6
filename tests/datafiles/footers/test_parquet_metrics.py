"""The counts and bounds of a file match its values."""

from __future__ import annotations

import math
import struct as packing
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema

from frazil import DataFile
from frazil.values.type_json import parse_type
from frazil.wire import declared_content as wire
from tests.datafiles.footers.parquet_world import (
    arrow,
    bounds,
    column,
    counts,
    hex_bounds,
    struct,
    table_of,
    write,
)

# --- every type: the values are the oracle ------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A column type, its representation in the file, and a strategy for its values."""

    type: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    """Values in Iceberg's internal representation."""
    to_arrow: Callable[[Any], Any] = lambda value: value
    raw: pa.DataType | None = None
    """The Arrow type of the input values, if it differs from the file's."""
    version: int = 2


def whole(bits: int, step: int = 1) -> st.SearchStrategy[int]:
    limit = (1 << (bits - 1)) // step - 1
    return st.integers(-limit, limit).map(lambda number: number * step)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda digits: Decimal(f"{digits}E-{scale}"))


def per(step: int) -> Callable[[int], int]:
    return lambda number: number // step


FLOATS = st.floats(width=32)
TEXTS = st.text(max_size=24) | st.text(alphabet="a\ud7ff\U0010ffff", min_size=14, max_size=20)
BYTES = st.binary(max_size=24) | st.lists(st.sampled_from([0, 254, 255]), max_size=24).map(bytes)
DAY = 86_400
CASES = {
    "boolean": Case("boolean", pa.bool_(), st.booleans()),
    "int": Case("int", pa.int32(), whole(32)),
    "int of 8 bits": Case("int", pa.int8(), whole(8)),
    "unsigned int of 16 bits": Case("int", pa.uint16(), st.integers(0, 65535)),
    "long": Case("long", pa.int64(), whole(64)),
    "long promoted from int": Case("long", pa.int32(), whole(32)),
    "float": Case("float", pa.float32(), FLOATS),
    "double": Case("double", pa.float64(), st.floats()),
    "double promoted from float": Case("double", pa.float32(), FLOATS),
    "double of a dictionary": Case("double", pa.dictionary(pa.int32(), pa.float64()), st.floats()),
    "decimal of few digits": Case("decimal(9, 2)", pa.decimal128(9, 2), decimals(9, 2)),
    "decimal of many digits": Case("decimal(38, 10)", pa.decimal128(38, 10), decimals(38, 10)),
    "decimal widened": Case("decimal(20, 3)", pa.decimal128(5, 3), decimals(5, 3)),
    "date": Case("date", pa.date32(), whole(32), raw=pa.int32()),
    "time": Case("time", pa.time64("us"), st.integers(0, DAY * 10**6 - 1), raw=pa.int64()),
    "time in milliseconds": Case(
        "time",
        pa.time32("ms"),
        st.integers(0, DAY * 10**3 - 1).map(lambda ms: ms * 1000),
        per(1000),
        pa.int32(),
    ),
    "timestamp": Case("timestamp", pa.timestamp("us"), whole(64), raw=pa.int64()),
    "timestamp in milliseconds": Case(
        "timestamp", pa.timestamp("ms"), whole(64, 1000), per(1000), pa.int64()
    ),
    "timestamptz": Case("timestamptz", pa.timestamp("us", "UTC"), whole(64), raw=pa.int64()),
    "timestamptz of another zone": Case(
        "timestamptz", pa.timestamp("us", "Europe/Berlin"), whole(64), raw=pa.int64()
    ),
    "timestamp_ns": Case("timestamp_ns", pa.timestamp("ns"), whole(64), raw=pa.int64(), version=3),
    "timestamptz_ns": Case(
        "timestamptz_ns", pa.timestamp("ns", "UTC"), whole(64), raw=pa.int64(), version=3
    ),
    "timestamp promoted from date": Case(
        "timestamp",
        pa.date32(),
        st.integers(-(10**6), 10**6).map(lambda days: days * DAY * 10**6),
        per(DAY * 10**6),
        pa.int32(),
        version=3,
    ),
    "string": Case("string", pa.string(), TEXTS),
    "string of a dictionary": Case("string", pa.dictionary(pa.int32(), pa.string()), TEXTS),
    "large string": Case("string", pa.large_string(), TEXTS),
    "string without annotation": Case("string", pa.binary(), TEXTS, str.encode),
    "uuid": Case("uuid", pa.uuid(), st.uuids(), lambda value: value.bytes),
    "uuid without annotation": Case("uuid", pa.binary(16), st.uuids(), lambda value: value.bytes),
    "fixed": Case("fixed[20]", pa.binary(20), st.binary(min_size=20, max_size=20)),
    "binary": Case("binary", pa.binary(), BYTES),
}
MODES = ["none", "counts", "truncate(3)", "truncate(16)", "full"]


def array_of(case: Case, values: list[Any]) -> pa.Array:
    given = [None if value is None else case.to_arrow(value) for value in values]
    if case.raw is not None:
        return pa.array(given, case.raw).cast(case.arrow)
    if case.arrow == pa.uuid():
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(given, pa.binary(16)))
    return pa.array(given, case.arrow)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def order(value: Any) -> Any:
    """Return a sort key in Iceberg's order, in which -0.0 comes before 0.0."""
    return (value, math.copysign(1, value)) if isinstance(value, float) else value


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_every_value_lies_within_the_bounds_and_is_counted(case: Case, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | case.values, max_size=12))
    mode = data.draw(st.sampled_from(MODES))
    rows = data.draw(st.integers(1, 5))
    table = table_of(
        column(3, "x", case.type),
        properties={"write.metadata.metrics.default": mode},
        format_version=case.version,
    )
    with tempfile.TemporaryDirectory() as folder:
        fields = [arrow("x", case.arrow, 3)]
        path = write(Path(folder), fields, array_of(case, values), row_group_size=rows)
        file = DataFile.from_parquet(path, table)
    assert file.record_count == len(values)
    nulls, nans = values.count(None), sum(map(is_nan, values))
    has_counts = mode != "none"
    assert counts(file.value_counts) == ({3: len(values)} if has_counts else {})
    assert counts(file.null_value_counts) == ({3: nulls} if has_counts else {})
    is_floating = case.type in ("float", "double")
    assert counts(file.nan_value_counts) == ({3: nans} if has_counts and is_floating else {})
    ordered = [order(value) for value in values if value is not None and not is_nan(value)]
    lower, upper = bounds(file, 3, case.type)
    if not ordered or mode in ("none", "counts"):
        assert (lower, upper) == (None, None)
        return
    assert order(lower) <= min(ordered)
    assert upper is None or order(upper) >= max(ordered)
    if mode == "full" or case.type not in ("string", "binary"):
        least, greatest = min(ordered), max(ordered)
        if is_floating:
            assert (lower, upper) == (least[0], greatest[0])
        else:
            assert (lower, upper) == (least, greatest)


def test_there_are_cases_of_every_primitive_type() -> None:
    tested = {parse_type(case.type).type_id.value for case in CASES.values()}
    primitive = (
        "boolean int long float double decimal date time timestamp timestamptz timestamp_ns "
        "timestamptz_ns string uuid fixed binary"
    )
    assert tested == set(primitive.split())


# --- PyIceberg is the oracle where it is right ----------------------------------------------------


def test_pyiceberg_finds_the_same(tmp_path: Path) -> None:
    columns = [
        column(1, "flag", "boolean"),
        column(2, "i", "int"),
        column(3, "s", "string"),
        column(4, "b", "binary"),
        column(5, "dec", "decimal(10, 2)"),
        column(6, "d", "date"),
        column(7, "ts", "timestamp"),
        column(8, "place", struct(column(9, "x", "long"), column(10, "name", "string"))),
    ]
    types = [pa.bool_(), pa.int32(), pa.string(), pa.binary(), pa.decimal128(10, 2), pa.date32()]
    fields = [
        *(arrow(one["name"], kind, one["id"]) for one, kind in zip(columns, types, strict=False)),
        arrow("ts", pa.timestamp("us"), 7),
        arrow("place", pa.struct([arrow("x", pa.int64(), 9), arrow("name", pa.string(), 10)]), 8),
    ]
    path = write(
        tmp_path,
        fields,
        [True, None, False, True],
        [5, -2, None, 2**31 - 1],
        ["äpfel und birnen und mehr", "", None, "z" * 40],
        [b"\xff" * 20, b"", None, b"\x01"],
        [Decimal("1.50"), Decimal("-99999999.99"), None, Decimal("0.00")],
        pa.array([0, -1, None, 20000], pa.int32()).cast(pa.date32()),
        pa.array([0, -1, None, 2**53], pa.int64()).cast(pa.timestamp("us")),
        [{"x": 1, "name": "q"}, None, {"x": None, "name": "a"}, {"x": -5, "name": None}],
        row_group_size=2,
    )
    file = DataFile.from_parquet(path, table_of(*columns))
    schema = Schema.model_validate_json(msgspec.json.encode({**struct(*columns), "schema-id": 1}))
    theirs = data_file_statistics_from_parquet_metadata(
        pq.read_metadata(path),
        compute_statistics_plan(schema, {}),
        parquet_path_to_id_mapping(schema),
    ).to_serialized_dict()
    assert file.record_count == theirs["record_count"] == 4
    assert list(file.split_offsets or ()) == theirs["split_offsets"]
    assert len(theirs["split_offsets"]) == 2
    assert counts(file.column_sizes) == theirs["column_sizes"]
    assert counts(file.value_counts) == theirs["value_counts"]
    assert counts(file.null_value_counts) == theirs["null_value_counts"]
    # PyIceberg omits the bounds of all nested fields, including fields of structs.
    for ours, name in ((file.lower_bounds, "lower_bounds"), (file.upper_bounds, "upper_bounds")):
        outer = {key: value for key, value in hex_bounds(ours).items() if key < 8}
        assert outer == theirs[name]
    assert bounds(file, 9, "long") == (-5, 1)
    assert bounds(file, 10, "string") == ("a", "q")
    assert file.file_size_in_bytes == Path(path).stat().st_size


def test_a_split_begins_with_the_dictionary(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("x", pa.string(), 1)], ["a", "b", "a", "b"], row_group_size=2)
    metadata = pq.read_metadata(path)
    second = metadata.row_group(1).column(0)
    assert second.has_dictionary_page
    assert DataFile.from_parquet(path).split_offsets == (4, second.dictionary_page_offset)


# --- nested columns -------------------------------------------------------------------------------


def test_structs_have_bounds_and_repeated_columns_have_sizes_alone(tmp_path: Path) -> None:
    columns = [
        column(1, "place", struct(column(2, "x", "double"), column(3, "tags", _list(4, "string")))),
        column(5, "points", _list(6, struct(column(7, "y", "double")))),
        column(8, "m", _map(9, "string", 10, "float")),
    ]
    point = pa.struct([arrow("y", pa.float64(), 7)])
    fields = [
        arrow(
            "place",
            pa.struct(
                [
                    arrow("x", pa.float64(), 2),
                    arrow("tags", pa.list_(arrow("element", pa.string(), 4)), 3),
                ]
            ),
            1,
        ),
        arrow("points", pa.list_(arrow("element", point, 6)), 5),
        arrow(
            "m",
            pa.map_(arrow("key", pa.string(), 9, nullable=False), arrow("value", pa.float32(), 10)),
            8,
        ),
    ]
    places: list[Any] = [
        {"x": math.nan, "tags": []},
        None,
        {"x": 2.5, "tags": ["a"]},
        {"x": None, "tags": []},
    ]
    points = [[{"y": 1.0}], [], None, [{"y": math.nan}]]
    path = write(tmp_path, fields, places, points, [[("k", 1.0)], [], None, []])
    file = DataFile.from_parquet(path, table_of(*columns))
    assert set(counts(file.column_sizes)) == {2, 4, 7, 9, 10}
    assert counts(file.value_counts) == {2: 4}
    assert counts(file.null_value_counts) == {2: 2}
    assert counts(file.nan_value_counts) == {2: 1}
    assert bounds(file, 2, "double") == (2.5, 2.5)
    assert set(hex_bounds(file.lower_bounds)) == {2}


def _list(element_id: int, element: Any) -> dict[str, Any]:
    return {"type": "list", "element-id": element_id, "element": element, "element-required": False}


def _map(key_id: int, key: Any, value_id: int, value: Any) -> dict[str, Any]:
    return {
        "type": "map",
        "key-id": key_id,
        "key": key,
        "value-id": value_id,
        "value": value,
        "value-required": False,
    }


def test_types_of_version_3_that_have_counts_alone(tmp_path: Path) -> None:
    """Bounds of geometries are locations, which no footer that pyarrow reads contains. A variant
    is a struct whose parts are not columns of the table."""
    table = table_of(
        column(1, "g", "geometry(OGC:CRS84)"),
        column(2, "v", "variant"),
        column(3, "u", "unknown"),
        format_version=3,
    )
    variant = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    fields = [
        arrow("g", pa.binary(), 1),
        arrow("v", variant, 2),
        arrow("u", pa.null(), 3),
        arrow("_row_id", pa.int64(), 2147483540),
    ]
    values = [{"metadata": b"\x01\x00\x00", "value": b"\x00"}]
    file = DataFile.from_parquet(write(tmp_path, fields, [b"\x01"], values, [None], [7]), table)
    assert counts(file.value_counts) == {1: 1}
    assert file.lower_bounds is None


# --- floating point -------------------------------------------------------------------------------


@pytest.mark.parametrize(("type_", "kind"), [("float", pa.float32()), ("double", pa.float64())])
def test_zeros_infinities_and_nan(tmp_path: Path, type_: str, kind: pa.DataType) -> None:
    table = table_of(column(1, "x", type_))
    fields = [arrow("x", kind, 1)]
    zero = DataFile.from_parquet(write(tmp_path, fields, [0.0, math.nan, None]), table)
    lower, upper = bounds(zero, 1, type_)
    assert (math.copysign(1, lower), math.copysign(1, upper)) == (-1, 1)
    assert (lower, upper) == (0, 0)
    infinite = DataFile.from_parquet(write(tmp_path, fields, [-math.inf, 1.0, math.inf]), table)
    assert bounds(infinite, 1, type_) == (-math.inf, math.inf)
    only_nan = DataFile.from_parquet(write(tmp_path, fields, [math.nan, None, math.nan]), table)
    assert bounds(only_nan, 1, type_) == (None, None)
    assert counts(only_nan.nan_value_counts) == {1: 2}
    # A row group of NaNs only does not remove the bounds that the others provide.
    path = write(tmp_path, fields, [math.nan, math.nan, 4.0, 5.0], row_group_size=2)
    assert bounds(DataFile.from_parquet(path, table), 1, type_) == (4.0, 5.0)


def test_either_zero_of_a_footer_stands_for_both(tmp_path: Path) -> None:
    """pyarrow writes -0.0 as the lower and 0.0 as the upper bound; other writers write the
    actual value."""
    path = write(tmp_path, [arrow("x", pa.float64(), 1)], [0.0, 0.0], use_dictionary=False)
    negative, positive = packing.pack("<d", -0.0), packing.pack("<d", 0.0)
    content = Path(path).read_bytes()
    for found, written in ((negative, positive), (positive, negative)):
        before, _, after = content.rpartition(b"PAR1")[0].rpartition(found)
        Path(path).write_bytes(before + written + after + b"PAR1")
        statistics = pq.read_metadata(path).row_group(0).column(0).statistics
        signs = {math.copysign(1, one) for one in (statistics.min_raw, statistics.max_raw)}
        assert len(signs) == 1
        lower, upper = bounds(DataFile.from_parquet(path), 1, "double")
        assert (math.copysign(1, lower), math.copysign(1, upper)) == (-1, 1)


def test_only_floating_columns_that_are_counted_are_read(tmp_path: Path) -> None:
    """The pages of all other columns are made unreadable first, so that reading them would fail."""
    table = table_of(
        column(1, "s", "string"),
        column(2, "x", "double"),
        column(3, "left_out", "double"),
        column(4, "empty", "double"),
        properties={"write.metadata.metrics.column.left_out": "none"},
    )
    fields = [
        arrow("s", pa.string(), 1),
        arrow("x", pa.float64(), 2),
        arrow("left_out", pa.float64(), 3),
        arrow("empty", pa.float64(), 4),
    ]
    path = write(
        tmp_path,
        fields,
        ["a", "b"],
        [1.0, math.nan],
        [1.0, 2.0],
        [None, None],
        use_dictionary=False,
    )
    metadata = pq.read_metadata(path)
    content = bytearray(Path(path).read_bytes())
    for index in (0, 2, 3):
        chunk = metadata.row_group(0).column(index)
        start = chunk.data_page_offset
        content[start : start + chunk.total_compressed_size] = b"\xee" * chunk.total_compressed_size
    Path(path).write_bytes(content)
    with pytest.raises(OSError):
        pq.read_table(path, columns=["left_out"])
    file = DataFile.from_parquet(path, table)
    assert counts(file.nan_value_counts) == {2: 1, 4: 0}


# --- what a footer does not say -------------------------------------------------------------------


def test_without_statistics_only_sizes_and_counts_are_declared(tmp_path: Path) -> None:
    table = table_of(column(1, "x", "int"), column(2, "y", "int", required=True))
    fields = [arrow("x", pa.int32(), 1), arrow("y", pa.int32(), 2, nullable=False)]
    path = write(tmp_path, fields, [1, None], [1, 2], write_statistics=False)
    file = DataFile.from_parquet(path, table)
    assert counts(file.value_counts) == {1: 2, 2: 2}
    # A required column has no nulls, even if the footer does not count them.
    assert counts(file.null_value_counts) == {2: 0}
    assert file.lower_bounds is None
    assert file.upper_bounds is None
    assert file.bounds_encoding is None


@pytest.mark.parametrize("type_", ["timestamp", "timestamptz"])
def test_timestamps_of_96_bits_have_no_bounds(tmp_path: Path, type_: str) -> None:
    days = pa.array([0, 10**9], pa.int64()).cast(pa.timestamp("ns"))
    fields = [arrow("x", pa.timestamp("ns"), 1)]
    path = write(tmp_path, fields, days, use_deprecated_int96_timestamps=True)
    file = DataFile.from_parquet(path, table_of(column(1, "x", type_)))
    assert counts(file.value_counts) == {1: 2}
    assert file.lower_bounds is None


@pytest.mark.parametrize("empty", ["no row group", "an empty row group"])
def test_a_file_without_rows(tmp_path: Path, empty: str) -> None:
    fields = [arrow("x", pa.float64(), 1)]
    if empty == "no row group":
        path = str(tmp_path / "empty.parquet")
        pq.ParquetWriter(path, pa.schema(fields)).close()
    else:
        path = write(tmp_path, fields, [])
    file = DataFile.from_parquet(path, table_of(column(1, "x", "double")))
    assert file.record_count == 0
    assert file.split_offsets is None
    assert not any(counts(file.value_counts).values())
    assert file.lower_bounds is None


def test_a_column_of_nulls_has_no_bounds(tmp_path: Path) -> None:
    fields = [arrow("x", pa.string(), 1), arrow("n", pa.null(), 2)]
    file = DataFile.from_parquet(
        write(tmp_path, fields, [None, None], [None, None]),
        table_of(column(1, "x", "string"), column(2, "n", "int")),
    )
    assert counts(file.null_value_counts) == {1: 2, 2: 2}
    assert file.lower_bounds is None


def test_long_values_that_a_writer_left_out_of_the_statistics(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("x", pa.string(), 1)], ["a" * 9000, "b"])
    file = DataFile.from_parquet(path, table_of(column(1, "x", "string")))
    assert file.lower_bounds is None
    assert counts(file.null_value_counts) == {1: 0}


def test_text_that_is_none_has_no_bounds(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("x", pa.binary(), 1)], [b"\xff\xfe", b"a"])
    file = DataFile.from_parquet(path, table_of(column(1, "x", "string")))
    assert file.lower_bounds is None


# --- the wire -------------------------------------------------------------------------------------


def test_a_data_file_is_one_of_the_wire(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("x", pa.int64(), 1)], [2, 1])
    file = DataFile.from_parquet(path)
    assert isinstance(file, wire.DeclaredDataFile)
    sent = msgspec.json.encode(file)
    assert msgspec.json.decode(sent, type=wire.DeclaredDataFile) == msgspec.convert(
        msgspec.to_builtins(file), wire.DeclaredDataFile
    )
    document = msgspec.json.decode(sent)
    assert document["content"] == "data"
    assert document["lower-bounds"] == {"keys": [1], "values": [packing.pack("<q", 1).hex()]}
    assert document["bounds-encoding"] == "hex"
    assert document["partition"] == []
    assert document["spec-id"] == 0


def test_without_a_table_the_types_are_the_files_own(tmp_path: Path) -> None:
    fields = [arrow("x", pa.int32(), 4), arrow("y", pa.string()), arrow("u", pa.uuid(), 6)]
    value = UUID(int=5)
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value.bytes], pa.binary(16)))
    file = DataFile.from_parquet(write(tmp_path, fields, [1], ["a"], uuids))
    assert set(counts(file.value_counts)) == {4, 6}
    assert bounds(file, 4, "int") == (1, 1)
    assert bounds(file, 6, "uuid") == (value, value)
