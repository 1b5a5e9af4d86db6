"""Adds Parquet's annotation of variants, which pyarrow reads but does not write.

A variant is a group of two binaries. Only the footer says that it is one (Parquet's LogicalTypes,
"VARIANT"), by one more field of the group's `SchemaElement` in Thrift's compact protocol. The
footer is the end of a file and nothing points into it, so it can be replaced while it is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Final

import pyarrow as pa

from frazil.datafiles.arrow.arrow_types import is_variant
from frazil.values.parquet_columns import field_id_of

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8
"""The length of the footer in four bytes, and the magic bytes."""
_BUFFERED_WRITES: Final = 8
"""pyarrow ends a file with the footer, its length and the magic bytes, one write each."""

_SCHEMA: Final = 2
"""The field of `FileMetaData` with the list of its `SchemaElement`s."""
_FIELD_ID: Final = 9
_LOGICAL_TYPE: Final = 10
"""Fields of `SchemaElement`."""
_ANNOTATION: Final = bytes([0x0C, 0x20, 0x13, 0x01, 0x00, 0x00])
"""A union whose field 16 is a struct whose field 1, the version of the encoding, is 1."""

# Types of Thrift's compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    0, 1, 2, 3, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
_LAST_INTEGER: Final = 6


def variant_ids(schema: pa.Schema) -> frozenset[int]:
    """Return the field ids of all variants in the schema of a file, at every level."""
    return frozenset(field_id for field in schema for field_id in _variants(field))


def _variants(field: pa.Field) -> Iterator[int]:
    type_ = field.type
    if is_variant(type_):
        field_id = field_id_of(field)
        assert field_id is not None
        yield field_id
        return
    for position in range(type_.num_fields):
        yield from _variants(type_.field(position))


def annotating(sink: Any, schema: pa.Schema) -> Any:
    """Wrap the sink of a file if its schema has variants."""
    field_ids = variant_ids(schema)
    return AnnotatingSink(sink, field_ids) if field_ids else sink


class AnnotatingSink:
    """A file that pyarrow writes to; it replaces the footer and passes on everything else."""

    def __init__(self, sink: Any, field_ids: Collection[int]) -> None:
        self._sink = sink
        self._field_ids = field_ids
        self._pending: deque[bytes] = deque()
        self.closed = False

    def write(self, data: Any) -> int:
        self._pending.append(bytes(data))
        while len(self._pending) > _BUFFERED_WRITES:
            self._sink.write(self._pending.popleft())
        return len(data)

    def tell(self) -> int:
        """Return the size so far, or the size of the finished file."""
        return int(self._sink.tell()) + len(self._annotated())

    def flush(self) -> None:
        """Do nothing: the pending bytes may be the footer."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._sink.write(self._annotated())
            self._sink.close()

    def _annotated(self) -> bytes:
        """Return the pending bytes; if they end with a footer, with the annotated one."""
        pending = b"".join(self._pending)
        length = int.from_bytes(pending[-_TAIL_BYTES:-4], "little")
        if not pending.endswith(_MAGIC) or not 0 < length <= len(pending) - _TAIL_BYTES:
            return pending
        footer = annotate(pending[-_TAIL_BYTES - length : -_TAIL_BYTES], self._field_ids)
        return (
            pending[: -_TAIL_BYTES - length] + footer + len(footer).to_bytes(4, "little") + _MAGIC
        )


def annotate(footer: bytes, field_ids: Collection[int]) -> bytes:
    """Return the footer with the groups of these field ids annotated as variants."""
    parts, done = [], 0
    for end, last_field in _groups(footer, field_ids):
        # A field starts with its distance from the last one. A struct ends with a stop byte.
        header = bytes([(_LOGICAL_TYPE - last_field) << 4 | _STRUCT])
        parts += [footer[done:end], header, _ANNOTATION]
        done = end
    return b"".join([*parts, footer[done:]])


def _groups(footer: bytes, field_ids: Collection[int]) -> Iterator[tuple[int, int]]:
    """Return where the fields of each such group end, and the number of the last field."""
    reader = _CompactReader(footer)
    for number, kind in reader.fields():
        if number != _SCHEMA:
            reader.skip(kind)
            continue
        count, _ = reader.list_header()
        for _ in range(count):
            field_id, last = None, 0
            for last, inner in reader.fields():
                if last == _FIELD_ID:
                    field_id = reader.integer()
                else:
                    reader.skip(inner)
            if field_id in field_ids and last < _LOGICAL_TYPE:
                yield reader.position - 1, last
        return


class _CompactReader:
    """Reads as much of Thrift's compact protocol as skipping values needs."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Return the number and type of each field; the caller reads or skips its value."""
        number = 0
        while (header := self._byte()) != _STOP:
            delta, kind = header >> 4, header & 15
            number = number + delta if delta else self.integer()
            yield number, kind

    def list_header(self) -> tuple[int, int]:
        header = self._byte()
        count = header >> 4
        return (self._varint() if count == 15 else count), header & 15

    def integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, kind: int, *, in_list: bool = False) -> None:
        if kind in (_TRUE, _FALSE):
            # In a field the type is the value.
            self.position += 1 if in_list else 0
        elif kind == _BYTE:
            self.position += 1
        elif kind <= _LAST_INTEGER:
            self._varint()
        elif kind == _DOUBLE:
            self.position += 8
        elif kind == _BINARY:
            length = self._varint()
            self.position += length
        elif kind in (_LIST, _SET):
            count, element = self.list_header()
            for _ in range(count):
                self.skip(element, in_list=True)
        elif kind == _MAP:
            self._skip_map()
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            raise ValueError(f"{kind} is not a type of Thrift's compact protocol")

    def _skip_map(self) -> None:
        count = self._varint()
        kinds = self._byte() if count else 0
        for _ in range(count):
            self.skip(kinds >> 4, in_list=True)
            self.skip(kinds & 15, in_list=True)

    def _byte(self) -> int:
        byte = self._data[self.position]
        self.position += 1
        return byte

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
