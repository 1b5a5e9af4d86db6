"""Parquet's annotation of variants, which pyarrow reads but does not write.

A variant is a group of two binaries; that it is one stands in the footer alone (Parquet's
LogicalTypes, "VARIANT"), as one more field of the group's `SchemaElement` in Thrift's compact
protocol. The footer is the end of a file and nothing points into it, so it can be made anew on its
way out. Runs on executors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Final

import pyarrow as pa

from frazil.datafiles.arrow.arrow_types import is_variant
from frazil.values.parquet_columns import field_id_of

_MAGIC: Final = b"PAR1"
_END: Final = 8
"""The length of the footer in four bytes, and the magic bytes."""
_KEPT_WRITES: Final = 8
"""The writer ends a file with the footer, its length and the magic bytes, one write each."""

_SCHEMA: Final = 2
"""Of `FileMetaData`: the list of its `SchemaElement`s."""
_FIELD_ID: Final = 9
_LOGICAL_TYPE: Final = 10
_ANNOTATION: Final = bytes([0x0C, 0x20, 0x13, 0x01, 0x00, 0x00])
"""A union whose field 16 is a struct whose field 1, the version of the encoding, is 1."""

# Types of Thrift's compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    0, 1, 2, 3, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
_LAST_INTEGER: Final = 6


def variant_ids(schema: pa.Schema) -> frozenset[int]:
    """The field ids of all variants in the schema of a file, at every level."""
    return frozenset(found for field in schema for found in _variants(field))


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
    """The sink of a file with this schema; the same one where it has no variants."""
    found = variant_ids(schema)
    return AnnotatingSink(sink, found) if found else sink


class AnnotatingSink:
    """A file for pyarrow's writer to write to, which passes all on but the footer."""

    def __init__(self, sink: Any, field_ids: Collection[int]) -> None:
        self._sink = sink
        self._field_ids = field_ids
        self._pending: deque[bytes] = deque()
        self.closed = False

    def write(self, data: Any) -> int:
        self._pending.append(bytes(data))
        while len(self._pending) > _KEPT_WRITES:
            self._sink.write(self._pending.popleft())
        return len(data)

    def tell(self) -> int:
        """What the file has grown to; of a whole file its size."""
        return int(self._sink.tell()) + len(self._annotated())

    def flush(self) -> None:
        """What is pending may be the footer, so nothing is passed on before the end."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._sink.write(self._annotated())
            self._sink.close()

    def _annotated(self) -> bytes:
        """What is pending; where it ends with a footer, with that made anew."""
        pending = b"".join(self._pending)
        length = int.from_bytes(pending[-_END:-4], "little")
        if not pending.endswith(_MAGIC) or not 0 < length <= len(pending) - _END:
            return pending
        footer = annotate(pending[-_END - length : -_END], self._field_ids)
        return pending[: -_END - length] + footer + len(footer).to_bytes(4, "little") + _MAGIC


def annotate(footer: bytes, field_ids: Collection[int]) -> bytes:
    """The footer with the groups of these field ids annotated as variants."""
    parts, done = [], 0
    for end, last_field in _groups(footer, field_ids):
        # A field that follows the one before it by so much; the last byte of a struct is its stop.
        header = bytes([(_LOGICAL_TYPE - last_field) << 4 | _STRUCT])
        parts += [footer[done:end], header, _ANNOTATION]
        done = end
    return b"".join([*parts, footer[done:]])


def _groups(footer: bytes, field_ids: Collection[int]) -> Iterator[tuple[int, int]]:
    """Where the fields of each such `SchemaElement` end, and the number of the last one."""
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
    """As much of Thrift's compact protocol as walking over values needs."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and the type of each field of a struct; the caller takes its value."""
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
            # Of a field the type is the value.
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
            raise ValueError(f"{kind} is no type of Thrift's compact protocol")

    def _skip_map(self) -> None:
        count = self._varint()
        kinds = self._byte() if count else 0
        for _ in range(count):
            self.skip(kinds >> 4, in_list=True)
            self.skip(kinds & 15, in_list=True)

    def _byte(self) -> int:
        found = self._data[self.position]
        self.position += 1
        return found

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
