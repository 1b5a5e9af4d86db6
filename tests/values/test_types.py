from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from frazil.values.type_json import MAX_NESTING, parse_type
from frazil.values.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    TIMESTAMPTZ_NS,
    UNKNOWN,
    UUID,
    VARIANT,
    DecimalType,
    EdgeAlgorithm,
    FixedType,
    GeographyType,
    GeometryType,
    InvalidType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
    child_fields,
    min_format_version,
)

UNPARAMETERIZED = {
    "boolean": BOOLEAN,
    "int": INT,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "date": DATE,
    "time": TIME,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
    "timestamp_ns": TIMESTAMP_NS,
    "timestamptz_ns": TIMESTAMPTZ_NS,
    "string": STRING,
    "uuid": UUID,
    "binary": BINARY,
    "unknown": UNKNOWN,
    "variant": VARIANT,
}


@pytest.mark.parametrize(("text", "expected"), UNPARAMETERIZED.items())
def test_reads_and_writes_types_without_parameters(text: str, expected: Type) -> None:
    assert parse_type(text) == expected
    assert parse_type(text.upper()) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    ("text", "expected", "canonical"),
    [
        ("decimal(9,2)", DecimalType(9, 2), "decimal(9, 2)"),
        ("DECIMAL( 38 , 0 )", DecimalType(38, 0), "decimal(38, 0)"),
        ("fixed[16]", FixedType(16), "fixed[16]"),
        ("fixed[ 4 ]", FixedType(4), "fixed[4]"),
        ("geometry", GeometryType(), "geometry(OGC:CRS84)"),
        ("geometry(srid:4326)", GeometryType("srid:4326"), "geometry(srid:4326)"),
        ("geography", GeographyType(), "geography(OGC:CRS84, spherical)"),
        ("geography(srid:4326)", GeographyType("srid:4326"), "geography(srid:4326, spherical)"),
        (
            "geography( srid:4326 , Karney )",
            GeographyType("srid:4326", EdgeAlgorithm.KARNEY),
            "geography(srid:4326, karney)",
        ),
    ],
)
def test_reads_parameterized_types(text: str, expected: Type, canonical: str) -> None:
    assert parse_type(text) == expected
    assert str(parse_type(text)) == canonical


def test_a_crs_is_compared_without_case_and_kept_with_it() -> None:
    assert GeometryType("ogc:crs84") == GeometryType("OGC:CRS84")
    assert hash(GeometryType("ogc:crs84")) == hash(GeometryType("OGC:CRS84"))
    assert str(GeometryType("ogc:crs84")) == "geometry(ogc:crs84)"
    assert GeographyType("a", EdgeAlgorithm.THOMAS) != GeographyType("a", EdgeAlgorithm.KARNEY)
    assert GeometryType("a") != GeometryType("b")


NESTED: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {
            "id": 1,
            "name": "points",
            "required": True,
            "doc": "where",
            "type": {
                "type": "list",
                "element-id": 2,
                "element-required": False,
                "element": {
                    "type": "map",
                    "key-id": 3,
                    "key": "string",
                    "value-id": 4,
                    "value-required": True,
                    "value": "decimal(9, 2)",
                },
            },
        },
        {
            "id": 5,
            "name": "price",
            "required": False,
            "type": "decimal(9,2)",
            "initial-default": "1.20",
            "write-default": "3.40",
        },
    ],
}


def test_reads_nested_types_with_defaults() -> None:
    inner = MapType(
        NestedField(3, "key", STRING, required=True),
        NestedField(4, "value", DecimalType(9, 2), required=True),
    )
    points = ListType(NestedField(2, "element", inner, required=False))
    parsed = parse_type(NESTED)
    assert parsed == StructType(
        (
            NestedField(1, "points", points, required=True, doc="where"),
            NestedField(
                5,
                "price",
                DecimalType(9, 2),
                required=False,
                initial_default=Decimal("1.20"),
                write_default=Decimal("3.40"),
            ),
        )
    )
    assert [child.name for child in child_fields(parsed)] == ["points", "price"]
    assert child_fields(INT) == ()
    assert str(parsed) == (
        "struct<1: points: required list<map<string, decimal(9, 2)>>, "
        "5: price: optional decimal(9, 2)>"
    )


def test_only_v3_types_need_a_later_format_version() -> None:
    v3 = {"timestamp_ns", "timestamptz_ns", "unknown", "variant"}
    for text, type_ in UNPARAMETERIZED.items():
        assert min_format_version(type_) == (3 if text in v3 else 1), text
    assert min_format_version(GeometryType()) == 3
    assert min_format_version(GeographyType()) == 3
    assert min_format_version(DecimalType(9, 2)) == 1


def _field(**changes: Any) -> dict[str, Any]:
    whole = {"id": 1, "name": "a", "required": False, "type": "int"} | changes
    return {"type": "struct", "fields": [{k: v for k, v in whole.items() if v is not ...}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("integer", "type: 'integer' is not an Iceberg type"),
        ("decimal(39,2)", "type: decimal(39, 2): precision must be between 1 and 38"),
        ("fixed[99999999999]", "type: 'fixed[99999999999]' is not an Iceberg type"),
        ("geometry()", "type: the CRS is empty"),
        ("geography(a, flat)", "type: edge algorithm ' flat' is not one of: spherical"),
        (7, "type: expected a type name or an object, got a number"),
        ({}, "type: 'type' is missing"),
        ({"type": "set"}, "type.type: 'set' is not one of struct, list, map"),
        ({"type": "struct"}, "type: 'fields' is missing"),
        ({"type": "struct", "fields": {}}, "type.fields: expected a list, got an object"),
        ({"type": "struct", "fields": [1]}, "type.fields[0]: expected an object, got a number"),
        (_field(id=...), "type.fields[0]: 'id' is missing"),
        (_field(id="1"), "type.fields[0].id: expected an integer, got a string"),
        (_field(id=True), "type.fields[0].id: expected an integer, got true or false"),
        (_field(id=2**31), "type.fields[0].id: 2147483648 does not fit in 32 bits"),
        (_field(name=...), "type.fields[0]: 'name' is missing"),
        (_field(name=None), "type.fields[0].name: expected a string, got null"),
        (_field(required=...), "type.fields[0]: 'required' is missing"),
        (_field(required="yes"), "type.fields[0].required: expected true or false"),
        (_field(type=...), "type.fields[0]: 'type' is missing"),
        (_field(doc=[]), "type.fields[0].doc: expected a string, got a list"),
        (_field(type="unknown", required=True), "field a of type unknown must be optional"),
        (
            _field(**{"initial-default": "x"}),
            "type.fields[0].initial-default: 'x' is not a int value",
        ),
        (
            _field(type="variant", **{"write-default": 1}),
            "type.fields[0].write-default: the default of a variant must be null",
        ),
        ({"type": "list", "element": "int"}, "type: 'element-id' is missing"),
        ({"type": "list", "element-id": 1, "element-required": True}, "'element' is missing"),
        ({"type": "list", "element-id": 1, "element": "int"}, "'element-required' is missing"),
        ({"type": "map", "key-id": 1, "key": "int", "value": "int"}, "'value-id' is missing"),
    ],
)
def test_names_what_is_wrong_with_a_type(value: object, message: str) -> None:
    with pytest.raises(InvalidType) as caught:
        parse_type(value)
    assert message in str(caught.value)


def test_the_default_of_a_struct_is_empty_or_null() -> None:
    empty = {"type": "struct", "fields": []}
    parsed = parse_type(_field(type=empty, **{"initial-default": {}, "write-default": None}))
    (child,) = child_fields(parsed)
    assert (child.initial_default, child.write_default) == ({}, None)
    with pytest.raises(InvalidType, match=r"must be null or \{\}"):
        parse_type(_field(type=empty, **{"initial-default": {"1": 2}}))


def test_nesting_ends_somewhere() -> None:
    deep: object = "int"
    for level in range(MAX_NESTING + 2):
        deep = {"type": "list", "element-id": level, "element-required": True, "element": deep}
    with pytest.raises(InvalidType, match="nested more than 100 levels"):
        parse_type(deep)
