"""Iceberg's Java library reads the manifests that we encode, for every format version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from frazil.format.manifest.manifest_encoder import manifest_encoder
from frazil.format.manifest.manifest_list import (
    DATA,
    DELETES,
    PartitionSummary,
    manifest_list_schema,
)
from frazil.format.manifest.manifest_writer import RollingManifestWriter, WrittenManifest
from frazil.format.metadata.content_files import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    DataFile,
    DeleteFile,
)
from frazil.format.metadata.partition_spec import parse_partition_spec
from frazil.format.metadata.schema import parse_schema
from tests.support.trees import avro_bytes

SNAPSHOT_ID, SEQUENCE_NUMBER, FIRST_ROW_ID = 4_000_000_000, 7, 500
TYPES = ["int", "date", "decimal(9, 2)", "uuid", "timestamptz", "string", "double", "time"]
PARTITION = (3, 18_000, Decimal("-1.25"), UUID(int=5), 1_600_000_000_000_000, "ä b", 0.5, 60)
PARTITION_TEXT = [
    *("3", "18000", "-1.25", str(UUID(int=5)), "1600000000000000", "ä b", "0.5", "60")
]
NULLS = (None,) * len(TYPES)
SCHEMA = json.dumps(
    {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": number, "name": f"c{number}", "required": False, "type": kind}
            for number, kind in enumerate(TYPES, 1)
        ],
    }
)
SPEC = json.dumps(
    {
        "spec-id": 0,
        "fields": [
            {"source-id": n, "field-id": 999 + n, "name": f"p {n}", "transform": "identity"}
            for n in range(1, len(TYPES) + 1)
        ],
    }
)


class JavaManifests:
    """Reads a snapshot through Java, starting at its manifest list."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._jvm = jvm
        iceberg = jvm.org.apache.iceberg
        self._iceberg = iceberg
        self._io = iceberg.hadoop.HadoopFileIO(spark._jsc.hadoopConfiguration())
        schema = iceberg.SchemaParser.fromJson(SCHEMA)
        self._specs = jvm.java.util.HashMap()
        self._specs.put(0, iceberg.PartitionSpecParser.fromJson(schema, SPEC))
        self._folder = folder

    def read(self, written: Sequence[WrittenManifest], version: int) -> list[Any]:
        """Return every live file, as Java passes it to its scans."""
        snapshot = self._snapshot(written, version)
        found: list[Any] = []
        for manifest in snapshot.allManifests(self._io):
            files = self._iceberg.ManifestFiles
            is_data = str(manifest.content()) == "DATA"
            read = files.read if is_data else files.readDeleteManifest
            reader = read(manifest, self._io, self._specs)
            files_left = reader.iterator()
            while files_left.hasNext():
                found.append(files_left.next().copy())
            reader.close()
        return found

    def _snapshot(self, written: Sequence[WrittenManifest], version: int) -> Any:
        schema = manifest_list_schema(version)
        records = []
        for manifest in written:
            Path(manifest.manifest_path.removeprefix("file://")).write_bytes(manifest.file)
            values = manifest.listed(SNAPSHOT_ID, SEQUENCE_NUMBER if version > 1 else 0)
            record = {f.name: list_value(values[f.field_id or -1]) for f in schema.record.fields}
            if version == 3 and manifest.content == DATA:
                record["first_row_id"] = FIRST_ROW_ID
            records.append(record)
        path = self._folder / "list.avro"
        header = {"format-version": str(version)}
        path.write_bytes(avro_bytes(schema.tree, records, header, "deflate"))
        snapshot = {
            "snapshot-id": SNAPSHOT_ID,
            "sequence-number": SEQUENCE_NUMBER if version > 1 else 0,
            "timestamp-ms": 1,
            "manifest-list": path.as_uri(),
            **({"first-row-id": FIRST_ROW_ID, "added-rows": 30} if version == 3 else {}),
        }
        return self._iceberg.SnapshotParser.fromJson(json.dumps(snapshot))

    def partition(self, file: Any) -> list[str]:
        partition = file.partition()
        text = self._jvm.java.util.Objects.toString
        return [text(partition.get(at)) for at in range(partition.size())]


def list_value(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    names = PartitionSummary.__slots__
    return [{name: getattr(summary, name) for name in names} for summary in value]


def written_by(folder: Path, version: int, content: int) -> RollingManifestWriter:
    encoder = manifest_encoder(
        parse_schema(SCHEMA.encode()), parse_partition_spec(SPEC.encode()), version, content
    )
    return RollingManifestWriter(
        encoder, new_path=lambda: f"file://{folder}/m{content}.avro", snapshot_id=SNAPSHOT_ID
    )


def data_file(number: int, partition: tuple[Any, ...]) -> DataFile:
    return DataFile(
        file_path=f"file:///table/{number}.parquet",
        file_format="parquet",
        partition=partition,
        record_count=10,
        file_size_in_bytes=2**33,
        column_sizes={1: 2**40, 2: 5},
        value_counts={1: 10},
        null_value_counts={1: 0},
        nan_value_counts={7: 1},
        lower_bounds={1: b"\x01\x00\x00\x00"},
        upper_bounds={1: b"\x02\x00\x00\x00"},
        split_offsets=[4, 2**32],
        sort_order_id=0,
    )


def deletes(number: int, content: int, **changes: Any) -> DeleteFile:
    return DeleteFile(
        content=content,
        file_path=f"file:///table/{number}.deletes",
        file_format=changes.pop("file_format", "parquet"),
        partition=PARTITION,
        record_count=2,
        file_size_in_bytes=99,
        **changes,
    )


def python_value(value: Any) -> Any:
    """Convert Java's maps and lists, which never equal Python's."""
    if isinstance(value, Mapping):
        return {key: value[key] for key in value}
    return list(value) if isinstance(value, Sequence) else value


def same(found: Any, file: ContentFile) -> None:
    assert str(found.location()) == file.file_path
    assert str(found.format()) == file.file_format.upper()
    assert (found.recordCount(), found.fileSizeInBytes()) == (
        file.record_count,
        file.file_size_in_bytes,
    )
    for java, own in (
        (found.columnSizes(), file.column_sizes),
        (found.valueCounts(), file.value_counts),
        (found.nullValueCounts(), file.null_value_counts),
        (found.nanValueCounts(), file.nan_value_counts),
        (found.splitOffsets(), file.split_offsets),
        (found.sortOrderId(), file.sort_order_id),
    ):
        assert python_value(java) == own
    assert byte_values(found.lowerBounds()) == file.lower_bounds
    assert byte_values(found.upperBounds()) == file.upper_bounds


def byte_values(bounds: Any) -> dict[int, bytes] | None:
    return None if bounds is None else {key: bytes(bounds[key].array()) for key in bounds}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_java_reads_data_manifests(spark: SparkSession, tmp_path: Path, version: int) -> None:
    added, existing = data_file(1, PARTITION), data_file(2, NULLS)
    writer = written_by(tmp_path, version, DATA)
    writer.add(added)
    writer.existing(existing, 33, 4, 5)
    writer.delete(data_file(3, PARTITION), 2, 2)
    java = JavaManifests(spark, tmp_path)
    found = java.read(writer.finish(), version)
    assert len(found) == 2
    same(found[0], added)
    same(found[1], existing)
    assert java.partition(found[0]) == PARTITION_TEXT
    assert java.partition(found[1]) == ["null"] * len(TYPES)
    numbers = [(file.dataSequenceNumber(), file.fileSequenceNumber()) for file in found]
    assert numbers == ([(0, 0), (0, 0)] if version == 1 else [(7, 7), (4, 5)])
    if version == 3:
        assert [file.firstRowId() for file in found] == [500, 510]


@pytest.mark.parametrize("version", [2, 3])
def test_java_reads_delete_manifests(spark: SparkSession, tmp_path: Path, version: int) -> None:
    target = "file:///table/1.parquet"
    written = [deletes(2, EQUALITY_DELETES, equality_ids=[1, 2])]
    if version == 3:
        vector = {"content_offset": 4, "content_size_in_bytes": 40, "file_format": "puffin"}
        written.append(deletes(1, POSITION_DELETES, referenced_data_file=target, **vector))
    else:
        written.append(deletes(1, POSITION_DELETES, referenced_data_file=target))
    writer = written_by(tmp_path, version, DELETES)
    for file in written:
        writer.add(file)
    java = JavaManifests(spark, tmp_path)
    found = java.read(writer.finish(), version)
    for other, file in zip(found, written, strict=True):
        same(other, file)
        assert other.content().id() == file.content
        assert python_value(other.equalityFieldIds()) == file.equality_ids
        assert other.referencedDataFile() == file.referenced_data_file
        assert other.contentOffset() == file.content_offset
        assert other.contentSizeInBytes() == file.content_size_in_bytes
        assert java.partition(other) == PARTITION_TEXT
        assert other.dataSequenceNumber() == SEQUENCE_NUMBER
