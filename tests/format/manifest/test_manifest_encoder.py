"""fastavro, PyIceberg and our own reader read the manifests that we encode."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.manifest import ManifestFile as StockManifestFile

from frazil.format.avro.avro_files import MANIFEST_LIMITS as LIMITS
from frazil.format.avro.avro_files import AvroWriter, open_avro
from frazil.format.avro.avro_types import read_long
from frazil.format.manifest.manifest_encoder import ManifestEncoder, manifest_encoder
from frazil.format.manifest.manifest_entries import read_manifest
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.format.manifest.manifest_schema import avro_name, decimal_bytes
from frazil.format.metadata.content_files import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    DataFile,
    DeleteFile,
)
from frazil.format.metadata.partition_spec import PartitionSpec, parse_partition_spec
from frazil.format.metadata.schema import Schema, parse_schema

VERSIONS = [1, 2, 3]
TYPES = [
    *("boolean", "int", "long", "float", "double", "decimal(9, 2)", "decimal(38, 10)", "date"),
    *("time", "timestamp", "timestamptz", "string", "uuid", "fixed[5]", "binary"),
]
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    digits = st.integers(-most, most)
    return digits.map(lambda value: Decimal(f"{value}E-{scale}"))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": int32,
    "long": int64,
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(9, 2)": decimals(9, 2),
    "decimal(38, 10)": decimals(38, 10),
    "date": int32,
    "time": st.integers(0, 86_400_000_000 - 1),
    "timestamp": int64,
    "timestamptz": int64,
    "timestamp_ns": int64,
    "timestamptz_ns": int64,
    "string": st.text(max_size=20),
    "uuid": st.uuids(),
    "fixed[5]": st.binary(min_size=5, max_size=5),
    "binary": st.binary(max_size=20),
}


def schema_of(types: Sequence[str]) -> Schema:
    fields = [
        {"id": number, "name": f"c{number}", "required": False, "type": kind}
        for number, kind in enumerate(types, 1)
    ]
    return parse_schema(json.dumps({"type": "struct", "schema-id": 7, "fields": fields}).encode())


def identity_spec(count: int, spec_id: int = 3) -> PartitionSpec:
    fields = [
        {"source-id": n, "field-id": 999 + n, "name": f"p{n}", "transform": "identity"}
        for n in range(1, count + 1)
    ]
    return parse_partition_spec(json.dumps({"spec-id": spec_id, "fields": fields}).encode())


def encoder_of(types: Sequence[str], version: int, content: int = DATA) -> ManifestEncoder:
    return manifest_encoder(schema_of(types), identity_spec(len(types)), version, content)


def manifest_of(
    encoder: ManifestEncoder, entries: Sequence[bytes], codec: str = "deflate", block: int = 500
) -> bytes:
    writer = AvroWriter(encoder.schema, encoder.header, codec, block)
    for entry in entries:
        writer.write(entry)
    return writer.finish()


def data_file(number: int = 0, **changes: Any) -> DataFile:
    values: dict[str, Any] = {
        "file_path": f"s3://bucket/table/data/{number}.parquet",
        "file_format": "parquet",
        "record_count": 10 + number,
        "file_size_in_bytes": 1_000_000 + number,
        "column_sizes": {1: 300, 2: 2**40},
        "value_counts": {1: 10, 2: 10},
        "null_value_counts": {1: 0, 2: 3},
        "nan_value_counts": {},
        "lower_bounds": {1: b"\x00\x01", 2: b""},
        "upper_bounds": {1: b"\xff" * 16},
        "key_metadata": b"key",
        "split_offsets": [4, 128 << 20],
        "sort_order_id": 1,
    }
    return DataFile(**{**values, **changes})


def position_deletes(number: int = 0, **changes: Any) -> DeleteFile:
    values = {
        "content": POSITION_DELETES,
        "file_path": f"s3://bucket/table/data/{number}-deletes.parquet",
        "file_format": "PARQUET",
        "record_count": 2,
        "file_size_in_bytes": 900,
        "referenced_data_file": "s3://bucket/table/data/1.parquet",
    }
    return DeleteFile(**{**values, **changes})


def fast_read(content: bytes) -> tuple[list[Any], dict[str, str]]:
    reader = fastavro.reader(io.BytesIO(content))
    return list(reader), dict(reader.metadata)


def pairs(values: Any) -> Any:
    return None if values is None else [{"key": k, "value": v} for k, v in values.items()]


def as_record(file: ContentFile, version: int) -> dict[str, Any]:
    """Return the struct `data_file` as Avro decodes it, without the partition."""
    is_data = isinstance(file, DataFile)
    record: dict[str, Any] = {} if version == 1 else {"content": file.content}  # type: ignore[attr-defined]
    record |= {
        "file_path": file.file_path,
        "file_format": file.file_format.upper(),
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        **({"block_size_in_bytes": 64 << 20} if version == 1 else {}),
    }
    for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
        record[name] = pairs(getattr(file, name))
    for name in ("lower_bounds", "upper_bounds"):
        record[name] = pairs(getattr(file, name))
    record |= {"key_metadata": file.key_metadata, "split_offsets": file.split_offsets}
    if version > 1:
        record["equality_ids"] = None if is_data else getattr(file, "equality_ids", None)
    record["sort_order_id"] = file.sort_order_id
    if version == 3:
        record["first_row_id"] = getattr(file, "first_row_id", None)
    if version > 1:
        record["referenced_data_file"] = getattr(file, "referenced_data_file", None)
    if version == 3:
        record["content_offset"] = getattr(file, "content_offset", None)
        record["content_size_in_bytes"] = getattr(file, "content_size_in_bytes", None)
    return record


def plain(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "partition"}


# --- fastavro --------------------------------------------------------------------------------

counts = st.none() | st.dictionaries(int32, int64, max_size=4)
bounds = st.none() | st.dictionaries(int32, st.binary(max_size=8), max_size=4)
files = st.builds(
    DataFile,
    file_path=st.text(max_size=30),
    file_format=st.sampled_from(["parquet", "ORC", "avro"]),
    record_count=st.integers(0, 2**63 - 1),
    file_size_in_bytes=st.integers(0, 2**63 - 1),
    column_sizes=counts,
    value_counts=counts,
    null_value_counts=counts,
    nan_value_counts=counts,
    lower_bounds=bounds,
    upper_bounds=bounds,
    key_metadata=st.none() | st.binary(max_size=8),
    split_offsets=st.none() | st.lists(int64, max_size=3),
    sort_order_id=st.none() | int32,
    first_row_id=st.none() | int64,
)


@settings(max_examples=60)
@given(st.sampled_from(VERSIONS), st.lists(files, max_size=3), int64, st.none() | int64)
def test_fastavro_reads_every_metric(
    version: int, written: list[DataFile], snapshot_id: int, number: int | None
) -> None:
    encoder = encoder_of([], version)
    entries = [
        encoder.entry(ADDED, snapshot_id, number, None, encoder.data_file(file)) for file in written
    ]
    records, _ = fast_read(manifest_of(encoder, entries))
    assert [plain(record["data_file"]) for record in records] == [
        as_record(file, version) for file in written
    ]
    for record in records:
        assert (record["status"], record["snapshot_id"]) == (ADDED, snapshot_id)
        if version > 1:
            assert (record["sequence_number"], record["file_sequence_number"]) == (number, None)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    values = st.tuples(*(st.none() | VALUES[kind] for kind in types))
    return types, draw(st.lists(values, min_size=1, max_size=4))


def avro_value(kind: str, value: Any) -> Any:
    if isinstance(value, Decimal):
        precision = int(kind[len("decimal(") :].split(",")[0])
        digits = int(value.scaleb(int(kind.split(",")[1].strip(" )"))).to_integral_value())
        return digits.to_bytes(decimal_bytes(precision), "big", signed=True)
    return value.bytes if isinstance(value, UUID) else value


@settings(max_examples=80)
@given(partitions(), st.sampled_from(VERSIONS))
def test_partition_values_come_back(
    drawn: tuple[list[str], list[tuple[Any, ...]]], version: int
) -> None:
    types, tuples = drawn
    encoder = encoder_of(types, version)
    written = [data_file(number, partition=values) for number, values in enumerate(tuples)]
    content = manifest_of(
        encoder, [encoder.entry(ADDED, 5, None, None, encoder.data_file(file)) for file in written]
    )
    expected = [
        tuple(avro_value(kind, value) for kind, value in zip(types, values, strict=True))
        for values in tuples
    ]
    manifest = read_manifest(content)
    assert repr([entry.partition for entry in manifest.entries]) == repr(expected)
    assert [entry.file_path for entry in manifest.entries] == [file.file_path for file in written]
    # fastavro reads without logical types, because Python dates cannot represent every int.
    bare = json.loads(json.dumps(encoder.schema.tree).replace('"logicalType"', '"was"'))
    file = open_avro(content, limits=LIMITS)
    for values, (_, raw) in zip(expected, file.records(skipper(encoder)), strict=True):
        record: Any = fastavro.schemaless_reader(io.BytesIO(raw), bare, None)
        assert repr(tuple(record["data_file"]["partition"].values())) == repr(values)


def skipper(encoder: ManifestEncoder) -> Callable[[bytes, int], tuple[None, int]]:
    return lambda data, at: (None, encoder.schema.record.skip(data, at))


def test_logical_types_are_those_of_java() -> None:
    encoder = encoder_of(TYPES, 2)
    when = 1_600_000_000_000_000
    unique = uuid4()
    values = (
        *(True, 1, 2, 0.5, math.inf, Decimal("12.34"), Decimal("1.0000000001"), 18_000),
        *(1_000_000, when, when, "ä", unique, b"12345", b"\x00"),
    )
    entry = encoder.entry(ADDED, None, None, None, encoder.data_file(data_file(partition=values)))
    records, _ = fast_read(manifest_of(encoder, [entry]))
    found = list(records[0]["data_file"]["partition"].values())
    assert found[5:9] == [values[5], values[6], date(2019, 4, 14), time(0, 0, 1)]
    assert found[9].replace(tzinfo=None) == datetime(2020, 9, 13, 12, 26, 40)
    assert found[11:] == ["ä", unique.bytes, b"12345", b"\x00"]
    tree = {field["name"]: field for field in partition_tree(encoder)}
    assert tree["p8"] == {
        "name": "p8",
        "type": ["null", {"type": "int", "logicalType": "date"}],
        "default": None,
        "field-id": 1007,
    }
    assert tree["p6"]["type"][1] == {
        "type": "fixed",
        "name": "decimal_9_2",
        "size": 4,
        "logicalType": "decimal",
        "precision": 9,
        "scale": 2,
    }
    assert tree["p9"]["type"][1] == {"type": "long", "logicalType": "time-micros"}
    assert [tree[name]["type"][1]["adjust-to-utc"] for name in ("p10", "p11")] == [False, True]
    assert tree["p13"]["type"][1] == {
        "type": "fixed",
        "name": "uuid_fixed",
        "size": 16,
        "logicalType": "uuid",
    }


def partition_tree(encoder: ManifestEncoder) -> list[dict[str, Any]]:
    fields = {field["name"]: field for field in encoder.schema.tree["fields"]}
    inner = {field["name"]: field for field in fields["data_file"]["type"]["fields"]}
    assert inner["partition"]["type"]["name"] == "r102"
    found = inner["partition"]["type"]["fields"]
    assert isinstance(found, list)
    return found


def test_fields_and_ids_of_each_version() -> None:
    found = {}
    for version in VERSIONS:
        tree = encoder_of([], version).schema.tree
        entry = [(field["name"], field["field-id"]) for field in tree["fields"]]
        file = tree["fields"][-1]["type"]["fields"]
        found[version] = entry, [(field["name"], field["field-id"]) for field in file]
    entry1, file1 = found[1]
    assert entry1 == [("status", 0), ("snapshot_id", 1), ("data_file", 2)]
    assert [field_id for _, field_id in file1] == [
        *(100, 101, 102, 103, 104, 105, 108, 109, 110, 137, 125, 128, 131, 132, 140)
    ]
    entry2, file2 = found[2]
    assert [field_id for _, field_id in entry2] == [0, 1, 3, 4, 2]
    assert [field_id for _, field_id in file2] == [
        *(134, 100, 101, 102, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140, 143)
    ]
    entry3, file3 = found[3]
    assert entry3 == entry2
    assert file3[-5:] == [
        ("sort_order_id", 140),
        ("first_row_id", 142),
        ("referenced_data_file", 143),
        ("content_offset", 144),
        ("content_size_in_bytes", 145),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_header_tells_schema_and_spec(version: int) -> None:
    encoder = encoder_of(["int"], version)
    _, header = fast_read(manifest_of(encoder, []))
    assert json.loads(header["schema"])["schema-id"] == 7
    assert json.loads(header["partition-spec"]) == [
        {"source-id": 1, "field-id": 1000, "name": "p1", "transform": "identity"}
    ]
    assert (header["schema-id"], header["partition-spec-id"]) == ("7", "3")
    assert header["format-version"] == str(version)
    assert header.get("content") == (None if version == 1 else "data")
    iceberg = parse_schema(header["iceberg.schema"].encode())
    avro = encoder.schema.tree
    assert [field.field_id for field in iceberg.struct.fields] == [
        field["field-id"] for field in avro["fields"]
    ]
    assert str(iceberg.find_type(1000)) == "int"


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy", "bzip2", "null"])
def test_codecs(codec: str) -> None:
    encoder = encoder_of([], 2)
    entry = encoder.entry(ADDED, None, None, None, encoder.data_file(data_file()))
    manifest = read_manifest(manifest_of(encoder, [entry] * 3, codec))
    assert (manifest.codec, len(manifest.entries)) == (codec, 3)
    assert {entry.file_path for entry in manifest.entries} == {data_file().file_path}


def test_blocks_of_500_entries() -> None:
    encoder = encoder_of([], 2)
    entries = [
        encoder.entry(ADDED, None, None, None, encoder.data_file(data_file(number)))
        for number in range(1_100)
    ]
    content = manifest_of(encoder, entries)
    file = open_avro(content, LIMITS)
    at, found = file.blocks_at, []
    while at < len(content):
        count, at = read_long(content, at)
        size, at = read_long(content, at)
        found.append(count)
        at += size + 16
    assert found == [500, 500, 100]
    assert [entry.record_count for entry in read_manifest(content).entries] == [
        10 + number for number in range(1_100)
    ]


# --- entries ---------------------------------------------------------------------------------


def test_only_added_entries_inherit() -> None:
    encoder = encoder_of([], 2)
    encoded = encoder.data_file(data_file())
    for status in (EXISTING, DELETED):
        with pytest.raises(ValueError, match="only ADDED entries inherit"):
            encoder.entry(status, 1, None, None, encoded)
        with pytest.raises(ValueError, match="only ADDED entries inherit"):
            encoder.entry(status, None, 1, 1, encoded)
    content = manifest_of(
        encoder,
        [
            encoder.entry(ADDED, None, None, None, encoded),
            encoder.entry(EXISTING, 8, 4, 5, encoded),
            encoder.entry(DELETED, 9, 0, None, encoded),
        ],
    )
    assert [
        (entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
        for entry in read_manifest(content).entries
    ] == [(ADDED, None, None, None), (EXISTING, 8, 4, 5), (DELETED, 9, 0, None)]


def test_version_1_needs_a_snapshot_id_and_has_no_deletes() -> None:
    encoder = encoder_of([], 1)
    with pytest.raises(ValueError, match="needs a snapshot id"):
        encoder.entry(ADDED, None, None, None, encoder.data_file(data_file()))
    with pytest.raises(ValueError, match="no delete files"):
        encoder_of([], 1, DELETES)


def test_delete_files() -> None:
    vector = position_deletes(
        1, file_format="puffin", content_offset=4, content_size_in_bytes=43, record_count=3
    )
    equality = position_deletes(
        2, content=EQUALITY_DELETES, equality_ids=[1, 2], referenced_data_file=None
    )
    encoder = encoder_of([], 3, DELETES)
    written = [vector, equality, position_deletes(3)]
    records, header = fast_read(
        manifest_of(
            encoder,
            [encoder.entry(ADDED, None, None, None, encoder.data_file(file)) for file in written],
        )
    )
    assert header["content"] == "deletes"
    assert [plain(record["data_file"]) for record in records] == [
        as_record(file, 3) for file in written
    ]
    assert vector.identity == (vector.file_path, 4, 43)
    with pytest.raises(ValueError, match="deletion vector needs format version 3"):
        encoder_of([], 2, DELETES).data_file(vector)
    with pytest.raises(ValueError, match="manifest of delete files"):
        encoder.data_file(data_file())
    with pytest.raises(ValueError, match="manifest of data files"):
        encoder_of([], 3).data_file(vector)
    with pytest.raises(ValueError, match="content 0 is not"):
        encoder.data_file(position_deletes(content=0))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int", 2**31, "p1, of type int: 2147483648 does not fit into 32 bits"),
        ("long", 2**63, "p1, of type long: .* does not fit into 64 bits"),
        ("string", 3, "p1, of type string"),
        ("boolean", 1, "p1, of type boolean: 1 is not a boolean"),
        ("decimal(9, 2)", Decimal("1.234"), "p1, of type decimal.*scale"),
        ("decimal(9, 2)", Decimal("12345678.90"), "p1, of type decimal.*digits"),
        ("fixed[5]", b"123", r"p1, of type fixed\[5\]"),
        ("uuid", "no", "p1, of type uuid"),
        ("float", "no", "p1, of type float"),
    ],
)
def test_a_value_that_does_not_fit_is_named(kind: str, value: Any, message: str) -> None:
    with pytest.raises(
        ValueError, match=rf"0\.parquet cannot be written: partition field {message}"
    ):
        encoder_of([kind], 2).data_file(data_file(partition=(value,)))


@pytest.mark.parametrize(
    "changes",
    [
        {"partition": ()},
        {"partition": (1, 2)},
        {"record_count": -1},
        {"file_size_in_bytes": -1},
        {"value_counts": {2**31: 1}},
        {"value_counts": {1: 2**63}},
        {"lower_bounds": {1: "text"}},
        {"column_sizes": {"1": 1}},
        {"sort_order_id": 2**31},
        {"first_row_id": 2**63},
    ],
)
def test_a_file_that_cannot_be_written_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"0\.parquet cannot be written"):
        encoder_of(["int"], 3).data_file(data_file(**{"partition": (1,), **changes}))


def test_a_partition_of_a_dropped_column_is_null() -> None:
    raw = {
        "spec-id": 1,
        "fields": [
            {"source-id": 99, "field-id": 1000, "name": "gone", "transform": "void"},
            {"source-id": 1, "field-id": 1001, "name": "b", "transform": "bucket[4]"},
        ],
    }
    spec = parse_partition_spec(json.dumps(raw).encode())
    encoder = manifest_encoder(schema_of(["string"]), spec, 1, DATA)
    entry = encoder.entry(ADDED, 1, None, None, encoder.data_file(data_file(partition=(None, 3))))
    content = manifest_of(encoder, [entry])
    assert read_manifest(content).entries[0].partition == (None, 3)
    assert fast_read(content)[0][0]["data_file"]["partition"] == {"gone": None, "b": 3}
    with pytest.raises(ValueError, match="partition field gone"):
        encoder.data_file(data_file(partition=(1, 3)))


def test_names_that_avro_does_not_allow() -> None:
    assert avro_name("a_1") == "a_1"
    assert avro_name("1a") == "_1a"
    assert avro_name("a b.c") == "a_x20b_x2Ec"
    assert avro_name("\U0001f600") == "_xD83D_xDE00"
    raw = {"fields": [{"source-id": 1, "field-id": 1000, "name": "a b", "transform": "identity"}]}
    spec = parse_partition_spec(json.dumps(raw).encode())
    encoder = manifest_encoder(schema_of(["int"]), spec, 2, DATA)
    (field,) = partition_tree(encoder)
    assert (field["name"], field["iceberg-field-name"]) == ("a_x20b", "a b")


# --- PyIceberg -------------------------------------------------------------------------------


def stock_entries(folder: Path, content: bytes, manifest_content: ManifestContent) -> list[Any]:
    path = folder / f"{uuid4()}.avro"
    path.write_bytes(content)
    listed = StockManifestFile.from_args(
        _table_format_version=2,
        manifest_path=path.as_uri(),
        manifest_length=len(content),
        partition_spec_id=3,
        content=manifest_content,
        sequence_number=6,
        min_sequence_number=1,
        added_snapshot_id=77,
    )
    return listed.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)


@pytest.mark.parametrize("version", [1, 2])
def test_pyiceberg_reads_data_manifests(version: int, tmp_path: Path) -> None:
    encoder = encoder_of(["int", "string", "date"], version)
    written = [
        data_file(0, partition=(1, "a", 18_000)),
        data_file(1, partition=(None, "", -1), column_sizes=None, lower_bounds={}),
    ]
    entries = [
        encoder.entry(ADDED, 77, None, None, encoder.data_file(written[0])),
        encoder.entry(EXISTING, 70, 2, 3, encoder.data_file(written[1])),
    ]
    found = stock_entries(tmp_path, manifest_of(encoder, entries), ManifestContent.DATA)
    assert [entry.status.value for entry in found] == [ADDED, EXISTING]
    assert [entry.snapshot_id for entry in found] == [77, 70]
    if version == 2:
        assert [entry.sequence_number for entry in found] == [6, 2]
        assert [entry.file_sequence_number for entry in found] == [6, 3]
    for entry, file in zip(found, written, strict=True):
        same_file(entry.data_file, file)


def test_pyiceberg_reads_delete_manifests(tmp_path: Path) -> None:
    encoder = encoder_of(["int"], 2, DELETES)
    written = [
        position_deletes(0, partition=(4,), lower_bounds={2147483546: b"s3://a"}),
        position_deletes(1, partition=(5,), content=EQUALITY_DELETES, equality_ids=[1]),
    ]
    entries = [
        encoder.entry(ADDED, None, 5, None, encoder.data_file(written[0])),
        encoder.entry(DELETED, 77, 2, 2, encoder.data_file(written[1])),
    ]
    found = stock_entries(tmp_path, manifest_of(encoder, entries), ManifestContent.DELETES)
    assert [entry.status.value for entry in found] == [ADDED, DELETED]
    assert [entry.sequence_number for entry in found] == [5, 2]
    for entry, file in zip(found, written, strict=True):
        assert entry.data_file.content.value == file.content
        same_file(entry.data_file, file)
        assert entry.data_file.equality_ids == file.equality_ids


def same_file(found: Any, file: ContentFile) -> None:
    assert tuple(found.partition[at] for at in range(len(file.partition))) == file.partition
    assert found.file_format.value == file.file_format.upper()
    for name in (
        *("file_path", "record_count", "file_size_in_bytes", "column_sizes", "value_counts"),
        *("null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"),
        *("key_metadata", "split_offsets", "sort_order_id"),
    ):
        assert getattr(found, name) == getattr(file, name), name
