"""The search for orphan files: a listing of 100,000 files, of which 1,000 belong to nothing.

Both systems only look (`dry_run`). Stock Iceberg lists with Spark and joins the listing with the
files that the metadata names. Frazil's server runs a job; the memory is the server's peak.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.maintenance.operations import Bench, run_in_server
from benchmarks.maintenance.systems import CATALOG, LOCAL, ORPHANS, STOCK
from benchmarks.spark.cpu import Ended
from benchmarks.spark.operations import NAMESPACE, Operation
from frazil.client.declare.client_table import Table
from frazil.maintenance import remove_orphan_files
from frazil.wire.declared_content import DeclaredDataFile

_FILES: Final = 100_000
_ORPHANS: Final = 1_000
_FOLDERS: Final = 100
_FILES_OF_A_COMMIT: Final = 20_000
_LONG_AGO_S: Final = 1


def operations(bench: Bench) -> Iterator[Operation]:
    """Yield the search. Its table is made when it runs first, which is a warm-up."""
    name = f"{NAMESPACE}.orphans"

    @cache
    def table() -> Table:
        return _table(bench, name)

    def stock() -> None:
        call = f"CALL {CATALOG}.system.remove_orphan_files(table => '{name}', dry_run => true)"
        assert table() is not None
        assert len(bench.spark.sql(call).collect()) == _ORPHANS

    def by_server() -> Ended:
        own = table()
        return run_in_server(bench, lambda: _search(own))

    yield Operation(ORPHANS, _FILES, {STOCK: stock, LOCAL: by_server}, lambda: None)


def _search(table: Table) -> None:
    assert remove_orphan_files(table, dry_run=True).orphan_files_count == _ORPHANS


def _table(bench: Bench, name: str) -> Table:
    table = bench.client.create_table(name, "id long")
    paths = _files(Path(table.location.removeprefix("file://")) / "data")
    live = paths[_ORPHANS:]
    for start in range(0, len(live), _FILES_OF_A_COMMIT):
        bench.client.append_files(name, map(_declared, live[start : start + _FILES_OF_A_COMMIT]))
    return bench.client.load_table(name)


def _files(data: Path) -> list[Path]:
    """Create small files that are old enough to be orphans."""
    folders = [data / f"part={number}" for number in range(_FOLDERS)]
    for folder in folders:
        folder.mkdir(parents=True)
    paths = [folders[number % _FOLDERS] / f"{uuid.uuid4()}.parquet" for number in range(_FILES)]
    for path in paths:
        path.write_bytes(b"x")
        os.utime(path, (_LONG_AGO_S, _LONG_AGO_S))
    return paths


def _declared(path: Path) -> DeclaredDataFile:
    return DeclaredDataFile(
        file_path=f"file://{path}",
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=1,
        file_size_in_bytes=1,
    )
