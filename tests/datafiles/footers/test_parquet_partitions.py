"""Partition values come from the footer or the caller, and never contradict the footer."""

from __future__ import annotations

import math
import tempfile
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil import DataFile, Table
from frazil.datafiles.footers.parquet_files import FileDoesNotFit, PartitionNotProven
from frazil.values.single_value import from_json
from frazil.values.transforms import apply, parse_transform
from frazil.values.type_json import parse_type
from frazil.wire.errors import BadRequest
from tests.datafiles.footers.parquet_world import (
    arrow,
    bounds,
    column,
    part,
    struct,
    table_of,
    write,
)

MICROS_PER_DAY = 86_400_000_000


def one_column(type_: str, transform: str, **more: Any) -> Table:
    return table_of(column(1, "x", type_), spec=[part(1, "p", transform)], **more)


def partition_of(
    folder: Path, table: Table, kind: pa.DataType, values: Any, **options: Any
) -> tuple[Any, ...]:
    path = write(folder, [arrow("x", kind, 1)], values)
    found = DataFile.from_parquet(path, table, **options).partition
    assert isinstance(found, tuple)
    return found


def timestamps(*days: float) -> pa.Array:
    micros = [int(day * MICROS_PER_DAY) for day in days]
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us"))


# --- proven ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "transform", "kind", "values", "expected"),
    [
        ("long", "identity", pa.int64(), [5, 5], 5),
        ("string", "identity", pa.string(), ["ä", "ä"], "ä"),
        ("boolean", "identity", pa.bool_(), [False], False),
        ("double", "identity", pa.float64(), [1.5, 1.5], 1.5),
        ("decimal(9, 2)", "identity", pa.decimal128(9, 2), [Decimal("1.50")] * 2, "1.50"),
        ("binary", "identity", pa.binary(), [b"\x01\xff"], "01ff"),
        ("fixed[2]", "identity", pa.binary(2), [b"ab", b"ab"], "6162"),
        ("date", "identity", pa.date32(), [date(2026, 5, 1)] * 2, "2026-05-01"),
        ("time", "identity", pa.time64("us"), [time(1, 2, 3)], "01:02:03.000000"),
        ("timestamp", "identity", pa.timestamp("us"), timestamps(1), "1970-01-02T00:00:00.000000"),
        ("int", "truncate[10]", pa.int32(), [10, 19], 10),
        ("int", "truncate[10]", pa.int32(), [-1, -10], -10),
        ("string", "truncate[2]", pa.string(), ["abc", "abz"], "ab"),
        ("binary", "truncate[1]", pa.binary(), [b"ab", b"az"], "61"),
        ("decimal(9, 2)", "truncate[50]", pa.decimal128(9, 2), [Decimal("1.60")], "1.50"),
        ("timestamp", "year", pa.timestamp("us"), timestamps(0, 364.9), 0),
        ("timestamp", "month", pa.timestamp("us"), timestamps(31, 58.9), 1),
        ("timestamp", "day", pa.timestamp("us"), timestamps(1, 1.9), "1970-01-02"),
        ("timestamp", "hour", pa.timestamp("us"), timestamps(1, 1.04), 24),
        (
            "timestamp",
            "day",
            pa.timestamp("ms"),
            timestamps(-0.1, -1).cast(pa.timestamp("ms")),
            "1969-12-31",
        ),
        ("date", "month", pa.date32(), [date(1970, 2, 1), date(1970, 2, 28)], 1),
        ("int", "bucket[16]", pa.int32(), [34, 34], 3),
        ("int", "void", pa.int32(), [1, 2, None], None),
        ("int", "identity", pa.int32(), [None, None], None),
        ("int", "bucket[4]", pa.int32(), [None, None], None),
        ("double", "identity", pa.float64(), [None], None),
    ],
)
def test_one_result_is_proven(
    tmp_path: Path, type_: str, transform: str, kind: pa.DataType, values: Any, expected: Any
) -> None:
    found = partition_of(tmp_path, one_column(type_, transform), kind, values)
    assert found == (expected,)
    assert type(found[0]) is type(expected)


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
def test_nanoseconds_are_partitioned_too(tmp_path: Path, transform: str) -> None:
    values = pa.array([0, 3_599_999_999_999], pa.int64()).cast(pa.timestamp("ns"))
    table = one_column("timestamp_ns", transform, format_version=3)
    found = partition_of(tmp_path, table, pa.timestamp("ns"), values)
    assert found == ("1970-01-01" if transform == "day" else 0,)


def test_several_row_groups_and_fields(tmp_path: Path) -> None:
    table = table_of(
        column(1, "id", "long"),
        column(2, "place", struct(column(3, "country", "string"))),
        spec=[part(3, "country", "identity"), part(1, "ids", "truncate[100]")],
    )
    fields = [
        arrow("id", pa.int64(), 1),
        arrow("place", pa.struct([arrow("country", pa.string(), 3)]), 2),
    ]
    path = write(
        tmp_path, fields, list(range(300, 400)), [{"country": "is"}] * 100, row_group_size=9
    )
    assert DataFile.from_parquet(path, table).partition == ("is", 300)
    # The file can also be declared under another spec of the table.
    other = DataFile.from_parquet(path, table, spec_id=7)
    assert (other.spec_id, other.partition) == (7, ())
    path = write(
        tmp_path, fields, list(range(300, 401)), [{"country": "is"}] * 101, row_group_size=9
    )
    with pytest.raises(FileDoesNotFit, match="partition field ids: id lies between 300 and 400"):
        DataFile.from_parquet(path, table)


def test_modes_have_no_part_in_it(tmp_path: Path) -> None:
    properties = {"write.metadata.metrics.default": "none"}
    text = "a text of more than sixteen characters"
    for type_, kind, value in [("string", pa.string(), text), ("double", pa.float64(), 2.5)]:
        table = one_column(type_, "identity", properties=properties)
        assert partition_of(tmp_path, table, kind, [value, value]) == (value,)


COLUMN_VALUES: dict[str, tuple[pa.DataType, pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), pa.int32(), st.integers(-30, 30)),
    "date": (pa.date32(), pa.int32(), st.integers(-400, 400)),
    "timestamp": (
        pa.timestamp("us"),
        pa.int64(),
        st.integers(-(10**11), 10**11) | st.integers(-3, 3).map(lambda day: day * MICROS_PER_DAY),
    ),
    "string": (pa.string(), pa.string(), st.text("ab", max_size=3)),
}
TRANSFORMS = {
    "int": ["identity", "truncate[10]", "bucket[4]", "void"],
    "date": ["identity", "year", "month", "day", "bucket[4]"],
    "timestamp": ["identity", "year", "month", "day", "hour", "bucket[4]"],
    "string": ["identity", "truncate[1]", "bucket[4]"],
}


@settings(max_examples=150)
@given(data=st.data())
def test_a_value_is_derived_only_if_it_is_that_of_every_row(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(sorted(TRANSFORMS)))
    text = data.draw(st.sampled_from(TRANSFORMS[type_]))
    kind, raw, strategy = COLUMN_VALUES[type_]
    some = st.none() | strategy if data.draw(st.booleans()) else strategy
    few = data.draw(st.lists(some, min_size=1, max_size=2))
    values = data.draw(st.lists(st.sampled_from(few), max_size=4))
    transform, source = parse_transform(text), parse_type(type_)
    results = {apply(transform, source, value) for value in values}
    table = one_column(type_, text)
    with tempfile.TemporaryDirectory() as folder:
        fields = [arrow("x", kind, 1)]
        path = write(Path(folder), fields, pa.array(values, raw).cast(kind), row_group_size=2)
        try:
            (found,) = DataFile.from_parquet(path, table).partition
        except FileDoesNotFit:
            # A refusal is right if there are several results. A bucket may also be refused if the
            # file has two values that do not prove it.
            assert len(results) != 1 or (text.startswith("bucket") and len(set(values)) > 1)
            if len(results) > 1:
                for given_value in results:
                    with pytest.raises(FileDoesNotFit):
                        DataFile.from_parquet(path, table, partition=[given_value])
            return
    assert results in ({from_json(transform.result_type(source), found)}, set()) or text == "void"


# --- not proven -----------------------------------------------------------------------------------


def not_proven(path: str, table: Table) -> PartitionNotProven:
    with pytest.raises(PartitionNotProven) as caught:
        DataFile.from_parquet(path, table)
    assert caught.value.column == "p"
    assert caught.value.path in str(caught.value)
    assert "give it, as partition={'p': ...}" in str(caught.value)
    return caught.value


def test_without_statistics_nothing_is_proven(tmp_path: Path) -> None:
    table = one_column("int", "identity")
    path = write(tmp_path, [arrow("x", pa.int32(), 1)], [1, 1], write_statistics=False)
    assert "no null count" in not_proven(path, table).reason
    fields = [arrow("x", pa.int32(), 1, nullable=False)]
    path = write(tmp_path, fields, [1, 1], write_statistics=False)
    assert "no bounds" in not_proven(path, table).reason
    assert DataFile.from_parquet(path, table, partition=[9]).partition == (9,)


def test_two_values_of_one_bucket_prove_nothing_but_disprove_others(tmp_path: Path) -> None:
    bucket = parse_transform("bucket[2]")
    long = parse_type("long")
    even = [value for value in range(40) if apply(bucket, long, value) == 0]
    odd = next(value for value in range(40) if apply(bucket, long, value) == 1)
    table = one_column("long", "bucket[2]")
    fields = [arrow("x", pa.int64(), 1)]
    path = write(tmp_path, fields, even[:2])
    not_proven(path, table)
    assert DataFile.from_parquet(path, table, partition=[0]).partition == (0,)
    with pytest.raises(FileDoesNotFit, match="between 0 and 0"):
        DataFile.from_parquet(path, table, partition=[1])
    with pytest.raises(FileDoesNotFit, match="two partitions"):
        DataFile.from_parquet(write(tmp_path, fields, sorted([even[0], odd])), table)


def test_a_file_without_rows_belongs_anywhere(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("x", pa.int32(), 1)], [])
    table = one_column("int", "identity")
    assert "no rows" in not_proven(path, table).reason
    assert DataFile.from_parquet(path, table, partition=[3]).partition == (3,)


def test_the_two_zeros_are_not_told_apart(tmp_path: Path) -> None:
    table = one_column("double", "identity")
    path = write(tmp_path, [arrow("x", pa.float64(), 1)], [0.0, 0.0])
    not_proven(path, table)
    for zero in (0.0, -0.0):
        (found,) = DataFile.from_parquet(path, table, partition=[zero]).partition
        assert isinstance(found, float)
        assert math.copysign(1, found) == math.copysign(1, zero)


def test_nan_beside_a_value_is_another_partition(tmp_path: Path) -> None:
    table = one_column("double", "identity")
    fields = [arrow("x", pa.float64(), 1)]
    with pytest.raises(FileDoesNotFit, match="NaN in 1 of 3 rows"):
        DataFile.from_parquet(write(tmp_path, fields, [1.0, math.nan, 1.0]), table)
    assert "JSON has no value" in not_proven(write(tmp_path, fields, [math.nan]), table).reason


def test_mixed_nulls_are_another_partition_whatever_is_given(tmp_path: Path) -> None:
    table = one_column("int", "bucket[4]")
    path = write(tmp_path, [arrow("x", pa.int32(), 1)], [5, None, 5])
    for options in ({}, {"partition": [1]}, {"partition": [None]}):
        with pytest.raises(FileDoesNotFit, match="null in 1 of 3 rows"):
            DataFile.from_parquet(path, table, **options)


def test_a_missing_column_is_null_but_for_identity(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("other", pa.int32(), 2)], [1])
    columns = (column(1, "x", "int"), column(2, "other", "int"))
    derived = table_of(*columns, spec=[part(1, "p", "bucket[4]")])
    assert DataFile.from_parquet(path, derived).partition == (None,)
    default = {**column(1, "x", "int"), "initial-default": 34}
    derived = table_of(default, columns[1], spec=[part(1, "p", "bucket[16]")], format_version=3)
    assert DataFile.from_parquet(path, derived).partition == (3,)
    kept = table_of(*columns, spec=[part(1, "p", "identity")])
    not_proven(path, kept)
    assert DataFile.from_parquet(path, kept, partition={"p": 8}).partition == (8,)


def test_a_dropped_source_column_is_null(tmp_path: Path) -> None:
    table = table_of(column(2, "other", "int"), spec=[part(1, "p", "identity")])
    path = write(tmp_path, [arrow("other", pa.int32(), 2)], [1])
    assert DataFile.from_parquet(path, table).partition == (None,)
    with pytest.raises(FileDoesNotFit, match="can only be null"):
        DataFile.from_parquet(path, table, partition=[1])


def test_an_unknown_transform_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("x", pa.int32(), 1)], [1])
    with pytest.raises(BadRequest, match=r"partition field p has the transform zorder"):
        DataFile.from_parquet(path, one_column("int", "zorder"))


# --- cut bounds -----------------------------------------------------------------------------------


def other_writer(path: str) -> None:
    """Change the file to look like one of a writer that may truncate its statistics without a
    mark."""
    content = Path(path).read_bytes()
    assert content.count(b"parquet-cpp-arrow") == 1
    Path(path).write_bytes(content.replace(b"parquet-cpp-arrow", b"parquet-xyz-other"))
    assert pq.read_metadata(path).created_by.startswith("parquet-xyz-other")


def test_cut_bounds_prove_nothing(tmp_path: Path) -> None:
    """If a writer truncates the highest value, the result may equal the lowest one."""
    table = one_column("string", "identity")
    fields = [arrow("x", pa.string(), 1)]
    path = write(tmp_path, fields, ["a" * 64] * 2)
    assert DataFile.from_parquet(path, table).partition == ("a" * 64,)
    other_writer(path)
    assert "cut" in not_proven(path, table).reason
    # Truncated bounds do not disprove a value either.
    longer = "a" * 64 + "b"
    assert DataFile.from_parquet(path, table, partition=[longer]).partition == (longer,)
    with pytest.raises(FileDoesNotFit, match="not null"):
        DataFile.from_parquet(path, table, partition=[None])
    # The bounds are those of the footer, truncated further.
    assert bounds(DataFile.from_parquet(path, table, partition=[longer]), 1, "string") == (
        "a" * 16,
        "a" * 15 + "b",
    )


def test_short_statistics_of_any_writer_are_bounds(tmp_path: Path) -> None:
    table = one_column("string", "identity")
    fields = [arrow("x", pa.string(), 1)]
    path = write(tmp_path, fields, ["de", "de"])
    other_writer(path)
    assert DataFile.from_parquet(path, table).partition == ("de",)
    path = write(tmp_path, fields, ["da", "de"])
    other_writer(path)
    not_proven(path, table)
    assert DataFile.from_parquet(path, table, partition=["dab"]).partition == ("dab",)
    with pytest.raises(FileDoesNotFit, match="lies between da and de"):
        DataFile.from_parquet(path, table, partition=["fr"])


def test_a_long_value_that_has_no_statistics_is_not_proven(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("x", pa.string(), 1)], ["a" * 9000] * 2)
    assert "no bounds" in not_proven(path, one_column("string", "identity")).reason
    # A prefix would give one result, but not even the first character is certain.
    not_proven(path, one_column("string", "truncate[4]"))


# --- given ----------------------------------------------------------------------------------------

NOON = datetime(2026, 5, 1, 12)
GIVEN: list[tuple[str, str, Any, Any]] = [
    ("int", "identity", 5, 5),
    ("boolean", "identity", True, True),
    ("float", "identity", 0.1, 0.10000000149011612),
    ("double", "identity", 2, 2.0),
    ("date", "identity", date(2026, 5, 1), "2026-05-01"),
    ("date", "identity", "2026-05-01", "2026-05-01"),
    ("timestamp", "day", date(2026, 5, 1), "2026-05-01"),
    ("timestamp", "day", 1, "1970-01-02"),
    ("timestamp", "month", 5, 5),
    ("time", "identity", time(1, 2, 3, 4), "01:02:03.000004"),
    ("timestamp", "identity", NOON, "2026-05-01T12:00:00.000000"),
    ("timestamptz", "identity", NOON.replace(tzinfo=UTC), "2026-05-01T12:00:00.000000+00:00"),
    (
        "timestamptz",
        "identity",
        NOON.replace(tzinfo=timezone(timedelta(hours=2))),
        "2026-05-01T10:00:00.000000+00:00",
    ),
    ("timestamp_ns", "identity", NOON, "2026-05-01T12:00:00.000000000"),
    ("decimal(38, 2)", "identity", Decimal("1.5"), "1.50"),
    ("decimal(38, 2)", "identity", Decimal("9" * 36 + ".25"), "9" * 36 + ".25"),
    ("decimal(9, 2)", "identity", "1.50", "1.50"),
    ("string", "identity", "a", "a"),
    ("string", "truncate[2]", "ab", "ab"),
    ("uuid", "identity", UUID(int=1), str(UUID(int=1))),
    ("uuid", "identity", str(UUID(int=1)), str(UUID(int=1))),
    ("binary", "identity", b"\x01\xff", "01ff"),
    ("binary", "identity", "01ff", "01ff"),
    ("fixed[2]", "identity", bytearray(b"ab"), "6162"),
    ("long", "bucket[4]", 3, 3),
    ("long", "identity", numpy.int64(3), 3),
    ("date", "identity", numpy.datetime64("2026-05-01"), "2026-05-01"),
    ("timestamp", "identity", pa.scalar(NOON), "2026-05-01T12:00:00.000000"),
    ("long", "void", None, None),
]


@pytest.mark.parametrize(("type_", "transform", "value", "expected"), GIVEN)
def test_given_values_become_the_wires(
    tmp_path: Path, type_: str, transform: str, value: Any, expected: Any
) -> None:
    """The file has no rows. It also lacks the column if readers use the given value for it."""
    columns = (column(1, "x", type_), column(2, "other", "int"))
    table = table_of(*columns, spec=[part(1, "p", transform)], format_version=3)
    fields = [arrow("other", pa.int32(), 2)]
    if transform not in ("identity", "void"):
        fields.append(arrow("x", pa.int64() if type_ == "long" else _arrow_of(type_), 1))
    path = write(tmp_path, fields, *[[] for _ in fields])
    for partition in ([value], {"p": value}):
        assert DataFile.from_parquet(path, table, partition=partition).partition == (expected,)


def _arrow_of(type_: str) -> pa.DataType:
    return {"timestamp": pa.timestamp("us"), "string": pa.string()}[type_]


@pytest.mark.parametrize(
    ("type_", "transform", "value", "reason"),
    [
        ("int", "identity", "five", "not a int"),
        ("int", "identity", True, "not a int"),
        ("int", "identity", 2**31, "32 bits"),
        ("int", "identity", 5.0, "not a int"),
        ("long", "bucket[4]", 4, "buckets 0 to 3"),
        ("int", "truncate[10]", 15, "not a result of"),
        ("timestamp", "identity", NOON.replace(tzinfo=UTC), "has none"),
        ("timestamptz", "identity", NOON, "needs one"),
        ("date", "identity", NOON, "not a date"),
        ("decimal(9, 2)", "identity", Decimal("1.505"), "scale 2"),
        ("decimal(9, 2)", "identity", Decimal("NaN"), "scale 2"),
        ("double", "identity", math.inf, "too large"),
        ("uuid", "identity", "x", "not a uuid"),
        ("long", "void", 1, "can only be null"),
    ],
)
def test_given_values_that_are_none(
    tmp_path: Path, type_: str, transform: str, value: Any, reason: str
) -> None:
    table = table_of(
        column(1, "x", type_), column(2, "other", "int"), spec=[part(1, "p", transform)]
    )
    path = write(tmp_path, [arrow("other", pa.int32(), 2)], [])
    with pytest.raises(FileDoesNotFit, match=f"partition field p: .*{reason}"):
        DataFile.from_parquet(path, table, partition=[value])


@pytest.mark.parametrize(
    ("transform", "values", "wrong", "right"),
    [
        ("identity", [5, 5], 6, 5),
        ("identity", [5, 5], None, 5),
        ("truncate[10]", [5, 6], 10, 0),
        ("bucket[16]", [34], 4, 3),
        ("bucket[16]", [34], None, 3),
        ("identity", [None], 1, None),
    ],
)
def test_a_value_that_the_footer_disproves_is_refused(
    tmp_path: Path, transform: str, values: list[Any], wrong: Any, right: Any
) -> None:
    table = one_column("int", transform)
    path = write(tmp_path, [arrow("x", pa.int32(), 1)], values)
    with pytest.raises(FileDoesNotFit, match=f"{wrong} is given, but the file's footer proves"):
        DataFile.from_parquet(path, table, partition=[wrong])
    assert DataFile.from_parquet(path, table, partition=[right]).partition == (right,)


def test_some_values_may_be_given_and_the_others_proven(tmp_path: Path) -> None:
    table = table_of(
        column(1, "x", "int"),
        column(2, "y", "int"),
        spec=[part(1, "p", "identity"), part(2, "q", "bucket[2]")],
    )
    fields = [arrow("x", pa.int32(), 1), arrow("y", pa.int32(), 2)]
    bucket, kind = parse_transform("bucket[2]"), parse_type("int")
    ones = [value for value in range(40) if apply(bucket, kind, value) == 1][:3]
    path = write(tmp_path, fields, [7] * 3, ones)
    assert DataFile.from_parquet(path, table, partition={"q": 1}).partition == (7, 1)
    with pytest.raises(FileDoesNotFit, match="'r' is not a field of the spec, these are: p, q"):
        DataFile.from_parquet(path, table, partition={"r": 1})
    with pytest.raises(FileDoesNotFit, match="1 values for 2 fields"):
        DataFile.from_parquet(path, table, partition=[7])
    with pytest.raises(FileDoesNotFit, match="give a sequence"):
        DataFile.from_parquet(path, table, partition="71")
    with pytest.raises(FileDoesNotFit, match="unpartitioned"):
        DataFile.from_parquet(path, partition=[7])
