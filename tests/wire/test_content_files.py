"""Content files on the wire: valid ones are accepted, and errors name the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from frazil.wire.declared_content import (
    AddedDataFile,
    AddedDeleteFile,
    CountMap,
    DeclaredDataFile,
    EqualityDeleteFile,
    NamedDataFile,
    NamedDeleteFile,
    PositionDeleteFile,
    RemovedDataFile,
    RemovedDeleteFile,
    UpperCaseDataFile,
    UpperCaseEqualityDeleteFile,
    UpperCasePositionDeleteFile,
    ValueMap,
    data_file_path,
    delete_file_key,
)
from frazil.wire.errors import BadRequest
from frazil.wire.json_bodies import decode, encode


class Files(Struct, rename="kebab", omit_defaults=True):
    """The four file lists of an update."""

    add_data_files: tuple[AddedDataFile, ...] = ()
    add_delete_files: tuple[AddedDeleteFile, ...] = ()
    remove_data_files: tuple[RemovedDataFile, ...] = ()
    remove_delete_files: tuple[RemovedDeleteFile, ...] = ()


BASE: dict[str, Any] = {
    "spec-id": 0,
    "partition": [],
    "file-path": "s3://b/t/data/1.parquet",
    "file-format": "parquet",
    "file-size-in-bytes": 100,
    "record-count": 10,
}
DATA = BASE | {"content": "data"}
POSITION = BASE | {"content": "position-deletes"}
EQUALITY = BASE | {"content": "equality-deletes", "equality-ids": [1, 2]}
VECTOR = POSITION | {
    "file-path": "s3://b/t/data/1.puffin",
    "file-format": "puffin",
    "content-offset": 4,
    "content-size-in-bytes": 40,
    "referenced-data-file": "s3://b/t/data/1.parquet",
}


def data(**changes: Any) -> dict[str, Any]:
    return changed(DATA, changes)


def changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return base | {name.replace("_", "-"): value for name, value in changes.items()}


def without(base: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in base.items() if key != name}


def read(name: str, *documents: Any) -> Any:
    return getattr(decode(Files, encode({name: documents})), name.replace("-", "_"))


def read_one(document: dict[str, Any]) -> Any:
    is_data = document["content"] in ("data", "DATA")
    return read("add-data-files" if is_data else "add-delete-files", document)[0]


STATISTICS: dict[str, Any] = {
    "column-sizes": {"keys": [1, 2], "values": [10, 20]},
    "value-counts": {"keys": [1, 2], "values": [10, 10]},
    "null-value-counts": {"keys": [1, 2], "values": [0, 3]},
    "nan-value-counts": {"keys": [2], "values": [0]},
    "lower-bounds": {"keys": [1, 2], "values": [1, "a"]},
    "upper-bounds": {"keys": [1, 2], "values": [9.5, True]},
}

ACCEPTED: dict[str, tuple[dict[str, Any], type]] = {
    "data": (DATA, DeclaredDataFile),
    "data of old Java": (data(content="DATA", file_format="PARQUET"), UpperCaseDataFile),
    "avro": (data(file_format="avro"), DeclaredDataFile),
    "orc": (data(file_format="ORC"), DeclaredDataFile),
    "statistics": (DATA | STATISTICS, DeclaredDataFile),
    "nulls": (
        DATA | dict.fromkeys([*STATISTICS, "key-metadata", "first-row-id"]),
        DeclaredDataFile,
    ),
    "the rest": (
        data(key_metadata="0aFF", split_offsets=[4, 90], sort_order_id=1, first_row_id=7),
        DeclaredDataFile,
    ),
    "partition by position": (data(partition=[1, "x", None, 1.5, False]), DeclaredDataFile),
    "partition by field id": (data(partition={"1000": 1, "1001": None}), DeclaredDataFile),
    "a day as date": (data(partition=["2024-05-01"]), DeclaredDataFile),
    "a day as number": (data(partition=[19844]), DeclaredDataFile),
    "hex bounds": (
        data(bounds_encoding="hex", lower_bounds={"keys": [1, 2], "values": ["0a00FF00", ""]}),
        DeclaredDataFile,
    ),
    "position deletes": (POSITION, PositionDeleteFile),
    "position deletes of one file": (
        POSITION | {"referenced-data-file": "p", **STATISTICS},
        PositionDeleteFile,
    ),
    "position deletes of old Java": (
        POSITION | {"content": "POSITION_DELETES"},
        UpperCasePositionDeleteFile,
    ),
    "deletion vector": (VECTOR, PositionDeleteFile),
    "deletion vector of old Java": (
        VECTOR | {"content": "POSITION_DELETES", "file-format": "PUFFIN"},
        UpperCasePositionDeleteFile,
    ),
    "equality deletes": (EQUALITY | STATISTICS, EqualityDeleteFile),
    "equality deletes of old Java": (
        EQUALITY | {"content": "EQUALITY_DELETES"},
        UpperCaseEqualityDeleteFile,
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case: str) -> None:
    document, kind = ACCEPTED[case]
    file = read_one(document)
    assert file.file_path == document["file-path"]
    assert file.format_name == document["file-format"].lower()
    assert type(file) is kind


REQUIRED = ["content", *BASE]
PLACE = "add-data-files[0]"

REFUSED_DATA: list[tuple[dict[str, Any], str]] = [
    *((without(DATA, name), f"{PLACE}.{name}: required, but missing") for name in REQUIRED),
    (data(content="position-deletes"), f"{PLACE}.content: unknown content 'position-deletes'"),
    (data(content="Data"), f"{PLACE}.content: unknown content 'Data'"),
    (data(referenced_data_file="p"), f"{PLACE}.referenced-data-file: unknown field"),
    (data(content_offset=1), f"{PLACE}.content-offset: unknown field"),
    (data(equality_ids=[1]), f"{PLACE}.equality-ids: unknown field"),
    (data(file_path=""), f"{PLACE}.file-path: expected str of length >= 1"),
    (data(file_format="Parquet"), f"{PLACE}.file-format: unknown value 'Parquet'"),
    (data(file_format="puffin"), f"{PLACE}.file-format: puffin holds deletion vectors"),
    (data(spec_id=2**31), f"{PLACE}.spec-id: expected int <= 2147483647"),
    (data(file_size_in_bytes=-1), f"{PLACE}.file-size-in-bytes: expected int >= 0"),
    (data(record_count=-1), f"{PLACE}.record-count: expected int >= 0"),
    (data(record_count=2**63), f"{PLACE}.record-count: expected int <= 9223372036854775807"),
    (data(record_count=1.5), f"{PLACE}.record-count: expected int, got float"),
    (data(partition=None), f"{PLACE}.partition: expected"),
    (data(partition=[[1]]), f"{PLACE}.partition[0]: expected"),
    (data(partition={"1000": {}}), f"{PLACE}.partition: the value of field 1000 must be"),
    (data(partition={"day": 1}), f"{PLACE}.partition"),
    (data(key_metadata="0g"), f"{PLACE}.key-metadata: expected str matching regex"),
    (data(key_metadata="0"), f"{PLACE}.key-metadata: expected str matching regex"),
    (data(split_offsets=[9, 4]), f"{PLACE}.split-offsets: must be in ascending order"),
    (data(bounds_encoding="base64"), f"{PLACE}.bounds-encoding: unknown value"),
    (
        data(value_counts={"keys": [1, 2], "values": [1]}),
        f"{PLACE}.value-counts: keys and values must be of one length, but there are 2 keys",
    ),
    (
        data(lower_bounds={"keys": [], "values": [1]}),
        f"{PLACE}.lower-bounds: keys and values must be of one length",
    ),
    (
        data(upper_bounds={"keys": [3, 7, 3], "values": [1, 2, 3]}),
        f"{PLACE}.upper-bounds.keys: field id 3 stands twice",
    ),
    (
        data(column_sizes={"keys": [2**31], "values": [1]}),
        f"{PLACE}.column-sizes.keys[0]: expected int <= 2147483647",
    ),
    (
        data(column_sizes={"keys": ["1"], "values": [1]}),
        f"{PLACE}.column-sizes.keys[0]: expected int, got str",
    ),
    (
        data(null_value_counts={"keys": [1], "values": [-1]}),
        f"{PLACE}.null-value-counts.values[0]: expected int >= 0",
    ),
    (data(nan_value_counts={"keys": [1]}), f"{PLACE}.nan-value-counts.values: required"),
    (data(nan_value_counts={"1": 2}), f"{PLACE}.nan-value-counts.1: unknown field"),
    (
        data(lower_bounds={"keys": [1], "values": [None]}),
        f"{PLACE}.lower-bounds.values[0]: expected bool | int | float | str, got null",
    ),
    *(
        (
            data(bounds_encoding="hex", upper_bounds={"keys": [5], "values": [value]}),
            f"{PLACE}.upper-bounds: the bound of field 5 must be an even number of hexadecimal",
        )
        for value in ("0", "zz", "0a 0", "é0", 10)
    ),
]


@pytest.mark.parametrize(("document", "message"), REFUSED_DATA, ids=lambda item: str(item)[-60:])
def test_refused_data_file(document: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read("add-data-files", document)
    assert message in refused.value.message


REFUSED_DELETES: list[tuple[dict[str, Any], str]] = [
    (DATA, ".content: unknown content 'data'"),
    (POSITION | {"equality-ids": [1]}, ".equality-ids: unknown field"),
    (POSITION | {"first-row-id": 1}, ".first-row-id: unknown field"),
    (POSITION | {"file-format": "puffin"}, ".content-offset: required for a deletion vector"),
    (without(VECTOR, "content-offset"), ".content-offset: required"),
    (without(VECTOR, "content-size-in-bytes"), ".content-size-in-bytes: required"),
    (without(VECTOR, "referenced-data-file"), ".referenced-data-file: required"),
    (VECTOR | {"file-format": "parquet"}, ".file-format: must be puffin"),
    (VECTOR | {"content-offset": -4}, ".content-offset: expected int >= 0"),
    (without(EQUALITY, "equality-ids"), ".equality-ids: required, but missing"),
    (EQUALITY | {"equality-ids": []}, ".equality-ids: expected array of length >= 1"),
    (EQUALITY | {"equality-ids": [1, 2, 1]}, ".equality-ids: 1 stands twice"),
    (EQUALITY | {"file-format": "puffin"}, ".file-format: puffin holds deletion vectors"),
    (EQUALITY | {"content-offset": 1}, ".content-offset: unknown field"),
]


@pytest.mark.parametrize(("document", "message"), REFUSED_DELETES, ids=lambda item: str(item)[:60])
def test_refused_delete_file(document: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read("add-delete-files", POSITION, document)
    assert f"add-delete-files[1]{message}" in refused.value.message


def test_bounds_are_hex_only_when_the_file_says_so() -> None:
    bounds = {"keys": [1], "values": ["0a"]}
    typed = read_one(data(lower_bounds=bounds))
    binary = read_one(data(lower_bounds=bounds, bounds_encoding="hex"))
    assert typed.lower_bounds == binary.lower_bounds
    assert (typed.bounds_encoding, binary.bounds_encoding) == (None, "hex")


def test_values_keep_the_form_that_json_gave_them() -> None:
    partition = ["2024-05-01", 19844, 1, 1.0, True, None, 2**70]
    file = read_one(data(partition=partition))
    assert [(type(value), value) for value in file.partition] == [
        (type(value), value) for value in partition
    ]
    assert read_one(data(partition={"1000": "x", "1001": None})).partition == {
        1000: "x",
        1001: None,
    }


# --- removals -----------------------------------------------------------------------------------


def test_a_removed_data_file_is_a_path_an_object_or_the_file_as_it_was_added() -> None:
    full = DATA | STATISTICS | {"first-row-id": 3, "partition": {"1000": "wrong"}}
    removed = read("remove-data-files", "a", {"file-path": "b"}, full)
    assert [data_file_path(file) for file in removed] == ["a", "b", BASE["file-path"]]
    assert [type(file) for file in removed] == [str, NamedDataFile, NamedDataFile]


def test_a_removed_delete_file_is_named_with_its_offset() -> None:
    removed = read(
        "remove-delete-files",
        "a",
        {"file-path": "b"},
        {"file-path": "b", "content-offset": 4},
        VECTOR,
        EQUALITY | STATISTICS,
    )
    assert [delete_file_key(file) for file in removed] == [
        ("a", None),
        ("b", None),
        ("b", 4),
        (VECTOR["file-path"], 4),
        (EQUALITY["file-path"], None),
    ]
    assert all(isinstance(file, NamedDeleteFile) for file in removed[1:])


@pytest.mark.parametrize(
    ("name", "document", "message"),
    [
        ("remove-data-files", "", "[0]: expected str of length >= 1"),
        ("remove-data-files", 5, "[0]: expected str | object, got int"),
        ("remove-data-files", {}, "[0].file-path: required, but missing"),
        ("remove-data-files", {"file-path": "a", "x": 1}, "[0].x: unknown field"),
        ("remove-data-files", {"file-path": "a", "content-offset": 1}, ".content-offset: unknown"),
        ("remove-data-files", POSITION, "[0].content: unknown value 'position-deletes'"),
        ("remove-delete-files", DATA, "[0].content: unknown value 'data'"),
        ("remove-delete-files", {"file-path": "a", "content-offset": -1}, ".content-offset: exp"),
        (
            "remove-delete-files",
            {"file-path": "a", "content-size-in-bytes": 1},
            "[0].content-offset: required where content-size-in-bytes is given",
        ),
    ],
)
def test_refused_removal(name: str, document: Any, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(name, document)
    assert refused.value.message.startswith(name)
    assert message in refused.value.message


# --- there and back -----------------------------------------------------------------------------

counts = st.integers(0, 2**63 - 1)
field_ids = st.integers(0, 2**31 - 1)
primitives = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
partitions = st.lists(st.none() | primitives, max_size=3).map(tuple) | st.dictionaries(
    field_ids, st.none() | primitives, max_size=3
)


def maps(kind: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    entries = st.dictionaries(field_ids, values, max_size=4)
    return entries.map(lambda found: kind(tuple(found), tuple(found.values())))


COMMON: dict[str, st.SearchStrategy[Any]] = {
    "spec_id": st.integers(0, 2**31 - 1),
    "partition": partitions,
    "file_path": st.text(min_size=1, max_size=20),
    "file_size_in_bytes": counts,
    "record_count": counts,
    "key_metadata": st.none() | st.binary(max_size=4).map(bytes.hex),
    "split_offsets": st.none() | st.lists(counts, max_size=3).map(sorted).map(tuple),
    "sort_order_id": st.none() | st.integers(0, 100),
    "column_sizes": st.none() | maps(CountMap, counts),
    "nan_value_counts": st.none() | maps(CountMap, counts),
    "lower_bounds": st.none() | maps(ValueMap, primitives),
    "upper_bounds": st.none() | maps(ValueMap, primitives),
}
formats = st.sampled_from(["parquet", "orc", "avro", "PARQUET", "ORC", "AVRO"])
vector = {
    "file_format": st.sampled_from(["puffin", "PUFFIN"]),
    "content_offset": counts,
    "content_size_in_bytes": counts,
    "referenced_data_file": st.text(min_size=1, max_size=8),
}
ids = st.lists(field_ids, min_size=1, max_size=3, unique=True).map(tuple)


def built(kinds: tuple[type, ...], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*(st.builds(kind, **(COMMON | fields)) for kind in kinds))


positions = (PositionDeleteFile, UpperCasePositionDeleteFile)
equalities = (EqualityDeleteFile, UpperCaseEqualityDeleteFile)
data_files = built((DeclaredDataFile, UpperCaseDataFile), file_format=formats)
delete_files = (
    built(positions, file_format=formats)
    | built(positions, **vector)
    | built(equalities, file_format=formats, equality_ids=ids)
)
lists = st.builds(
    Files,
    add_data_files=st.lists(data_files, max_size=2).map(tuple),
    add_delete_files=st.lists(delete_files, max_size=2).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(files=lists)
def test_files_come_back_as_they_were_written(files: Files) -> None:
    body = encode(files)
    again = decode(Files, body)
    assert again == files
    assert encode(again) == body
