"""From a statement to what carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from frazil.spark.parse import statements as sql
from frazil.spark.parse.parameters import Arguments, bound
from frazil.spark.parse.parsing import parse
from frazil.spark.sql import answers, ddl, rows, shows
from frazil.spark.sql.procedures import call
from frazil.spark.sql.reading import Reading

if TYPE_CHECKING:
    from frazil.spark.session import Session


def run(session: Session, text: str, args: Arguments = None) -> DataFrame:
    """Runs one statement of Spark's SQL with Iceberg's extensions."""
    statement = parse(text)
    if isinstance(statement, sql.Query):
        with Reading(session) as reading:
            return reading.query(statement.text, args)
    if args:
        statement = parse(bound(text, args))
    kind = type(statement)
    if kind in _CHANGES:
        return answers.outcome(session, _CHANGES[kind](session, statement))
    if kind in _DEFINITIONS:
        _DEFINITIONS[kind](session, statement)
        return answers.nothing(session)
    return _ANSWERS[kind](session, statement)


_CHANGES: Final[Mapping[type, Callable[..., Any]]] = {
    sql.Insert: rows.insert,
    sql.Delete: rows.delete,
    sql.Update: rows.update,
    sql.Merge: rows.merge,
    sql.Truncate: rows.truncate,
}
_DEFINITIONS: Final[Mapping[type, Callable[..., None]]] = {
    sql.DropTable: ddl.drop_table,
    sql.AlterTable: ddl.alter_table,
    sql.CreateNamespace: ddl.create_namespace,
    sql.AlterNamespace: ddl.alter_namespace,
    sql.DropNamespace: ddl.drop_namespace,
    sql.Use: ddl.use,
}
_ANSWERS: Final[Mapping[type, Callable[..., DataFrame]]] = {
    sql.CreateTable: ddl.create_table,
    sql.ShowTables: shows.show_tables,
    sql.ShowNamespaces: shows.show_namespaces,
    sql.ShowProperties: shows.show_properties,
    sql.ShowCreateTable: shows.show_create_table,
    sql.DescribeTable: shows.describe_table,
    sql.DescribeNamespace: shows.describe_namespace,
    sql.Call: call,
}
