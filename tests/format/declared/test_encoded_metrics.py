"""Metrics of a request are encoded to the same bytes as a dict of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.avro.avro_types import encode_count, encode_long
from frazil.format.declared.declared_metrics import BoundsPlan
from frazil.format.manifest.manifest_encoder import ManifestEncoder, manifest_encoder
from frazil.format.manifest.manifest_list import DATA
from frazil.format.metadata.content_files import DataFile, EncodedBounds
from frazil.format.metadata.partition_spec import UNPARTITIONED
from frazil.format.metadata.schema import parse_schema
from frazil.values.single_value import to_binary, to_json
from frazil.values.types import type_from_name
from frazil.wire.declared_content import CountMap

VERSIONS = [1, 2, 3]
EDGES = [
    *(0, 1, 63, 64, 127, 128, 8191, 8192, 8193, 2**20 - 1, 2**20, 2**27 - 1, 2**27),
    *(2**40, 2**63 - 1),
]


def encoder(version: int = 2) -> ManifestEncoder:
    fields = [{"id": 1, "name": "c", "required": False, "type": "long"}]
    schema = parse_schema(json.dumps({"type": "struct", "fields": fields}).encode())
    return manifest_encoder(schema, UNPARTITIONED, version, DATA)


def file_with(**metrics: Any) -> DataFile:
    return DataFile(
        file_path="s3://b/a", file_format="parquet", record_count=1, file_size_in_bytes=1, **metrics
    )


@pytest.mark.parametrize("value", EDGES)
def test_counts_have_the_bytes_of_any_number(value: int) -> None:
    assert encode_count(value) == encode_long(value)


counts = st.sampled_from(EDGES) | st.integers(0, 2**63 - 1)


# 2368 is one of the ids whose encoded bytes contain a percent sign.
field_ids = st.integers(0, 2**31 - 1) | st.sampled_from([2368, 37, 4736 + 2368])


@given(st.dictionaries(field_ids, counts, max_size=12), st.sampled_from(VERSIONS))
def test_counts_of_a_request_are_written_like_a_dict(values: dict[int, int], version: int) -> None:
    declared = CountMap(tuple(values), tuple(values.values()))
    encode = encoder(version).data_file
    for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
        assert encode(file_with(**{name: declared})) == encode(file_with(**{name: values}))
    assert dict(declared.items()) == values
    assert len(declared) == len(values)
    assert [declared.get(field_id) for field_id in values] == list(values.values())
    assert declared.get(5000) == values.get(5000)


BOUNDS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "date": st.integers(-100_000, 100_000),
    "time": st.integers(0, 86_400_000_000 - 1),
    "timestamp": st.integers(-(2**55), 2**55),
    "timestamptz": st.integers(-(2**55), 2**55),
    "timestamp_ns": st.integers(-(2**62), 2**62),
    "string": st.text(max_size=200),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=20),
    "fixed[3]": st.binary(min_size=3, max_size=3),
}
columns = st.sampled_from(sorted(BOUNDS)).flatmap(
    lambda kind: st.tuples(st.just(kind), BOUNDS[kind])
)


@given(st.dictionaries(field_ids, columns, max_size=12), st.booleans())
def test_bounds_of_a_request_are_written_like_a_dict(
    drawn: dict[int, tuple[str, Any]], is_hex: bool
) -> None:
    """The bounds may be of any types in any order; numbers are written first."""
    types = {field_id: type_from_name(kind) for field_id, (kind, _) in drawn.items()}
    binary = {field_id: to_binary(types[field_id], value) for field_id, (_, value) in drawn.items()}
    as_json = [
        binary[field_id].hex() if is_hex else to_json(types[field_id], value)
        for field_id, (_, value) in drawn.items()
    ]
    values = tuple(msgspec.json.decode(msgspec.json.encode(as_json)))
    plan = BoundsPlan(tuple(drawn), tuple(types.values()), is_hex=is_hex)
    bounds = EncodedBounds(plan.encode(values))
    assert dict(bounds.items()) == binary
    assert len(bounds) == len(binary)
    assert all(bounds.get(field_id) == bound for field_id, bound in binary.items())
    written_order = dict(bounds.items())
    encode = encoder().data_file
    for name in ("lower_bounds", "upper_bounds"):
        assert encode(file_with(**{name: bounds})) == encode(file_with(**{name: written_order}))


def test_a_bool_is_no_number() -> None:
    for kind in ("int", "long", "float", "double"):
        plan = BoundsPlan((1, 2), (type_from_name(kind), type_from_name("string")), is_hex=False)
        with pytest.raises(ValueError, match="boolean"):
            plan.encode((True, "a"))
    plan = BoundsPlan((1, 2), (type_from_name("boolean"), type_from_name("int")), is_hex=False)
    with pytest.raises(ValueError, match="boolean"):
        plan.encode((1, True))


def test_order_is_seen_at_a_glance_only_where_it_is_certain() -> None:
    def plan(kind: str) -> BoundsPlan:
        return BoundsPlan((1,), (type_from_name(kind),), is_hex=False)

    assert plan("long").is_in_order((1,), (1,))
    assert not plan("long").is_in_order((2,), (1,))
    assert plan("date").is_in_order(("2024-01-01",), ("2024-01-02",))
    assert plan("decimal(9, 2)").is_in_order(("9.00",), ("10.00",))
    assert not plan("decimal(9, 2)").is_in_order(("10.00",), ("9.00",))
    hexadecimal = BoundsPlan((1,), (type_from_name("long"),), is_hex=True)
    assert not hexadecimal.is_in_order(("00",), ("01",)), "it is looked at more closely"
