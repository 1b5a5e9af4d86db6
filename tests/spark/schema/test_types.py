"""Iceberg's types convert to Spark's and back."""

from __future__ import annotations

from itertools import count

import pyspark.sql.types as st
import pytest

from frazil.spark.schema.spark_types import iceberg_schema, iceberg_type, spark_schema, spark_type
from frazil.values import types as it
from frazil.values.types import (
    DecimalType,
    FixedType,
    GeographyType,
    GeometryType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
)
from frazil.wire.errors import BadRequest

BOTH_WAYS: list[tuple[Type, st.DataType]] = [
    (it.BOOLEAN, st.BooleanType()),
    (it.INT, st.IntegerType()),
    (it.LONG, st.LongType()),
    (it.FLOAT, st.FloatType()),
    (it.DOUBLE, st.DoubleType()),
    (DecimalType(10, 2), st.DecimalType(10, 2)),
    (it.DATE, st.DateType()),
    (it.TIME, st.TimeType(6)),
    (it.TIMESTAMP, st.TimestampNTZType()),
    (it.TIMESTAMPTZ, st.TimestampType()),
    (it.STRING, st.StringType()),
    (it.BINARY, st.BinaryType()),
    (it.UNKNOWN, st.NullType()),
    (it.VARIANT, st.VariantType()),
    (GeometryType(), st.GeometryType(4326)),
    (GeometryType("EPSG:3857"), st.GeometryType(3857)),
    (GeographyType(), st.GeographyType(4326)),
]
ONLY_TO_SPARK: list[tuple[Type, st.DataType]] = [
    (it.TIMESTAMP_NS, st.TimestampNTZType()),
    (it.TIMESTAMPTZ_NS, st.TimestampType()),
    (it.UUID, st.StringType()),
    (FixedType(4), st.BinaryType()),
]
ONLY_FROM_SPARK: list[tuple[Type, st.DataType]] = [
    (it.INT, st.ByteType()),
    (it.INT, st.ShortType()),
    (it.STRING, st.VarcharType(3)),
    (it.STRING, st.CharType(3)),
]


@pytest.mark.parametrize(("iceberg", "spark"), [*BOTH_WAYS, *ONLY_TO_SPARK], ids=str)
def test_spark_has_a_type_for_each(iceberg: Type, spark: st.DataType) -> None:
    assert spark_type(iceberg) == spark


@pytest.mark.parametrize(("iceberg", "spark"), [*BOTH_WAYS, *ONLY_FROM_SPARK], ids=str)
def test_iceberg_has_a_type_for_each(iceberg: Type, spark: st.DataType) -> None:
    assert iceberg_type(spark, count(1)) == iceberg


NESTED = StructType(
    (
        NestedField(1, "id", it.LONG, True, "the key"),
        NestedField(
            2,
            "points",
            ListType(
                NestedField(
                    4,
                    "element",
                    StructType(
                        (NestedField(7, "x", it.INT, True), NestedField(8, "y", it.INT, False))
                    ),
                    True,
                )
            ),
            False,
        ),
        NestedField(
            3,
            "tags",
            MapType(
                NestedField(5, "key", it.STRING, True),
                NestedField(6, "value", DecimalType(5, 1), False),
            ),
            False,
        ),
    )
)


def test_nested_types_keep_names_nullability_and_comments() -> None:
    found = spark_schema(NESTED)
    assert found.simpleString() == (
        "struct<id:bigint,points:array<struct<x:int,y:int>>,tags:map<string,decimal(5,1)>>"
    )
    assert not found["id"].nullable
    assert found["id"].metadata == {"comment": "the key"}
    points = found["points"].dataType
    assert isinstance(points, st.ArrayType)
    assert not points.containsNull
    assert isinstance(points.elementType, st.StructType)
    assert not points.elementType["x"].nullable
    tags = found["tags"].dataType
    assert isinstance(tags, st.MapType)
    assert tags.valueContainsNull


def test_field_ids_are_where_sparks_parquet_writer_looks_for_them() -> None:
    found = spark_schema(NESTED, field_ids=True)
    assert [field.metadata["parquet.field.id"] for field in found.fields] == [1, 2, 3]
    points = found["points"].dataType
    assert isinstance(points, st.ArrayType)
    assert isinstance(points.elementType, st.StructType)
    assert [field.metadata["parquet.field.id"] for field in points.elementType] == [7, 8]


def test_fresh_ids_go_level_by_level_within_a_column() -> None:
    found = iceberg_schema(spark_schema(NESTED))
    assert [field.field_id for field in found.fields] == [1, 2, 3]
    points, tags = found.fields[1].type, found.fields[2].type
    assert isinstance(points, ListType)
    assert isinstance(points.element.type, StructType)
    assert isinstance(tags, MapType)
    assert points.element.field_id == 4
    assert [field.field_id for field in points.element.type.fields] == [5, 6]
    assert (tags.key.field_id, tags.value.field_id) == (7, 8)


def test_a_query_promises_no_required_columns() -> None:
    found = iceberg_schema(spark_schema(NESTED))
    points, tags = found.fields[1].type, found.fields[2].type
    assert isinstance(points, ListType)
    assert isinstance(tags, MapType)
    assert found.fields[0] == NestedField(1, "id", it.LONG, False, "the key")
    assert not points.element.required
    assert tags.key.required
    assert not tags.value.required


def test_what_spark_cannot_hold_names_the_column() -> None:
    strange = GeometryType("EPSG:31467")
    inner = StructType((NestedField(2, "place", strange, False),))
    with pytest.raises(BadRequest, match=r"column site\.place: .*EPSG:31467"):
        spark_schema(StructType((NestedField(1, "site", inner, False),)))
    edges = GeographyType("OGC:CRS84", it.EdgeAlgorithm.KARNEY)
    with pytest.raises(BadRequest, match=r"column way: .*karney"):
        spark_schema(StructType((NestedField(1, "way", edges, False),)))


def test_a_spark_without_a_type_says_which_one_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(st, "TimeType")
    monkeypatch.delattr(st, "VariantType")
    with pytest.raises(BadRequest, match=r"column at: .*time.*4\.1"):
        spark_schema(StructType((NestedField(1, "at", it.TIME, False),)))
    with pytest.raises(BadRequest, match=r"variant.*4\.0"):
        spark_type(it.VARIANT)


@pytest.mark.parametrize(
    "strange",
    [st.CalendarIntervalType(), st.DayTimeIntervalType(), st.GeometryType("ANY")],
    ids=str,
)
def test_what_iceberg_cannot_hold_names_the_column(strange: st.DataType) -> None:
    frame = st.StructType([st.StructField("a", st.ArrayType(strange))])
    with pytest.raises(BadRequest, match=r"column a\.element: "):
        iceberg_schema(frame)
