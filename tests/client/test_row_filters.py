"""Iceberg's filters on Arrow batches match the same rows as the catalog's own evaluator."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from frazil import col
from frazil.client.rows.row_filters import RowFilter
from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.values.types import TIMESTAMP_NS, UNKNOWN, NestedField, StructType
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import Expression
from tests.support.filter_cases import IDS, SCHEMA, TYPES, expected_matches, expressions, rows


def batch_of(given: list[dict[int, Any]]) -> pa.RecordBatch:
    """Return the rows in the types of files."""
    schema = arrow_schema(SCHEMA)
    columns = []
    for name in TYPES:
        type_ = schema.field(name).type
        values = [row.get(IDS[name]) for row in given]
        if isinstance(type_, pa.UuidType):
            stored = pa.array([value and value.bytes for value in values], pa.binary(16))
            columns.append(pa.ExtensionArray.from_storage(type_, stored))
        elif pa.types.is_temporal(type_):
            numbers = pa.int32() if pa.types.is_date(type_) else pa.int64()
            columns.append(pa.array(values, numbers).view(type_))
        else:
            columns.append(pa.array(values, type_))
    points = [{"x": row[51], "y": "y"} if 51 in row else None for row in given]
    columns.append(pa.array(points, schema.field("point").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def test_the_rows_are_those_of_the_catalogs_evaluator() -> None:
    given = rows()
    batch = batch_of(given)
    for expression in expressions():
        found = RowFilter(expression, SCHEMA).mask(batch).to_pylist()
        assert found == expected_matches(expression, given), expression


def test_nanoseconds_and_columns_that_are_always_null() -> None:
    schema = StructType(
        (NestedField(1, "at", TIMESTAMP_NS, False), NestedField(2, "nothing", UNKNOWN, False))
    )
    batch = pa.record_batch({"at": pa.array([5_000, 5_500, None], pa.timestamp("ns"))})
    at = "1970-01-01T00:00:00.0000055"
    cases: list[tuple[Expression, list[bool]]] = [
        (col("at") == at, [False, True, False]),
        (col("at") < at, [True, False, False]),
        (col("at") != at, [True, False, True]),
        (col("nothing").is_null(), [True, True, True]),
        (col("nothing").not_null(), [False, False, False]),
    ]
    for expression, expected in cases:
        assert RowFilter(expression, schema).mask(batch).to_pylist() == expected, expression


def test_only_the_columns_of_the_filter_are_read() -> None:
    expression = (col("point.x") == 1) & (col("big") > 2)
    assert [field.name for field in RowFilter(expression, SCHEMA).columns()] == ["big", "point"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col("nobody") == 1, "no column 'nobody'; the columns are flag"),
        (col("small") == "seven", "filter on small"),
        (col("price") == Decimal("0.001"), "more decimal places"),
        (col("name").is_nan(), "needs a float or double"),
        (col("small").starts_with("a"), "needs a string"),
        (col("point") == 1, "a struct has no order"),
    ],
)
def test_what_does_not_fit_is_refused(expression: Expression, message: str) -> None:
    row_filter = RowFilter(expression, SCHEMA)
    with pytest.raises(BadRequest, match=message):
        row_filter.mask(batch_of([{}]))
