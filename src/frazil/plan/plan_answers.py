"""Writes the scan tasks of a plan as JSON, as the REST specification defines it.

A data file has what a reader needs to open and split it, and statistics only for the columns that
the client asked for. Bounds are hexadecimal, as Iceberg's Java library reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, Final

import numpy as np

from frazil.format.avro.avro_files import MANIFEST_LIMITS, open_avro
from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundPredicate,
    BoundSetPredicate,
    BoundTransform,
)
from frazil.format.manifest.entry_fields import read_content_files
from frazil.format.manifest.manifest_columns import ManifestColumns, metrics, row_positions
from frazil.format.manifest.manifest_fields import NONE
from frazil.format.manifest.manifest_list import ManifestFile
from frazil.format.metadata.content_files import (
    DATA_CONTENT,
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    DeleteFile,
    FieldMap,
    FileMetrics,
)
from frazil.format.metadata.partition_spec import partition_type
from frazil.format.metadata.schema import Schema
from frazil.plan.scan_requests import Scan
from frazil.plan.scan_walk import Piece, Rows, Walk
from frazil.read.delete_index import DeleteIndex, IndexedDataFile
from frazil.read.filters import partitions_of
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow
from frazil.values.single_value import to_json
from frazil.values.types import StructType, Type, TypeId
from frazil.wire.expressions import (
    MAX_DEPTH,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Expression,
    Or,
    Predicate,
    Term,
    all_of,
    any_of,
    expression_json,
)

_MAX_RESIDUAL_DEPTH: Final = 2 * MAX_DEPTH
"""A request of `MAX_DEPTH` levels can become deeper when its operands are balanced again."""


def residual_json(expression: Expression, schema: Schema) -> Any:
    """Return the JSON of a bound expression; `schema` has the full names of nested columns.

    Java and PyIceberg read a constant only as a JSON boolean.
    """
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return isinstance(expression, AlwaysTrue)
    return expression_json(_unbound(expression, schema), max_depth=_MAX_RESIDUAL_DEPTH)


def _unbound(expression: Expression, schema: Schema) -> Expression:
    if isinstance(expression, And | Or):
        join = all_of if isinstance(expression, And) else any_of
        return join(*(_unbound(operand, schema) for operand in expression.operands))
    if isinstance(expression, BoundPredicate):
        return Predicate(expression.operation, _term(expression, schema), _values(expression))
    raise TypeError(f"{type(expression).__name__} is not a bound expression")


def _term(predicate: BoundPredicate, schema: Schema) -> Term:
    reference = predicate.term.ref
    name = schema.full_names.get(reference.field_id, reference.name)
    if isinstance(predicate.term, BoundTransform):
        return Term(name, predicate.term.transform)
    return Term(name)


def _values(predicate: BoundPredicate) -> tuple[Any, ...]:
    type_ = predicate.term.type
    if isinstance(predicate, BoundLiteralPredicate):
        return (to_json(type_, predicate.value),)
    if isinstance(predicate, BoundSetPredicate):
        values = (to_json(type_, value) for value in predicate.values)
        return tuple(sorted(values, key=lambda value: (str(type(value)), value)))
    return ()


_CONTENTS: Final = {
    DATA_CONTENT: "data",
    POSITION_DELETES: "position-deletes",
    EQUALITY_DELETES: "equality-deletes",
}
_COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS: Final = ("lower_bounds", "upper_bounds")


@dataclass(slots=True)
class ScanTasks:
    """The tasks of a part of a scan, with the delete files that they reference."""

    tasks: list[dict[str, Any]] = field(default_factory=list)
    delete_files: list[dict[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"file-scan-tasks": self.tasks}
        if self.delete_files:
            document["delete-files"] = self.delete_files
        return document


class TaskWriter:
    """Writes the tasks of one scan."""

    def __init__(self, walk: Walk, reader: ManifestReader) -> None:
        self._walk = walk
        self._scan: Scan = walk.scan
        self._reader = reader
        self._schema = walk.scan.schema
        self._partition_types: dict[int, StructType] = {}

    def write(self, pieces: Iterable[Piece]) -> ScanTasks:
        tasks = ScanTasks()
        references: dict[tuple[str, int | None], int] = {}
        for piece in pieces:
            self._write_piece(piece, tasks, references)
        return tasks

    @cached_property
    def _deletes(self) -> DeleteIndex:
        entries = [entry for piece in self._walk.deletes() for entry in _delete_entries(piece)]
        metrics_of = None if self._scan.all_deletes else self._metrics_of
        return DeleteIndex(entries, self._scan.metadata, metrics_of=metrics_of)

    def _write_piece(
        self, piece: Piece, tasks: ScanTasks, references: dict[tuple[str, int | None], int]
    ) -> None:
        spec_id = piece.listed.partition_spec_id
        residuals = self._residuals(piece)
        inherited = piece.columns.inherited(piece.listed)
        first_row_ids = inherited.first_row_id[piece.rows].tolist()
        numbers = inherited.sequence_number[piece.rows].tolist()
        deletes = self._deletes_of(piece)
        documents = self._documents(piece, spec_id)
        partition = piece.columns.partition[piece.rows].tolist()
        for document, own, first_row_id, number, of_row in zip(
            documents, deletes, first_row_ids, numbers, partition, strict=True
        ):
            if first_row_id != NONE:
                document["first-row-id"] = first_row_id
            if self._scan.sequence_numbers:
                document["data-sequence-number"] = number
            task: dict[str, Any] = {"data-file": document}
            if own:
                task["delete-file-references"] = [
                    self._reference(entry, tasks, references) for entry in own
                ]
            task["residual-filter"] = residuals[of_row]
            tasks.tasks.append(task)

    def _residuals(self, piece: Piece) -> list[Any]:
        """Return the residual for each distinct partition of the manifest."""
        expressions = self._scan.where.residuals(piece.columns, piece.listed.partition_spec_id)
        # Most partitions have the same expression object as their residual.
        documents: dict[int, Any] = {}
        for expression in expressions:
            if id(expression) not in documents:
                documents[id(expression)] = residual_json(expression, self._schema)
        return [documents[id(expression)] for expression in expressions]

    def _documents(self, piece: Piece, spec_id: int) -> Iterator[dict[str, Any]]:
        """Return the data files of a piece. Only statistics are read from the manifest again."""
        if self._scan.stats_fields:
            files = self._files(piece.listed, piece.columns, piece.rows, stats=True)
            return (self._file_document(file, spec_id) for file in files)
        return self._from_columns(piece, spec_id)

    def _from_columns(self, piece: Piece, spec_id: int) -> Iterator[dict[str, Any]]:
        columns, rows = piece.columns, piece.rows
        reading = self._reader.reading(piece.listed)
        tuples = partitions_of(columns, self._scan.metadata.spec(spec_id))
        partitions: dict[int, list[Any]] = {}
        for row, path, size, count, of_row in zip(
            rows.tolist(),
            columns.encoded_paths(rows),
            columns.file_size_in_bytes[rows].tolist(),
            columns.record_count[rows].tolist(),
            columns.partition[rows].tolist(),
            strict=True,
        ):
            partition = partitions.get(of_row)
            if partition is None:
                partition = partitions[of_row] = self._partition(tuples[of_row], spec_id)
            document: dict[str, Any] = {
                "spec-id": spec_id,
                "content": "data",
                "file-path": path.decode(),
                "file-format": reading.file_format[row],
                "partition": partition,
                "file-size-in-bytes": size,
                "record-count": count,
            }
            _add_optional_fields(
                document,
                reading.key_metadata[row],
                reading.split_offsets[row],
                reading.sort_order_id[row],
            )
            yield document

    # --- deletes -----------------------------------------------------------------------------

    def _deletes_of(self, piece: Piece) -> Iterator[Sequence[ManifestRow]]:
        """Return the delete files that apply to each row of a piece."""
        index = self._deletes
        if index.is_empty:
            yield from repeat((), len(piece.rows))
            return
        columns, spec_id = piece.columns, piece.listed.partition_spec_id
        partitions = partitions_of(columns, self._scan.metadata.spec(spec_id))
        numbers = columns.inherited(piece.listed).sequence_number
        for row in piece.rows.tolist():
            yield index.for_data_file(
                IndexedDataFile(
                    columns.path(row),
                    spec_id,
                    tuple(partitions[int(columns.partition[row])]),
                    int(numbers[row]),
                    lambda row=row: self._metrics_at(piece.listed, columns, row),  # type: ignore[misc]
                )
            )

    def _metrics_of(self, entry: ManifestRow) -> FileMetrics:
        return self._metrics_at(entry.listed, entry.columns, entry.row)

    def _metrics_at(self, listed: ManifestFile, columns: ManifestColumns, row: int) -> FileMetrics:
        return next(iter(metrics(self._reader.content(listed), columns, [row])))

    def _reference(
        self,
        entry: ManifestRow,
        tasks: ScanTasks,
        references: dict[tuple[str, int | None], int],
    ) -> int:
        known = references.get(entry.identity)
        if known is None:
            known = references[entry.identity] = len(tasks.delete_files)
            only = np.array([entry.row], np.int64)
            (file,) = self._files(entry.listed, entry.columns, only, stats=False)
            document = self._file_document(file, entry.spec_id)
            if self._scan.sequence_numbers:
                document["data-sequence-number"] = entry.sequence_number
            tasks.delete_files.append(document)
        return known

    # --- files -------------------------------------------------------------------------------

    def _files(
        self, listed: ManifestFile, columns: ManifestColumns, rows: Rows, stats: bool
    ) -> Iterator[ContentFile]:
        opened = open_avro(self._reader.content(listed), MANIFEST_LIMITS)
        distinct = partitions_of(columns, self._scan.metadata.spec(listed.partition_spec_id))
        tuples = [distinct[index] for index in columns.partition[rows].tolist()]
        positions = row_positions(opened, columns, rows)
        return read_content_files(opened.schema, positions, tuples, metrics=stats)

    def _file_document(self, file: ContentFile, spec_id: int) -> dict[str, Any]:
        document: dict[str, Any] = {
            "spec-id": spec_id,
            "content": _CONTENTS[file.content if isinstance(file, DeleteFile) else DATA_CONTENT],
            "file-path": file.file_path,
            "file-format": file.file_format.lower(),
            "partition": self._partition(file.partition, spec_id),
            "file-size-in-bytes": file.file_size_in_bytes,
            "record-count": file.record_count,
        }
        _add_optional_fields(document, file.key_metadata, file.split_offsets, file.sort_order_id)
        if isinstance(file, DeleteFile):
            document.update(_delete_fields(file))
        elif self._scan.stats_fields:
            document.update(_statistics(file, self._scan.stats_fields))
        return document

    def _partition(self, values: Sequence[Any], spec_id: int) -> list[Any]:
        kind = self._partition_types.get(spec_id)
        if kind is None:
            spec = self._scan.metadata.spec(spec_id)
            if spec is None:
                return []
            kind = partition_type(spec, self._scan.metadata.current_schema)
            self._partition_types[spec_id] = kind
        pairs = zip(kind.fields, values, strict=False)
        return [_partition_value(field.type, value) for field, value in pairs]


def _add_optional_fields(
    document: dict[str, Any],
    key_metadata: bytes | None,
    split_offsets: Sequence[int] | None,
    sort_order_id: int | None,
) -> None:
    if key_metadata is not None:
        document["key-metadata"] = key_metadata.hex().upper()
    if split_offsets is not None:
        document["split-offsets"] = split_offsets
    if sort_order_id is not None:
        document["sort-order-id"] = sort_order_id


def _partition_value(kind: Type, value: Any) -> Any:
    """Return a partition value as JSON. NaN and infinities are written by name, as in Java."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    # The type of a dropped column is unknown, so its value cannot be read.
    return None if value is None or kind.type_id is TypeId.UNKNOWN else to_json(kind, value)


def _delete_fields(file: DeleteFile) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if file.equality_ids is not None:
        fields["equality-ids"] = list(file.equality_ids)
    if file.referenced_data_file is not None:
        fields["referenced-data-file"] = file.referenced_data_file
    if file.content_offset is not None:
        fields["content-offset"] = file.content_offset
    if file.content_size_in_bytes is not None:
        fields["content-size-in-bytes"] = file.content_size_in_bytes
    return fields


def _statistics(file: ContentFile, wanted: frozenset[int]) -> Mapping[str, Any]:
    statistics: dict[str, Any] = {}
    for name in _COUNTS:
        counts: FieldMap[int] | None = getattr(file, name)
        if counts is not None:
            kept = {key: value for key, value in counts.items() if key in wanted}
            statistics[name.replace("_", "-")] = _two_lists(kept)
    for name in _BOUNDS:
        bounds: FieldMap[bytes] | None = getattr(file, name)
        if bounds is not None:
            texts = {key: value.hex().upper() for key, value in bounds.items() if key in wanted}
            statistics[name.replace("_", "-")] = _two_lists(texts)
    return statistics


def _two_lists(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def _delete_entries(piece: Piece) -> Iterator[ManifestRow]:
    numbers = piece.columns.inherited(piece.listed).sequence_number
    for row in piece.rows.tolist():
        yield ManifestRow(piece.listed, piece.columns, row, int(numbers[row]))
