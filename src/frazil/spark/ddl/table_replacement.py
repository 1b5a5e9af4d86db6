"""What a table becomes when it is replaced: Java's `TableMetadata.buildReplacement`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from itertools import count
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.spark.ddl.partition_terms import VOID, partition_spec, sort_order
from frazil.values.type_json import struct_to_json
from frazil.values.types import ListType, MapType, NestedField, StructType, Type, fields_by_id
from frazil.wire.file_actions import MAIN

_FORMAT_VERSION: Final = "format-version"


@dataclass(frozen=True)
class Replacement:
    table: Table
    """As it will be, for whoever writes its files."""
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
    """`schema` may have any ids: columns that the table has by name keep theirs."""
    ids = count(int(table.metadata["last-column-id"]) + 1)
    fresh = _with_ids_of(schema, table.schema, ids)
    document = {**struct_to_json(fresh), "schema-id": _next(table, "schemas", "schema-id")}
    spec = _spec(table, fresh, partitioned_by)
    order = _order(table, fresh, sorted_by)
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
    """Ids were given out after the table's last ones. What rows others have written meanwhile does
    not matter: they go."""
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


def _next(table: Table, part: str, id_name: str) -> int:
    return max(int(known[id_name]) for known in table.metadata[part]) + 1


def _others(
    table: Table, part: str, id_name: str, new: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    return [known for known in table.metadata[part] if known[id_name] != new[id_name]]


# --- ids ------------------------------------------------------------------------------------------


def _with_ids_of(schema: StructType, base: StructType, ids: Iterator[int]) -> StructType:
    known = {found.name: field_id for field_id, found in fields_by_id(base).items()}
    return _struct(schema, known, ids, "")


def _struct(
    struct: StructType, known: Mapping[str, int], ids: Iterator[int], prefix: str
) -> StructType:
    given = [_id(known, ids, f"{prefix}{field.name}") for field in struct.fields]
    fields = zip(struct.fields, given, strict=True)
    return StructType(tuple(_field(field, one, known, ids, prefix) for field, one in fields))


def _field(
    field: NestedField, field_id: int, known: Mapping[str, int], ids: Iterator[int], prefix: str
) -> NestedField:
    type_ = _type(field.type, known, ids, f"{prefix}{field.name}.")
    return with_changes(field, field_id=field_id, type=type_)


def _type(type_: Type, known: Mapping[str, int], ids: Iterator[int], prefix: str) -> Type:
    if isinstance(type_, StructType):
        return _struct(type_, known, ids, prefix)
    if isinstance(type_, ListType):
        element_id = _id(known, ids, f"{prefix}element")
        return ListType(_field(type_.element, element_id, known, ids, prefix))
    if isinstance(type_, MapType):
        key_id = _id(known, ids, f"{prefix}key")
        value_id = _id(known, ids, f"{prefix}value")
        return MapType(
            _field(type_.key, key_id, known, ids, prefix),
            _field(type_.value, value_id, known, ids, prefix),
        )
    return type_


def _id(known: Mapping[str, int], ids: Iterator[int], name: str) -> int:
    return known[name] if name in known else next(ids)


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
            found: Mapping[str, Any] = spec
            return found
    return {"spec-id": _next(table, "partition-specs", "spec-id"), "fields": fields}


def _key(field: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(field[name] for name in ("source-id", "name", "transform"))


def _carried_forward(
    table: Table, wanted: Sequence[Mapping[str, Any]], ids: Iterator[int]
) -> list[dict[str, Any]]:
    """Version 1 knows partition fields by their places: none may go, but for becoming void."""
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
    wanted = sort_order(schema, terms, order_id=_next(table, "sort-orders", "order-id"))
    for order in table.metadata["sort-orders"]:
        if order["fields"] == wanted["fields"]:
            found: Mapping[str, Any] = order
            return found
    return wanted
