from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.format.metadata.partition_spec import (
    UNPARTITIONED,
    PartitionSpec,
    check_partition_spec,
    compatible_specs,
    freshen_partition_spec,
    has_unknown_transform,
    parse_partition_fields,
    parse_partition_spec,
    partition_type,
    with_spec_id,
)
from frazil.format.metadata.schema import parse_schema
from frazil.values.transforms import Bucket
from frazil.values.types import DATE, INT, STRING, UNKNOWN, NestedField, StructType
from frazil.wire.errors import BadRequest

SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"id": 1, "name": "id", "required": True, "type": "long"},
                {"id": 2, "name": "ts", "required": True, "type": "timestamptz"},
                {"id": 3, "name": "category", "required": False, "type": "string"},
                {
                    "id": 4,
                    "name": "user",
                    "required": False,
                    "type": {
                        "type": "struct",
                        "fields": [{"id": 5, "name": "name", "required": False, "type": "string"}],
                    },
                },
                {
                    "id": 6,
                    "name": "tags",
                    "required": False,
                    "type": {
                        "type": "list",
                        "element-id": 7,
                        "element-required": True,
                        "element": "string",
                    },
                },
                {"id": 8, "name": "v", "required": False, "type": "variant"},
            ],
        }
    ).encode()
)


def part(
    source: int | None,
    name: str,
    transform: str = "identity",
    field_id: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    whole = {"source-id": source, "field-id": field_id, "name": name, "transform": transform}
    return {key: value for key, value in whole.items() if value is not None} | more


def spec(*fields: dict[str, Any], spec_id: int = 0) -> PartitionSpec:
    return parse_partition_spec(json.dumps({"spec-id": spec_id, "fields": fields}).encode())


def test_reads_fields_and_keeps_what_it_does_not_know() -> None:
    raw = (
        b'{ "fields": [ {"source-id": 1, "field-id": 1005, "name": "id_bucket",'
        b' "transform": "BUCKET[16]", "x": 1.0} ], "y": null }'
    )
    parsed = parse_partition_spec(raw)
    assert parsed.raw == (
        b'{"spec-id":0,"fields":[{"source-id":1,"field-id":1005,"name":"id_bucket",'
        b'"transform":"bucket[16]","x":1.0}],"y":null}'
    )
    (only,) = parsed.fields
    assert (only.source_id, only.field_id, only.name) == (1, 1005, "id_bucket")
    assert only.transform == Bucket(16)
    assert parsed.last_assigned_field_id == 1005
    assert not parsed.has_sequential_ids
    moved = with_spec_id(parsed, 3)
    assert moved.raw == parsed.raw.replace(b'"spec-id":0', b'"spec-id":3')
    assert parse_partition_spec(moved.raw) == moved
    assert with_spec_id(moved, 3) is moved


def test_unpartitioned() -> None:
    assert parse_partition_spec(UNPARTITIONED.raw) == UNPARTITIONED
    assert UNPARTITIONED.last_assigned_field_id == 999
    assert UNPARTITIONED.is_unpartitioned
    assert UNPARTITIONED.has_sequential_ids
    assert spec(part(1, "a", "void")).is_unpartitioned
    assert not spec(part(1, "a", "void"), part(1, "b", "bucket[2]")).is_unpartitioned


def test_missing_field_ids_are_assigned() -> None:
    fields = [part(1, "a"), part(2, "b", "day")]
    assert [p.field_id for p in spec(*fields).fields] == [1000, 1001]
    assert spec(*fields).has_sequential_ids
    assert b'"field-id":1001' in spec(*fields).raw
    known = spec(part(2, "old_day", "day", 1000), part(3, "c", "identity", 1001))
    raw = json.dumps({"fields": fields}).encode()
    evolved = parse_partition_spec(raw, known_specs=[known], last_assigned_field_id=1001)
    assert [p.field_id for p in evolved.fields] == [1002, 1000]


def test_reads_the_bare_list_of_v1_metadata() -> None:
    raw = json.dumps([part(1, "a"), part(2, "b", "day")]).encode()
    parsed = parse_partition_fields(raw, 4)
    assert parsed == spec(part(1, "a"), part(2, "b", "day"), spec_id=4)
    assert [p.field_id for p in parsed.fields] == [1000, 1001]
    with pytest.raises(BadRequest, match="must be a list of partition fields"):
        parse_partition_fields(b"{}", 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (None, "partition-spec: 'fields' is missing"),
        ({}, "partition-spec: 'fields' must be a list"),
        ([1], "partition-spec.fields[0] must be an object"),
        ([part(None, "a")], "partition-spec.fields[0]: 'source-id' is missing"),
        ([part(1, "a") | {"name": 1}], "partition-spec.fields[0]: 'name' must be a string"),
        ([part(1, "a") | {"transform": None}], "partition-spec.fields[0]: 'transform' is missing"),
        ([part(1, "a", "bucket[0]")], "partition-spec.fields[0].transform: bucket[0]"),
        ([part(1, "a", field_id=1000), part(2, "b")], "field-id is missing on 1 of 2 fields"),
        ([part(1, "a", "day"), part(2, "a")], "Cannot use partition name more than once: a"),
        ([part(1, "")], "Cannot use empty partition name"),
        (
            [part(1, "a", field_id=1000), part(2, "b", field_id=1000)],
            "Cannot use partition field id more than once: 1000",
        ),
        (
            [part(1, "a", "zorder") | {"source-ids": [1, 2]}],
            "give either 'source-id' or 'source-ids', not both",
        ),
    ],
)
def test_names_what_is_wrong(fields: object, message: str) -> None:
    value = {} if fields is None else {"fields": fields}
    with pytest.raises(BadRequest) as caught:
        parse_partition_spec(json.dumps(value).encode())
    assert message in str(caught.value)


def test_compatible_specs_ignore_ids_but_not_names() -> None:
    base = spec(part(1, "a", "bucket[4]", 1000))
    assert compatible_specs(base, spec(part(1, "a", "Bucket[4]", 1007), spec_id=9))
    assert not compatible_specs(base, spec(part(1, "b", "bucket[4]", 1000)))
    assert not compatible_specs(base, spec(part(1, "a", "bucket[5]", 1000)))
    assert not compatible_specs(base, spec(part(2, "a", "bucket[4]", 1000)))
    assert not compatible_specs(base, UNPARTITIONED)


@pytest.mark.parametrize(
    "fields",
    [
        [part(1, "id"), part(2, "ts_day", "day"), part(3, "c", "truncate[3]")],
        [part(5, "user_name")],
        [part(2, "y", "year"), part(2, "d", "day")],
        [part(1, "b4", "bucket[4]"), part(1, "b8", "bucket[8]")],
        [part(99, "gone", "void"), part(8, "w", "void"), part(1, "i1", "void")],
        [part(1, "z", "mystery[3]")],
        [part(None, "z", "zorder") | {"source-ids": [1, 3]}],
        [part(1, "id", "bucket[4]")],
    ],
)
def test_accepts_what_java_accepts(fields: list[dict[str, Any]]) -> None:
    check_partition_spec(spec(*fields), SCHEMA)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (part(99, "a"), "Cannot find source column for partition field: 1000: a: identity(99)"),
        (part(4, "a"), "Cannot partition by non-primitive source field: struct<"),
        (part(8, "a"), "Cannot partition by non-primitive source field: variant"),
        (part(3, "a", "day"), "Invalid source type string for transform: day"),
        (part(7, "a"), "is inside a list or a map"),
        (part(1, "category"), "partition sourced from different field in schema: category"),
        (part(1, "user.name", "bucket[2]"), "different field in schema: user.name"),
    ],
)
def test_refuses_what_does_not_fit_the_schema(field: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_partition_spec(spec(field), SCHEMA)
    assert message in str(caught.value)


def test_refuses_the_same_partition_twice() -> None:
    with pytest.raises(BadRequest, match="Cannot add redundant partition"):
        check_partition_spec(spec(part(1, "a", "bucket[4]"), part(1, "b", "bucket[4]")), SCHEMA)


def test_freshens_for_a_new_table() -> None:
    sent = spec(
        part(3, "c", "identity", 1010, x=1),
        part(None, "z", "zorder", 1003) | {"source-ids": [1, 3]},
        spec_id=7,
    )
    fresh = freshen_partition_spec(sent, {1: 10, 3: 30})
    assert fresh.raw == (
        b'{"spec-id":0,"fields":[{"source-id":30,"field-id":1000,"name":"c",'
        b'"transform":"identity","x":1},{"field-id":1001,"name":"z","transform":"zorder",'
        b'"source-ids":[10,30]}]}'
    )
    assert [p.source_ids for p in fresh.fields] == [(30,), (10, 30)]
    assert [p.source_ids for p in sent.fields] == [(3,), (1, 3)]
    with pytest.raises(BadRequest, match="Cannot find source column for partition field: 1010: c"):
        freshen_partition_spec(sent, {1: 10})


def test_partition_type() -> None:
    parsed = spec(
        part(2, "d", "day"),
        part(1, "b", "bucket[4]"),
        part(3, "c"),
        part(99, "gone"),
        part(1, "m", "mystery"),
    )
    assert has_unknown_transform(parsed)
    assert not has_unknown_transform(UNPARTITIONED)
    expected = [("d", DATE), ("b", INT), ("c", STRING), ("gone", UNKNOWN), ("m", STRING)]
    assert partition_type(parsed, SCHEMA) == StructType(
        tuple(
            NestedField(1000 + position, name, type_, required=False)
            for position, (name, type_) in enumerate(expected)
        )
    )
