"""Declared files are converted for manifests, or refused with the field that does not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.declared.declared_files import DeclaredFiles
from frazil.format.manifest.manifest_encoder import manifest_encoder
from frazil.format.manifest.manifest_list import DATA
from frazil.format.metadata.content_files import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    DataFile,
    DeleteFile,
)
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.values.single_value import from_json, to_binary, to_json
from frazil.values.types import Type, type_from_name
from frazil.wire import declared_content as wire
from frazil.wire.errors import BadRequest
from tests.support.tables import LOCATION, NOW_MS, apply, document, parse, update
from tests.support.tables import UUID as TABLE_UUID

PLACE = "updates[0].add-data-files"
PATH = "s3://bucket/warehouse/db/events/data/x.parquet"
TYPES = [
    *("boolean", "int", "long", "float", "double", "decimal(9, 2)", "decimal(38, 10)", "date"),
    *("time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "string", "uuid"),
    *("fixed[4]", "binary"),
]
_DATA = msgspec.json.Decoder(wire.AddedDataFile)
_DELETE = msgspec.json.Decoder(wire.AddedDeleteFile)


def table_of(
    types: Sequence[Any] = ("long",),
    spec: Sequence[tuple[int, str]] = (),
    version: int = 2,
    required: Sequence[int] = (),
) -> TableMetadata:
    """Return a table with the columns c1, c2, ... and the partition fields p0, p1, ..."""
    fields = [
        {"id": number, "name": f"c{number}", "required": number in required, "type": kind}
        for number, kind in enumerate(types, 1)
    ]
    parts = [
        {"source-id": source, "field-id": 1000 + at, "name": f"p{at}", "transform": transform}
        for at, (source, transform) in enumerate(spec)
    ]
    return new_table(
        schema=json.dumps({"type": "struct", "schema-id": 0, "fields": fields}).encode(),
        spec=json.dumps({"spec-id": 0, "fields": parts}).encode(),
        order=None,
        location=LOCATION,
        properties={"format-version": str(version)},
        uuid=TABLE_UUID,
        now_ms=NOW_MS,
    )


def declared(content: str = "data", **members: Any) -> bytes:
    base = {
        "content": content,
        "spec-id": 0,
        "partition": [],
        "file-path": PATH,
        "file-format": "parquet",
        "file-size-in-bytes": 1000,
        "record-count": 10,
    }
    return json.dumps(
        base | {name.replace("_", "-"): value for name, value in members.items()}
    ).encode()


def data(metadata: TableMetadata, **members: Any) -> DataFile:
    (file,) = DeclaredFiles(metadata).data_files([_DATA.decode(declared(**members))], PLACE)
    return file


def delete(metadata: TableMetadata, content: str, **members: Any) -> DeleteFile:
    sent = _DELETE.decode(declared(content, **members))
    (file,) = DeclaredFiles(metadata).delete_files([sent], PLACE)
    return file


def refusal(metadata: TableMetadata, content: str = "data", **members: Any) -> str:
    with pytest.raises(BadRequest) as caught:
        if content == "data":
            data(metadata, **members)
        else:
            delete(metadata, content, **members)
    return caught.value.message


def field_map(values: dict[int, Any]) -> dict[str, Any]:
    return {"keys": list(values), "values": list(values.values())}


def assert_at(message: str, field: str, *parts: str) -> None:
    assert message.startswith(f"{PLACE}[0] ({PATH}).{field}: "), message
    for part in parts:
        assert part in message


# --- the file -----------------------------------------------------------------------------------


def test_everything_a_file_says_is_kept() -> None:
    metadata = table_of(["long", "string"], [(1, "bucket[4]")])
    file = data(
        metadata,
        partition=[3],
        file_format="PARQUET",
        column_sizes=field_map({1: 100, 2: 200}),
        value_counts=field_map({1: 10, 2: 10}),
        null_value_counts=field_map({1: 0, 2: 3}),
        nan_value_counts=field_map({}),
        lower_bounds=field_map({1: -5, 2: "a"}),
        upper_bounds=field_map({1: 2**40, 2: "zz"}),
        key_metadata="00ff",
        split_offsets=[4, 500],
        sort_order_id=0,
        first_row_id=77,
    )
    assert (file.file_path, file.file_format, file.partition) == (PATH, "parquet", (3,))
    assert (file.record_count, file.file_size_in_bytes) == (10, 1000)
    assert file.column_sizes is not None
    assert dict(file.column_sizes.items()) == {1: 100, 2: 200}
    assert file.null_value_counts is not None
    assert file.null_value_counts.get(2) == 3
    assert file.nan_value_counts is not None
    assert len(file.nan_value_counts) == 0
    assert file.lower_bounds is not None
    assert dict(file.lower_bounds.items()) == {1: (-5).to_bytes(8, "little", signed=True), 2: b"a"}
    assert file.upper_bounds is not None
    assert file.upper_bounds.get(2) == b"zz"
    assert file.upper_bounds.get(3) is None
    assert (file.key_metadata, list(file.split_offsets or ())) == (b"\x00\xff", [4, 500])
    assert file.sort_order_id == 0
    assert file.first_row_id is None, "row ids are the server's"


def test_what_a_file_does_not_say_stays_open() -> None:
    file = data(table_of())
    assert (file.column_sizes, file.value_counts, file.lower_bounds) == (None, None, None)
    assert (file.key_metadata, file.split_offsets, file.sort_order_id) == (None, None, None)


def test_a_list_names_the_file_that_does_not_fit() -> None:
    converter = DeclaredFiles(table_of())
    good = [_DATA.decode(declared(file_path=f"s3://b/{n}.parquet")) for n in range(3)]
    assert [file.file_path for file in converter.data_files(good, PLACE)] == [
        file.file_path for file in good
    ]
    bad = [*good, _DATA.decode(declared(spec_id=9))]
    with pytest.raises(BadRequest) as caught:
        converter.data_files(bad, PLACE)
    assert caught.value.message.startswith(f"{PLACE}[3] ({PATH}).spec-id: 9 is not a partition")
    with pytest.raises(BadRequest, match=r"add-delete-files\[0\] .*\.equality-ids: 7 is not"):
        converter.delete_files(
            [_DELETE.decode(declared("equality-deletes", equality_ids=[7]))],
            "updates[0].add-delete-files",
        )


def test_a_sort_order_must_be_the_tables() -> None:
    assert_at(refusal(table_of(), sort_order_id=3), "sort-order-id", "3 is not a sort order", "0")


def test_split_offsets_lie_inside_the_file() -> None:
    assert data(table_of(), split_offsets=[999]).split_offsets is not None
    assert_at(refusal(table_of(), split_offsets=[4, 1000]), "split-offsets", "1000")


# --- partitions ---------------------------------------------------------------------------------

DECIMAL = "decimal(9, 2)"
PARTITIONS: list[tuple[str, str, Any, Any]] = [
    ("boolean", "identity", True, True),
    ("int", "identity", -7, -7),
    ("long", "identity", 2**40, 2**40),
    ("float", "identity", 1.5, 1.5),
    ("double", "identity", 2, 2.0),
    (DECIMAL, "identity", "12.30", Decimal("12.30")),
    ("date", "identity", "1970-01-11", 10),
    ("time", "identity", "00:00:01", 1_000_000),
    ("timestamp", "identity", "1970-01-01T00:00:00.000001", 1),
    ("timestamptz", "identity", "1970-01-01T00:00:01+00:00", 1_000_000),
    ("string", "identity", "ø", "ø"),
    (
        "uuid",
        "identity",
        "f79c3e09-677c-4bbd-a479-3f349cb785e7",
        UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ),
    ("fixed[2]", "identity", "00ff", b"\x00\xff"),
    ("binary", "identity", "", b""),
    ("long", "bucket[16]", 15, 15),
    ("int", "truncate[10]", -20, -20),
    ("string", "truncate[3]", "abc", "abc"),
    (DECIMAL, "truncate[50]", "1.50", Decimal("1.50")),
    ("binary", "truncate[2]", "0001", b"\x00\x01"),
    ("date", "year", 54, 54),
    ("date", "month", -1, -1),
    ("timestamp", "day", "2024-01-02", 19724),
    ("timestamp", "day", 19724, 19724),
    ("timestamptz", "hour", 473_000, 473_000),
    ("long", "void", None, None),
]


@pytest.mark.parametrize(("kind", "transform", "given_value", "value"), PARTITIONS)
def test_partition_values_are_read_by_the_type_of_the_transform(
    kind: str, transform: str, given_value: Any, value: Any
) -> None:
    metadata = table_of([kind], [(1, transform)])
    assert data(metadata, partition=[given_value]).partition == (value,)
    assert data(metadata, partition={"1000": given_value}).partition == (value,)
    assert data(metadata, partition=[None]).partition == (None,)
    assert data(metadata, partition={}).partition == (None,), "Java leaves null out of the object"
    encoder = manifest_encoder(metadata.current_schema, metadata.default_spec, 2, DATA)
    assert encoder.data_file(data(metadata, partition=[given_value]))


@pytest.mark.parametrize(
    ("kind", "transform", "value", "problem"),
    [
        ("int", "identity", "7", "is not a int value"),
        ("int", "identity", True, "is not a int value"),
        ("int", "identity", 1.0, "is not a int value"),
        ("int", "identity", 2**31, "32 bits"),
        ("boolean", "identity", 1, "is not a boolean value"),
        ("date", "identity", 19724, "is not a date value"),
        ("date", "identity", "2024-02-30", "not a day of the calendar"),
        ("string", "identity", 5, "is not a string value"),
        (DECIMAL, "identity", "12.3", "scale 2"),
        ("fixed[2]", "identity", "00", "exactly 2"),
        ("long", "bucket[16]", 16, "0 to 15"),
        ("long", "bucket[16]", -1, "0 to 15"),
        ("int", "truncate[10]", 25, "not a result of truncate[10]"),
        ("string", "truncate[3]", "abcd", "not a result of truncate[3]"),
        ("timestamp", "day", 2**31, "32 bits"),
        ("timestamp", "day", True, "is not a date value"),
        ("timestamp", "hour", "2024-01-02", "is not a int value"),
        ("long", "void", 1, "null"),
    ],
)
def test_partition_values_that_do_not_fit_are_named(
    kind: str, transform: str, value: Any, problem: str
) -> None:
    metadata = table_of([kind], [(1, transform)])
    for partition in ([value], {"1000": value}):
        assert_at(refusal(metadata, partition=partition), "partition.p0", problem)


def test_a_remembered_tuple_lets_nothing_else_in() -> None:
    """True, 1 and 1.0 are equal in Python, but only 1 is an int."""
    converter = DeclaredFiles(table_of(["int"], [(1, "identity")]))
    (file,) = converter.data_files([_DATA.decode(declared(partition=[1]))], PLACE)
    assert file.partition == (1,)
    for other in (True, 1.0):
        with pytest.raises(BadRequest, match="is not a int value"):
            converter.data_files([_DATA.decode(declared(partition=[other]))], PLACE)


def test_zero_and_minus_zero_stay_two_partitions() -> None:
    converter = DeclaredFiles(table_of(["double"], [(1, "identity")]))
    files = [_DATA.decode(declared(partition=[value])) for value in (0.0, -0.0)]
    assert [str(file.partition[0]) for file in converter.data_files(files, PLACE)] == [
        "0.0",
        "-0.0",
    ]


def test_partitions_of_the_wrong_shape_are_refused() -> None:
    metadata = table_of(["long", "long"], [(1, "identity"), (2, "bucket[8]")])
    for partition in ([], [1], [1, 2, 3]):
        assert_at(
            refusal(metadata, partition=partition), "partition", "1000: p0, 1001: p1", "2 fields"
        )
    assert_at(refusal(metadata, partition={"1": 5}), "partition", "1 is not the id", "1000: p0")
    assert_at(refusal(table_of(), partition=[1]), "partition", "unpartitioned")
    assert_at(refusal(table_of(), spec_id=1), "spec-id", "1 is not a partition spec", "has 0")


def test_older_specs_are_read_by_their_own_fields() -> None:
    metadata = table_of(["long", "string"], [(1, "bucket[4]")])
    spec = {
        "spec-id": 1,
        "fields": [{"source-id": 2, "field-id": 1001, "name": "c2", "transform": "identity"}],
    }
    evolved = apply(metadata, update("add-spec", spec=spec), update("set-default-spec", spec_id=1))
    assert data(evolved, spec_id=0, partition=[3]).partition == (3,)
    assert data(evolved, spec_id=1, partition=["x"]).partition == ("x",)
    assert_at(refusal(evolved, spec_id=1, partition=[3]), "partition.c2")


def dropped_source(transform: str) -> TableMetadata:
    """Return a table whose first spec has a source that is no longer in the schema."""
    metadata = table_of(["long", "timestamp"], [(2, transform)])
    schema = {
        "type": "struct",
        "schema-id": 1,
        "fields": [{"id": 1, "name": "c1", "required": False, "type": "long"}],
    }
    return apply(
        metadata,
        update("add-spec", spec={"spec-id": 1, "fields": []}),
        update("set-default-spec", spec_id=1),
        update("add-schema", schema=schema),
        update("set-current-schema", schema_id=1),
    )


def test_a_dropped_source_leaves_only_what_has_a_type_of_its_own() -> None:
    assert data(dropped_source("day"), partition=["1970-01-02"]).partition == (1,)
    identity = dropped_source("identity")
    assert data(identity, partition=[None]).partition == (None,)
    assert_at(
        refusal(identity, partition=["1970-01-01T00:00:00"]),
        "partition.p0",
        "only null can be kept",
    )


def test_no_file_is_added_with_an_unknown_transform() -> None:
    # Only a table that another catalog made has one; a new table refuses it.
    foreign = document(table_of(["long"], [(1, "identity")]))
    foreign["partition-specs"][0]["fields"][0]["transform"] = "zorder[7]"
    assert_at(refusal(parse(foreign), partition=[None]), "spec-id", "not known")


# --- counts -------------------------------------------------------------------------------------

COUNTS = ["column_sizes", "value_counts", "null_value_counts", "nan_value_counts"]


@pytest.mark.parametrize("name", [*COUNTS, "lower_bounds", "upper_bounds"])
def test_metrics_of_columns_that_no_schema_has_are_refused(name: str) -> None:
    metadata = table_of(["long"])
    for _ in range(2):
        assert_at(
            refusal(metadata, "data", **{name: field_map({1: 1, 8: 1})}),
            name.replace("_", "-"),
            "8 is not the id of a column",
        )


def test_metrics_of_columns_of_older_schemas_are_kept() -> None:
    evolved = dropped_source("day")
    file = data(
        evolved,
        partition=[None],
        value_counts=field_map({1: 10, 2: 10}),
        lower_bounds=field_map({2: "1970-01-01T00:00:00"}),
    )
    assert file.value_counts is not None
    assert file.value_counts.get(2) == 10
    assert file.lower_bounds is not None
    assert file.lower_bounds.get(2) == bytes(8)


def test_metrics_of_reserved_columns_are_kept() -> None:
    file = data(
        table_of(version=3),
        value_counts=field_map({2147483540: 10, 2147483450: 1}),
        lower_bounds=field_map({2147483540: 5, 2147483539: 6}),
    )
    assert file.lower_bounds is not None
    assert file.lower_bounds.get(2147483539) == (6).to_bytes(8, "little")
    message = refusal(table_of(version=3), lower_bounds=field_map({2147483450: 5}))
    assert_at(message, "lower-bounds", "2147483450")


def test_a_part_is_never_more_than_the_whole() -> None:
    metadata = table_of(["long", "double"])
    fits = {"value_counts": field_map({1: 10, 2: 4})}
    assert data(metadata, **fits, null_value_counts=field_map({2: 4, 1: 10}))
    assert data(metadata, null_value_counts=field_map({1: 11}))
    for name in ("null_value_counts", "nan_value_counts"):
        message = refusal(metadata, "data", **fits, **{name: field_map({1: 0, 2: 5})})
        assert_at(message, name.replace("_", "-"), "field 2 (c2, double)", "5", "4")


def test_a_required_column_has_no_nulls() -> None:
    metadata = table_of(["long", "long"], required=[1])
    assert data(metadata, null_value_counts=field_map({1: 0, 2: 5}))
    message = refusal(metadata, null_value_counts=field_map({1: 1, 2: 5}))
    assert_at(message, "null-value-counts", "field 1 (c1, long)", "required")


def test_a_nested_required_column_is_null_with_what_it_is_nested_in() -> None:
    inner = {"id": 2, "name": "x", "required": True, "type": "int"}
    metadata = table_of([{"type": "struct", "fields": [inner]}])
    assert data(metadata, null_value_counts=field_map({2: 5}))


# --- bounds -------------------------------------------------------------------------------------

BOUNDS: dict[str, list[Any]] = {
    "boolean": [False, True],
    "int": [-(2**31), 2**31 - 1],
    "long": [-(2**63), 2**63 - 1],
    "float": [-1.5, 0.1, 7],
    "double": [-1e300, 0.1, 7],
    "decimal(9, 2)": ["-0.01", "12.00", "9999999.99"],
    "decimal(38, 10)": ["0E-10", "1.0000000000"],
    "date": ["-0001-01-01", "1969-12-31", "2024-02-29"],
    "time": ["00:00:00", "23:59:59.999999"],
    "timestamp": ["1969-12-31T23:59:59.999999", "2024-02-29T00:00:00"],
    "timestamptz": ["1969-12-31T23:59:59.999999+00:00", "2024-02-29T00:00:00Z"],
    "timestamp_ns": ["1970-01-01T00:00:00.000000001"],
    "timestamptz_ns": ["1970-01-01T00:00:00.000000001+00:00"],
    "string": ["", "a", "ø", "zz"],
    "uuid": ["f79c3e09-677c-4bbd-a479-3f349cb785e7"],
    "fixed[4]": ["00ff00ff"],
    "binary": ["", "00", "ff"],
}


def binary(kind: str, value: Any) -> bytes:
    """Encode a JSON value with the general functions."""
    type_ = type_from_name(kind)
    return to_binary(type_, from_json(type_, value))


@pytest.mark.parametrize("kind", TYPES)
def test_bounds_are_the_binary_values_of_their_type(kind: str) -> None:
    metadata = table_of([kind], version=3)
    values = BOUNDS[kind]
    for value in values:
        file = data(
            metadata, lower_bounds=field_map({1: values[0]}), upper_bounds=field_map({1: value})
        )
        assert file.lower_bounds is not None
        assert file.upper_bounds is not None
        assert file.lower_bounds.get(1) == binary(kind, values[0])
        assert file.upper_bounds.get(1) == binary(kind, value)


@pytest.mark.parametrize("kind", TYPES)
def test_bounds_in_hex_are_taken_as_they_are(kind: str) -> None:
    metadata = table_of([kind], version=3)
    for value in BOUNDS[kind]:
        given_value = binary(kind, value).hex()
        file = data(metadata, lower_bounds=field_map({1: given_value}), bounds_encoding="hex")
        assert file.lower_bounds is not None
        assert file.lower_bounds.get(1) == binary(kind, value)


def test_hex_is_never_guessed() -> None:
    metadata = table_of(["string"])
    file = data(metadata, lower_bounds=field_map({1: "6162"}))
    assert file.lower_bounds is not None
    assert file.lower_bounds.get(1) == b"6162"
    file = data(metadata, lower_bounds=field_map({1: "6162"}), bounds_encoding="hex")
    assert file.lower_bounds is not None
    assert file.lower_bounds.get(1) == b"ab"


WRONG: dict[str, list[Any]] = {
    "boolean": [1, "true"],
    "int": [True, 1.5, "1", 2**31],
    "long": [True, 1.0, "1", 2**63],
    "float": [True, "1.5", 1e39],
    "double": [True, "1.5", 10**400],
    "decimal(9, 2)": [12, 12.5, "12.5", "12345678.00", "NaN"],
    "decimal(38, 10)": ["1"],
    "date": [10, "2024-13-01"],
    "time": [5, "24:00:00"],
    "timestamp": [5, "2024-01-01T00:00:00Z", "2024-01-01"],
    "timestamptz": [5, "2024-01-01T00:00:00", "2024-01-01T00:00:00+01:00"],
    "timestamp_ns": ["2024-01-01"],
    "timestamptz_ns": ["2024-01-01T00:00:00"],
    "string": [5, True],
    "uuid": ["f79c3e09677c4bbda4793f349cb785e7", 1],
    "fixed[4]": ["0011223344", "0x", 5],
    "binary": ["0", "zz", 5],
}


@pytest.mark.parametrize("kind", TYPES)
def test_bounds_that_do_not_fit_their_type_are_named(kind: str) -> None:
    metadata = table_of(["long", kind], version=3)
    for value in WRONG[kind]:
        for name in ("lower_bounds", "upper_bounds"):
            message = refusal(metadata, "data", **{name: field_map({1: 5, 2: value})})
            assert_at(message, name.replace("_", "-"), f"field 2 (c2, {kind})")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", "0000"),
        ("int", "00"),
        ("long", "000000"),
        ("float", "0000000000000000"),
        ("double", "00"),
        ("decimal(9, 2)", ""),
        ("date", "0000000000000000"),
        ("timestamptz", "00000000"),
        ("string", "ff"),
        ("uuid", "00"),
        ("fixed[4]", "0000000000"),
        ("geometry", "00"),
    ],
)
def test_bounds_in_hex_that_do_not_decode_are_named(kind: str, value: str) -> None:
    metadata = table_of([kind], version=3)
    message = refusal(metadata, upper_bounds=field_map({1: value}), bounds_encoding="hex")
    assert_at(message, "upper-bounds", "field 1 (c1, ")


def test_a_bound_of_a_column_that_was_narrower_stays_as_it_was_written() -> None:
    file = data(table_of(["long"]), lower_bounds=field_map({1: "05000000"}), bounds_encoding="hex")
    assert file.lower_bounds is not None
    assert file.lower_bounds.get(1) == b"\x05\x00\x00\x00"


def test_a_truncated_bound_of_a_fixed_may_be_shorter() -> None:
    file = data(table_of(["fixed[4]"]), lower_bounds=field_map({1: "00ff"}))
    assert file.lower_bounds is not None
    assert file.lower_bounds.get(1) == b"\x00\xff"


def test_bounds_of_types_without_json_values_come_in_hex() -> None:
    metadata = table_of(["geometry", "variant", "unknown"], version=3)
    for field_id in (1, 2):
        message = refusal(metadata, lower_bounds=field_map({field_id: "POINT (1 2)"}))
        assert_at(message, "lower-bounds", '"bounds-encoding": "hex"')
    point = bytes(16).hex()
    file = data(metadata, lower_bounds=field_map({1: point, 2: "01"}), bounds_encoding="hex")
    assert file.lower_bounds is not None
    assert file.lower_bounds.get(1) == bytes(16)
    assert_at(refusal(metadata, lower_bounds=field_map({3: 1})), "lower-bounds", "unknown")


def test_columns_with_fields_have_no_bounds() -> None:
    inner = {"id": 2, "name": "x", "required": True, "type": "int"}
    metadata = table_of([{"type": "struct", "fields": [inner]}])
    assert data(metadata, lower_bounds=field_map({2: 5})).lower_bounds is not None
    assert_at(refusal(metadata, lower_bounds=field_map({1: 5})), "lower-bounds", "not primitive")


@pytest.mark.parametrize(
    ("kind", "lower", "upper"),
    [
        ("int", 5, 4),
        ("double", 0.5, 0.25),
        ("boolean", True, False),
        ("string", "b", "a"),
        ("date", "2024-01-02", "2024-01-01"),
        ("decimal(9, 2)", "10.00", "9.00"),
        ("timestamptz", "2024-01-01T00:00:01Z", "2024-01-01T00:00:00+00:00"),
    ],
)
def test_a_lower_bound_above_the_upper_one_would_hide_the_file(
    kind: str, lower: Any, upper: Any
) -> None:
    metadata = table_of(["long", kind])
    good: dict[int, Any] = {1: 1}
    message = refusal(
        metadata,
        lower_bounds=field_map(good | {2: lower}),
        upper_bounds=field_map(good | {2: upper}),
    )
    assert_at(message, "lower-bounds", f"field 2 (c2, {kind})", "above its upper bound")
    message = refusal(
        metadata,
        lower_bounds=field_map({2: binary(kind, lower).hex()}),
        upper_bounds=field_map({1: binary("long", 1).hex(), 2: binary(kind, upper).hex()}),
        bounds_encoding="hex",
    )
    assert_at(message, "lower-bounds", "above its upper bound")
    assert data(metadata, lower_bounds=field_map({2: upper}), upper_bounds=field_map({2: lower}))


def test_text_ordered_by_utf16_units_is_not_refused() -> None:
    """U+FF5E is before U+1F600 by code points, but after it by UTF-16 units, which Java uses."""
    metadata = table_of(["string"])
    one, other = "\uff5e", "\U0001f600"
    for lower, upper in ((one, other), (other, one)):
        assert data(
            metadata, lower_bounds=field_map({1: lower}), upper_bounds=field_map({1: upper})
        )


numbers = st.integers(-(2**63), 2**63 - 1)


@given(
    st.dictionaries(st.integers(1, 6), st.tuples(numbers, numbers), max_size=6),
    st.lists(st.text(max_size=5), min_size=2, max_size=2),
)
def test_bounds_of_any_columns_are_read_back(
    longs: dict[int, tuple[int, int]], texts: list[str]
) -> None:
    """Any columns may have bounds in any order, and each column gets its own value."""
    metadata = table_of(["long"] * 6 + ["string"])
    lower: dict[int, Any] = {field_id: min(pair) for field_id, pair in longs.items()}
    upper: dict[int, Any] = {field_id: max(pair) for field_id, pair in longs.items()}
    lower[7], upper[7] = sorted(texts)
    file = data(metadata, lower_bounds=field_map(lower), upper_bounds=field_map(upper))
    kinds: dict[int, Type] = {field_id: type_from_name("long") for field_id in longs}
    kinds[7] = type_from_name("string")
    for given_bounds, found in ((lower, file.lower_bounds), (upper, file.upper_bounds)):
        assert found is not None
        assert {
            field_id: to_json(kinds[field_id], value) for field_id, value in given_bounds.items()
        } == given_bounds
        assert dict(found.items()) == {
            field_id: to_binary(kinds[field_id], value) for field_id, value in given_bounds.items()
        }


# --- delete files -------------------------------------------------------------------------------

VECTOR = {
    "file_format": "puffin",
    "content_offset": 4,
    "content_size_in_bytes": 40,
    "referenced_data_file": "s3://bucket/warehouse/db/events/data/a.parquet",
}


def test_delete_files_say_what_they_are() -> None:
    metadata = table_of(["long", "double"])
    by_equality = delete(metadata, "equality-deletes", equality_ids=[1, 2], sort_order_id=0)
    assert by_equality.content == EQUALITY_DELETES
    assert list(by_equality.equality_ids or ()) == [1, 2]
    by_position = delete(
        metadata,
        "POSITION_DELETES",
        referenced_data_file=VECTOR["referenced_data_file"],
        lower_bounds=field_map({2147483546: "s3://b/a", 2147483545: 0}),
        null_value_counts=field_map({2147483546: 0}),
    )
    assert by_position.content == POSITION_DELETES
    assert by_position.referenced_data_file == VECTOR["referenced_data_file"]
    assert by_position.lower_bounds is not None
    assert by_position.lower_bounds.get(2147483546) == b"s3://b/a"


def test_a_deletion_vector_keeps_its_place_in_the_file() -> None:
    file = delete(table_of(version=3), "position-deletes", **VECTOR)
    assert file.identity == (PATH, 4, 40)
    assert file.file_format == "puffin"
    whole = VECTOR | {"content_offset": 960}
    assert delete(table_of(version=3), "position-deletes", **whole)
    beyond = VECTOR | {"content_offset": 961}
    message = refusal(table_of(version=3), "position-deletes", **beyond)
    assert_at(message, "content-size-in-bytes", "1001", "1000")


@pytest.mark.parametrize("content", ["position-deletes", "equality-deletes"])
def test_format_version_1_has_no_delete_files(content: str) -> None:
    more = {"equality_ids": [1]} if content == "equality-deletes" else {}
    assert_at(refusal(table_of(version=1), content, **more), "content", "format version 1")


def test_each_version_has_its_own_position_deletes() -> None:
    message = refusal(table_of(version=2), "position-deletes", **VECTOR)
    assert_at(message, "file-format", "format version 3", "has 2")
    message = refusal(table_of(version=3), "position-deletes")
    assert_at(message, "file-format", "format version 3", "deletion vector")


def test_position_deletes_have_no_sort_order() -> None:
    metadata = apply(
        table_of(),
        update(
            "add-sort-order",
            sort_order={
                "order-id": 1,
                "fields": [
                    {
                        "transform": "identity",
                        "source-id": 1,
                        "direction": "asc",
                        "null-order": "nulls-first",
                    }
                ],
            },
        ),
    )
    assert data(metadata, sort_order_id=1).sort_order_id == 1
    assert delete(metadata, "equality-deletes", equality_ids=[1], sort_order_id=1)
    assert_at(refusal(metadata, "position-deletes", sort_order_id=1), "sort-order-id")


def test_equality_ids_are_columns_of_the_current_schema() -> None:
    message = refusal(table_of(), "equality-deletes", equality_ids=[1, 5])
    assert_at(message, "equality-ids", "5 is not the id of a column")
    dropped = dropped_source("day")
    message = refusal(dropped, "equality-deletes", equality_ids=[2], partition=[None])
    assert_at(message, "equality-ids", "2 is not the id of a column")


def test_delete_files_of_a_required_column_may_count_nulls() -> None:
    """A position delete file may contain the deleted row, but need not."""
    metadata = table_of(required=[1])
    assert delete(metadata, "position-deletes", null_value_counts=field_map({1: 5}))
