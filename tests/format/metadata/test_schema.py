from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from frazil.format.metadata.schema import (
    Schema,
    assign_fresh_ids,
    check_schema_for_version,
    parse_schema,
    same_schema,
    with_schema_id,
)
from frazil.values.types import INT, STRING
from frazil.wire.errors import BadRequest


def field(field_id: int, name: str, type_: object = "int", **more: Any) -> dict[str, Any]:
    return {"id": field_id, "name": name, "required": True, "type": type_} | more


def struct(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)} | more


def list_of(element_id: int, element: object, required: bool = True) -> dict[str, Any]:
    return {
        "type": "list",
        "element-id": element_id,
        "element-required": required,
        "element": element,
    }


def map_of(key_id: int, key: object, value_id: int, value: object) -> dict[str, Any]:
    return {
        "type": "map",
        "key-id": key_id,
        "key": key,
        "value-id": value_id,
        "value-required": True,
        "value": value,
    }


def schema(*fields: dict[str, Any], **more: Any) -> Schema:
    renamed = {key.replace("_", "-"): value for key, value in more.items()}
    return parse_schema(json.dumps(struct(*fields, **renamed)).encode())


LOCATIONS = schema(
    field(1, "id"),
    field(2, "points", list_of(3, struct(field(4, "lat", "double"), field(5, "lon", "double")))),
    field(6, "names", map_of(7, struct(field(9, "k")), 8, struct(field(10, "v", "string")))),
    field(11, "plain", list_of(12, "string")),
    field(13, "user", struct(field(14, "Name", "string"))),
)


def test_finds_fields_by_id_and_name() -> None:
    assert LOCATIONS.highest_field_id == 14
    assert LOCATIONS.full_names == {
        1: "id",
        2: "points",
        3: "points.element",
        4: "points.element.lat",
        5: "points.element.lon",
        6: "names",
        7: "names.key",
        8: "names.value",
        9: "names.key.k",
        10: "names.value.v",
        11: "plain",
        12: "plain.element",
        13: "user",
        14: "user.Name",
    }
    assert LOCATIONS.parent_ids == {
        3: 2, 4: 3, 5: 3, 7: 6, 8: 6, 9: 7, 10: 8, 12: 11, 14: 13
    }  # fmt: skip
    found = LOCATIONS.find_field(14)
    assert found is not None
    assert found.type == STRING
    assert LOCATIONS.find_type(1) == INT
    assert LOCATIONS.find_field(99) is None
    assert LOCATIONS.find_type(99) is None


@pytest.mark.parametrize(
    ("name", "case_sensitive", "expected"),
    [
        ("id", True, 1),
        ("ID", True, None),
        ("ID", False, 1),
        ("points.element.lat", True, 4),
        ("points.lat", True, 4),
        ("names.v", True, 10),
        ("names.key.k", True, 9),
        ("names.k", True, None),
        ("plain.element", True, 12),
        ("user.name", False, 14),
        ("user.name", True, None),
        ("", True, None),
    ],
)
def test_short_names_and_case(name: str, case_sensitive: bool, expected: int | None) -> None:
    found = LOCATIONS.find_by_name(name, case_sensitive)
    assert (None if found is None else found.field_id) == expected


def test_a_real_name_wins_over_a_short_one() -> None:
    clash = schema(
        field(1, "l", list_of(2, struct(field(3, "x")))),
        field(4, "l.x", "string"),
    )
    found = clash.find_by_name("l.x")
    assert found is not None
    assert found.field_id == 4


def test_ambiguous_names_are_refused_only_when_asked_for() -> None:
    both = schema(field(1, "a"), field(2, "A"), field(3, "b"))
    assert both.find_by_name("B", case_sensitive=False) is not None
    with pytest.raises(BadRequest, match="'a' is ambiguous"):
        both.find_by_name("a", case_sensitive=False)


def test_keeps_what_it_does_not_know_and_writes_compactly() -> None:
    raw = b"""{ "type": "struct", "schema-id": 3, "x-note": {"pi": 3.140, "big": 1e400},
      "fields": [ {"id": 1, "name": "a", "required": false, "type": "int", "x-tag": [1, null]} ],
      "identifier-field-ids": [] }"""
    expected = (
        b'{"type":"struct","schema-id":3,"x-note":{"pi":3.140,"big":1E+400},'
        b'"fields":[{"id":1,"name":"a","required":false,"type":"int","x-tag":[1,null]}],'
        b'"identifier-field-ids":[]}'
    )
    parsed = parse_schema(raw)
    assert parsed.raw == expected
    assert parse_schema(msgspec.Raw(raw)) == parsed
    renumbered = with_schema_id(parsed, 7)
    assert renumbered.raw == expected.replace(b'"schema-id":3', b'"schema-id":7')
    assert renumbered.schema_id == 7
    assert with_schema_id(parsed, 3) is parsed
    assert parse_schema(renumbered.raw) == renumbered


def test_a_missing_schema_id_is_zero_and_nulls_are_left_out() -> None:
    raw = (
        b'{"type":"struct","identifier-field-ids":null,"fields":[{"id":1,"name":"a",'
        b'"required":false,"type":"int","doc":null,"initial-default":null,"write-default":null}]}'
    )
    parsed = parse_schema(raw)
    assert parsed.schema_id == 0
    assert parsed.raw == (
        b'{"type":"struct","schema-id":0,"fields":'
        b'[{"id":1,"name":"a","required":false,"type":"int"}]}'
    )


def test_a_repeated_key_has_one_meaning_for_every_reader() -> None:
    parsed = parse_schema(b'{"type":"struct","schema-id":1,"fields":[],"schema-id":2}')
    assert parsed.schema_id == 2
    assert parsed.raw.count(b"schema-id") == 1


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "schema is not valid JSON"),
        (b"[]", "schema must be a JSON object"),
        (b'"struct"', "schema must be a JSON object"),
        (b'{"fields":[]}', "schema: 'type' must be \"struct\""),
        (b'{"type":"list","fields":[]}', "schema: 'type' must be \"struct\""),
        (b'{"type":"struct"}', "schema: 'fields' is missing"),
        (b'{"type":"struct","fields":[{}]}', "schema.fields[0]: 'id' is missing"),
        (b'{"type":"struct","fields":[],"schema-id":"1"}', "'schema-id' must be an integer"),
        (
            b'{"type":"struct","fields":[],"schema-id":99999999999999999999}',
            "does not fit in 32 bits",
        ),
        (
            b'{"type":"struct","fields":[],"identifier-field-ids":["a"]}',
            "'identifier-field-ids' must be a list of 32-bit integers",
        ),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"type":"struct","fields":[],"x":' + b"[" * 256 + b"]" * 256 + b"}", "too deeply"),
        (b'{"type":"struct","fields":[],"x":' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_names_what_is_wrong(raw: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_schema(raw)
    assert message in str(caught.value)


def test_many_brackets_are_not_depth() -> None:
    wide = schema(*[field(number, f"c{number}") for number in range(1, 3001)])
    assert wide.highest_field_id == 3000
    assert parse_schema(wide.raw) == wide


def test_ids_and_names_are_unique() -> None:
    with pytest.raises(BadRequest, match=r"field id 1 is used by both a and s\.b"):
        schema(field(1, "a"), field(2, "s", struct(field(1, "b"))))
    with pytest.raises(BadRequest, match="multiple fields for name a: 1 and 2"):
        schema(field(1, "a"), field(2, "a"))
    with pytest.raises(BadRequest, match=r"multiple fields for name s\.b: 2 and 3"):
        schema(field(1, "s", struct(field(2, "b"))), field(3, "s.b"))


@pytest.mark.parametrize(
    ("field_id", "message"),
    [
        (99, "Cannot add field id 99 as an identifier field: field does not exist"),
        (2, "Cannot add field s as an identifier field: not a primitive type field"),
        (4, "Cannot add field o as an identifier field: not a required field"),
        (5, "Cannot add field f as an identifier field: must not be float or double field"),
        (7, "Cannot add field element as an identifier field: must not be nested in 6: l"),
        (9, "Cannot add field x as an identifier field: must not be nested in an optional field 8"),
        (10, "Cannot add field v as an identifier field: not a primitive type field"),
    ],
)
def test_identifier_fields_follow_the_rules_of_java(field_id: int, message: str) -> None:
    fields = [
        field(1, "id"),
        field(2, "s", struct(field(3, "inner", "string"))),
        field(4, "o", required=False),
        field(5, "f", "float"),
        field(6, "l", list_of(7, "int")),
        field(8, "opt", struct(field(9, "x")), required=False),
        field(10, "v", "variant"),
    ]
    assert schema(*fields, identifier_field_ids=[1, 3]).identifier_field_ids == (1, 3)
    with pytest.raises(BadRequest) as caught:
        schema(*fields, identifier_field_ids=[field_id])
    assert message in str(caught.value)


def test_same_schema_looks_at_everything_but_the_id() -> None:
    base = schema(field(1, "a", doc="x"), schema_id=1, identifier_field_ids=[1])
    assert same_schema(base, schema(field(1, "a", doc="x"), schema_id=9, identifier_field_ids=[1]))
    others = [
        schema(field(1, "a", doc="y"), identifier_field_ids=[1]),
        schema(field(1, "a", doc="x")),
        schema(field(2, "a", doc="x"), identifier_field_ids=[2]),
        schema(field(1, "b", doc="x"), identifier_field_ids=[1]),
        schema(field(1, "a", "long", doc="x"), identifier_field_ids=[1]),
        schema(field(1, "a", doc="x"), field(2, "b"), identifier_field_ids=[1]),
        schema(field(1, "a", doc="x", **{"write-default": 1}), identifier_field_ids=[1]),
    ]
    assert not any(same_schema(base, other) for other in others)


def test_same_schema_compares_defaults_by_value() -> None:
    def price(default: object, type_: str) -> Schema:
        return schema(field(1, "a", type_, **{"initial-default": default}))

    assert same_schema(price("00ff", "binary"), price("00FF", "binary"))
    assert same_schema(price(1, "double"), price(1.0, "double"))
    assert not same_schema(price("1.20", "decimal(9,2)"), price("1.21", "decimal(9,2)"))


def test_later_types_and_defaults_need_a_later_format_version() -> None:
    later = schema(
        field(1, "t", struct(field(2, "ns", "timestamptz_ns"))),
        field(3, "g", "geometry"),
        field(4, "d", **{"initial-default": 34}),
        field(5, "w", **{"write-default": 34}),
    )
    check_schema_for_version(later, 3)
    with pytest.raises(BadRequest) as caught:
        check_schema_for_version(later, 2)
    assert str(caught.value) == (
        "Invalid schema for v2:\n"
        "- Invalid type for t.ns: timestamptz_ns is not supported until v3\n"
        "- Invalid type for g: geometry(OGC:CRS84) is not supported until v3\n"
        "- Invalid initial default for d: a non-null default is not supported until v3"
    )
    check_schema_for_version(LOCATIONS, 1)


def test_fresh_ids_are_given_level_by_level_as_in_java() -> None:
    sent = schema(
        field(30, "m", map_of(31, struct(field(33, "k")), 32, struct(field(34, "v")))),
        field(40, "s", struct(field(41, "x"), field(42, "l", list_of(43, "int")))),
        field(50, "z", **{"x-kept": 1.50, "initial-default": 7}),
        schema_id=5,
        identifier_field_ids=[50, 41],
    )
    fresh, new_ids = assign_fresh_ids(sent)
    assert new_ids == {30: 1, 40: 2, 50: 3, 31: 4, 32: 5, 33: 6, 34: 7, 41: 8, 42: 9, 43: 10}
    assert fresh.schema_id == 0
    assert fresh.identifier_field_ids == (3, 8)
    assert fresh.full_names == {new_ids[old]: name for old, name in sent.full_names.items()}
    assert b'"x-kept":1.5' in fresh.raw
    assert b'"initial-default":7' in fresh.raw
    assert fresh.highest_field_id == 10
    assert assign_fresh_ids(sent.raw) == (fresh, new_ids)
    assert assign_fresh_ids(fresh)[0] == fresh


def test_fresh_ids_agree_with_pyiceberg() -> None:
    from pyiceberg.schema import Schema as OracleSchema
    from pyiceberg.schema import assign_fresh_schema_ids

    oracle = assign_fresh_schema_ids(OracleSchema.model_validate_json(LOCATIONS.raw))
    fresh, _ = assign_fresh_ids(LOCATIONS)
    assert fresh.full_names == {
        field_id: oracle.find_column_name(field_id) for field_id in fresh.full_names
    }
