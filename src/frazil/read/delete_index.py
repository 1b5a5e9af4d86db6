"""Finds the delete files that apply to a data file, like Java's DeleteFileIndex (spec, "Scan
Planning").

equality deletes   with a later sequence number; in an unpartitioned spec for every data file,
                   otherwise for those in the same spec and partition
position deletes   with the same or a later sequence number; for the data file that they refer to,
                   otherwise for those in the same spec and partition
deletion vector    for the data file that it refers to; then no position delete applies to it
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.metadata.content_files import FileMetrics
from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.filters import comparable_partition, partitions_of
from frazil.read.manifest_row import ManifestRow
from frazil.values.single_value import InvalidValue, from_binary
from frazil.values.types import NestedField, TypeId


class TwoDeletionVectors(Exception):
    """A data file has two deletion vectors, so its deleted rows are undefined."""


MetricsOfEntry: TypeAlias = Callable[[ManifestRow], FileMetrics]


@dataclass(frozen=True, slots=True)
class IndexedDataFile:
    """The properties of a data file that decide which deletes apply to it."""

    path: str
    spec_id: int
    partition: tuple[Any, ...]
    """In the order of the spec's fields."""
    sequence_number: int
    metrics: Callable[[], FileMetrics] | None = None
    """Used to exclude equality deletes whose values cannot occur in the file. None excludes
    nothing."""


class _Group:
    """Delete files of one kind, spec and partition, by sequence number."""

    __slots__ = ("_entries", "_numbers")

    def __init__(self, entries: Iterable[ManifestRow]) -> None:
        self._entries = sorted(entries, key=lambda entry: entry.sequence_number)
        self._numbers = [entry.sequence_number for entry in self._entries]

    def since(self, sequence_number: int) -> Sequence[ManifestRow]:
        """Return the delete files with this sequence number or a later one."""
        return self._entries[bisect_left(self._numbers, sequence_number) :]


_PartitionKey: TypeAlias = tuple[int, tuple[Any, ...]]
_NO_GROUP: Final = _Group(())


class DeleteIndex:
    """Finds delete files for data files. Duplicate entries are ignored."""

    def __init__(
        self,
        entries: Iterable[ManifestRow],
        metadata: TableMetadata,
        *,
        metrics_of: MetricsOfEntry | None = None,
        allow_replaced_vectors: bool = False,
    ) -> None:
        """Index delete files. With `allow_replaced_vectors` the entries come from several
        snapshots, where a later deletion vector may have replaced an earlier one. Otherwise
        two vectors of one file are refused."""
        self._specs = {spec.spec_id: spec for spec in metadata.partition_specs}
        self._metrics_of = metrics_of
        self._equality_metrics: dict[int, FileMetrics] = {}
        self._fields = _fields_by_id(metadata)
        distinct = {entry.identity: entry for entry in entries}
        self.entries: Sequence[ManifestRow] = tuple(distinct.values())

        everywhere: list[ManifestRow] = []
        equality: dict[_PartitionKey, list[ManifestRow]] = {}
        position: dict[_PartitionKey, list[ManifestRow]] = {}
        by_path: dict[str, list[ManifestRow]] = {}
        self._vectors: dict[str, list[ManifestRow]] = {}
        keys = _PartitionKeys(self._specs)
        for entry in self.entries:
            referenced = entry.referenced_data_file
            if entry.is_equality_delete:
                if self._is_unpartitioned(entry.spec_id):
                    everywhere.append(entry)
                else:
                    equality.setdefault(keys.of(entry), []).append(entry)
            elif referenced is None:
                position.setdefault(keys.of(entry), []).append(entry)
            elif entry.is_deletion_vector:
                self._add_vector(referenced, entry, allow_replaced_vectors)
            else:
                by_path.setdefault(referenced, []).append(entry)
        self._everywhere = _Group(everywhere)
        self._equality = {key: _Group(entries) for key, entries in equality.items()}
        self._position = {key: _Group(entries) for key, entries in position.items()}
        self._by_path = {path: _Group(entries) for path, entries in by_path.items()}
        self.needs_partitions = bool(everywhere or equality or position)
        """Whether the path of a data file is not sufficient to find its deletes."""

    @property
    def is_empty(self) -> bool:
        return not self.entries

    def for_path(self, path: str, sequence_number: int) -> Iterator[ManifestRow]:
        """Return the deletes that refer to this data file. A vector replaces all others."""
        vectors = [
            entry
            for entry in self._vectors.get(path, ())
            if entry.sequence_number >= sequence_number
        ]
        if vectors:
            return iter(vectors)
        return iter(self._by_path.get(path, _NO_GROUP).since(sequence_number))

    def for_data_file(self, file: IndexedDataFile) -> list[ManifestRow]:
        """Return all deletes that may apply to a data file."""
        key = file.spec_id, comparable_partition(file.partition)
        number = file.sequence_number
        equality = chain(
            self._everywhere.since(number + 1),
            self._equality.get(key, _NO_GROUP).since(number + 1),
        )
        deletes = [entry for entry in equality if self._may_hold_equal_rows(entry, file)]
        referring = list(self.for_path(file.path, number))
        deletes += referring
        if not any(entry.is_deletion_vector for entry in referring):
            deletes += self._position.get(key, _NO_GROUP).since(number)
        return deletes

    def _add_vector(self, referenced: str, entry: ManifestRow, allow_replaced: bool) -> None:
        vectors = self._vectors.setdefault(referenced, [])
        if vectors and not allow_replaced:
            raise TwoDeletionVectors(
                f"Can't index multiple DVs for {referenced}: {entry.file_path} and "
                f"{vectors[0].file_path}"
            )
        vectors.append(entry)

    def _is_unpartitioned(self, spec_id: int) -> bool:
        spec = self._specs.get(spec_id)
        return spec is None or spec.is_unpartitioned

    def _may_hold_equal_rows(self, entry: ManifestRow, file: IndexedDataFile) -> bool:
        if self._metrics_of is None or file.metrics is None:
            return True
        deletes = self._equality_metrics.get(id(entry))
        if deletes is None:
            deletes = self._equality_metrics[id(entry)] = self._metrics_of(entry)
        data = file.metrics()
        return all(
            _may_share_value(self._fields.get(field_id), data, deletes)
            for field_id in entry.equality_ids
        )


class _PartitionKeys:
    """The (spec id, partition) keys of entries. The partitions of a manifest are ordered once."""

    def __init__(self, specs: Mapping[int, PartitionSpec]) -> None:
        self._specs = specs
        self._known: dict[int, tuple[ManifestColumns, list[tuple[Any, ...]]]] = {}

    def of(self, entry: ManifestRow) -> _PartitionKey:
        known = self._known.get(id(entry.columns))
        if known is None:
            spec = self._specs.get(entry.spec_id)
            columns = entry.columns
            ordered = partitions_of(columns, spec)
            known = columns, [comparable_partition(partition) for partition in ordered]
            self._known[id(entry.columns)] = known
        return entry.spec_id, known[1][int(entry.columns.partition[entry.row])]


# --- the values of equality deletes ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _EqualityField:
    field: NestedField
    required: bool
    """Whether the field and all structs around it are required."""


def _fields_by_id(metadata: TableMetadata) -> dict[int, _EqualityField]:
    """Return the columns of all schemas, because an equality delete may name a dropped column."""
    by_id: dict[int, _EqualityField] = {}
    for schema in (*metadata.schemas, metadata.current_schema):
        for field_id, own in schema.fields_by_id.items():
            required = own.required and field_id not in schema.parent_ids
            by_id[field_id] = _EqualityField(own, required)
    return by_id


def _may_share_value(
    equality_field: _EqualityField | None, data: FileMetrics, deletes: FileMetrics
) -> bool:
    """Return whether both files may have a row with the same value (Java's
    canContainEqDeletesForFile)."""
    if equality_field is None or not equality_field.field.type.is_primitive:
        return True
    field_id, required = equality_field.field.field_id, equality_field.required
    if not required:
        if _may_hold_null(data, field_id) and _may_hold_null(deletes, field_id):
            return True
        if _only_nulls(data, field_id) and not _may_hold_null(deletes, field_id):
            return False
        if _only_nulls(deletes, field_id) and not _may_hold_null(data, field_id):
            return False
    return _ranges_overlap(equality_field.field, data, deletes)


def _may_hold_null(file: FileMetrics, field_id: int) -> bool:
    nulls = (file.null_value_counts or {}).get(field_id)
    return nulls is None or nulls > 0


def _only_nulls(file: FileMetrics, field_id: int) -> bool:
    nulls = (file.null_value_counts or {}).get(field_id)
    return nulls is not None and nulls == (file.value_counts or {}).get(field_id)


def _ranges_overlap(own: NestedField, data: FileMetrics, deletes: FileMetrics) -> bool:
    # Writers disagree on the order of UUIDs, and a NaN equals a NaN without being in a range.
    if own.type.type_id in (TypeId.UUID, TypeId.FLOAT, TypeId.DOUBLE):
        return True
    data_lower, data_upper = _bounds(own, data)
    delete_lower, delete_upper = _bounds(own, deletes)
    if None in (data_lower, data_upper, delete_lower, delete_upper):
        return True
    return bool(data_lower <= delete_upper and delete_lower <= data_upper)


def _bounds(own: NestedField, file: FileMetrics) -> tuple[Any, Any]:
    return (
        _bound(own, (file.lower_bounds or {}).get(own.field_id)),
        _bound(own, (file.upper_bounds or {}).get(own.field_id)),
    )


def _bound(own: NestedField, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return from_binary(own.type, data)
    except InvalidValue:
        return None
