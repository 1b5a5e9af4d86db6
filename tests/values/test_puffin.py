from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.puffin import PuffinFile

from frazil.values.puffin import (
    MAX_FOOTER_BYTES,
    TAIL_BYTES,
    Blob,
    InvalidPuffin,
    footer_bytes,
    read_footer,
    write_puffin,
)

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PROPERTIES = st.dictionaries(TEXTS, TEXTS, max_size=3)
BLOBS = st.builds(
    Blob,
    type=TEXTS,
    fields=st.lists(INTS, max_size=3).map(tuple),
    data=st.binary(max_size=200),
    snapshot_id=LONGS,
    sequence_number=LONGS,
    properties=PROPERTIES,
)
SAMPLE = Blob(type="t", fields=(1,), data=b"content", snapshot_id=2, sequence_number=3)


def puffin(payload: object, blobs: bytes = b"content", flags: bytes = bytes(4)) -> bytes:
    """Return a file with any payload, as a hostile writer could make it."""
    encoded = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    tail = struct.pack("<i", len(encoded)) + flags + b"PFA1"
    return b"PFA1" + blobs + b"PFA1" + encoded + tail


def blob_json(**changed: Any) -> dict[str, Any]:
    return {
        "type": "t",
        "fields": [1],
        "snapshot-id": 2,
        "sequence-number": 3,
        "offset": 4,
        "length": 7,
        **changed,
    }


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in blob_json().items() if key != name}


def test_the_bytes_of_a_file() -> None:
    data, (metadata,) = write_puffin([SAMPLE], {"created-by": "someone"})
    payload = (
        b'{"blobs":[{"type":"t","fields":[1],"snapshot-id":2,"sequence-number":3,"offset":4,'
        b'"length":7}],"properties":{"created-by":"someone"}}'
    )
    assert data == puffin(payload)
    assert (metadata.offset, metadata.length) == (4, 7)


def test_a_file_without_blobs() -> None:
    data, written = write_puffin([], {})
    assert data == puffin(b'{"blobs":[]}', blobs=b"")
    assert written == []
    assert read_footer(data).blobs == ()


@given(st.lists(BLOBS, max_size=4), PROPERTIES)
def test_both_ways_and_read_by_pyiceberg(blobs: list[Blob], properties: dict[str, str]) -> None:
    data, written = write_puffin(blobs, properties)
    footer = read_footer(data)
    assert list(footer.blobs) == written
    assert footer.properties == properties
    theirs = PuffinFile(data)
    assert theirs.footer.properties == properties
    for blob, metadata in zip(blobs, theirs.footer.blobs, strict=True):
        assert metadata.type == blob.type
        assert tuple(metadata.fields) == blob.fields
        assert metadata.snapshot_id == blob.snapshot_id
        assert metadata.sequence_number == blob.sequence_number
        assert metadata.compression_codec is None
        assert metadata.properties == blob.properties
        assert theirs.get_blob_payload(metadata) == blob.data


def test_a_file_read_by_ranges() -> None:
    data, (metadata,) = write_puffin([SAMPLE], {})
    length = footer_bytes(data[-TAIL_BYTES:], len(data))
    assert length == len(data) - 4 - len(SAMPLE.data)
    for tail_bytes in range(length, len(data) + 1):
        assert read_footer(data[-tail_bytes:], len(data)).blobs == (metadata,)
    with pytest.raises(InvalidPuffin, match=f"the footer has {length} bytes, but only"):
        read_footer(data[-(length - 1) :], len(data))


def test_fields_that_we_do_not_know_are_left_alone() -> None:
    data = puffin({"blobs": [blob_json(later=[1])], "later": {"a": None}})
    assert read_footer(data).blobs[0].length == 7


def test_a_null_codec_is_none() -> None:
    (metadata,) = read_footer(puffin({"blobs": [blob_json(**{"compression-codec": None})]})).blobs
    assert metadata.compression_codec is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "too few"),
        (b"PFA1" * 4, "too few"),
        (puffin({"blobs": []})[:-1] + b"2", "ends with"),
        (b"XXXX" + puffin({"blobs": []})[4:], "begins with"),
        (b"PFA1" + b"X" * 4 + puffin({"blobs": []}, b"")[8:], "does not begin with"),
        (b"PFA1PFA1" + struct.pack("<i4s", -1, bytes(4)) + b"PFA1", "negative size: -1"),
        (b"PFA1PFA1" + struct.pack("<i4s", 1, bytes(4)) + b"PFA1", "does not fit"),
        (b"PFA1PFA1" + struct.pack("<i4s", 2**31 - 1, bytes(4)) + b"PFA1", "above the limit"),
        (puffin({"blobs": []}, flags=b"\1\0\0\0"), "lz4"),
        (puffin({"blobs": []}, flags=b"\2\0\0\0"), "reserves"),
        (puffin({"blobs": []}, flags=b"\0\0\0\1"), "reserves"),
    ],
)
def test_a_broken_frame_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidPuffin, match=message):
        read_footer(data)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "not as specified"),
        (b"\xff", "not as specified"),
        (b'{"blobs":[]}x', "not as specified"),
        (b'{"later":' + b"[" * 100_000, "not as specified"),
        ({}, "blobs"),
        ({"blobs": {}}, "blobs"),
        ({"blobs": [], "properties": {"a": 1}}, "properties"),
        ({"blobs": [without("type")]}, "type"),
        ({"blobs": [without("length")]}, "length"),
        ({"blobs": [blob_json(fields=["1"])]}, "fields"),
        ({"blobs": [blob_json(fields=[2**31])]}, "fields"),
        ({"blobs": [blob_json(**{"snapshot-id": 2**63})]}, "snapshot-id"),
        ({"blobs": [blob_json(**{"sequence-number": 1.5})]}, "sequence-number"),
        ({"blobs": [blob_json(offset=-1)]}, "offset"),
        ({"blobs": [blob_json(length=-1)]}, "length"),
        ({"blobs": [blob_json(offset=3)]}, r"blobs\[0\]: 7 bytes at offset 3"),
        ({"blobs": [blob_json(), blob_json(length=8)]}, r"blobs\[1\]: 8 bytes at offset 4"),
        ({"blobs": [blob_json(offset=2**63 - 1, length=2**63 - 1)]}, r"blobs\[0\]"),
    ],
)
def test_a_hostile_footer_is_refused(payload: object, message: str) -> None:
    with pytest.raises(InvalidPuffin, match=message):
        read_footer(puffin(payload))


def test_too_many_blobs_are_refused() -> None:
    blob = json.dumps(blob_json()).encode()
    many = b",".join([blob] * 100_001)
    assert len(many) < MAX_FOOTER_BYTES
    with pytest.raises(InvalidPuffin, match="blobs"):
        read_footer(puffin(b'{"blobs":[' + many + b"]}"))


def test_a_file_smaller_than_its_tail_is_refused() -> None:
    data, _ = write_puffin([SAMPLE], {})
    with pytest.raises(InvalidPuffin, match="cannot end with"):
        read_footer(data, len(data) - 1)


def two_blobs() -> bytes:
    other = {"compression-codec": "zstd", "offset": 11, "length": 5}
    payload = {"blobs": [blob_json(), blob_json(**other)], "properties": {"created-by": "someone"}}
    return puffin(payload, b"contentother")


@pytest.mark.parametrize(
    ("blob", "properties", "message"),
    [
        (Blob(type="t", fields=(2**31,), data=b"", snapshot_id=1, sequence_number=1), {}, "fields"),
        (Blob(type="t", fields=(), data=b"", snapshot_id=2**63, sequence_number=1), {}, "snapshot"),
        (SAMPLE, {"created-by": "\ud800"}, "JSON"),
        (SAMPLE, {"created-by": "x" * MAX_FOOTER_BYTES}, "write fewer blobs"),
    ],
)
def test_what_could_not_be_read_is_not_written(
    blob: Blob, properties: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidPuffin, match=message):
        write_puffin([blob], properties)


@given(st.data())
def test_damage_is_refused_or_harmless(draw: st.DataObject) -> None:
    """Footers have no checksum, so damage may go undetected; it must not cause any other error."""
    data = two_blobs()
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        damaged[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    cut = bytes(damaged[draw.draw(st.integers(0, 3)) : len(data) - draw.draw(st.integers(0, 3))])
    with suppress(InvalidPuffin):
        for metadata in read_footer(cut).blobs:
            assert 4 <= metadata.offset <= metadata.offset + metadata.length <= len(cut)


def test_every_truncation_is_refused() -> None:
    data = two_blobs()
    for size in range(len(data)):
        with pytest.raises(InvalidPuffin):
            read_footer(data[:size])
