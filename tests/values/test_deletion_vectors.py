from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from frazil.values import deletion_vectors
from frazil.values.deletion_vectors import (
    MAX_KEY,
    MAX_POSITION,
    DeletionVector,
    InvalidDeletionVector,
    deletion_vector_blob,
    read_deletion_vector,
)
from frazil.values.puffin import BlobMetadata, read_footer, write_puffin

DENSE = st.integers(0, 300)
SMALL_KEYS = st.builds(lambda key, low: (key << 32) | low, st.integers(0, 3), DENSE)
CONTAINER_EDGES = st.sampled_from([0, 65535, 65536, 2**31, 2**32 - 1, 2**32, 2**40, MAX_POSITION])
POSITIONS = st.one_of(DENSE, SMALL_KEYS, CONTAINER_EDGES, st.integers(0, MAX_POSITION))
RANGES = st.builds(
    lambda start, size, step: range(start, start + size * step, step),
    st.integers(0, 2**17),
    st.integers(0, 6000),
    st.sampled_from([1, 1, 2, 7]),
)
SETS = st.builds(
    lambda loose, *runs: set(loose).union(*runs), st.lists(POSITIONS, max_size=30), RANGES, RANGES
)

# Containers of all three kinds, under two keys.
ARRAY = [5, 7]
BITS = list(range(65536, 2 * 65536, 3))
RUNS = list(range(2 * 65536 + 10, 3 * 65536 - 10))
ALL_KINDS = [key << 32 | low for key in (0, 2) for low in ARRAY + BITS + RUNS]


def framed(vector: bytes) -> bytes:
    """Return a blob with a valid length and checksum and the given content."""
    checked = bytes.fromhex("d1d33964") + vector
    return struct.pack(">I", len(checked)) + checked + struct.pack(">I", zlib.crc32(checked))


def bitmaps(*keyed: tuple[int, bytes]) -> bytes:
    parts = [struct.pack("<I", key) + bitmap for key, bitmap in keyed]
    return struct.pack("<Q", len(keyed)) + b"".join(parts)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}H", *values)


def arrays(*containers: tuple[int, int, bytes]) -> bytes:
    """Return a bitmap without runs from the key, cardinality and bytes of each container."""
    head = struct.pack("<II", 12346, len(containers))
    keys = b"".join(words(key, cardinality - 1) for key, cardinality, _ in containers)
    return head + keys + bytes(4 * len(containers)) + b"".join(data for _, _, data in containers)


def run(cardinality: int, *pairs: tuple[int, int]) -> bytes:
    """Return a bitmap of one container with runs (start, length - 1)."""
    head = struct.pack("<I", 12347) + b"\1" + words(0, cardinality - 1)
    return head + words(len(pairs)) + b"".join(words(*pair) for pair in pairs)


EMPTY = arrays()
ONE = arrays((0, 1, words(1)))


def test_the_bytes_of_a_vector() -> None:
    vector = DeletionVector.from_positions([3, 1, 3, (1 << 32) + 2])
    array_of_two = struct.pack("<II", 12346, 1) + words(0, 1) + struct.pack("<I", 16) + words(1, 3)
    array_of_one = struct.pack("<II", 12346, 1) + words(0, 0) + struct.pack("<I", 16) + words(2)
    assert vector.serialize() == framed(bitmaps((0, array_of_two), (1, array_of_one)))


def test_runs_are_encoded_as_runs() -> None:
    vector = DeletionVector.from_positions(range(100, 1100))
    assert vector.serialize() == framed(bitmaps((0, run(1000, (100, 999)))))


def test_an_empty_vector() -> None:
    data = bytes.fromhex("0000000cd1d339640000000000000000bf18480c")
    assert DeletionVector.from_positions([]).serialize() == data
    assert list(DeletionVector.deserialize(data).bitmap) == []


@given(SETS)
def test_both_ways(positions: set[int]) -> None:
    vector = DeletionVector.from_positions(positions)
    assert list(vector.bitmap) == sorted(positions)
    assert vector.cardinality == len(positions)
    data = vector.serialize()
    again = DeletionVector.deserialize(data)
    assert again == vector
    assert hash(again) == hash(vector)
    assert again.serialize() == data


def test_the_lowest_and_the_highest_position() -> None:
    vector = DeletionVector.from_positions([MAX_POSITION, 0])
    assert list(DeletionVector.deserialize(vector.serialize()).bitmap) == [0, MAX_POSITION]


@pytest.mark.parametrize(
    "positions",
    [[-1], range(-2, 2), [MAX_POSITION + 1], [1 << 63], [1 << 64], [1.5], ["1"], [None], None, 5],
)
def test_positions_out_of_range_are_refused(positions: Any) -> None:
    with pytest.raises(InvalidDeletionVector, match=str(MAX_POSITION)):
        DeletionVector.from_positions(positions)


def test_every_kind_of_container() -> None:
    vector = DeletionVector.from_positions(ALL_KINDS)
    data = vector.serialize()
    assert len(data) < 18_000
    assert list(DeletionVector.deserialize(data).bitmap) == ALL_KINDS


def test_gaps_between_keys_may_be_filled_as_java_fills_them() -> None:
    vector = DeletionVector.deserialize(framed(bitmaps((0, EMPTY), (1, EMPTY), (2, ONE))))
    assert list(vector.bitmap) == [(2 << 32) + 1]
    assert vector.serialize() == DeletionVector.from_positions([(2 << 32) + 1]).serialize()


def test_a_bitmap_without_the_best_encoding_is_read() -> None:
    values = list(range(1000))
    vector = DeletionVector.deserialize(framed(bitmaps((0, arrays((0, 1000, words(*values)))))))
    assert list(vector.bitmap) == values
    assert vector.serialize() == DeletionVector.from_positions(values).serialize()


@given(st.lists(SETS, min_size=1, max_size=3))
def test_pyiceberg_reads_our_files(vectors: list[set[int]]) -> None:
    # PyIceberg allocates a bitmap for every key up to the highest one.
    kept = [{position for position in positions if position < 1 << 34} for positions in vectors]
    blobs = [
        deletion_vector_blob(DeletionVector.from_positions(positions), f"s3://b/{number}.parquet")
        for number, positions in enumerate(kept)
    ]
    data, _ = write_puffin(blobs, {"created-by": "frazil"})
    theirs = deletion_vectors_from_puffin_file(PuffinFile(data))
    assert [vector.referenced_data_file for vector in theirs] == [
        f"s3://b/{number}.parquet" for number in range(len(kept))
    ]
    for positions, vector in zip(kept, theirs, strict=True):
        found = [(key << 32) + low for key, bits in enumerate(vector._bitmaps) for low in bits]
        assert found == sorted(positions)


def test_a_blob_and_its_metadata() -> None:
    vector = DeletionVector.from_positions([1, 2])
    data, (metadata,) = write_puffin([deletion_vector_blob(vector, "s3://b/f.parquet")], {})
    (read,) = read_footer(data).blobs
    assert (read.snapshot_id, read.sequence_number) == (-1, -1)
    assert read.fields == (2147483645,)
    assert read.compression_codec is None
    assert read.properties == {"referenced-data-file": "s3://b/f.parquet", "cardinality": "2"}
    content = data[metadata.offset : metadata.offset + metadata.length]
    assert read_deletion_vector(content, metadata) == ("s3://b/f.parquet", vector)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"type": "apache-datasketches-theta-v1"}, "apache-datasketches-theta-v1"),
        ({"compression_codec": "zstd"}, "never compressed"),
        ({"properties": {"cardinality": "2"}}, "'referenced-data-file' is missing"),
        ({"properties": {"referenced-data-file": "f"}}, "'cardinality' is missing"),
        ({"properties": {"referenced-data-file": "f", "cardinality": "3"}}, "'3', but 2"),
        ({"properties": {"referenced-data-file": "f", "cardinality": "x"}}, "'x', but 2"),
    ],
)
def test_metadata_that_disagrees_is_refused(changed: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {
        "type": "deletion-vector-v1",
        "fields": (2147483645,),
        "snapshot_id": -1,
        "sequence_number": -1,
        "offset": 4,
        "length": 40,
        "properties": {"referenced-data-file": "f", "cardinality": "2"},
    }
    content = DeletionVector.from_positions([1, 2]).serialize()
    assert read_deletion_vector(content, BlobMetadata(**fields))[0] == "f"
    with pytest.raises(InvalidDeletionVector, match=message):
        read_deletion_vector(content, BlobMetadata(**{**fields, **changed}))


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (struct.pack("<Q", 1), "1 bitmaps do not fit"),
        (struct.pack("<Q", 2**64 - 1) + bytes(50), "do not fit"),
        (bitmaps((0, ONE)) + b"\0", "1 bytes follow"),
        (bitmaps((1, ONE), (0, ONE)), "key 0 after 1"),
        (bitmaps((1, ONE), (1, ONE)), "key 1 after 1"),
        (bitmaps((MAX_KEY + 1, ONE)), "key 2147483647"),
        (bitmaps((0xFFFFFFFF, ONE)), "key 4294967295"),
        (bitmaps((MAX_KEY, arrays((65535, 1, words(1))))), "above the highest"),
        (bitmaps((0, bytes(8))), "not a cookie"),
        (bitmaps((0, struct.pack("<II", 12346, 65537))), "65537 containers"),
        (bitmaps((0, struct.pack("<II", 12346, 65536))), "cut short"),
        (bitmaps((0, struct.pack("<I", 12347 | 0xFFFF0000) + bytes(50))), "cut short"),
        (bitmaps((0, arrays((1, 1, words(1)), (0, 1, words(1))))), "keys of the containers"),
        (bitmaps((0, arrays((1, 1, words(1)), (1, 1, words(1))))), "keys of the containers"),
        (bitmaps((0, arrays((0, 2, words(2, 1))))), "values of an array"),
        (bitmaps((0, arrays((0, 2, words(2, 2))))), "values of an array"),
        (bitmaps((0, arrays((0, 3, words(1, 2))))), "cut short"),
        (bitmaps((0, arrays((0, 4097, bytes(8192))))), "0 bits set, but declares 4097"),
        (bitmaps((0, arrays((0, 4097, b"\xff" * 8192)))), "65536 bits set, but declares 4097"),
        (bitmaps((0, run(1))), "hold 0 values, but it declares 1"),
        (bitmaps((0, run(4, (5, 1), (1, 1)))), "do not ascend"),
        (bitmaps((0, run(4, (1, 3), (2, 3)))), "do not ascend"),
        (bitmaps((0, run(4, (1, 1), (3, 1)))), "they touch"),
        (bitmaps((0, run(3, (1, 1)))), "hold 2 values, but it declares 3"),
        (bitmaps((0, run(2, (65535, 1)))), "hold 2 values"),
        (bitmaps((0, run(2, (1, 1))[:-1])), "cut short"),
    ],
)
def test_a_hostile_bitmap_with_a_right_checksum_is_refused(vector: bytes, message: str) -> None:
    with pytest.raises(InvalidDeletionVector, match=message):
        DeletionVector.deserialize(framed(vector))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "this one 0"),
        (lambda data: data[:19], "this one 19"),
        (lambda data: data[:-1], "the length is"),
        (lambda data: data + b"\0", "the length is"),
        (lambda data: b"\xff" + data[1:], "the length is"),
        (lambda data: data[:4] + b"\0" + data[5:], "the magic is 00d33964"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "the checksum is"),
    ],
)
def test_a_broken_frame_is_refused(damage: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(InvalidDeletionVector, match=message):
        DeletionVector.deserialize(damage(DeletionVector.from_positions([1, 2]).serialize()))


def test_a_vector_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = DeletionVector.from_positions([1, 2]).serialize()
    monkeypatch.setattr(deletion_vectors, "MAX_VECTOR_BYTES", len(data))
    assert DeletionVector.deserialize(data).cardinality == 2
    monkeypatch.setattr(deletion_vectors, "MAX_VECTOR_BYTES", len(data) - 1)
    with pytest.raises(InvalidDeletionVector, match=f"20 to {len(data) - 1} bytes"):
        DeletionVector.deserialize(data)


@given(SETS, st.data())
def test_a_changed_byte_is_always_noticed(positions: set[int], draw: st.DataObject) -> None:
    data = bytearray(DeletionVector.from_positions(positions).serialize())
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(InvalidDeletionVector):
        DeletionVector.deserialize(bytes(data))


@given(SETS, st.data())
def test_a_cut_is_always_noticed(positions: set[int], draw: st.DataObject) -> None:
    data = DeletionVector.from_positions(positions).serialize()
    cut = data[: draw.draw(st.integers(0, len(data) - 1))]
    with pytest.raises(InvalidDeletionVector):
        DeletionVector.deserialize(cut)
    with pytest.raises(InvalidDeletionVector):
        DeletionVector.deserialize(framed(cut[8:-4]))


@given(SETS, st.data())
def test_damage_under_a_right_checksum_is_refused_or_sound(
    positions: set[int], draw: st.DataObject
) -> None:
    vector = bytearray(DeletionVector.from_positions(positions).serialize()[8:-4])
    for _ in range(draw.draw(st.integers(1, 3))):
        vector[draw.draw(st.integers(0, len(vector) - 1))] = draw.draw(st.integers(0, 255))
    try:
        read = DeletionVector.deserialize(framed(bytes(vector)))
    except InvalidDeletionVector:
        return
    found = list(read.bitmap)
    assert found == sorted(set(found))
    assert len(found) == read.cardinality
    assert DeletionVector.from_positions(found) == read
