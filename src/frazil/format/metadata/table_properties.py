"""The table properties that the server obeys when it writes metadata files and manifests, and
the values of others that no client could use.

Java's library reads the compression of manifests from `write.manifest.compression-codec`.
PyIceberg reads it from `write.avro.compression-codec`, which Java has for data files in Avro. The
first codec that is set counts, and likewise the first level.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from frazil.format.avro.avro_codecs import DEFLATE, Compression, can_snappy
from frazil.wire.errors import BadRequest

METADATA_COMPRESSION: Final = "write.metadata.compression-codec"
METADATA_PREVIOUS_VERSIONS_MAX: Final = "write.metadata.previous-versions-max"
DELETE_OLD_METADATA: Final = "write.metadata.delete-after-commit.enabled"
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
_OF_EACH_COMMAND: Final[Mapping[str, tuple[str, ...]]] = {
    "isolation-level": ("serializable", "snapshot"),
    "mode": ("copy-on-write", "merge-on-read"),
    "distribution-mode": ("none", "hash", "range"),
}
_CHOICES: Final[Mapping[str, Collection[str]]] = {
    **_CODECS,
    "write.distribution-mode": _OF_EACH_COMMAND["distribution-mode"],
    **{
        f"write.{command}.{name}": values
        for command in ("delete", "update", "merge")
        for name, values in _OF_EACH_COMMAND.items()
    },
}
"""The values in lower case; clients ignore the case."""
_INTEGERS: Final = (METADATA_PREVIOUS_VERSIONS_MAX, _MANIFEST_LEVEL, _AVRO_LEVEL)
_COUNTS: Final = tuple(
    f"commit.retry.{name}"
    for name in ("num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms")
)
"""Java's validateCommitProperties checks them in new tables."""


def check_property_values(properties: Mapping[str, str]) -> None:
    """Refuse values of new properties that would break or change later writes."""
    for name, choices in _CHOICES.items():
        value = properties.get(name)
        if value is not None and value.lower() not in choices:
            raise BadRequest(f"properties.{name}: {value!r} is not one of {', '.join(choices)}")
    for name in (*_INTEGERS, *_COUNTS):
        value = properties.get(name)
        number = 0 if value is None else parse_int(value)
        if number is None:
            raise BadRequest(f"properties.{name}: {value!r} is not an integer")
        if number < 0 and name in _COUNTS:
            raise BadRequest(f"properties.{name}: {value!r} must not be negative")


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
