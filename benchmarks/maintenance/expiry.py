"""The expiry of all snapshots but the last, with the deletion of the files that only they reach.

Each commit adds a data file, and each tenth replaces those since the last such commit. So data
files, manifests and manifest lists become unreachable. The table has no quarantine. After each run
its folder is put back from a copy, and the table is registered with a UUID of its own, so that
nothing which a run leaves in the catalog meets the next one.

Frazil's server runs a job; the memory is the server's peak. Spark's figures contain those of the
server too, which commits what Spark has computed.
"""

from __future__ import annotations

import gzip
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.maintenance.operations import Bench, run_in_server
from benchmarks.maintenance.systems import CATALOG, EXPIRY, LOCAL, STOCK
from benchmarks.spark.cpu import Ended
from benchmarks.spark.operations import NAMESPACE, Operation
from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.maintenance import expire_snapshots
from frazil.wire.declared_content import DeclaredDataFile

NAME: Final = f"{NAMESPACE}.expiry"
_REPLACED_EVERY: Final = 10
_FUTURE: Final = "2100-01-01T00:00:00Z"
_PROPERTIES: Final = {
    "frazil.gc.quarantine-ms": "0",
    "write.metadata.compression-codec": "gzip",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "2",
}
_COUNTS: Final = (
    "deleted_data_files_count",
    "deleted_position_delete_files_count",
    "deleted_equality_delete_files_count",
    "deleted_manifest_files_count",
    "deleted_manifest_lists_count",
    "deleted_statistics_files_count",
)
Counts = tuple[int, ...]


def operations(bench: Bench) -> Iterator[Operation]:
    """Yield the expiry. Its table is made when it runs first, which is a warm-up."""
    history = _History(bench)
    work: dict[str, Callable[[], object]] = {
        STOCK: lambda: history.run(lambda: _stock(bench)),
        LOCAL: lambda: history.run_in_server(_frazil),
    }
    yield Operation(EXPIRY, bench.snapshots, work, history.check)


def _stock(bench: Bench) -> Counts:
    bounds = f"older_than => TIMESTAMP '{_FUTURE}', retain_last => 1"
    call = f"CALL {CATALOG}.system.expire_snapshots(table => '{NAME}', {bounds})"
    found = bench.spark.sql(call).first()
    assert found is not None
    return tuple(found[name] for name in _COUNTS)


def _frazil(table: Table) -> Counts:
    result = expire_snapshots(table, older_than=_FUTURE, retain_last=1)
    return tuple(result.values[name] for name in _COUNTS)


class _History:
    """The table, and what the runs have left of it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._kept = bench.folder / "expiry-kept"
        self._folder = Path()
        self._metadata: dict[str, Any] = {}
        self._counts: Counts = ()
        self._outcomes: set[tuple[Counts, frozenset[str]]] = set()

    def run(self, work: Callable[[], Counts]) -> None:
        self._make()
        self._counts = work()

    def run_in_server(self, work: Callable[[Table], Counts]) -> Ended:
        self._make()
        table = self._bench.client.load_table(NAME, "refs")
        return run_in_server(self._bench, lambda: self.run(lambda: work(table)))

    def check(self) -> None:
        """Check that all systems delete the same files and keep those of the last snapshot. Put
        the table back."""
        table = self._bench.client.load_table(NAME)
        assert len(table.metadata["snapshots"]) == 1
        left = self._files()
        named = {Path(file.file_path).name for file in table.plan().files}
        assert {Path(path).name for path in left if path.endswith(".parquet")} == named
        self._outcomes.add((self._counts, left))
        assert len(self._outcomes) == 1, sorted(counts for counts, _ in self._outcomes)
        self._bench.client.drop_table(NAME)
        self._put_back()

    def _files(self) -> frozenset[str]:
        """Return the files of the table, except metadata files, whose number depends on commits."""
        found = (path for path in self._folder.rglob("*") if path.is_file())
        names = frozenset(str(path.relative_to(self._folder)) for path in found)
        return frozenset(name for name in names if ".metadata.json" not in name)

    def _make(self) -> None:
        """Make the table and its copy, if they are not there yet."""
        if self._metadata:
            return
        table = self._bench.client.create_table(NAME, "id long", properties=_PROPERTIES)
        self._folder = _local(table.location)
        _commit_all(self._bench.client, table, self._folder, self._bench.snapshots)
        location = self._bench.client.load_table(NAME, "refs").metadata_location
        self._metadata = json.loads(gzip.decompress(_local(location).read_bytes()))
        shutil.copytree(self._folder, self._kept)
        self._bench.client.drop_table(NAME)
        self._put_back()

    def _put_back(self) -> None:
        shutil.rmtree(self._folder)
        shutil.copytree(self._kept, self._folder)
        again = {**self._metadata, "table-uuid": str(uuid.uuid4()), "metadata-log": []}
        path = self._folder / "metadata" / f"00000-{uuid.uuid4()}.metadata.json"
        path.write_text(json.dumps(again))
        self._bench.client.register_table(NAME, f"file://{path}")


def _commit_all(client: Client, table: Table, folder: Path, snapshots: int) -> None:
    """Commit small files, and replace the last ones again and again.

    The appends in between are one request, which makes the table several times faster.
    """
    for start in range(0, snapshots, _REPLACED_EVERY):
        left = snapshots - start
        with client.transaction() as transaction:
            added = [_new_file(folder) for _ in range(min(left, _REPLACED_EVERY - 1))]
            for file in added:
                transaction.table(table).append_files([file])
        if left >= _REPLACED_EVERY:
            head = transaction.commits[0].snapshot_id
            paths = [file.file_path for file in added]
            table.rewrite_files(paths, [_new_file(folder)], base_snapshot_id=head)


def _new_file(folder: Path) -> DeclaredDataFile:
    path = folder / "data" / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    return DeclaredDataFile(
        file_path=f"file://{path}",
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=1,
        file_size_in_bytes=1,
    )


def _local(location: str) -> Path:
    return Path(location.removeprefix("file://"))
