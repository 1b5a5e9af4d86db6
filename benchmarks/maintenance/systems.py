"""The systems, the names of the operations, and the statement of stock Iceberg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.spark.results import STOCK as STOCK

ON_SPARK: Final = "Frazil on Spark"
LOCAL: Final = "Frazil local"
SYSTEMS: Final = (STOCK, ON_SPARK, LOCAL)
CATALOG: Final = "stock_maintenance"
"""A name of its own, because a session keeps the address of a catalog that it has used."""

BINPACK: Final = "bin-pack of small files"
DELETES: Final = "bin-pack, 10 % deleted by vectors"
SORT: Final = "sort by two columns"
SORT_V2: Final = "sort by two columns, version 2"
Z_ORDER: Final = "Z-order by two columns"
SMALL: Final = "bin-pack of a small table, with start-up"
ORPHANS: Final = "orphans among 100,000 files"
EXPIRY: Final = "expiry of all snapshots but one"
"""Frazil's work is a job of its server here and for orphans, which the caller waits for."""


def stock_call(system: str, name: str, options: Mapping[str, str], order: str | None) -> str:
    """Return the statement that calls Iceberg's procedure."""
    entries = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    sort = "" if order is None else f", strategy => 'sort', sort_order => '{order}'"
    return f"CALL {system}.rewrite_data_files(table => '{name}', options => map({entries}){sort})"
