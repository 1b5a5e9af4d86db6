"""The Avro writer ends blocks by their number of records and keeps the order of records."""

from __future__ import annotations

import json

import pytest

from frazil.format.avro.avro_files import MANIFEST_LIMITS, AvroWriter, open_avro
from frazil.format.avro.avro_schema import record_schema
from frazil.format.avro.avro_types import encode_long

SCHEMA = record_schema(
    json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "x", "type": "bytes", "field-id": 1}],
        }
    )
)


def record(content: bytes) -> bytes:
    out = bytearray()
    out += encode_long(len(content))
    return bytes(out + content)


@pytest.mark.parametrize("codec", ["deflate", "null", "zstandard"])
def test_many_blocks_keep_their_order(codec: str) -> None:
    records = [record(f"{number:06}".encode() * (number % 50)) for number in range(5_003)]
    writer = AvroWriter(SCHEMA, {}, codec, 100)
    assert [writer.write(one) for one in records].count(True) == 50
    content = writer.finish()
    blocks = list(open_avro(content, MANIFEST_LIMITS).blocks())
    assert [count for count, _ in blocks] == [100] * 50 + [3]
    assert b"".join(block for _, block in blocks) == b"".join(records)
    assert writer.decoded_bytes == sum(map(len, records))


def test_one_block_and_none_are_whole_files() -> None:
    for records in ([], [record(b"a")]):
        writer = AvroWriter(SCHEMA, {}, "deflate", 10)
        for one in records:
            writer.write(one)
        found = list(open_avro(writer.finish(), MANIFEST_LIMITS).blocks())
        assert [count for count, _ in found] == [1] * len(records)
