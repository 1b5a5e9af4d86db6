"""Names, encodes and decodes metadata files.

Mirrors Java's BaseMetastoreTableOperations and TableMetadataParser.
"""

from __future__ import annotations

import re
import zlib
from uuid import uuid4

from frazil.format.metadata.table_metadata import TableMetadata, strip_trailing_slash
from frazil.format.metadata.table_metadata_json import (
    InvalidMetadata,
    encode_gzip,
    encode_table_metadata,
    parse_table_metadata,
)
from frazil.format.metadata.table_properties import METADATA_COMPRESSION

WRITE_METADATA_PATH = "write.metadata.path"

_EXTENSION = ".metadata.json"
_GZIP_EXTENSION = ".gz.metadata.json"
_OLD_GZIP_EXTENSION = ".metadata.json.gz"
GZIP_MAGIC = b"\x1f\x8b"
_VERSION = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_UNPARSABLE_VERSION = -1
_ALWAYS_INFLATED_BYTES = 64 << 20
_MAX_INFLATION_FACTOR = 100
# Usually there is one. Each member costs a copy of all that follow it.
_MAX_MEMBERS = 100


def new_metadata_location(metadata: TableMetadata, version: int) -> str:
    """Return a new location for the next metadata file. Its UUID makes it unique."""
    codec = metadata.properties.get(METADATA_COMPRESSION, "none").lower()
    extension = _GZIP_EXTENSION if codec == "gzip" else _EXTENSION
    return f"{metadata_folder(metadata)}/{version:05d}-{uuid4()}{extension}"


def metadata_folder(metadata: TableMetadata) -> str:
    """Return the folder of the table's metadata files."""
    path = metadata.properties.get(WRITE_METADATA_PATH)
    return strip_trailing_slash(path) if path else f"{metadata.location}/metadata"


def metadata_version(location: str) -> int:
    """Return the version in the name of a metadata file, or -1 if another catalog named it."""
    version, dash, _ = location.rpartition("/")[2].partition("-")
    if not dash or not _VERSION.fullmatch(version) or not -(2**31) <= int(version) < 2**31:
        return _UNPARSABLE_VERSION
    return int(version)


def is_gzip_location(location: str) -> bool:
    """Check whether the name says that a file is compressed. `.metadata.json.gz` is the old
    form."""
    return location.endswith((_GZIP_EXTENSION, _OLD_GZIP_EXTENSION))


def encode_metadata_file(metadata: TableMetadata, location: str) -> list[bytes]:
    """Return the bytes of a file in chunks, compressed if its name says so."""
    return encode_gzip(metadata) if is_gzip_location(location) else encode_table_metadata(metadata)


def decode_metadata_file(data: bytes, max_bytes: int, *, summaries: bool = False) -> TableMetadata:
    """Read a metadata file that has at most `max_bytes` when it is inflated.

    Its first bytes say whether it is compressed, not its name. For `summaries` see
    `parse_table_metadata`.
    """
    plain = inflate(data, max_bytes) if data.startswith(GZIP_MAGIC) else data
    if len(plain) > max_bytes:
        raise InvalidMetadata("", f"metadata file is larger than {max_bytes} bytes")
    return parse_table_metadata(plain, summaries=summaries)


def _inflated_limit(compressed_bytes: int, max_bytes: int) -> int:
    """Return how many bytes a compressed file may have when it is inflated.

    Compression makes metadata ten to thirty times smaller. A file that inflates far more is not
    metadata and must not use a gigabyte of memory.
    """
    return min(max_bytes, max(_ALWAYS_INFLATED_BYTES, _MAX_INFLATION_FACTOR * compressed_bytes))


def inflate(data: bytes, max_bytes: int) -> bytes:
    """Inflate all members of a gzip file within the limits."""
    max_bytes = _inflated_limit(len(data), max_bytes)
    plain = bytearray()
    members = 0
    while data:
        members += 1
        if members > _MAX_MEMBERS:
            raise InvalidMetadata("", f"gzip file has more than {_MAX_MEMBERS} members")
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            plain += inflater.decompress(data, max_bytes + 1 - len(plain))
        except zlib.error as error:
            raise InvalidMetadata("", f"not a valid gzip file: {error}") from None
        if len(plain) > max_bytes:
            raise InvalidMetadata("", f"metadata file inflates to more than {max_bytes} bytes")
        if not inflater.eof:
            raise InvalidMetadata("", "not a valid gzip file: it ends too early")
        data = inflater.unused_data.lstrip(b"\x00")
    return bytes(plain)
