"""Create and replace tables, together with their rows.

A replaced table keeps its UUID, history and properties, like in Java's replace transaction. Columns
with the same name keep their IDs. Schema, partitions and rows change in one request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from itertools import count
from typing import Any, Final

from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.client.declare.metadata_updates import definition as define_table
from frazil.client.declare.partition_terms import VOID, partition_spec, sort_order
from frazil.client.declare.schema_updates import next_id
from frazil.spark.core.context import Context
from frazil.spark.core.progress import progress
from frazil.spark.core.statement_runs import Result, Target, complete_options, run_statement
from frazil.spark.schema.schema_evolution import Evolution
from frazil.spark.schema.spark_types import iceberg_schema
from frazil.spark.writing.frame_statements import Declare, write_frame
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.values.field_ids import struct_with_ids
from frazil.values.type_json import struct_to_json
from frazil.values.types import StructType, fields_by_id
from frazil.wire.errors import AlreadyExists, NoSuchTable
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier

CREATE = "create"
_FORMAT_VERSION: Final = "format-version"


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of a table without its columns."""

    partitioned_by: tuple[str, ...] = ()
    """Terms such as `day(ts)`, `bucket(16, id)` or a column."""
    sorted_by: tuple[str, ...] = ()
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def create_table(
    context: Context,
    identifier: Identifier,
    schema: StructType,
    definition: Definition,
    *,
    if_not_exists: bool = False,
) -> Table | None:
    """Create an empty table; the IDs of `schema` are assigned here.

    Return None if the table exists and `if_not_exists` allows that.
    """
    if if_not_exists and context.client.table_exists(identifier):
        return None
    with suppress(*((AlreadyExists,) if if_not_exists else ())):
        arguments = _arguments(struct_with_ids(schema), definition)
        return context.client.create_table(identifier, **arguments)
    return None


def create_table_as(
    context: Context,
    identifier: Identifier,
    frame: DataFrame,
    definition: Definition,
    options: WriteOptions | None = None,
    commit_options: Mapping[str, Any] | None = None,
) -> Result:
    """Create a table with a frame's columns and rows in one commit."""
    schema = iceberg_schema(frame.schema)
    staged = context.client.stage_table(identifier, **_arguments(schema, definition))
    declare = _appending(context, identifier, commit_options)
    with progress(context, f"create {identifier}"):
        return write_frame(context, staged, frame, CREATE, declare, options=options)


def replace_table(
    context: Context,
    identifier: Identifier,
    schema: StructType,
    definition: Definition,
    *,
    or_create: bool = False,
) -> None:
    """Replace a table with an empty one."""

    def attempt() -> None:
        table = _existing(context, identifier, or_create=or_create)
        if table is None:
            create_table(context, identifier, schema, definition)
            return
        new, change = replacement_of(table, struct_with_ids(schema), definition)
        new.declare_metadata(change.updates, change.requirements)

    run_statement(context, Target(identifier), attempt)


def replace_table_as(
    context: Context,
    identifier: Identifier,
    frame: DataFrame,
    definition: Definition,
    *,
    or_create: bool = False,
    options: WriteOptions | None = None,
    commit_options: Mapping[str, Any] | None = None,
) -> Result:
    """Replace a table with a frame's columns and rows."""

    def attempt() -> Result:
        table = _existing(context, identifier, or_create=or_create)
        if table is None:
            return create_table_as(context, identifier, frame, definition, options, commit_options)
        schema = iceberg_schema(frame.schema)
        new, change = replacement_of(table, schema, definition)
        declare = _appending(context, identifier, commit_options)
        result = write_frame(
            context, new, frame, "replace", declare, options=options, change=change
        )
        return with_changes(result, rows_deleted=None, files_removed=None)

    with progress(context, f"replace {identifier}"):
        return run_statement(context, Target(identifier), attempt)


def _appending(
    context: Context, identifier: Identifier, commit_options: Mapping[str, Any] | None
) -> Declare:
    """Return what appends the rows; a new or replaced table has none."""
    options = complete_options(context, Target(identifier), commit_options or {})
    return lambda changes, files: changes.append_files(files, **options)


def _existing(context: Context, identifier: Identifier, *, or_create: bool) -> Table | None:
    with suppress(*((NoSuchTable,) if or_create else ())):
        return context.client.load_table(identifier)
    return None


# --- metadata of a new table ----------------------------------------------------------------------


def _arguments(schema: StructType, definition: Definition) -> dict[str, Any]:
    """Return the arguments of `Client.create_table`."""
    return {
        "schema": {**struct_to_json(schema), "schema-id": 0},
        "partition_spec": partition_spec(schema, definition.partitioned_by),
        "write_order": sort_order(schema, definition.sorted_by),
        "location": definition.location,
        "properties": dict(definition.properties),
    }


# --- metadata of a replacement --------------------------------------------------------------------


def replacement_of(
    table: Table, schema: StructType, definition: Definition
) -> tuple[Table, Evolution]:
    """Return the table as it will be, for the writers of its files, and what makes it so.

    This is like Java's `TableMetadata.buildReplacement`.

    `schema` may have any IDs: columns whose names the table has keep the table's IDs.
    """
    ids = count(int(table.metadata["last-column-id"]) + 1)
    known = {field.name: field_id for field_id, field in fields_by_id(table.schema).items()}
    schema = struct_with_ids(schema, lambda name: known[name] if name in known else next(ids))
    document = {**struct_to_json(schema), "schema-id": next_id(table, "schemas", "schema-id")}
    spec = _spec(table, schema, definition.partitioned_by)
    order = _order(table, schema, definition.sorted_by)
    metadata = dict(table.metadata)
    version = definition.properties.get(_FORMAT_VERSION)
    if version is not None and version.isdigit():
        metadata[_FORMAT_VERSION] = max(int(version), table.format_version)
    metadata["schemas"] = [*table.metadata["schemas"], document]
    metadata["current-schema-id"] = document["schema-id"]
    metadata["partition-specs"] = [*_others(table, "partition-specs", "spec-id", spec), spec]
    metadata["default-spec-id"] = spec["spec-id"]
    metadata["sort-orders"] = [*_others(table, "sort-orders", "order-id", order), order]
    metadata["default-sort-order-id"] = order["order-id"]
    metadata["location"] = definition.location or table.location
    metadata["properties"] = {**table.properties, **definition.properties}
    metadata["refs"] = {
        name: ref for name, ref in (table.metadata.get("refs") or {}).items() if name != MAIN
    }
    metadata["current-snapshot-id"] = -1
    updates = _updates(table, definition, define_table(document, spec, order, {}))
    evolution = Evolution(schema, tuple(updates), _requirements(table))
    return with_changes(table, metadata=metadata), evolution


def _updates(
    table: Table, definition: Definition, schema_spec_and_order: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    updates: list[Mapping[str, Any]] = []
    others = dict(definition.properties)
    version = others.pop(_FORMAT_VERSION, None)
    if version is not None:
        updates.append({"action": "set-properties", "updates": {_FORMAT_VERSION: version}})
    if MAIN in table.refs:
        updates.append({"action": "remove-snapshot-ref", "ref-name": MAIN})
    updates += schema_spec_and_order
    if definition.location is not None:
        updates.append({"action": "set-location", "location": definition.location})
    if others:
        updates.append({"action": "set-properties", "updates": others})
    return updates


def _requirements(table: Table) -> tuple[Mapping[str, Any], ...]:
    """Require that nobody else assigned IDs or changed the default spec.

    Rows that others have written meanwhile do not matter, because they are replaced.
    """
    required = {
        "last-assigned-field-id": "last-column-id",
        "last-assigned-partition-id": "last-partition-id",
        "default-spec-id": "default-spec-id",
    }
    return tuple(
        {"type": f"assert-{name}", name: table.metadata[key]} for name, key in required.items()
    )


def _others(
    table: Table, part: str, id_name: str, new: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    return [known for known in table.metadata[part] if known[id_name] != new[id_name]]


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
    return {"spec-id": next_id(table, "partition-specs", "spec-id"), "fields": fields}


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
    wanted = sort_order(schema, terms, order_id=next_id(table, "sort-orders", "order-id"))
    for order in table.metadata["sort-orders"]:
        if order["fields"] == wanted["fields"]:
            return dict(order)
    return wanted
