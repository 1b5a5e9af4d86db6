"""Reads the footers of delete files into what a commit declares (spec, "Delete Formats")."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from frazil.datafiles.footers.footer_metrics import FULL, NONE, MetricsModes
from frazil.datafiles.footers.footer_partitions import PartitionInput
from frazil.datafiles.footers.footer_reader import Footer, ParquetReader
from frazil.datafiles.portable_table import FileTable
from frazil.values.column_matching import (
    DELETE_FILE_PATH_ID,
    DELETE_POS_ID,
    MatchedColumn,
    match_equality_deletes,
    match_position_deletes,
)
from frazil.values.parquet_columns import FileColumn
from frazil.values.types import SchemaField
from frazil.wire.errors import BadRequest

_WHOLE_PATHS: Final = MetricsModes(NONE, {DELETE_FILE_PATH_ID: FULL, DELETE_POS_ID: FULL})
"""Java's `MetricsConfig.forPositionDelete`: readers match delete files by the whole path."""

Path = str | os.PathLike[str]


def position_deletes(
    path: Path,
    table: FileTable,
    *,
    partition: PartitionInput | None,
    spec_id: int | None,
    filesystem: Any,
) -> dict[str, Any]:
    """Return the members of a file of position deletes."""
    reader = ParquetReader(table, spec_id, filesystem)
    footer = reader.footer(path, match_position_deletes, _WHOLE_PATHS)
    members = reader.members(footer, partition, is_data=False)
    return {**members, "referenced_data_file": _referenced_data_file(footer)}


def _referenced_data_file(footer: Footer) -> str | None:
    """Return the data file whose rows are deleted, if the footer proves that it is only one."""
    paths = footer.statistics[DELETE_FILE_PATH_ID]
    if paths.lower is None or paths.may_be_cut or paths.lower != paths.upper:
        return None
    path: str = paths.lower
    return path


def equality_deletes(
    path: Path,
    table: FileTable,
    *,
    equality_ids: Iterable[int] | None,
    columns: Iterable[str] | None,
    partition: PartitionInput | None,
    spec_id: int | None,
    sort_order_id: int | None,
    filesystem: Any,
) -> dict[str, Any]:
    """Return the members of a file of equality deletes."""
    reader = ParquetReader(table, spec_id, filesystem)
    ids = _equality_ids(reader.columns.by_id, equality_ids, columns)

    def match(file_columns: Sequence[FileColumn]) -> tuple[MatchedColumn, ...]:
        return match_equality_deletes(reader.with_ids(file_columns), reader.columns, ids)

    footer = reader.footer(path, match)
    members = reader.members(footer, partition, sort_order_id, is_data=False)
    return {**members, "equality_ids": ids}


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
