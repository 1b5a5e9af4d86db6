"""Run COMMENT ON, SHOW COLUMNS and the statements that Iceberg's tables do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from frazil.client.declare.text_cursor import quoted
from frazil.spark.core.name_matching import names_of
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.sql_tokens import Name
from frazil.spark.schema.spark_types import spark_schema
from frazil.spark.sql import show_statements
from frazil.spark.sql.result_frames import literal_rows
from frazil.spark.sql.table_names import (
    METADATA,
    catalog_name,
    current_namespace,
    identifier_of,
    load,
    namespace_of,
)
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NoSuchTable, UnsupportedOperation

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

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
    _columns_of(session, statement.name)
    if statement.command.startswith("REFRESH"):
        return
    table = ".".join(statement.name)
    instead = _INSTEAD[statement.command].format(table=table)
    raise UnsupportedOperation(
        f"{statement.command} {table}: Iceberg's tables do not have this statement: {instead}"
    )


def show_columns(session: Session, statement: sql.ShowColumns) -> DataFrame:
    """Run SHOW COLUMNS."""
    columns = _columns_of(session, statement.name)
    return literal_rows(session, "col_name string", [(name,) for name in columns.names])


def describe_table(session: Session, statement: sql.DescribeTable) -> DataFrame:
    """Run DESCRIBE of a table or a metadata table."""
    loaded = load(session, statement.name)
    if loaded is None or loaded[1] is None or loaded[1].kind != METADATA:
        return show_statements.describe_table(session, statement)
    columns = _columns_of(session, statement.name)
    rows = [(field.name, field.dataType.simpleString(), None) for field in columns.fields]
    return literal_rows(session, show_statements.DESCRIBED, rows)


def describe_column(session: Session, statement: sql.DescribeColumn) -> DataFrame:
    """Run DESCRIBE with a column."""
    columns = _columns_of(session, statement.name)
    if len(statement.column) > 1:
        raise BadRequest(f"{'.'.join(statement.column)}: only whole columns can be described")
    key = names_of(session.spark).key
    for field in columns.fields:
        if key(field.name) == key(statement.column[0]):
            comment = field.metadata.get("comment", "NULL")
            rows = [
                ("col_name", field.name),
                ("data_type", field.dataType.simpleString()),
                ("comment", comment),
            ]
            return literal_rows(session, "info_name string, info_value string", rows)
    raise BadRequest(
        f"{'.'.join(statement.name)} has no column {statement.column[0]}; it has "
        f"{', '.join(columns.names)}"
    )


def show_current_namespace(session: Session, _: sql.ShowCurrentNamespace) -> DataFrame:
    """Run SHOW CURRENT NAMESPACE."""
    row = (catalog_name(session), ".".join(current_namespace(session)))
    return literal_rows(session, "catalog string, namespace string", [row])


def _columns_of(session: Session, name: Name) -> SparkStruct:
    """Return the columns of a table, a metadata table or a view."""
    loaded = load(session, name)
    if loaded is not None and (loaded[1] is None or loaded[1].kind != METADATA):
        return spark_schema(StructType(loaded[0].schema.fields))
    try:
        return session.read.table(".".join(map(quoted, name))).schema
    except NoSuchTable:
        raise NoSuchTable(f"Table does not exist: {'.'.join(name)}") from None
