"""Turns assignments of UPDATE and MERGE into columns of whole rows.

Spark casts an expression to its column's type by its rules for storing (ANSI). A required column
refuses null with an error that names it. To set a field, its struct is built again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyspark.sql.types as st
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.spark.conditions.sql_columns import ColumnNames, name_parts, parse
from frazil.spark.core.name_matching import NameMatcher, quoted
from frazil.spark.schema.column_fitting import Assignment, ColumnFitter, assignment
from frazil.spark.schema.column_fitting import Source as FittedSource
from frazil.spark.schema.spark_literals import literal
from frazil.spark.schema.spark_types import spark_type
from frazil.values.types import NestedField, StructType, Type
from frazil.wire.errors import BadRequest

_DEFAULT: Final = "default"

Parts = tuple[str, ...]
Value: TypeAlias = str | Column
"""An expression, as SQL or as a Column."""
Assignments: TypeAlias = Mapping[str, Value]
"""Expressions by the columns that they are stored in; `point.x` is a field of a struct."""


def expression(value: Value) -> Column:
    return fn.expr(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Rows:
    """A frame of rows whose columns are to be set, and the table that stores them."""

    frame: DataFrame
    """Has the table's columns under the alias, and whatever else expressions may name."""
    schema: StructType
    alias: str
    case_sensitive: bool = False
    table: str = "the table"

    # --- rows of UPDATE, INSERT and `*` ---------------------------------------------------------

    def updated(self, assignments: Assignments) -> list[Column]:
        """Return every column of the table: the assigned value, or else the old one."""
        return self._fitted(self._tree(assignments), self._old_value)

    def inserted(self, assignments: Assignments) -> list[Column]:
        """Return every column of the table: the assigned value, or else the default or null."""
        tree = self._tree(assignments)
        for name, node in tree.items():
            if isinstance(node, dict):
                raise BadRequest(f"INSERT sets whole columns: give a value for {name}")
        return self._fitted(tree, self._default)

    def all_from(self, source_alias: str, source_columns: Sequence[str]) -> list[Column]:
        """Return every column of the table from the source's column of that name."""
        names = NameMatcher(self.case_sensitive)
        sources = {names.key(name): name for name in source_columns}
        missing = [
            field.name for field in self.schema.fields if names.key(field.name) not in sources
        ]
        if missing:
            raise BadRequest(
                f"{self.table}: the source of * has no column {', '.join(missing)}: name the "
                "columns to set, or add it to the source"
            )
        columns = {
            field.name: fn.col(quoted(source_alias, sources[names.key(field.name)]))
            for field in self.schema.fields
        }
        return self._fitted(columns, self._old_value)

    # --- assigned values ------------------------------------------------------------------------

    def _tree(self, assignments: Assignments) -> dict[str, Any]:
        """Return the values by column; fields of structs form a nested dict."""
        names = ColumnNames(self.schema, self.alias, self.case_sensitive)
        tree: dict[str, Any] = {}
        for name, value in assignments.items():
            parsed = parse(name)
            parts = None if parsed is None else name_parts(parsed)
            target = names.find_parts(parts or (name,))
            if target is None:
                known = ", ".join(field.name for field in self.schema.fields)
                raise BadRequest(f"{self.table} has no column {name} to set; it has {known}")
            self._insert(tree, target.parts, self._value(value, target.field), name)
        return tree

    def _insert(self, tree: dict[str, Any], parts: Parts, value: Column, name: str) -> None:
        *parents, last = parts
        for parent in parents:
            tree = tree.setdefault(parent, {})
            if not isinstance(tree, dict):
                raise BadRequest(f"column {name} is set twice: as a whole and as a field")
        if last in tree:
            raise BadRequest(f"column {name} is set twice")
        tree[last] = value

    @staticmethod
    def _value(value: Value, target: NestedField) -> Column:
        if isinstance(value, str) and value.strip().lower() == _DEFAULT:
            return _default_of(target)
        return expression(value)

    # --- columns --------------------------------------------------------------------------------

    def _old_value(self, target: NestedField) -> Column:
        return fn.col(quoted(self.alias, target.name))

    def _default(self, target: NestedField) -> Column:
        if target.required and target.write_default is None:
            raise BadRequest(f"column {target.name} is required and has no default: give a value")
        return _default_of(target)

    def _fitted(
        self, tree: Mapping[str, Any], otherwise: Callable[[NestedField], Column]
    ) -> list[Column]:
        leaves = list(_leaves(tree))
        # One analysis by Spark gives the types of all expressions.
        named = [leaf.alias(f"_{position}") for position, leaf in enumerate(leaves)]
        types = self.frame.select(*named).schema.fields if named else []
        rules = _StoreRules(
            NameMatcher(self.case_sensitive), dict(zip(map(id, leaves), types, strict=True))
        )
        columns = [
            rules.column(field, tree[field.name], self._old_value(field), field.name)
            if field.name in tree
            else otherwise(field)
            for field in self.schema.fields
        ]
        if rules.problems:
            raise BadRequest(f"{self.table}: {'; '.join(rules.problems)}")
        return columns


def _leaves(tree: Mapping[str, Any]) -> Iterator[Column]:
    for node in tree.values():
        if isinstance(node, dict):
            yield from _leaves(node)
        else:
            yield node


def _default_of(target: NestedField) -> Column:
    if target.write_default is None:
        return fn.lit(None).cast(spark_type(target.type))
    if target.type.is_nested:
        raise BadRequest(f"column {target.name}: give a value for this nested column")
    return literal(target.type, target.write_default)


class _StoreRules(ColumnFitter):
    """Stores one value: fields of structs are matched by name, and all must be present."""

    def __init__(self, names: NameMatcher, types: Mapping[int, st.StructField]) -> None:
        """Create it; `types` are those of the assigned expressions, by the expression's `id`."""
        super().__init__()
        self._names = names
        self._types = types

    def match(self, found: st.StructType, target: StructType, path: str) -> list[int | None]:
        positions = self._names.positions(found.names, path)
        keys = {self._names.key(field.name) for field in target.fields}
        for name in found.names:
            if self._names.key(name) not in keys:
                self.problems.append(f"column {path} has no field {name}")
        matched = [positions.get(self._names.key(field.name)) for field in target.fields]
        for child, position in zip(target.fields, matched, strict=True):
            if position is None:
                self.problems.append(f"column {path}: the value has no field {child.name}")
        return matched

    def default(self, target: NestedField) -> Any:
        return target.write_default

    def assign(self, found: st.DataType, target: Type) -> Assignment:
        return assignment(found, spark_type(target), "ansi")

    # --- assigned values ------------------------------------------------------------------------

    def column(self, target: NestedField, node: Any, old_value: Column, path: str) -> Column:
        if isinstance(node, dict):
            return self._built(target, node, old_value, path)
        type_ = self._types[id(node)]
        source = FittedSource(node, type_.dataType, type_.nullable, type_.name)
        return self.field(source, target, path)[0]

    def _built(
        self, target: NestedField, tree: Mapping[str, Any], old_value: Column, path: str
    ) -> Column:
        """Build the struct: fields that are not set keep their values, or null if it was null."""
        assert isinstance(target.type, StructType)
        parts = []
        for child in target.type.fields:
            column = old_value.getField(child.name)
            if child.name in tree:
                column = self.column(child, tree[child.name], column, f"{path}.{child.name}")
            parts.append(column.alias(child.name))
        return fn.struct(*parts)
