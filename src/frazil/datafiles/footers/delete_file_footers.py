"""Delete files read into what a commit declares of them (spec, "Delete Formats")."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from frazil.datafiles.footers.footer_partitions import GivenPartition
from frazil.datafiles.footers.footer_reader import FileTable, Footer, ParquetReader
from frazil.datafiles.footers.parquet_errors import FileDoesNotFit
from frazil.datafiles.footers.parquet_metrics_modes import FULL, NONE, MetricsModes
from frazil.datafiles.footers.parquet_schema import SchemaField, fields_by_id
from frazil.values.column_matching import MatchedColumn, TableColumns, match_columns
from frazil.values.parquet_columns import FileColumn
from frazil.values.types import LONG, STRING, NestedField, StructType
from frazil.wire.errors import BadRequest

FILE_PATH_ID: Final = 2147483546
POS_ID: Final = 2147483545
_POSITION_DELETES: Final = StructType(
    (NestedField(FILE_PATH_ID, "file_path", STRING, True), NestedField(POS_ID, "pos", LONG, True))
)
_WHOLE_PATHS: Final = MetricsModes(NONE, {FILE_PATH_ID: FULL, POS_ID: FULL})
"""Java's `MetricsConfig.forPositionDelete`: readers tell by the whole path what a file is for."""

Path = str | os.PathLike[str]


def position_deletes(
    path: Path,
    table: FileTable,
    *,
    partition: GivenPartition | None,
    spec_id: int | None,
    filesystem: Any,
) -> dict[str, Any]:
    """The members of a position delete file; its rows are deleted by file and position."""
    reader = ParquetReader(table, spec_id, filesystem)
    footer = reader.footer(path, _match_positions, _WHOLE_PATHS)
    members = reader.members(footer, partition, is_data=False)
    return {**members, "referenced_data_file": _referenced_data_file(footer)}


def _match_positions(columns: Sequence[FileColumn], path: str) -> tuple[MatchedColumn, ...]:
    wanted = TableColumns(_POSITION_DELETES, fields_by_id(_POSITION_DELETES), 2)
    return match_columns(columns, wanted, path)


def _referenced_data_file(footer: Footer) -> str | None:
    """The one data file whose rows are deleted, where the footer proves that it is one."""
    paths = footer.statistics[FILE_PATH_ID]
    if paths.lower is None or paths.may_be_cut or paths.lower != paths.upper:
        return None
    found: str = paths.lower
    return found


def equality_deletes(
    path: Path,
    table: FileTable,
    *,
    equality_ids: Iterable[int] | None,
    columns: Iterable[str] | None,
    partition: GivenPartition | None,
    spec_id: int | None,
    sort_order_id: int | None,
    filesystem: Any,
) -> dict[str, Any]:
    """The members of an equality delete file, whose rows say which values are deleted."""
    reader = ParquetReader(table, spec_id, filesystem)
    ids = _equality_ids(reader.columns.by_id, equality_ids, columns)
    footer = reader.footer(path, partial(_match_equality, reader, ids))
    members = reader.members(footer, partition, sort_order_id, is_data=False)
    return {**members, "equality_ids": ids}


def _equality_ids(
    by_id: Mapping[int, SchemaField], given: Iterable[int] | None, names: Iterable[str] | None
) -> tuple[int, ...]:
    if (given is None) == (names is None):
        raise BadRequest("an equality delete file needs equality_ids or columns: give one of them")
    ids_by_name = {found.name: field_id for field_id, found in by_id.items()}
    ids = tuple(given) if given is not None else tuple(ids_by_name.get(n, -1) for n in names or ())
    shown = tuple(given) if given is not None else tuple(names or ())
    for field_id, text in zip(ids, shown, strict=True):
        if field_id not in by_id or not by_id[field_id].field.type.is_primitive:
            raise BadRequest(f"equality columns: {text} is not a primitive column of the table")
    if not ids:
        raise BadRequest("an equality delete file needs one column at least to compare by")
    return ids


def _match_equality(
    reader: ParquetReader, ids: Sequence[int], columns: Sequence[FileColumn], path: str
) -> tuple[MatchedColumn, ...]:
    """Such a file need not have other columns, and deletes nulls by null."""
    wanted = replace(reader.columns, schema=_all_optional(reader.columns.schema))
    matched = match_columns(reader.with_ids(columns, path), wanted, path)
    found = {column.field_id: column for column in matched}
    for field_id in ids:
        name = reader.columns.by_id[field_id].name
        if field_id not in found:
            raise FileDoesNotFit(path, "rows are to be deleted by it, but the file has none", name)
        if found[field_id].is_repeated:
            raise FileDoesNotFit(path, "inside a list or map no rows are deleted by it", name)
    return matched


def _all_optional(struct: StructType) -> StructType:
    return StructType(
        tuple(
            replace(
                field,
                required=False,
                type=_all_optional(field.type)
                if isinstance(field.type, StructType)
                else field.type,
            )
            for field in struct.fields
        )
    )
