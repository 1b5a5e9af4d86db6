"""Avro container files: a header with a schema, then compressed blocks of records.

Iceberg's manifests and manifest lists are such files, and clients send them to the server. Every
limit is therefore checked before memory is used: the size of the file by the store, the records of
a block by its count, and the bytes of a block during decompression.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from frazil.format.avro.avro_codecs import compress, decompress
from frazil.format.avro.avro_schema import RecordSchema, record_schema
from frazil.format.avro.avro_types import (
    Field,
    Node,
    Record,
    UnreadableAvro,
    encode_long,
    read_bytes,
    read_long,
)

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_BLOCK_RECORDS: Final = 500
_MAX_BLOCK_BYTES: Final = 1 << 20
_MAX_HEADER_ENTRIES: Final = 1_000
_MAX_PATTERN_NODES: Final = 64
_MAX_PATTERN_BYTES: Final = 32 << 10
"""Beyond these limits a schema is not Iceberg's, and its pattern would take long to compile."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AvroLimits:
    """The limits for reading one file."""

    file_bytes: int
    decoded_bytes: int
    """The sum over all blocks, after decompression."""
    records: int
    record_bytes: int


MANIFEST_LIST_LIMITS: Final = AvroLimits(
    file_bytes=32 << 20, decoded_bytes=64 << 20, records=100_000, record_bytes=256 << 10
)
MANIFEST_LIMITS: Final = AvroLimits(
    file_bytes=64 << 20, decoded_bytes=256 << 20, records=200_000, record_bytes=4 << 20
)


Skip: TypeAlias = Callable[[bytes, int], int]
"""Returns the position after the values that begin at a position."""


def skipper(nodes: Sequence[Node]) -> Skip:
    """Return a function that skips one value of each node.

    An entry of a manifest has about twenty fields, and most readers skip most of them. Calling a
    node for each takes up to five times as long as one match of a regular expression. What the
    expression does not match is skipped by the nodes, which also identify any damage.
    """
    steps: list[Skip] = []
    known = len(nodes) <= _MAX_PATTERN_NODES
    pairs = [(node.pattern if known else None, node.skip) for node in nodes]
    for has_none, run in groupby(pairs, lambda pair: pair[0] is None):
        patterns, skips = zip(*run, strict=True)
        steps += skips if has_none else [_matched(patterns, skips)]
    return _in_order(steps)


def _matched(patterns: Sequence[bytes], skips: Sequence[Skip]) -> Skip:
    by_node = _in_order(skips)
    # Equal patterns become one with a count, because each takes a millisecond to compile.
    runs = ((pattern, len(list(run))) for pattern, run in groupby(patterns))
    pattern = b"".join(b"(?:%b){%d}+" % run for run in runs)
    if len(pattern) > _MAX_PATTERN_BYTES:
        return by_node
    match = re.compile(pattern, re.DOTALL).match

    def skip(data: bytes, at: int) -> int:
        matched = match(data, at)
        return by_node(data, at) if matched is None else matched.end()

    return skip


def _in_order(steps: Sequence[Skip]) -> Skip:
    if len(steps) == 1:
        return steps[0]

    def skip(data: bytes, at: int) -> int:
        for step in steps:
            at = step(data, at)
        return at

    return skip


class ValueReader(Protocol):
    """Reads the value of a field and returns it with the position behind it."""

    def read(self, data: bytes, at: int) -> tuple[Any, int]: ...


class Projection:
    """Reads some fields of a record into a list and skips the others."""

    def __init__(
        self, record: Record, wanted: Sequence[Field | tuple[Field, ValueReader] | None]
    ) -> None:
        """`wanted` may name a reader of its own for a field. None leaves a slot empty."""
        self._size = len(wanted)
        readers: dict[str, tuple[int, ValueReader]] = {}
        for slot, want in enumerate(wanted):
            if isinstance(want, tuple):
                readers[want[0].name] = slot, want[1]
            elif want is not None:
                readers[want.name] = slot, want.node
        self._steps: list[tuple[int | None, Callable[[bytes, int], Any]]] = []
        """The slot and the reader of a field. Without a slot, fields are skipped."""
        for is_wanted, run in groupby(record.fields, lambda field: field.name in readers):
            if is_wanted:
                slots = (readers[field.name] for field in run)
                self._steps += [(slot, reader.read) for slot, reader in slots]
            else:
                self._steps.append((None, skipper([field.node for field in run])))

    def read(self, data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = [None] * self._size
        for slot, step in self._steps:
            if slot is None:
                at = step(data, at)
            else:
                values[slot], at = step(data, at)
        return values, at


@dataclass(frozen=True, slots=True)
class AvroFile:
    """A file of which only the header has been read."""

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
        """Return what `read` reads at the position of each record, and the record's bytes."""
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
        """Return the number of records and the decompressed bytes of each block."""
        bytes_left = self.limits.decoded_bytes
        for count, start, end in self.block_spans():
            block = decompress(self.codec, self.content[start:end], bytes_left)
            bytes_left -= len(block)
            if count * self.schema.record.min_bytes > len(block):
                raise UnreadableAvro("a block claims more records than it has bytes for")
            yield count, block

    def block_spans(self) -> Iterator[tuple[int, int, int]]:
        """Return for each block its records and where its compressed bytes begin and end."""
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
    """Read the header of a file. Raises UnreadableAvro."""
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
    """Return a file of records that are already encoded by `schema`."""
    writer = AvroWriter(schema, metadata, codec, _BLOCK_RECORDS)
    for record in records:
        writer.write(record)
    return writer.finish()


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """Compressed records, which are the same bytes in every file that contains them."""

    count: int
    data: bytes


def avro_block(codec: str, records: Sequence[bytes], level: int | None = None) -> AvroBlock:
    return AvroBlock(len(records), compress(codec, b"".join(records), level))


def write_avro_blocks(
    schema: RecordSchema, metadata: Mapping[str, bytes], codec: str, blocks: Iterable[AvroBlock]
) -> bytes:
    """Return a file of blocks that are already compressed by `codec`."""
    sync = os.urandom(_SYNC_BYTES)
    out = _file_head(schema, metadata, codec, sync)
    for block in blocks:
        _write_block(out, block.count, block.data, sync)
    return bytes(out)


class AvroWriter:
    """Writes a file block by block, so that its length is known early.

    A block has a number of records rather than of bytes, because large blocks compress better. A
    block of large records ends earlier, because a reader needs memory for a whole block.
    """

    def __init__(
        self,
        schema: RecordSchema,
        metadata: Mapping[str, bytes],
        codec: str,
        block_records: int,
        level: int | None = None,
    ) -> None:
        self._codec, self._block_records, self._level = codec, block_records, level
        self._sync = os.urandom(_SYNC_BYTES)
        self._out = _file_head(schema, metadata, codec, self._sync)
        self._block: list[bytes] = []
        self._block_bytes = 0
        self.block_starts: list[int] = []
        """Where the complete blocks begin, before compression."""
        self.decoded_bytes = 0
        """The size of the complete blocks, before compression."""

    @property
    def length(self) -> int:
        """The length of the file up to its last complete block."""
        return len(self._out)

    @property
    def at_block(self) -> bool:
        """Whether the last block is complete."""
        return not self._block

    @property
    def position(self) -> int:
        """Where the next record will begin in the blocks, before compression."""
        return self.decoded_bytes + self._block_bytes

    @property
    def records_left(self) -> int:
        """How many more records the block takes, unless they are large."""
        return self._block_records - len(self._block)

    def write(self, record: bytes) -> bool:
        """Add an encoded record. Return whether it completed a block."""
        self._block.append(record)
        self._block_bytes += len(record)
        complete = len(self._block) >= self._block_records or self._block_bytes >= _MAX_BLOCK_BYTES
        if complete:
            self.end_block()
        return complete

    def write_many(self, records: Sequence[bytes]) -> int:
        """Add encoded records up to the end of a block. Return how many were added."""
        batch = records[: self.records_left]
        size = sum(map(len, batch))
        if self._block_bytes + size < _MAX_BLOCK_BYTES:
            self._block += batch
            self._block_bytes += size
            if len(self._block) >= self._block_records:
                self.end_block()
            return len(batch)
        taken = 0
        for record in batch:
            taken += 1
            if self.write(record):
                break
        return taken

    def end_block(self) -> None:
        """End the open block, if there is one, even if it has few records."""
        if self._block:
            count, block = len(self._block), b"".join(self._block)
            self._block, self._block_bytes = [], 0
            self.copy_block(count, compress(self._codec, block, self._level), len(block))

    def copy_block(self, count: int, data: bytes, decoded_bytes: int) -> None:
        """Add a compressed block, for example of another file with the same schema and codec. The
        open block must have ended."""
        self.block_starts.append(self.decoded_bytes)
        self.decoded_bytes += decoded_bytes
        _write_block(self._out, count, data, self._sync)

    def finish(self) -> bytes:
        """Return the whole file."""
        self.end_block()
        return bytes(self._out)


def _file_head(
    schema: RecordSchema, metadata: Mapping[str, bytes], codec: str, sync: bytes
) -> bytearray:
    out = bytearray(_MAGIC)
    header = {**metadata, "avro.schema": schema.text.encode(), "avro.codec": codec.encode()}
    out += encode_long(len(header))
    for key, value in header.items():
        for part in (key.encode(), value):
            out += encode_long(len(part))
            out += part
    out.append(0)
    out += sync
    return out


def _write_block(out: bytearray, count: int, compressed: bytes, sync: bytes) -> None:
    out += encode_long(count)
    out += encode_long(len(compressed))
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
