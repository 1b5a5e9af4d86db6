"""How names of columns find each other: as the session compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as fn

from frazil.wire.errors import BadRequest

CASE_SETTING: Final = "spark.sql.caseSensitive"


@dataclass(frozen=True)
class NameMatcher:
    case_sensitive: bool = False

    def key(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    def places(self, names: Sequence[str], path: str) -> dict[str, int]:
        """The position of each name by its key; a name that stands twice is an error."""
        found: dict[str, int] = {}
        for place, name in enumerate(names):
            key = self.key(name)
            if key in found:
                where = f" of {path}" if path else ""
                raise BadRequest(
                    f"column {name}{where} stands twice in the frame: rename one of them"
                )
            found[key] = place
        return found


def names_of(spark: SparkSession) -> NameMatcher:
    return NameMatcher(str(spark.conf.get(CASE_SETTING, "false")).lower() == "true")


def column(name: str) -> Column:
    """The top-level column of that very name, dots and all."""
    return fn.col(quoted(name))


def quoted(*parts: str) -> str:
    """Return a name in backticks, part by part."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)
