"""Iceberg's filters as Spark conditions match the same rows as the catalog's own evaluator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest

from frazil.format.expr.expression_binding import bind
from frazil.format.metadata.schema import Schema
from frazil.spark.conditions.iceberg_filters import (
    names_in,
    renamed,
    spark_condition,
    top_field,
)
from frazil.values import types
from frazil.values.type_json import parse_struct, struct_to_json
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
from frazil.wire.expressions import Expression, parse_expression
from frazil.wire.filter_builders import (
    Operand,
    always_false,
    always_true,
    bucket,
    col,
    day,
    expression_of,
    hour,
    month,
    truncate,
    year,
)
from tests.support.row_evaluator import row_evaluator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MICROS: Final = 86_400_000_000
TYPES: Final[dict[str, Type]] = {
    "flag": BOOLEAN,
    "small": INT,
    "big": LONG,
    "single": FLOAT,
    "number": DOUBLE,
    "price": DecimalType(9, 2),
    "born": DATE,
    "local": TIMESTAMP,
    "instant": TIMESTAMPTZ,
    "name": STRING,
    "token": types.UUID,
    "four": FixedType(4),
    "blob": BINARY,
    "odd `name`": LONG,
}
SCHEMA: Final = StructType(
    (
        *(NestedField(at, name, type_, False) for at, (name, type_) in enumerate(TYPES.items(), 1)),
        NestedField(
            50,
            "point",
            StructType((NestedField(51, "x", LONG, False), NestedField(52, "y", STRING, True))),
            False,
        ),
    )
)
IDS: Final = {field.name: field.field_id for field in SCHEMA.fields} | {"point.x": 51}
VALUES: Final[dict[str, list[Any]]] = {
    "flag": [True, False],
    "small": [-(2**31), -1, 0, 7, 2**31 - 1],
    "big": [-(2**63), 3, 2**63 - 1],
    "single": [-math.inf, -1.5, 0.25, math.inf, math.nan],
    "number": [-math.inf, -1.5, 0.1, 5.0, math.inf, math.nan],
    "price": [Decimal("-1.00"), Decimal("0.01"), Decimal("9999999.99")],
    "born": [-1, 0, 20_000],
    "local": [-1, 0, 20_000 * DAY_MICROS + 1],
    "instant": [-1, 0, 20_000 * DAY_MICROS + 1],
    "name": ["", "a", "ab", "b", "ü%_"],
    "token": [UUID(int=1), UUID(int=2**127 + 5)],
    "four": [b"\0\0\0\0", b"\x7f\x80\xff\0"],
    "blob": [b"", b"\x80", b"ab"],
    "odd `name`": [1, 2],
    "point.x": [4, 5],
}


def operands() -> Iterator[tuple[Operand, list[Any]]]:
    yield col("small"), [7, -(2**31), 2**31, -(2**40), 2**62]
    yield col("big"), [3, 2**63 - 1, -(2**63)]
    yield col("single"), [0.25, 0.1, 1e300, -1e300, 7]
    yield col("number"), [0.1, 5, -1.5]
    yield col("price"), [Decimal("0.01"), 0, "9999999.99", Decimal("1e20"), -(10**9)]
    yield col("born"), [date(1970, 1, 1), date(2024, 10, 4), date(1969, 12, 31)]
    yield col("local"), [datetime(1970, 1, 1), datetime(2024, 10, 4, 0, 0, 0, 1)]
    east = timezone(timedelta(hours=5, minutes=30))
    yield (
        col("instant"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 10, 4, 5, 30, 0, 1, east)],
    )
    yield col("name"), ["a", "ü%_", ""]
    yield col("token"), [UUID(int=1), UUID(int=2**127 + 5)]
    yield col("four"), [b"\x7f\x80\xff\0"]
    yield col("blob"), [b"", b"\x80"]
    yield col("odd `name`"), [1]
    yield col("point.x"), [4]
    yield bucket(4, "big"), [2]
    yield truncate(10, "small"), [-10]
    yield truncate(1, "name"), ["ü"]
    yield year("born"), [54]
    yield month("local"), [657]
    yield day("instant"), [date(1969, 12, 31)]
    yield hour("local"), [-1]


def expressions() -> Iterator[Expression]:
    yield always_true()
    yield always_false()
    yield col("flag") == True  # noqa: E712
    yield col("flag") != True  # noqa: E712
    for operand, values in operands():
        yield operand.is_null()
        yield operand.not_null()
        yield operand.is_in(values)
        yield operand.not_in(values)
        for value in values:
            yield operand == value
            yield operand != value
            yield operand < value
            yield operand <= value
            yield operand > value
            yield operand >= value
    for name in ("single", "number"):
        yield col(name).is_nan()
        yield col(name).not_nan()
    for prefix in ("", "a", "ü%"):
        yield col("name").starts_with(prefix)
        yield col("name").not_starts_with(prefix)
    yield col("point").is_null()
    low, high = col("small") > 0, col("number") < 1
    yield ~(low & ~(high | col("name").is_in(["a", "b"])))
    yield ~(low | high) & ~col("name").starts_with("a")
    yield ~~low | ~always_true()


def rows() -> list[dict[int, Any]]:
    """Return rows by field id: every value of every column, and a row of nulls."""
    found: list[dict[int, Any]] = [{}]
    found += [{IDS[name]: value} for name, values in VALUES.items() for value in values]
    return [row | {50: {}} if 51 in row else row for row in found]


def test_the_rows_are_those_of_the_catalogs_evaluator(spark: SparkSession) -> None:
    given, wanted = rows(), list(expressions())
    frame = spark.createDataFrame(table_of(given))
    conditions = [
        spark_condition(one, SCHEMA).alias(f"c{place}") for place, one in enumerate(wanted)
    ]
    answers = sorted(frame.select("row", *conditions).collect(), key=lambda found: found["row"])
    raw = msgspec.json.encode({**struct_to_json(SCHEMA), "schema-id": 0})
    schema = Schema(raw, 0, SCHEMA, ())
    for place, expression in enumerate(wanted):
        matches = row_evaluator(bind(parse_expression(expression.to_json()), schema))
        expected = [bool(matches(row)) for row in given]
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
