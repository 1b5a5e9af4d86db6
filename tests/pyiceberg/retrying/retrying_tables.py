"""Tables on PyIceberg's SqlCatalog, and ways to interleave two writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "value", LongType(), required=False),
)
ARROW = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.int64())])
UNPARTITIONED = UNPARTITIONED_PARTITION_SPEC
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))
QUICK = {
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "2",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "2",
}
SNAPSHOT_ISOLATION = {
    f"write.{command}.isolation-level": "snapshot" for command in ("delete", "update", "merge")
}
PATH_FIELD_ID = 2147483546

Row = tuple[int | None, str | None, int | None]


class InterleavedCatalog(SqlCatalog):
    """PyIceberg's SqlCatalog with hooks that run right before and right after a swap."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.before_swap: list[Callable[[], Any]] = []
        self.after_swap: list[Callable[[], Any]] = []
        self.swaps = 0

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        self.swaps += 1
        if self.before_swap:
            self.before_swap.pop(0)()
        answer = super().commit_table(table, requirements, updates)
        if self.after_swap:
            self.after_swap.pop(0)()
        return answer


def sql_catalog(directory: Path) -> InterleavedCatalog:
    directory.mkdir(parents=True, exist_ok=True)
    catalog = InterleavedCatalog(
        "sql", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}"
    )
    catalog.create_namespace_if_not_exists("db")
    return catalog


def rows(*values: Row) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": each[0], "part": each[1], "value": each[2]} for each in values], schema=ARROW
    )


def read(table: Table, **scan: Any) -> list[Row]:
    found = table.catalog.load_table(table.name()).scan(**scan).to_arrow().to_pylist()
    values = [(each["id"], each["part"], each["value"]) for each in found]
    return cast("list[Row]", sorted(values, key=str))


def local(path: str) -> Path:
    return Path(urlparse(path).path)


def stray_metadata(table: Table) -> set[str]:
    """Return manifests and manifest lists in the table's folder that no snapshot references."""
    current = table.catalog.load_table(table.name())
    reachable = set()
    for snapshot in current.metadata.snapshots:
        reachable.add(local(snapshot.manifest_list).name)
        reachable |= {local(each.manifest_path).name for each in snapshot.manifests(current.io)}
    folder = local(current.metadata.location) / "metadata"
    return {path.name for path in folder.glob("*.avro")} - reachable


def stray_data(table: Table) -> set[str]:
    """Return Parquet files in the table's folder that no snapshot has ever referenced."""
    current = table.catalog.load_table(table.name())
    known = set()
    for snapshot in current.metadata.snapshots:
        for manifest in snapshot.manifests(current.io):
            entries = manifest.fetch_manifest_entry(current.io, discard_deleted=False)
            known |= {local(entry.data_file.file_path).name for entry in entries}
    folder = local(current.metadata.location) / "data"
    return {path.name for path in folder.rglob("*.parquet")} - known


def data_files(table: Table) -> list[DataFile]:
    return [task.file for task in table.scan().plan_files()]


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _RowDelta(_FastAppendFiles):
    """Adds delete files, which PyIceberg can read but not write."""

    deletes: list[DataFile]

    def _manifests(self) -> list[ManifestFile]:
        spec = self._transaction.table_metadata.specs()[self.deletes[0].spec_id]
        output = self.new_manifest_output()
        with _DeletesWriter(spec, self.schema(), output, self._snapshot_id, "null") as writer:
            for file in self.deletes:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file
                )
                writer.add(entry)
        return [writer.to_manifest_file(), *self._existing_manifests()]


def commit_deletes(table: Table, deletes: Iterable[DataFile]) -> None:
    """Commit a row delta on the newest state of the table, as another engine does."""
    current = table.catalog.load_table(table.name())
    transaction = current.transaction()
    producer = _RowDelta(Operation.DELETE, transaction, current.io)
    producer.deletes = list(deletes)
    producer.commit()
    transaction.commit_transaction()


def position_delete(table: Table, data_file: DataFile, *positions: int, **changes: Any) -> DataFile:
    """Write a position delete of one data file into the table's data folder."""
    folder = local(table.metadata.location) / "data"
    path = folder / f"deletes-{len(list(folder.glob('deletes-*')))}.parquet"
    written = pa.table(
        {
            "file_path": pa.array([data_file.file_path] * len(positions), pa.string()),
            "pos": pa.array(positions, pa.int64()),
        }
    )
    pq.write_table(written, path)
    return delete_file(
        DataFileContent.POSITION_DELETES,
        data_file.spec_id,
        file_path=f"file://{path}",
        partition=data_file.partition,
        record_count=len(positions),
        file_size_in_bytes=path.stat().st_size,
        lower_bounds={PATH_FIELD_ID: data_file.file_path.encode()},
        upper_bounds={PATH_FIELD_ID: data_file.file_path.encode()},
        **changes,
    )


def delete_file(content: DataFileContent, spec_id: int, **fields: Any) -> DataFile:
    given = {
        "content": content,
        "file_path": "file:///deletes.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 1,
        "file_size_in_bytes": 1,
        **fields,
    }
    file = DataFile.from_args(**given)
    file.spec_id = spec_id
    return file
