"""Makes a schema a table's current one: the updates, their requirements and the name mapping."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from frazil.client.declare.metadata_updates import LAST_ADDED
from frazil.datafiles.portable_table import table_name_mapping
from frazil.values import types
from frazil.values.name_mapping import NAME_MAPPING_PROPERTY
from frazil.values.type_json import struct_to_json

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

IDENTIFIER_FIELDS: Final = "identifier-field-ids"


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


# --- properties that name columns -----------------------------------------------------------------

_COLUMN_PREFIXES: Final = (
    "write.metadata.metrics.column.",
    "write.parquet.bloom-filter-enabled.column.",
    "write.parquet.stats-enabled.column.",
)


def property_updates(table: Table, schema: types.StructType) -> list[dict[str, Any]]:
    """Return updates of properties that name columns, for a schema with columns renamed or dropped.

    The rules are those of Java's `SchemaUpdate`. `schema_updates` changes the name mapping.
    """
    new = {field_id: field.name for field_id, field in types.fields_by_id(schema).items()}
    old = {field_id: field.name for field_id, field in types.fields_by_id(table.schema).items()}
    renamed = {old[key]: new[key] for key in old.keys() & new.keys() if old[key] != new[key]}
    dropped = {old[key] for key in old.keys() - new.keys()}
    changed, removed = _by_column(table.properties, renamed, dropped)
    updates: list[dict[str, Any]] = []
    if removed:
        updates.append({"action": "remove-properties", "removals": sorted(removed)})
    if changed:
        updates.append({"action": "set-properties", "updates": changed})
    return updates


def _by_column(
    properties: Mapping[str, str], renamed: Mapping[str, str], dropped: set[str]
) -> tuple[dict[str, str], set[str]]:
    changed: dict[str, str] = {}
    removed: set[str] = set()
    for key, value in properties.items():
        prefix = next((prefix for prefix in _COLUMN_PREFIXES if key.startswith(prefix)), None)
        if prefix is None:
            continue
        column = key[len(prefix) :]
        if column in renamed:
            changed[prefix + renamed[column]] = value
            removed.add(key)
        elif column in dropped:
            removed.add(key)
    return changed, removed - changed.keys()
