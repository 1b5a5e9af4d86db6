"""What a MERGE reads from its target follows from ON and the keys of its source."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pyspark.sql.types as st
import pytest

from frazil.client.declare.client_table import Table
from frazil.format.expr.expression_binding import bind
from frazil.format.metadata.schema import parse_schema
from frazil.spark.conditions.merge_conditions import (
    MAX_KEYS,
    RANGED_KEYS,
    KeyValues,
    OnParts,
    SourceNames,
    conjuncts,
    key_filter,
    merge_filter,
    on_parts,
)
from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.conditions.sql_constants import Zone
from frazil.spark.rows.merge_filter import collected_keys, is_sound
from frazil.spark.rows.merge_frames import numbered_source
from frazil.values import transforms
from frazil.values.transforms import parse_transform
from frazil.values.type_json import struct_to_json
from frazil.values.types import (
    BINARY,
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
from frazil.values.types import UUID as UUID_TYPE
from frazil.wire.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    Expression,
    all_of,
    any_of,
    parse_expression,
)
from frazil.wire.filter_builders import bucket, col, filter_json
from frazil.wire.identifiers import Identifier
from tests.support.row_evaluator import row_evaluator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINT = StructType((NestedField(5, "x", INT, False),))
SCHEMA = StructType(
    (
        NestedField(1, "id", LONG, False),
        NestedField(2, "name", STRING, False),
        NestedField(3, "day", DATE, False),
        NestedField(4, "p", POINT, False),
    )
)
TARGET = ColumnNames(SCHEMA, "t")
SOURCE = SourceNames(("id", "name", "k", "v"), "s")


def parts(on: str) -> OnParts:
    return on_parts(on, TARGET, SOURCE, Zone("UTC"))


def keys(on: str) -> list[tuple[str, str, bool]]:
    return [(key.column.name, key.source, key.null_safe) for key in parts(on).keys]


# --- ON -------------------------------------------------------------------------------------------


def test_keys_are_conjuncts_that_tie_a_target_column_to_the_source() -> None:
    assert keys("t.id = s.id") == [("id", "s.id", False)]
    assert keys("s.id = t.id") == [("id", "s.id", False)]
    assert keys("day = k") == [("day", "k", False)]
    assert keys("t.name <=> upper(s.name)") == [("name", "upper(s.name)", True)]
    assert keys("t.p.x = s.k + 1 and (t.id == s.id)") == [
        ("p.x", "s.k + 1", False),
        ("id", "s.id", False),
    ]
    assert keys("t.id = case when s.id = 1 and s.k = 2 then 3 else s.k end") == [
        ("id", "case when s.id = 1 and s.k = 2 then 3 else s.k end", False)
    ]


@pytest.mark.parametrize(
    "on",
    [
        "t.id = s.id or t.name = s.name",
        "not (t.id = s.id)",
        "t.id > s.id",
        "t.id + 1 = s.id",
        "t.id = s.id + t.day",
        "t.id = t.p.x",
        "t.id = (select max(id) from other)",
        "t.id = s.id + rand()",
        "t.id = my_function(s.id)",
        "id = s.id",
        "t.id in (s.id, s.k)",
        "true",
    ],
)
def test_what_ties_nothing_certain_gives_no_key(on: str) -> None:
    found = parts(on)
    assert found.keys == ()
    assert isinstance(found.target_only, AlwaysTrue)


def test_conjuncts_about_the_target_alone_are_kept() -> None:
    found = parts("t.id = s.id and t.day between '2026-05-01' and '2026-05-02' and s.k > 5")
    assert [key.column.name for key in found.keys] == ["id"]
    first, last = date(2026, 5, 1), date(2026, 5, 2)
    assert found.target_only == all_of(col("day") >= first, col("day") <= last)


def test_conjuncts_are_cut_where_the_outermost_and_stands() -> None:
    assert conjuncts("((a = 1 and (b = 2)))") == ["a = 1 ", "b = 2"]
    assert conjuncts("a between 1 and 2 and b = 'x and y'") == [
        "a between 1 and 2 ",
        " b = 'x and y'",
    ]
    assert conjuncts("(a = 1) and (b = 2) or c") == ["(a = 1) and (b = 2) or c"]
    assert conjuncts("f(a and b) and not c") == ["f(a and b) ", " not c"]


# --- keys -----------------------------------------------------------------------------------------


def key_values(type_: Type, given: list[Any], specs: tuple[str, ...] = ()) -> KeyValues:
    """Build the keys as Spark would have collected them."""
    numbers = [value for value in given if value is not None and value == value]
    distinct = frozenset(numbers)
    return KeyValues(
        name="k",
        type=type_,
        has_null=None in given,
        has_nan=any(value is not None and value != value for value in given),
        lowest=min(numbers, default=None),
        highest=max(numbers, default=None),
        values=distinct if len(distinct) <= MAX_KEYS else None,
        transformed={
            text: frozenset(
                transforms.apply(parse_transform(text), type_, value) for value in distinct
            )
            for text in specs
        },
    )


def test_few_keys_are_listed() -> None:
    assert key_filter(key_values(LONG, [3, 1, 3])) == col("k").is_in([1, 3])
    assert isinstance(key_filter(key_values(LONG, [])), AlwaysFalse)


def test_nulls_count_where_they_match() -> None:
    assert key_filter(key_values(LONG, [1, None])) == any_of(
        col("k").is_in([1]), col("k").is_null()
    )


def test_a_long_list_has_a_range_beside_it() -> None:
    found = key_filter(key_values(LONG, list(range(RANGED_KEYS + 1))))
    listed = col("k").is_in(range(RANGED_KEYS + 1))
    assert found == all_of(listed, col("k") >= 0, col("k") <= RANGED_KEYS)


def test_many_keys_are_told_by_transforms_and_a_range() -> None:
    many = [16 * at for at in range(MAX_KEYS + 1)]
    found = key_values(LONG, many, ("bucket[4]",))
    ranged = (col("k") >= 0, col("k") <= 16 * MAX_KEYS)
    assert key_filter(found) == all_of(bucket(4, "k").is_in([0, 1, 2, 3]), *ranged)


def test_floats_have_two_zeros_and_nan() -> None:
    found = key_filter(key_values(DOUBLE, [0.0, 1.5, float("nan")]))
    assert found == any_of(col("k").is_in([-0.0, 0.0, 1.5]), col("k").is_nan())
    assert isinstance(key_filter(key_values(DOUBLE, [float("inf")])), AlwaysTrue)


def test_nanoseconds_are_told_by_the_range_of_their_microseconds() -> None:
    found = key_filter(key_values(TIMESTAMP_NS, [1_000_000]))
    assert found.to_json()["left"]["value"] == "1970-01-01T00:00:01.000000000"
    assert found.to_json()["right"]["value"] == "1970-01-01T00:00:01.000000999"


_RANDOM_KEYS: dict[str, tuple[Type, tuple[str, ...], Callable[[random.Random], Any]]] = {
    "long": (LONG, ("bucket[8]", "truncate[10]"), lambda draw: draw.randint(-5000, 5000)),
    "string": (STRING, ("bucket[4]",), lambda draw: str(draw.randint(0, 4000))),
    "date": (DATE, ("month", "year"), lambda draw: draw.randint(-4000, 4000)),
    "timestamp": (TIMESTAMP, ("day", "hour"), lambda draw: draw.randint(-(10**14), 10**14)),
    "decimal": (
        DecimalType(9, 2),
        ("bucket[8]", "truncate[50]"),
        lambda draw: Decimal(draw.randint(-50000, 50000)).scaleb(-2),
    ),
    "double": (DOUBLE, (), lambda draw: draw.choice([0.0, -0.0, 0.5]) * draw.randint(-9999, 9999)),
    "uuid": (UUID_TYPE, ("bucket[4]",), lambda draw: UUID(int=draw.randrange(5000) << 100)),
    "binary": (BINARY, (), lambda draw: draw.randbytes(2)),
}


@pytest.mark.parametrize("count", [3, 500, 3000])
@pytest.mark.parametrize("name", list(_RANDOM_KEYS))
def test_a_row_that_has_one_of_the_keys_always_matches(name: str, count: int) -> None:
    type_, specs, make = _RANDOM_KEYS[name]
    draw = random.Random(f"{name} {count}")
    given = [make(draw) for _ in range(count)]
    matches = evaluator(type_, key_filter(key_values(type_, given, specs)))
    for value in given:
        assert matches({1: value}), value
        if value == 0 and isinstance(value, float):
            assert matches({1: -value})
    assert not matches({1: None})
    if count == 3 and name != "binary":
        others = [make(draw) for _ in range(200)]
        assert any(not matches({1: value}) for value in others), "the filter leaves nothing out"


def evaluator(type_: Type, expression: Expression) -> Callable[[dict[int, Any]], bool]:
    struct = StructType((NestedField(1, "k", type_, False),))
    schema = parse_schema(msgspec.json.encode(struct_to_json(struct)))
    return row_evaluator(bind(parse_expression(filter_json(expression)), schema))


# --- the whole ------------------------------------------------------------------------------------


def test_the_filter_of_a_merge() -> None:
    key, day, old = col("id").is_in([1]), col("day") == date(2026, 5, 1), col("id") < 0
    assert merge_filter([key], AlwaysTrue(), []) == key
    assert merge_filter([key], day, []) == all_of(key, day)
    assert merge_filter([], day, []) == day
    assert merge_filter([key], day, [old]) == any_of(all_of(key, day), old)
    assert isinstance(merge_filter([key], day, [AlwaysTrue()]), AlwaysTrue)
    assert isinstance(merge_filter([AlwaysFalse()], day, []), AlwaysFalse)


@pytest.mark.parametrize(
    ("target", "key", "sound"),
    [
        (LONG, st.IntegerType(), True),
        (INT, st.LongType(), True),
        (INT, st.DoubleType(), True),
        (INT, st.FloatType(), False),
        (LONG, st.DoubleType(), False),
        (LONG, st.StringType(), False),
        (LONG, st.DecimalType(20, 2), True),
        (LONG, st.DecimalType(38, 30), False),
        (DOUBLE, st.LongType(), True),
        (FLOAT, st.DoubleType(), True),
        (FLOAT, st.IntegerType(), False),
        (DecimalType(9, 2), st.LongType(), True),
        (DecimalType(9, 2), st.DecimalType(12, 4), True),
        (DecimalType(38, 10), st.DecimalType(38, 2), False),
        (DecimalType(9, 2), st.DoubleType(), False),
        (STRING, st.StringType(), True),
        (STRING, st.IntegerType(), False),
        (DATE, st.DateType(), True),
        (DATE, st.TimestampType(), False),
        (TIMESTAMPTZ, st.DateType(), True),
        (TIMESTAMPTZ, st.TimestampNTZType(), False),
        (TIMESTAMP, st.TimestampNTZType(), True),
        (FixedType(4), st.BinaryType(), True),
        (POINT, st.StringType(), False),
    ],
    ids=str,
)
def test_keys_count_only_where_the_cast_to_the_target_loses_no_match(
    target: Type, key: st.DataType, sound: bool
) -> None:
    assert is_sound(target, key) is sound


# --- keys collected by Spark ----------------------------------------------------------------------

WIDE = StructType(
    (
        NestedField(1, "id", INT, False),
        NestedField(2, "ts", TIMESTAMPTZ, False),
        NestedField(3, "local", TIMESTAMP, False),
        NestedField(4, "day", DATE, False),
        NestedField(5, "amount", DecimalType(9, 2), False),
        NestedField(6, "u", UUID_TYPE, False),
        NestedField(7, "f", DOUBLE, False),
        NestedField(8, "fx", FixedType(2), False),
        NestedField(9, "n", LONG, False),
    )
)


def wide_table() -> Table:
    spec = [
        {"source-id": 9, "field-id": 1000, "name": "b", "transform": "bucket[4]"},
        {"source-id": 9, "field-id": 1001, "name": "t", "transform": "truncate[1000]"},
        {"source-id": 9, "field-id": 1002, "name": "i", "transform": "identity"},
    ]
    metadata = {
        "schemas": [{**struct_to_json(WIDE), "schema-id": 0}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": spec}],
        "default-spec-id": 0,
    }
    return Table(Identifier(("ns",), "t"), metadata, "file:///nowhere")


def test_keys_are_collected_in_the_types_of_the_target(spark: SparkSession) -> None:
    source = spark.sql(
        """select * from values
        (1L, timestamp'2026-05-01 10:00:00+02:00', timestamp_ntz'2026-05-01 10:00:00',
         date'2026-05-01', 1.5, '0198c5a2-7c1e-7000-8000-00000000000a', 0.0D, X'0102'),
        (3000000000L, null, null, date'9999-12-31', 2.505, 'no uuid', double('nan'), X'01'),
        (null, null, null, null, null, null, null, null)
        as s(id, ts, local, day, amount, u, f, fx)"""
    )
    source = numbered_source(source).alias("s")
    names = [field.name for field in WIDE.fields[:-1]]
    target = ColumnNames(WIDE, "t")
    on = " and ".join(f"t.{name} <=> s.{name}" for name in names)
    found = on_parts(on, target, SourceNames(tuple(source.columns), "s"), Zone("UTC"))
    keys, _ = collected_keys(wide_table(), source, found.keys)
    collected = {one.name: one for one in keys}

    def values(name: str) -> set[Any]:
        return set(collected[name].values or ())

    assert values("id") == {1}, "a long that no int equals is left out"
    at = datetime(2026, 5, 1, 8)
    micros = int((at - datetime(1970, 1, 1)).total_seconds()) * 1_000_000
    assert values("ts") == {micros}
    assert values("local") == {micros + 2 * 3_600_000_000}
    assert values("day") == {20574, 2932896}
    assert values("amount") == {Decimal("1.50"), Decimal("2.51")}
    assert values("u") == {UUID("0198c5a2-7c1e-7000-8000-00000000000a")}
    assert values("f") == {0.0}
    assert collected["f"].has_nan
    assert values("fx") == {b"\x01\x02"}
    assert all(one.has_null for one in collected.values())
    assert not isinstance(
        merge_filter(map(key_filter, collected.values()), AlwaysTrue(), []), AlwaysTrue
    )


def test_of_many_keys_the_transforms_of_the_partitions_are_collected(spark: SparkSession) -> None:
    source = numbered_source(spark.range(0, 4000, 2).toDF("n")).alias("s")
    target = ColumnNames(WIDE, "t")
    found = on_parts("t.n = s.n", target, SourceNames(("n",), "s"), Zone("UTC"))
    (one,), source_rows = collected_keys(wide_table(), source, found.keys)
    assert source_rows == 2000
    assert one.values is None
    assert (one.lowest, one.highest, one.has_null) == (0, 3998, False)
    assert one.transformed == {
        "bucket[4]": frozenset({0, 1, 2, 3}),
        "truncate[1000]": frozenset({0, 1000, 2000, 3000}),
    }


@pytest.mark.parametrize(("rows", "distinct"), [(40_000, 40), (40_000, 1_000), (1_200, 1_200)])
def test_keys_are_counted_and_not_the_rows_that_have_them(
    spark: SparkSession, rows: int, distinct: int
) -> None:
    source = numbered_source(spark.range(rows).selectExpr(f"id % {distinct} AS n")).alias("s")
    found = on_parts("t.n = s.n", ColumnNames(WIDE, "t"), SourceNames(("n",), "s"), Zone("UTC"))
    (one,), source_rows = collected_keys(wide_table(), source, found.keys)
    assert source_rows == rows
    assert one.values == frozenset(range(distinct))
