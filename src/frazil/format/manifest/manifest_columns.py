"""The entries of a manifest, column by column, for lookups and validations.

A manifest never changes, and neither do its columns. What its entries inherit depends on the
manifest list (`ManifestColumns.inherited`). Statistics have columns of their own
(`metric_columns`). The statistics of a few rows can be read at the positions in the columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_codecs import decompress
from frazil.format.avro.avro_files import MANIFEST_LIMITS, AvroFile, open_avro
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest import manifest_list
from frazil.format.manifest.constant_arrays import compact, constant, is_constant, own_bytes
from frazil.format.manifest.entry_decoder import DecodedRows, decode_rows
from frazil.format.manifest.entry_fields import (
    DeleteColumns,
    delete_columns,
    partition_field_ids,
    partition_values,
    read_content_files,
    read_metrics,
)
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING, NO_SNAPSHOT, NONE
from frazil.format.manifest.manifest_list import (
    DATA,
    DELETES,
    ManifestFile,
    ManifestList,
    manifest_list_schema,
    new_listed,
)
from frazil.format.metadata.content_files import (
    DATA_CONTENT,
    EQUALITY_DELETES,
    ContentFile,
    FileMetrics,
)

Rows = Sequence[int] | NDArray[np.int64]

ROW_ARRAYS: Final = (
    *("status", "content", "snapshot_id", "sequence_number", "file_sequence_number"),
    *("record_count", "file_size_in_bytes", "first_row_id", "partition", "data_file_at"),
    *("data_file_end", "first_row_id_at", "sorted_hashes", "hash_order"),
)
"""The fields of `ManifestColumns` that are arrays with one value for each row."""
_HASH_BYTES: Final = 8
_MAX_SCANNED_PAIRS: Final = 64
_OBJECT_BYTES: Final = 120
"""The approximate memory of a value outside of the arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class Inherited:
    """The columns that depend on the manifest list, with inherited values."""

    snapshot_id: NDArray[np.int64]
    sequence_number: NDArray[np.int64]
    file_sequence_number: NDArray[np.int64]
    first_row_id: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[np.int64], columns: ManifestColumns | Inherited) -> Inherited:
        """Return the values of some rows."""
        return cls(*(getattr(columns, own.name)[rows] for own in fields(cls)))


@dataclass(frozen=True, slots=True, eq=False)
class ManifestColumns:
    """The entries of one manifest, column by column. Row i is entry i of the file. A column with
    one value for all rows stores it once (`constant_arrays.constant`)."""

    content_kind: int
    """DATA or DELETES, according to the entries."""
    status: NDArray[np.uint8]
    content: NDArray[np.uint8]
    snapshot_id: NDArray[np.int64]
    """A missing id is NO_SNAPSHOT."""
    sequence_number: NDArray[np.int64]
    """A missing number is NONE, also in the following columns."""
    file_sequence_number: NDArray[np.int64]
    record_count: NDArray[np.int64]
    file_size_in_bytes: NDArray[np.int64]
    first_row_id: NDArray[np.int64]
    partition_field_ids: tuple[int, ...]
    partitions: tuple[tuple[Any, ...], ...]
    """The distinct partition tuples as Iceberg's internal values (`frazil.values.types`)."""
    partition: NDArray[np.int32]
    """The index of each row's partition in `partitions`."""
    deletes: DeleteColumns | None
    """None in data manifests."""
    data_file_at: NDArray[np.uint32]
    """Where the `data_file` of each row begins in the joined decompressed blocks."""
    data_file_end: NDArray[np.uint32]
    first_row_id_at: NDArray[np.int32]
    """Where the field begins within the `data_file` of each row. NONE in delete manifests and if
    the schema does not have the field."""
    block_starts: NDArray[np.uint32]
    """Where the blocks begin, so that a row is read from its own block."""
    path_bytes: bytes
    path_offsets: NDArray[np.uint32]
    sorted_hashes: NDArray[np.uint64]
    hash_order: NDArray[np.uint32]
    """The rows in the order of `sorted_hashes`."""

    def __len__(self) -> int:
        return len(self.status)

    def path(self, row: int) -> str:
        return self.encoded_path(row).decode()

    def encoded_path(self, row: int) -> bytes:
        return self.path_bytes[int(self.path_offsets[row]) : int(self.path_offsets[row + 1])]

    def encoded_paths(self, rows: NDArray[np.int64]) -> list[bytes]:
        data = self.path_bytes
        starts, ends = self.path_offsets[rows].tolist(), self.path_offsets[rows + 1].tolist()
        return [data[start:end] for start, end in zip(starts, ends, strict=True)]

    def paths(self, rows: Iterable[int]) -> list[str]:
        return [self.path(row) for row in rows]

    def find(self, path: str) -> Sequence[int]:
        """Return the rows with this path, whatever their status. The path of a Puffin file may
        have many rows."""
        key = np.uint64(path_hash(path))
        start = int(np.searchsorted(self.sorted_hashes, key, "left"))
        if start == len(self.sorted_hashes) or self.sorted_hashes[start] != key:
            return ()
        end = int(np.searchsorted(self.sorted_hashes, key, "right"))
        encoded = path.encode()
        rows = sorted(int(row) for row in self.hash_order[start:end])
        return [row for row in rows if self.encoded_path(row) == encoded]

    def may_hold(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the indexes into `hashes` (`path_hashes`) that occur here. Many hashes are
        searched fastest if they are sorted and distinct, as `numpy.unique` returns them."""
        own = self.sorted_hashes
        if not len(own) or not len(hashes):
            return np.empty(0, np.int64)
        if len(own) * len(hashes) <= _MAX_SCANNED_PAIRS:
            # Most commits look for one path in small manifests, where calls to numpy would
            # dominate.
            mine = own.tolist()
            return np.array([at for at, key in enumerate(hashes.tolist()) if key in mine], np.int64)
        if len(own) < len(hashes) and bool((hashes[:-1] < hashes[1:]).all()):
            positions = np.searchsorted(hashes, own)
            positions[positions == len(hashes)] = 0
            return np.unique(positions[hashes[positions] == own]).astype(np.int64)
        positions = np.searchsorted(own, hashes)
        positions[positions == len(own)] = 0
        return np.flatnonzero(own[positions] == hashes).astype(np.int64)

    def hashes(self) -> NDArray[np.uint64]:
        """Return the path hash of each row."""
        by_row = np.empty(len(self), np.uint64)
        by_row[self.hash_order] = self.sorted_hashes
        return by_row

    def live(self) -> NDArray[np.bool_]:
        return np.not_equal(self.status, DELETED)

    def inherited(self, listed: ManifestFile) -> Inherited:
        """Return the columns as Java's ManifestReader reads them (spec, "Sequence Number
        Inheritance", "First Row ID Inheritance"). DELETED rows inherit only a missing snapshot id
        and, in a version 1 manifest, the sequence number 0."""
        return Inherited(
            snapshot_id=_or(self.snapshot_id, NO_SNAPSHOT, listed.added_snapshot_id),
            sequence_number=self._number(self.sequence_number, listed),
            file_sequence_number=self._number(self.file_sequence_number, listed),
            first_row_id=self._first_row_ids(listed),
        )

    def _number(self, own: NDArray[np.int64], listed: ManifestFile) -> NDArray[np.int64]:
        if listed.sequence_number == 0:
            return _or(own, NONE, 0)
        if is_constant(self.status):
            return _or(own, NONE, listed.sequence_number) if self.status[0] == ADDED else own
        takes = (own == NONE) & (self.status == ADDED)
        return np.where(takes, listed.sequence_number, own)

    def _first_row_ids(self, listed: ManifestFile) -> NDArray[np.int64]:
        if listed.first_row_id is None:
            return constant(NONE, len(self), np.int64)
        if listed.content != DATA:
            return self.first_row_id
        takes = (self.first_row_id == NONE) & self.live()
        rows = np.where(takes, self.record_count, 0)
        before = np.cumsum(rows) - rows
        return np.where(takes, listed.first_row_id + before, self.first_row_id)

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the columns."""
        arrays = [getattr(self, name) for name in (*ROW_ARRAYS, "block_starts", "path_offsets")]
        values = sum(_OBJECT_BYTES * (1 + len(values)) for values in self.partitions)
        size = sum(own_bytes(array) for array in arrays) + len(self.path_bytes) + values + 500
        if self.deletes is not None:
            texts = sum(len(text) for text in self.deletes.referenced_data_file if text)
            size += texts + len(self) * (16 + _OBJECT_BYTES)
        return size


def _or(own: NDArray[np.int64], missing: int, value: int | None) -> NDArray[np.int64]:
    if value is None:
        return own
    if is_constant(own):
        return constant(value, len(own), np.int64) if own[0] == missing else own
    return np.where(own == missing, value, own)


# --- hashes ----------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def path_hash(path: str) -> int:
    """Return a 64-bit hash of a path. It must never change, because the disk cache contains it."""
    digest = hashlib.blake2b(path.encode(), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "little")


def path_hashes(paths: Iterable[str]) -> NDArray[np.uint64]:
    return _hashes([path.encode() for path in paths])


def _hashes(paths: Sequence[bytes]) -> NDArray[np.uint64]:
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(path, digest_size=_HASH_BYTES).digest() for path in paths])
    return np.frombuffer(digests, "<u8").astype(np.uint64, copy=False)


# --- making columns --------------------------------------------------------------------------


def decode_columns(content: bytes) -> ManifestColumns:
    """Decode the columns of a manifest. Raises UnreadableAvro."""
    return columns_of_file(open_avro(content, MANIFEST_LIMITS))


def columns_of_file(file: AvroFile) -> ManifestColumns:
    """Decode the columns of an opened manifest."""
    rows = decode_rows(file)
    _check(rows)
    has_deletes = bool((rows.content != DATA_CONTENT).any())
    if not len(rows.status):
        has_deletes = file.text("content") == "deletes"
    return make_columns(
        rows,
        content_kind=DELETES if has_deletes else DATA,
        partition_field_ids=partition_field_ids(file.schema),
        partitions=partition_values(file.schema, rows.partitions),
        deletes=delete_columns(file, rows) if has_deletes else None,
    )


def make_columns(
    rows: DecodedRows,
    *,
    content_kind: int,
    partition_field_ids: tuple[int, ...],
    partitions: tuple[tuple[Any, ...], ...],
    deletes: DeleteColumns | None,
    hashes: NDArray[np.uint64] | None = None,
) -> ManifestColumns:
    """Build the columns of valid rows. The path hashes are computed unless the caller passes
    them."""
    hashes = _hashes(rows.paths) if hashes is None else hashes
    order = np.argsort(hashes, kind="stable")
    lengths = np.fromiter(map(len, rows.paths), np.int64, len(rows.paths))
    offsets = np.zeros(len(rows.paths) + 1, np.uint32)
    np.cumsum(lengths, out=offsets[1:])
    return ManifestColumns(
        content_kind=content_kind,
        status=compact(rows.status.astype(np.uint8)),
        content=compact(rows.content.astype(np.uint8)),
        snapshot_id=compact(rows.snapshot_id),
        sequence_number=compact(rows.sequence_number),
        file_sequence_number=compact(rows.file_sequence_number),
        record_count=compact(rows.record_count),
        file_size_in_bytes=compact(rows.file_size_in_bytes),
        first_row_id=compact(rows.first_row_id),
        partition_field_ids=partition_field_ids,
        partitions=partitions,
        partition=compact(rows.partition.astype(np.int32)),
        deletes=deletes,
        data_file_at=rows.data_file_at.astype(np.uint32),
        data_file_end=rows.data_file_end.astype(np.uint32),
        first_row_id_at=_row_id_at(rows, content_kind),
        block_starts=np.array(rows.block_starts, np.uint32),
        path_bytes=b"".join(rows.paths),
        path_offsets=offsets,
        sorted_hashes=hashes[order],
        hash_order=order.astype(np.uint32),
    )


def _row_id_at(rows: DecodedRows, content_kind: int) -> NDArray[np.int32]:
    if content_kind == DATA:
        return compact(rows.first_row_id_at.astype(np.int32))
    return constant(NONE, len(rows.status), np.int32)


def _check(rows: DecodedRows) -> None:
    if not len(rows.status):
        return
    if rows.status.min() < 0 or rows.status.max() > DELETED:
        raise UnreadableAvro("an entry has an unknown status")
    if rows.content.min() < DATA_CONTENT or rows.content.max() > EQUALITY_DELETES:
        raise UnreadableAvro("an entry has an unknown content")
    if rows.record_count.min() < 0:
        raise UnreadableAvro("an entry has no record count")
    others = (rows.sequence_number, rows.file_sequence_number, rows.file_size_in_bytes)
    if any(numbers.min() < NONE for numbers in (*others, rows.first_row_id)):
        raise UnreadableAvro("an entry has a negative sequence number, size or first row id")
    try:
        b"\n".join(rows.paths).decode()
    except UnicodeDecodeError:
        raise UnreadableAvro("a file path is not UTF-8") from None


# --- rows ------------------------------------------------------------------------------------


def data_files_of(file: AvroFile, columns: ManifestColumns, rows: Rows) -> list[bytes]:
    """Return the encoded `data_file` of some rows of an opened manifest."""
    positions = row_positions(file, columns, rows)
    sizes = (columns.data_file_end[rows] - columns.data_file_at[rows]).tolist()
    return [block[at : at + size] for (block, at), size in zip(positions, sizes, strict=True)]


def metrics(content: bytes, columns: ManifestColumns, rows: Rows) -> Iterator[FileMetrics]:
    """Read the metrics of some rows of the manifest with this content, in their order. For many
    rows `metric_decoder` is far faster."""
    file = open_avro(content, MANIFEST_LIMITS)
    return read_metrics(file.schema, row_positions(file, columns, rows))


def content_files(content: bytes, columns: ManifestColumns, rows: Rows) -> Iterator[ContentFile]:
    """Read some rows of the manifest as whole files. Inherited first row ids are not set."""
    file = open_avro(content, MANIFEST_LIMITS)
    tuples = [columns.partitions[index] for index in columns.partition[rows].tolist()]
    return read_content_files(file.schema, row_positions(file, columns, rows), tuples)


def row_positions(file: AvroFile, columns: ManifestColumns, rows: Rows) -> list[tuple[bytes, int]]:
    """Return the decompressed block of each row and where its `data_file` begins in the block. Only
    blocks with wanted rows are decompressed."""
    starts = columns.block_starts
    at = columns.data_file_at[rows]
    numbers = np.searchsorted(starts, at, "right") - 1
    blocks = _some_blocks(file, columns, set(numbers.tolist()))
    within = (at - starts[numbers]).tolist() if len(at) else []
    return [
        (blocks[number], position)
        for number, position in zip(numbers.tolist(), within, strict=True)
    ]


def _some_blocks(file: AvroFile, columns: ManifestColumns, wanted: set[int]) -> dict[int, bytes]:
    """Return some blocks by number. Each must be as large as its rows require."""
    starts = columns.block_starts.tolist()
    last = int(columns.data_file_end[-1]) if len(columns) else 0
    ends = [*starts[1:], last]
    blocks: dict[int, bytes] = {}
    positions = list(file.block_spans())
    if len(positions) != len(starts):
        raise UnreadableAvro("the manifest is not the one that the columns are of")
    bytes_left = file.limits.decoded_bytes
    for number, (_, start, end) in enumerate(positions):
        if number in wanted:
            block = decompress(file.codec, file.content[start:end], bytes_left)
            bytes_left -= len(block)
            if len(block) < ends[number] - starts[number]:
                raise UnreadableAvro("the manifest is not the one that the columns are of")
            blocks[number] = block
    return blocks


# --- manifests without a list -----------------------------------------------------------------


def inline_manifest_list(
    snapshot_id: int, manifests: Sequence[tuple[str, int, ManifestColumns]]
) -> ManifestList:
    """Return the list of a snapshot that names its manifests inline, as old version 1 writers do,
    from the path, length and columns of each manifest.

    As in Java's BaseSnapshot, such manifests have the first partition spec. Their partitions are
    unknown, so readers assume that any partition is possible.
    """
    listed = tuple(_listed(snapshot_id, *manifest) for manifest in manifests)
    return ManifestList(manifest_list_schema(1), {}, "deflate", listed)


def _listed(snapshot_id: int, path: str, length: int, columns: ManifestColumns) -> ManifestFile:
    files = np.bincount(columns.status, minlength=3)
    rows = [int(columns.record_count[columns.status == status].sum()) for status in range(3)]
    values: dict[int, Any] = {
        manifest_list.PATH: path,
        manifest_list.LENGTH: length,
        manifest_list.SPEC_ID: 0,
        manifest_list.ADDED_SNAPSHOT_ID: _added_by(columns, snapshot_id),
        manifest_list.ADDED_FILES: int(files[ADDED]),
        manifest_list.EXISTING_FILES: int(files[EXISTING]),
        manifest_list.DELETED_FILES: int(files[DELETED]),
        manifest_list.ADDED_ROWS: rows[ADDED],
        manifest_list.EXISTING_ROWS: rows[EXISTING],
        manifest_list.DELETED_ROWS: rows[DELETED],
    }
    return new_listed(values, 1, None).manifest


def _added_by(columns: ManifestColumns, snapshot_id: int) -> int:
    """Return the id of the snapshot that wrote the manifest, which also added or deleted its
    files."""
    changed = columns.snapshot_id[
        (columns.status != EXISTING) & (columns.snapshot_id != NO_SNAPSHOT)
    ]
    return int(changed[0]) if len(changed) else snapshot_id
