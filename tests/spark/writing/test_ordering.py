"""Rows in files follow the table's sort order or a Z-order."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.datafiles.ordering.z_order_keys import (
    boundaries,
    interleaved,
    sample_rows,
    sortable_keys,
)
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.writing.write_properties import file_options
from frazil.spark.schema.partition_transforms import partition_columns
from frazil.spark.writing.distribution import layout_of, sort_columns, spread, z_sources
from frazil.spark.writing.frame_writer import write_arrow
from frazil.spark.writing.write_commit import WriteFolder
from frazil.wire.errors import BadRequest
from tests.support.spark_facts import facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SORTED: dict[str, tuple[Any, list[Any]]] = {
    "int": (pa.int32(), [None, -(2**31), -1, 0, 1, 2**31 - 1]),
    "long": (pa.int64(), [None, -(2**62), -1, 0, 5, 2**62]),
    "boolean": (pa.bool_(), [None, False, True]),
    "double": (pa.float64(), [None, -math.inf, -1.5, -1e-300, 0.0, 2.5, math.inf, math.nan]),
    "float": (pa.float32(), [None, -1.5, 0.0, 2.5]),
    "date": (pa.date32(), [None, date(1900, 1, 1), date(1970, 1, 1), date(2026, 5, 1)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [None, datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)],
    ),
    "bytes": (pa.binary(), [None, b"\x01", b"a", b"aa", b"ab", b"b", b"\xff\xff"]),
}


@pytest.mark.parametrize("name", SORTED)
def test_keys_have_the_order_of_the_values(name: str) -> None:
    type_, values = SORTED[name]
    keys = sortable_keys(pa.array(values, type_)).tolist()
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_the_two_zeros_have_one_key() -> None:
    assert len(set(sortable_keys(pa.array([0.0, -0.0])).tolist())) == 1


def test_bits_of_ranks_are_taken_in_turn() -> None:
    limits = sortable_keys(pa.array([5]))
    found = interleaved([limits, limits], pa.array([1, 9, 1]), pa.array([4, 4, 5])).to_pylist()
    assert found == [b"\0" * 4, b"\xaa" * 4, b"\x55" * 4]
    assert interleaved([limits], pa.array([], pa.int64())).to_pylist() == []


def test_ranks_are_of_one_weight() -> None:
    keys = np.arange(10_000, dtype=np.uint64) ** np.uint64(3)
    limits = boundaries(keys, np.ones(10_000, np.int64))
    counts = np.diff(np.searchsorted(keys, limits))
    assert len(limits) == 1023
    assert set(counts.tolist()) <= {9, 10}
    assert boundaries(keys[:0], np.empty(0, np.int64)).tolist() == []
    assert boundaries(keys[:1], np.ones(1, np.int64)).tolist() == []


@pytest.mark.parametrize("batch_rows", [1, 7, 1000, 50_000])
def test_a_sample_takes_rows_at_equal_distances(batch_rows: int) -> None:
    rows = pa.record_batch({"z0": pa.array(range(30_000))})
    batches = [rows.slice(at, batch_rows) for at in range(0, 30_000, batch_rows)]
    (sample,) = sample_rows(batches[:3000] if batch_rows == 1 else batches)
    keys = np.frombuffer(b"".join(sample.column("keys").to_pylist()), np.uint64)
    (step,) = set(sample.column("weight").to_pylist())
    assert set(np.diff(keys).tolist()) == {step}
    assert len(keys) * step in range(3000 if batch_rows == 1 else 30_000, 30_000 + step)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nope"], "Z-order by nope: the table has no such column"),
        (["l"], "Z-order by l: values of the type list"),
        (["a", "A"], "a column stands twice"),
    ],
)
def test_what_has_no_place_in_a_z_order_is_refused(names: list[str], message: str) -> None:
    of_list = {"type": "list", "element-id": 9, "element-required": False, "element": "int"}
    table = facts("/t", {"a": "int", "l": of_list})
    with pytest.raises(BadRequest, match=message):
        z_sources(names, table.schema)


def test_a_sort_order_of_a_lost_column_is_refused() -> None:
    table = facts("/t", {"a": "int"}, order=[(7, "identity", "asc", "nulls-first")])
    with pytest.raises(BadRequest, match="field id 7, which the schema does not have"):
        sort_columns(table.sort_order(), table.schema)


def test_rows_are_sorted_by_partition_transforms_directions_and_nulls(spark: SparkSession) -> None:
    table = facts(
        "/t",
        {"id": "long", "s": "string", "x": "double"},
        [(1, "truncate[100]", "hundreds")],
        [(2, "truncate[1]", "desc", "nulls-first"), (3, "identity", "asc", "nulls-last")],
        {"write.distribution-mode": "none"},
    )
    rows = [
        (1, "ab", 2.0),
        (2, "aa", math.nan),
        (3, None, 1.0),
        (101, "z", 0.0),
        (4, "b", None),
        (5, "ac", None),
        (6, "ba", -1.0),
    ]
    frame = spark.createDataFrame(rows, "id long, s string, x double").coalesce(1)
    layout = layout_of(table)
    assert layout.sort_order_id == 1
    found = spread(frame, partition_columns(table), layout, table.schema).collect()
    assert [row["id"] for row in found] == [3, 6, 4, 1, 2, 5, 101]


def test_range_brings_neighbours_together(spark: SparkSession) -> None:
    from pyspark.sql import functions as fn

    order = [(1, "identity", "asc", "nulls-first")]
    table = facts("/t", {"id": "long"}, order=order)
    frame = spark.range(1000).select(((fn.col("id") * 7919) % 1000).alias("id"))
    layout = layout_of(table)
    assert layout.mode == "range"
    rows = spread(frame, {}, layout, table.schema)
    parts = rows.groupBy(fn.spark_partition_id().alias("part")).agg(
        fn.min("id").alias("low"), fn.max("id").alias("high")
    )
    ends = sorted((row["low"], row["high"]) for row in parts.collect())
    assert all(one[1] < other[0] for one, other in itertools.pairwise(ends))
    assert (ends[0][0], ends[-1][1]) == (0, 999)


def test_a_z_order_makes_files_narrow_in_all_its_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions as fn

    table = facts(
        str(tmp_path),
        {"a": "int", "b": "string", "d": "date"},
        order=[(1, "identity", "asc", "nulls-first")],
    )
    frame = spark.range(4096).select(
        (fn.col("id") % 64).cast("int").alias("a"),
        fn.lpad((fn.col("id") / 64).cast("int").cast("string"), 2, "0").alias("b"),
        fn.lit(None).cast("date").alias("d"),
    )
    layout = layout_of(table, zorder=("a", "b", "d"))
    assert (layout.mode, layout.sort_order_id) == ("range", None)
    rows = spread(frame.coalesce(1), {}, layout, table.schema)
    assert rows.columns == ["a", "b", "d"]
    folder = WriteFolder(str(tmp_path / "w"), Storage())
    options = file_options({}, target_file_size_bytes=600)
    files = write_arrow(table, rows, folder, options)
    assert sum(file.record_count for file in files) == 4096
    assert len(files) >= 6
    widths = []
    for file in files:
        read = pq.read_table(file.file_path)
        numbers = [read["a"].to_pylist(), [int(text) for text in read["b"].to_pylist()]]
        widths.append([(max(one) - min(one) + 1) / 64 for one in numbers])
    # If sorted by one column, files would be narrow in it but as wide as the table in the other.
    assert np.mean(widths, axis=0).max() < 0.75, widths
