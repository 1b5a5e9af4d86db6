"""SQL conditions become Iceberg expressions that match at least, or exactly, Spark's rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from frazil.format.expr.expression_binding import bind
from frazil.format.metadata.schema import parse_schema
from frazil.spark.conditions.sql_conditions import convert
from frazil.values.type_json import struct_to_json
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
from frazil.values.types import (
    UUID as UUID_TYPE,
)
from frazil.wire.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    Expression,
    all_of,
    any_of,
    parse_expression,
)
from frazil.wire.filter_builders import col, filter_json
from tests.support.row_evaluator import row_evaluator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def struct(**types: Type) -> StructType:
    fields = enumerate(types.items(), start=1)
    return StructType(tuple(NestedField(at, name, type_, False) for at, (name, type_) in fields))


POINT = StructType((NestedField(101, "x", INT, False), NestedField(102, "name", STRING, False)))
SCHEMA = struct(
    i=INT,
    l=LONG,
    f=FLOAT,
    d=DOUBLE,
    amount=DecimalType(9, 2),
    s=STRING,
    b=BOOLEAN,
    day=DATE,
    ts=TIMESTAMPTZ,
    n=TIMESTAMP,
    bin=BINARY,
    p=POINT,
    u=UUID_TYPE,
    fx=FixedType(2),
    ns=TIMESTAMP_NS,
)


def converted(text: str, alias: str | None = None, zone: str = "UTC") -> Any:
    return convert(text, SCHEMA, alias=alias, time_zone=zone)


def exact(text: str, alias: str | None = None, zone: str = "UTC") -> Expression:
    found = converted(text, alias, zone)
    assert found.exact, f"{text} is not exact: {found.expression}"
    expression: Expression = found.expression
    return expression


def at_least(text: str, alias: str | None = None, zone: str = "UTC") -> Expression:
    found = converted(text, alias, zone)
    assert not found.exact, f"{text} is exact: {found.expression}"
    expression: Expression = found.expression
    return expression


# --- single conditions ----------------------------------------------------------------------------


def test_comparisons_with_the_column_on_either_side() -> None:
    assert exact("i = 5") == (col("i") == 5)
    assert exact("5 < i") == (col("i") > 5)
    assert exact("i >= -5") == (col("i") >= -5)
    assert exact("i <> 5") == all_of(col("i").not_null(), col("i") != 5)


def test_names_are_found_as_spark_finds_them() -> None:
    assert exact("I = 1") == (col("i") == 1)
    assert exact("t.i = 1", alias="t") == (col("i") == 1)
    assert exact("T.`i` = 1", alias="t") == (col("i") == 1)
    assert exact("p.x = 1") == (col("p.x") == 1)
    assert exact("t.p.X = 1", alias="t") == (col("p.x") == 1)
    # The alias takes precedence, so p.x is not a field of the column p.
    assert exact("p.i = 1", alias="p") == (col("i") == 1)
    assert isinstance(at_least("other.i = 1", alias="t"), AlwaysTrue)
    sensitive = convert("I = 1", SCHEMA, case_sensitive=True)
    assert isinstance(sensitive.expression, AlwaysTrue)


def test_names_that_iceberg_cannot_tell_apart_say_nothing() -> None:
    schema = StructType(
        (
            NestedField(1, "a.b", INT, False),
            NestedField(2, "a", StructType((NestedField(3, "b", INT, False),)), False),
            NestedField(4, "C", INT, False),
            NestedField(5, "c", INT, False),
        )
    )
    assert isinstance(convert("`a.b` = 1", schema).expression, AlwaysTrue)
    assert isinstance(convert("a.b = 1", schema).expression, AlwaysTrue)
    assert isinstance(convert("c = 1", schema).expression, AlwaysTrue)
    assert convert("c = 1", schema, case_sensitive=True).expression == (col("c") == 1)


def test_null_makes_a_condition_neither_true_nor_false() -> None:
    for text in ("i = null", "not (i = null)", "i <> null", "null", "i not in (1, null)"):
        assert isinstance(exact(text), AlwaysFalse), text
    assert exact("i in (1, null)") == col("i").is_in([1])
    assert exact("i <=> null") == col("i").is_null()
    assert exact("not (i <=> 5)") == any_of(
        col("i").not_null() & (col("i") != 5), col("i").is_null()
    )


def test_negations_reach_the_predicates() -> None:
    assert exact("not (i = 1 or l > 2)") == all_of(
        col("i").not_null(), col("i") != 1, col("l") <= 2
    )
    assert exact("not (i = 1 and not b)") == any_of(
        col("i").not_null() & (col("i") != 1),
        col("b") == True,  # noqa: E712
    )
    assert exact("! (s like 'ab%')") == col("s").not_null() & col("s").not_starts_with("ab")


def test_parts_without_a_meaning_in_iceberg_count_as_true() -> None:
    assert at_least("i = 5 and lower(s) = 'x'") == (col("i") == 5)
    assert isinstance(at_least("i = 5 or lower(s) = 'x'"), AlwaysTrue)
    assert isinstance(at_least("i in (select 1)"), AlwaysTrue)
    assert isinstance(at_least("exists (select 1)"), AlwaysTrue)
    assert isinstance(at_least("i = l"), AlwaysTrue)
    assert isinstance(at_least("this is no SQL at all"), AlwaysTrue)
    # A part that is certainly false makes a conjunction false, whatever the other part is.
    assert isinstance(exact("false and lower(s) = 'x'"), AlwaysFalse)
    assert isinstance(exact("1 = 1"), AlwaysTrue)
    assert isinstance(exact("1 > 2 and rand() > 0.5"), AlwaysFalse)


def test_numbers_between_the_values_of_a_type() -> None:
    assert exact("i < 1.5") == (col("i") <= 1)
    assert exact("i > 1.5") == (col("i") >= 2)
    assert isinstance(exact("i = 1.5"), AlwaysFalse)
    assert exact("i <> 1.5") == col("i").not_null()
    assert exact("i < 3000000000") == col("i").not_null()
    assert isinstance(exact("i = -3000000000"), AlwaysFalse)
    assert exact("amount <= 1.005") == (col("amount") <= Decimal("1.00"))
    assert exact("amount > 10000000") == always_false_expression()
    # A double cannot represent every long this large.
    assert isinstance(at_least("l = 9007199254740993D"), AlwaysTrue)
    assert exact("l = 5e0") == (col("l") == 5)


def always_false_expression() -> Expression:
    return AlwaysFalse()


def test_floats_are_compared_as_spark_compares_them() -> None:
    assert exact("d > 1") == any_of(col("d") > 1.0, col("d").is_nan())
    assert exact("d < 0") == (col("d") < -0.0)
    assert exact("d = 0") == col("d").is_in([0.0, -0.0])
    assert isinstance(exact("f = 0.1"), AlwaysFalse)
    assert exact("f = 0.1F") == (col("f") == 0.10000000149011612)


def test_strings_with_backslashes_are_left_to_spark() -> None:
    assert isinstance(at_least(r"s = 'a\\b'"), AlwaysTrue)
    assert isinstance(at_least(r"s like 'a\_%'"), AlwaysTrue)
    assert isinstance(at_least("s = 'it''s'"), AlwaysTrue)
    assert at_least("s like 'ab_c%'") == col("s").starts_with("ab")
    assert exact("s like 'ab'") == (col("s") == "ab")
    assert isinstance(at_least("s like 'a!%' escape '!'"), AlwaysTrue)


def test_timestamps_are_of_the_session_time_zone() -> None:
    ten = "TIMESTAMP '2026-07-01 10:00:00'"
    found = exact(f"ts >= {ten}", zone="Europe/Berlin")
    assert found.to_json()["value"] == "2026-07-01T08:00:00+00:00"
    assert exact("ts >= DATE '2026-07-01'", zone="+02:00") == exact("ts >= '2026-06-30 22:00:00Z'")
    assert exact("n >= TIMESTAMP_NTZ '2026-07-01 10:00:00'", zone="Europe/Berlin") == (
        col("n") >= datetime(2026, 7, 1, 10)
    )
    assert exact(f"n >= {ten}", zone="UTC") == (col("n") >= datetime(2026, 7, 1, 10))
    # Where clocks change for summer time, local times and instants have different orders.
    assert at_least(f"n >= {ten}", zone="Europe/Berlin") == (col("n") >= datetime(2026, 6, 29, 10))
    assert isinstance(at_least(f"ts >= {ten}", zone="Nowhere/Land"), AlwaysTrue)


def test_nanoseconds_are_looked_for_within_a_microsecond() -> None:
    found = at_least("ns = TIMESTAMP_NTZ '2026-07-01 10:00:00.000001'")
    low, high = datetime(2026, 7, 1, 10), datetime(2026, 7, 1, 10, 0, 0, 2)
    assert found == all_of(col("ns") >= low, col("ns") <= high)


def test_uuids_are_texts_to_spark() -> None:
    text = "0198c5a2-7c1e-7000-8000-00000000000a"
    assert exact(f"u = '{text}'") == (col("u") == UUID(text))
    assert isinstance(at_least(f"u = '{text.upper()}'"), AlwaysTrue)
    assert isinstance(at_least(f"u > '{text}'"), AlwaysTrue)
    assert exact("fx = X'0102'") == (col("fx") == b"\x01\x02")
    assert isinstance(at_least("fx = X'01'"), AlwaysTrue)


# --- random conditions, judged by Spark -----------------------------------------------------------

CONDITIONS = 60
_FLOATS = [None, 0.0, -0.0, 1.5, -1.5, 0.1, 3.0, float("nan"), 1e10]
VALUES: dict[str, list[Any]] = {
    "i": [None, 0, 1, -1, 2, 7, 2**31 - 1, -(2**31)],
    "l": [None, 0, 1, -2, 2**53 + 1, 2**63 - 1],
    "f": _FLOATS,
    "d": _FLOATS,
    "amount": [None, Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("9999999.99")],
    "s": [None, "", "a", "ab", "abc", "b", "ä", "\U0001f600"],
    "b": [None, True, False],
    "day": [None, date(2026, 3, 29), date(2026, 3, 30), date(1969, 12, 31)],
    "ts": ["NULL", "2026-03-29 00:30:00Z", "2026-03-29 01:30:00Z", "1969-12-31 23:59:59.5Z"],
    "n": ["NULL", "2026-03-29 02:30:00", "2026-03-29 03:00:00", "1969-12-31 23:59:59.5"],
    "bin": [None, b"", b"\x00", b"\x01\xff", b"\x02"],
    "x": [None, 1, 5],
}
LITERALS: dict[str, list[str]] = {
    "i": ["0", "1", "-1", "1.5", "2.0", "2e0", "1.5D", "3000000000", "'7'", "7L", "-3e9", "null"],
    "l": ["0", "1L", "-2", "9007199254740993", "9007199254740992D", "1.25", "1e30", "'1'"],
    "f": ["0", "-0.0", "1.5", "0.1", "0.1F", "0.1D", "3", "1e10", "16777217", "null"],
    "d": ["0", "0.0", "1.5", "0.1", "0.1F", "-1.5D", "10000000000", "1e10"],
    "amount": ["0", "1.5", "1.505", "-1.50", "10000000", "9999999.995", "1.5D", "null"],
    "s": ["''", "'a'", "'ab'", "'ä'", "'\U0001f600'", "null"],
    "b": ["true", "false", "null"],
    "day": ["DATE '2026-03-29'", "'2026-03-30'", "DATE'1970-01-01'", "cast('2026-03-29' as date)"],
    "ts": [
        "TIMESTAMP '2026-03-29 02:30:00'",
        "'2026-03-29 01:30:00Z'",
        "DATE '2026-03-29'",
        "TIMESTAMP '2026-03-29 01:30:00+00:00'",
        "TIMESTAMP_NTZ '2026-03-29 03:00:00'",
    ],
    "n": [
        "TIMESTAMP_NTZ '2026-03-29 02:30:00'",
        "TIMESTAMP '2026-03-29 03:00:00'",
        "'2026-03-29 03:00:00'",
        "DATE '2026-03-29'",
    ],
    "bin": ["X''", "X'00'", "X'01FF'"],
    "p.x": ["1", "3", "null"],
}
PREFIXES = ["'a%'", "'ab%'", "'%'", "'a'", "'a_c%'", "'%b'"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>", "==", "!="]


def leaf(draw: random.Random) -> str:
    column = draw.choice(list(LITERALS))
    literals = LITERALS[column]
    kind = draw.randrange(10)
    if kind == 0:
        return f"{column} is {draw.choice(['', 'not '])}null"
    if kind == 1:
        chosen = draw.sample(literals, min(2, len(literals)))
        return f"{column} {draw.choice(['', 'not '])}in ({', '.join(chosen)})"
    if kind == 2:
        low, high = draw.choice(literals), draw.choice(literals)
        return f"{column} {draw.choice(['', 'not '])}between {low} and {high}"
    if kind == 3:
        return f"s {draw.choice(['', 'not '])}like {draw.choice(PREFIXES)}"
    if kind == 4:
        return draw.choice(
            [
                "b",
                "not b",
                "b is true",
                "b is not false",
                "isnan(d)",
                "isnull(f)",
                "true",
                "startswith(s, 'a')",
                "length(s) = 1",
                "i = l",
                "l % 2 = 1",
            ]
        )
    sides = [column, draw.choice(literals)]
    draw.shuffle(sides)
    return f"{sides[0]} {draw.choice(OPERATORS)} {sides[1]}"


def condition(draw: random.Random, depth: int) -> str:
    if depth == 0 or draw.random() < 0.3:
        return leaf(draw)
    if draw.random() < 0.25:
        return f"not ({condition(draw, depth - 1)})"
    joint = draw.choice(["and", "or"])
    return f"({condition(draw, depth - 1)} {joint} {condition(draw, depth - 1)})"


def _sql_value(name: str, value: Any) -> str:
    if value is None or value == "NULL":
        types = {"i": "int", "l": "bigint", "f": "float", "d": "double", "s": "string", "x": "int"}
        types |= {"amount": "decimal(9,2)", "b": "boolean", "day": "date", "ts": "timestamp"}
        types |= {"n": "timestamp_ntz", "bin": "binary"}
        return f"cast(null as {types[name]})"
    if name in ("f", "d"):
        return f"cast('{value!r}' as {'float' if name == 'f' else 'double'})"
    if name == "bin":
        return f"X'{value.hex()}'"
    text = {"s": f"'{value}'", "day": f"DATE '{value}'", "ts": f"TIMESTAMP '{value}'"}
    text |= {"n": f"TIMESTAMP_NTZ '{value}'", "l": f"{value}L", "b": str(value)}
    return text.get(name, str(value))


def sql_rows(draw: random.Random, count: int) -> str:
    lines = []
    for _ in range(count):
        parts = [
            f"{_sql_value(name, draw.choice(given))} as {name}" for name, given in VALUES.items()
        ]
        parts[-1] = f"named_struct('x', {parts[-1].removesuffix(' as x')}) as p"
        lines.append(f"select {', '.join(parts)}")
    return " union all ".join(lines)


def internal(row: Any) -> dict[int, Any]:
    """Convert a row from Spark to the form of Iceberg's evaluator."""
    values = row.asDict()
    found = {field.field_id: values.get(field.name) for field in SCHEMA.fields}
    by_name = {field.name: field.field_id for field in SCHEMA.fields}
    found[by_name["day"]], found[by_name["ts"]] = values["day_n"], values["ts_n"]
    found[by_name["n"]] = values["n_n"]
    if values["bin"] is not None:
        found[by_name["bin"]] = bytes(values["bin"])
    found[101] = values["p"]["x"]
    return found


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", str(before))


def test_random_conditions_match_at_least_what_spark_matches(
    spark: SparkSession, zone: str, tmp_path: Path
) -> None:
    draw = random.Random(f"conditions in {zone}")
    texts = [condition(draw, 2) for _ in range(CONDITIONS)]
    # Use a file, so that the optimizer does not try to compute each result during planning.
    place = f"{tmp_path}/rows"
    spark.sql(sql_rows(draw, 50)).coalesce(1).write.parquet(place)
    days = "unix_date(day) day_n"
    times = "unix_micros(ts) ts_n, unix_micros(cast(concat(n, 'Z') as timestamp)) n_n"
    tests = ", ".join(f"coalesce({text}, false) as c{at}" for at, text in enumerate(texts))
    frame = spark.sql(f"select *, {days}, {times}, {tests} from parquet.`{place}`")
    rows = frame.collect()
    schema = parse_schema(msgspec.json.encode(struct_to_json(SCHEMA)))
    is_exact = 0
    for at, text in enumerate(texts):
        found = convert(text, SCHEMA, time_zone=zone)
        is_exact += found.exact
        matches = row_evaluator(bind(parse_expression(filter_json(found.expression)), schema))
        for row in rows:
            here = matches(internal(row))
            wanted = row[f"c{at}"]
            assert here or not wanted, f"{text} misses {row}: {found}"
            assert here == wanted or not found.exact, f"{text} is not exact for {row}: {found}"
    assert is_exact > CONDITIONS // 4, "hardly any condition was exact"
