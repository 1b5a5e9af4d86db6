"""A Parquet file read into what a commit declares of it.

What depends on the table alone is worked out once, for as many files as there are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

from frazil.client.parquet_columns import FileColumn, all_columns, columns_of
from frazil.client.parquet_errors import FileDoesNotFit
from frazil.client.parquet_files import OpenedFile, declared_path, open_parquet
from frazil.client.parquet_matching import (
    MatchedColumn,
    TableColumns,
    match_columns,
    own_columns,
)
from frazil.client.parquet_metrics import declared_metrics
from frazil.client.parquet_metrics_modes import DEFAULT_MODE, MetricsModes, metrics_modes
from frazil.client.parquet_names import (
    NAME_MAPPING_PROPERTY,
    apply_name_mapping,
    name_mapping_of,
    parse_name_mapping,
)
from frazil.client.parquet_partitions import (
    GivenPartition,
    PartitionField,
    identity_sources,
    partition_fields,
    partition_values,
)
from frazil.client.parquet_schema import fields_by_id
from frazil.client.parquet_statistics import ColumnStatistics, column_statistics
from frazil.values.type_json import parse_struct
from frazil.values.types import StructType, Type

_UNPARTITIONED_SPEC_ID: Final = 0


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


class ParquetReader:
    """Reads the footers of a table's files. Several threads may use one."""

    def __init__(
        self, table: FileTable | None, spec_id: int | None = None, filesystem: Any = None
    ) -> None:
        self._table = table
        self._filesystem = filesystem
        self.spec_id = _UNPARTITIONED_SPEC_ID
        self._partition_fields: tuple[PartitionField, ...] = ()
        self._modes = MetricsModes(DEFAULT_MODE, {})
        if table is None:
            return
        spec = table.spec(spec_id)
        self.spec_id = spec["spec-id"]
        by_id = fields_by_id(table.schema)
        self._columns = TableColumns(
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
                if field_id not in self._columns.by_id:
                    types.setdefault(field_id, []).append(found.field.type)
        return types

    def data_file(
        self,
        path: str | os.PathLike[str],
        partition: GivenPartition | None = None,
        sort_order_id: int | None = None,
    ) -> dict[str, Any]:
        """The members of the data file that a commit declares."""
        footer = self._read(path)
        values = partition_values(self._partition_fields, footer.statistics, partition, footer.path)
        return self._members(footer, values, self._modes, sort_order_id)

    def _members(
        self,
        footer: Footer,
        partition: tuple[Any, ...],
        modes: MetricsModes,
        sort_order_id: int | None,
    ) -> dict[str, Any]:
        return {
            "spec_id": self.spec_id,
            "partition": partition,
            "file_path": footer.path,
            "file_format": "parquet",
            "file_size_in_bytes": footer.size_in_bytes,
            "record_count": footer.record_count,
            "split_offsets": footer.split_offsets,
            "sort_order_id": sort_order_id,
            **declared_metrics(footer.columns, footer.statistics, modes),
        }

    def _read(self, path: str | os.PathLike[str]) -> Footer:
        table = self._table
        location = None if table is None else table.location
        declared = declared_path(path, location, self._filesystem)
        config: Mapping[str, str] = {} if table is None else table.config
        with open_parquet(declared, config, self._filesystem) as opened:
            metadata = opened.parquet.metadata
            columns = self._matched(columns_of(metadata), declared)
            statistics = column_statistics(
                opened.parquet, columns, self._wants_nans, self._wants_bounds
            )
            self._refuse_nulls(columns, statistics, declared)
            return Footer(
                declared,
                opened.size_in_bytes,
                metadata.num_rows,
                _split_offsets(opened),
                columns,
                statistics,
            )

    def _matched(self, columns: Sequence[FileColumn], path: str) -> tuple[MatchedColumn, ...]:
        if self._table is None:
            return own_columns(columns, path)
        if all(column.field_id is None for column in all_columns(columns)):
            if self._name_mapping is None:
                raise _no_ids(path, self._table.schema)
            columns = apply_name_mapping(columns, self._name_mapping)
        from_partition = identity_sources(self._partition_fields)
        return match_columns(columns, self._columns, path, from_partition)

    def _is_partition_source(self, column: MatchedColumn) -> bool:
        return any(column.field_id == one.source_id for one in self._partition_fields)

    def _wants_nans(self, column: MatchedColumn) -> bool:
        return self._modes.of(column.field_id).has_counts or self._is_partition_source(column)

    def _wants_bounds(self, column: MatchedColumn) -> bool:
        return self._modes.of(column.field_id).has_bounds or self._is_partition_source(column)

    def _refuse_nulls(
        self,
        columns: Sequence[MatchedColumn],
        statistics: Mapping[int, ColumnStatistics],
        path: str,
    ) -> None:
        """Of a field in an optional struct the footer does not tell whose nulls it counts."""
        for column in columns:
            nulls = statistics[column.field_id].null_count
            if nulls and not column.may_be_null and not column.is_repeated:
                raise FileDoesNotFit(
                    path, f"is required, but the file has {nulls} nulls in it", column.name
                )


def _sort_fields(metadata: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    default = metadata.get("default-sort-order-id")
    for order in metadata.get("sort-orders", ()):
        if order["order-id"] == default:
            fields: Sequence[Mapping[str, Any]] = order["fields"]
            return fields
    return ()


def _split_offsets(opened: OpenedFile) -> tuple[int, ...] | None:
    """Where row groups begin. Java leaves all out where one lies beyond the end of the file."""
    metadata = opened.parquet.metadata
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
    if not offsets or offsets[0] < 0 or offsets[-1] >= opened.size_in_bytes:
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
