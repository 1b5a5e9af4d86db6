"""Run CREATE, ALTER, DROP, USE, COMMENT ON and what Iceberg's tables do not have."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from frazil.spark.core.statement_runs import Result
from frazil.spark.ddl import table_creation
from frazil.spark.ddl.alter_table import change_table, column_field
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.sql.show_statements import columns_of
from frazil.spark.sql.statement_tables import StatementTables
from frazil.spark.sql.table_names import (
    catalog_name,
    current_namespace,
    identifier_of,
    namespace_of,
    renamed,
    use_namespace,
)
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    NoSuchNamespace,
    NoSuchTable,
    UnsupportedOperation,
)
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.spark.session import Session


_INSTEAD: Final = {
    "ANALYZE TABLE": "each file has statistics of its columns",
    "SHOW PARTITIONS": "write SELECT * FROM {table}.partitions",
    "CACHE TABLE": 'write session.table("{table}").scan().cache(), or create a temporary view of '
    "it and cache that",
    "UNCACHE TABLE": "it cannot be cached by its name, so nothing is",
    "MSCK REPAIR TABLE": "its metadata knows its files",
    "REPAIR TABLE": "its metadata knows its files",
}
"""What users can do where stock Spark refuses a statement for Iceberg's tables too."""


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
        with suppress(*((AlreadyExists,) if statement.if_not_exists else ())):
            return table_creation.create_table_as(context, identifier, frame, definition)
    return None


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
    with suppress(*((NoSuchTable, NoSuchNamespace) if statement.if_exists else ())):
        session.client.drop_table(identifier_of(session, statement.name), purge=statement.purge)


def alter_table(session: Session, statement: sql.AlterTable) -> None:
    """Run ALTER TABLE."""
    identifier = identifier_of(session, statement.name)
    change = statement.change
    if not isinstance(change, sql.RenameTable):
        change_table(session.context, identifier, change)
        return
    session.client.rename_table(identifier, renamed(session, identifier, change.new_name))


def create_namespace(session: Session, statement: sql.CreateNamespace) -> None:
    """Run CREATE NAMESPACE."""
    with suppress(*((AlreadyExists,) if statement.if_not_exists else ())):
        namespace = namespace_of(session, statement.name)
        session.client.create_namespace(namespace, statement.properties)


def alter_namespace(session: Session, statement: sql.AlterNamespace) -> None:
    """Run ALTER NAMESPACE."""
    namespace = namespace_of(session, statement.name)
    session.client.update_namespace(namespace, statement.updates, statement.removals)


def drop_namespace(session: Session, statement: sql.DropNamespace) -> None:
    """Run DROP NAMESPACE; CASCADE also drops its tables and views."""
    namespace = namespace_of(session, statement.name)
    with suppress(*((NoSuchNamespace,) if statement.if_exists else ())):
        if statement.cascade:
            for table in session.client.list_tables(namespace):
                session.client.drop_table(table)
            for view in session.client.list_views(namespace):
                session.client.drop_view(view)
        session.client.drop_namespace(namespace)
    if current_namespace(session) == namespace:
        use_namespace(session, ())


def use(session: Session, statement: sql.UseStatement) -> None:
    """Run USE. The name of the catalog alone leaves no namespace current."""
    if len(statement.name) == 1 and statement.name[0].lower() == catalog_name(session).lower():
        use_namespace(session, ())
    else:
        use_namespace(session, namespace_of(session, statement.name))


def comment_on(session: Session, statement: sql.CommentOn) -> None:
    """Run COMMENT ON. As in stock Spark, NULL leaves an empty comment."""
    if statement.kind == "namespace":
        namespace = namespace_of(session, statement.name)
        session.client.update_namespace(namespace, {"comment": statement.comment})
    else:
        identifier = identifier_of(session, statement.name)
        session.client.set_properties(identifier, {"comment": statement.comment})


def table_command(session: Session, statement: sql.TableCommand) -> None:
    """Refuse a statement that tables of Iceberg do not have; REFRESH finds nothing to do."""
    identifier_of(session, statement.name)
    columns_of(session, statement.name)
    if statement.command.startswith("REFRESH"):
        return
    table = ".".join(statement.name)
    instead = _INSTEAD[statement.command].format(table=table)
    raise UnsupportedOperation(
        f"{statement.command} {table}: Iceberg's tables do not have this statement: {instead}"
    )
