"""Files and manifests for the tests of the columnar form and of copies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from frazil.format.manifest.manifest_encoder import ManifestEncoder, manifest_encoder
from frazil.format.manifest.manifest_list import DATA, ManifestFile
from frazil.format.manifest.manifest_writer import RollingManifestWriter
from frazil.format.metadata.content_files import ContentFile, DataFile, DeleteFile
from frazil.format.metadata.partition_spec import parse_partition_spec
from frazil.format.metadata.schema import parse_schema

LISTED = ManifestFile(
    "m", 1, 0, DATA, 3, 3, 5, None, None, None, None, None, None, None, False, b""
)


def encoder_of(*types: str, version: int = 2, content: int = DATA) -> ManifestEncoder:
    columns = [
        {"id": number, "name": f"c{number}", "required": False, "type": kind}
        for number, kind in enumerate(types, 1)
    ]
    fields = [
        {"source-id": n, "field-id": 999 + n, "name": f"p{n}", "transform": "identity"}
        for n in range(1, len(types) + 1)
    ]
    schema = {"type": "struct", "schema-id": 0, "fields": columns}
    return manifest_encoder(
        parse_schema(json.dumps(schema).encode()),
        parse_partition_spec(json.dumps({"spec-id": 4, "fields": fields}).encode()),
        version,
        content,
    )


def data_file(number: int, partition: tuple[Any, ...] = (), **changes: Any) -> DataFile:
    values: dict[str, Any] = {
        "file_path": f"s3://bucket/data/{number:05}.parquet",
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": 10 + number,
        "file_size_in_bytes": 1_000 * number,
        "column_sizes": {1: 100, 2: 300 + number},
        "value_counts": {1: 10, 200: 1 << 40},
        "null_value_counts": {1: 0},
        "nan_value_counts": {},
        "lower_bounds": {1: bytes(8), 2: b"a" * number},
        "upper_bounds": {1: b"\xff" * 8, 300: b""},
        "split_offsets": [4, 1 << 30],
        "sort_order_id": 0,
    }
    return DataFile(**{**values, **changes})


def delete_file(number: int, content: int, **changes: Any) -> DeleteFile:
    return DeleteFile(
        content=content,
        file_path=f"s3://bucket/deletes/{number}.parquet",
        file_format="PARQUET",
        record_count=number,
        file_size_in_bytes=number,
        **changes,
    )


def manifest_of(
    encoder: ManifestEncoder, files: Sequence[ContentFile], codec: str = "deflate"
) -> bytes:
    """Return a manifest whose files are added, existing and deleted in turn; version 1 has no
    sequence numbers."""
    writer = RollingManifestWriter(
        encoder, new_path=lambda: "m", snapshot_id=100, target_size_bytes=1 << 40, codec=codec
    )
    for number, file in enumerate(files):
        if number % 3 == 0:
            writer.add(file)
        elif number % 3 == 1:
            writer.existing(file, 7, number, None if number % 2 else number)
        else:
            writer.delete(file, number, number)
    (written,) = writer.finish()
    return written.file


def long(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))
