"""Partition summaries computed from entries equal those of PyIceberg."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
)

from frazil.format.avro.avro_schema import record_schema
from frazil.format.avro.avro_types import Field, UnreadableAvro
from frazil.format.manifest.manifest_list import PartitionSummary, summarise

FIXED = {"type": "fixed", "name": "f2", "size": 2}


def fields(*types: Any) -> tuple[Field, ...]:
    tree = [{"name": f"p{n}", "type": ["null", t], "field-id": n} for n, t in enumerate(types)]
    return record_schema(json.dumps({"type": "record", "name": "r", "fields": tree})).record.fields


@pytest.mark.parametrize(
    ("avro", "iceberg", "values"),
    [
        ("boolean", BooleanType(), [True, False]),
        ("int", IntegerType(), [5, -3, 9]),
        ("long", LongType(), [1 << 40, -1]),
        ("float", FloatType(), [1.5, -2.5]),
        ("double", DoubleType(), [1.5, -2.5]),
        ("string", StringType(), ["b", "a", "\U0001f600", "\uffff"]),
        ("bytes", BinaryType(), [b"\xff", b"\x00\x01"]),
    ],
)
def test_bounds_are_single_values(avro: str, iceberg: Any, values: list[Any]) -> None:
    (summary,) = summarise(fields(avro), [(value,) for value in values], None) or []
    assert summary.lower_bound == to_bytes(iceberg, min(values))
    assert summary.upper_bound == to_bytes(iceberg, max(values))
    assert (summary.contains_null, summary.contains_nan) == (False, False)


def test_nulls_and_nans_are_no_bounds() -> None:
    (summary,) = summarise(fields("double"), [(None,), (math.nan,)], None) or []
    assert summary == PartitionSummary(True, True, None, None)


def test_zero_bounds_have_the_sign_that_includes_both_zeros() -> None:
    (summary,) = summarise(fields("double"), [(0.0,), (-0.0,)], None) or []
    assert summary.lower_bound == to_bytes(DoubleType(), -0.0)
    assert summary.upper_bound == to_bytes(DoubleType(), 0.0)


def test_fixed_values_keep_the_wider_summary() -> None:
    wider = [PartitionSummary(True, None, b"\0\0", b"\xff\xff")]
    assert summarise(fields(FIXED), [(b"\1\1",)], wider) == wider
    assert summarise(fields(FIXED), [(b"\1\1",)], None) is None
    assert summarise(fields(FIXED), [(b"\1\1",)], []) is None


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UnreadableAvro, match="does not fit"):
        summarise(fields("int"), [(1 << 40,)], None)
