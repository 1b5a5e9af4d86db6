"""Reads tables from disk and says which files each snapshot reaches, and whether all is well.

It uses `json`, `fastavro`, pyarrow for Parquet and `pyroaring` for vectors, and its own version of
the specification's rules. It imports nothing of Frazil, so that it can judge what Frazil deletes.

Paths are local: `file:///a`, `file:/a` and `/a` are the same file.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyroaring import BitMap64

DELETED = 2
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
VECTOR_TYPE = "deletion-vector-v1"
_MAGIC = b"PFA1"
_VECTOR_MAGIC = bytes.fromhex("d1d33964")


class Lost(AssertionError):
    """A file that is reachable is missing or damaged, or the metadata contradicts itself."""


def local(location: str) -> str:
    """Return the local path of a location."""
    path = location.removeprefix("file:")
    return os.path.normpath("/" + path.lstrip("/"))


@dataclass(frozen=True)
class ContentFile:
    """A live data or delete file of a snapshot, with its inherited values."""

    path: str
    content: int
    format: str
    records: int
    size: int
    spec_id: int
    partition: tuple[Any, ...]
    sequence_number: int
    file_sequence_number: int
    first_row_id: int | None
    equality_ids: tuple[int, ...]
    referenced: str | None
    offset: int | None
    length: int | None

    @property
    def is_vector(self) -> bool:
        return self.offset is not None


@dataclass(frozen=True)
class SnapshotTree:
    """Everything that one snapshot reaches."""

    snapshot: Mapping[str, Any]
    manifest_list: str
    manifests: tuple[str, ...]
    live: tuple[ContentFile, ...]

    @cached_property
    def files(self) -> frozenset[str]:
        """The paths of all files: the manifest list, the manifests and the live files."""
        return frozenset((self.manifest_list, *self.manifests, *(file.path for file in self.live)))

    @cached_property
    def data(self) -> Mapping[str, ContentFile]:
        return {file.path: file for file in self.live if file.content == DATA}


@dataclass(frozen=True)
class TableTree:
    """One state of a table, as its metadata file describes it."""

    metadata_location: str
    metadata: Mapping[str, Any] = field(repr=False)
    snapshots: Mapping[int, SnapshotTree] = field(repr=False)

    @property
    def uuid(self) -> str:
        return str(self.metadata["table-uuid"])

    @property
    def location(self) -> str:
        return local(self.metadata["location"])

    @property
    def refs(self) -> Mapping[str, Mapping[str, Any]]:
        return self.metadata.get("refs") or {}

    @cached_property
    def statistics(self) -> frozenset[str]:
        """The paths of table and partition statistics."""
        return frozenset(path for _, path in statistics_files(self.metadata))

    @cached_property
    def metadata_files(self) -> frozenset[str]:
        """The paths of the metadata file and of those in its log."""
        log = (entry["metadata-file"] for entry in self.metadata.get("metadata-log") or [])
        return frozenset(map(local, (self.metadata_location, *log)))

    @cached_property
    def reached(self) -> frozenset[str]:
        """The paths of all files that this state of the table needs."""
        files = (tree.files for tree in self.snapshots.values())
        return frozenset().union(*files, self.statistics, self.metadata_files)

    def ancestors(self, snapshot_id: int) -> Iterator[int]:
        """Yield the snapshot and its ancestors that are still there, newest first."""
        found: int | None = snapshot_id
        while found is not None and found in self.snapshots:
            yield found
            found = self.snapshots[found].snapshot.get("parent-snapshot-id")


class Oracle:
    """Reads tables. Each file is parsed once: files of tables never change."""

    def __init__(self) -> None:
        self._manifests: dict[tuple[str, int, int | None], tuple[ContentFile, ...]] = {}
        self._trees: dict[tuple[str, int], SnapshotTree] = {}
        self._opened: dict[str, tuple[int, int]] = {}

    # --- reading ---------------------------------------------------------------------------------

    def table(self, metadata_location: str) -> TableTree:
        """Read the metadata file and everything below its snapshots."""
        path = local(metadata_location)
        metadata = read_metadata(path)
        trees = {
            snapshot["snapshot-id"]: self.snapshot(snapshot)
            for snapshot in metadata.get("snapshots") or []
        }
        return TableTree(path, metadata, trees)

    def snapshot(self, snapshot: Mapping[str, Any]) -> SnapshotTree:
        """Read the manifest list and the manifests of a snapshot."""
        path = local(snapshot["manifest-list"])
        key = (path, snapshot["snapshot-id"])
        if key not in self._trees:
            listed = _avro(path)
            live = tuple(file for manifest in listed for file in self._live(manifest))
            manifests = tuple(local(manifest["manifest_path"]) for manifest in listed)
            self._trees[key] = SnapshotTree(dict(snapshot), path, manifests, live)
        return self._trees[key]

    def _live(self, manifest: Mapping[str, Any]) -> tuple[ContentFile, ...]:
        path = local(manifest["manifest_path"])
        key = (path, manifest.get("sequence_number") or 0, manifest.get("first_row_id"))
        if key not in self._manifests:
            if len(_content(path)) != manifest["manifest_length"]:
                raise Lost(f"{path} has not the {manifest['manifest_length']} bytes of its list")
            self._manifests[key] = tuple(_live_files(path, manifest))
        return self._manifests[key]

    # --- checking --------------------------------------------------------------------------------

    def check(self, tree: TableTree) -> None:
        """Check the invariants of a table, and open every file that it reaches."""
        check_history(tree.metadata)
        for snapshot in tree.snapshots.values():
            check_snapshot(tree.metadata, snapshot)
            for file in snapshot.live:
                self.open(file)
        for statistics, path in statistics_files(tree.metadata):
            if "file-footer-size-in-bytes" in statistics:
                self._once(path, lambda content: puffin_footer(content))
            else:
                self._once(path, lambda _: None)
        self.exist(tree.reached)

    def open(self, file: ContentFile) -> None:
        """Check that a live file is whole: its footer parses and has the declared rows."""
        if file.is_vector:
            self._once(
                file.path,
                lambda content: check_vector(content, file),
                key=f"{file.path}@{file.offset}",
            )
        elif file.format == "PARQUET":
            self._once(file.path, lambda content: check_parquet(content, file))
        else:
            raise Lost(f"{file.path} has the format {file.format}, which this oracle cannot open")

    def exist(self, paths: Iterable[str]) -> None:
        """Check that files are there, and are the same as when they were opened."""
        missing = sorted(path for path in paths if not self._is_there(path))
        if missing:
            raise Lost(f"missing or changed: {len(missing)} files: {missing[:5]}")

    def _is_there(self, path: str) -> bool:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return False
        return self._opened.get(path, _identity(status)) == _identity(status)

    def _once(self, path: str, check: Any, key: str | None = None) -> None:
        if (key or path) in self._opened:
            return
        check(_content(path))
        self._opened[path] = self._opened[key or path] = _identity(os.stat(path))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_ino


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise Lost(f"missing: {path}") from None


# --- metadata and manifests -----------------------------------------------------------------------


def read_metadata(path: str) -> dict[str, Any]:
    content = _content(path)
    plain = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    document: dict[str, Any] = json.loads(plain)
    return document


def statistics_files(metadata: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    for kind in ("statistics", "partition-statistics"):
        for statistics in metadata.get(kind) or []:
            yield statistics, local(statistics["statistics-path"])


def _avro(path: str) -> list[dict[str, Any]]:
    content = _content(path)
    try:
        return list(fastavro.reader(io.BytesIO(content)))  # type: ignore[arg-type]
    except Exception as error:
        raise Lost(f"{path} cannot be read as Avro: {error!r}") from error


def _live_files(path: str, manifest: Mapping[str, Any]) -> Iterator[ContentFile]:
    inherited = manifest.get("sequence_number") or 0
    next_row_id = manifest.get("first_row_id")
    for entry in _avro(path):
        if entry["status"] == DELETED:
            continue
        file = entry["data_file"]
        first_row_id = file.get("first_row_id")
        content = file.get("content") or DATA
        if content == DATA and first_row_id is None and next_row_id is not None:
            first_row_id = next_row_id
            next_row_id += file["record_count"]
        referenced = file.get("referenced_data_file")
        yield ContentFile(
            path=local(file["file_path"]),
            content=content,
            format=file["file_format"].upper(),
            records=file["record_count"],
            size=file["file_size_in_bytes"],
            spec_id=manifest["partition_spec_id"],
            partition=tuple((file.get("partition") or {}).values()),
            sequence_number=_or(entry.get("sequence_number"), inherited),
            file_sequence_number=_or(entry.get("file_sequence_number"), inherited),
            first_row_id=first_row_id,
            equality_ids=tuple(file.get("equality_ids") or ()),
            referenced=None if referenced is None else local(referenced),
            offset=file.get("content_offset"),
            length=file.get("content_size_in_bytes"),
        )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


# --- invariants -----------------------------------------------------------------------------------


def check_history(metadata: Mapping[str, Any]) -> None:
    """Check that sequence numbers strictly increase, and that parents form a chain."""
    snapshots = {each["snapshot-id"]: each for each in metadata.get("snapshots") or []}
    if metadata["format-version"] > 1:
        numbers = Counter(each["sequence-number"] for each in snapshots.values())
        twice = [number for number, count in numbers.items() if count > 1]
        if twice:
            raise Lost(f"sequence numbers of several snapshots: {twice}")
        if max(numbers, default=0) > metadata["last-sequence-number"]:
            raise Lost(f"a snapshot is newer than {metadata['last-sequence-number']}")
    for snapshot in snapshots.values():
        parent = snapshots.get(snapshot.get("parent-snapshot-id"))
        if parent is None:
            continue
        if parent is snapshot or (
            metadata["format-version"] > 1
            and parent["sequence-number"] >= snapshot["sequence-number"]
        ):
            raise Lost(f"{snapshot['snapshot-id']} is not newer than its parent")
    heads = {ref["snapshot-id"] for ref in (metadata.get("refs") or {}).values()}
    current = metadata.get("current-snapshot-id")
    named = heads | ({current} if current not in (None, -1) else set())
    if not named <= snapshots.keys():
        raise Lost(f"refs point to snapshots that are gone: {named - snapshots.keys()}")


def check_snapshot(metadata: Mapping[str, Any], tree: SnapshotTree) -> None:
    """Check that no file is live twice, vectors are unique, and row ids do not overlap."""
    snapshot_id = tree.snapshot["snapshot-id"]
    twice = [
        key
        for key, count in Counter((file.path, file.offset) for file in tree.live).items()
        if count > 1
    ]
    if twice:
        raise Lost(f"live twice in {snapshot_id}: {twice}")
    vectors = Counter(file.referenced for file in tree.live if file.is_vector)
    if any(count > 1 for count in vectors.values()):
        raise Lost(f"several vectors for one data file in {snapshot_id}: {vectors}")
    newest = max((file.file_sequence_number for file in tree.live), default=0)
    if metadata["format-version"] > 1 and newest > tree.snapshot["sequence-number"]:
        raise Lost(f"a file of {snapshot_id} is newer than the snapshot")
    older = [file.path for file in tree.live if file.sequence_number > file.file_sequence_number]
    if older:
        raise Lost(f"data that is newer than its file in {snapshot_id}: {older}")
    _check_row_ids(tree)


def _check_row_ids(tree: SnapshotTree) -> None:
    taken = sorted(
        (file.first_row_id, file.records, file.path)
        for file in tree.data.values()
        if file.first_row_id is not None
    )
    for (first, records, path), (following, _, other) in pairwise(taken):
        if first + records > following:
            raise Lost(f"{path} and {other} have the same row ids")


# --- files ----------------------------------------------------------------------------------------


def check_parquet(content: bytes, file: ContentFile) -> None:
    if len(content) != file.size:
        raise Lost(f"{file.path} has {len(content)} bytes, and {file.size} are declared")
    try:
        footer = pq.read_metadata(io.BytesIO(content))
    except Exception as error:
        raise Lost(f"{file.path} is no Parquet file: {error!r}") from error
    if footer.num_rows != file.records:
        raise Lost(f"{file.path} has {footer.num_rows} rows, and {file.records} are declared")


def puffin_footer(content: bytes) -> list[dict[str, Any]]:
    """Return the blobs that the footer of a Puffin file describes."""
    if content[:4] != _MAGIC or content[-4:] != _MAGIC:
        raise Lost("a Puffin file does not begin and end with its magic")
    (payload_size,) = struct.unpack_from("<i", content, len(content) - 12)
    start = len(content) - 12 - payload_size
    if start < 8 or content[start - 4 : start] != _MAGIC:
        raise Lost("the footer of a Puffin file does not begin with its magic")
    blobs: list[dict[str, Any]] = json.loads(content[start : start + payload_size])["blobs"]
    for blob in blobs:
        if blob["offset"] < 4 or blob["offset"] + blob["length"] > start - 4:
            raise Lost(f"a blob lies outside of its Puffin file: {blob}")
    return blobs


def vector_of(content: bytes, offset: int, length: int) -> BitMap64:
    """Return the positions of a deletion vector."""
    blob = content[offset : offset + length]
    (size,) = struct.unpack_from(">i", blob)
    (crc,) = struct.unpack_from(">I", blob, len(blob) - 4)
    if len(blob) != length or size != length - 8 or blob[4:8] != _VECTOR_MAGIC:
        raise Lost("a blob is no deletion vector")
    if zlib.crc32(blob[4:-4]) != crc:
        raise Lost("the checksum of a deletion vector is wrong")
    return BitMap64.deserialize(blob[8:-4])


def check_vector(content: bytes, file: ContentFile) -> None:
    if len(content) != file.size:
        raise Lost(f"{file.path} has {len(content)} bytes, and {file.size} are declared")
    if file.offset is None or file.length is None:
        raise Lost(f"a vector of {file.path} has no place in its file")
    blobs = [blob for blob in puffin_footer(content) if blob["offset"] == file.offset]
    if len(blobs) != 1 or blobs[0]["type"] != VECTOR_TYPE or blobs[0]["length"] != file.length:
        raise Lost(f"{file.path} has no vector at {file.offset}")
    if local(blobs[0]["properties"]["referenced-data-file"]) != file.referenced:
        raise Lost(f"the vector at {file.offset} of {file.path} is of another data file")
    if len(vector_of(content, file.offset, file.length)) != file.records:
        raise Lost(f"the vector at {file.offset} of {file.path} has another number of rows")


def files_below(folder: str) -> frozenset[str]:
    """Return the paths of all files below a folder."""
    return frozenset(
        os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names
    )
