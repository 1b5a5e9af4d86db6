"""Reads only the paths that manifests and manifest lists name, for questions about reachability.

Such a question opens every manifest and list of a table once. So nothing is cached, and large files
are read part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_codecs import decompress
from frazil.format.avro.avro_files import (
    MANIFEST_LIST_LIMITS,
    AvroFile,
    AvroLimits,
    Projection,
    open_avro,
)
from frazil.format.avro.avro_schema import (
    cached_by_schema,
    optional_field,
    record_schema,
    required_field,
)
from frazil.format.avro.avro_types import Bytes, Integer, String, UnreadableAvro
from frazil.format.manifest.lockstep_walk import Chunk, NotInLockstep, chunks_of, lockstep
from frazil.format.manifest.manifest_fields import (
    CONTENT,
    DATA_FILE,
    DELETED,
    EXISTING,
    FILE_PATH,
    MALFORMED,
    STATUS,
    data_file_record,
)
from frazil.format.manifest.manifest_list import KEY_METADATA, PATH, SPEC_ID

MANIFEST_LIMITS: Final = AvroLimits(
    file_bytes=256 << 20, decoded_bytes=1 << 30, records=10_000_000, record_bytes=4 << 20
)
"""Larger than the limits of a commit, because a manifest is read part by part."""

_CHUNK_BYTES: Final = 4 << 20
_MIN_LOCKSTEP_ROWS: Final = 100
"""Fewer rows are decoded faster one by one."""
_MAX_KNOWN_BLOCKS: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class NamedFiles:
    """Some entries of a manifest: whether each is live, its content and its path."""

    live: NDArray[np.bool_]
    content: NDArray[np.int64]
    """0 is data, 1 position deletes and deletion vectors, 2 equality deletes."""
    paths: list[str]


def named_files(content: bytes) -> Iterator[NamedFiles]:
    """Yield the entries of a manifest part by part. Raises UnreadableAvro."""
    file = open_avro(content, MANIFEST_LIMITS)
    together = lockstep(file.schema.text)
    for chunk in chunks_of(file, _CHUNK_BYTES):
        if together is not None and sum(chunk.counts) >= _MIN_LOCKSTEP_ROWS:
            try:
                rows = together.rows(chunk, file.limits.record_bytes)
            except NotInLockstep:
                pass
            else:
                numbers = rows.numbers
                yield _named(numbers["status"], numbers["content"], _decoded(rows.paths))
                continue
        yield _one_by_one(file, chunk)


def _decoded(paths: Sequence[bytes]) -> list[str]:
    try:
        return [path.decode() for path in paths]
    except UnicodeDecodeError:
        raise UnreadableAvro("a file path is not UTF-8") from None


def _named(status: NDArray[np.int64], content: NDArray[np.int64], paths: list[str]) -> NamedFiles:
    if len(status) and (status.min() < EXISTING or status.max() > DELETED):
        raise UnreadableAvro("an entry has an unknown status")
    return NamedFiles(status != DELETED, content, paths)


def _one_by_one(file: AvroFile, chunk: Chunk) -> NamedFiles:
    read = _entry_projection(file.schema.text).read
    rows: list[tuple[int, int, str]] = []
    for count, block in zip(chunk.counts, chunk.blocks, strict=True):
        for status, (content, path) in _records(read, block, count):
            if path is None or status is None:
                raise UnreadableAvro("an entry has no file path or no status")
            rows.append((status, content or 0, path))
    statuses, contents, paths = zip(*rows, strict=True) if rows else ((), (), ())
    return _named(np.array(statuses, np.int64), np.array(contents, np.int64), list(paths))


@cached_by_schema
def _entry_projection(schema: str) -> Projection:
    record = record_schema(schema).record
    data_file = data_file_record(record)
    inner = Projection(
        data_file,
        [
            optional_field(data_file, CONTENT, Integer),
            required_field(data_file, FILE_PATH, String),
        ],
    )
    named = next(field for field in record.fields if field.field_id == DATA_FILE)
    return Projection(record, [required_field(record, STATUS, Integer), (named, inner)])


@dataclass(frozen=True, slots=True)
class NamedManifest:
    """A manifest that a list names."""

    path: str
    partition_spec_id: int
    encrypted: bool


class ManifestListReader:
    """Reads many lists of one table.

    The lists of neighboring snapshots that Frazil has written share most of their blocks. Each
    block is read once. Measured: 10,000 lists of up to 100 manifests take a fifth of the time.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes], tuple[NamedManifest, ...]] = {}

    def read(self, content: bytes) -> list[NamedManifest]:
        """Return the manifests of a list. Raises UnreadableAvro."""
        file = open_avro(content, MANIFEST_LIST_LIMITS)
        manifests: list[NamedManifest] = []
        bytes_left = file.limits.decoded_bytes
        for count, start, end in file.block_spans():
            key = file.schema.text, file.codec, content[start:end]
            known = self._known.get(key)
            if known is None:
                block = decompress(file.codec, key[2], bytes_left)
                bytes_left -= len(block)
                known = _manifests(file, count, block)
                if len(self._known) >= _MAX_KNOWN_BLOCKS:
                    self._known.clear()
                self._known[key] = known
            manifests += known
        return manifests


def _manifests(file: AvroFile, count: int, block: bytes) -> tuple[NamedManifest, ...]:
    read = _list_projection(file.schema.text).read
    return tuple(_named_manifest(*values) for values in _records(read, block, count))


def _named_manifest(path: str | None, spec_id: int | None, key: bytes | None) -> NamedManifest:
    if path is None or spec_id is None:
        raise UnreadableAvro("a manifest has no path or partition spec")
    return NamedManifest(path, spec_id, bool(key))


@cached_by_schema
def _list_projection(schema: str) -> Projection:
    record = record_schema(schema).record
    wanted = [
        required_field(record, PATH, String),
        required_field(record, SPEC_ID, Integer),
        optional_field(record, KEY_METADATA, Bytes),
    ]
    return Projection(record, wanted)


def _records(
    read: Callable[[bytes, int], tuple[list[Any], int]], block: bytes, count: int
) -> Iterator[list[Any]]:
    at = 0
    for _ in range(count):
        try:
            values, at = read(block, at)
        except MALFORMED as error:
            raise UnreadableAvro(f"a record ends early or is malformed: {error}") from None
        yield values
    if at != len(block):
        raise UnreadableAvro("a block does not end with its last record")
