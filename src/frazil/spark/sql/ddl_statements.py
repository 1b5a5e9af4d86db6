"""Run CREATE, ALTER, DROP and USE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.spark.core.statement_runs import Result
from frazil.spark.ddl import table_creation
from frazil.spark.ddl.alter_table import change_table, column_field
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.sql.statement_tables import StatementTables
from frazil.spark.sql.table_names import (
    catalog_name,
    current_namespace,
    identifier_of,
    namespace_of,
    use_namespace,
)
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import AlreadyExists, BadRequest, NoSuchNamespace, NoSuchTable
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.spark.session import Session


def create_table(session: Session, statement: sql.CreateTable) -> Result | None:
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
    session: Session,
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
        try:
            return table_creation.create_table_as(context, identifier, frame, definition)
        except AlreadyExists:
            if statement.if_not_exists:
                return None
            raise


def _schema(session: Session, statement: sql.CreateTable) -> StructType:
    fields: list[NestedField] = []
    for column in statement.columns:
        if len(column.name) > 1 or column.position is not None:
            raise BadRequest(
                f"column {'.'.join(column.name)}: only ALTER TABLE takes nested names and positions"
            )
        if any(field.name.lower() == column.name[0].lower() for field in fields):
            raise BadRequest(f"column {column.name[0]} is defined twice")
        fields.append(column_field(session.context, column, is_new_table=True))
    return StructType(tuple(fields))


def drop_table(session: Session, statement: sql.DropTable) -> None:
    """Run DROP TABLE."""
    try:
        session.client.drop_table(identifier_of(session, statement.name), purge=statement.purge)
    except (NoSuchTable, NoSuchNamespace):
        if not statement.if_exists:
            raise


def alter_table(session: Session, statement: sql.AlterTable) -> None:
    """Run ALTER TABLE."""
    identifier = identifier_of(session, statement.name)
    change = statement.change
    if not isinstance(change, sql.RenameTable):
        change_table(session.context, identifier, change)
        return
    if len(change.new_name) == 1:
        new = Identifier(identifier.namespace, change.new_name[0])
    else:
        new = identifier_of(session, change.new_name)
    session.client.rename_table(identifier, new)


def create_namespace(session: Session, statement: sql.CreateNamespace) -> None:
    """Run CREATE NAMESPACE."""
    try:
        namespace = namespace_of(session, statement.name)
        session.client.create_namespace(namespace, statement.properties)
    except AlreadyExists:
        if not statement.if_not_exists:
            raise


def alter_namespace(session: Session, statement: sql.AlterNamespace) -> None:
    """Run ALTER NAMESPACE."""
    namespace = namespace_of(session, statement.name)
    session.client.update_namespace(namespace, statement.updates, statement.removals)


def drop_namespace(session: Session, statement: sql.DropNamespace) -> None:
    """Run DROP NAMESPACE; CASCADE also drops its tables and views."""
    namespace = namespace_of(session, statement.name)
    try:
        if statement.cascade:
            for table in session.client.list_tables(namespace):
                session.client.drop_table(table)
            for view in session.client.list_views(namespace):
                session.client.drop_view(view)
        session.client.drop_namespace(namespace)
    except NoSuchNamespace:
        if not statement.if_exists:
            raise
    if current_namespace(session) == namespace:
        use_namespace(session, ())


def use(session: Session, statement: sql.UseStatement) -> None:
    """Run USE. The name of the catalog alone leaves no namespace current."""
    if len(statement.name) == 1 and statement.name[0].lower() == catalog_name(session).lower():
        use_namespace(session, ())
    else:
        use_namespace(session, namespace_of(session, statement.name))
