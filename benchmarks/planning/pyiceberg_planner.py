"""PyIceberg's `plan_files` on the same metadata file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.table import StaticTable

from benchmarks.planning.filters import Filter

PLAN: Final = "plan"


def open_planner() -> PyIcebergPlanner:
    return PyIcebergPlanner()


class PyIcebergPlanner:
    def __init__(self) -> None:
        self._tables: dict[str, StaticTable] = {}

    def prepare(self, table: str, wanted: Filter, way: str) -> Callable[[], int]:
        if table not in self._tables:
            self._tables[table] = StaticTable.from_metadata(table)
        found = self._tables[table]
        expression: BooleanExpression = AlwaysTrue()
        if wanted.text is not None:
            expression = parse(wanted.text)
        return lambda: sum(1 for _ in found.scan(row_filter=expression).plan_files())

    def memory(self, table: str, wanted: Filter) -> dict[str, int]:
        raise NotImplementedError("the memory of PyIceberg's planner is not measured")
