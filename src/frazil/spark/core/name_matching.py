"""Matches column names as the Spark session compares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as fn

from frazil.client.declare.text_cursor import quoted as quoted
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest

CASE_SETTING: Final = "spark.sql.caseSensitive"


@dataclass(frozen=True)
class NameMatcher:
    case_sensitive: bool = False

    def key(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    def positions(self, names: Sequence[str], path: str) -> dict[str, int]:
        """Return the position of each name by its key; refuse two names with one key."""
        positions: dict[str, int] = {}
        for position, name in enumerate(names):
            key = self.key(name)
            if key in positions:
                parent = f" of {path}" if path else ""
                raise BadRequest(
                    f"column {name}{parent} stands twice in the frame: rename one of them"
                )
            positions[key] = position
        return positions

    def chosen(
        self, schema: StructType, names: Iterable[str], owner: object
    ) -> tuple[NestedField, ...]:
        """Return the columns of these names; a column of exactly that name comes first."""
        by_name = {self.key(field.name): field for field in schema.fields}
        by_name |= {field.name: field for field in schema.fields}
        fields = []
        for name in names:
            field = by_name.get(name) or by_name.get(self.key(name))
            if field is None:
                known = ", ".join(field.name for field in schema.fields)
                raise BadRequest(f"{owner} has no column {name}; it has {known}")
            fields.append(field)
        return tuple(fields)


def names_of(spark: SparkSession) -> NameMatcher:
    return NameMatcher(str(spark.conf.get(CASE_SETTING, "false")).lower() == "true")


def column(name: str) -> Column:
    """Return the top-level column of exactly that name, which may have dots."""
    return fn.col(quoted(name))
