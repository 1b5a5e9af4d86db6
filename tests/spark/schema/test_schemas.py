"""Frames are checked against a table's schema: refusals, casts and mergeSchema."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyspark.sql.types as st
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.client.declare.schema_updates import schema_requirements, schema_updates
from frazil.spark.core.borrowed_settings import session_settings
from frazil.spark.core.name_matching import NameMatcher
from frazil.spark.schema.column_fitting import Assignment, Policy, assignment, parse_policy
from frazil.spark.schema.frame_fitting import fit, mapped
from frazil.spark.schema.schema_evolution import evolve
from frazil.spark.schema.spark_literals import literal
from frazil.spark.schema.spark_types import spark_schema
from frazil.values import types as it
from frazil.values.name_mapping import name_mapping_of
from frazil.values.type_json import parse_struct, struct_to_json
from frazil.values.types import (
    DecimalType,
    FixedType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
    fields_by_id,
)
from frazil.wire.errors import BadRequest, CommitFailed
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.client.catalog_client import Client

POINT = StructType(
    (
        NestedField(5, "x", it.INT, True),
        NestedField(6, "note", it.STRING, False, write_default="none"),
    )
)
MARK = StructType((NestedField(9, "x", it.LONG, False),))
ORDERS = StructType(
    (
        NestedField(1, "id", it.LONG, True),
        NestedField(2, "n", it.INT, False, write_default=7),
        NestedField(3, "price", DecimalType(6, 2), False),
        NestedField(4, "place", POINT, False),
        NestedField(7, "points", ListType(NestedField(8, "element", MARK, True)), False),
        NestedField(
            10,
            "sums",
            MapType(
                NestedField(11, "key", it.STRING, True), NestedField(12, "value", it.LONG, False)
            ),
            False,
        ),
    )
)


def table_of(
    schema: StructType,
    format_version: int = 2,
    *,
    properties: dict[str, str] | None = None,
    identifier_field_ids: list[int] | None = None,
) -> Table:
    document: dict[str, Any] = {**struct_to_json(schema), "schema-id": 3}
    if identifier_field_ids is not None:
        document["identifier-field-ids"] = identifier_field_ids
    metadata = {
        "format-version": format_version,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": []}, document],
        "current-schema-id": 3,
        "last-column-id": max(fields_by_id(schema)) + 100,
        "properties": properties or {},
    }
    return Table(Identifier(("shop",), "orders"), metadata, "")


# --- which types may be stored ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "target", "ansi", "strict"),
    [
        ("int", "int", "SAME", "SAME"),
        ("int", "bigint", "SAFE", "SAFE"),
        ("bigint", "int", "CHECKED", "REFUSED"),
        ("float", "double", "SAFE", "SAFE"),
        ("double", "float", "CHECKED", "REFUSED"),
        ("double", "int", "CHECKED", "REFUSED"),
        ("int", "decimal(10,0)", "SAFE", "SAFE"),
        ("int", "decimal(9,0)", "CHECKED", "REFUSED"),
        ("decimal(5,2)", "decimal(6,2)", "SAFE", "SAFE"),
        ("decimal(5,2)", "decimal(6,4)", "CHECKED", "REFUSED"),
        ("decimal(5,2)", "double", "CHECKED", "REFUSED"),
        ("int", "string", "SAFE", "SAFE"),
        ("string", "int", "REFUSED", "REFUSED"),
        ("boolean", "int", "REFUSED", "REFUSED"),
        ("date", "timestamp", "SAFE", "SAFE"),
        ("timestamp", "date", "SAFE", "REFUSED"),
        ("timestamp", "timestamp_ntz", "SAFE", "REFUSED"),
        ("timestamp", "bigint", "REFUSED", "REFUSED"),
        ("void", "binary", "SAFE", "SAFE"),
        ("binary", "int", "REFUSED", "REFUSED"),
    ],
)
def test_assignment_is_that_of_sparks_own_tables(
    found: str, target: str, ansi: str, strict: str
) -> None:
    types = [TYPES.get(text) or decimal_type(text) for text in (found, target)]
    policies: list[tuple[Policy, str]] = [("ansi", ansi), ("strict", strict)]
    for policy, expected in policies:
        assert assignment(types[0], types[1], policy) is Assignment[expected]


TYPES: dict[str, st.DataType] = {
    "int": st.IntegerType(),
    "bigint": st.LongType(),
    "float": st.FloatType(),
    "double": st.DoubleType(),
    "string": st.StringType(),
    "boolean": st.BooleanType(),
    "binary": st.BinaryType(),
    "date": st.DateType(),
    "timestamp": st.TimestampType(),
    "timestamp_ntz": st.TimestampNTZType(),
    "void": st.NullType(),
}


def decimal_type(text: str) -> st.DataType:
    precision, scale = text.removeprefix("decimal(").removesuffix(")").split(",")
    return st.DecimalType(int(precision), int(scale))


def test_the_policy_is_ansi_or_strict() -> None:
    assert parse_policy("ANSI") == "ansi"
    assert parse_policy("strict") == "strict"
    with pytest.raises(BadRequest, match="storeAssignmentPolicy is LEGACY"):
        parse_policy("LEGACY")


# --- mergeSchema, without Spark --------------------------------------------------------------

ANY_CASE = NameMatcher(case_sensitive=False)


def frame_schema(**columns: st.DataType) -> st.StructType:
    return st.StructType([st.StructField(name, type_) for name, type_ in columns.items()])


def test_new_columns_come_last_in_their_struct_with_ids_that_nothing_had() -> None:
    table = table_of(ORDERS)
    point = frame_schema(x=st.IntegerType(), z=st.ArrayType(frame_schema(q=st.DateType())))
    found = evolve(
        table,
        frame_schema(
            late=frame_schema(a=st.IntegerType()),
            ID=st.LongType(),
            place=point,
            points=st.ArrayType(frame_schema(x=st.LongType(), w=st.StringType())),
            sums=st.MapType(st.StringType(), st.LongType()),
        ),
        ANY_CASE,
    )
    assert [field.name for field in found.schema.fields] == [
        *(field.name for field in ORDERS.fields),
        "late",
    ]
    names = {one.name: one.field for one in fields_by_id(found.schema).values()}
    new = {name: names[name].field_id for name in names if names[name].field_id > 100}
    assert set(new) == {
        "late",
        "late.a",
        "place.z",
        "place.z.element",
        "place.z.element.q",
        "points.element.w",
    }
    assert sorted(new.values()) == list(range(113, 119))
    assert not any(names[name].required for name in new)
    assert names["id"] == ORDERS.fields[0]
    assert names["place.note"] == POINT.fields[1]


def test_types_are_widened_where_iceberg_can() -> None:
    schema = StructType(
        (
            NestedField(1, "i", it.INT, True, initial_default=5, write_default=6),
            NestedField(2, "f", it.FLOAT, False),
            NestedField(3, "d", DecimalType(6, 2), False),
            NestedField(4, "l", ListType(NestedField(5, "element", it.INT, True)), False),
            NestedField(
                6,
                "m",
                MapType(
                    NestedField(7, "key", it.INT, True), NestedField(8, "value", it.INT, False)
                ),
                False,
            ),
            NestedField(9, "wide", it.LONG, False),
            NestedField(10, "scale", DecimalType(6, 2), False),
            NestedField(11, "u", it.UUID, False),
        )
    )
    found = evolve(
        table_of(schema),
        frame_schema(
            i=st.LongType(),
            f=st.DoubleType(),
            d=st.DecimalType(9, 2),
            l=st.ArrayType(st.LongType()),
            m=st.MapType(st.LongType(), st.LongType()),
            wide=st.IntegerType(),
            scale=st.DecimalType(9, 3),
            u=st.StringType(),
        ),
        ANY_CASE,
    )
    by_name = {one.name: one.field for one in fields_by_id(found.schema).values()}
    assert {name: str(by_name[name].type) for name in ("i", "f", "d", "l.element", "m.value")} == {
        "i": "long",
        "f": "double",
        "d": "decimal(9, 2)",
        "l.element": "long",
        "m.value": "long",
    }
    # A map key, a narrower type and another scale do not change the column; values are cast or
    # refused.
    assert {name: str(by_name[name].type) for name in ("m.key", "wide", "scale", "u")} == {
        "m.key": "int",
        "wide": "long",
        "scale": "decimal(6, 2)",
        "u": "uuid",
    }
    assert by_name["i"].required
    assert (by_name["i"].initial_default, by_name["i"].write_default) == (5, 6)
    assert by_name["l.element"].required


def test_the_updates_are_icebergs_own() -> None:
    table = table_of(ORDERS, identifier_field_ids=[1])
    found = evolve(table, frame_schema(id=st.LongType(), late=st.DateType()), ANY_CASE)
    add, choose = found.updates
    assert add["action"] == "add-schema"
    assert add["last-column-id"] == 113
    assert add["schema"]["schema-id"] == 4
    assert add["schema"]["identifier-field-ids"] == [1]
    assert parse_struct(add["schema"], "schema") == found.schema
    assert choose == {"action": "set-current-schema", "schema-id": -1}
    assert found.requirements == (
        {"type": "assert-current-schema-id", "current-schema-id": 3},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 112},
    )
    assert schema_updates(table, found.schema) == found.updates
    assert schema_requirements(table) == found.requirements


def test_nothing_is_declared_where_nothing_changes() -> None:
    found = evolve(table_of(ORDERS), frame_schema(id=st.IntegerType()), ANY_CASE)
    assert found.schema == ORDERS
    assert found.updates == found.requirements == ()


def test_a_name_mapping_learns_the_new_names() -> None:
    mapping = json.loads(name_mapping_of(ORDERS))
    mapping.append({"field-id": 99, "names": ["late", "old"]})
    table = table_of(ORDERS, properties={"schema.name-mapping.default": json.dumps(mapping)})
    place = frame_schema(x=st.IntegerType(), z=st.ArrayType(st.IntegerType()))
    found = evolve(table, frame_schema(late=st.DateType(), place=place), ANY_CASE)
    update = found.updates[-1]
    assert update["action"] == "set-properties"
    learned = json.loads(update["updates"]["schema.name-mapping.default"])
    by_id = {item["field-id"]: item for item in learned}
    names = {one.name: one.field.field_id for one in fields_by_id(found.schema).values()}
    assert by_id[names["late"]] == {"field-id": names["late"], "names": ["late"]}
    # The name now belongs to the new column, so files without ids map it to that column.
    assert by_id[99]["names"] == ["old"]
    assert by_id[4]["fields"][-1] == {
        "field-id": names["place.z"],
        "names": ["z"],
        "fields": [{"field-id": names["place.z.element"], "names": ["element"]}],
    }
    widened = frame_schema(n=st.LongType())
    assert [one["action"] for one in evolve(table, widened, ANY_CASE).updates] == [
        "add-schema",
        "set-current-schema",
    ]


def test_new_types_need_a_table_that_can_have_them() -> None:
    frame = frame_schema(late=st.ArrayType(st.VariantType()))
    with pytest.raises(BadRequest, match=r"column late\.element: variant needs .* version 3"):
        evolve(table_of(ORDERS), frame, ANY_CASE)
    assert evolve(table_of(ORDERS, 3), frame, ANY_CASE).updates


def test_names_differ_by_case_where_the_session_says_so() -> None:
    frame = frame_schema(ID=st.LongType())
    assert not evolve(table_of(ORDERS), frame, NameMatcher(case_sensitive=False)).updates
    assert evolve(table_of(ORDERS), frame, NameMatcher(case_sensitive=True)).updates


# --- frames ----------------------------------------------------------------------------------


def test_a_frame_that_fits_is_left_alone(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], spark_schema(ORDERS))
    fitted = fit(frame, table_of(ORDERS))
    assert fitted.frame is frame
    assert fitted.evolution.schema == ORDERS
    assert fitted.evolution.updates == fitted.evolution.requirements == ()


def test_columns_are_found_by_name_cast_and_filled_at_every_level(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT map('a', 1) AS sums, 1.5D AS price, 1 AS ID, named_struct('X', 5L) AS place,"
        " array(named_struct('x', 3)) AS points UNION ALL SELECT null, null, 2, null, null"
    )
    fitted = fit(frame, table_of(ORDERS)).frame
    assert fitted.schema.simpleString() == spark_schema(ORDERS).simpleString()
    rows = sorted(fitted.collect(), key=lambda row: int(row["id"]))
    assert rows[0].asDict(recursive=True) == {
        "id": 1,
        "n": 7,
        "price": Decimal("1.50"),
        "place": {"x": 5, "note": "none"},
        "points": [{"x": 3}],
        "sums": {"a": 1},
    }
    assert tuple(rows[1]) == (2, 7, None, None, None, None)


@pytest.mark.parametrize("is_ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT CAST(null AS BIGINT) AS id", "column id is required"),
        ("SELECT 1 AS id, 3000000000L AS n", "column n: the value 3000000000 does not fit int"),
        ("SELECT 1 AS id, 12345.6D AS price", r"column price: the value 12345\.6 does not fit"),
        (
            "SELECT 1 AS id, named_struct('x', CAST(null AS INT)) AS place",
            r"column place\.x is req",
        ),
        (
            "SELECT 1 AS id, array(CAST(null AS STRUCT<x: BIGINT>)) AS points",
            r"column points\.element is required",
        ),
    ],
    ids=["null", "overflow", "decimal", "nested", "element"],
)
def test_values_that_do_not_fit_fail_the_job_and_name_the_column(
    spark: SparkSession, query: str, message: str, is_ansi: str
) -> None:
    before = str(spark.conf.get("spark.sql.ansi.enabled"))
    spark.conf.set("spark.sql.ansi.enabled", is_ansi)
    try:
        frame = fit(spark.sql(query), table_of(ORDERS)).frame
        with pytest.raises(PySparkException, match=message):
            frame.collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_all_that_is_wrong_with_the_columns_is_said_at_once(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT 'x' AS n, 1 AS more, array(1) AS points, named_struct('y', 1) AS place"
    )
    with pytest.raises(BadRequest) as raised:
        fit(frame, table_of(ORDERS))
    message = raised.value.message
    assert message.startswith("shop.orders: ")
    for part in (
        "column id is required, has no default and is missing",
        "column n: string cannot be stored as int",
        "column more is not in the table",
        "column points.element: int cannot be stored as struct",
        "column place.y is not in the table",
        "column place.x is required",
    ):
        assert message.count(part) == 1


def test_strict_assignment_casts_only_upwards(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, 2L AS n")
    assert fit(frame, table_of(ORDERS)).frame.schema["n"].dataType == st.IntegerType()
    strict = session_settings(spark, {"spark.sql.storeAssignmentPolicy": "STRICT"})
    with strict, pytest.raises(BadRequest, match="column n: bigint cannot be stored as int"):
        fit(frame, table_of(ORDERS))


def test_a_name_that_stands_twice_is_refused(spark: SparkSession) -> None:
    pair = StructType((NestedField(1, "a", it.LONG, True), NestedField(2, "b", it.INT, False)))
    frame = spark.sql("SELECT 1 AS x, 2 AS x")
    with pytest.raises(BadRequest, match="column x stands twice"):
        fit(frame, table_of(pair))


def test_merge_schema_takes_wider_and_new_columns(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT 1 AS id, 3000000000L AS n, 2.5D AS late, "
        "named_struct('z', array(1), 'x', 5) AS place"
    )
    fitted = fit(frame, table_of(ORDERS), merge_schema=True)
    assert len(fitted.evolution.updates) == 2
    (row,) = fitted.frame.collect()
    found = row.asDict(recursive=True)
    assert found["n"] == 3_000_000_000
    assert found["late"] == 2.5
    assert found["place"] == {"x": 5, "note": "none", "z": [1]}
    assert list(found) == [field.name for field in fitted.evolution.schema.fields]


def test_text_alone_is_a_uuid_and_bytes_alone_are_fixed(spark: SparkSession) -> None:
    schema = StructType(
        (
            NestedField(1, "u", it.UUID, False),
            NestedField(2, "f", FixedType(2), False),
            NestedField(3, "o", it.UNKNOWN, False),
        )
    )
    fitted = fit(spark.sql("SELECT 'x' AS u, X'6162' AS f, null AS o"), table_of(schema, 3))
    assert fitted.frame.schema.simpleString() == "struct<u:string,f:binary,o:void>"
    empty = fit(spark.sql("SELECT null AS u, null AS f"), table_of(schema, 3)).frame
    assert tuple(empty.collect()[0]) == (None, None, None)
    with pytest.raises(BadRequest) as raised:
        fit(spark.sql("SELECT 1 AS u, 'ab' AS f, 1 AS o"), table_of(schema, 3))
    for name in ("u", "f", "o"):
        assert f"column {name}: " in raised.value.message


def test_names_with_dots_and_quotes_are_names(spark: SparkSession) -> None:
    schema = StructType(
        (NestedField(1, "a.b", it.LONG, False), NestedField(2, "c`d", it.LONG, False))
    )
    frame = spark.sql("SELECT 1 AS `c``d`, 2 AS `a.b`")
    assert tuple(fit(frame, table_of(schema)).frame.collect()[0]) == (2, 1)


DEFAULTS: list[tuple[Type, Any, Any]] = [
    (it.BOOLEAN, False, False),
    (it.INT, 3, 3),
    (it.LONG, -3, -3),
    (it.FLOAT, 1.5, 1.5),
    (it.DOUBLE, 2.5, 2.5),
    (DecimalType(5, 2), Decimal("1.20"), Decimal("1.20")),
    (it.DATE, -1, date(1969, 12, 31)),
    (it.TIMESTAMP, 1, datetime(1970, 1, 1, 0, 0, 0, 1)),
    (it.TIMESTAMP_NS, 1_999, datetime(1970, 1, 1, 0, 0, 0, 1)),
    (it.STRING, "d", "d"),
    (it.UUID, UUID(int=1), str(UUID(int=1))),
    (FixedType(2), b"ab", bytearray(b"ab")),
    (it.BINARY, b"", bytearray()),
]


def test_defaults_of_every_type_are_written(spark: SparkSession) -> None:
    fields = [
        NestedField(place, f"c{place}", type_, True, write_default=value)
        for place, (type_, value, _) in enumerate(DEFAULTS, start=1)
    ]
    inner = NestedField(50, "s", StructType(tuple(fields)), False, write_default={})
    tops = [
        NestedField(f.field_id + 100, f.name, f.type, True, None, None, f.write_default)
        for f in fields
    ]
    instants = [
        NestedField(70, "z", it.TIMESTAMPTZ, False, write_default=-1),
        NestedField(71, "zn", it.TIMESTAMPTZ_NS, False, write_default=-1),
    ]
    schema = StructType((NestedField(60, "id", it.INT, False), *tops, inner, *instants))
    fitted = fit(spark.range(1).select(fn.col("id").cast("int")), table_of(schema, 3)).frame
    (row,) = fitted.withColumns({name: fn.unix_micros(name) for name in ("z", "zn")}).collect()
    expected = [seen for _, _, seen in DEFAULTS]
    assert list(row)[1 : 1 + len(DEFAULTS)] == expected
    assert list(row["s"]) == expected
    assert (row["z"], row["zn"]) == (-1, -1)


def test_a_literal_of_nothing_has_its_type(spark: SparkSession) -> None:
    frame = spark.range(1).select(literal(it.DATE, None).alias("a"))
    assert frame.schema["a"].dataType == st.DateType()


# --- from one schema to another --------------------------------------------------------------


def test_rows_of_an_older_schema_are_mapped_by_field_id(spark: SparkSession) -> None:
    newer = StructType(
        (
            NestedField(20, "since", it.DATE, False, initial_default=1),
            NestedField(
                4,
                "spot",
                StructType(
                    (
                        NestedField(21, "z", it.INT, False, initial_default=9),
                        NestedField(6, "text", it.STRING, False),
                        NestedField(5, "x", it.LONG, True),
                    )
                ),
                False,
            ),
            NestedField(
                7,
                "points",
                ListType(
                    NestedField(
                        8,
                        "element",
                        StructType(
                            (
                                NestedField(22, "x", it.STRING, False),
                                NestedField(9, "y", it.LONG, False),
                            )
                        ),
                        True,
                    )
                ),
                False,
            ),
            NestedField(23, "n", it.INT, False),
            NestedField(1, "ident", it.LONG, True),
        )
    )
    frame = spark.sql(
        "SELECT 1L AS id, 2 AS n, 1.0BD AS price, named_struct('x', 5, 'note', 't') AS place,"
        " array(named_struct('x', 3L)) AS points, map('a', 1L) AS sums, 'f' AS _file, 8L AS _pos"
        " UNION ALL SELECT 2L, null, null, null, null, null, 'f', 9L"
    )
    found = mapped(frame, ORDERS, newer)
    assert found.columns == ["since", "spot", "points", "n", "ident", "_file", "_pos"]
    rows = sorted(found.collect(), key=lambda row: int(row["ident"]))
    assert rows[0].asDict(recursive=True) == {
        "since": date(1970, 1, 2),
        "spot": {"z": 9, "text": "t", "x": 5},
        "points": [{"x": None, "y": 3}],
        "n": None,
        "ident": 1,
        "_file": "f",
        "_pos": 8,
    }
    assert tuple(rows[1]) == (date(1970, 1, 2), None, None, None, 2, "f", 9)


def test_a_frame_of_the_same_schema_is_left_alone(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], spark_schema(ORDERS))
    assert mapped(frame, ORDERS, ORDERS) is frame


# --- as the catalog takes it -----------------------------------------------------------------


def test_the_catalog_takes_an_evolved_schema_once(client: Client, namespace: str) -> None:
    schema = {**struct_to_json(ORDERS), "identifier-field-ids": [1]}
    base = client.create_table(f"{namespace}.orders", schema)
    place = frame_schema(x=st.LongType(), z=st.ArrayType(st.IntegerType()))
    found = evolve(base, frame_schema(place=place, late=st.DateType()), ANY_CASE)
    base.declare_metadata(found.updates, found.requirements)
    table = client.load_table(f"{namespace}.orders")
    assert table.schema == found.schema
    assert table.metadata["last-column-id"] == max(fields_by_id(found.schema))
    assert table.metadata["schemas"][-1]["identifier-field-ids"] == [1]
    # A second writer with the old schema would assign the same ids again.
    other = evolve(base, frame_schema(other=st.DateType()), ANY_CASE)
    with pytest.raises(CommitFailed):
        base.declare_metadata(other.updates, other.requirements)
