"""Parses Avro schemas and checks them before any data is decoded.

A schema is refused if decoding by it could use more memory than the data has bytes: recursive
types, deep nesting, types that grow exponentially by reference, and arrays of elements without
bytes (177 bytes could otherwise become a list of 20 million). With an accepted schema, data
contains at most as many values as bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

from frazil.format.avro.avro_types import (
    Array,
    Boolean,
    Bytes,
    Enumeration,
    Field,
    Fixed,
    Floating,
    Integer,
    Node,
    Null,
    Record,
    String,
    StringMap,
    Union,
    UnreadableAvro,
)

T = TypeVar("T")

_MAX_DEPTH: Final = 32
_MAX_NODES: Final = 20_000
_MAX_FIXED_BYTES: Final = 1 << 20
_MAX_REMEMBERED_SCHEMA_CHARS: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The text of a schema and the record type that it describes."""

    text: str
    record: Record

    @property
    def tree(self) -> dict[str, Any]:
        """The schema as JSON. A new object each time, so the caller may change it."""
        tree = json.loads(self.text)
        assert isinstance(tree, dict)
        return tree


def cached_by_schema(make: Callable[[str], T]) -> Callable[[str], T]:
    """Cache the results of a function of a schema's text, except for huge schemas."""
    remembered = lru_cache(maxsize=256)(make)

    @wraps(make)
    def get(text: str) -> T:
        return make(text) if len(text) > _MAX_REMEMBERED_SCHEMA_CHARS else remembered(text)

    return get


def required_field(record: Record, field_id: int, *kinds: type) -> Field:
    """Return a required field that has one of these types. Raises UnreadableAvro."""
    field = optional_field(record, field_id, *kinds)
    if field is None:
        raise UnreadableAvro(f"the schema has no field with the field-id {field_id}")
    return field


def optional_field(record: Record, field_id: int, *kinds: type) -> Field | None:
    """Return a field, which must have one of these types if it exists. Raises UnreadableAvro."""
    field = record.by_id(field_id)
    if field is not None and not isinstance(field.value_node, kinds):
        raise UnreadableAvro(f"the schema's field {field.name} cannot be {field.node.layout}")
    return field


def named_types(tree: Any) -> dict[str, dict[str, Any]]:
    """Return the named types in a schema's JSON by the last part of their names."""
    named: dict[str, dict[str, Any]] = {}
    rest = [tree]
    while rest:
        part = rest.pop()
        if isinstance(part, list):
            rest += part
        elif isinstance(part, dict):
            if part.get("type") in ("record", "fixed", "enum"):
                named[_last_part(part["name"])] = part
            rest += [part.get(key) for key in ("type", "items", "values", "fields")]
    return named


@cached_by_schema
def record_schema(text: str) -> RecordSchema:
    """Parse and check a schema. It is cached: the manifests of a table share one."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableAvro(f"avro.schema is not JSON: {error}") from None
    node = _Parser().parse(tree)
    if not isinstance(node, Record) or not isinstance(tree, dict):
        raise UnreadableAvro("avro.schema is not a record")
    if node.min_bytes == 0:
        raise UnreadableAvro("avro.schema is a record that can be empty")
    return RecordSchema(text, node)


_PRIMITIVES: Final[Mapping[str, Node]] = {
    "null": Null(),
    "boolean": Boolean(),
    "int": Integer("int"),
    "long": Integer("long"),
    "float": Floating("float", struct.Struct("<f")),
    "double": Floating("double", struct.Struct("<d")),
    "bytes": Bytes(),
    "string": String(),
}


class _Parser:
    """Converts the JSON of one schema into nodes and keeps its named types."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Node, int] | None] = {}
        """Types by the last part of their names. None while a type is being defined."""

    def parse(self, tree: Any) -> Node:
        return self._parse(tree, 0)[0]

    def _parse(self, tree: Any, depth: int) -> tuple[Node, int]:
        """Return the node and its number of nodes with every reference expanded."""
        if depth > _MAX_DEPTH:
            raise UnreadableAvro(f"the schema is nested deeper than {_MAX_DEPTH} levels")
        if isinstance(tree, str):
            primitive = _PRIMITIVES.get(tree)
            return (primitive, 1) if primitive is not None else self._reference(tree)
        if isinstance(tree, list):
            return self._union(tree, depth)
        if not isinstance(tree, dict):
            raise UnreadableAvro(f"the schema has a {type(tree).__name__} in place of a type")
        kind = tree.get("type")
        if isinstance(kind, dict | list):
            return self._parse(kind, depth + 1)
        if kind in ("array", "map"):
            return self._container(tree, kind, depth)
        if kind in ("record", "fixed", "enum"):
            return self._define(tree, kind, depth)
        return self._parse(kind, depth + 1)

    def _reference(self, name: str) -> tuple[Node, int]:
        known = self._named.get(_last_part(name), ())
        if known is None:
            raise UnreadableAvro(f"the schema's type {name} contains itself")
        if not known:
            raise UnreadableAvro(f"the schema has no type {name}")
        return known

    def _union(self, tree: list[Any], depth: int) -> tuple[Node, int]:
        if not tree:
            raise UnreadableAvro("the schema has an empty union")
        parsed = [self._parse(branch, depth + 1) for branch in tree]
        nodes = _bounded(1 + sum(count for _, count in parsed))
        return Union(tuple(node for node, _ in parsed)), nodes

    def _container(self, tree: dict[str, Any], kind: str, depth: int) -> tuple[Node, int]:
        if kind == "map":
            values, nodes = self._parse(tree.get("values"), depth + 1)
            return StringMap(values), _bounded(1 + nodes)
        items, nodes = self._parse(tree.get("items"), depth + 1)
        if items.min_bytes == 0:
            raise UnreadableAvro("the schema has an array whose elements can be empty")
        return Array(items), _bounded(1 + nodes)

    def _define(self, tree: dict[str, Any], kind: str, depth: int) -> tuple[Node, int]:
        name = tree.get("name")
        if not isinstance(name, str) or not name:
            raise UnreadableAvro(f"the schema has a {kind} without a name")
        key = _last_part(name)
        if key in self._named or key in _PRIMITIVES:
            raise UnreadableAvro(f"the schema defines {name} twice")
        self._named[key] = None
        if kind == "record":
            defined = self._record(tree, name, depth)
        elif kind == "fixed":
            defined = Fixed(_fixed_size(tree, name)), 1
        else:
            symbols = tree.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
                raise UnreadableAvro(f"the schema's enum {name} has no symbols")
            defined = Enumeration(tuple(symbols)), 1
        self._named[key] = defined
        return defined

    def _record(self, tree: dict[str, Any], name: str, depth: int) -> tuple[Node, int]:
        declared = tree.get("fields")
        if not isinstance(declared, list):
            raise UnreadableAvro(f"the schema's record {name} has no fields")
        fields: list[Field] = []
        nodes = 1
        for field in declared:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise UnreadableAvro(f"the schema's record {name} has a field without a name")
            node, count = self._parse(field.get("type"), depth + 1)
            nodes = _bounded(nodes + count)
            field_id = field.get("field-id")
            known_id = field_id if type(field_id) is int else None
            fields.append(Field(field["name"], node, known_id))
        if len({field.name for field in fields}) != len(fields):
            raise UnreadableAvro(f"the schema's record {name} has a field twice")
        return Record.of(fields), nodes


def _last_part(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _bounded(nodes: int) -> int:
    if nodes > _MAX_NODES:
        raise UnreadableAvro(f"the schema has more than {_MAX_NODES} types")
    return nodes


def _fixed_size(tree: dict[str, Any], name: str) -> int:
    size = tree.get("size")
    if type(size) is not int or not 0 <= size <= _MAX_FIXED_BYTES:
        raise UnreadableAvro(f"the schema's fixed {name} has no size up to {_MAX_FIXED_BYTES}")
    return size
