"""Writes deletion vectors and files of position deletes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.datafiles.footers.files_from_parquet import PositionDeleteFile
from frazil.datafiles.reading.deletes_reader import deleted_positions
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import Positions, position_array
from frazil.datafiles.reading.scan_tasks import DeletedRows
from frazil.values.column_matching import DELETE_FILE_PATH_ID, DELETE_POS_ID
from frazil.values.deletion_vectors import DeletionVector, deletion_vector_blob
from frazil.values.puffin import write_puffin
from frazil.version import __version__
from frazil.wire.declared_content import CountMap, ValueMap
from frazil.wire.scan_planning import PlannedDeleteFile

_CREATED_BY: Final = {"created-by": f"frazil {__version__}"}
_MAX_VECTORS_PER_FILE: Final = 10_000
"""Readers of one vector may have to read the footer, which describes all vectors of the file."""
_SCHEMA: Final = pa.schema(
    [
        pa.field(
            "file_path",
            pa.dictionary(pa.int32(), pa.string()),
            nullable=False,
            metadata={"PARQUET:field_id": str(DELETE_FILE_PATH_ID)},
        ),
        pa.field(
            "pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(DELETE_POS_ID)}
        ),
    ]
)


# --- payloads -------------------------------------------------------------------------------------


def encode_group(group: Sequence[DeletedRows]) -> bytes:
    """Encode data files whose deletes are written to one file."""
    return msgspec.msgpack.encode([rows.encode() for rows in group])


def _decode_group(payload: bytes) -> list[DeletedRows]:
    return [DeletedRows.decode(rows) for rows in msgspec.msgpack.decode(payload, type=list[bytes])]


# --- deletion vectors -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorWork:
    """Writes the vectors of all data files that it gets into one Puffin file."""

    storage: Storage
    folder: str

    def __call__(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        for start in range(0, len(payloads), _MAX_VECTORS_PER_FILE):
            chunk = payloads[start : start + _MAX_VECTORS_PER_FILE]
            yield from self._file([rows for payload in chunk for rows in _decode_group(payload)])

    def _file(self, deleted: Sequence[DeletedRows]) -> Iterator[bytes]:
        positions = [
            deleted_positions(rows.task, self.storage) | rows.positions for rows in deleted
        ]
        vectors = [DeletionVector.from_positions(each.to_array()) for each in positions]
        blobs = [
            deletion_vector_blob(vector, rows.file_path)
            for vector, rows in zip(vectors, deleted, strict=True)
        ]
        data, written = write_puffin(blobs, _CREATED_BY)
        path = f"{self.folder}/{uuid.uuid4().hex}-deletes.puffin"
        self.storage.write(path, data)
        for rows, vector, blob in zip(deleted, vectors, written, strict=True):
            file = PositionDeleteFile(
                spec_id=rows.task.data_file.spec_id,
                partition=rows.task.data_file.partition,
                file_path=path,
                file_format="puffin",
                file_size_in_bytes=len(data),
                record_count=vector.cardinality,
                content_offset=blob.offset,
                content_size_in_bytes=blob.length,
                referenced_data_file=rows.file_path,
            )
            yield msgspec.json.encode(file)


# --- position deletes -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PositionDeleteWork:
    """Writes one file for each group of data files; the files of a group share a partition."""

    storage: Storage
    folder: str
    options: Mapping[str, Any]
    """For pyarrow's writer."""
    includes_earlier: bool
    """Whether to include the deletes of earlier files that are for the same data file alone."""

    def __call__(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        for payload in payloads:
            yield self._file(_decode_group(payload))

    def _file(self, group: Sequence[DeletedRows]) -> bytes:
        # The specification requires the order of path and position.
        deletes = [(rows.file_path, self._positions(rows)) for rows in group]
        deletes.sort(key=lambda pair: pair[0].encode())
        data = self._parquet(deletes)
        path = f"{self.folder}/{uuid.uuid4().hex}-deletes.parquet"
        self.storage.write(path, data)
        first = group[0].task.data_file
        file = PositionDeleteFile(
            spec_id=first.spec_id,
            partition=first.partition,
            file_path=path,
            file_format="parquet",
            file_size_in_bytes=len(data),
            referenced_data_file=group[0].file_path if len(group) == 1 else None,
            **_metrics(data, deletes),
        )
        return msgspec.json.encode(file)

    def _positions(self, rows: DeletedRows) -> Positions:
        if not self.includes_earlier:
            return rows.positions
        own = tuple(file for file in rows.task.position_deletes if is_file_scoped(file))
        task = msgspec.structs.replace(rows.task, delete_files=own)
        return deleted_positions(task, self.storage) | rows.positions

    def _parquet(self, deletes: Sequence[tuple[str, Positions]]) -> bytes:
        counts = [len(positions) for _, positions in deletes]
        codes = np.repeat(np.arange(len(deletes), dtype=np.int32), counts)
        paths = pa.DictionaryArray.from_arrays(codes, pa.array([path for path, _ in deletes]))
        numbers = np.concatenate([position_array(positions) for _, positions in deletes])
        rows = pa.table([paths, numbers.astype(np.int64)], schema=_SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, use_dictionary=["file_path"], **self.options)
        data: bytes = sink.getvalue().to_pybytes()
        return data


def _metrics(data: bytes, deletes: Sequence[tuple[str, Positions]]) -> dict[str, Any]:
    """Return counts and uncut bounds, by which readers know which data files a file is for."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [sum(group.column(at).total_compressed_size for group in groups) for at in (0, 1)]
    low = min(positions.min() for _, positions in deletes)
    high = max(positions.max() for _, positions in deletes)
    ids = (DELETE_FILE_PATH_ID, DELETE_POS_ID)
    return {
        "record_count": metadata.num_rows,
        "split_offsets": tuple(group.column(0).dictionary_page_offset for group in groups),
        "column_sizes": CountMap(ids, tuple(sizes)),
        "value_counts": CountMap(ids, (metadata.num_rows, metadata.num_rows)),
        "null_value_counts": CountMap(ids, (0, 0)),
        "lower_bounds": ValueMap(ids, (deletes[0][0].encode().hex(), _long(low))),
        "upper_bounds": ValueMap(ids, (deletes[-1][0].encode().hex(), _long(high))),
        "bounds_encoding": "hex",
    }


def _long(value: int) -> str:
    return value.to_bytes(8, "little", signed=True).hex()


def is_file_scoped(file: PlannedDeleteFile) -> bool:
    """Whether a file of position deletes is for a single data file."""
    return file.referenced_data_file is not None
