"""Properties that name columns, after columns were renamed or dropped: as Java's `SchemaUpdate`
takes care of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.parquet_names import NAME_MAPPING_PROPERTY
from frazil.datafiles.footers.parquet_schema import fields_by_id
from frazil.values.types import StructType

_PREFIXES: Final = (
    "write.metadata.metrics.column.",
    "write.parquet.bloom-filter-enabled.column.",
    "write.parquet.stats-enabled.column.",
)


def property_updates(table: Table, schema: StructType) -> list[dict[str, Any]]:
    """Updates that go with a new schema."""
    new = {field_id: found.name for field_id, found in fields_by_id(schema).items()}
    old = {field_id: found.name for field_id, found in fields_by_id(table.schema).items()}
    renamed = {name: new[one] for one, name in old.items() if one in new and new[one] != name}
    dropped = {name for one, name in old.items() if one not in new}
    changed, removed = _by_column(table.properties, renamed, dropped)
    mapping = table.properties.get(NAME_MAPPING_PROPERTY)
    if mapping is not None and renamed:
        changed[NAME_MAPPING_PROPERTY] = _with_new_names(mapping, old, new)
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
        prefix = next((one for one in _PREFIXES if key.startswith(one)), None)
        if prefix is None:
            continue
        column = key[len(prefix) :]
        if column in renamed:
            changed[prefix + renamed[column]] = value
            removed.add(key)
        elif column in dropped:
            removed.add(key)
    return changed, removed - changed.keys()


def _with_new_names(text: str, old: Mapping[int, str], new: Mapping[int, str]) -> str:
    """The new name beside the old one, by which older files still know the column."""
    mapping = json.loads(text)
    _add_names(mapping, old, new)
    return json.dumps(mapping, ensure_ascii=False)


def _add_names(
    mapped: list[dict[str, Any]], old: Mapping[int, str], new: Mapping[int, str]
) -> None:
    for item in mapped:
        field_id = int(item.get("field-id", -1))
        if field_id in new and new[field_id] != old.get(field_id, new[field_id]):
            name = new[field_id].rpartition(".")[2]
            for other in mapped:
                other["names"] = [one for one in other["names"] if one != name]
            item["names"] = [*item["names"], name]
        _add_names(item.get("fields") or [], old, new)
