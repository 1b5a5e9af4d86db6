"""Row lineage of format version 3, which a rewrite must preserve (spec, "Row Lineage").

A row keeps its `_row_id` and `_last_updated_sequence_number` when it is copied to another file. In
its first file both are implied: the id is the file's `first_row_id` plus the row's position, and
the sequence number is the file's. A rewrite writes both as columns; a null is again implied by the
file.

PyIceberg's manifest reader drops `first_row_id`, so manifests are read with the schema of version
3. PyIceberg updates a row by deleting and appending it. It is still the same row: it keeps
its `_row_id`, and its `_last_updated_sequence_number` is null, which means the commit that writes
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyiceberg.avro.file import AvroFile
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _combine_positional_deletes, _read_all_delete_files
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, NestedField
from pyiceberg.utils.concurrent import ExecutorFactory

from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    LAST_UPDATED_FIELD,
    ROW_ID,
    ROW_ID_FIELD,
    FileLineage,
)
from frazil.pyiceberg.manifest_reading import RowFilter, full_entries
from frazil.pyiceberg.staged_changes import PendingSnapshot

_FIRST_ROW_ID_OF_FILE: Final = [field.field_id for field in DATA_FILE_TYPE[3].fields].index(142)
_FIRST_ROW_ID_OF_MANIFEST: Final = [
    field.field_id for field in MANIFEST_LIST_FILE_SCHEMAS[3].fields
].index(520)


class RowLineage:
    """Reads rows of data files together with their lineage."""

    def __init__(self, metadata: TableMetadata, io: FileIO, files: dict[str, FileLineage]) -> None:
        self._metadata = metadata
        self._io = io
        self._files = files

    @classmethod
    def of(
        cls,
        metadata: TableMetadata,
        io: FileIO,
        snapshot_id: int,
        paths: Collection[str],
        matching: RowFilter,
    ) -> RowLineage:
        """Read the lineage of the files of a snapshot that may contain matching rows.

        Staged files have none yet.
        """
        snapshot = metadata.snapshot_by_id(snapshot_id)
        if isinstance(snapshot, PendingSnapshot):
            snapshot = snapshot.committed_ancestor
        if snapshot is None or not paths:
            return cls(metadata, io, {})
        manifests = [
            manifest
            for manifest in _manifests(snapshot, io)
            if matching.may_match_manifest(manifest, metadata)
        ]
        return cls(metadata, io, _file_lineage(manifests, io, paths))

    def rows(self, task: FileScanTask) -> pa.Table:
        """Return all live rows in the current schema, with the two lineage columns."""
        rows = ArrowScan(
            table_metadata=self._metadata,
            io=self._io,
            projected_schema=lineage_schema(self._metadata.schema()),
            row_filter=AlwaysTrue(),
        ).to_table(tasks=[task])
        implied = self._files.get(task.file.file_path)
        if implied is None or len(rows) == 0:
            return rows
        positions = self._positions(task)
        if len(positions) != len(rows):
            raise ValueError(
                f"{task.file.file_path}: {len(rows)} rows were read, but its manifest and delete "
                f"files count {len(positions)}"
            )
        row_ids = implied.row_ids(positions.to_numpy(), _stored(rows, ROW_ID))
        sequence_numbers = implied.sequence_numbers(len(rows), _stored(rows, LAST_UPDATED))
        return _replaced(_replaced(rows, ROW_ID, row_ids), LAST_UPDATED, sequence_numbers)

    def _positions(self, task: FileScanTask) -> pa.Array:
        """Return the positions of the live rows in the file."""
        deletes = _read_all_delete_files(self._io, [task]).get(task.file.file_path)
        if deletes:
            return _combine_positional_deletes(deletes, 0, task.file.record_count).cast(pa.int64())
        return pa.array(range(task.file.record_count), pa.int64())


def lineage_schema(schema: Schema) -> Schema:
    """Return the schema with the lineage columns at its end."""
    for name in (ROW_ID, LAST_UPDATED):
        if name in schema.column_names:
            raise ValueError(
                f"the table has a column {name!r}, the name of a reserved column of format "
                "version 3: rename it before rows are rewritten"
            )
    return Schema(
        *schema.fields,
        NestedField(ROW_ID_FIELD.field_id, ROW_ID, LongType(), required=False),
        NestedField(LAST_UPDATED_FIELD.field_id, LAST_UPDATED, LongType(), required=False),
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )


def lineage_metadata(metadata: TableMetadata) -> TableMetadata:
    """Return metadata with lineage in its schema, for PyIceberg's writer only."""
    current = metadata.schema()
    schemas = [
        lineage_schema(schema) if schema.schema_id == current.schema_id else schema
        for schema in metadata.schemas
    ]
    return metadata.model_copy(update={"schemas": schemas})


def _stored(rows: pa.Table, name: str) -> pa.Array:
    return rows.column(name).combine_chunks()


def _replaced(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    position = rows.schema.get_field_index(name)
    return rows.set_column(position, rows.schema.field(position), values)


# --- manifests with the fields of version 3 -----------------------------------------------------


def _file_lineage(
    manifests: list[ManifestFile], io: FileIO, paths: Collection[str]
) -> dict[str, FileLineage]:
    executor = ExecutorFactory.get_or_create()
    lineages = executor.map(lambda manifest: list(_lineage_of_manifest(manifest, io)), manifests)
    return {
        path: lineage
        for path, lineage in chain.from_iterable(lineages)
        if lineage is not None and path in paths
    }


def _lineage_of_manifest(
    manifest: ManifestFile, io: FileIO
) -> Iterator[tuple[str, FileLineage | None]]:
    """Return the lineage of a manifest's files; files without an id continue the manifest's ids."""
    next_row_id = manifest._data[_FIRST_ROW_ID_OF_MANIFEST]
    for entry in full_entries(manifest, io):
        if entry.status == ManifestEntryStatus.DELETED:
            continue
        file = entry.data_file
        first_row_id = file._data[_FIRST_ROW_ID_OF_FILE]
        if first_row_id is None and next_row_id is not None:
            first_row_id = next_row_id
            next_row_id += file.record_count
        sequence_number = entry.sequence_number
        if sequence_number is None:
            sequence_number = manifest.sequence_number
        lineage = None
        if first_row_id is not None:
            lineage = FileLineage(first_row_id, sequence_number)
        yield file.file_path, lineage


def _manifests(snapshot: Snapshot, io: FileIO) -> Iterator[ManifestFile]:
    with AvroFile[ManifestFile](
        io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[3],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as manifests:
        for manifest in manifests:
            if manifest.content == ManifestContent.DATA:
                yield manifest


class UpdatedRows:
    """The row ids of the rows that an upsert replaces, by their keys."""

    def __init__(self, key_columns: tuple[str, ...]) -> None:
        self._key_columns = list(key_columns)
        self._row_ids: dict[tuple[Any, ...], int] = {}

    def note(self, rows: pa.Table) -> None:
        """Remember the ids of rows before the update."""
        for key, row_id in zip(self._keys(rows), rows[ROW_ID].to_pylist(), strict=True):
            if row_id is not None:
                self._row_ids.setdefault(key, row_id)

    def with_row_ids(self, rows: pa.Table) -> pa.Table:
        """Return the rows after the update with their ids. Each id is used once."""
        row_ids = [self._row_ids.pop(key, None) for key in self._keys(rows)]
        rows = rows.append_column(ROW_ID, pa.array(row_ids, pa.int64()))
        return rows.append_column(LAST_UPDATED, pa.nulls(len(rows), pa.int64()))

    def _keys(self, rows: pa.Table) -> Iterable[tuple[Any, ...]]:
        columns = [rows[name].to_pylist() for name in self._key_columns]
        return zip(*columns, strict=True)
