"""Run CREATE, ALTER, DROP, USE, COMMENT ON and what Iceberg's tables do not have."""

from __future__ import annotations

from contextlib import suppress
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
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import names_of
from frazil.spark.core.statement_runs import Result
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.schema.spark_literals import default_value
from frazil.spark.sql import table_creation
from frazil.spark.sql.show_statements import columns_of
from frazil.spark.sql.statement_tables import StatementTables
from frazil.spark.sql.table_names import (
    SqlSession,
    identifier_of,
    namespace_of,
    renamed,
    use_namespace,
)
from frazil.values.field_ids import NO_ID
from frazil.values.types import TIMESTAMP, TIMESTAMPTZ, NestedField, StructType, Type
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    NoSuchNamespace,
    NoSuchTable,
    UnsupportedOperation,
)
from frazil.wire.identifiers import Identifier

_TIMESTAMP_SETTING: Final = "spark.sql.timestampType"
_INSTEAD: Final = {
    "ANALYZE TABLE": "their metadata has counts and bounds of columns for each file, so that "
    "nothing has to be done. For numbers of distinct values, Spark with Iceberg's runtime has "
    "spark.sql(\"CALL {catalog}.system.compute_table_stats('{table}')\")",
    "SHOW PARTITIONS": "write SELECT * FROM {table}.partitions",
    "CACHE TABLE": 'write session.table("{table}").scan().cache(), or create a temporary view of '
    "it and cache that",
    "UNCACHE TABLE": "it cannot be cached by its name, so nothing is",
    "MSCK REPAIR TABLE": "its metadata knows its files",
    "REPAIR TABLE": "its metadata knows its files",
}
"""What users can do where stock Spark refuses a statement for Iceberg's tables too."""


def create_table(session: SqlSession, statement: sql.CreateTable) -> Result | None:
    """Run CREATE TABLE or REPLACE TABLE. With AS SELECT, return the result of the write."""
    identifier = identifier_of(session, statement.name)
    properties = dict(statement.properties)
    if statement.comment is not None:
        properties["comment"] = statement.comment
    definition = table_creation.Definition(
        partitioned_by=statement.partitioned_by,
        location=statement.location,
        properties=properties,
    )
    if statement.query is not None:
        return _as_select(session, identifier, statement, statement.query, definition)
    context, schema = session.context, _schema(session, statement)
    if statement.replace:
        table_creation.replace_table(
            context, identifier, schema, definition, or_create=statement.create
        )
    else:
        table_creation.create_table(
            context, identifier, schema, definition, if_not_exists=statement.if_not_exists
        )
    return None


def _as_select(
    session: SqlSession,
    identifier: Identifier,
    statement: sql.CreateTable,
    query: str,
    definition: table_creation.Definition,
) -> Result | None:
    context = session.context
    if statement.if_not_exists and session.client.table_exists(identifier):
        return None
    with StatementTables(session) as reading:
        frame = reading.query(query)
        if statement.replace:
            return table_creation.replace_table_as(
                context, identifier, frame, definition, or_create=statement.create
            )
        with suppress(*((AlreadyExists,) if statement.if_not_exists else ())):
            return table_creation.create_table_as(context, identifier, frame, definition)
    return None


def _schema(session: SqlSession, statement: sql.CreateTable) -> StructType:
    fields: list[NestedField] = []
    for column in statement.columns:
        if len(column.name) > 1 or column.position is not None:
            raise BadRequest(
                f"column {'.'.join(column.name)}: only ALTER TABLE takes nested names and positions"
            )
        if any(field.name.lower() == column.name[0].lower() for field in fields):
            raise BadRequest(f"column {column.name[0]} is defined twice")
        fields.append(_column_field(session.context, column, is_new_table=True))
    return StructType(tuple(fields))


def drop_table(session: SqlSession, statement: sql.DropTable) -> None:
    """Run DROP TABLE."""
    with suppress(*((NoSuchTable, NoSuchNamespace) if statement.if_exists else ())):
        session.client.drop_table(identifier_of(session, statement.name), purge=statement.purge)


def alter_table(session: SqlSession, statement: sql.AlterTable) -> None:
    """Run ALTER TABLE."""
    identifier = identifier_of(session, statement.name)
    change = statement.change
    if not isinstance(change, sql.RenameTable):
        _change_table(session.context, identifier, change)
        return
    session.client.rename_table(identifier, renamed(session, identifier, change.new_name))


# --- ALTER TABLE ----------------------------------------------------------------------------------


def _change_table(context: Context, identifier: Identifier, change: sql.TableChange) -> None:
    """Change a table's metadata, again from fresh metadata if others have changed the table."""
    client = context.client
    if isinstance(change, sql.CreateRef):
        return _create_ref(context, identifier, change)
    if isinstance(change, sql.DropRef):
        return _drop_ref(context, identifier, change)
    if isinstance(change, sql.SetProperties):
        client.set_properties(identifier, change.properties)
    elif isinstance(change, sql.UnsetProperties):
        # Like Iceberg, ignore missing properties with or without IF EXISTS.
        table = client.load_table(identifier)
        present = [name for name in change.names if name in table.properties]
        if present:
            table.remove_properties(*present)
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
            (column.name, _column_field(context, column, is_new_table=False), column.position)
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
    return SchemaEditor(names_of(context.spark).case_sensitive)


def _column_field(context: Context, column: ColumnDefinition, *, is_new_table: bool) -> NestedField:
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


# --- namespaces and comments ----------------------------------------------------------------------


def create_namespace(session: SqlSession, statement: sql.CreateNamespace) -> None:
    """Run CREATE NAMESPACE."""
    with suppress(*((AlreadyExists,) if statement.if_not_exists else ())):
        namespace = namespace_of(session, statement.name)
        session.client.create_namespace(namespace, statement.properties)


def alter_namespace(session: SqlSession, statement: sql.AlterNamespace) -> None:
    """Run ALTER NAMESPACE."""
    namespace = namespace_of(session, statement.name)
    session.client.update_namespace(namespace, statement.updates, statement.removals)


def drop_namespace(session: SqlSession, statement: sql.DropNamespace) -> None:
    """Run DROP NAMESPACE; CASCADE also drops its tables and views."""
    namespace = namespace_of(session, statement.name)
    with suppress(*((NoSuchNamespace,) if statement.if_exists else ())):
        if statement.cascade:
            for table in session.client.list_tables(namespace):
                session.client.drop_table(table)
            for view in session.client.list_views(namespace):
                session.client.drop_view(view)
        session.client.drop_namespace(namespace)
    if session.current_namespace == namespace:
        use_namespace(session, ())


def use(session: SqlSession, statement: sql.UseStatement) -> None:
    """Run USE. The name of the catalog alone leaves no namespace current."""
    if len(statement.name) == 1 and statement.name[0].lower() == session.catalog_name.lower():
        use_namespace(session, ())
    else:
        use_namespace(session, namespace_of(session, statement.name))


def comment_on(session: SqlSession, statement: sql.CommentOn) -> None:
    """Run COMMENT ON. As in stock Spark, NULL leaves an empty comment."""
    if statement.kind == "namespace":
        namespace = namespace_of(session, statement.name)
        session.client.update_namespace(namespace, {"comment": statement.comment})
    else:
        identifier = identifier_of(session, statement.name)
        session.client.set_properties(identifier, {"comment": statement.comment})


def table_command(session: SqlSession, statement: sql.TableCommand) -> None:
    """Refuse a statement that tables of Iceberg do not have; REFRESH finds nothing to do."""
    identifier_of(session, statement.name)
    columns_of(session, statement.name)
    if statement.command.startswith("REFRESH"):
        return
    table = ".".join(statement.name)
    instead = _INSTEAD[statement.command].format(table=table, catalog=session.catalog_name)
    raise UnsupportedOperation(
        f"{statement.command} {table}: Iceberg's tables do not have this statement: {instead}"
    )
