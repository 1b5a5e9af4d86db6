"""A Parquet file read into what a commit declares of it.

What depends on the table alone is worked out once, for as many files as there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

from frazil.datafiles.footers.footer_metrics import declared_metrics
from frazil.datafiles.footers.footer_partitions import (
    GivenPartition,
    PartitionField,
    identity_sources,
    partition_fields,
    partition_values,
)
from frazil.datafiles.footers.footer_statistics import (
    ColumnStatistics,
    NanCounts,
    column_statistics,
    read_nan_counts,
)
from frazil.datafiles.footers.parquet_errors import FileDoesNotFit
from frazil.datafiles.footers.parquet_files import declared_path, open_parquet
from frazil.datafiles.footers.parquet_metrics_modes import (
    DEFAULT_MODE,
    MetricsMode,
    MetricsModes,
    metrics_modes,
)
from frazil.datafiles.footers.parquet_schema import fields_by_id
from frazil.values.column_matching import MatchedColumn, TableColumns, match_columns, own_columns
from frazil.values.name_mapping import (
    NAME_MAPPING_PROPERTY,
    apply_name_mapping,
    name_mapping_of,
    parse_name_mapping,
)
from frazil.values.parquet_columns import FileColumn, all_columns, columns_of
from frazil.values.type_json import parse_struct
from frazil.values.types import StructType, Type

_UNPARTITIONED_SPEC_ID: Final = 0
_OWN_FORMAT_VERSION: Final = 2

Match: TypeAlias = Callable[[Sequence[FileColumn], str], tuple[MatchedColumn, ...]]
"""Finds the columns of a file, whose path messages name."""


class FileTable(Protocol):
    """What is asked of a table."""

    @property
    def schema(self) -> StructType: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def config(self) -> Mapping[str, str]: ...
    @property
    def location(self) -> str: ...
    @property
    def format_version(self) -> int: ...
    def spec(self, spec_id: int | None = None) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's footer, held against its table."""

    path: str
    size_in_bytes: int
    record_count: int
    split_offsets: tuple[int, ...] | None
    columns: tuple[MatchedColumn, ...]
    statistics: Mapping[int, ColumnStatistics]
    modes: MetricsModes
    """Which metrics are declared; the statistics have what a partition needs too."""


class ParquetReader:
    """Reads the footers of a table's files. Several threads may use one."""

    def __init__(
        self,
        table: FileTable | None,
        spec_id: int | None = None,
        filesystem: Any = None,
        *,
        reads_nans: bool = True,
    ) -> None:
        """Without `reads_nans` nothing but footers is read, and NaNs are not counted."""
        self._table = table
        self._filesystem = filesystem
        self._reads_nans = reads_nans
        self.spec_id = _UNPARTITIONED_SPEC_ID
        self._partition_fields: tuple[PartitionField, ...] = ()
        self._modes = MetricsModes(DEFAULT_MODE, {})
        self.columns = TableColumns(StructType(), {}, _OWN_FORMAT_VERSION)
        if table is None:
            return
        spec = table.spec(spec_id)
        self.spec_id = spec["spec-id"]
        by_id = fields_by_id(table.schema)
        self.columns = TableColumns(
            table.schema, by_id, table.format_version, lambda one: self._former_types.get(one, ())
        )
        self._partition_fields = partition_fields(spec, by_id)
        self._modes = metrics_modes(
            table.properties, table.schema, by_id, _sort_fields(table.metadata)
        )
        mapping = table.properties.get(NAME_MAPPING_PROPERTY)
        self._name_mapping = None if mapping is None else parse_name_mapping(mapping)

    @cached_property
    def _former_types(self) -> Mapping[int, Sequence[Type]]:
        """Of fields that the current schema does not have; asked for only by odd files."""
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
        partition: GivenPartition | None = None,
        sort_order_id: int | None = None,
    ) -> dict[str, Any]:
        """The members of the data file that a commit declares."""
        if self._table is None:
            footer = self.footer(path, own_columns)
        else:
            footer = self.footer(path, self._match_data)
            _refuse_nulls(footer)
        return self.members(footer, partition, sort_order_id)

    def written_file(
        self,
        path: str,
        size_in_bytes: int,
        metadata: Any,
        nan_counts: NanCounts,
        partition: GivenPartition | None = None,
        sort_order_id: int | None = None,
    ) -> dict[str, Any]:
        """As `data_file`, of a file whose writer still has its `FileMetaData` at hand."""
        footer = self._footer(
            path, size_in_bytes, metadata, self._match_data, self._modes, nan_counts
        )
        _refuse_nulls(footer)
        return self.members(footer, partition, sort_order_id)

    def footer(
        self, path: str | os.PathLike[str], match: Match, modes: MetricsModes | None = None
    ) -> Footer:
        """The footer of a file, whose columns are those that `match` finds."""
        modes = modes or self._modes
        table = self._table
        location = None if table is None else table.location
        declared = declared_path(path, location, self._filesystem)
        config: Mapping[str, str] = {} if table is None else table.config
        with open_parquet(declared, config, self._filesystem) as opened:
            parquet = opened.parquet

            def nan_counts(column: MatchedColumn) -> Sequence[int] | None:
                return read_nan_counts(parquet, column) if self._reads_nans else None

            return self._footer(
                declared, opened.size_in_bytes, parquet.metadata, match, modes, nan_counts
            )

    def _footer(
        self,
        path: str,
        size_in_bytes: int,
        metadata: Any,
        match: Match,
        modes: MetricsModes,
        nan_counts: NanCounts,
    ) -> Footer:
        columns = match(columns_of(metadata), path)
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
        partition: GivenPartition | None,
        sort_order_id: int | None = None,
        *,
        is_data: bool = True,
    ) -> dict[str, Any]:
        """What all content files declare."""
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

    def with_ids(self, columns: Sequence[FileColumn], path: str) -> Sequence[FileColumn]:
        """The columns with field ids: their own, or those of the table's name mapping."""
        assert self._table is not None
        if any(column.field_id is not None for column in all_columns(columns)):
            return columns
        if self._name_mapping is None:
            raise _no_ids(path, self._table.schema)
        return apply_name_mapping(columns, self._name_mapping)

    def _match_data(self, columns: Sequence[FileColumn], path: str) -> tuple[MatchedColumn, ...]:
        from_partition = identity_sources(self._partition_fields)
        return match_columns(self.with_ids(columns, path), self.columns, path, from_partition)

    def _wants(
        self, modes: MetricsModes, has: Callable[[MetricsMode], bool]
    ) -> Callable[[MatchedColumn], bool]:
        """Whether something is asked of a column: by its mode, or to prove a partition."""
        sources = {one.source_id for one in self._partition_fields}
        return lambda column: column.field_id in sources or has(modes.of(column.field_id))


def _refuse_nulls(footer: Footer) -> None:
    """Of a field in an optional struct the footer does not tell whose nulls it counts."""
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
    """Where row groups begin. Java leaves all out where one lies beyond the end of the file."""
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


def _no_ids(path: str, schema: StructType) -> FileDoesNotFit:
    return FileDoesNotFit(
        path,
        "its columns have no field ids, and the table has no name mapping, so that no reader could "
        "find them. Either write the file with the table's ids, "
        'pa.field(name, type, metadata={"PARQUET:field_id": "1"}), or set the table\'s property '
        f"{NAME_MAPPING_PROPERTY} to {name_mapping_of(schema)}",
    )
