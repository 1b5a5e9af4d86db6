"""Rows are sorted as Iceberg defines it, with little memory."""

from __future__ import annotations

import math
import random
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from frazil.datafiles.ordering import external_sort
from frazil.datafiles.ordering.external_sort import sorted_rows
from frazil.datafiles.ordering.sort_keys import ByAll, BySortField, RowOrder, sort_fields
from frazil.values import types
from frazil.values.transforms import parse_transform
from frazil.values.type_json import parse_type
from frazil.wire.errors import BadRequest

ASCENDING: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "int": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), -(2**53) - 1, -(2**53), 0, 2**53, 2**53 + 1, 2**63 - 1]),
    "float": (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
    "double": (pa.float64(), [-math.inf, -1.5, -1e-300, -0.0, 0.0, 1e-300, math.inf, math.nan]),
    "decimal(38, 2)": (
        pa.decimal128(38, 2),
        [Decimal("-1e35"), Decimal("-0.01"), Decimal(0), Decimal("0.01"), Decimal("1e35")],
    ),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 1, 1)]),
    "time": (pa.time64("us"), [time(0), time(0, 0, 1), time(23, 59)]),
    "timestamp": (pa.timestamp("us"), [datetime(1900, 1, 1), datetime(1970, 1, 1)]),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)],
    ),
    # U+FF5E is above U+1F600 in UTF-16, but not by code points.
    "string": (pa.string(), ["", "A", "Z", "a", "aa", "ä", "\uff5e", "😀"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"a", b"\xff"]),
    "fixed[2]": (pa.binary(2), [b"\0\0", b"\0\1", b"\xff\0"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127 + 1).bytes]),
}


def by(
    type_: types.Type, column: str, transform: str = "identity", *, desc: bool, nulls_first: bool
) -> BySortField:
    return BySortField(parse_transform(transform), type_, (column,), desc, nulls_first)


def batches(rows: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def order_of(rows: pa.RecordBatch, order: RowOrder, run_bytes: int, batch_rows: int) -> list[Any]:
    found = list(sorted_rows(batches(rows, batch_rows), order, run_bytes=run_bytes))
    assert all(batch.schema == rows.schema for batch in found)
    return [number for batch in found for number in batch.column("n").to_pylist()]


@pytest.mark.parametrize("nulls_first", [True, False])
@pytest.mark.parametrize("desc", [True, False])
@pytest.mark.parametrize("name", ASCENDING)
def test_values_of_every_type_have_icebergs_order(name: str, desc: bool, nulls_first: bool) -> None:
    arrow_type, values = ASCENDING[name]
    wanted = [*(reversed(values) if desc else values)]
    wanted = [None, *wanted] if nulls_first else [*wanted, None]
    numbers = list(range(len(wanted)))
    random.Random(name).shuffle(numbers)
    rows = pa.record_batch(
        {"v": pa.array([wanted[number] for number in numbers], arrow_type), "n": numbers}
    )
    order = by(parse_type(name), "v", desc=desc, nulls_first=nulls_first)
    for run_bytes in (1 << 20, 1):
        assert order_of(rows, order, run_bytes, 2) == sorted(numbers), run_bytes


@pytest.mark.parametrize("run_bytes", [1 << 30, 40_000, 1])
def test_many_runs_are_merged_in_several_steps(
    monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    monkeypatch.setattr(external_sort, "_BATCH_BYTES", 500)
    monkeypatch.setattr(external_sort, "_MAX_MERGED_RUNS", 3)
    chance = random.Random(7)
    values = [(chance.choice(["x", "y", "z", None]), chance.randrange(50)) for _ in range(5000)]
    rows = pa.record_batch(
        {
            "a": pa.array([text for text, _ in values]),
            "b": pa.array([number for _, number in values], pa.int64()),
            "n": list(range(len(values))),
        }
    )
    order = ByAll(
        (
            by(types.STRING, "a", desc=True, nulls_first=False),
            by(types.LONG, "b", "truncate[10]", desc=False, nulls_first=True),
        )
    )
    found = order_of(rows, order, run_bytes, 64)
    keys = [("" if text is None else text, -(number // 10)) for text, number in values]
    assert sorted(found) == list(range(len(values)))
    assert [keys[number] for number in found] == sorted(keys, reverse=True)


def test_nothing_stays_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = pa.record_batch({"v": [3, 1, 2], "n": [0, 1, 2]})
    order = by(types.LONG, "v", desc=False, nulls_first=True)
    sorting = sorted_rows(batches(rows, 1), order, run_bytes=1)
    assert next(sorting).column("n").to_pylist() == [1]
    assert list(tmp_path.iterdir()) == []
    del sorting
    assert list(sorted_rows(iter([]), order)) == []


def test_sort_fields_name_what_is_wrong() -> None:
    schema = types.StructType((types.NestedField(1, "a", types.INT, required=False),))
    field = {"direction": "asc", "null-order": "nulls-first"}

    def fields(*items: dict[str, Any]) -> Sequence[RowOrder]:
        return sort_fields({"order-id": 4, "fields": [{**field, **item} for item in items]}, schema)

    assert len(fields({"source-id": 1, "transform": "bucket[4]"})) == 1
    with pytest.raises(BadRequest, match="sort order 4 sorts by the field id 9"):
        fields({"source-id": 9, "transform": "identity"})
    with pytest.raises(BadRequest, match="the number of buckets must be 1"):
        fields({"source-id": 1, "transform": "bucket[0]"})
