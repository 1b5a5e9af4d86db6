"""Writes files by Spark's own Parquet writer, the fastest one, where it can write what is needed.

It writes field ids for flat columns only, has no uuid and no fixed, and ends files by their number
of rows. Threads of the driver then read the footers for the commit. NaNs are not counted, since
that would mean reading the columns again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED_FIELD, ROW_ID, ROW_ID_FIELD
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.footers.footer_partitions import partition_fields_of
from frazil.datafiles.footers.footer_reader import ParquetReader
from frazil.datafiles.footers.python_values import internal_value
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage, is_local
from frazil.datafiles.writing.write_properties import TARGET_SIZE, FileOptions
from frazil.spark.core.borrowed_settings import PARQUET_SETTINGS, session_settings
from frazil.spark.core.context import Context, setting_text
from frazil.spark.core.name_matching import column
from frazil.spark.schema.spark_types import FIELD_ID_METADATA, FLAT_TYPES
from frazil.spark.writing.distribution import Layout, spread
from frazil.spark.writing.partition_folders import IN_FILE, folder_columns, folder_values
from frazil.spark.writing.write_commit import WriteFolder
from frazil.values.partition_proof import PartitionField
from frazil.values.transforms import apply
from frazil.values.types import NestedField, StructType, TypeId
from frazil.wire.errors import BadRequest

_WRITABLE: Final = FLAT_TYPES | {TypeId.UNKNOWN}
"""Files have no columns of the type unknown at all."""
_WIDTHS_BYTES: Final = {
    TypeId.BOOLEAN: 1,
    TypeId.INT: 4,
    TypeId.FLOAT: 4,
    TypeId.DATE: 4,
    TypeId.STRING: 24,
    TypeId.BINARY: 64,
}
"""The uncompressed size of a value in a file; 8 for all other types."""
_READERS_PER_CPU: Final = 4
_MAX_READERS: Final = 32


# --- whether the writer can be used -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Objection:
    reason: str
    is_preference: bool = False
    """Whether the writer can be used all the same, if the user asks for it."""


def objections(
    facts: PortableTable, location: str, options: FileOptions, *, is_sized: bool
) -> list[Objection]:
    """Return the reasons against Spark's writer for a table's files."""
    reasons = [
        Objection(f"column {field.name} is of type {field.type.type_id.value}")
        for field in facts.schema.fields
        if field.type.type_id not in _WRITABLE
    ]
    if options.codec == "brotli":
        reasons.append(Objection("the codec brotli is not part of Spark"))
    if options.compression_level is not None and options.codec not in ("zstd", "uncompressed"):
        reasons.append(Objection(f"it knows no compression level for {options.codec}"))
    if options.without_statistics:
        reasons.append(Objection("some columns are to have no statistics"))
    if not is_local(location):
        reasons.append(Objection(f"{location} is not a local file system", is_preference=True))
    if is_sized or TARGET_SIZE in facts.properties:
        reasons.append(Objection("a file size in bytes is asked for", is_preference=True))
    return reasons


def is_flat(facts: PortableTable) -> bool:
    """Return whether Spark stores every column as Iceberg does."""
    return all(field.type.type_id in _WRITABLE for field in facts.schema.fields)


# --- writing ------------------------------------------------------------------------------------


def write_jvm(
    context: Context,
    facts: PortableTable,
    frame: DataFrame,
    folder: WriteFolder,
    options: FileOptions,
    layout: Layout,
    *,
    lineage: bool = False,
) -> tuple[DataFile, ...]:
    """Write rows in one job into a folder inside `folder`, and read the footers."""
    schema = facts.schema
    fields = _file_fields(schema, lineage=lineage)
    partition = partition_fields_of(facts, options.spec_id)
    columns = folder_columns(partition, schema, [field.name for field in fields])
    rows = spread(_with_ids(frame, fields), columns, layout, schema)
    location = f"{folder.location}/{uuid4().hex[:8]}"
    writer = rows.write.mode("append").options(**_writer_options(fields, options))
    if columns:
        writer = writer.partitionBy(*columns)
    with session_settings(context.spark, PARQUET_SETTINGS):
        writer.parquet(location)
    inner = WriteFolder(location, folder.storage)
    return _declared_files(facts, partition, inner, options)


def _file_fields(schema: StructType, *, lineage: bool) -> list[NestedField]:
    fields = (*schema.fields, ROW_ID_FIELD, LAST_UPDATED_FIELD) if lineage else schema.fields
    return [field for field in fields if field.type.type_id is not TypeId.UNKNOWN]


def _with_ids(frame: DataFrame, fields: Sequence[NestedField]) -> DataFrame:
    return frame.select(
        *(
            column(field.name).alias(field.name, metadata={FIELD_ID_METADATA: field.field_id})
            for field in fields
        )
    )


def _writer_options(fields: Sequence[NestedField], options: FileOptions) -> dict[str, Any]:
    """Return Parquet's settings, which Spark passes to its writer."""
    width = sum(_WIDTHS_BYTES.get(field.type.type_id, 8) for field in fields)
    settings: dict[str, Any] = {
        "compression": "lz4_raw" if options.codec == "lz4" else options.codec,
        "maxRecordsPerFile": max(1, options.target_file_size_bytes // max(1, width)),
        "parquet.block.size": options.row_group_size_bytes,
        "parquet.page.size": options.page_size_bytes,
        "parquet.page.row.count.limit": options.page_row_limit,
        "parquet.dictionary.page.size": options.dict_size_bytes,
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if options.page_version == "v2":
        settings["parquet.writer.version"] = "v2"
    if options.compression_level is not None:
        settings["parquet.compression.codec.zstd.level"] = options.compression_level
    # Row ids are unique, so that a dictionary does not help.
    settings[f"parquet.enable.dictionary#{ROW_ID}"] = False
    for name, is_enabled in options.dictionaries:
        settings[f"parquet.enable.dictionary#{name}"] = is_enabled
    for bloom in options.bloom_filters:
        settings[f"parquet.bloom.filter.enabled#{bloom.column}"] = True
        settings[f"parquet.bloom.filter.fpp#{bloom.column}"] = bloom.fpp
        settings["parquet.bloom.filter.max.bytes"] = bloom.max_bytes
        if bloom.ndv is not None:
            settings[f"parquet.bloom.filter.expected.ndv#{bloom.column}"] = bloom.ndv
    return {name: setting_text(value) for name, value in settings.items()}


# --- footers ------------------------------------------------------------------------------------


def _declared_files(
    facts: PortableTable,
    fields: Sequence[PartitionField],
    folder: WriteFolder,
    options: FileOptions,
) -> tuple[DataFile, ...]:
    storage = folder.storage
    filesystem, _ = storage.filesystem(folder.location)
    reader = ParquetReader(facts, options.spec_id, filesystem, reads_nans=False)

    def declared(path: str) -> DataFile | None:
        values = folder_values(fields, path.removeprefix(folder.location))
        if values is None:
            _refuse_rows(storage, path)
            return None
        if IN_FILE in values:
            values = _values_in_file(storage, path, fields, values)
        file = DataFile(**reader.data_file(path, values, options.sort_order_id))
        return file if file.record_count else None

    # Hadoop writes hidden checksums beside local files; they are removed with the folder.
    paths = [
        path
        for path in storage.list(folder.location)
        if not path.rpartition("/")[2].startswith((".", "_"))
    ]
    if not paths:
        _check_seen(folder)
        return ()
    workers = min(_MAX_READERS, _READERS_PER_CPU * (os.cpu_count() or 1), len(paths))
    with ThreadPoolExecutor(workers, thread_name_prefix="frazil-footers") as pool:
        files = list(pool.map(declared, paths))
    storage.delete(path for path, file in zip(paths, files, strict=True) if file is None)
    return tuple(file for file in files if file is not None)


def _check_seen(folder: WriteFolder) -> None:
    """Refuse a folder that cannot be seen from here; Spark makes it even for no rows."""
    if not folder.storage.has_folder(folder.location):
        raise BadRequest(
            f"{folder.location} is where Spark has written, but it is not seen from here: keep the "
            "table where driver, executors and this client can all reach it, or use the engine "
            "arrow, whose tasks return what they have written"
        )


def _refuse_rows(storage: Storage, path: str) -> None:
    """Check that a file outside of the partitions' folders is the empty one for no rows."""
    with storage.open_input(path) as source:
        rows = pq.read_metadata(source).num_rows
    if rows:
        raise AssertionError(f"{path}: {rows} rows lie outside of the folders of partitions")


def _values_in_file(
    storage: Storage, path: str, fields: Sequence[PartitionField], values: Sequence[Any]
) -> tuple[Any, ...]:
    """Return a file's partition by its first row, since all rows are of one partition."""
    partition = []
    with storage.open_input(path) as source, pq.ParquetFile(source) as file:
        for field, value in zip(fields, values, strict=True):
            if value is not IN_FILE:
                partition.append(value)
                continue
            assert field.source is not None
            batch = next(file.iter_batches(batch_size=1, columns=[field.source.name]))
            type_ = field.source.type
            source_value = internal_value(type_, batch.column(0)[0])
            partition.append(apply(field.transform, type_, source_value))
    return tuple(partition)
