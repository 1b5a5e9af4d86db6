"""Columns are found by field id or name mapping; columns that do not fit are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs as pafs
from pyarrow.parquet import encryption
from pyiceberg.table.name_mapping import parse_mapping_from_json

from frazil import DataFile, Table, read_data_files
from frazil.datafiles.footers.parquet_files import FileDoesNotFit, FileNotReadable
from frazil.values.name_mapping import name_mapping_of
from frazil.wire.errors import BadRequest
from tests.datafiles.footers.parquet_world import (
    arrow,
    bounds,
    column,
    counts,
    part,
    struct,
    table_of,
    write,
)
from tests.support.patience import HANG_S

NAME_MAPPING = "schema.name-mapping.default"
NESTED = (
    column(1, "id", "long"),
    column(2, "place", struct(column(3, "x", "double"), column(4, "y", "double"))),
    column(
        5,
        "tags",
        {
            "type": "list",
            "element-id": 6,
            "element-required": False,
            "element": struct(column(7, "name", "string")),
        },
    ),
    column(
        8,
        "prices",
        {
            "type": "map",
            "key-id": 9,
            "key": "string",
            "value-id": 10,
            "value": "int",
            "value-required": False,
        },
    ),
)
NESTED_TYPES: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "place": pa.struct([("x", pa.float64()), ("y", pa.float64())]),
    "tags": pa.list_(pa.struct([("name", pa.string())])),
    "prices": pa.map_(pa.string(), pa.int32()),
}
NESTED_ROW = ([1], [{"x": 1.0, "y": 2.0}], [[{"name": "a"}]], [[("k", 1)]])


def refused(path: str, table: Table | None, **options: Any) -> FileDoesNotFit:
    with pytest.raises(FileDoesNotFit) as caught:
        DataFile.from_parquet(path, table, **options)
    assert isinstance(caught.value, BadRequest)
    assert caught.value.path in str(caught.value)
    assert caught.value.reason in str(caught.value)
    return caught.value


# --- by field id ----------------------------------------------------------------------------------


def test_renamed_and_reordered_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    table = table_of(
        column(1, "id", "long"),
        column(2, "place", struct(column(3, "longitude", "double"), column(4, "name", "string"))),
    )
    inner = [arrow("name", pa.float64(), 3), arrow("title", pa.string(), 4)]
    fields = [arrow("id", pa.struct(inner), 2), arrow("place", pa.int64(), 1)]
    file = DataFile.from_parquet(write(tmp_path, fields, [{"name": 1.5, "title": "a"}], [7]), table)
    assert bounds(file, 1, "long") == (7, 7)
    assert bounds(file, 3, "double") == (1.5, 1.5)
    assert bounds(file, 4, "string") == ("a", "a")


def test_columns_that_the_schema_does_not_have_are_left_alone(tmp_path: Path) -> None:
    table = table_of(column(1, "id", "long"), former=[column(2, "gone", "string")])
    fields = [
        arrow("id", pa.int64(), 1),
        arrow("gone", pa.string(), 2),
        arrow("later", pa.struct([arrow("x", pa.int32(), 31)]), 30),
        arrow("without_id", pa.int32()),
    ]
    file = DataFile.from_parquet(write(tmp_path, fields, [1], ["a"], [{"x": 1}], [1]), table)
    assert set(counts(file.column_sizes)) == {1}


def test_an_id_that_was_another_columns_is_refused(tmp_path: Path) -> None:
    table = table_of(column(1, "id", "long"), former=[column(2, "gone", "string")])
    fields = [arrow("id", pa.int64(), 1), arrow("other", pa.int32(), 2)]
    error = refused(write(tmp_path, fields, [1], [1]), table)
    assert error.column == "other"
    assert "was that of a column of type string" in error.reason


def test_an_id_at_another_place_is_refused(tmp_path: Path) -> None:
    table = table_of(column(1, "id", "long"), column(2, "s", struct(column(3, "x", "int"))))
    fields = [arrow("id", pa.int64(), 1), arrow("x", pa.int32(), 3)]
    error = refused(write(tmp_path, fields, [1], [1]), table)
    assert error.column == "x"
    assert "s.x" in error.reason


def test_an_id_twice_is_refused(tmp_path: Path) -> None:
    fields = [arrow("a", pa.int64(), 1), arrow("b", pa.int64(), 1)]
    path = write(tmp_path, fields, [1], [1])
    for table in (table_of(column(1, "a", "long")), None):
        error = refused(path, table)
        assert error.column == "b"
        assert "field id 1" in error.reason


def test_the_ids_of_elements_count_too(tmp_path: Path) -> None:
    table = table_of(*NESTED)
    wrong = pa.list_(arrow("element", pa.struct([arrow("name", pa.string(), 7)]), 60))
    error = refused(write(tmp_path, [arrow("tags", wrong, 5)], [[]]), table)
    assert error.column == "tags.element"
    assert "must be 6" in error.reason


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "kind", "version"),
    [
        ("int", pa.int64(), 2),
        ("int", pa.uint32(), 2),
        ("long", pa.uint64(), 2),
        ("long", pa.string(), 2),
        ("float", pa.float64(), 2),
        ("float", pa.float16(), 2),
        ("decimal(5, 2)", pa.decimal128(6, 2), 2),
        ("decimal(9, 3)", pa.decimal128(5, 2), 2),
        ("timestamp", pa.timestamp("us", "UTC"), 2),
        ("timestamptz", pa.timestamp("us"), 2),
        ("timestamp", pa.timestamp("ns"), 3),
        ("timestamp_ns", pa.timestamp("us"), 3),
        ("timestamp", pa.date32(), 2),
        ("time", pa.time64("ns"), 2),
        ("fixed[4]", pa.binary(5), 2),
        ("uuid", pa.string(), 2),
        ("binary", pa.string(), 2),
        ("string", pa.int32(), 2),
        ("string", pa.list_(pa.field("element", pa.string())), 2),
    ],
)
def test_a_type_that_cannot_be_read_is_refused(
    tmp_path: Path, type_: str, kind: pa.DataType, version: int
) -> None:
    table = table_of(column(1, "outer", struct(column(2, "inner", type_))), format_version=version)
    fields = [arrow("outer", pa.struct([arrow("inner", kind, 2)]), 1)]
    error = refused(write(tmp_path, fields, [{"inner": None}]), table)
    assert error.column == "outer.inner"
    assert f"cannot be read as {type_}" in error.reason


def test_a_struct_is_no_list(tmp_path: Path) -> None:
    fields = [arrow("tags", pa.struct([arrow("element", pa.string(), 6)]), 5)]
    error = refused(write(tmp_path, fields, [{"element": "a"}]), table_of(*NESTED))
    assert (error.column, error.reason.rpartition(" ")[2]) == ("tags", "list")


# --- required columns -----------------------------------------------------------------------------


def test_a_missing_required_column_is_refused(tmp_path: Path) -> None:
    table = table_of(column(1, "id", "long"), column(2, "day", "date", required=True))
    path = write(tmp_path, [arrow("id", pa.int64(), 1)], [1])
    error = refused(path, table)
    assert (error.column, error.path) == ("day", f"file://{path}")
    assert "no column with field id 2" in error.reason
    fields = [arrow("id", pa.int64(), 1), arrow("day", pa.date32())]
    assert "has no field id" in refused(write(tmp_path, fields, [1], [None]), table).reason


def test_a_default_or_the_partition_stands_for_a_missing_column(tmp_path: Path) -> None:
    path = write(tmp_path, [arrow("id", pa.int64(), 1)], [1])
    default = column(2, "n", "int", required=True, **{"initial-default": 5})
    table = table_of(column(1, "id", "long"), default, format_version=3)
    assert DataFile.from_parquet(path, table).record_count == 1
    spec = [part(2, "day", "identity")]
    table = table_of(column(1, "id", "long"), column(2, "day", "date", required=True), spec=spec)
    assert DataFile.from_parquet(path, table, partition=["2026-05-01"]).partition == ("2026-05-01",)


def test_nulls_in_a_required_column_are_refused(tmp_path: Path) -> None:
    table = table_of(
        column(1, "s", struct(column(2, "x", "int", required=True)), required=True),
        column(3, "o", struct(column(4, "y", "int", required=True))),
    )
    fields = [
        arrow("s", pa.struct([arrow("x", pa.int32(), 2)]), 1),
        arrow("o", pa.struct([arrow("y", pa.int32(), 4)]), 3),
    ]
    error = refused(write(tmp_path, fields, [{"x": 1}, {"x": None}], [{"y": 1}] * 2), table)
    assert error.column == "s.x"
    assert "1 nulls" in error.reason
    # If the struct is null, its required field is null too.
    path = write(tmp_path, fields, [{"x": 1}, {"x": 2}], [{"y": 1}, None])
    assert counts(DataFile.from_parquet(path, table).null_value_counts) == {2: 0, 4: 1}


# --- by name --------------------------------------------------------------------------------------


def test_without_ids_both_ways_out_are_told(tmp_path: Path) -> None:
    fields = [pa.field(name, kind) for name, kind in NESTED_TYPES.items()]
    path = write(tmp_path, fields, *NESTED_ROW)
    error = refused(path, table_of(*NESTED))
    assert error.column is None
    assert "PARQUET:field_id" in error.reason
    # The name mapping in the message solves the problem.
    text = error.reason.rpartition(f"{NAME_MAPPING} to ")[2]
    file = DataFile.from_parquet(path, table_of(*NESTED, properties={NAME_MAPPING: text}))
    assert set(counts(file.column_sizes)) == {1, 3, 4, 7, 9, 10}
    assert bounds(file, 3, "double") == (1.0, 1.0)


def test_the_mapping_of_a_schema_is_one_that_pyiceberg_reads() -> None:
    text = name_mapping_of(table_of(*NESTED).schema)
    ids = {
        path: found.field_id for path, found in parse_mapping_from_json(text)._field_by_name.items()
    }
    assert (ids["place.y"], ids["tags.element.name"], ids["prices.value"]) == (4, 7, 10)
    assert [item["names"] for item in json.loads(text)] == [["id"], ["place"], ["tags"], ["prices"]]


def test_a_name_mapping_with_several_names_and_gaps(tmp_path: Path) -> None:
    mapping = [
        {"field-id": 1, "names": ["id", "record_id"]},
        {"names": ["nobody"]},
        {"field-id": 2, "names": ["place"], "fields": [{"field-id": 3, "names": ["lon"]}]},
    ]
    table = table_of(*NESTED, properties={NAME_MAPPING: json.dumps(mapping)})
    fields = [
        pa.field("record_id", pa.int64()),
        pa.field("nobody", pa.string()),
        pa.field("place", pa.struct([("lon", pa.float64()), ("lat", pa.float64())])),
        pa.field("y", pa.float64()),
    ]
    path = write(tmp_path, fields, [5], ["a"], [{"lon": 1.0, "lat": 2.0}], [3.0])
    file = DataFile.from_parquet(path, table)
    assert set(counts(file.value_counts)) == {1, 3}


def test_ids_go_before_the_mapping(tmp_path: Path) -> None:
    mapping = name_mapping_of(table_of(*NESTED).schema)
    table = table_of(*NESTED, properties={NAME_MAPPING: mapping})
    fields = [arrow("id", pa.int64()), arrow("other", pa.int64(), 1)]
    assert bounds(DataFile.from_parquet(write(tmp_path, fields, [1], [2]), table), 1, "long") == (
        2,
        2,
    )


@pytest.mark.parametrize(
    "text", ["{", "{}", '[{"field-id": 1}]', '[{"field-id": "1", "names": []}]', "[1]"]
)
def test_a_broken_name_mapping_is_named(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, [pa.field("id", pa.int64())], [1])
    with pytest.raises(BadRequest, match=r"schema\.name-mapping\.default"):
        DataFile.from_parquet(path, table_of(*NESTED, properties={NAME_MAPPING: text}))


# --- files ----------------------------------------------------------------------------------------

ONE = (column(1, "id", "long"),)
ONE_FIELD = [arrow("id", pa.int64(), 1)]


def unreadable(path: str, **options: Any) -> str:
    with pytest.raises(FileNotReadable) as caught:
        DataFile.from_parquet(path, table_of(*ONE), **options)
    assert path.removeprefix("file://") in caught.value.path
    return caught.value.reason


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    assert "no such file" in unreadable(path)
    assert "is a directory" in unreadable(str(tmp_path))
    Path(path).write_bytes(b"")
    assert "is empty" in unreadable(path)
    Path(path).write_bytes(b"id,name\n1,two\n")
    assert "not a Parquet file" in unreadable(path)
    Path(path).write_bytes(b"PAR1")
    assert "not a Parquet file" in unreadable(path)
    Path(path).write_bytes(b"PAR1" + b"\xff" * 100 + b"\x64\0\0\0PAR1")
    assert "footer cannot be read" in unreadable(path)
    assert "give one as filesystem=" in unreadable("unheard://of/x.parquet")


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path, ONE_FIELD, [1])
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:-20])
    assert "its writer was not closed" in unreadable(path)


@pytest.mark.process
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """The test runs in its own process, which switches to the user `nobody` if it runs as root."""
    path = write(tmp_path, ONE_FIELD, [1])
    code = (
        "import os, sys, frazil.datafiles.footers.footer_reader, frazil.wire.errors as errors\n"
        "from frazil import DataFile\n"
        "os.chmod(sys.argv[1], 0)\n"
        "os.geteuid() or os.seteuid(65534)\n"
        "try: DataFile.from_parquet(sys.argv[1])\n"
        "except errors.BadRequest as error: print(error)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, path],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    ).stdout
    assert shown == f"{path}: no permission to read it: allow it to this user\n"


def test_encrypted_files(tmp_path: Path) -> None:
    key = b"0123456789abcdef"
    path = str(tmp_path / "secret.parquet")
    data = pa.table([pa.array([1.5])], schema=pa.schema([arrow("x", pa.float64(), 1)]))
    properties = encryption.create_encryption_properties(footer_key=key)
    pq.write_table(data, path, encryption_properties=properties)
    assert "footer is encrypted" in unreadable(path)
    # With a plaintext footer only the pages are unreadable.
    plain = encryption.create_encryption_properties(footer_key=key, plaintext_footer=True)
    pq.write_table(data, path, encryption_properties=plain)
    with pytest.raises(FileNotReadable, match="its columns cannot be read"):
        DataFile.from_parquet(path, table_of(column(1, "x", "double")))


@pytest.mark.parametrize(
    ("location", "declared"),
    [
        ("file:///warehouse/t", "file://{}"),
        ("file:/warehouse/t", "file:{}"),
        ("/warehouse/t", "{}"),
        ("s3://bucket/t", "file://{}"),
    ],
)
def test_paths_are_declared_in_the_style_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, declared: str
) -> None:
    path = write(tmp_path, ONE_FIELD, [1], name="a b%20c.parquet")
    monkeypatch.chdir(tmp_path)
    table = table_of(*ONE, location=location)
    for given in (path, Path(path), "a b%20c.parquet", "./x/../a b%20c.parquet"):
        assert DataFile.from_parquet(given, table).file_path == declared.format(path)
    for kept in (f"file://{path}", f"file:{path}", f"file://localhost{path}"):
        assert DataFile.from_parquet(kept, table).file_path == kept
    assert DataFile.from_parquet("a b%20c.parquet").file_path == path


def test_a_filesystem_of_the_caller(tmp_path: Path) -> None:
    path = write(tmp_path, ONE_FIELD, [1], name="a.parquet")
    inside = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    file = DataFile.from_parquet("mine://a.parquet", table_of(*ONE), filesystem=inside)
    assert file.file_path == "mine://a.parquet"
    local = DataFile.from_parquet(path, table_of(*ONE), filesystem=pafs.LocalFileSystem())
    assert local.file_path == f"file://{path}"
    assert "no such file" in unreadable("mine://b.parquet", filesystem=inside)


# --- many files -----------------------------------------------------------------------------------


def test_many_files_keep_their_order_and_tell_how_far_they_are(tmp_path: Path) -> None:
    paths = [write(tmp_path, ONE_FIELD, [number] * (number + 1)) for number in range(20)]
    told: list[tuple[int, int, int]] = []
    files = read_data_files(
        paths,
        table_of(*ONE),
        max_workers=4,
        progress=lambda done, total: told.append((done, total, threading.get_ident())),
    )
    assert [file.record_count for file in files] == list(range(1, 21))
    assert [file.file_path for file in files] == [f"file://{path}" for path in paths]
    assert told == [(done, 20, threading.get_ident()) for done in range(1, 21)]
    assert read_data_files([], table_of(*ONE)) == ()


def test_partitions_go_with_their_files(tmp_path: Path) -> None:
    table = table_of(*ONE, spec=[part(1, "bucket", "bucket[4]")])
    paths = [write(tmp_path, ONE_FIELD, [1, 2]), write(tmp_path, ONE_FIELD, [34, 34])]
    with pytest.raises(FileDoesNotFit):
        read_data_files(paths, table)
    paths[0] = write(tmp_path, ONE_FIELD, [])
    files = read_data_files(paths, table, partitions=[{"bucket": 2}, None])
    assert [file.partition for file in files] == [(2,), (3,)]
    with pytest.raises(BadRequest, match="for 2 paths"):
        read_data_files(paths, table, partitions=[None])


def test_the_first_error_names_its_file_and_ends_the_others(tmp_path: Path) -> None:
    good = write(tmp_path, ONE_FIELD, [1])
    bad = str(tmp_path / "bad.parquet")
    Path(bad).write_bytes(b"nothing")
    read: list[int] = []
    with pytest.raises(FileNotReadable) as caught:
        read_data_files(
            [bad, *[good] * 2000],
            table_of(*ONE),
            max_workers=1,
            progress=lambda done, total: read.append(done),
        )
    assert caught.value.path == f"file://{bad}"
    assert not read
