"""Replace the schema, spec and order of a table, like Java's `TableMetadata.buildReplacement`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from itertools import count
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.spark.ddl.partition_terms import VOID, partition_spec, sort_order
from frazil.spark.schema.spark_types import struct_with_ids
from frazil.values.type_json import struct_to_json
from frazil.values.types import StructType, fields_by_id
from frazil.wire.file_actions import MAIN

_FORMAT_VERSION: Final = "format-version"


@dataclass(frozen=True)
class Replacement:
    """What replaces a table."""

    table: Table
    """The table as it will be, for the writers of its files."""
    updates: Sequence[Mapping[str, Any]]
    requirements: Sequence[Mapping[str, Any]]


def replacement_of(
    table: Table,
    schema: StructType,
    partitioned_by: Sequence[str],
    sorted_by: Sequence[str],
    location: str | None,
    properties: Mapping[str, str],
) -> Replacement:
    """Return the replacement of a table.

    `schema` may have any IDs: columns whose names the table has keep the table's IDs.
    """
    ids = count(int(table.metadata["last-column-id"]) + 1)
    known = {field.name: field_id for field_id, field in fields_by_id(table.schema).items()}
    schema = struct_with_ids(schema, lambda name: known[name] if name in known else next(ids))
    document = {**struct_to_json(schema), "schema-id": _next_id(table, "schemas", "schema-id")}
    spec = _spec(table, schema, partitioned_by)
    order = _order(table, schema, sorted_by)
    metadata = dict(table.metadata)
    version = properties.get(_FORMAT_VERSION)
    if version is not None and version.isdigit():
        metadata[_FORMAT_VERSION] = max(int(version), table.format_version)
    metadata["schemas"] = [*table.metadata["schemas"], document]
    metadata["current-schema-id"] = document["schema-id"]
    metadata["partition-specs"] = [*_others(table, "partition-specs", "spec-id", spec), spec]
    metadata["default-spec-id"] = spec["spec-id"]
    metadata["sort-orders"] = [*_others(table, "sort-orders", "order-id", order), order]
    metadata["default-sort-order-id"] = order["order-id"]
    metadata["location"] = location or table.location
    metadata["properties"] = {**table.properties, **properties}
    metadata["refs"] = {
        name: ref for name, ref in (table.metadata.get("refs") or {}).items() if name != MAIN
    }
    metadata["current-snapshot-id"] = -1
    updates = _updates(table, document, spec, order, location, properties)
    return Replacement(with_changes(table, metadata=metadata), updates, _requirements(table))


def _updates(
    table: Table,
    schema: Mapping[str, Any],
    spec: Mapping[str, Any],
    order: Mapping[str, Any],
    location: str | None,
    properties: Mapping[str, str],
) -> list[Mapping[str, Any]]:
    updates: list[Mapping[str, Any]] = []
    version = properties.get(_FORMAT_VERSION)
    others = {key: text for key, text in properties.items() if key != _FORMAT_VERSION}
    if version is not None:
        updates.append({"action": "set-properties", "updates": {_FORMAT_VERSION: version}})
    if MAIN in table.refs:
        updates.append({"action": "remove-snapshot-ref", "ref-name": MAIN})
    updates += [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    if location is not None:
        updates.append({"action": "set-location", "location": location})
    if others:
        updates.append({"action": "set-properties", "updates": others})
    return updates


def _requirements(table: Table) -> list[Mapping[str, Any]]:
    """Require that nobody else assigned IDs or changed the default spec.

    Rows that others have written meanwhile do not matter, because they are replaced.
    """
    metadata = table.metadata
    return [
        {
            "type": "assert-last-assigned-field-id",
            "last-assigned-field-id": metadata["last-column-id"],
        },
        {
            "type": "assert-last-assigned-partition-id",
            "last-assigned-partition-id": metadata["last-partition-id"],
        },
        {"type": "assert-default-spec-id", "default-spec-id": metadata["default-spec-id"]},
    ]


def _next_id(table: Table, part: str, id_name: str) -> int:
    return max(int(known[id_name]) for known in table.metadata[part]) + 1


def _others(
    table: Table, part: str, id_name: str, new: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    return [known for known in table.metadata[part] if known[id_name] != new[id_name]]


# --- partitions and order -------------------------------------------------------------------------


def _spec(table: Table, schema: StructType, terms: Sequence[str]) -> Mapping[str, Any]:
    wanted = partition_spec(schema, terms)["fields"]
    ids = count(int(table.metadata["last-partition-id"]) + 1)
    if table.format_version == 1:
        fields = _carried_forward(table, wanted, ids)
    else:
        known = {
            (field["source-id"], field["transform"]): field["field-id"]
            for spec in table.metadata["partition-specs"]
            for field in spec["fields"]
        }
        fields = []
        for field in wanted:
            key = (field["source-id"], field["transform"])
            field_id = known[key] if key in known else next(ids)
            fields.append({**field, "field-id": field_id})
    for spec in table.metadata["partition-specs"]:
        if [_key(field) for field in spec["fields"]] == [_key(field) for field in fields]:
            return dict(spec)
    return {"spec-id": _next_id(table, "partition-specs", "spec-id"), "fields": fields}


def _key(field: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(field[name] for name in ("source-id", "name", "transform"))


def _carried_forward(
    table: Table, wanted: Sequence[Mapping[str, Any]], ids: Iterator[int]
) -> list[dict[str, Any]]:
    """Keep all fields of a version 1 spec, because order matters, and make dropped ones void."""
    new = {(field["source-id"], field["transform"]): field for field in wanted}
    names = {field["name"] for field in wanted}
    fields: list[dict[str, Any]] = []
    for old in table.spec()["fields"]:
        kept = new.pop((old["source-id"], old["transform"]), None)
        if kept is not None:
            fields.append({**kept, "field-id": old["field-id"]})
            continue
        name = f"{old['name']}_{old['field-id']}" if old["name"] in names else old["name"]
        fields.append({**old, "name": name, "transform": VOID})
    fields.extend({**field, "field-id": next(ids)} for field in new.values())
    return fields


def _order(table: Table, schema: StructType, terms: Sequence[str]) -> Mapping[str, Any]:
    wanted = sort_order(schema, terms, order_id=_next_id(table, "sort-orders", "order-id"))
    for order in table.metadata["sort-orders"]:
        if order["fields"] == wanted["fields"]:
            return dict(order)
    return wanted
