"""Assignments of UPDATE and MERGE as the columns of whole rows.

An expression is brought to its column's type by Spark's rules for storing (ANSI), a required column
refuses null with its name, and a field of a struct is set by putting the struct together anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyspark.sql.types as st
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.spark.conditions.sql_columns import ColumnNames, name_parts, parse
from frazil.spark.core.name_matching import NameMatcher, quoted
from frazil.spark.rows.merge_clauses import Assignments, Value
from frazil.spark.schema.column_fitting import Assignment, ColumnFitter, assignment
from frazil.spark.schema.column_fitting import Source as FittedSource
from frazil.spark.schema.spark_literals import literal
from frazil.spark.schema.spark_types import spark_type
from frazil.values.types import NestedField, StructType, Type
from frazil.wire.errors import BadRequest

_DEFAULT: Final = "default"

Parts = tuple[str, ...]


def expression(value: Value) -> Column:
    return fn.expr(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Rows:
    """A frame of rows whose columns are to be set, and the table that these are stored in."""

    frame: DataFrame
    """Has the table's columns under the alias, and whatever else expressions may name."""
    schema: StructType
    alias: str
    case_sensitive: bool = False
    table: str = "the table"

    # --- the rows of UPDATE, INSERT and the stars ---------------------------------------------

    def updated(self, assignments: Assignments) -> list[Column]:
        """Every column of the table: set where it is assigned to, else as it was."""
        tree = self._tree(assignments)
        return self._fitted(tree, self._kept)

    def inserted(self, assignments: Assignments) -> list[Column]:
        """Every column of the table; what is not assigned to gets its default, or null."""
        tree = self._tree(assignments)
        for name, node in tree.items():
            if isinstance(node, dict):
                raise BadRequest(f"INSERT sets whole columns: give a value for {name}")
        return self._fitted(tree, self._default)

    def all_from(self, source_alias: str, source_columns: Sequence[str]) -> list[Column]:
        """Every column of the table from the source's column of that name."""
        names = NameMatcher(self.case_sensitive)
        found = {names.key(name): name for name in source_columns}
        missing = [one.name for one in self.schema.fields if names.key(one.name) not in found]
        if missing:
            raise BadRequest(
                f"{self.table}: the source of * has no column {', '.join(missing)}: name the "
                "columns to set, or add it to the source"
            )
        return self._fitted(
            {
                one.name: fn.col(quoted(source_alias, found[names.key(one.name)]))
                for one in self.schema.fields
            },
            self._kept,
        )

    # --- what is assigned to ------------------------------------------------------------------

    def _tree(self, assignments: Assignments) -> dict[str, Any]:
        """Assigned values by column, for fields of structs as trees."""
        names = ColumnNames(self.schema, self.alias, self.case_sensitive)
        tree: dict[str, Any] = {}
        for name, value in assignments.items():
            parsed = parse(name)
            parts = None if parsed is None else name_parts(parsed)
            found = names.find_parts(parts or (name,))
            if found is None:
                known = ", ".join(one.name for one in self.schema.fields)
                raise BadRequest(f"{self.table} has no column {name} to set; it has {known}")
            self._plant(tree, found.parts, self._value(value, found.field), name)
        return tree

    def _plant(self, tree: dict[str, Any], parts: Parts, value: Column, name: str) -> None:
        *before, last = parts
        for part in before:
            tree = tree.setdefault(part, {})
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

    # --- columns ------------------------------------------------------------------------------

    def _kept(self, target: NestedField) -> Column:
        return fn.col(quoted(self.alias, target.name))

    def _default(self, target: NestedField) -> Column:
        if target.required and target.write_default is None:
            raise BadRequest(f"column {target.name} is required and has no default: give a value")
        return _default_of(target)

    def _fitted(self, tree: Mapping[str, Any], otherwise: Any) -> list[Column]:
        leaves = list(_leaves(tree))
        # All types in one question to Spark.
        named = [leaf.alias(f"_{at}") for at, leaf in enumerate(leaves)]
        types = self.frame.select(*named).schema.fields if named else []
        fitting = _Fitting(dict(zip(map(id, leaves), types, strict=True)), self.case_sensitive)
        columns = [
            fitting.column(one, tree[one.name], self._kept(one), one.name)
            if one.name in tree
            else otherwise(one)
            for one in self.schema.fields
        ]
        if fitting.fitter.problems:
            raise BadRequest(f"{self.table}: {'; '.join(fitting.fitter.problems)}")
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


@dataclass(frozen=True)
class _Fitting:
    types: Mapping[int, st.StructField]
    """Of the assigned expressions, by their identity."""
    case_sensitive: bool
    fitter: _StoreRules = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fitter", _StoreRules(NameMatcher(self.case_sensitive)))

    def column(self, target: NestedField, node: Any, before: Column, path: str) -> Column:
        if isinstance(node, dict):
            return self._struct(target, node, before, path)
        found = self.types[id(node)]
        source = FittedSource(node, found.dataType, found.nullable, found.name)
        return self.fitter.field(source, target, path)[0]

    def _struct(
        self, target: NestedField, tree: Mapping[str, Any], before: Column, path: str
    ) -> Column:
        """Fields that are not set stay; those of a struct that was null are null."""
        assert isinstance(target.type, StructType)
        parts = []
        for one in target.type.fields:
            kept = before.getField(one.name)
            where = f"{path}.{one.name}"
            column = self.column(one, tree[one.name], kept, where) if one.name in tree else kept
            parts.append(column.alias(one.name))
        return fn.struct(*parts)


class _StoreRules(ColumnFitter):
    """How one value is stored: structs by the names of their fields, all of them given."""

    def __init__(self, names: NameMatcher) -> None:
        super().__init__()
        self._names = names

    def match(self, found: st.StructType, target: StructType, path: str) -> list[int | None]:
        places = self._names.places(found.names, path)
        wanted = {self._names.key(one.name) for one in target.fields}
        for name in found.names:
            if self._names.key(name) not in wanted:
                self.problems.append(f"column {path} has no field {name}")
        matched = [places.get(self._names.key(one.name)) for one in target.fields]
        for one, place in zip(target.fields, matched, strict=True):
            if place is None:
                self.problems.append(f"column {path}: the value has no field {one.name}")
        return matched

    def default(self, target: NestedField) -> Any:
        return target.write_default

    def assign(self, found: st.DataType, target: Type) -> Assignment:
        return assignment(found, spark_type(target), "ansi")
