"""Avro files are read as fastavro reads them, and the cost is bounded by their size."""

from __future__ import annotations

import contextlib
import io
import json
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.avro.avro_codecs import compress, decompress
from frazil.format.avro.avro_files import AvroLimits, open_avro, write_avro
from frazil.format.avro.avro_schema import record_schema
from frazil.format.avro.avro_types import UnreadableAvro, encode_long, read_long
from frazil.format.manifest.manifest_entries import only_added, read_manifest
from frazil.format.manifest.manifest_fields import ADDED
from frazil.format.manifest.manifest_list import read_manifest_list
from frazil.format.manifest.named_files import ManifestListReader, named_files
from tests.support.trees import (
    avro_bytes,
    avro_records,
    entry,
    list_bytes,
    listed,
    manifest_bytes,
)

LIMITS = AvroLimits(file_bytes=1 << 20, decoded_bytes=1 << 20, records=10_000, record_bytes=1 << 20)
CODECS = ["null", "deflate", "bzip2"]

EVERY_TYPE = {
    "type": "record",
    "name": "everything",
    "fields": [
        {"name": "a_boolean", "type": "boolean", "field-id": 1},
        {"name": "an_int", "type": "int", "field-id": 2},
        {"name": "a_long", "type": ["null", "long"], "field-id": 3},
        {"name": "a_float", "type": "float", "field-id": 4},
        {"name": "a_double", "type": "double", "field-id": 5},
        {"name": "some_bytes", "type": ["null", "bytes"], "field-id": 6},
        {"name": "a_string", "type": "string", "field-id": 7},
        {"name": "a_fixed", "type": {"type": "fixed", "name": "f4", "size": 4}, "field-id": 8},
        {"name": "another", "type": ["null", "f4"], "field-id": 9},
        {
            "name": "an_enum",
            "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]},
            "field-id": 10,
        },
        {"name": "longs", "type": {"type": "array", "items": "long"}, "field-id": 11},
        {"name": "a_map", "type": {"type": "map", "values": "string"}, "field-id": 12},
        {"name": "nothing", "type": {"type": "record", "name": "r0", "fields": []}, "field-id": 13},
    ],
}
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
everything = st.fixed_dictionaries(
    {
        "a_boolean": st.booleans(),
        "an_int": int32,
        "a_long": st.none() | int64,
        "a_float": st.floats(width=32, allow_nan=False),
        "a_double": st.floats(allow_nan=False),
        "some_bytes": st.none() | st.binary(max_size=40),
        "a_string": st.text(max_size=40),
        "a_fixed": st.binary(min_size=4, max_size=4),
        "another": st.none() | st.binary(min_size=4, max_size=4),
        "an_enum": st.sampled_from("AB"),
        "longs": st.lists(int64, max_size=20),
        "a_map": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5),
        "nothing": st.just({}),
    }
)


def decoded(content: bytes, limits: AvroLimits = LIMITS) -> list[Any]:
    file = open_avro(content, limits)
    return [value for value, _ in file.records(file.schema.record.read)]


@given(st.lists(everything, max_size=5), st.sampled_from(CODECS))
def test_reads_what_fastavro_writes(records: list[Any], codec: str) -> None:
    content = avro_bytes(EVERY_TYPE, records, {"key": "value"}, codec)
    assert decoded(content) == records
    file = open_avro(content, LIMITS)
    assert (file.codec, file.text("key")) == (codec, "value")
    skipped = file.records(lambda data, at: (None, file.schema.record.skip(data, at)))
    assert len(list(skipped)) == len(records)


@given(st.lists(everything, max_size=5), st.sampled_from(CODECS))
def test_fastavro_reads_what_is_written(records: list[Any], codec: str) -> None:
    schema = record_schema(json.dumps(EVERY_TYPE))
    encoded = []
    for record in records:
        out = bytearray()
        schema.record.write(out, record)
        encoded.append(bytes(out))
    content = write_avro(schema, {"key": b"value"}, codec, encoded)
    reader = fastavro.reader(io.BytesIO(content))
    assert list(reader) == records
    assert reader.metadata["key"] == "value"


@given(int64)
def test_numbers_round_trip(number: int) -> None:
    out = bytearray()
    out += encode_long(number)
    assert read_long(bytes(out), 0) == (number, len(out))


def test_many_blocks() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
    parsed = record_schema(json.dumps(schema))
    texts = [str(number) * 300 for number in range(1_000)]
    encoded = []
    for text in texts:
        out = bytearray()
        parsed.record.write(out, {"a": text})
        encoded.append(bytes(out))
    content = write_avro(parsed, {}, "deflate", encoded)
    assert [record["a"] for record in avro_records(content)] == texts
    assert [record["a"] for record in decoded(content)] == texts


# --- what is refused -------------------------------------------------------------------------


def number(value: int) -> bytes:
    out = bytearray()
    out += encode_long(value)
    return bytes(out)


def container(schema: Any, blocks: list[tuple[int, bytes]], codec: str = "null") -> bytes:
    """Return an Avro file whose block headers have the given values."""
    out = b"Obj\x01" + number(2)
    for key, value in (("avro.schema", json.dumps(schema)), ("avro.codec", codec)):
        out += number(len(key)) + key.encode() + number(len(value)) + value.encode()
    sync = b"s" * 16
    out += number(0) + sync
    for count, block in blocks:
        out += number(count) + number(len(block)) + block + sync
    return out


def record_of(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{n}", "type": kind, "field-id": n} for n, kind in enumerate(types)]
    return {"type": "record", "name": "top", "fields": fields}


EMPTY = {"type": "record", "name": "empty", "fields": []}
LONGS = {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (record_of({"type": "array", "items": "null"}), "elements can be empty"),
        (record_of({"type": "array", "items": EMPTY}), "elements can be empty"),
        (
            record_of({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}),
            "elements can be empty",
        ),
        (record_of(), "can be empty"),
        (record_of("null", EMPTY), "can be empty"),
        (record_of({"type": "array", "items": "top"}), "contains itself"),
        (record_of(["null", "top"]), "contains itself"),
        (record_of("absent"), "no type absent"),
        (record_of([]), "empty union"),
        (record_of({"type": "fixed", "name": "f", "size": 1 << 40}), "has no size"),
        (record_of({"type": "fixed", "name": "f", "size": -1}), "has no size"),
        (record_of(7), "in place of a type"),
        (record_of(EMPTY, EMPTY), "twice"),
        ({"type": "record", "name": "r", "fields": [{"type": "int"}]}, "field without a name"),
        ({"type": "record", "name": "r"}, "no fields"),
        ({"type": "record", "fields": []}, "without a name"),
        (LONGS, "not a record"),
        ("int", "not a record"),
    ],
)
def test_dangerous_schemas_are_refused(schema: Any, problem: str) -> None:
    with pytest.raises(UnreadableAvro, match=problem):
        open_avro(container(schema, []), LIMITS)


def test_deep_schemas_are_refused() -> None:
    nested: Any = "int"
    for _ in range(40):
        nested = {"type": "array", "items": nested}
    with pytest.raises(UnreadableAvro, match="nested deeper"):
        open_avro(container(record_of(nested), []), LIMITS)
    text = '{"type":' * 100_000 + '"int"' + "}" * 100_000
    with pytest.raises(UnreadableAvro, match=r"not JSON|nested deeper"):
        record_schema(text)


def test_schemas_that_grow_exponentially_are_refused() -> None:
    kinds: list[Any] = [{"type": "record", "name": "t0", "fields": [{"name": "a", "type": "int"}]}]
    for level in range(1, 40):
        below = f"t{level - 1}"
        fields = [{"name": "a", "type": below}, {"name": "b", "type": below}]
        kinds.append({"type": "record", "name": f"t{level}", "fields": fields})
    with pytest.raises(UnreadableAvro, match="more than"):
        open_avro(container(record_of(*kinds), []), LIMITS)


@pytest.mark.parametrize(
    ("schema", "block", "problem"),
    [
        # Each case claims 20 million array elements in a few bytes.
        (record_of(LONGS), number(20_000_000), "more elements than it has bytes for"),
        (record_of(LONGS), number(-20_000_000) + number(2) + b"\0\0", "bytes for"),
        (record_of(LONGS), number(-(2**63)) + number(0), "bytes for"),
        (record_of(LONGS), number(-1) + number(-5), "beyond the data"),
        (record_of({"type": "map", "values": "null"}), number(20_000_000), "bytes for"),
        (record_of("bytes"), number(1 << 40), "beyond the data"),
        (record_of("bytes"), number(-1), "beyond the data"),
        (record_of("string"), number(2) + b"\xff\xfe", "malformed"),
        (record_of(["null", "int"]), number(2), "no branch 2"),
        (record_of(["null", "int"]), number(-1), "no branch -1"),
        (record_of({"type": "enum", "name": "e", "symbols": ["A"]}), number(1), "no symbol"),
        (record_of({"type": "fixed", "name": "f", "size": 8}), b"\0" * 4, "bytes for"),
        (record_of("long"), b"\xff" * 10, "64 bits"),
        (record_of("long"), b"\xff" * 9, "malformed"),
        (record_of("int"), b"\0\0", "after its last record"),
        (record_of("string", "double"), number(7) + b"a" * 7 + b"\0" * 3, "malformed"),
    ],
)
def test_dangerous_data_is_refused(schema: Any, block: bytes, problem: str) -> None:
    content = container(schema, [(1, block)])
    with pytest.raises(UnreadableAvro, match=problem):
        decoded(content)


def test_an_array_within_its_bytes_is_still_bounded_when_decoded() -> None:
    block = number(200_000) + b"\0" * 200_000 + number(0)
    content = container(record_of(LONGS), [(1, block)])
    with pytest.raises(UnreadableAvro, match="more than 10000 elements"):
        decoded(content)
    file = open_avro(content, LIMITS)
    assert len(list(file.records(lambda data, at: (None, file.schema.record.skip(data, at))))) == 1


def test_blocks_that_claim_too_many_records_are_refused() -> None:
    with pytest.raises(UnreadableAvro, match="more than 10000 records"):
        decoded(container(record_of("int"), [(1 << 50, b"\0")]))
    with pytest.raises(UnreadableAvro, match="more records than it has bytes for"):
        decoded(container(record_of("int"), [(9_999, b"\0")]))
    with pytest.raises(UnreadableAvro, match="sync"):
        decoded(container(record_of("int"), [(-1, b"\0")]))


@pytest.mark.parametrize("codec", ["deflate", "bzip2"])
def test_compression_bombs_are_refused_without_being_unpacked(codec: str) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}]}
    content = avro_bytes(schema, [{"a": b"\0" * (64 << 20)}], {}, codec)
    assert len(content) < 1 << 20
    with pytest.raises(UnreadableAvro, match="more than is allowed"):
        decoded(content)


def test_zstandard_is_read_and_written_and_its_bombs_are_refused() -> None:
    block = b"\0" * (64 << 20)
    packed = zstandard.ZstdCompressor().compress(block)
    with pytest.raises(UnreadableAvro, match="more than is allowed"):
        decoded(container(record_of("bytes"), [(1, packed)], "zstandard"))
    with pytest.raises(UnreadableAvro, match="not zstandard"):
        decoded(container(record_of("int"), [(1, b"junk")], "zstandard"))
    schema = record_schema(json.dumps(record_of("int")))
    assert decoded(write_avro(schema, {}, "zstandard", [number(7)])) == [{"f0": 7}]


def test_snappy_is_read_and_written_and_its_bombs_are_refused() -> None:
    schema = record_schema(json.dumps(record_of("int")))
    content = write_avro(schema, {}, "snappy", [number(7)] * 3)
    assert open_avro(content, LIMITS).codec == "snappy"
    assert decoded(content) == [{"f0": 7}] * 3
    packed = compress("snappy", b"abc" * 9)
    # Avro's specification: raw Snappy, then the CRC32 of the decompressed bytes.
    assert pa.Codec("snappy").decompress(packed[:-4], 27, asbytes=True) == b"abc" * 9
    assert decompress("snappy", packed, 27) == b"abc" * 9
    with pytest.raises(UnreadableAvro, match="more than is allowed"):
        decompress("snappy", packed, 26)
    with pytest.raises(UnreadableAvro, match="its checksum is wrong"):
        decompress("snappy", packed[:-1] + bytes([packed[-1] ^ 1]), 27)
    for junk in (b"", b"\xff" * 20, packed[:-6]):
        with pytest.raises(UnreadableAvro, match="not snappy"):
            decompress("snappy", junk, 27 << 30)


@pytest.mark.parametrize("codec", ["deflate", "zstandard"])
def test_levels_beyond_those_of_a_codec_are_its_nearest(codec: str) -> None:
    data = bytes(range(256)) * 40
    sizes = [len(compress(codec, data, level)) for level in (-99, 0, 1, 9, 99)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    for level in (None, -99, 99):
        assert decompress(codec, compress(codec, data, level), len(data)) == data


def test_the_cap_on_decoded_bytes_holds_over_all_blocks() -> None:
    packed = zlib.compress(b"\0" * (600 << 10), wbits=-15)
    content = container(record_of("int"), [(1, packed)], "deflate")
    with pytest.raises(UnreadableAvro, match="after its last record"):
        decoded(content)
    small = AvroLimits(1 << 20, 1 << 10, 100, 1 << 10)
    with pytest.raises(UnreadableAvro, match="more than is allowed"):
        decoded(content, small)
    assert decompress("deflate", packed, 600 << 10) == b"\0" * (600 << 10)


def test_records_and_files_have_their_caps() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}]}
    content = avro_bytes(schema, [{"a": b"\1" * 2_000}], {})
    with pytest.raises(UnreadableAvro, match="a record has more than 1000 bytes"):
        decoded(content, AvroLimits(1 << 20, 1 << 20, 10, 1_000))
    with pytest.raises(UnreadableAvro, match="the file has more than 10 bytes"):
        open_avro(content, AvroLimits(10, 10, 10, 10))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "begin as an Avro"),
        (b"PAR1" + b"\0" * 20, "begin as an Avro"),
        (b"Obj\x01", "ends in its header"),
        (b"Obj\x01\0" + b"s" * 16, "no avro.schema"),
        (b"Obj\x01" + number(1 << 40), "more than 1000 entries"),
        (container(record_of("int"), [(1, b"\0")], "lzo"), "the codec lzo"),
    ],
)
def test_files_that_are_no_avro_are_refused(content: bytes, problem: str) -> None:
    with pytest.raises(UnreadableAvro, match=problem):
        decoded(content)


MANIFEST = manifest_bytes([entry("a"), entry("b", status=2)], 2, codec="null")
LIST = list_bytes([listed("m1", 1), listed("m2", 2, partitions=[])], 2, codec="null")


@given(st.integers(0, len(MANIFEST) - 1), st.binary(max_size=12))
def test_a_damaged_manifest_is_refused_or_read_and_nothing_else(at: int, junk: bytes) -> None:
    for damaged in (MANIFEST[:at], MANIFEST[:at] + junk + MANIFEST[at + len(junk) :]):
        for read in (
            read_manifest,
            lambda c: only_added(c, 1),
            lambda c: list(named_files(c)),
        ):
            with contextlib.suppress(UnreadableAvro):
                read(damaged)


@given(st.integers(0, len(LIST) - 1), st.binary(max_size=12))
def test_a_damaged_list_is_refused_or_read_and_nothing_else(at: int, junk: bytes) -> None:
    for damaged in (LIST[:at], LIST[:at] + junk + LIST[at + len(junk) :]):
        with contextlib.suppress(UnreadableAvro):
            read_manifest_list(damaged)
        with contextlib.suppress(UnreadableAvro):
            ManifestListReader().read(damaged)


# --- manifests -------------------------------------------------------------------------------


def test_only_added_keeps_additions_alone_and_lets_them_inherit() -> None:
    entries = [
        entry("old", status=0, snapshot_id=1, sequence_number=1, file_sequence_number=1),
        entry("new", 5, snapshot_id=9, sequence_number=4, file_sequence_number=4, first_row_id=70),
    ]
    content = only_added(manifest_bytes(entries, 3), sequence_number=8)
    (kept,) = avro_records(content)
    assert kept == entry("new", 5, snapshot_id=9)
    (read,) = read_manifest(content).entries
    assert (read.status, read.file_path, read.first_row_id) == (ADDED, "new", None)
    assert fastavro.reader(io.BytesIO(content)).metadata["format-version"] == "3"


def test_only_added_writes_the_number_where_the_schema_allows_no_null() -> None:
    schema = json.loads(json.dumps(fastavro.reader(io.BytesIO(MANIFEST)).writer_schema))
    for field in schema["fields"]:
        if field["name"] in ("sequence_number", "file_sequence_number"):
            field["type"] = "long"
            field.pop("default")
    content = avro_bytes(schema, [entry("a", sequence_number=4, file_sequence_number=4)], {})
    (kept,) = avro_records(only_added(content, sequence_number=8))
    assert (kept["sequence_number"], kept["file_sequence_number"]) == (8, 8)


def test_partitions_with_lists_in_them_are_refused() -> None:
    field = {"name": "p", "type": {"type": "array", "items": "int"}, "field-id": 1000}
    content = manifest_bytes([entry("a", partition={"p": [1]})], 2, partition=[field])
    with pytest.raises(UnreadableAvro, match="the partition field p cannot be"):
        read_manifest(content)


def test_fields_are_found_by_id_and_must_have_their_type() -> None:
    renamed = json.dumps(fastavro.reader(io.BytesIO(MANIFEST)).writer_schema)
    renamed = renamed.replace('"file_path"', '"location"')
    data = entry("a")
    data["data_file"]["location"] = data["data_file"].pop("file_path")
    assert read_manifest(avro_bytes(json.loads(renamed), [data], {})).entries[0].file_path == "a"
    without = json.loads(
        renamed.replace('"field-id": 100,', "").replace('"field-id": 100', '"x": 1')
    )
    with pytest.raises(UnreadableAvro, match="no field with the field-id 100"):
        read_manifest(avro_bytes(without, [data], {}))
