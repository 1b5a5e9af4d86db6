"""Run a parsed statement: one function for each kind of statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame

from frazil.client.declare.text_cursor import quoted
from frazil.spark.core.statement_runs import Result, refuse_view
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.sql_literals import Arguments, bind
from frazil.spark.parse.statement_parser import parse
from frazil.spark.sql import (
    ddl_statements,
    dml_statements,
    result_frames,
    show_statements,
    view_statements,
)
from frazil.spark.sql.procedures import call
from frazil.spark.sql.statement_tables import StatementTables
from frazil.spark.sql.table_names import SqlSession, identifier_of
from frazil.wire.errors import BadRequest, NoSuchNamespace, NoSuchTable


def run(session: SqlSession, text: str, args: Arguments = None) -> DataFrame:
    """Run one statement. `args` are the values of its `:name` or `?` parameters."""
    statement = parse(text)
    if isinstance(statement, sql.QueryStatement):
        with StatementTables(session) as reading:
            return reading.statement(statement.text, args)
    if isinstance(statement, sql.SparkStatement):
        values: Any = list(args) if isinstance(args, tuple) else args
        return session.spark.sql(text, values)
    if args:
        text = bind(text, args)
        statement = parse(text)
    try:
        answer = _RUNNERS[type(statement)](session, statement)
    except (NoSuchTable, NoSuchNamespace, BadRequest) as error:
        if isinstance(statement, _ALSO_OF_SPARK) and session.spark.catalog.tableExists(
            quoted(*statement.name)
        ):
            return session.spark.sql(text)
        if isinstance(error, NoSuchTable) and isinstance(statement, _OF_TABLES):
            identifier = identifier_of(session, statement.name)
            refuse_view(session.client, identifier, _FOR_VIEWS[type(statement)])
        raise
    if answer is None:
        return result_frames.no_columns(session)
    if isinstance(answer, Result):
        return result_frames.statement_result(session, answer)
    return answer


_ALSO_OF_SPARK: Final = (
    sql.DescribeTable,
    sql.DescribeColumn,
    sql.ShowColumns,
    sql.ShowProperties,
    sql.ShowCreateTable,
    sql.TableCommand,
)
"""Statements that may be about Spark's own tables and views, if the catalog has no such table."""

_OF_TABLES: Final = (sql.DropTable, sql.AlterTable, sql.CommentOn)
_FOR_VIEWS: Final[Mapping[type, str]] = {
    sql.DropTable: "use DROP VIEW",
    sql.AlterTable: "use ALTER VIEW",
    sql.CommentOn: "use ALTER VIEW … SET TBLPROPERTIES",
}
"""What to do instead if the table is a view."""


_RUNNERS: Final[Mapping[type, Callable[..., Result | DataFrame | None]]] = {
    sql.InsertStatement: dml_statements.insert,
    sql.DeleteStatement: dml_statements.delete,
    sql.UpdateStatement: dml_statements.update,
    sql.MergeStatement: dml_statements.merge,
    sql.TruncateStatement: dml_statements.truncate,
    sql.CreateTable: ddl_statements.create_table,
    sql.DropTable: ddl_statements.drop_table,
    sql.AlterTable: ddl_statements.alter_table,
    sql.CreateNamespace: ddl_statements.create_namespace,
    sql.AlterNamespace: ddl_statements.alter_namespace,
    sql.DropNamespace: ddl_statements.drop_namespace,
    sql.UseStatement: ddl_statements.use,
    sql.ShowTables: show_statements.show_tables,
    sql.ShowNamespaces: show_statements.show_namespaces,
    sql.ShowProperties: show_statements.show_properties,
    sql.ShowCreateTable: show_statements.show_create_table,
    sql.DescribeTable: show_statements.describe_table,
    sql.DescribeNamespace: show_statements.describe_namespace,
    sql.CreateView: view_statements.create_view,
    sql.CreateTemporaryView: view_statements.create_temporary_view,
    sql.AlterView: view_statements.alter_view,
    sql.DropView: view_statements.drop_view,
    sql.ShowViews: show_statements.show_views,
    sql.CallStatement: call,
    sql.CommentOn: ddl_statements.comment_on,
    sql.ShowColumns: show_statements.show_columns,
    sql.ShowCurrentNamespace: show_statements.show_current_namespace,
    sql.DescribeColumn: show_statements.describe_column,
    sql.TableCommand: ddl_statements.table_command,
}
"""What runs a statement. No answer, as for most definitions, is shown as an empty frame."""
