"""Reads how to write Parquet files from a table's `write.parquet.*` and similar properties.

Names and defaults are Iceberg's (`TableProperties`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, Final, TypeVar

import pyarrow.parquet as pq

from frazil.wire.errors import BadRequest

TARGET_SIZE: Final = "write.target-file-size-bytes"
TARGET_SIZE_DEFAULT_BYTES: Final = 512 << 20

_DATA: Final = "write.parquet."
_DELETES: Final = "write.delete.parquet."
_BLOOM_ENABLED: Final = "bloom-filter-enabled.column."
_BLOOM_FPP: Final = "bloom-filter-fpp.column."
_BLOOM_NDV: Final = "bloom-filter-ndv.column."
_DICTIONARY: Final = "dict-encoding-enabled.column."
_STATISTICS: Final = "stats-enabled.column."
_BLOOM_BITS_PER_VALUE: Final = 8
"""How many bits a value sets in its block of a Bloom filter."""
_MIN_BLOOM_BYTES: Final = 32

CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")
_CODEC_NAMES: Final = {"none": "uncompressed", "lz4_raw": "lz4"}

T = TypeVar("T")


@cache
def has_option(name: str) -> bool:
    """Whether the installed pyarrow's writer has an option that older ones do not have."""
    return name in signature(pq.ParquetWriter.__init__).parameters


@dataclass(frozen=True, kw_only=True)
class BloomFilter:
    column: str
    """The column's full name in the schema."""
    fpp: float
    ndv: int | None
    """The number of distinct values; None for as many as the row group has rows."""
    max_bytes: int

    def distinct_values(self, rows: int) -> int:
        """Return how many values to make the filter for, so that it keeps its size limit."""
        wanted = max(1, rows if self.ndv is None else self.ndv)
        # The bytes of a filter are a power of two. With n values in m bits, the fraction of false
        # positives is (1 - e^(-8n/m))^8 (Parquet's specification, "Bloom Filter").
        largest = 1 << max(self.max_bytes, _MIN_BLOOM_BYTES).bit_length() - 1
        per_bit = -math.log1p(-(self.fpp ** (1 / _BLOOM_BITS_PER_VALUE)))
        return max(1, min(wanted, int(largest * 8 * per_bit / _BLOOM_BITS_PER_VALUE)))


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    target_file_size_bytes: int = TARGET_SIZE_DEFAULT_BYTES
    row_group_size_bytes: int
    page_size_bytes: int
    page_row_limit: int
    page_version: str
    dict_size_bytes: int
    codec: str
    compression_level: int | None
    bloom_filters: tuple[BloomFilter, ...] = ()
    dictionaries: tuple[tuple[str, bool], ...] = ()
    """The columns for which the table says whether they have a dictionary."""
    without_statistics: tuple[str, ...] = ()
    """The columns whose statistics are left out of the footer."""
    sort_order_id: int | None = None
    """The sort order that the rows are in, or None."""
    spec_id: int | None = None
    """The partition spec; None for the table's default."""

    def parquet_options(self) -> dict[str, Any]:
        """Return the options of pyarrow's writer that do not depend on the columns."""
        limit = {"max_rows_per_page": self.page_row_limit}
        return {
            "compression": "none" if self.codec == "uncompressed" else self.codec,
            "compression_level": self.compression_level,
            "data_page_size": self.page_size_bytes,
            "dictionary_pagesize_limit": self.dict_size_bytes,
            "data_page_version": {"v1": "1.0", "v2": "2.0"}[self.page_version],
            **(limit if has_option("max_rows_per_page") else {}),
            "version": "2.6",
            # Spec, Appendix A: decimals of up to 18 digits are stored as integers.
            "store_decimal_as_integer": True,
            "store_schema": False,
        }


def file_options(
    properties: Mapping[str, str],
    *,
    target_file_size_bytes: int | None = None,
    sort_order_id: int | None = None,
    spec_id: int | None = None,
) -> FileOptions:
    """Return the options of a table's data files; an explicit target size overrides its own."""
    table = _Properties(properties, (_DATA,))
    target = positive_property(properties, TARGET_SIZE, TARGET_SIZE_DEFAULT_BYTES)
    if target_file_size_bytes is not None and target_file_size_bytes <= 0:
        raise BadRequest(f"target file size: {target_file_size_bytes} is not a number of bytes")
    return FileOptions(
        target_file_size_bytes=target_file_size_bytes or target,
        bloom_filters=_bloom_filters(table),
        dictionaries=tuple(table.columns(_DICTIONARY, boolean).items()),
        without_statistics=tuple(
            name for name, wanted in table.columns(_STATISTICS, boolean).items() if not wanted
        ),
        sort_order_id=sort_order_id,
        spec_id=spec_id,
        **_common(table),
    )


def delete_file_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return pyarrow's options for delete files, which default to those of data files."""
    return FileOptions(**_common(_Properties(properties, (_DELETES, _DATA)))).parquet_options()


def _common(table: _Properties) -> dict[str, Any]:
    codec = table.value("compression-codec", "zstd", _codec)
    return {
        "row_group_size_bytes": table.positive("row-group-size-bytes", 128 << 20),
        "page_size_bytes": table.positive("page-size-bytes", 1 << 20),
        "page_row_limit": table.positive("page-row-limit", 20_000),
        "page_version": table.value("page-version", "v1", _page_version),
        "dict_size_bytes": table.positive("dict-size-bytes", 2 << 20),
        "codec": codec,
        "compression_level": table.value("compression-level", None, whole_number),
    }


def _bloom_filters(table: _Properties) -> tuple[BloomFilter, ...]:
    rates = table.columns(_BLOOM_FPP, _rate)
    counts = table.columns(_BLOOM_NDV, positive_number)
    max_bytes = table.positive("bloom-filter-max-bytes", 1 << 20)
    return tuple(
        BloomFilter(
            column=name, fpp=rates.get(name, 0.01), ndv=counts.get(name), max_bytes=max_bytes
        )
        for name, wanted in table.columns(_BLOOM_ENABLED, boolean).items()
        if wanted
    )


# --- parsing ------------------------------------------------------------------------------------


class _Properties:
    """Properties whose names may start with several prefixes; the first that is set counts."""

    def __init__(self, properties: Mapping[str, str], prefixes: tuple[str, ...]) -> None:
        self._properties = properties
        self._prefixes = prefixes

    def value(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        for prefix in self._prefixes:
            text = self._properties.get(prefix + name)
            if text is not None:
                return _parsed(prefix + name, text, parse)
        return default

    def positive(self, name: str, default: int) -> int:
        return self.value(name, default, positive_number)

    def columns(self, name: str, parse: Callable[[str], T]) -> dict[str, T]:
        """Return the values by the column names that end the names of the properties."""
        prefix = self._prefixes[0] + name
        return {
            key.removeprefix(prefix): _parsed(key, text, parse)
            for key, text in self._properties.items()
            if key.startswith(prefix)
        }


def positive_property(properties: Mapping[str, str], name: str, default: int) -> int:
    return _Properties(properties, ("",)).positive(name, default)


def _parsed(key: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text.strip())
    except ValueError as error:
        raise BadRequest(f"the table's property {key}: {error}: correct it") from None


def positive_number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{text!r} is not a positive whole number")
    return int(text)


def whole_number(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 < rate < 1:
        raise ValueError(f"{text!r} is not a number between 0 and 1")
    return rate


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _codec(text: str) -> str:
    codec = _CODEC_NAMES.get(text.lower(), text.lower())
    if codec not in CODECS:
        raise ValueError(f"{text!r} is not one of {', '.join(CODECS)}")
    return codec


def _page_version(text: str) -> str:
    if text.lower() not in ("v1", "v2"):
        raise ValueError(f"{text!r} is neither v1 nor v2")
    return text.lower()
