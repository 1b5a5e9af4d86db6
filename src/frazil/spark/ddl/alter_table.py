"""Run ALTER TABLE: build each change as Iceberg's updates of the metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.client.declare.column_changes import (
    altered_schema,
    changed_schema,
    identifier_fields,
    partition_fields,
    with_columns,
    with_requirement,
    with_type,
    write_order,
)
from frazil.client.declare.column_definitions import ColumnDefinition
from frazil.client.declare.schema_editor import SchemaEditor
from frazil.client.declare.type_text import parse_type
from frazil.spark.conditions.sql_conditions import is_case_sensitive
from frazil.spark.core.context import Context
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.schema.spark_literals import default_value
from frazil.values.field_ids import NO_ID
from frazil.values.types import TIMESTAMP, TIMESTAMPTZ, NestedField, StructType, Type
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier

_TIMESTAMP_SETTING: Final = "spark.sql.timestampType"


def change_table(context: Context, identifier: Identifier, change: sql.TableChange) -> None:
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
        client.change_metadata(
            identifier, lambda table: write_order(table, change.ordered_by, change.distribution)
        )
    elif isinstance(change, sql.PartitionChange):
        client.change_metadata(
            identifier,
            lambda table: partition_fields(
                table, dropped=change.dropped, added=change.added, name=change.name
            ),
        )
    elif isinstance(change, sql.IdentifierFields):
        client.change_metadata(
            identifier,
            lambda table: identifier_fields(
                table, _editor(context), change.columns, drop=change.drop
            ),
        )
    else:
        assert isinstance(change, sql.SchemaChange)
        client.change_metadata(
            identifier, lambda table: changed_schema(table, _edited(context, table, change))
        )


# --- columns --------------------------------------------------------------------------------------


def _edited(context: Context, table: Table, change: sql.SchemaChange) -> StructType:
    editor = _editor(context)
    schema = table.schema
    if isinstance(change, sql.AddColumns):
        columns = [
            (column.name, column_field(context, column, is_new_table=False), column.position)
            for column in change.columns
        ]
        return with_columns(table, editor, columns)
    if isinstance(change, sql.DropColumns):
        for path in change.columns:
            if not change.if_exists or editor.field(schema, path) is not None:
                schema = editor.drop(schema, path)
        return schema
    if isinstance(change, sql.RenameColumn):
        return editor.rename(schema, change.column, change.new_name)
    assert isinstance(change, sql.AlterColumn)
    return altered_schema(
        table,
        editor,
        change.column,
        lambda field: _altered(context, table, field, change),
        change.position,
    )


def _editor(context: Context) -> SchemaEditor:
    return SchemaEditor(is_case_sensitive(context))


def column_field(context: Context, column: ColumnDefinition, *, is_new_table: bool) -> NestedField:
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
    type_ = None if change.type is None else _column_type(context, change.type)
    field = with_type(field, type_, change.column)
    if change.comment is not None:
        field = replace(field, doc=change.comment)
    if change.drop_default:
        field = replace(field, write_default=None)
    if change.default is not None:
        name = ".".join(change.column)
        value = default_value(context, name, field.type, change.default)
        field = replace(field, write_default=value)
    return with_requirement(table, field, change.required, change.column)


# --- properties -----------------------------------------------------------------------------------


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
    options: dict[str, Any] = {"replace": change.replace, "max_ref_age_ms": change.max_ref_age_ms}
    if change.kind == "tag":
        table.create_tag(change.name, change.snapshot_id, **options)
    else:
        table.create_branch(
            change.name,
            change.snapshot_id,
            **options,
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
