"""Extend a table's schema to fit a frame: `mergeSchema`.

New columns are added at the end of their struct, optional, with new IDs. A type is widened where
Iceberg allows it: int, float and the precision of a decimal. Nothing is dropped, narrowed or made
optional. Java's `UnionByNameVisitor` also makes required columns optional; a frame's columns are
almost always nullable, so that no required column would remain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyspark.sql.types as st

from frazil.client.declare.client_table import Table
from frazil.client.declare.metadata_updates import LAST_ADDED
from frazil.datafiles.portable_table import table_name_mapping
from frazil.spark.core.name_matching import NameMatcher
from frazil.spark.schema.spark_types import iceberg_type
from frazil.values import types
from frazil.values.name_mapping import NAME_MAPPING_PROPERTY
from frazil.values.type_json import struct_to_json
from frazil.wire.errors import BadRequest

IDENTIFIER_FIELDS = "identifier-field-ids"


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


# --- updates ---------------------------------------------------------------------------------


def schema_updates(table: Table, schema: types.StructType) -> tuple[Mapping[str, Any], ...]:
    """Return updates that make `schema` the current one and keep the identifier fields."""
    last_id = int(table.metadata["last-column-id"])
    document = {**struct_to_json(schema), "schema-id": next_id(table, "schemas", "schema-id")}
    identifiers = identifier_field_ids(table)
    if identifiers:
        document[IDENTIFIER_FIELDS] = identifiers
    highest = max([last_id, *types.fields_by_id(schema)])
    updates: list[Mapping[str, Any]] = [
        {"action": "add-schema", "schema": document, "last-column-id": highest},
        {"action": "set-current-schema", "schema-id": LAST_ADDED},
    ]
    mapping = table.properties.get(NAME_MAPPING_PROPERTY)
    if mapping is not None:
        text = _with_new_names(mapping, table, schema)
        if text is not None:
            updates.append({"action": "set-properties", "updates": {NAME_MAPPING_PROPERTY: text}})
    return tuple(updates)


def next_id(table: Table, part: str, id_name: str) -> int:
    """Return an unused ID for a new schema, spec or order, which are parts of the metadata."""
    return max(int(known[id_name]) for known in table.metadata[part]) + 1


def identifier_field_ids(table: Table) -> list[int]:
    """Return the identifier fields of the table's current schema."""
    current_id = table.metadata["current-schema-id"]
    schemas = {known["schema-id"]: known for known in table.metadata["schemas"]}
    return list(schemas[current_id].get(IDENTIFIER_FIELDS) or [])


def schema_requirements(table: Table) -> tuple[Mapping[str, Any], ...]:
    """Return requirements that nobody else changed the schema or assigned field IDs."""
    return (
        {
            "type": "assert-current-schema-id",
            "current-schema-id": table.metadata["current-schema-id"],
        },
        {
            "type": "assert-last-assigned-field-id",
            "last-assigned-field-id": int(table.metadata["last-column-id"]),
        },
    )


# --- name mapping ----------------------------------------------------------------------------


def _with_new_names(text: str, table: Table, schema: types.StructType) -> str | None:
    """Return the mapping with new fields and names, as Java does; None if there are none."""
    table_name_mapping({NAME_MAPPING_PROPERTY: text})  # Refuse an invalid mapping.
    mapping = json.loads(text)
    known = types.fields_by_id(table.schema)
    old_names = {field_id: known_field.field.name for field_id, known_field in known.items()}
    changed = _add_names(mapping, schema, old_names, int(table.metadata["last-column-id"]))
    return json.dumps(mapping, ensure_ascii=False) if changed else None


def _add_names(
    mapped: list[dict[str, Any]], type_: types.Type, old_names: Mapping[int, str], last_id: int
) -> bool:
    """Add new fields, and new names beside the old ones, which older files have."""
    by_id = {item.get("field-id"): item for item in mapped}
    changed = False
    for field in types.child_fields(type_):
        item = by_id.get(field.field_id)
        if item is None and field.field_id <= last_id:
            # The field was left out of the mapping on purpose.
            continue
        if item is None or old_names.get(field.field_id, field.name) != field.name:
            for other in mapped:
                other["names"] = [name for name in other["names"] if name != field.name]
            if item is None:
                item = {"field-id": field.field_id, "names": []}
                mapped.append(item)
            item["names"].append(field.name)
            changed = True
        if field.type.is_nested:
            parts = item.get("fields") or []
            if _add_names(parts, field.type, old_names, last_id):
                item["fields"] = parts
                changed = True
    return changed
