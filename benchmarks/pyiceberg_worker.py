"""Stock PyIceberg in its own process. It reads a question per line on stdin and answers on
stdout.

Time and CPU are measured here, only around PyIceberg's own call.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from benchmarks.histories import NAMESPACE, PROPERTIES

_UPDATES: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])
_REQUIREMENTS: TypeAdapter[tuple[TableRequirement, ...]] = TypeAdapter(tuple[TableRequirement, ...])


class Worker:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._open: tuple[str, Table] | None = None
        """The table being written: a writer does not load it again for each append."""
        self._rows = _sample_rows()

    def seed(self, appends: int) -> dict[str, Any]:
        """Create a table with `appends` appends, each with its own files."""
        table = self._catalog.create_table(
            (NAMESPACE, "seed"), self._rows.schema, properties=PROPERTIES
        )
        for _ in range(appends):
            table.append(self._rows)
        metadata = json.loads(table.metadata.model_dump_json())
        return {"found": {"metadata": metadata, "rows": self._rows.num_rows}}

    def register(self, table: str, metadata_location: str) -> dict[str, Any]:
        self._catalog.register_table((NAMESPACE, table), metadata_location)
        return {}

    def load(self, table: str, most: int, limit_s: float) -> dict[str, Any]:
        return _measured([lambda: self._catalog.load_table((NAMESPACE, table))] * most, limit_s)

    def commit(
        self, table: str, commits: Sequence[dict[str, Any]], limit_s: float
    ) -> dict[str, Any]:
        opened = self._opened(table)
        sent = [
            (
                _REQUIREMENTS.validate_python(commit["requirements"]),
                _UPDATES.validate_python(commit["updates"]),
            )
            for commit in commits
        ]

        def one(requirements: Any, updates: Any) -> Callable[[], object]:
            return lambda: self._catalog.commit_table(opened, requirements, updates)

        return _measured([one(*each) for each in sent], limit_s)

    def append(self, table: str, most: int, limit_s: float) -> dict[str, Any]:
        opened = self._opened(table)
        return _measured([lambda: opened.append(self._rows)] * most, limit_s)

    def snapshot_ids(self, table: str) -> dict[str, Any]:
        metadata = self._catalog.load_table((NAMESPACE, table)).metadata
        return {"found": [len(metadata.snapshots), metadata.current_snapshot_id]}

    def rows(self, table: str) -> dict[str, Any]:
        return {"found": self._catalog.load_table((NAMESPACE, table)).scan().count()}

    def _opened(self, name: str) -> Table:
        if self._open is None or self._open[0] != name:
            self._open = (name, self._catalog.load_table((NAMESPACE, name)))
        return self._open[1]


def _sample_rows() -> pa.Table:
    """Return one row with a few columns of different types."""
    return pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "name": pa.array(["frazil"], pa.string()),
            "amount": pa.array([1.5], pa.float64()),
            "at": pa.array([0], pa.timestamp("us", tz="UTC")),
        }
    )


def _measured(calls: Sequence[Callable[[], object]], limit_s: float) -> dict[str, Any]:
    until = time.perf_counter() + limit_s
    seconds: list[float] = []
    cpu_before = time.process_time()
    for call in calls:
        started = time.perf_counter()
        call()
        ended = time.perf_counter()
        seconds.append(ended - started)
        if ended >= until:
            break
    return {"seconds": seconds, "cpu_s": time.process_time() - cpu_before}


def main() -> None:
    # The client also deletes superseded metadata files, and warns if the server was faster.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    catalog = load_catalog("bench", **json.loads(sys.argv[1]))
    catalog.create_namespace_if_not_exists(NAMESPACE)
    worker = Worker(catalog)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = getattr(worker, asked.pop("do"))(**asked)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
