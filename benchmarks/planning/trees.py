"""The planned tables: live files in real manifests on disk, in one snapshot."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as PyIcebergFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from benchmarks.commit.files import encode
from benchmarks.commit.trees import MANIFEST_CODEC, SNAPSHOT_ID, listed
from benchmarks.histories import Seed, file_url, make_history, prepare
from benchmarks.planning.files import (
    CLUSTERED,
    FINE,
    ROWS,
    SCATTERED,
    SCHEMA,
    SPEC,
    TYPES,
    content_file,
)
from frazil.format.manifest.manifest_encoder import manifest_encoder
from frazil.format.manifest.manifest_list import DATA
from frazil.format.manifest.manifest_writer import RollingManifestWriter
from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.partition_spec import parse_partition_spec
from frazil.format.metadata.schema import parse_schema

BY_PYICEBERG: Final = "scattered, written by PyIceberg"
"""Its manifests have one entry in each block."""
SMALL: Final = "clustered, small manifests"
"""Like a table after many small appends whose manifests were never merged."""
_FILES_OF_A_SMALL_ONE: Final = 50
_SHORT: Final = {BY_PYICEBERG: "stock", FINE: "fine", SMALL: "small"}
_FILES_OF_A_MANIFEST: Final = 5_000
"""For manifests by PyIceberg, which would write all files of an append into one manifest."""
_PROCESSES: Final = 2


@dataclass(frozen=True, slots=True)
class Kind:
    """The size and layout of a table."""

    files: int
    layout: str


@dataclass(frozen=True, slots=True)
class Tree:
    kind: Kind
    name: str
    metadata_location: str
    manifests: tuple[str, ...]
    manifest_bytes: int
    path_bytes: int
    """The total length of the paths of all data files."""


def make_trees(folder: Path, kinds: Iterable[Kind]) -> list[Tree]:
    """Write the trees in several processes, because a million files take a minute."""
    with ProcessPoolExecutor(_PROCESSES) as pool:
        return list(pool.map(make_tree, *zip(*((folder, kind) for kind in kinds), strict=True)))


def make_tree(folder: Path, kind: Kind) -> Tree:
    name = f"t{kind.files}_{_SHORT.get(kind.layout, kind.layout)}"
    table = folder / name
    manifests = table / "manifests"
    manifests.mkdir(parents=True)
    data = f"{table}/data"
    write = _written_by_pyiceberg if _is_stock(kind) else _written
    written = write(manifests, data, kind)
    path = manifests / f"snap-{SNAPSHOT_ID}-1-{uuid.uuid4()}.avro"
    _write_list(path, written)
    made = prepare(_history(kind, str(path)), table, file_url(table), {})
    return Tree(
        kind,
        name,
        made.metadata_location,
        tuple(one.manifest_path for one in written),
        sum(one.manifest_length for one in written),
        kind.files * len(content_file(data, 0, kind.files, SCATTERED).file_path),
    )


def _is_stock(kind: Kind) -> bool:
    return kind.layout == BY_PYICEBERG


def _written(folder: Path, data: str, kind: Kind) -> list[ManifestFile]:
    """Write manifests with Frazil's writer, up to 8 MiB each unless they should be small."""
    numbers = itertools.count()
    order = CLUSTERED if kind.layout == SMALL else kind.layout
    most = _FILES_OF_A_SMALL_ONE if kind.layout == SMALL else kind.files
    found: list[ManifestFile] = []
    for start in range(0, kind.files, most):
        writer = RollingManifestWriter(
            _encoder(),
            new_path=lambda: str(folder / f"{uuid.uuid4()}-m{next(numbers)}.avro"),
            snapshot_id=None,
            codec=MANIFEST_CODEC,
        )
        for number in range(start, min(start + most, kind.files)):
            writer.add(content_file(data, number, kind.files, order))
        for manifest in writer.finish():
            Path(manifest.manifest_path).write_bytes(manifest.file)
            found.append(listed(manifest))
    return found


@cache
def _encoder() -> Any:
    schema = parse_schema(encode(SCHEMA))
    return manifest_encoder(schema, parse_partition_spec(encode(SPEC)), 2, DATA)


def _written_by_pyiceberg(folder: Path, data: str, kind: Kind) -> list[ManifestFile]:
    schema, spec = Schema.model_validate(SCHEMA), PartitionSpec.model_validate(SPEC)
    found: list[ManifestFile] = []
    for start in range(0, kind.files, _FILES_OF_A_MANIFEST):
        path = folder / f"{uuid.uuid4()}-m{len(found)}.avro"
        output = PyArrowFileIO().new_output(file_url(path))
        with write_manifest(2, spec, schema, output, SNAPSHOT_ID, "deflate") as writer:
            for number in range(start, min(start + _FILES_OF_A_MANIFEST, kind.files)):
                file = _stock_file(content_file(data, number, kind.files, SCATTERED))
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=SNAPSHOT_ID, data_file=file
                )
                writer.add_entry(entry)
        found.append(writer.to_manifest_file())
    return found


def _stock_file(file: DataFile) -> PyIcebergFile:
    made = PyIcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.file_path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        split_offsets=file.split_offsets,
        sort_order_id=file.sort_order_id,
    )
    made.spec_id = 0
    return made


def _write_list(path: Path, manifests: Iterable[ManifestFile]) -> None:
    output = PyArrowFileIO().new_output(file_url(path))
    with write_manifest_list(2, output, SNAPSHOT_ID, None, 1, "deflate") as writer:
        writer.add_manifests(list(manifests))


def _history(kind: Kind, manifest_list: str) -> Any:
    summary = {
        "operation": "append",
        "added-data-files": str(kind.files),
        "total-data-files": str(kind.files),
        "total-records": str(kind.files * ROWS),
    }
    head = {"snapshot-id": SNAPSHOT_ID, "manifest-list": manifest_list, "summary": summary}
    table = {
        "format-version": 2,
        "last-column-id": len(TYPES),
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [SPEC],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
    }
    return make_history(Seed(table, head, (), ROWS), 1)
