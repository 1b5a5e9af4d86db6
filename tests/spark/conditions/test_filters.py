"""Iceberg's filters as Spark conditions match the same rows as the catalog's own evaluator."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from frazil.spark.conditions.iceberg_filters import (
    names_in,
    renamed,
    spark_condition,
    top_field,
)
from frazil.values import types
from frazil.values.type_json import parse_struct
from frazil.values.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    DecimalType,
    FixedType,
    NestedField,
    StructType,
    Type,
)
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import Expression
from frazil.wire.filter_builders import (
    always_true,
    bucket,
    col,
    expression_of,
)
from tests.support.filter_cases import IDS, SCHEMA, TYPES, expected_matches, expressions, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_rows_are_those_of_the_catalogs_evaluator(spark: SparkSession) -> None:
    given, wanted = rows(), list(expressions())
    frame = spark.createDataFrame(table_of(given))
    conditions = [
        spark_condition(one, SCHEMA).alias(f"c{place}") for place, one in enumerate(wanted)
    ]
    answers = sorted(frame.select("row", *conditions).collect(), key=lambda found: found["row"])
    for place, expression in enumerate(wanted):
        expected = expected_matches(expression, given)
        assert [found[place + 1] for found in answers] == expected, expression


def table_of(given: list[dict[int, Any]]) -> pa.Table:
    """Return the rows as Spark stores them, numbered."""
    arrow: dict[Type, Any] = {
        DATE: (pa.int32(), pa.date32()),
        TIMESTAMP: (pa.int64(), pa.timestamp("us")),
        TIMESTAMPTZ: (pa.int64(), pa.timestamp("us", "UTC")),
    }
    plain: dict[Type, Any] = {
        BOOLEAN: pa.bool_(),
        INT: pa.int32(),
        LONG: pa.int64(),
        FLOAT: pa.float32(),
        DOUBLE: pa.float64(),
        DecimalType(9, 2): pa.decimal128(9, 2),
        STRING: pa.string(),
        types.UUID: pa.string(),
        FixedType(4): pa.binary(),
        BINARY: pa.binary(),
    }
    columns: dict[str, Any] = {"row": pa.array(range(len(given)))}
    for name, type_ in TYPES.items():
        values = [row.get(IDS[name]) for row in given]
        if type_ == types.UUID:
            values = [None if value is None else str(value) for value in values]
        stored, shown = arrow.get(type_, (plain.get(type_), plain.get(type_)))
        columns[name] = pa.array(values, stored).view(shown)
    point = pa.struct([("x", pa.int64()), pa.field("y", pa.string(), nullable=False)])
    points = [{"x": row[51], "y": "y"} if 51 in row else None for row in given]
    columns["point"] = pa.array(points, point)
    return pa.table(columns)


def test_nanoseconds_are_compared_with_what_spark_has_of_them(spark: SparkSession) -> None:
    schema = StructType((NestedField(1, "at", TIMESTAMP_NS, False),))
    frame = spark.createDataFrame(pa.table({"at": pa.array([5, 6, None], pa.timestamp("us"))}))
    text = "1970-01-01T00:00:00.000005{}"
    between, whole = text.format("500"), text.format("")
    expected = {
        col("at") < between: [True, False, False],
        col("at") >= between: [False, True, False],
        col("at") == between: [False, False, False],
        col("at") != between: [True, True, True],
        col("at") == whole: [True, False, False],
        col("at").is_in([whole, between]): [True, False, False],
    }
    wanted = [spark_condition(one, schema).alias(f"c{place}") for place, one in enumerate(expected)]
    answers = frame.select(*wanted).collect()
    assert [list(column) for column in zip(*answers, strict=True)] == list(expected.values())


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col("nobody") == 1, "no column 'nobody'"),
        (col("small") == "seven", "filter on small"),
        (col("price") == Decimal("0.001"), "more decimal places"),
        (col("name").is_nan(), "needs a float or double"),
        (col("small").starts_with("a"), "needs a string"),
    ],
    ids=["column", "value", "places", "nan", "prefix"],
)
def test_what_does_not_fit_is_refused(
    spark: SparkSession, expression: Expression, message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        spark_condition(expression, SCHEMA)


def test_filters_come_in_three_forms() -> None:
    expression = (col("small") > 5) & ~col("name").starts_with("a") | (bucket(4, "big") == 3)
    text = "small > 5 and not name like 'a%' or bucket(4, big) = 3"
    assert expression_of(text) == expression == expression_of(expression)
    for one in expressions():
        assert expression_of(one.to_json()).to_json() == one.to_json()
    for wrong in ({"type": "is"}, {"type": "eq", "term": 5}, {"type": "in", "term": "a"}):
        with pytest.raises(BadRequest, match="filter"):
            expression_of(wrong)


def test_names_of_another_schema() -> None:
    now = parse_struct(
        {
            "fields": [
                {"id": 51, "name": "big", "required": False, "type": "long"},
                {"id": 3, "name": "large", "required": False, "type": "long"},
            ]
        },
        "schema",
    )
    expression = ~(col("big") > 1) & (bucket(4, "point.x") == 2) | always_true() & (col("big") < 0)
    assert set(names_in(expression)) == {"big", "point.x"}
    expected = ~(col("large") > 1) & (bucket(4, "big") == 2) | (col("large") < 0)
    assert renamed(expression, SCHEMA, now) == expected
    assert renamed(col("small") > 1, SCHEMA, now) is None
    assert top_field("point.x", SCHEMA).name == "point"
