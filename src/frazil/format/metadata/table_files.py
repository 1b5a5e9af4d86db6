"""Statistics files and encryption keys of table metadata.

Mirrors Java's StatisticsFileParser, PartitionStatisticsFileParser and EncryptedKeyParser.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from frazil.format.metadata.raw_json import (
    Int32,
    Int64,
    InvalidMetadata,
    NonNegativeInt64,
    Part,
    compact,
    decode,
    json_names,
    without_nulls,
)


class BlobMetadata(Struct, frozen=True, kw_only=True, rename="kebab"):
    type: str
    snapshot_id: Int64
    sequence_number: Int64
    fields: tuple[Int32, ...]
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class StatisticsFile(Part, frozen=True, kw_only=True, rename="kebab"):
    snapshot_id: Int64
    statistics_path: str
    file_size_in_bytes: NonNegativeInt64
    file_footer_size_in_bytes: NonNegativeInt64
    blob_metadata: tuple[BlobMetadata, ...]


class PartitionStatisticsFile(Part, frozen=True, kw_only=True, rename="kebab"):
    snapshot_id: Int64
    statistics_path: str
    file_size_in_bytes: NonNegativeInt64


class EncryptedKey(Part, frozen=True, kw_only=True, rename="kebab"):
    key_id: str
    encrypted_key_metadata: str
    """Base64."""
    encrypted_by_id: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)


P = TypeVar("P", bound=Part)

_STATISTICS: msgspec.json.Decoder[StatisticsFile] = msgspec.json.Decoder(StatisticsFile)
_PARTITION_STATISTICS: msgspec.json.Decoder[PartitionStatisticsFile] = msgspec.json.Decoder(
    PartitionStatisticsFile
)
_KEY: msgspec.json.Decoder[EncryptedKey] = msgspec.json.Decoder(EncryptedKey)


def parse_statistics_file(raw: bytes | Raw, field: str = "statistics") -> StatisticsFile:
    return _parse(_STATISTICS, StatisticsFile, raw, field)


def parse_partition_statistics_file(
    raw: bytes | Raw, field: str = "partition-statistics"
) -> PartitionStatisticsFile:
    return _parse(_PARTITION_STATISTICS, PartitionStatisticsFile, raw, field)


def parse_encrypted_key(raw: bytes | Raw, field: str = "encryption-key") -> EncryptedKey:
    key = _parse(_KEY, EncryptedKey, raw, field)
    try:
        base64.b64decode(key.encrypted_key_metadata, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidMetadata(f"{field}.encrypted-key-metadata", "not valid base64") from None
    return key


def _parse(decoder: msgspec.json.Decoder[P], part: type[P], raw: bytes | Raw, field: str) -> P:
    squeezed = without_nulls(compact(raw, field), json_names(part), field)
    return msgspec.structs.replace(decode(decoder, squeezed, field), raw=squeezed)
