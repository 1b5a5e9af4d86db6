"""Avro container files: a header with a schema, then compressed blocks of records.

Iceberg's manifests and manifest lists are such files, and clients hand them to the server. So every
limit holds before memory is spent: on the file by the store, on the records of a block by its
count, on a block's bytes while it is being decompressed.
"""

from __future__ import annotations

import bz2
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol, TypeVar

import zstandard

from frazil.format.avro.avro_schema import RecordSchema, record_schema
from frazil.format.avro.avro_types import (
    Field,
    Record,
    UnreadableAvro,
    read_bytes,
    read_long,
    write_long,
)

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_BLOCK_BYTES: Final = 64_000
_MAX_BLOCK_BYTES: Final = 1 << 20
_MAX_HEADER_ENTRIES: Final = 1_000
_MANY_RECORDS_LEVEL: Final = 1
"""Of deflate. On manifests the usual level, 6, saves about 1 % and takes four times as long."""
_MOST_COMPRESSING: Final = 8
_MOST_ADDED_BYTES: Final = 1 << 10
"""What a block may grow by that cannot be compressed, and its head."""
_ZSTANDARD_WINDOW_BYTES: Final = 1 << 27

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AvroLimits:
    """What one file may cost."""

    file_bytes: int
    decoded_bytes: int
    """Of all blocks together, after decompression."""
    records: int
    record_bytes: int


MANIFEST_LIST_LIMITS: Final = AvroLimits(
    file_bytes=32 << 20, decoded_bytes=64 << 20, records=100_000, record_bytes=256 << 10
)
MANIFEST_LIMITS: Final = AvroLimits(
    file_bytes=64 << 20, decoded_bytes=256 << 20, records=200_000, record_bytes=4 << 20
)


class ValueReader(Protocol):
    """Reads the value of a field and returns it with the position behind it."""

    def read(self, data: bytes, at: int) -> tuple[Any, int]: ...


class Projection:
    """Reads some fields of a record into a list and skips the others."""

    def __init__(
        self, record: Record, wanted: Sequence[Field | tuple[Field, ValueReader] | None]
    ) -> None:
        """`wanted` may name a reader of its own for a field. None leaves its place empty."""
        self._size = len(wanted)
        readers: dict[str, tuple[int, ValueReader]] = {}
        for slot, want in enumerate(wanted):
            if isinstance(want, tuple):
                readers[want[0].name] = slot, want[1]
            elif want is not None:
                readers[want.name] = slot, want.node
        self._plan = [(field.node, readers.get(field.name)) for field in record.fields]

    def read(self, data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = [None] * self._size
        for node, reader in self._plan:
            if reader is None:
                at = node.skip(data, at)
            else:
                slot, wanted = reader
                values[slot], at = wanted.read(data, at)
        return values, at


@dataclass(frozen=True, slots=True)
class AvroFile:
    """A file whose header has been read and whose blocks have not."""

    schema: RecordSchema
    metadata: Mapping[str, bytes]
    """The header's entries without Avro's own."""
    codec: str
    limits: AvroLimits
    content: bytes
    sync: bytes
    blocks_at: int

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return None if value is None else _decoded(value)

    def records(self, read: Callable[[bytes, int], tuple[T, int]]) -> Iterator[tuple[T, bytes]]:
        """Every record as `read` makes it of a block and a position, and the record's bytes."""
        for count, block in self.blocks():
            at = 0
            for _ in range(count):
                try:
                    value, end = read(block, at)
                except (IndexError, ValueError, struct.error) as error:
                    raise UnreadableAvro(f"a record ends early or is malformed: {error}") from None
                if end > len(block):
                    raise UnreadableAvro("a record ends beyond its block")
                if end - at > self.limits.record_bytes:
                    raise UnreadableAvro(f"a record has more than {self.limits.record_bytes} bytes")
                yield value, block[at:end]
                at = end
            if at != len(block):
                raise UnreadableAvro("a block has bytes after its last record")

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """How many records a block has, and its bytes, decompressed."""
        bytes_left = self.limits.decoded_bytes
        for count, start, end in self.block_places():
            block = decompress(self.codec, self.content[start:end], bytes_left)
            bytes_left -= len(block)
            if count * self.schema.record.min_bytes > len(block):
                raise UnreadableAvro("a block claims more records than it has bytes for")
            yield count, block

    def block_places(self) -> Iterator[tuple[int, int, int]]:
        """How many records a block has, and where in the file it lies, still compressed."""
        at, content = self.blocks_at, self.content
        records_left = self.limits.records
        while at < len(content):
            count, size, at = _block_head(content, at)
            end = at + size
            if count < 0 or size < 0 or content[end : end + _SYNC_BYTES] != self.sync:
                raise UnreadableAvro("a block does not end at the sync marker")
            records_left -= count
            if records_left < 0:
                raise UnreadableAvro(f"the file has more than {self.limits.records} records")
            yield count, at, end
            at = end + _SYNC_BYTES


def open_avro(content: bytes, limits: AvroLimits) -> AvroFile:
    """Reads the header of a file. Raises UnreadableAvro."""
    if len(content) > limits.file_bytes:
        raise UnreadableAvro(f"the file has more than {limits.file_bytes} bytes")
    try:
        metadata, at = _header(content)
    except IndexError:
        raise UnreadableAvro("the file ends in its header") from None
    schema = metadata.pop("avro.schema", None)
    if schema is None:
        raise UnreadableAvro("the header has no avro.schema")
    sync = content[at : at + _SYNC_BYTES]
    if len(sync) != _SYNC_BYTES:
        raise UnreadableAvro("the file ends in its header")
    return AvroFile(
        schema=record_schema(_decoded(schema)),
        metadata=metadata,
        codec=_decoded(metadata.pop("avro.codec", b"null")),
        limits=limits,
        content=content,
        sync=sync,
        blocks_at=at + _SYNC_BYTES,
    )


def write_avro(
    schema: RecordSchema, metadata: Mapping[str, bytes], codec: str, records: Iterable[bytes]
) -> bytes:
    """A file of records that are already encoded by `schema`."""
    sync = os.urandom(_SYNC_BYTES)
    out = _file_head(schema, metadata, codec, sync)
    block, count = bytearray(), 0
    for record in records:
        block += record
        count += 1
        if len(block) >= _BLOCK_BYTES:
            _write_block(out, codec, bytes(block), count, sync)
            block, count = bytearray(), 0
    if count:
        _write_block(out, codec, bytes(block), count, sync)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """Some records of a file, compressed: the same bytes in every file that has them."""

    count: int
    data: bytes


def avro_block(codec: str, records: Sequence[bytes]) -> AvroBlock:
    return AvroBlock(len(records), _compress(codec, b"".join(records), _MANY_RECORDS_LEVEL))


def write_avro_blocks(
    schema: RecordSchema, metadata: Mapping[str, bytes], codec: str, blocks: Iterable[AvroBlock]
) -> bytes:
    """A file of blocks that are already compressed by `codec`."""
    sync = os.urandom(_SYNC_BYTES)
    out = _file_head(schema, metadata, codec, sync)
    for block in blocks:
        write_long(out, block.count)
        write_long(out, len(block.data))
        out += block.data
        out += sync
    return bytes(out)


class AvroWriter:
    """Writes a file block by block, so that its length is known on the way.

    Blocks have a number of records rather than of bytes: compression gains by large ones. A block
    of large records ends earlier, for a reader needs the memory for a whole one.

    Complete blocks are compressed by other threads while the next one is encoded; a file of one
    block needs none.
    """

    def __init__(
        self, schema: RecordSchema, metadata: Mapping[str, bytes], codec: str, block_records: int
    ) -> None:
        self._codec, self._block_records = codec, block_records
        self._sync = os.urandom(_SYNC_BYTES)
        self._out = _file_head(schema, metadata, codec, self._sync)
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._compressing: deque[_Compressing] = deque()
        self.block_starts: list[int] = []
        """Where the blocks begin that are complete, before compression."""
        self.decoded_bytes = 0
        """Of the blocks that are complete, before compression."""

    @property
    def length(self) -> int:
        """Of the file as far as its blocks are complete."""
        self._collect(0)
        return len(self._out)

    def is_at_least(self, length: int) -> bool:
        """Whether it is that long, waiting for blocks under way only where they may decide it."""
        most = sum(block.size_bytes + _MOST_ADDED_BYTES for block in self._compressing)
        return len(self._out) + most >= length and self.length >= length

    def write(self, record: bytes) -> bool:
        """Adds an encoded record; whether it completed a block."""
        self._block.append(record)
        self._block_bytes += len(record)
        complete = len(self._block) >= self._block_records or self._block_bytes >= _MAX_BLOCK_BYTES
        if complete:
            self._end_block()
        return complete

    def write_many(self, records: Sequence[bytes]) -> int:
        """Adds encoded records up to the end of a block; how many it took."""
        batch = records[: self.records_left]
        size = sum(map(len, batch))
        if self._block_bytes + size < _MAX_BLOCK_BYTES:
            self._block += batch
            self._block_bytes += size
            if len(self._block) >= self._block_records:
                self._end_block()
            return len(batch)
        taken = 0
        for record in batch:
            taken += 1
            if self.write(record):
                break
        return taken

    @property
    def records_left(self) -> int:
        """How many more the block takes, unless they are large."""
        return self._block_records - len(self._block)

    def end_block(self) -> None:
        """Ends the block under way, if there is one, however few its records are."""
        if self._block:
            self._end_block()

    def copy_block(self, count: int, data: bytes, decoded_bytes: int) -> None:
        """Adds a block as another file of the same schema and codec has it, compressed; the one
        under way must have been ended."""
        self._collect(0)
        _write_compressed(self._out, count, data, self._sync)
        self.block_starts.append(self.decoded_bytes)
        self.decoded_bytes += decoded_bytes

    @property
    def at_block(self) -> bool:
        """Whether the last block is complete."""
        return not self._block

    @property
    def position(self) -> int:
        """Where the next record will begin in the blocks, before compression."""
        return self.decoded_bytes + self._block_bytes

    def finish(self) -> bytes:
        """The whole file."""
        if self._block:
            # This thread has nothing else to do while it waits for the others.
            count, block = self._take_block()
            compressed = _compress(self._codec, block, _MANY_RECORDS_LEVEL)
            self._collect(0)
            _write_compressed(self._out, count, compressed, self._sync)
        self._collect(0)
        return bytes(self._out)

    def _end_block(self) -> None:
        count, block = self._take_block()
        compressed = _compressors().submit(_compress, self._codec, block, _MANY_RECORDS_LEVEL)
        self._compressing.append(_Compressing(count, len(block), compressed))
        self._collect(_MOST_COMPRESSING)

    def _take_block(self) -> tuple[int, bytes]:
        count, block = len(self._block), b"".join(self._block)
        self.block_starts.append(self.decoded_bytes)
        self.decoded_bytes += len(block)
        self._block, self._block_bytes = [], 0
        return count, block

    def _collect(self, left: int) -> None:
        """Writes compressed blocks in their order until only so many are under way."""
        while len(self._compressing) > left:
            block = self._compressing.popleft()
            _write_compressed(self._out, block.count, block.compressed.result(), self._sync)


@dataclass(frozen=True, slots=True)
class _Compressing:
    """A block that another thread compresses."""

    count: int
    size_bytes: int
    """Before compression."""
    compressed: Future[bytes]


@cache
def _compressors() -> ThreadPoolExecutor:
    """zlib and zstd let other threads run meanwhile."""
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), "frazil-compress")


def decompress(codec: str, data: bytes, max_bytes: int) -> bytes:
    """The block's bytes; never more than `max_bytes` are made."""
    try:
        block = _decompress(codec, data, max_bytes)
    except (zlib.error, OSError, EOFError, ValueError) as error:
        raise UnreadableAvro(f"a block is not {codec}: {error}") from None
    if len(block) > max_bytes:
        raise UnreadableAvro("the file's blocks decompress to more than is allowed")
    return block


def _decompress(codec: str, data: bytes, max_bytes: int) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        block = inflate.decompress(data, max_bytes + 1)
        return _complete(block, inflate.eof, max_bytes)
    if codec == "bzip2":
        bunzip = bz2.BZ2Decompressor()
        block = bunzip.decompress(data, max_bytes + 1)
        return _complete(block, bunzip.eof, max_bytes)
    if codec == "zstandard":
        reader = zstandard.ZstdDecompressor(max_window_size=_ZSTANDARD_WINDOW_BYTES)
        try:
            return reader.stream_reader(data).read(max_bytes + 1)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
    raise UnreadableAvro(f"the codec {codec} is not supported")


def _complete(block: bytes, finished: bool, max_bytes: int) -> bytes:
    if not finished and len(block) <= max_bytes:
        raise ValueError("it ends early")
    return block


def _compress(codec: str, data: bytes, level: int = zlib.Z_DEFAULT_COMPRESSION) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        deflate = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
        return deflate.compress(data) + deflate.flush()
    if codec == "bzip2":
        return bz2.compress(data)
    if codec == "zstandard":
        return zstandard.ZstdCompressor().compress(data)
    raise UnreadableAvro(f"the codec {codec} is not supported")


def _file_head(
    schema: RecordSchema, metadata: Mapping[str, bytes], codec: str, sync: bytes
) -> bytearray:
    out = bytearray(_MAGIC)
    header = {**metadata, "avro.schema": schema.text.encode(), "avro.codec": codec.encode()}
    write_long(out, len(header))
    for key, value in header.items():
        for part in (key.encode(), value):
            write_long(out, len(part))
            out += part
    out.append(0)
    out += sync
    return out


def _write_block(out: bytearray, codec: str, block: bytes, count: int, sync: bytes) -> None:
    _write_compressed(out, count, _compress(codec, block), sync)


def _write_compressed(out: bytearray, count: int, compressed: bytes, sync: bytes) -> None:
    write_long(out, count)
    write_long(out, len(compressed))
    out += compressed
    out += sync


def _block_head(content: bytes, at: int) -> tuple[int, int, int]:
    try:
        count, at = read_long(content, at)
        size, at = read_long(content, at)
    except IndexError:
        raise UnreadableAvro("the file ends in the head of a block") from None
    return count, size, at


def _header(content: bytes) -> tuple[dict[str, bytes], int]:
    if content[:4] != _MAGIC:
        raise UnreadableAvro("the file does not begin as an Avro file does")
    metadata: dict[str, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = read_long(content, at)
        if count == 0:
            return metadata, at
        if count < 0:
            count = -count
            _, at = read_long(content, at)
        if len(metadata) + count > _MAX_HEADER_ENTRIES:
            raise UnreadableAvro(f"the header has more than {_MAX_HEADER_ENTRIES} entries")
        for _ in range(count):
            key, at = read_bytes(content, at)
            metadata[_decoded(key)], at = read_bytes(content, at)


def _decoded(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableAvro("the header has text that is not UTF-8") from None
