"""The columns of manifests that we write ourselves, made of what went into them.

Nothing is decoded for it: the writer notes the file of every entry and where its bytes went. What
comes out is what `decode_columns` gives for the written file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.copied_entries import CopiedRows
from frazil.format.manifest.entry_decoder import DecodedRows
from frazil.format.manifest.entry_fields import DeleteFields, referenced_data_file
from frazil.format.manifest.manifest_columns import ManifestColumns, make_columns, path_hashes
from frazil.format.manifest.manifest_encoder import ManifestEncoder
from frazil.format.manifest.manifest_fields import FIRST_ROW_ID, NO_SNAPSHOT, NONE, data_file_record
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.format.metadata.content_files import ContentFile
from frazil.values.types import TypeId

_Row = tuple[int, int | None, int | None, int | None, Any, int, int]
"""Status, snapshot id, both sequence numbers, the file, and where its `data_file` lies."""


@dataclass(frozen=True, slots=True, eq=False)
class _Copies:
    copied: CopiedRows
    chosen: slice
    status: NDArray[np.int64]
    snapshot_id: NDArray[np.int64]
    data_file_at: NDArray[np.int64]
    data_file_end: NDArray[np.int64]


class WrittenRows:
    """The rows of a manifest under way."""

    def __init__(self) -> None:
        self._parts: list[list[_Row] | _Copies] = []
        self._files: list[_Row] | None = None

    def add(
        self,
        status: int,
        snapshot_id: int | None,
        sequence_number: int | None,
        file_sequence_number: int | None,
        file: ContentFile,
        at: int,
        end: int,
    ) -> None:
        """An entry whose file was encoded; `at` and `end` say where its `data_file` went."""
        if self._files is None:
            self._files = []
            self._parts.append(self._files)
        self._files.append(
            (status, snapshot_id, sequence_number, file_sequence_number, file, at, end)
        )

    def add_all(
        self,
        numbers: tuple[int, int | None, int | None, int | None],
        files: Sequence[ContentFile],
        head_bytes: int,
        sizes: Sequence[int],
        position: int,
    ) -> None:
        """Entries with the same numbers, one behind the other from `position` on: each a head and
        a `data_file` of its size."""
        if self._files is None:
            self._files = []
            self._parts.append(self._files)
        rows = self._files
        for file, size in zip(files, sizes, strict=True):
            at = position + head_bytes
            position = at + size
            rows.append((*numbers, file, at, position))

    def copy(
        self,
        copied: CopiedRows,
        chosen: slice,
        status: NDArray[np.int64],
        snapshot_id: NDArray[np.int64],
        data_file_at: NDArray[np.int64],
        data_file_end: NDArray[np.int64],
    ) -> None:
        """Entries of another manifest; the arrays are of those that are chosen."""
        self._files = None
        self._parts.append(
            _Copies(copied, chosen, status, snapshot_id, data_file_at, data_file_end)
        )

    def columns(
        self, encoder: ManifestEncoder, block_starts: Sequence[int]
    ) -> ManifestColumns | None:
        """`block_starts` is what the file's writer has. None where partition tuples are not what
        their bytes say, as with floats: such a manifest is to be decoded."""
        types = [field.type.type_id for field in encoder.partition_type.fields]
        if TypeId.FLOAT in types or TypeId.DOUBLE in types:
            return None
        made = _Columns(encoder)
        for part in self._parts:
            if isinstance(part, list):
                made.add_files(part)
            else:
                made.add_copies(part)
        return made.columns(block_starts)


class _Columns:
    """Arrays of the parts, to be put together."""

    def __init__(self, encoder: ManifestEncoder) -> None:
        self._encoder = encoder
        self._arrays: dict[str, list[NDArray[np.int64]]] = {}
        record = data_file_record(encoder.schema.record)
        self._has_row_ids = record.by_id(FIRST_ROW_ID) is not None
        self._paths: list[bytes] = []
        self._hashes: list[NDArray[np.uint64]] = []
        self._known_hashes: tuple[ManifestColumns, NDArray[np.uint64]] | None = None
        self._partitions: dict[tuple[Any, ...], int] = {}
        self._deletes = None if encoder.content == DATA else DeleteFields([], [], [], [])

    def add_files(self, rows: list[_Row]) -> None:
        status, snapshots, numbers, file_numbers, files, starts, ends = zip(*rows, strict=True)
        known = self._partitions
        partition = [known.setdefault(file.partition, len(known)) for file in files]
        is_data = self._encoder.content == DATA
        own_ids = [file.first_row_id for file in files] if is_data else [None] * len(files)
        start, end = np.array(starts, np.int64), np.array(ends, np.int64)
        self._paths += [file.file_path.encode() for file in files]
        self._hashes.append(path_hashes(file.file_path for file in files))
        self._add(
            status=np.array(status, np.int64),
            snapshot_id=_numbers(snapshots, NO_SNAPSHOT),
            sequence_number=_numbers(numbers),
            file_sequence_number=_numbers(file_numbers),
            content=np.array([file.content for file in files], np.int64),
            record_count=np.array([file.record_count for file in files], np.int64),
            file_size_in_bytes=np.array([file.file_size_in_bytes for file in files], np.int64),
            first_row_id=_numbers(own_ids),
            partition=np.array(partition, np.int64),
            data_file_at=start,
            data_file_end=end,
            first_row_id_at=self._row_id_places(own_ids, end - start),
        )
        if self._deletes is not None:
            _add_deletes(self._deletes, files)

    def _row_id_places(
        self, own_ids: list[int | None], sizes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Behind the field is nothing but nulls in a data file that we encode."""
        record = data_file_record(self._encoder.schema.record)
        field = record.by_id(FIRST_ROW_ID)
        if field is None:
            return np.full(len(sizes), NONE, np.int64)
        behind = record.fields[record.fields.index(field) + 1 :]
        nulls = sum(len(other.encoded(None)) for other in behind)
        widths = [1 if own is None else len(field.encoded(own)) for own in own_ids]
        return sizes - nulls - np.array(widths, np.int64)

    def add_copies(self, part: _Copies) -> None:
        copied, chosen = part.copied, part.chosen
        columns, rows = copied.columns, copied.rows[chosen]
        known = self._partitions
        tuples = copied.partitions
        used, where = np.unique(columns.partition[rows], return_inverse=True)
        firsts = np.unique(where, return_index=True)[1]
        indexes = np.empty(len(used), np.int64)
        for position in np.argsort(firsts).tolist():
            values = tuples[used[position]]
            indexes[position] = known.setdefault(values, len(known))
        self._paths += columns.encoded_paths(rows)
        self._hashes.append(self._hashes_of(columns)[rows])
        self._add(
            status=part.status,
            snapshot_id=part.snapshot_id,
            sequence_number=copied.inherited.sequence_number[chosen],
            file_sequence_number=copied.inherited.file_sequence_number[chosen],
            content=columns.content[rows].astype(np.int64),
            record_count=columns.record_count[rows],
            file_size_in_bytes=columns.file_size_in_bytes[rows],
            first_row_id=copied.inherited.first_row_id[chosen],
            partition=indexes[where],
            data_file_at=part.data_file_at,
            data_file_end=part.data_file_end,
            first_row_id_at=copied.first_row_id_at[chosen],
        )
        if self._deletes is not None:
            _copy_deletes(self._deletes, columns, rows)

    def _hashes_of(self, columns: ManifestColumns) -> NDArray[np.uint64]:
        """Of all rows of a manifest; its copies come one after another."""
        if self._known_hashes is None or self._known_hashes[0] is not columns:
            self._known_hashes = columns, columns.hashes()
        return self._known_hashes[1]

    def _add(self, **arrays: NDArray[np.int64]) -> None:
        none = np.full(len(arrays["status"]), NONE, np.int64)
        if self._encoder.format_version == 1:
            arrays |= {"sequence_number": none, "file_sequence_number": none}
        if not self._has_row_ids:
            arrays["first_row_id"] = none
        for name, array in arrays.items():
            self._arrays.setdefault(name, []).append(array)

    def columns(self, block_starts: Sequence[int]) -> ManifestColumns:
        rows = DecodedRows(
            **{name: np.concatenate(parts) for name, parts in self._arrays.items()},
            paths=self._paths,
            block_starts=block_starts,
            partitions=(),
        )
        return make_columns(
            rows,
            content_kind=DATA if self._deletes is None else DELETES,
            partition_field_ids=tuple(
                field.field_id for field in self._encoder.partition_type.fields
            ),
            partitions=tuple(self._partitions),
            deletes=self._deletes,
            hashes=np.concatenate(self._hashes),
        )


def _numbers(values: Any, missing: int = NONE) -> NDArray[np.int64]:
    return np.array([missing if value is None else value for value in values], np.int64)


def _add_deletes(into: DeleteFields, files: Any) -> None:
    into.content_offset.extend(_numbers(file.content_offset for file in files).tolist())
    into.content_size_in_bytes.extend(
        _numbers(file.content_size_in_bytes for file in files).tolist()
    )
    into.referenced_data_file.extend(
        referenced_data_file(
            file.content, file.referenced_data_file, file.lower_bounds, file.upper_bounds
        )
        for file in files
    )
    into.equality_ids.extend(
        None if file.equality_ids is None else tuple(file.equality_ids) for file in files
    )


def _copy_deletes(into: DeleteFields, columns: ManifestColumns, rows: NDArray[np.int64]) -> None:
    deletes = columns.deletes
    assert deletes is not None
    into.content_offset.extend(deletes.content_offset[rows].tolist())
    into.content_size_in_bytes.extend(deletes.content_size_in_bytes[rows].tolist())
    chosen = rows.tolist()
    into.referenced_data_file.extend(deletes.referenced_data_file[row] for row in chosen)
    into.equality_ids.extend(deletes.equality_ids[row] for row in chosen)
