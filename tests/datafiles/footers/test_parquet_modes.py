"""Table properties decide which metrics are declared and how long bounds may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil import DataFile
from frazil.datafiles.footers.footer_metrics import truncate_upper
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


def test_modes_of_single_columns_and_of_sorted_ones(tmp_path: Path) -> None:
    columns = [column(one, f"c{one}", "string") for one in range(1, 6)]
    table = table_of(
        *columns,
        properties={
            "write.metadata.metrics.default": "counts",
            "write.metadata.metrics.column.c1": "none",
            "write.metadata.metrics.column.c2": "truncate(2)",
            "write.metadata.metrics.column.c3": "full",
        },
        sort_fields=[
            {"source-id": 4, "transform": "truncate[8]"},
            {"source-id": 5, "transform": "bucket[8]"},
        ],
    )
    fields = [arrow(f"c{one}", pa.string(), one) for one in range(1, 6)]
    text = "abcdefghijklmnopqrstuvwxyz"
    file = DataFile.from_parquet(write(tmp_path, fields, *[[text]] * 5), table)
    assert set(counts(file.value_counts)) == {2, 3, 4, 5}
    assert set(counts(file.column_sizes)) == {2, 3, 4, 5}
    assert set(hex_bounds(file.lower_bounds)) == {2, 3, 4}
    assert bounds(file, 2, "string") == ("ab", "ac")
    assert bounds(file, 3, "string") == (text, text)
    assert bounds(file, 4, "string") == (text[:16], text[:15] + "q")


def test_wide_tables_have_metrics_of_their_first_columns(tmp_path: Path) -> None:
    columns = [
        column(1, "deep", struct(column(2, "x", "int"), column(3, "y", "int"))),
        *(column(one, f"c{one}", "int") for one in range(4, 7)),
    ]
    fields = [
        arrow("deep", pa.struct([arrow("x", pa.int32(), 2), arrow("y", pa.int32(), 3)]), 1),
        *(arrow(f"c{one}", pa.int32(), one) for one in range(4, 7)),
    ]
    path = write(tmp_path, fields, [{"x": 1, "y": 1}], [1], [1], [1])
    limit = "write.metadata.metrics.max-inferred-column-defaults"

    def counted(**properties: str) -> set[int]:
        table = table_of(*columns, properties=properties)
        return set(counts(DataFile.from_parquet(path, table).value_counts))

    # There are six fields; like Java, the limit counts the struct as one of them.
    assert counted(**{limit: "6"}) == {2, 3, 4, 5, 6}
    assert counted(**{limit: "5"}) == {2, 3, 4, 5, 6}
    assert counted(**{limit: "4"}) == {2, 4, 5, 6}
    assert counted(**{limit: "2"}) == {4, 5}
    assert counted(**{limit: "2", "write.metadata.metrics.column.deep.y": "counts"}) == {3, 4, 5}
    # An explicit default applies to all columns.
    assert len(counted(**{limit: "2", "write.metadata.metrics.default": "counts"})) == 5
    assert len(counted(**{limit: "minus two"})) == 5


def test_a_mode_that_nobody_understands_is_not_used(tmp_path: Path) -> None:
    properties = {
        "write.metadata.metrics.default": "Truncate(3)",
        "write.metadata.metrics.column.x": "truncate(0)",
    }
    table = table_of(column(1, "x", "string"), properties=properties)
    path = write(tmp_path, [arrow("x", pa.string(), 1)], ["abcdef"])
    assert bounds(DataFile.from_parquet(path, table), 1, "string") == ("abc", "abd")


@pytest.mark.parametrize(
    ("value", "length", "upper"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abd"),
        ("ab\U0010ffffx", 3, "ac"),
        ("\U0010ffff" * 3, 2, None),
        ("a\ud7ffx", 2, "a\ue000"),
        ("😀😀😀", 2, "😀😁"),
        (b"\x01\xff\xff", 2, b"\x02"),
        (b"\xff\xff\xff", 2, None),
        (b"\x01\x02", None, b"\x01\x02"),
    ],
)
def test_truncation(value: Any, length: int | None, upper: Any) -> None:
    assert truncate_upper(value, length) == upper
