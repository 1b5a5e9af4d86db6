"""Builds small real tables on local files: stock PyIceberg writes, and Frazil's engine commits.

PyIceberg builds data files, manifests and snapshots as usual. Only its catalog is replaced, by
one that passes the commit to the test. So two writers can start from one base, and the test
decides when each commit arrives.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import fastavro
import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import (
    CommitTableRequest,
    CommitTableResponse,
    Namespace,
    Table,
    TableIdentifier,
)
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import update_table_metadata
from pyiceberg.types import LongType, NestedField, StringType

from frazil.commit.snapshot.rebase import NotRebasable, RebasedAppend, rebase_append
from frazil.format.manifest.manifest_list import manifest_list_schema
from frazil.format.metadata.snapshots import Snapshot, parse_snapshot
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_metadata_json import encode_table_metadata
from frazil.read.manifest_cache import ManifestCache
from frazil.store.local_store import LocalStore
from frazil.store.object_store import Store
from frazil.wire.rest_updates import AddSnapshot, TableUpdate
from tests.support.tables import apply_updates

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
_UPDATES = msgspec.json.Decoder(tuple[TableUpdate, ...])


def rows(*ids: int) -> pa.Table:
    """Build rows of the default schema."""
    names = [f"name-{number}" for number in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())})


@dataclass(frozen=True)
class Commit:
    """The request of a client and its snapshot."""

    updates: tuple[TableUpdate, ...]

    @property
    def snapshot(self) -> Snapshot:
        (added,) = (update for update in self.updates if isinstance(update, AddSnapshot))
        return parse_snapshot(added.snapshot)

    def with_snapshot(self, raw: bytes) -> Commit:
        """Return the commit with another snapshot."""
        return Commit(
            tuple(
                AddSnapshot(msgspec.Raw(raw)) if isinstance(update, AddSnapshot) else update
                for update in self.updates
            )
        )


@dataclass
class Tree:
    """A table with its current metadata; each commit is one call."""

    metadata: TableMetadata
    store: Store = field(default_factory=LocalStore)
    read: list[str] = field(default_factory=list)
    """The locations that rebases have read."""
    cache: ManifestCache | None = None

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        format_version: int = 2,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
    ) -> Tree:
        for name in ("data", "metadata"):
            (folder / name).mkdir(parents=True)
        metadata = new_table(
            schema=SCHEMA.model_dump_json().encode(),
            spec=spec.model_dump_json().encode(),
            order=None,
            location=folder.as_uri(),
            properties={"format-version": str(format_version), **(properties or {})},
            uuid=str(uuid4()),
            now_ms=now_ms(),
        )
        return cls(metadata)

    def table(self) -> Table:
        """Load the current metadata with stock PyIceberg."""
        return _table(self.metadata, NoopCatalog("tree"))

    def build(self, *writes: Callable[[Table], Any]) -> Commit:
        """Return the request of PyIceberg for these writes, without committing it."""
        catalog = _Capture()
        table = _table(self.metadata, catalog)
        for write in writes:
            write(table)
        (updates,) = catalog.commits
        return Commit(updates)

    def append(self, *ids: int) -> Commit:
        return self.build(lambda table: table.append(rows(*ids)))

    def apply(self, commit: Commit) -> None:
        self.metadata = apply_updates(self.metadata, commit.updates, now_ms=now_ms())

    def rebase(self, commit: Commit, branch: str = "main") -> RebasedAppend | NotRebasable:
        return rebase_append(
            self.metadata,
            commit.snapshot,
            branch,
            self.store,
            self.read.append,
            self.cache or ManifestCache(),
        )

    def land(self, commit: Commit, branch: str = "main") -> RebasedAppend:
        """Rebase a stale commit, write its files and commit it."""
        rebased = self.rebase(commit, branch)
        assert isinstance(rebased, RebasedAppend), rebased
        for location, content in rebased.files:
            self.store.put_new(location, [content])
        self.apply(commit.with_snapshot(rebased.snapshot))
        return rebased

    def ids(self, branch: str = "main") -> list[int]:
        """Return the sorted ids that PyIceberg reads, with duplicates."""
        snapshot_id = self.metadata.refs[branch].snapshot_id
        found = self.table().scan(snapshot_id=snapshot_id).to_arrow()
        return cast("list[int]", sorted(found["id"].to_pylist()))

    @property
    def head(self) -> Snapshot:
        found = self.metadata.snapshot(self.metadata.refs["main"].snapshot_id)
        assert found is not None
        return found


class _Capture(NoopCatalog):
    """A catalog that records the commits of a client."""

    def __init__(self) -> None:
        super().__init__("capture")
        self.commits: list[tuple[TableUpdate, ...]] = []

    def commit_table(
        self, table: Table, requirements: Sequence[Any], updates: Sequence[Any]
    ) -> CommitTableResponse:
        request = CommitTableRequest(
            identifier=TableIdentifier(namespace=Namespace(["tests"]), name="tree"),
            requirements=tuple(requirements),
            updates=tuple(updates),
        )
        body = msgspec.json.decode(request.model_dump_json().encode(), type=dict[str, msgspec.Raw])
        self.commits.append(_UPDATES.decode(body["updates"]))
        metadata = update_table_metadata(table.metadata, tuple(updates))
        answer = {"metadata": metadata, "metadata-location": table.metadata_location}
        return CommitTableResponse.model_validate(answer)


def _table(metadata: TableMetadata, catalog: Catalog) -> Table:
    parsed = TableMetadataUtil.parse_raw(b"".join(encode_table_metadata(metadata)).decode())
    location = f"{metadata.location}/metadata/head.metadata.json"
    return Table(("tests", "tree"), parsed, location, PyArrowFileIO(), catalog)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- trees by hand, for what PyIceberg does not write -----------------------------------------


def entry_schema(
    format_version: int, partition: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the Avro schema of a manifest with only one map of metrics."""
    nullable = {"default": None}
    numbers = [
        {"name": "sequence_number", "type": ["null", "long"], **nullable, "field-id": 3},
        {"name": "file_sequence_number", "type": ["null", "long"], **nullable, "field-id": 4},
    ]
    snapshot_id: Any = "long" if format_version == 1 else ["null", "long"]
    counts = {
        "type": "array",
        "logicalType": "map",
        "items": {
            "type": "record",
            "name": "k119_v120",
            "fields": [
                {"name": "key", "type": "int", "field-id": 119},
                {"name": "value", "type": "long", "field-id": 120},
            ],
        },
    }
    file_fields: list[dict[str, Any]] = [
        *([] if format_version == 1 else [{"name": "content", "type": "int", "field-id": 134}]),
        {"name": "file_path", "type": "string", "field-id": 100},
        {"name": "file_format", "type": "string", "field-id": 101},
        {
            "name": "partition",
            "type": {"type": "record", "name": "r102", "fields": list(partition)},
            "field-id": 102,
        },
        {"name": "record_count", "type": "long", "field-id": 103},
        {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
        {"name": "value_counts", "type": ["null", counts], **nullable, "field-id": 109},
    ]
    if format_version > 2:
        file_fields.append(
            {"name": "first_row_id", "type": ["null", "long"], **nullable, "field-id": 142}
        )
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            {"name": "status", "type": "int", "field-id": 0},
            {"name": "snapshot_id", "type": snapshot_id, "field-id": 1},
            *([] if format_version == 1 else numbers),
            {
                "name": "data_file",
                "type": {"type": "record", "name": "r2", "fields": file_fields},
                "field-id": 2,
            },
        ],
    }


def entry(path: str, record_count: int = 1, **values: Any) -> dict[str, Any]:
    """Return a manifest entry with an ADDED file; keyword arguments replace its fields."""
    file = {
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {},
        "record_count": record_count,
        "file_size_in_bytes": 100,
        "value_counts": [{"key": 1, "value": record_count}],
        "first_row_id": None,
    }
    own: dict[str, Any] = {
        "status": 1,
        "snapshot_id": None,
        "sequence_number": None,
        "file_sequence_number": None,
    }
    for name, value in values.items():
        (own if name in own else file)[name] = value
    return {**own, "data_file": file}


def manifest_bytes(
    entries: Sequence[Mapping[str, Any]],
    format_version: int,
    *,
    partition: Sequence[Mapping[str, Any]] = (),
    codec: str = "deflate",
) -> bytes:
    header = {"format-version": str(format_version), "content": "data", "partition-spec-id": "0"}
    return avro_bytes(entry_schema(format_version, partition), entries, header, codec)


def listed(path: str, snapshot_id: int, **values: Any) -> dict[str, Any]:
    """Return a manifest list record with one added file of one row, for any version."""
    return {
        "manifest_path": path,
        "manifest_length": 1,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": 0,
        "min_sequence_number": 0,
        "added_snapshot_id": snapshot_id,
        "added_files_count": 1,
        "existing_files_count": 0,
        "deleted_files_count": 0,
        "added_rows_count": 1,
        "existing_rows_count": 0,
        "deleted_rows_count": 0,
        "partitions": None,
        "key_metadata": None,
        "first_row_id": None,
        **values,
    }


def list_bytes(
    records: Sequence[Mapping[str, Any]], format_version: int, codec: str = "deflate"
) -> bytes:
    header = {"format-version": str(format_version)}
    return avro_bytes(manifest_list_schema(format_version).tree, records, header, codec)


def avro_bytes(
    schema: Any, records: Sequence[Any], header: Mapping[str, str], codec: str = "deflate"
) -> bytes:
    """Write an Avro file with fastavro."""
    out = io.BytesIO()
    fastavro.writer(
        out, json.loads(json.dumps(schema)), records, codec=codec, metadata=dict(header)
    )
    return out.getvalue()


def avro_records(content: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(content)))
