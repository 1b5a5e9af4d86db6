"""The metadata tables that are made from manifests, as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from frazil.client.declare.client_table import Snapshot
from frazil.spark.inspection.shown_types import ShownTypes, arrow_type, shown_bound
from frazil.spark.inspection.table_manifests import (
    FileEntry,
    ListedFile,
    TableManifests,
    partition_text,
)
from frazil.values.single_value import from_binary
from frazil.values.types import SchemaField, TypeId

DATA_FILES: Final = frozenset({0})
DELETE_FILES: Final = frozenset({1, 2})
_ALL: Final = DATA_FILES | DELETE_FILES
_POSITION_DELETES: Final = 1
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def _map(value: pa.DataType) -> pa.DataType:
    return pa.map_(pa.int32(), pa.field("value", value, nullable=False))


def _list(value: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", value, nullable=False))


_COUNTS: Final = _map(pa.int64())
_BOUNDS: Final = _map(pa.binary())
_FILE_MAPS: Final = {
    "column_sizes": _COUNTS,
    "value_counts": _COUNTS,
    "null_value_counts": _COUNTS,
    "nan_value_counts": _COUNTS,
    "lower_bounds": _BOUNDS,
    "upper_bounds": _BOUNDS,
}
_FILE_REST: Final = {
    "key_metadata": pa.binary(),
    "split_offsets": _list(pa.int64()),
    "equality_ids": _list(pa.int32()),
    "sort_order_id": pa.int32(),
}
_FILE_REFERENCES: Final = {
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}


@dataclass(frozen=True)
class FileTables:
    """Builds the tables of one table of the catalog."""

    manifests: TableManifests
    types: ShownTypes

    # --- files and entries ------------------------------------------------------------------------

    def files(self, listed: Iterable[ListedFile], contents: frozenset[int] = _ALL) -> pa.Table:
        """Return the live files of the manifests."""
        rows = [
            {**self._file(entry), "readable_metrics": self._metrics(entry)}
            for entry in self.entries_of(listed, contents)
            if entry.is_live
        ]
        return pa.Table.from_pylist(rows, pa.schema([*self._file_fields, self._metrics_field]))

    def entries(self, listed: Iterable[ListedFile]) -> pa.Table:
        """Return all entries of the manifests."""
        rows = [
            {
                "status": entry.status,
                "snapshot_id": entry.snapshot_id,
                "sequence_number": entry.sequence_number,
                "file_sequence_number": entry.file_sequence_number,
                "data_file": self._file(entry),
                "readable_metrics": self._metrics(entry),
            }
            for entry in self.manifests.entries(listed)
        ]
        schema = pa.schema(
            [
                pa.field("status", pa.int32(), nullable=False),
                pa.field("snapshot_id", pa.int64()),
                pa.field("sequence_number", pa.int64()),
                pa.field("file_sequence_number", pa.int64()),
                pa.field("data_file", pa.struct(self._file_fields), nullable=False),
                self._metrics_field,
            ]
        )
        return pa.Table.from_pylist(rows, schema)

    def entries_of(
        self, listed: Iterable[ListedFile], contents: frozenset[int] = _ALL
    ) -> Iterable[FileEntry]:
        """Return the entries of files of some kinds."""
        wanted = [item for item in listed if item.is_data in {kind == 0 for kind in contents}]
        return self.manifests.entries(wanted)

    @property
    def _file_fields(self) -> list[pa.Field]:
        return [
            pa.field("content", pa.int32()),
            pa.field("file_path", pa.string(), nullable=False),
            pa.field("file_format", pa.string(), nullable=False),
            pa.field("spec_id", pa.int32()),
            *self.partition_fields,
            pa.field("record_count", pa.int64(), nullable=False),
            pa.field("file_size_in_bytes", pa.int64(), nullable=False),
            *(pa.field(name, type_) for name, type_ in {**_FILE_MAPS, **_FILE_REST}.items()),
            pa.field("first_row_id", pa.int64()),
            *(pa.field(name, type_) for name, type_ in _FILE_REFERENCES.items()),
        ]

    @property
    def partition_fields(self) -> list[pa.Field]:
        """Return the column of the partition, which an unpartitioned table does not have."""
        if not self.types.partition:
            return []
        return [pa.field("partition", self.types.partition_type, nullable=False)]

    def _file(self, entry: FileEntry) -> dict[str, Any]:
        file: Any = entry.file
        maps = {name: getattr(file, name) for name in _FILE_MAPS}
        return {
            "content": file.content,
            "file_path": file.file_path,
            "file_format": file.file_format.upper(),
            "spec_id": entry.spec_id,
            "partition": self.types.partition_row(entry.partition),
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_in_bytes,
            **{name: None if map_ is None else list(map_.items()) for name, map_ in maps.items()},
            **{name: getattr(file, name, None) for name in (*_FILE_REST, *_FILE_REFERENCES)},
            "first_row_id": entry.first_row_id,
        }

    # --- readable metrics -------------------------------------------------------------------------

    @property
    def _metrics_field(self) -> pa.Field:
        columns = [pa.field(leaf.name, _metrics_type(leaf)) for leaf in self.types.leaves]
        return pa.field("readable_metrics", pa.struct(columns))

    def _metrics(self, entry: FileEntry) -> dict[str, Any]:
        return {leaf.name: _leaf_metrics(leaf, entry.file) for leaf in self.types.leaves}

    # --- partitions -------------------------------------------------------------------------------

    def partitions(
        self, listed: Iterable[ListedFile], snapshots: Mapping[int, Snapshot]
    ) -> pa.Table:
        """Return the sums of the live files by partition, like Java's `PartitionsTable`."""
        groups: dict[tuple[Any, ...], _PartitionSums] = {}
        for entry in self.manifests.entries(listed):
            if entry.is_live:
                key = tuple(entry.partition.get(part.field_id) for part in self.types.partition)
                sums = groups.setdefault(key, _PartitionSums(entry))
                sums.add(entry, snapshots.get(entry.snapshot_id or 0))
        rows = []
        for sums in groups.values():
            counts = dict(zip(_PARTITION_COUNTS, sums.counts, strict=True))
            row = {
                "partition": self.types.partition_row(sums.first.partition),
                "spec_id": sums.spec_id,
                **counts,
                "last_updated_at": sums.updated_ms and sums.updated_ms * 1000,
                "last_updated_snapshot_id": sums.snapshot_id,
            }
            rows.append(row)
        fields = [
            *self.partition_fields,
            *([pa.field("spec_id", pa.int32(), nullable=False)] if self.types.partition else []),
            *(
                pa.field(name, pa.int32() if "file_count" in name else pa.int64(), nullable=False)
                for name in _PARTITION_COUNTS
            ),
            pa.field("last_updated_at", _TIMESTAMP),
            pa.field("last_updated_snapshot_id", pa.int64()),
        ]
        return pa.Table.from_pylist(rows, pa.schema(fields))

    # --- manifests --------------------------------------------------------------------------------

    def listed_manifests(self, listed: Sequence[ListedFile]) -> pa.Table:
        """Return the manifests of one snapshot."""
        rows = [self._manifest(item) for item in listed]
        return pa.Table.from_pylist(rows, pa.schema(_manifest_fields(required=True)))

    def all_manifests(self, lists: Iterable[tuple[Snapshot, Sequence[ListedFile]]]) -> pa.Table:
        """Return the manifests of each snapshot."""
        rows = [
            {**self._manifest(item), "reference_snapshot_id": snapshot.snapshot_id}
            for snapshot, listed in lists
            for item in listed
        ]
        fields = [
            *_manifest_fields(required=False),
            pa.field("reference_snapshot_id", pa.int64(), nullable=False),
            pa.field("key_metadata", pa.binary()),
        ]
        return pa.Table.from_pylist(rows, pa.schema(fields))

    def _manifest(self, item: ListedFile) -> dict[str, Any]:
        manifest, counts = item.manifest, {}
        for status in ("added", "existing", "deleted"):
            count = getattr(manifest, f"{status}_files_count") or 0
            counts[f"{status}_data_files_count"] = count if item.is_data else 0
            counts[f"{status}_delete_files_count"] = 0 if item.is_data else count
        return {
            "content": manifest.content,
            "path": manifest.manifest_path,
            "length": manifest.manifest_length,
            "partition_spec_id": manifest.partition_spec_id,
            "added_snapshot_id": manifest.added_snapshot_id,
            **counts,
            "partition_summaries": self._summaries(item),
        }

    def _summaries(self, item: ListedFile) -> list[dict[str, Any]]:
        parts = self.types.specs.get(item.manifest.partition_spec_id, ())
        summaries = []
        for part, summary in zip(parts, item.partitions, strict=False):
            bounds = {}
            for name in ("lower_bound", "upper_bound"):
                bound = getattr(summary, name)
                if bound is not None and part.type.type_id is not TypeId.UNKNOWN:
                    bound = from_binary(part.type, bound)
                bounds[name] = partition_text(part.transform, part.type, bound)
            summaries.append(
                {
                    "contains_null": summary.contains_null,
                    "contains_nan": summary.contains_nan,
                    **bounds,
                }
            )
        return summaries


# --- parts of rows --------------------------------------------------------------------------------


def _metrics_type(leaf: SchemaField) -> pa.DataType:
    bound = arrow_type(leaf.field.type)
    counts = ("column_size", "value_count", "null_value_count", "nan_value_count")
    return pa.struct(
        [
            *(pa.field(name, pa.int64()) for name in counts),
            pa.field("lower_bound", bound),
            pa.field("upper_bound", bound),
        ]
    )


def _leaf_metrics(leaf: SchemaField, file: Any) -> dict[str, Any]:
    field_id, type_ = leaf.field.field_id, leaf.field.type

    def metric(name: str) -> Any:
        values = getattr(file, name)
        return None if values is None else values.get(field_id)

    return {
        "column_size": metric("column_sizes"),
        "value_count": metric("value_counts"),
        "null_value_count": metric("null_value_counts"),
        "nan_value_count": metric("nan_value_counts"),
        "lower_bound": shown_bound(type_, metric("lower_bounds")),
        "upper_bound": shown_bound(type_, metric("upper_bounds")),
    }


_PARTITION_COUNTS: Final = (
    "record_count",
    "file_count",
    "total_data_file_size_in_bytes",
    "position_delete_record_count",
    "position_delete_file_count",
    "equality_delete_record_count",
    "equality_delete_file_count",
)


@dataclass
class _PartitionSums:
    first: FileEntry
    counts: list[int] = field(default_factory=lambda: [0] * len(_PARTITION_COUNTS))
    spec_id: int = 0
    updated_ms: int | None = None
    snapshot_id: int | None = None

    def add(self, entry: FileEntry, snapshot: Snapshot | None) -> None:
        file: Any = entry.file
        if snapshot is not None and (
            self.updated_ms is None or snapshot.timestamp_ms > self.updated_ms
        ):
            self.updated_ms, self.snapshot_id = snapshot.timestamp_ms, snapshot.snapshot_id
            self.spec_id = entry.spec_id
        added = [file.record_count, 1]
        at = 3 if file.content == _POSITION_DELETES else 5
        if file.content in DATA_FILES:
            added.append(file.file_size_in_bytes)
            at = 0
        for offset, value in enumerate(added):
            self.counts[at + offset] += value


def _manifest_fields(*, required: bool) -> list[pa.Field]:
    summary = pa.struct(
        [
            pa.field("contains_null", pa.bool_(), nullable=False),
            pa.field("contains_nan", pa.bool_()),
            pa.field("lower_bound", pa.string()),
            pa.field("upper_bound", pa.string()),
        ]
    )
    return [
        pa.field("content", pa.int32(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("partition_spec_id", pa.int32(), nullable=not required),
        pa.field("added_snapshot_id", pa.int64(), nullable=not required),
        *(
            pa.field(f"{status}_data_files_count", pa.int32(), nullable=not required)
            for status in ("added", "existing", "deleted")
        ),
        *(
            pa.field(f"{status}_delete_files_count", pa.int32(), nullable=False)
            for status in ("added", "existing", "deleted")
        ),
        pa.field("partition_summaries", _list(summary), nullable=not required),
    ]
