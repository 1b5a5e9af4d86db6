"""Writes equality deletes: the keys of deleted rows, without looking for the rows.

A delete file applies to data files of its own partition spec and partition, or to the whole table
if its spec is unpartitioned (spec, "Scan Planning"). So a row's key must determine its partition in
every spec that has files, or there must be an unpartitioned spec for the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile, EqualityDeleteFile
from frazil.datafiles.footers.footer_partitions import partition_fields_of
from frazil.datafiles.portable_table import FileTable, PortableTable
from frazil.datafiles.writing.write_properties import positive_property
from frazil.spark.core.name_matching import column
from frazil.spark.schema.spark_types import spark_type
from frazil.spark.writing.frame_writer import WriteOptions, WritePlan, write_arrow
from frazil.spark.writing.write_commit import WriteFolder
from frazil.values.transforms import Void
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest

TARGET_SIZE_PROPERTY: Final = "write.delete.target-file-size-bytes"
_TARGET_SIZE_DEFAULT_BYTES: Final = 64 << 20
_UNSORTED: Final[Mapping[str, Any]] = {
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
}


def write_equality_deletes(
    table: Table, rows: DataFrame, key: Sequence[NestedField], folder: WriteFolder
) -> tuple[EqualityDeleteFile, ...]:
    """Delete all rows that are older than the commit and have a key of one of the frame's rows.

    A key may occur twice. A null equals a null.
    """
    # The order is that of the schema (spec, "Identifier Field IDs").
    fields = tuple(field for field in table.schema.fields if field in key)
    ids = tuple(field.field_id for field in fields)
    keys = rows.select(*map(_typed, fields))
    files: list[EqualityDeleteFile] = []
    for spec_id in covering_specs(table, ids):
        facts = PortableTable.of(table, StructType(fields))
        metadata = {**facts.metadata, **_UNSORTED, "default-spec-id": spec_id}
        written = _write(replace(facts, metadata=metadata), keys, folder)
        files += (_equality_deletes(file, ids) for file in written)
    return tuple(files)


def _typed(field: NestedField) -> Column:
    """Return the column of that name in the type of the table."""
    return column(field.name).cast(spark_type(field.type)).alias(field.name)


# --- partitions -----------------------------------------------------------------------------------


def covering_specs(table: Table, key_ids: Sequence[int]) -> tuple[int, ...]:
    """Return the specs in which keys must be written to delete every matching row."""
    sources = {
        spec["spec-id"]: frozenset(_sources(table, spec["spec-id"]))
        for spec in table.metadata["partition-specs"]
    }
    unpartitioned = [spec_id for spec_id, ids in sources.items() if not ids]
    if unpartitioned:
        return (unpartitioned[0],)
    key = frozenset(key_ids)
    if any(not ids <= key for ids in sources.values()):
        with table.leased_plans() as leased:
            live = {file.spec_id for file in leased.plan().files} | {table.spec()["spec-id"]}
        sources = {spec_id: ids for spec_id, ids in sources.items() if spec_id in live}
    for spec_id, ids in sources.items():
        _check_covered(table, spec_id, ids - key)
    return tuple(sources)


def _sources(table: FileTable, spec_id: int) -> Iterator[int]:
    """Yield the ids of the columns that determine a row's partition."""
    for field in partition_fields_of(table, spec_id):
        if not isinstance(field.transform, Void):
            yield field.source_id


def _check_covered(table: Table, spec_id: int, missing: frozenset[int]) -> None:
    for field in partition_fields_of(table, spec_id):
        if field.source_id in missing:
            raise BadRequest(
                f"{table}: its rows are in partitions by {field.name} (spec {spec_id}), and their "
                f"column {field.source_name or field.source_id} is not part of the key, so that "
                "the key does not tell which partition a row is in. Equality deletes without a "
                "partition exist for unpartitioned tables alone: add the column to the key, or "
                "upsert by deletion vectors"
            )


# --- files ----------------------------------------------------------------------------------------


def _write(facts: PortableTable, keys: DataFrame, folder: WriteFolder) -> tuple[DataFile, ...]:
    size = positive_property(facts.properties, TARGET_SIZE_PROPERTY, _TARGET_SIZE_DEFAULT_BYTES)
    options = WriteOptions(distribution="hash", target_file_size_bytes=size)
    if not any(_sources(facts, facts.metadata["default-spec-id"])):
        # Without a distribution each task would write a small file.
        keys = keys.hint("rebalance")
    plan = WritePlan.of(facts, options)
    return write_arrow(facts, plan.distributed(keys), folder, plan.files)


def _equality_deletes(file: DataFile, ids: tuple[int, ...]) -> EqualityDeleteFile:
    members = msgspec.structs.asdict(file)
    del members["first_row_id"]
    return EqualityDeleteFile(**members, equality_ids=ids)
