"""Files that Spark reads for a command: their format, and their columns in a table's own types."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from frazil.cli.shared.typed_names import BadName, key_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

SUFFIXES: Final = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})
_DEFAULTS: Final[dict[str, dict[str, str]]] = {
    # A header is checked against the columns, and a value that does not fit is an error, not null.
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}


@dataclass(frozen=True, slots=True)
class Source:
    """What was typed."""

    files: tuple[str, ...]
    format: str | None = None
    options: tuple[str, ...] = ()

    def read(self, spark: SparkSession, known: StructType | None = None) -> DataFrame:
        """The rows. Columns that a table has, which `known` tells, are read in its types; what is
        not known is inferred."""
        chosen = self.format or format_of(self.files)
        options = {**_DEFAULTS[chosen], **key_values("--option", self.options)}
        if chosen == "csv" and "sep" not in options and _suffix(self.files[0]) == ".tsv":
            options["sep"] = "\t"
        paths = [_absolute(name) for name in self.files]
        if chosen == "parquet":
            return spark.read.options(**options).parquet(*paths)
        types = {field.name.lower(): field for field in known or ()}
        # The names stand in a CSV file's first line, its types only in all of it.
        reader = spark.read.format(chosen).options(**options)
        found = reader.load(paths).schema
        if chosen == "csv" and _unknown(found, types):
            found = reader.options(inferSchema="true").load(paths).schema
        return spark.read.format(chosen).options(**options).schema(typed(found, types)).load(paths)


def _absolute(name: str) -> str:
    """From where the command is typed, which need not be where Spark was started."""
    return name if ":/" in name else os.path.abspath(name)


def format_of(files: Iterable[str]) -> str:
    formats = {SUFFIXES.get(_suffix(name)) for name in files}
    if len(formats) != 1 or None in formats:
        raise BadName("the files' names do not say one format: give --format csv, json or parquet")
    return str(formats.pop())


def typed(found: StructType, types: dict[str, StructField]) -> StructType:
    """The columns of the files in their order, with the table's types where it has them."""
    from pyspark.sql.types import StructField, StructType

    fields: list[Any] = []
    for field in found:
        known = types.get(field.name.lower())
        fields.append(StructField(field.name, field.dataType if known is None else known.dataType))
    return StructType(fields)


def _unknown(found: StructType, types: dict[str, StructField]) -> bool:
    return any(field.name.lower() not in types for field in found)


def _suffix(name: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
