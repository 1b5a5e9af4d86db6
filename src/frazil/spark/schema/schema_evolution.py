"""Extend a table's schema to fit a frame: `mergeSchema`.

New columns are added at the end of their struct, optional, with new IDs. A type is widened where
Iceberg allows it: int, float and the precision of a decimal. Nothing is dropped, narrowed or made
optional. Java's `UnionByNameVisitor` also makes required columns optional; a frame's columns are
almost always nullable, so that no required column would remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyspark.sql.types as st

from frazil.client.declare.client_table import Table
from frazil.client.declare.schema_updates import schema_requirements, schema_updates
from frazil.spark.core.name_matching import NameMatcher
from frazil.spark.schema.spark_types import iceberg_type
from frazil.values import types
from frazil.wire.errors import BadRequest


@dataclass(frozen=True)
class Evolution:
    """A schema and what makes it the table's current one."""

    schema: types.StructType
    updates: tuple[Mapping[str, Any], ...] = ()
    requirements: tuple[Mapping[str, Any], ...] = ()


def evolve(table: Table, frame: st.StructType, names: NameMatcher) -> Evolution:
    """Return a schema with the frame's columns, and the updates for the commit."""
    last_id = int(table.metadata["last-column-id"])
    merger = _SchemaMerger(count(last_id + 1), names, table.format_version)
    schema = merger.struct(table.schema, frame, "")
    if schema == table.schema:
        return Evolution(schema)
    return Evolution(schema, schema_updates(table, schema), schema_requirements(table))


class _SchemaMerger:
    """Adds the columns of a frame to a schema and widens types."""

    def __init__(self, ids: Iterator[int], names: NameMatcher, format_version: int) -> None:
        self._ids = ids
        self._names = names
        self._format_version = format_version

    def struct(
        self, known: types.StructType, source_type: st.StructType, path: str
    ) -> types.StructType:
        """Return the struct with the frame's new fields at the end."""
        positions = self._names.positions(source_type.names, path)
        fields = []
        for field in known.fields:
            position = positions.pop(self._names.key(field.name), None)
            if position is not None:
                field = self._field(field, source_type.fields[position], path)
            fields.append(field)
        prefix = f"{path}." if path else ""
        added = [source_type.fields[position] for position in sorted(positions.values())]
        field_ids = [next(self._ids) for _ in added]
        for field_id, new in zip(field_ids, added, strict=True):
            fields.append(self._new_field(field_id, new, f"{prefix}{new.name}"))
        return types.StructType(tuple(fields))

    def _new_field(self, field_id: int, new: st.StructField, path: str) -> types.NestedField:
        type_ = iceberg_type(new.dataType, self._ids, path)
        self._check_version(type_, path)
        doc = (new.metadata or {}).get("comment")
        return types.NestedField(field_id, new.name, type_, required=False, doc=doc)

    def _check_version(self, type_: types.Type, path: str) -> None:
        if types.min_format_version(type_) > self._format_version:
            raise BadRequest(
                f"column {path}: {type_} needs a table of format version "
                f"{types.min_format_version(type_)}, this one has {self._format_version}"
            )
        for part in types.child_fields(type_):
            self._check_version(part.type, f"{path}.{part.name}")

    def _field(
        self, known: types.NestedField, source_type: st.StructField, path: str
    ) -> types.NestedField:
        type_ = self._type(
            known.type, source_type.dataType, f"{path}.{known.name}" if path else known.name
        )
        return known if type_ is known.type else replace(known, type=type_)

    def _type(self, known: types.Type, source_type: st.DataType, path: str) -> types.Type:
        if isinstance(known, types.StructType) and isinstance(source_type, st.StructType):
            merged = self.struct(known, source_type, path)
            return known if merged == known else merged
        if isinstance(known, types.ListType) and isinstance(source_type, st.ArrayType):
            element = self._type(known.element.type, source_type.elementType, f"{path}.element")
            if element is known.element.type:
                return known
            return types.ListType(replace(known.element, type=element))
        if isinstance(known, types.MapType) and isinstance(source_type, st.MapType):
            # The type of map keys cannot change: lookups in older rows would fail.
            value = self._type(known.value.type, source_type.valueType, f"{path}.value")
            if value is known.value.type:
                return known
            return types.MapType(known.key, replace(known.value, type=value))
        return _widened(known, source_type)


def _widened(known: types.Type, source_type: st.DataType) -> types.Type:
    """Return the frame's type if the table's can be promoted to it, else the table's type."""
    if known.type_id is types.TypeId.INT and isinstance(source_type, st.LongType):
        return types.LONG
    if known.type_id is types.TypeId.FLOAT and isinstance(source_type, st.DoubleType):
        return types.DOUBLE
    if isinstance(known, types.DecimalType) and isinstance(source_type, st.DecimalType):
        is_wider = known.scale == source_type.scale and known.precision < source_type.precision
        return types.DecimalType(source_type.precision, source_type.scale) if is_wider else known
    return known
