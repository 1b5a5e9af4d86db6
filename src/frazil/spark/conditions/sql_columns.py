"""Columns as a SQL text names them, found in a schema as Spark finds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from sqlglot import exp

from frazil.values.types import NestedField, StructType, Type

Parts: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class ColumnNames:
    """The columns of a table, and how the statement calls the table."""

    schema: StructType
    alias: str | None = None
    case_sensitive: bool = False

    def find(self, node: exp.Expression) -> FoundColumn | None:
        """The column that a node of the tree names; None where it is another thing."""
        parts = name_parts(node)
        return None if parts is None else self.find_parts(parts)

    def find_parts(self, parts: Parts) -> FoundColumn | None:
        """As Spark: the table's alias is tried first, then a column of that name."""
        if self._is_alias(parts):
            found = self._resolve(parts[1:])
            if found is not None:
                return found
        return self._resolve(parts)

    def find_top(self, parts: Parts) -> set[str]:
        """The columns of the table that a name can be of or in, whatever is inside them."""
        wanted = {self.key(part) for part in parts[:2]}
        return {field.name for field in self.schema.fields if self.key(field.name) in wanted}

    def is_qualified(self, parts: Parts) -> bool:
        """Whether the table's alias stands before a column of it."""
        return self._is_alias(parts) and self._resolve(parts[1:]) is not None

    def _is_alias(self, parts: Parts) -> bool:
        return (
            self.alias is not None and len(parts) > 1 and self.key(parts[0]) == self.key(self.alias)
        )

    def _resolve(self, parts: Parts) -> FoundColumn | None:
        names: list[str] = []
        type_: Type = self.schema
        field: NestedField | None = None
        for part in parts:
            field = self._child(type_, part)
            if field is None:
                return None
            names.append(field.name)
            type_ = field.type
        if field is None or self._dotted_counts.get(".".join(names)) != 1:
            return None
        return FoundColumn(".".join(names), tuple(names), field)

    def _child(self, type_: Type, name: str) -> NestedField | None:
        if not isinstance(type_, StructType):
            return None
        wanted = self.key(name)
        found = [field for field in type_.fields if self.key(field.name) == wanted]
        return found[0] if len(found) == 1 else None

    def key(self, name: str) -> str:
        """The name as it is compared with others."""
        return name if self.case_sensitive else name.lower()

    @cached_property
    def _dotted_counts(self) -> dict[str, int]:
        """A column `a.b` and a field b of a struct a have one name in Iceberg's expressions."""
        counts: dict[str, int] = {}
        for name in _dotted_names(self.schema, ()):
            counts[name] = counts.get(name, 0) + 1
        return counts


@dataclass(frozen=True)
class FoundColumn:
    name: str
    """With dots, in the schema's own spelling."""
    parts: Parts
    field: NestedField

    @property
    def type(self) -> Type:
        return self.field.type


def name_parts(node: exp.Expression) -> Parts | None:
    """`a.b.c` as its parts; None where the node is no name."""
    if isinstance(node, exp.Paren):
        return name_parts(node.this)
    if isinstance(node, exp.Column):
        parts = [part.name for part in node.parts if isinstance(part, exp.Identifier)]
        return tuple(parts) if len(parts) == len(node.parts) else None
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = name_parts(node.this)
        return None if before is None else (*before, node.expression.name)
    return None


def _dotted_names(struct: StructType, before: Parts) -> Iterator[str]:
    for field in struct.fields:
        parts = (*before, field.name)
        yield ".".join(parts)
        if isinstance(field.type, StructType):
            yield from _dotted_names(field.type, parts)
