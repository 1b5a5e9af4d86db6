"""Names and bytes of metadata files."""

from __future__ import annotations

import gzip
import re

import pytest

from frazil.format.metadata.metadata_files import (
    decode_metadata_file,
    encode_metadata_file,
    metadata_version,
    new_metadata_location,
)
from frazil.format.metadata.table_metadata_json import InvalidMetadata, encode_table_metadata
from tests.support.tables import LOCATION, history, table

UUID_PATTERN = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
MAX_BYTES = 1 << 20


class TestNames:
    def test_plain(self) -> None:
        location = new_metadata_location(table(), 7)
        assert re.fullmatch(f"{LOCATION}/metadata/00007-{UUID_PATTERN}.metadata.json", location)
        assert location != new_metadata_location(table(), 7)

    @pytest.mark.parametrize("codec", ["gzip", "GZIP"])
    def test_gzip(self, codec: str) -> None:
        metadata = table(2, **{"write.metadata.compression-codec": codec})
        location = new_metadata_location(metadata, 123456)
        pattern = f"{LOCATION}/metadata/123456-{UUID_PATTERN}.gz.metadata.json"
        assert re.fullmatch(pattern, location)

    def test_a_folder_of_its_own(self) -> None:
        metadata = table(2, **{"write.metadata.path": "s3://other/meta/"})
        assert new_metadata_location(metadata, 0).startswith("s3://other/meta/00000-")

    @pytest.mark.parametrize(
        ("location", "version"),
        [
            ("s3://b/t/metadata/00012-abc.metadata.json", 12),
            ("s3://b/t/metadata/00012-abc.gz.metadata.json", 12),
            ("00003-x.metadata.json", 3),
            ("s3://b/t/metadata/v3.metadata.json", -1),
            ("s3://b/my-table/metadata/v3.metadata.json", -1),
            ("s3://b/t/metadata/x1-abc.metadata.json", -1),
            ("s3://b/t/metadata/-abc.metadata.json", -1),
            ("s3://b/t/metadata/99999999999-abc.metadata.json", -1),
            ("s3://b/t/metadata/1_0-abc.metadata.json", -1),
            ("s3://b/t/metadata/٣-abc.metadata.json", -1),
            ("", -1),
        ],
    )
    def test_version(self, location: str, version: int) -> None:
        assert metadata_version(location) == version


class TestBytes:
    @pytest.mark.parametrize(
        ("name", "compressed"),
        [
            ("00001-x.metadata.json", False),
            ("00001-x.gz.metadata.json", True),
            ("00001-x.metadata.json.gz", True),
        ],
    )
    def test_the_name_decides_when_writing_the_bytes_when_reading(
        self, name: str, compressed: bool
    ) -> None:
        metadata = history(3)
        data = b"".join(encode_metadata_file(metadata, f"{LOCATION}/metadata/{name}"))
        assert data.startswith(b"\x1f\x8b") is compressed
        assert decode_metadata_file(data, MAX_BYTES) == metadata

    def test_files_of_several_members_are_read(self) -> None:
        plain = b"".join(encode_table_metadata(history(3)))
        data = gzip.compress(plain[:100]) + gzip.compress(plain[100:])
        assert decode_metadata_file(data, MAX_BYTES) == history(3)

    def test_the_limit_holds_for_the_inflated_size(self) -> None:
        plain = b"".join(encode_table_metadata(history(3)))
        assert decode_metadata_file(plain, len(plain)) == history(3)
        assert decode_metadata_file(gzip.compress(plain), len(plain)) == history(3)
        for data in (plain, gzip.compress(plain)):
            with pytest.raises(InvalidMetadata, match="bytes"):
                decode_metadata_file(data, len(plain) - 1)

    def test_a_bomb_is_not_inflated(self) -> None:
        bomb = gzip.compress(b" " * (64 << 20))
        with pytest.raises(InvalidMetadata, match="inflates to more than"):
            decode_metadata_file(bomb, MAX_BYTES)

    def test_damaged_files_are_refused(self) -> None:
        good = gzip.compress(b"".join(encode_table_metadata(history(3))))
        wrong_crc = good[:-8] + bytes([good[-8] ^ 1]) + good[-7:]
        for bad in (good[:-4], good[:50], wrong_crc, good + b"rubbish", b"\x1f\x8b"):
            with pytest.raises(InvalidMetadata, match="gzip"):
                decode_metadata_file(bad, MAX_BYTES)
