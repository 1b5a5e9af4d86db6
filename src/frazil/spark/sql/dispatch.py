"""Run a parsed statement: one function for each kind of statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from frazil.spark.core.statement_runs import Result
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
from frazil.spark.sql.view_descriptions import (
    describe_view,
    or_of_view,
    refusing_views,
    show_create_view,
    show_view_properties,
)

if TYPE_CHECKING:
    from frazil.spark.session import Session


def run(session: Session, text: str, args: Arguments = None) -> DataFrame:
    """Run one statement. `args` are the values of its `:name` or `?` parameters."""
    statement = parse(text)
    if isinstance(statement, sql.QueryStatement):
        with StatementTables(session) as reading:
            return reading.query(statement.text, args)
    if args:
        statement = parse(bind(text, args))
    answer = _RUNNERS[type(statement)](session, statement)
    if answer is None:
        return result_frames.no_columns(session)
    if isinstance(answer, Result):
        return result_frames.statement_result(session, answer)
    return answer


_RUNNERS: Final[Mapping[type, Callable[..., Result | DataFrame | None]]] = {
    sql.InsertStatement: dml_statements.insert,
    sql.DeleteStatement: dml_statements.delete,
    sql.UpdateStatement: dml_statements.update,
    sql.MergeStatement: dml_statements.merge,
    sql.TruncateStatement: dml_statements.truncate,
    sql.CreateTable: ddl_statements.create_table,
    sql.DropTable: refusing_views(ddl_statements.drop_table, "use DROP VIEW"),
    sql.AlterTable: refusing_views(ddl_statements.alter_table, "use ALTER VIEW"),
    sql.CreateNamespace: ddl_statements.create_namespace,
    sql.AlterNamespace: ddl_statements.alter_namespace,
    sql.DropNamespace: ddl_statements.drop_namespace,
    sql.UseStatement: ddl_statements.use,
    sql.ShowTables: show_statements.show_tables,
    sql.ShowNamespaces: show_statements.show_namespaces,
    sql.ShowProperties: or_of_view(show_statements.show_properties, show_view_properties),
    sql.ShowCreateTable: or_of_view(show_statements.show_create_table, show_create_view),
    sql.DescribeTable: or_of_view(show_statements.describe_table, describe_view),
    sql.DescribeNamespace: show_statements.describe_namespace,
    sql.CreateView: view_statements.create_view,
    sql.CreateTemporaryView: view_statements.create_temporary_view,
    sql.AlterView: view_statements.alter_view,
    sql.DropView: view_statements.drop_view,
    sql.ShowViews: view_statements.show_views,
    sql.CallStatement: call,
}
"""What runs a statement. No answer, as for most definitions, is shown as an empty frame."""
