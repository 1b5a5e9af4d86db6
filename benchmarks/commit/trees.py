"""The tables before the measurement, with a number of live files and of snapshots.

The manifests are what Java writes for N files in one commit: entries that one snapshot ADDED,
and a new manifest at every 8 MB. All systems share one tree. Only the metadata file differs,
because it contains the table's own location.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
    write_manifest_list,
)

from benchmarks.commit.files import (
    COLUMN_IDS,
    PARTITIONS,
    ROWS,
    SCHEMA,
    SPEC,
    content_file,
    encode,
    file_path,
)
from benchmarks.histories import History, Seed, file_url, make_history, prepare
from frazil.format.manifest.manifest_encoder import manifest_encoder
from frazil.format.manifest.manifest_list import DATA
from frazil.format.manifest.manifest_writer import RollingManifestWriter, WrittenManifest
from frazil.format.metadata.partition_spec import parse_partition_spec
from frazil.format.metadata.schema import parse_schema

SNAPSHOT_ID: Final = 3051729675574597004
MANIFEST_CODEC: Final = "deflate"
METADATA_PROPERTIES: Final[Mapping[str, str]] = {
    # With ten thousand snapshots a metadata file has megabytes. Old files are deleted so that they
    # do not fill the disk.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "2",
}
GZIP_PROPERTIES: Final[Mapping[str, str]] = {"write.metadata.compression-codec": "gzip"}


@dataclass(frozen=True, slots=True)
class Tree:
    """A number of live files, with their manifest list and manifests on disk."""

    files: int
    folder: str
    """The folder of the data files, which do not exist."""
    manifest_list: str
    manifests: int
    manifest_bytes: int

    def path(self, number: int) -> str:
        return file_path(self.folder, number)

    def partition(self, number: int) -> int:
        return partition_of(number, self.files)


def partition_of(number: int, files: int) -> int:
    return number * PARTITIONS // files


def make_tree(folder: Path, files: int) -> Tree:
    """Write a tree, once for a run. Its paths have no scheme, which every system can read."""
    metadata, data = folder / f"tree-{files}", f"{folder}/data-{files}"
    metadata.mkdir(parents=True)
    writer = writer_of(metadata)
    for number in range(files):
        writer.add(content_file(data, number, partition_of(number, files)))
    written = writer.finish()
    for manifest in written:
        Path(manifest.manifest_path).write_bytes(manifest.file)
    path = metadata / f"snap-{SNAPSHOT_ID}-1-{uuid.uuid4()}.avro"
    write_list(str(path), written)
    return Tree(
        files, data, str(path), len(written), sum(manifest.manifest_length for manifest in written)
    )


def writer_of(folder: Path) -> RollingManifestWriter:
    """Return a writer of new manifests in a folder."""
    numbers = iter(range(10_000))
    return RollingManifestWriter(
        _encoder(),
        new_path=lambda: str(folder / f"{uuid.uuid4()}-m{next(numbers)}.avro"),
        snapshot_id=None,
        codec=MANIFEST_CODEC,
    )


@cache
def _encoder() -> Any:
    schema = parse_schema(encode(SCHEMA))
    return manifest_encoder(schema, parse_partition_spec(encode(SPEC)), 2, DATA)


def write_list(path: str, written: tuple[WrittenManifest, ...]) -> None:
    output = PyArrowFileIO().new_output(f"file://{path}")
    # PyIceberg's writer sees the first snapshot of a history, so its sequence number is 1.
    with write_manifest_list(2, output, SNAPSHOT_ID, None, 1, "deflate") as writer:
        writer.add_manifests([listed(manifest) for manifest in written])


def listed(manifest: WrittenManifest) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=manifest.manifest_path,
        manifest_length=manifest.manifest_length,
        partition_spec_id=manifest.partition_spec_id,
        content=ManifestContent.DATA,
        sequence_number=1,
        min_sequence_number=1,
        added_snapshot_id=SNAPSHOT_ID,
        added_files_count=manifest.added_files_count,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=manifest.added_rows_count,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=[
            PartitionFieldSummary(
                one.contains_null, one.contains_nan, one.lower_bound, one.upper_bound
            )
            for one in manifest.partitions
        ],
    )


@dataclass(frozen=True, slots=True)
class Start:
    """The state of a table when it is registered."""

    tree: Tree
    history: History

    @property
    def snapshots(self) -> int:
        return self.history.length

    def metadata_bytes(self, scratch: Path) -> int:
        """Return the size of the metadata file of a table with this start."""
        folder = scratch / f"start-{uuid.uuid4()}"
        location = file_url(folder)
        return prepare(self.history, folder, location, dict(METADATA_PROPERTIES)).metadata_bytes


def make_start(tree: Tree, snapshots: int) -> Start:
    summary = {
        "operation": "append",
        "added-data-files": str(tree.files),
        "added-records": str(tree.files * ROWS),
        "total-data-files": str(tree.files),
        "total-records": str(tree.files * ROWS),
        "total-files-size": str(tree.files * 64_000),
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    head = {
        "snapshot-id": SNAPSHOT_ID,
        "manifest-list": tree.manifest_list,
        "summary": summary,
    }
    return Start(tree, make_history(Seed(_table(), head, (), ROWS), snapshots))


def _table() -> dict[str, Any]:
    """Return metadata without a location, a history and a uuid."""
    return {
        "format-version": 2,
        "last-column-id": len(COLUMN_IDS),
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [SPEC],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
    }


def new_files_folder(folder: Path, location: str) -> str:
    """Return the folder for a table's appended files."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    return f"{location}/data"


def head_totals(metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Return the table's number of snapshots and of live files according to its metadata."""
    head = next(
        one
        for one in metadata["snapshots"]
        if one["snapshot-id"] == metadata["current-snapshot-id"]
    )
    return len(metadata["snapshots"]), int(head["summary"]["total-data-files"])
