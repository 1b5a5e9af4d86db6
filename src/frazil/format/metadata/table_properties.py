"""The table properties that the server obeys when it writes metadata files and manifests.

Java's library reads the compression of manifests from `write.manifest.compression-codec`.
PyIceberg reads it from `write.avro.compression-codec`, which Java has for data files in Avro. The
first codec that is set counts, and likewise the first level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frazil.format.avro.avro_codecs import DEFLATE, Compression, can_snappy
from frazil.wire.errors import BadRequest

METADATA_COMPRESSION: Final = "write.metadata.compression-codec"
METADATA_PREVIOUS_VERSIONS_MAX: Final = "write.metadata.previous-versions-max"
_MANIFEST_CODEC: Final = "write.manifest.compression-codec"
_MANIFEST_LEVEL: Final = "write.manifest.compression-level"
_AVRO_CODEC: Final = "write.avro.compression-codec"
_AVRO_LEVEL: Final = "write.avro.compression-level"

_JAVA_CODECS: Final[Mapping[str, str]] = {
    "gzip": "deflate",
    "zstd": "zstandard",
    "snappy": "snappy",
    "uncompressed": "null",
}
"""Avro's names of Iceberg's codecs."""
_PYICEBERG_CODECS: Final[Mapping[str, str]] = {
    **_JAVA_CODECS,
    **{name: name for name in ("deflate", "zstandard", "bzip2", "null")},
}
"""PyIceberg accepts Avro's own names too."""

_CODECS: Final[Mapping[str, Mapping[str, str]]] = {
    METADATA_COMPRESSION: {"none": "none", "gzip": "gzip"},
    _MANIFEST_CODEC: _JAVA_CODECS,
    _AVRO_CODEC: _PYICEBERG_CODECS,
}
_INTEGERS: Final = (METADATA_PREVIOUS_VERSIONS_MAX, _MANIFEST_LEVEL, _AVRO_LEVEL)


def check_property_values(properties: Mapping[str, str]) -> None:
    """Refuse values of new properties that would break or change later writes."""
    for name, codecs in _CODECS.items():
        codec = properties.get(name)
        if codec is not None and codec.lower() not in codecs:
            raise BadRequest(f"properties.{name}: {codec!r} is not one of {', '.join(codecs)}")
    for name in _INTEGERS:
        value = properties.get(name)
        if value is not None and parse_int(value) is None:
            raise BadRequest(f"properties.{name}: {value!r} is not an integer")


def manifest_compression(properties: Mapping[str, str]) -> Compression:
    """Return how the manifests and manifest lists of a table are compressed. If we cannot write
    its codec, they are compressed by gzip, because the codec only affects their size."""
    codec = "deflate"
    for name in (_MANIFEST_CODEC, _AVRO_CODEC):
        if name in properties:
            codec = _CODECS[name].get(properties[name].lower(), "")
            break
    if not codec or (codec == "snappy" and not can_snappy()):
        return DEFLATE
    level = properties.get(_MANIFEST_LEVEL, properties.get(_AVRO_LEVEL, ""))
    return Compression(codec, parse_int(level))


def parse_int(text: str) -> int | None:
    """Parse a 32-bit integer of digits and a sign, as Java's Integer.parseInt does."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    value = int(text)
    return value if -(2**31) <= value < 2**31 else None
