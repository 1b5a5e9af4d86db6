"""Straight code that walks over manifest entries, made once for each schema.

A general reader spends its time on finding out what comes next. This code knows: it notes the few
numbers that the columns need and where the rest lies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

from frazil.format.avro.avro_schema import record_schema
from frazil.format.avro.avro_types import (
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
from frazil.format.manifest.manifest_fields import (
    DATA_FILE,
    ENTRY_NUMBERS,
    FILE_NUMBERS,
    FILE_PATH,
    FIRST_ROW_ID,
    PARTITION,
    checked_data_file,
    partition_record,
)

Walk = Callable[[bytes, int, int, int, Callable[[tuple[Any, ...]], None], dict[bytes, int]], int]
"""Takes a block, its count, its position among the blocks, the most bytes of a record, where rows
go, and the partition tuples known so far; gives the position after the last record."""


def walker(schema: str) -> Walk:
    """The code that walks over the blocks of manifests with this schema."""
    if len(schema) > _MAX_REMEMBERED_CHARS:
        return _compiled(schema)
    return _remembered(schema)


_MAX_REMEMBERED_CHARS: Final = 64 * 1024


@lru_cache(maxsize=256)
def _remembered(schema: str) -> Walk:
    return _compiled(schema)


def _compiled(schema: str) -> Walk:
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
    return cast(Walk, names["walk"])


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
        path = None
        row_id_at = -1"""
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
             file_size_in_bytes, first_row_id, index, base + file_at, base + file_end,
             row_id_at, path))
    return at"""


class _Code:
    """Writes the function. Types that manifests do not have are walked over by their own node."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}

    def function(self, record: Record) -> None:
        data_file = checked_data_file(record)
        self.lines += _HEAD.splitlines()
        for name, missing in (*ENTRY_NUMBERS.values(), *FILE_NUMBERS.values()):
            self._add(2, f"{name} = {missing}")
        for field in record.fields:
            self._entry_field(record, data_file, field)
        self.lines += _TAIL.splitlines()

    def _entry_field(self, record: Record, data_file: Record, field: Field) -> None:
        field_id = field.field_id
        if field_id == DATA_FILE and field.node is data_file:
            self._add(2, "file_at = at")
            for part in data_file.fields:
                self._file_field(data_file, part)
            self._add(2, "file_end = at")
        elif field_id in ENTRY_NUMBERS and record.by_id(field_id) is field:
            self._walk(2, field.node, ENTRY_NUMBERS[field_id][0])
        else:
            self._walk(2, field.node, None)

    def _file_field(self, data_file: Record, field: Field) -> None:
        field_id = field.field_id
        if field_id is None or data_file.by_id(field_id) is not field:
            self._walk(2, field.node, None)
        elif field_id in FILE_NUMBERS:
            if field_id == FIRST_ROW_ID:
                self._add(2, "row_id_at = at - file_at")
            self._walk(2, field.node, FILE_NUMBERS[field_id][0])
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
