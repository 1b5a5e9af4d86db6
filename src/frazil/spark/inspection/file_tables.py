"""The metadata tables that are made from manifests, as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from frazil.client.declare.client_table import Snapshot, Table
from frazil.datafiles.arrow.arrow_types import spark_arrow_schema
from frazil.spark.inspection.table_manifests import (
    FileEntry,
    ListedFile,
    TableManifests,
    partition_text,
)
from frazil.spark.schema.spark_types import NANOS, spark_type
from frazil.values import types
from frazil.values.single_value import InvalidValue, from_binary, to_json
from frazil.values.transforms import Transform, Void, parse_transform
from frazil.wire.errors import BadRequest

DATA_FILES: Final = frozenset({0})
DELETE_FILES: Final = frozenset({1, 2})
_ALL: Final = DATA_FILES | DELETE_FILES
_POSITION_DELETES: Final = 1
_WITHOUT_BOUNDS: Final = frozenset(
    {types.TypeId.VARIANT, types.TypeId.GEOMETRY, types.TypeId.GEOGRAPHY, types.TypeId.UNKNOWN}
)


_TYPES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "counts": pa.map_(pa.int32(), pa.field("value", pa.int64(), nullable=False)),
    "bounds": pa.map_(pa.int32(), pa.field("value", pa.binary(), nullable=False)),
    "texts": pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)),
    "ints": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    "longs": pa.list_(pa.field("element", pa.int64(), nullable=False)),
}


def columns(text: str) -> list[pa.Field]:
    """Return the columns of a text such as `id long!, parent long`; `!` marks required ones."""
    pairs = [column.split() for column in text.split(",")]
    return [
        pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!"))
        for name, kind in pairs
    ]


_FILE_BEGIN: Final = columns("content int, file_path string!, file_format string!, spec_id int")
_FILE_END: Final = columns(
    "record_count long!, file_size_in_bytes long!, column_sizes counts, value_counts counts, "
    "null_value_counts counts, nan_value_counts counts, lower_bounds bounds, upper_bounds bounds, "
    "key_metadata binary, split_offsets longs, equality_ids ints, sort_order_id int, "
    "first_row_id long, referenced_data_file string, content_offset long, "
    "content_size_in_bytes long"
)
_FILE_MAPS: Final = [field.name for field in _FILE_END if pa.types.is_map(field.type)]
_ENTRY: Final = columns(
    "status int!, snapshot_id long, sequence_number long, file_sequence_number long"
)
_PARTITION_COUNTS: Final = columns(
    "record_count long!, file_count int!, total_data_file_size_in_bytes long!, "
    "position_delete_record_count long!, position_delete_file_count int!, "
    "equality_delete_record_count long!, equality_delete_file_count int!"
)
_UPDATED: Final = columns("last_updated_at timestamp, last_updated_snapshot_id long")
_METRICS: Final = columns(
    "column_size long, value_count long, null_value_count long, nan_value_count long"
)
_SUMMARY: Final = columns(
    "contains_null boolean!, contains_nan boolean, lower_bound string, upper_bound string"
)
_SUMMARIES: Final = pa.list_(pa.field("element", pa.struct(_SUMMARY), nullable=False))
_MANIFEST: Final = columns(
    "content int!, path string!, length long!, partition_spec_id int!, added_snapshot_id long!, "
    "added_data_files_count int!, existing_data_files_count int!, deleted_data_files_count int!, "
    "added_delete_files_count int!, existing_delete_files_count int!, "
    "deleted_delete_files_count int!"
)
_OPTIONAL_IN_ALL: Final = frozenset(
    {"partition_spec_id", "added_snapshot_id"}
    | {f"{status}_data_files_count" for status in ("added", "existing", "deleted")}
)
"""Columns of `manifests` that are optional in `all_manifests`."""


@dataclass(frozen=True, slots=True)
class PartField:
    """A field of partition tuples."""

    field_id: int
    name: str
    transform: Transform
    type: types.Type


@dataclass(frozen=True)
class ShownTypes:
    """The types of one table."""

    table: Table

    @cached_property
    def columns(self) -> Mapping[int, types.SchemaField]:
        """The columns and nested fields of the schema."""
        return types.fields_by_id(self.table.schema)

    @cached_property
    def specs(self) -> Mapping[int, tuple[PartField, ...]]:
        """The fields of each partition spec."""
        return {
            int(spec["spec-id"]): tuple(self._part(part) for part in spec["fields"])
            for spec in self.table.metadata["partition-specs"]
        }

    @cached_property
    def partition(self) -> tuple[PartField, ...]:
        """The partition fields of all specs, like Java's `Partitioning.partitionType`.

        Fields of dropped columns are left out. Names are the newest ones.
        """
        united: dict[int, PartField] = {}
        for spec_id in sorted(self.specs, reverse=True):
            for part in self.specs[spec_id]:
                known = united.get(part.field_id)
                if known is None:
                    united[part.field_id] = part
                elif isinstance(known.transform, Void):
                    # A table of version 1 keeps dropped fields, whose values are null since.
                    united[part.field_id] = PartField(
                        part.field_id, known.name, part.transform, part.type
                    )
        return tuple(
            united[field_id]
            for field_id in sorted(united)
            if united[field_id].type.type_id is not types.TypeId.UNKNOWN
        )

    @cached_property
    def partition_type(self) -> pa.DataType:
        return pa.struct([pa.field(part.name, arrow_type(part.type)) for part in self.partition])

    def partition_row(self, values: Mapping[int, Any]) -> dict[str, Any]:
        """Return a partition's row from its internal values by field id."""
        return {part.name: shown(part.type, values.get(part.field_id)) for part in self.partition}

    @cached_property
    def leaves(self) -> tuple[types.SchemaField, ...]:
        """The columns that have readable metrics, by their names."""
        leaves = (
            column
            for column in self.columns.values()
            if column.field.type.is_primitive and column.field.type.type_id not in _WITHOUT_BOUNDS
        )
        return tuple(sorted(leaves, key=lambda column: column.name))

    def _part(self, part: Mapping[str, Any]) -> PartField:
        source_id = part.get("source-id")
        if source_id is None:
            source_id = part["source-ids"][0]
        transform = parse_transform(part["transform"])
        source = self.columns.get(source_id)
        type_ = types.UNKNOWN if source is None else transform.result_type(source.field.type)
        return PartField(int(part["field-id"]), part["name"], transform, type_)


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
                **{field.name: getattr(entry, field.name) for field in _ENTRY},
                "data_file": self._file(entry),
                "readable_metrics": self._metrics(entry),
            }
            for entry in self.manifests.entries(listed)
        ]
        data_file = pa.field("data_file", pa.struct(self._file_fields), nullable=False)
        return pa.Table.from_pylist(rows, pa.schema([*_ENTRY, data_file, self._metrics_field]))

    def entries_of(
        self, listed: Iterable[ListedFile], contents: frozenset[int] = _ALL
    ) -> Iterable[FileEntry]:
        """Return the entries of files of some kinds."""
        wanted = [item for item in listed if item.is_data in {kind == 0 for kind in contents}]
        return self.manifests.entries(wanted)

    @cached_property
    def _file_fields(self) -> list[pa.Field]:
        return [*_FILE_BEGIN, *self.partition_fields, *_FILE_END]

    @property
    def partition_fields(self) -> list[pa.Field]:
        """Return the column of the partition, which an unpartitioned table does not have."""
        if not self.types.partition:
            return []
        return [pa.field("partition", self.types.partition_type, nullable=False)]

    def _file(self, entry: FileEntry) -> dict[str, Any]:
        file: Any = entry.file
        row: dict[str, Any] = {
            field.name: getattr(file, field.name, None) for field in self._file_fields
        }
        row |= {name: None if row[name] is None else list(row[name].items()) for name in _FILE_MAPS}
        return row | {
            "file_format": file.file_format.upper(),
            "spec_id": entry.spec_id,
            "partition": self.types.partition_row(entry.partition),
            "first_row_id": entry.first_row_id,
        }

    # --- readable metrics -------------------------------------------------------------------------

    @cached_property
    def _metrics_field(self) -> pa.Field:
        metrics = [pa.field(leaf.name, _metrics_type(leaf)) for leaf in self.types.leaves]
        return pa.field("readable_metrics", pa.struct(metrics))

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
            counts = zip(_PARTITION_COUNTS, sums.counts, strict=True)
            row = {
                "partition": self.types.partition_row(sums.first.partition),
                "spec_id": sums.spec_id,
                **{field.name: count for field, count in counts},
                "last_updated_at": sums.updated_ms and sums.updated_ms * 1000,
                "last_updated_snapshot_id": sums.snapshot_id,
            }
            rows.append(row)
        spec_id = columns("spec_id int!") if self.types.partition else []
        fields = [*self.partition_fields, *spec_id, *_PARTITION_COUNTS, *_UPDATED]
        return pa.Table.from_pylist(rows, pa.schema(fields))

    # --- manifests --------------------------------------------------------------------------------

    def listed_manifests(self, listed: Sequence[ListedFile]) -> pa.Table:
        """Return the manifests of one snapshot."""
        rows = [self._manifest(item) for item in listed]
        summaries = pa.field("partition_summaries", _SUMMARIES, nullable=False)
        return pa.Table.from_pylist(rows, pa.schema([*_MANIFEST, summaries]))

    def all_manifests(self, lists: Iterable[tuple[Snapshot, Sequence[ListedFile]]]) -> pa.Table:
        """Return the manifests of each snapshot."""
        rows = [
            {**self._manifest(item), "reference_snapshot_id": snapshot.snapshot_id}
            for snapshot, listed in lists
            for item in listed
        ]
        fields = [
            *(field.with_nullable(field.name in _OPTIONAL_IN_ALL) for field in _MANIFEST),
            pa.field("partition_summaries", _SUMMARIES),
            *columns("reference_snapshot_id long!, key_metadata binary"),
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
                if bound is not None and part.type.type_id is not types.TypeId.UNKNOWN:
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


def _metrics_type(leaf: types.SchemaField) -> pa.DataType:
    bound = arrow_type(leaf.field.type)
    return pa.struct([*_METRICS, pa.field("lower_bound", bound), pa.field("upper_bound", bound)])


def _leaf_metrics(leaf: types.SchemaField, file: Any) -> dict[str, Any]:
    field_id, type_ = leaf.field.field_id, leaf.field.type

    def metric(name: str) -> Any:
        values = getattr(file, name)
        return None if values is None else values.get(field_id)

    return {
        **{count.name: metric(f"{count.name}s") for count in _METRICS},
        "lower_bound": shown_bound(type_, metric("lower_bounds")),
        "upper_bound": shown_bound(type_, metric("upper_bounds")),
    }


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


# --- types and values -----------------------------------------------------------------------------


def arrow_type(type_: types.Type) -> pa.DataType:
    """Return the Arrow type for Spark; text for types that this Spark does not have."""
    kind = type_ if _is_spark_type(type_) else types.STRING
    return (
        spark_arrow_schema(types.StructType((types.NestedField(1, "value", kind, False),)))
        .field(0)
        .type
    )


def shown(type_: types.Type, value: Any) -> Any:
    """Return an internal value as pyarrow takes it for `arrow_type`."""
    if value is None:
        return None
    if type_.type_id in NANOS:
        return value // 1000
    if isinstance(value, UUID):
        return str(value)
    return value if _is_spark_type(type_) else str(to_json(type_, value))


def shown_bound(type_: types.Type, bound: bytes | None) -> Any:
    """Return a lower or upper bound; None if it cannot be decoded."""
    try:
        return None if bound is None else shown(type_, from_binary(type_, bound))
    except InvalidValue:
        return None


def _is_spark_type(type_: types.Type) -> bool:
    try:
        spark_type(type_)
    except BadRequest:
        return False
    return True
