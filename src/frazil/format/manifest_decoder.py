"""The entries of a manifest as arrays, without their metrics: the low end of `manifest_columns`.

A general reader spends its time on finding out what comes next. Here straight code is made once for
each schema: it walks over an entry and notes the few numbers that the columns need and where the
rest lies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro_files import AvroFile
from frazil.format.avro_schema import optional_field, record_schema, required_field
from frazil.format.avro_types import (
    Array,
    Boolean,
    Bytes,
    Field,
    Fixed,
    Floating,
    Integer,
    Node,
    Null,
    Record,
    String,
    Union,
    UnreadableAvro,
    read_long,
)

NONE: Final = -1
"""No value, for numbers that are never negative."""
NO_SNAPSHOT: Final = -(1 << 63)
"""No snapshot id: any other number may be one."""

STATUS: Final = 0
SNAPSHOT_ID: Final = 1
DATA_FILE: Final = 2
SEQUENCE_NUMBER: Final = 3
FILE_SEQUENCE_NUMBER: Final = 4
FILE_PATH: Final = 100
PARTITION: Final = 102
RECORD_COUNT: Final = 103
FILE_SIZE: Final = 104
CONTENT: Final = 134
FIRST_ROW_ID: Final = 142

MALFORMED: Final = (IndexError, ValueError, struct.error, OverflowError)
"""What bytes that are no values of their schema raise, beside UnreadableAvro."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRows:
    """Row i is entry i of the file; positions are those in its blocks put one after another."""

    status: NDArray[np.int64]
    snapshot_id: NDArray[np.int64]
    sequence_number: NDArray[np.int64]
    file_sequence_number: NDArray[np.int64]
    content: NDArray[np.int64]
    record_count: NDArray[np.int64]
    file_size_in_bytes: NDArray[np.int64]
    first_row_id: NDArray[np.int64]
    partition: NDArray[np.int64]
    data_file_at: NDArray[np.int64]
    data_file_end: NDArray[np.int64]
    paths: tuple[bytes, ...]
    partitions: tuple[bytes, ...]
    """The distinct partition tuples as they are encoded."""


def decode_rows(file: AvroFile) -> DecodedRows:
    """Reads every entry. Raises UnreadableAvro."""
    walk = _walker(file.schema.text)
    rows: list[tuple[Any, ...]] = []
    partitions: dict[bytes, int] = {}
    base = 0
    for count, block in file.blocks():
        try:
            end = walk(block, count, base, file.limits.record_bytes, rows.append, partitions)
        except MALFORMED as error:
            raise UnreadableAvro(f"a record ends early or is malformed: {error}") from None
        if end != len(block):
            raise UnreadableAvro("a block has bytes after its last record")
        base += len(block)
    columns = list(zip(*rows, strict=True)) if rows else [()] * 12
    *numbers, paths = columns
    arrays = iter([np.array(column, dtype=np.int64) for column in numbers])
    return DecodedRows(
        status=next(arrays),
        snapshot_id=next(arrays),
        sequence_number=next(arrays),
        file_sequence_number=next(arrays),
        content=next(arrays),
        record_count=next(arrays),
        file_size_in_bytes=next(arrays),
        first_row_id=next(arrays),
        partition=next(arrays),
        data_file_at=next(arrays),
        data_file_end=next(arrays),
        paths=tuple(paths),
        partitions=tuple(partitions),
    )


# --- the schema ------------------------------------------------------------------------------


def data_file_record(record: Record) -> Record:
    """The type of the field `data_file`."""
    node = required_field(record, DATA_FILE, Record).node
    if not isinstance(node, Record):
        raise UnreadableAvro("the schema's field data_file can be null")
    return node


def partition_record(data_file: Record) -> Record | None:
    """The type of the field `partition`."""
    field = optional_field(data_file, PARTITION, Record)
    if field is None or isinstance(field.node, Record):
        return None if field is None else cast(Record, field.node)
    raise UnreadableAvro("the schema's field partition can be null")


# --- the code --------------------------------------------------------------------------------

_Walk = Callable[[bytes, int, int, int, Callable[[tuple[Any, ...]], None], dict[bytes, int]], int]
"""Takes a block, its count, its position among the blocks, the most bytes of a record, where rows
go, and the partition tuples known so far; gives the position after the last record."""

_NUMBERS: Final = {
    SNAPSHOT_ID: ("snapshot_id", NO_SNAPSHOT),
    SEQUENCE_NUMBER: ("sequence_number", NONE),
    FILE_SEQUENCE_NUMBER: ("file_sequence_number", NONE),
}
_FILE_NUMBERS: Final = {
    CONTENT: ("content", 0),
    RECORD_COUNT: ("record_count", NONE),
    FILE_SIZE: ("file_size", NONE),
    FIRST_ROW_ID: ("first_row_id", NONE),
}


def _walker(schema: str) -> _Walk:
    if len(schema) > _MAX_REMEMBERED_CHARS:
        return _compiled(schema)
    return _remembered(schema)


_MAX_REMEMBERED_CHARS: Final = 64 * 1024


@lru_cache(maxsize=256)
def _remembered(schema: str) -> _Walk:
    return _compiled(schema)


def _compiled(schema: str) -> _Walk:
    """The code for a schema. Nothing of the schema's text gets into it but numbers."""
    code = _Code()
    code.function(record_schema(schema).record)
    names: dict[str, Any] = {
        "read_long": read_long,
        "length_at": _length_at,
        "block_at": _block_at,
        "Unreadable": UnreadableAvro,
        **code.constants,
    }
    exec(compile("\n".join(code.lines), "<manifest entries>", "exec"), names)
    return cast(_Walk, names["walk"])


def _length_at(data: bytes, at: int) -> tuple[int, int]:
    length, at = read_long(data, at)
    if length < 0:
        raise UnreadableAvro("a length is negative")
    return length, at


def _block_at(data: bytes, at: int) -> tuple[int, int]:
    """An array's block whose head is not one plain byte: how many elements to walk over."""
    count, at = read_long(data, at)
    if count > 0:
        return count, at
    size, at = read_long(data, at)
    if count == 0 or not 0 <= size <= len(data) - at:
        raise UnreadableAvro("an array's block points beyond the data")
    return 0, at + size


_MAX_LINES: Final = 5_000
"""From here on a schema is not one of Iceberg's, and its code would only cost time to make."""

_HEAD: Final = """def walk(data, count, base, max_bytes, add, partitions):
    at, size = 0, len(data)
    for _ in range(count):
        start = at
        partition = b""
        path = None"""
_TAIL: Final = """        if at > size:
            raise Unreadable("a record ends beyond its block")
        if at - start > max_bytes:
            raise Unreadable(f"a record has more than {max_bytes} bytes")
        if path is None:
            raise Unreadable("an entry has no file path")
        index = partitions.get(partition)
        if index is None:
            index = partitions[partition] = len(partitions)
        add((status, snapshot_id, sequence_number, file_sequence_number, content, record_count,
             file_size, first_row_id, index, base + file_at, base + file_end, path))
    return at"""


class _Code:
    """Writes the function. Types that manifests do not have are walked over by their own node."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}

    def function(self, record: Record) -> None:
        data_file = data_file_record(record)
        required_field(record, STATUS, Integer)
        required_field(data_file, FILE_PATH, String)
        required_field(data_file, RECORD_COUNT, Integer)
        self.lines += _HEAD.splitlines()
        for field_id, (name, missing) in {STATUS: ("status", NONE), **_NUMBERS}.items():
            optional_field(record, field_id, Integer)
            self._add(2, f"{name} = {missing}")
        for field_id, (name, missing) in _FILE_NUMBERS.items():
            optional_field(data_file, field_id, Integer)
            self._add(2, f"{name} = {missing}")
        for field in record.fields:
            self._entry_field(record, data_file, field)
        self.lines += _TAIL.splitlines()

    def _entry_field(self, record: Record, data_file: Record, field: Field) -> None:
        known = {STATUS: ("status", NONE), **_NUMBERS}
        field_id = field.field_id
        if field_id == DATA_FILE and field.node is data_file:
            self._add(2, "file_at = at")
            for part in data_file.fields:
                self._file_field(data_file, part)
            self._add(2, "file_end = at")
        elif field_id in known and record.by_id(field_id) is field:
            self._walk(2, field.node, known[field_id][0])
        else:
            self._walk(2, field.node, None)

    def _file_field(self, data_file: Record, field: Field) -> None:
        field_id = field.field_id
        if field_id is None or data_file.by_id(field_id) is not field:
            self._walk(2, field.node, None)
        elif field_id in _FILE_NUMBERS:
            self._walk(2, field.node, _FILE_NUMBERS[field_id][0])
        elif field_id == FILE_PATH:
            self._walk(2, field.node, "path")
        elif field_id == PARTITION and partition_record(data_file) is not None:
            self._add(2, "partition_at = at")
            self._walk(2, field.node, None)
            self._add(2, "partition = data[partition_at:at]")
        else:
            self._walk(2, field.node, None)

    def _add(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * depth + line for line in lines]

    def _walk(self, depth: int, node: Node, into: str | None) -> None:
        """Moves `at` behind a value, and sets the variable `into` to it."""
        if into is None and len(self.lines) > _MAX_LINES:
            self._skip(depth, node)
        elif isinstance(node, Integer):
            self._integer(depth, into)
        elif isinstance(node, Bytes | String):
            self._sized(depth, into)
        elif isinstance(node, Boolean | Fixed | Floating):
            self._add(depth, f"at += {node.min_bytes}")
        elif isinstance(node, Null):
            self._add(depth, "pass")
        elif isinstance(node, Union) and node.optional_of is not None:
            self._optional(depth, node, node.optional_of, into)
        elif isinstance(node, Array) and _is_flat(node.items):
            self._array(depth, node.items)
        elif isinstance(node, Record) and all(_is_optional_flat(f.node) for f in node.fields):
            self._add(depth, "pass")
            for field in node.fields:
                self._walk(depth, field.node, None)
        else:
            self._skip(depth, node)

    def _skip(self, depth: int, node: Node) -> None:
        name = f"skip_{len(self.constants)}"
        self.constants[name] = node.skip
        self._add(depth, f"at = {name}(data, at)")

    def _integer(self, depth: int, into: str | None) -> None:
        if into is None:
            self._add(depth, "while data[at] > 127:", "    at += 1", "at += 1")
            return
        self._add(
            depth,
            f"{into} = data[at]",
            f"if {into} > 127:",
            f"    {into}, at = read_long(data, at)",
            "else:",
            f"    {into} = ({into} >> 1) ^ -({into} & 1)",
            "    at += 1",
        )

    def _sized(self, depth: int, into: str | None) -> None:
        self._add(
            depth,
            "length = data[at]",
            "if length > 127 or length & 1:",
            "    length, at = length_at(data, at)",
            "else:",
            "    length >>= 1",
            "    at += 1",
        )
        if into is not None:
            self._add(depth, f"{into} = data[at : at + length]")
        self._add(depth, "at += length")

    def _optional(self, depth: int, node: Union, other: Node, into: str | None) -> None:
        null, some = node.branches.index(Null()), node.branches.index(other)
        self._add(
            depth,
            "branch = data[at]",
            "at += 1",
            "if branch > 127:",
            "    branch, at = read_long(data, at - 1)",
            "    branch *= 2",
            f"if branch == {2 * some}:",
        )
        self._walk(depth + 1, other, into)
        self._add(
            depth,
            f"elif branch != {2 * null}:",
            '    raise Unreadable(f"a union has no branch {branch // 2}")',
        )

    def _array(self, depth: int, items: Node) -> None:
        self._add(
            depth,
            "while data[at]:",
            "    items = data[at]",
            "    if items > 127 or items & 1:",
            "        items, at = block_at(data, at)",
            "    else:",
            "        items >>= 1",
            "        at += 1",
            f"    if items * {items.min_bytes} > size - at:",
            '        raise Unreadable("an array claims more elements than it has bytes for")',
        )
        if items.varints is not None:
            self._add(depth + 1, f"for _ in range(items * {items.varints}):")
            self._integer(depth + 2, None)
        else:
            self._add(depth + 1, "for _ in range(items):")
            self._walk(depth + 2, items, None)
        self._add(depth, "at += 1")


_FLAT: Final = (Boolean, Bytes, Fixed, Floating, Integer, Null, String)


def _is_flat(node: Node) -> bool:
    """A primitive, or a record of them: the elements of Iceberg's lists and maps."""
    if isinstance(node, Record):
        return all(isinstance(field.node, _FLAT) for field in node.fields)
    return isinstance(node, _FLAT)


def _is_optional_flat(node: Node) -> bool:
    if isinstance(node, Union):
        return node.optional_of is not None and isinstance(node.optional_of, _FLAT)
    return isinstance(node, _FLAT)
