"""Columns are read from their file unchanged, or not at all."""

from __future__ import annotations

import random
import zlib
from decimal import Decimal
from uuid import UUID

import numpy as np
import pytest

from frazil.format.manifest.manifest_columns import ManifestColumns, decode_columns
from frazil.format.manifest.manifest_list import DELETES
from frazil.format.metadata.content_files import EQUALITY_DELETES, POSITION_DELETES
from frazil.format.pruning import cached_columns
from frazil.format.pruning.cached_columns import columns_from_bytes, columns_to_bytes
from tests.format.manifest_files import data_file, delete_file, encoder_of, manifest_of

TYPES = ("decimal(9, 2)", "uuid", "string", "long", "double", "boolean", "binary")
PARTITIONS = (
    (Decimal("-1.25"), UUID(int=9), "ä", -(1 << 62), -0.0, True, b"\xff"),
    (None, None, None, None, None, None, None),
    (Decimal("100.00"), UUID(int=0), "", 5, 0.0, False, b""),
)


def data_columns() -> ManifestColumns:
    files = [data_file(n, PARTITIONS[n % 3], file_path=f"s3://ö/{n}") for n in range(101)]
    return decode_columns(manifest_of(encoder_of(*TYPES, version=3), files))


def delete_columns() -> ManifestColumns:
    files = [
        delete_file(1, POSITION_DELETES, referenced_data_file="a"),
        delete_file(2, EQUALITY_DELETES, equality_ids=[1, 2]),
        delete_file(3, POSITION_DELETES, content_offset=1, content_size_in_bytes=2),
    ]
    return decode_columns(manifest_of(encoder_of(version=3, content=DELETES), files))


@pytest.mark.parametrize("columns", [data_columns(), delete_columns()])
def test_columns_come_back(columns: ManifestColumns) -> None:
    content = columns_to_bytes("s3://m.avro", columns)
    found = columns_from_bytes("s3://m.avro", content)
    assert found is not None
    for name in ManifestColumns.__slots__:
        kept, own = getattr(found, name), getattr(columns, name)
        if name == "deletes" and own is not None:
            for part in type(own).__slots__:
                assert list(getattr(kept, part)) == list(getattr(own, part))
        elif isinstance(own, np.ndarray):
            assert kept.dtype == own.dtype
            assert kept.tolist() == own.tolist()
        elif name != "deletes":
            assert repr(kept) == repr(own)
    assert found.size_bytes == columns.size_bytes
    assert [found.find(columns.path(row)) for row in range(len(columns))] == [
        [row] for row in range(len(columns))
    ]


def test_the_file_of_another_manifest_is_not_taken() -> None:
    content = columns_to_bytes("s3://m.avro", data_columns())
    assert columns_from_bytes("s3://other.avro", content) is None


def test_a_damaged_file_is_not_taken() -> None:
    content = columns_to_bytes("s3://m.avro", data_columns())
    chance = random.Random(5)
    assert columns_from_bytes("s3://m.avro", b"") is None
    assert columns_from_bytes("s3://m.avro", b"something else entirely, and long enough") is None
    for _ in range(200):
        at = chance.randrange(len(content))
        damaged = bytearray(content)
        damaged[at] ^= 1 << chance.randrange(8)
        assert columns_from_bytes("s3://m.avro", bytes(damaged)) is None
        assert columns_from_bytes("s3://m.avro", content[:at]) is None
    assert columns_from_bytes("s3://m.avro", content + b"x") is None


def test_a_file_that_was_written_wrongly_is_not_taken() -> None:
    """The checksum is valid, but the content is not."""
    content = columns_to_bytes("s3://m.avro", data_columns())
    frame = cached_columns._FRAME
    magic, version, _ = frame.unpack_from(content)
    body = content[frame.size :]
    chance = random.Random(3)
    for _ in range(100):
        wrong = body[: chance.randrange(len(body))]
        forged = frame.pack(magic, version, zlib.crc32(wrong)) + wrong
        assert columns_from_bytes("s3://m.avro", forged) is None
    later = frame.pack(magic, version + 1, zlib.crc32(body)) + body
    assert columns_from_bytes("s3://m.avro", later) is None
