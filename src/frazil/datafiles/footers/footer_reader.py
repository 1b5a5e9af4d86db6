"""Reads the footer of a Parquet file into what a commit declares about the file.

What depends on the table alone is computed once, for any number of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from frazil.datafiles.footers.footer_metrics import (
    DEFAULT_MODE,
    FULL,
    NONE,
    MetricsMode,
    MetricsModes,
    declared_metrics,
    metrics_modes,
)
from frazil.datafiles.footers.footer_partitions import (
    PartitionInput,
    identity_sources,
    partition_fields,
    partition_values,
)
from frazil.datafiles.footers.parquet_files import FileDoesNotFit, declared_path, open_parquet
from frazil.datafiles.portable_table import FileTable, table_name_mapping
from frazil.values.column_matching import (
    DELETE_FILE_PATH_ID,
    DELETE_POS_ID,
    ColumnMisfit,
    MatchedColumn,
    TableColumns,
    match_columns,
    match_equality_deletes,
    match_position_deletes,
    own_columns,
    with_field_ids,
)
from frazil.values.footer_statistics import (
    ColumnStatistics,
    NanCounts,
    column_statistics,
    read_nan_counts,
)
from frazil.values.parquet_columns import FileColumn, columns_of_footer
from frazil.values.partition_proof import PartitionField
from frazil.values.type_json import parse_struct
from frazil.values.types import SchemaField, StructType, Type, fields_by_id
from frazil.wire.errors import BadRequest

_UNPARTITIONED_SPEC_ID: Final = 0
_FORMAT_VERSION_WITHOUT_TABLE: Final = 2
_WHOLE_PATHS: Final = MetricsModes(NONE, {DELETE_FILE_PATH_ID: FULL, DELETE_POS_ID: FULL})
"""Java's `MetricsConfig.forPositionDelete`: readers match delete files by the whole path."""

Match: TypeAlias = Callable[[Sequence[FileColumn]], tuple[MatchedColumn, ...]]
"""Matches the columns of a file, or raises ColumnMisfit."""


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's footer after its columns were matched with those of the table."""

    path: str
    size_in_bytes: int
    record_count: int
    split_offsets: tuple[int, ...] | None
    columns: tuple[MatchedColumn, ...]
    statistics: Mapping[int, ColumnStatistics]
    """By field id, also of columns that only the partition needs."""
    modes: MetricsModes
    """Which metrics are declared."""


class ParquetReader:
    """Reads the footers of a table's files. It may be shared by threads."""

    def __init__(
        self,
        table: FileTable | None,
        spec_id: int | None = None,
        filesystem: Any = None,
        *,
        reads_nans: bool = True,
    ) -> None:
        """Without `reads_nans` only footers are read, and NaNs are not counted."""
        self._table = table
        self._filesystem = filesystem
        self._reads_nans = reads_nans
        self.spec_id = _UNPARTITIONED_SPEC_ID
        self._partition_fields: tuple[PartitionField, ...] = ()
        self._modes = MetricsModes(DEFAULT_MODE, {})
        self.columns = TableColumns(StructType(), {}, _FORMAT_VERSION_WITHOUT_TABLE)
        if table is None:
            return
        spec = table.spec(spec_id)
        self.spec_id = spec["spec-id"]
        by_id = fields_by_id(table.schema)
        self.columns = TableColumns(
            table.schema,
            by_id,
            table.format_version,
            lambda field_id: self._former_types.get(field_id, ()),
        )
        self._partition_fields = partition_fields(spec, by_id)
        self._modes = metrics_modes(
            table.properties, table.schema, by_id, _sort_fields(table.metadata)
        )
        self._name_mapping = table_name_mapping(table.properties)

    @cached_property
    def _former_types(self) -> Mapping[int, Sequence[Type]]:
        """The types of fields that the current schema does not have, which few files ask for."""
        assert self._table is not None
        types: dict[int, list[Type]] = {}
        for schema in self._table.metadata.get("schemas", ()):
            for field_id, found in fields_by_id(parse_struct(schema, "schema")).items():
                if field_id not in self.columns.by_id:
                    types.setdefault(field_id, []).append(found.field.type)
        return types

    def data_file(
        self,
        path: str | os.PathLike[str],
        partition: PartitionInput | None = None,
        sort_order_id: int | None = None,
    ) -> dict[str, Any]:
        """Return the members of the data file that a commit declares."""
        if self._table is None:
            footer = self.footer(path, own_columns)
        else:
            footer = self.footer(path, self._match_data)
            _refuse_nulls(footer)
        return self.members(footer, partition, sort_order_id)

    def position_delete_file(
        self, path: str | os.PathLike[str], partition: PartitionInput | None
    ) -> dict[str, Any]:
        """Return the members of a file of position deletes (spec, "Position Delete Files")."""
        footer = self.footer(path, match_position_deletes, _WHOLE_PATHS)
        members = self.members(footer, partition, is_data=False)
        return {**members, "referenced_data_file": _referenced_data_file(footer)}

    def equality_delete_file(
        self,
        path: str | os.PathLike[str],
        equality_ids: Iterable[int] | None,
        columns: Iterable[str] | None,
        partition: PartitionInput | None,
        sort_order_id: int | None,
    ) -> dict[str, Any]:
        """Return the members of a file of equality deletes (spec, "Equality Delete Files")."""
        ids = _equality_ids(self.columns.by_id, equality_ids, columns)

        def match(file_columns: Sequence[FileColumn]) -> tuple[MatchedColumn, ...]:
            return match_equality_deletes(self._with_ids(file_columns), self.columns, ids)

        footer = self.footer(path, match)
        members = self.members(footer, partition, sort_order_id, is_data=False)
        return {**members, "equality_ids": ids}

    def written_file(
        self,
        path: str,
        size_in_bytes: int,
        metadata: Any,
        nan_counts: NanCounts,
        partition: PartitionInput | None = None,
        sort_order_id: int | None = None,
    ) -> dict[str, Any]:
        """Do the same as `data_file` for a file whose writer still has its `FileMetaData`."""
        footer = self._footer(
            path, size_in_bytes, metadata, self._match_data, self._modes, nan_counts
        )
        _refuse_nulls(footer)
        return self.members(footer, partition, sort_order_id)

    def footer(
        self, path: str | os.PathLike[str], match: Match, modes: MetricsModes | None = None
    ) -> Footer:
        """Read the footer of a file."""
        modes = modes or self._modes
        table = self._table
        location = None if table is None else table.location
        declared = declared_path(path, location, self._filesystem)
        config: Mapping[str, str] = {} if table is None else table.config
        with open_parquet(declared, config, self._filesystem) as (parquet, size):

            def nan_counts(column: MatchedColumn) -> Sequence[int] | None:
                return read_nan_counts(parquet, column) if self._reads_nans else None

            return self._footer(declared, size, parquet.metadata, match, modes, nan_counts)

    def _footer(
        self,
        path: str,
        size_in_bytes: int,
        metadata: Any,
        match: Match,
        modes: MetricsModes,
        nan_counts: NanCounts,
    ) -> Footer:
        with _naming(path):
            columns = match(columns_of_footer(metadata))
        wants_nans = self._wants(modes, lambda mode: mode.has_counts)
        return Footer(
            path,
            size_in_bytes,
            metadata.num_rows,
            _split_offsets(metadata, size_in_bytes),
            columns,
            column_statistics(
                metadata,
                columns,
                lambda column: nan_counts(column) if wants_nans(column) else None,
                self._wants(modes, lambda mode: mode.has_bounds),
            ),
            modes,
        )

    def members(
        self,
        footer: Footer,
        partition: PartitionInput | None,
        sort_order_id: int | None = None,
        *,
        is_data: bool = True,
    ) -> dict[str, Any]:
        """Return the members that all content files declare."""
        values = partition_values(
            self._partition_fields, footer.statistics, partition, footer.path, is_data=is_data
        )
        return {
            "spec_id": self.spec_id,
            "partition": values,
            "file_path": footer.path,
            "file_format": "parquet",
            "file_size_in_bytes": footer.size_in_bytes,
            "record_count": footer.record_count,
            "split_offsets": footer.split_offsets,
            "sort_order_id": sort_order_id,
            **declared_metrics(footer.columns, footer.statistics, footer.modes),
        }

    def _with_ids(self, columns: Sequence[FileColumn]) -> Sequence[FileColumn]:
        """Return the columns with field ids: their own, or those of the table's name mapping."""
        return with_field_ids(columns, self._name_mapping, self.columns.schema)

    def _match_data(self, columns: Sequence[FileColumn]) -> tuple[MatchedColumn, ...]:
        from_partition = identity_sources(self._partition_fields)
        return match_columns(self._with_ids(columns), self.columns, from_partition)

    def _wants(
        self, modes: MetricsModes, has: Callable[[MetricsMode], bool]
    ) -> Callable[[MatchedColumn], bool]:
        """Return whether a column's statistics are needed: by its mode, or to prove a partition."""
        sources = {field.source_id for field in self._partition_fields}
        return lambda column: column.field_id in sources or has(modes.of(column.field_id))


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the file's path to the reason why its columns do not fit."""
    try:
        yield
    except ColumnMisfit as misfit:
        raise FileDoesNotFit(path, misfit.reason, misfit.column) from None


def _refuse_nulls(footer: Footer) -> None:
    """Refuse nulls in required columns.

    For a field in an optional struct the footer does not say whose nulls it counts.
    """
    for column in footer.columns:
        nulls = footer.statistics[column.field_id].null_count
        if nulls and not column.may_be_null and not column.is_repeated:
            raise FileDoesNotFit(
                footer.path, f"is required, but the file has {nulls} nulls in it", column.name
            )


def _sort_fields(metadata: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    default = metadata.get("default-sort-order-id")
    for order in metadata.get("sort-orders", ()):
        if order["order-id"] == default:
            fields: Sequence[Mapping[str, Any]] = order["fields"]
            return fields
    return ()


def _split_offsets(metadata: Any, size_in_bytes: int) -> tuple[int, ...] | None:
    """Return where row groups begin; as in Java, None if one lies beyond the end of the file."""
    offsets = []
    for number in range(metadata.num_row_groups):
        row_group = metadata.row_group(number)
        if row_group.num_rows == 0 or row_group.num_columns == 0:
            continue
        first = row_group.column(0)
        offset = first.data_page_offset
        if first.has_dictionary_page and 0 < first.dictionary_page_offset < offset:
            offset = first.dictionary_page_offset
        offsets.append(offset)
    offsets.sort()
    if not offsets or offsets[0] < 0 or offsets[-1] >= size_in_bytes:
        return None
    return tuple(offsets)


# --- delete files -------------------------------------------------------------------------------


def _referenced_data_file(footer: Footer) -> str | None:
    """Return the data file whose rows are deleted, if the footer proves that it is only one."""
    paths = footer.statistics[DELETE_FILE_PATH_ID]
    if paths.lower is None or paths.may_be_cut or paths.lower != paths.upper:
        return None
    path: str = paths.lower
    return path


def _equality_ids(
    by_id: Mapping[int, SchemaField], ids: Iterable[int] | None, names: Iterable[str] | None
) -> tuple[int, ...]:
    if (ids is None) == (names is None):
        raise BadRequest("an equality delete file needs equality_ids or columns: give one of them")
    ids_by_name = {field.name: field_id for field_id, field in by_id.items()}
    if ids is not None:
        labeled: list[tuple[int, object]] = [(field_id, field_id) for field_id in ids]
    else:
        labeled = [(ids_by_name.get(name, -1), name) for name in names or ()]
    for field_id, label in labeled:
        if field_id not in by_id or not by_id[field_id].field.type.is_primitive:
            raise BadRequest(f"equality columns: {label} is not a primitive column of the table")
    if not labeled:
        raise BadRequest("an equality delete file needs at least one column to compare by")
    return tuple(field_id for field_id, _ in labeled)
