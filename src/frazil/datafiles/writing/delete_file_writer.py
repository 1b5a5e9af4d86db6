"""Writes deletion vectors and files of position deletes. Runs on executors."""

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
from frazil.datafiles.reading.row_positions import Positions
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.values.column_matching import DELETE_FILE_PATH_ID, DELETE_POS_ID
from frazil.values.deletion_vectors import deletion_vector_blob
from frazil.values.puffin import write_puffin
from frazil.version import __version__
from frazil.wire.declared_content import CountMap, ValueMap
from frazil.wire.scan_planning import PlannedDeleteFile

_CREATED_BY: Final = {"created-by": f"frazil {__version__}"}
_MAX_VECTORS: Final = 10_000
"""In one Puffin file, whose footer every reader of a vector may have to read."""
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


# --- what travels ---------------------------------------------------------------------------------


def encode_group(group: Sequence[DeletedRows]) -> bytes:
    """Files whose deletes go into one file."""
    return msgspec.msgpack.encode([one.encode() for one in group])


def _decode_group(payload: bytes) -> list[DeletedRows]:
    return [DeletedRows.decode(one) for one in msgspec.msgpack.decode(payload, type=list[bytes])]


# --- deletion vectors -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorWork:
    """Puts the vectors of all data files that it gets into one Puffin file."""

    storage: Storage
    folder: str

    def __call__(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        for start in range(0, len(payloads), _MAX_VECTORS):
            some = payloads[start : start + _MAX_VECTORS]
            yield from self._file([one for payload in some for one in _decode_group(payload)])

    def _file(self, touched: Sequence[DeletedRows]) -> Iterator[bytes]:
        vectors = [(_old(one.task, self.storage) | one.positions).vector() for one in touched]
        blobs = [
            deletion_vector_blob(vector, one.file_path)
            for vector, one in zip(vectors, touched, strict=True)
        ]
        data, places = write_puffin(blobs, _CREATED_BY)
        path = f"{self.folder}/{uuid.uuid4().hex}-deletes.puffin"
        self.storage.write(path, data)
        for one, vector, place in zip(touched, vectors, places, strict=True):
            file = PositionDeleteFile(
                spec_id=one.task.data_file.spec_id,
                partition=one.task.data_file.partition,
                file_path=path,
                file_format="puffin",
                file_size_in_bytes=len(data),
                record_count=vector.cardinality,
                content_offset=place.offset,
                content_size_in_bytes=place.length,
                referenced_data_file=one.file_path,
            )
            yield msgspec.json.encode(file)


# --- position deletes -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PositionDeleteWork:
    """Writes a file for each group of data files, which are of one partition."""

    storage: Storage
    folder: str
    options: Mapping[str, Any]
    """Of pyarrow's writer."""
    takes_in: bool
    """Older files of deletes for the same data file alone are replaced."""

    def __call__(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        for payload in payloads:
            yield self._file(_decode_group(payload))

    def _file(self, group: Sequence[DeletedRows]) -> bytes:
        # Sorted by path and position, as the specification demands.
        deletes = [(one.file_path, self._positions(one)) for one in group]
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
            **_measured(data, deletes),
        )
        return msgspec.json.encode(file)

    def _positions(self, one: DeletedRows) -> Positions:
        if not self.takes_in:
            return one.positions
        own = tuple(file for file in one.task.position_deletes if is_file_scoped(file))
        return _old(msgspec.structs.replace(one.task, delete_files=own), self.storage) | (
            one.positions
        )

    def _parquet(self, deletes: Sequence[tuple[str, Positions]]) -> bytes:
        counts = [len(positions) for _, positions in deletes]
        codes = np.repeat(np.arange(len(deletes), dtype=np.int32), counts)
        paths = pa.DictionaryArray.from_arrays(codes, pa.array([path for path, _ in deletes]))
        numbers = np.concatenate([positions.to_array() for _, positions in deletes])
        rows = pa.table([paths, numbers.astype(np.int64)], schema=_SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, use_dictionary=["file_path"], **self.options)
        data: bytes = sink.getvalue().to_pybytes()
        return data


def _measured(data: bytes, deletes: Sequence[tuple[str, Positions]]) -> dict[str, Any]:
    """Counts and whole bounds: readers tell by them which data files a file is for."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [sum(group.column(at).total_compressed_size for group in groups) for at in (0, 1)]
    ends = [positions.to_array()[[0, -1]] for _, positions in deletes]
    low, high = min(int(pair[0]) for pair in ends), max(int(pair[1]) for pair in ends)
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


# --- what is there already ------------------------------------------------------------------------


def is_file_scoped(file: PlannedDeleteFile) -> bool:
    """Whether a file of position deletes is for one data file alone."""
    return file.referenced_data_file is not None


def _old(task: ScanTask, storage: Storage) -> Positions:
    return Positions(deleted_positions(task, storage))
