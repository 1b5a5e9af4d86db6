"""Run ALTER TABLE: build each change as Iceberg's updates of the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.client.declare.metadata_updates import LAST_ADDED, MetadataUpdates
from frazil.spark.conditions.sql_conditions import is_case_sensitive
from frazil.spark.core.context import Context
from frazil.spark.ddl.partition_terms import VOID, SpecEditor, sort_order
from frazil.spark.ddl.schema_editor import SchemaEditor, promoted
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.sql_types import parse_type
from frazil.spark.schema.schema_evolution import (
    IDENTIFIER_FIELDS,
    identifier_field_ids,
    next_id,
    schema_requirements,
    schema_updates,
)
from frazil.spark.schema.spark_literals import default_value
from frazil.spark.schema.spark_types import FLOATS, NO_ID
from frazil.values.types import TIMESTAMP, TIMESTAMPTZ, NestedField, StructType, Type, fields_by_id
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier

_DISTRIBUTION_PROPERTY: Final = "write.distribution-mode"
_TIMESTAMP_SETTING: Final = "spark.sql.timestampType"


def change_table(context: Context, identifier: Identifier, change: sql.MetadataChange) -> None:
    """Change a table's metadata, again from fresh metadata if others have changed the table."""
    client = context.client
    if isinstance(change, sql.CreateRef):
        return _create_ref(context, identifier, change)
    if isinstance(change, sql.DropRef):
        return _drop_ref(context, identifier, change)
    if isinstance(change, sql.SetProperties):
        client.set_properties(identifier, change.properties)
    elif isinstance(change, sql.UnsetProperties):
        _unset_properties(context, identifier, change)
    elif isinstance(change, sql.SetLocation):
        location = {"action": "set-location", "location": change.location}
        client.declare_metadata(identifier, [location])
    elif isinstance(change, sql.WriteOrder):
        client.change_metadata(identifier, lambda table: _write_order(table, change))
    elif isinstance(change, sql.PartitionChange):
        client.change_metadata(identifier, lambda table: _partition_change(table, change))
    elif isinstance(change, sql.IdentifierFields):
        client.change_metadata(identifier, lambda table: _identifier_fields(context, table, change))
    else:
        client.change_metadata(identifier, lambda table: _schema_change(context, table, change))


# --- columns --------------------------------------------------------------------------------------


def _schema_change(context: Context, table: Table, change: sql.SchemaChange) -> MetadataUpdates:
    schema = _edited(context, table, change)
    if schema == table.schema:
        return (), ()
    _check_dropped(table, schema)
    updates = [*schema_updates(table, schema), *property_updates(table, schema)]
    return updates, schema_requirements(table)


def _edited(context: Context, table: Table, change: sql.SchemaChange) -> StructType:
    editor = SchemaEditor(is_case_sensitive(context))
    schema = table.schema
    if isinstance(change, sql.AddColumns):
        ids = count(int(table.metadata["last-column-id"]) + 1)
        for column in change.columns:
            field = column_field(context, column, is_new_table=False)
            schema = editor.add(schema, column.name, field, ids, column.position)
        return schema
    if isinstance(change, sql.DropColumns):
        for path in change.columns:
            if not change.if_exists or editor.field(schema, path) is not None:
                schema = editor.drop(schema, path)
        return schema
    if isinstance(change, sql.RenameColumn):
        return editor.rename(schema, change.column, change.new_name)
    if change.position is not None:
        schema = editor.move(schema, change.column, change.position)
    return editor.change(
        schema, change.column, lambda field: _altered(context, table, field, change)
    )


def column_field(
    context: Context, column: sql.ColumnDefinition, *, is_new_table: bool
) -> NestedField:
    """Return the column of a definition, without IDs."""
    name = ".".join(column.name)
    type_ = _column_type(context, column.type)
    field = NestedField(NO_ID, column.name[-1], type_, column.required, column.comment)
    if column.default is None:
        return field
    value = default_value(context, name, type_, column.default)
    # Spec, "Default values": existing rows get the initial default. New rows without a value get
    # the write default.
    initial = None if is_new_table else value
    return replace(field, initial_default=initial, write_default=value)


def _column_type(context: Context, text: str) -> Type:
    """Parse a type; the session says what TIMESTAMP means."""
    setting = str(context.spark.conf.get(_TIMESTAMP_SETTING, "TIMESTAMP_LTZ"))
    timestamp = TIMESTAMP if setting.upper() == "TIMESTAMP_NTZ" else TIMESTAMPTZ
    return parse_type(text, timestamp=timestamp)


def _altered(
    context: Context, table: Table, field: NestedField, change: sql.AlterColumn
) -> NestedField:
    if change.type is not None:
        field = promoted(field, _column_type(context, change.type), change.column)
    if change.comment is not None:
        field = replace(field, doc=change.comment)
    if change.drop_default:
        field = replace(field, write_default=None)
    if change.default is not None:
        name = ".".join(change.column)
        value = default_value(context, name, field.type, change.default)
        field = replace(field, write_default=value)
    if change.required is None or change.required == field.required:
        return field
    if change.required and table.snapshots:
        raise BadRequest(
            f"column {'.'.join(change.column)}: rows that are there already may be null, so that "
            "it cannot become NOT NULL; Iceberg allows that only in a table without snapshots"
        )
    return replace(field, required=change.required)


def _check_dropped(table: Table, schema: StructType) -> None:
    """Refuse to drop columns that partition or sort the table or identify its rows."""
    kept = fields_by_id(schema)
    old = fields_by_id(table.schema)
    for field in table.spec()["fields"]:
        if field["source-id"] not in kept and field["transform"] != VOID:
            raise BadRequest(
                f"column {old[field['source-id']].name} is in the table's partition fields: "
                f"first ALTER TABLE … DROP PARTITION FIELD {field['name']}"
            )
    for field in table.sort_order()["fields"]:
        if field["source-id"] not in kept and field["transform"] != VOID:
            raise BadRequest(
                f"column {old[field['source-id']].name} is in the table's sort fields: "
                "first ALTER TABLE … WRITE UNORDERED"
            )
    for field_id in identifier_field_ids(table):
        if field_id not in kept:
            name = old[field_id].name
            raise BadRequest(
                f"column {name} is an identifier field: first DROP IDENTIFIER FIELDS {name}"
            )


# --- identifier fields ----------------------------------------------------------------------------


def _identifier_fields(
    context: Context, table: Table, change: sql.IdentifierFields
) -> MetadataUpdates:
    editor = SchemaEditor(is_case_sensitive(context))
    named = []
    for path in change.columns:
        field = editor.field(table.schema, path)
        if field is None:
            raise BadRequest(f"there is no column {'.'.join(path)}")
        named.append(field.field_id)
        if not change.drop:
            _check_identifier(field, ".".join(path))
    ids = named
    if change.drop:
        known = identifier_field_ids(table)
        for path, field_id in zip(change.columns, named, strict=True):
            if field_id not in known:
                raise BadRequest(f"column {'.'.join(path)} is no identifier field")
        ids = [field_id for field_id in known if field_id not in named]
    (added, *others) = schema_updates(table, table.schema)
    document = {key: part for key, part in added["schema"].items() if key != IDENTIFIER_FIELDS}
    if ids:
        document[IDENTIFIER_FIELDS] = ids
    return [{**added, "schema": document}, *others], schema_requirements(table)


def _check_identifier(field: NestedField, name: str) -> None:
    if not field.required:
        raise BadRequest(f"column {name} may be null, so that it cannot identify rows")
    if not field.type.is_primitive or field.type.type_id in FLOATS:
        raise BadRequest(f"column {name}: a {field.type} cannot identify rows")


# --- partitions, order, properties ----------------------------------------------------------------


def _partition_change(table: Table, change: sql.PartitionChange) -> MetadataUpdates:
    editor = SpecEditor(table)
    if change.dropped is not None:
        editor.drop(change.dropped)
    if change.added is not None:
        editor.add(change.added, change.name)
    metadata = table.metadata
    updates: list[dict[str, Any]] = [
        {"action": "add-spec", "spec": editor.document()},
        {"action": "set-default-spec", "spec-id": LAST_ADDED},
    ]
    requirements = [
        {"type": "assert-default-spec-id", "default-spec-id": metadata["default-spec-id"]},
        {
            "type": "assert-last-assigned-partition-id",
            "last-assigned-partition-id": metadata["last-partition-id"],
        },
    ]
    return updates, requirements


def _write_order(table: Table, change: sql.WriteOrder) -> MetadataUpdates:
    order_id = next_id(table, "sort-orders", "order-id")
    order = sort_order(table.schema, change.ordered_by, order_id=order_id)
    updates: list[dict[str, Any]] = [
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": LAST_ADDED},
    ]
    if change.distribution is not None:
        distribution = {_DISTRIBUTION_PROPERTY: change.distribution}
        updates.append({"action": "set-properties", "updates": distribution})
    requirement = {
        "type": "assert-default-sort-order-id",
        "default-sort-order-id": table.metadata["default-sort-order-id"],
    }
    return updates, [requirement]


def _unset_properties(
    context: Context, identifier: Identifier, change: sql.UnsetProperties
) -> None:
    """Remove properties. Like Iceberg, ignore missing ones with or without IF EXISTS."""
    table = context.client.load_table(identifier)
    present = [name for name in change.names if name in table.properties]
    if present:
        table.remove_properties(*present)


# --- branches and tags ----------------------------------------------------------------------------


def _create_ref(context: Context, identifier: Identifier, change: sql.CreateRef) -> None:
    table = context.client.load_table(identifier)
    exists = change.name in table.refs
    if exists and change.if_not_exists:
        return
    if not exists and not change.create:
        raise BadRequest(f"{identifier} has no {change.kind} {change.name} to replace")
    if change.kind == "tag":
        table.create_tag(
            change.name,
            change.snapshot_id,
            replace=change.replace,
            max_ref_age_ms=change.max_ref_age_ms,
        )
    else:
        table.create_branch(
            change.name,
            change.snapshot_id,
            replace=change.replace,
            max_ref_age_ms=change.max_ref_age_ms,
            max_snapshot_age_ms=change.max_snapshot_age_ms,
            min_snapshots_to_keep=change.min_snapshots_to_keep,
        )


def _drop_ref(context: Context, identifier: Identifier, change: sql.DropRef) -> None:
    table = context.client.load_table(identifier)
    if change.if_exists and change.name not in table.refs:
        return
    if change.kind == "tag":
        table.remove_tag(change.name)
    else:
        table.remove_branch(change.name)


# --- properties that name columns -----------------------------------------------------------------

_COLUMN_PREFIXES: Final = (
    "write.metadata.metrics.column.",
    "write.parquet.bloom-filter-enabled.column.",
    "write.parquet.stats-enabled.column.",
)


def property_updates(table: Table, schema: StructType) -> list[dict[str, Any]]:
    """Return updates of properties that name columns, for a schema with columns renamed or dropped.

    The rules are those of Java's `SchemaUpdate`. `schema_updates` changes the name mapping.
    """
    new = {field_id: field.name for field_id, field in fields_by_id(schema).items()}
    old = {field_id: field.name for field_id, field in fields_by_id(table.schema).items()}
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
