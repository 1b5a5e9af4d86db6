"""Run DESCRIBE, SHOW CREATE TABLE and SHOW TBLPROPERTIES of a view, as Iceberg's Spark does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from pyspark.sql import DataFrame

from frazil.client.declare.client_view import View
from frazil.client.declare.text_cursor import quoted, string_literal
from frazil.spark.core.view_check import refuse_view
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.schema.spark_types import spark_schema
from frazil.spark.sql.result_frames import literal_rows
from frazil.spark.sql.table_names import catalog_name, identifier_of
from frazil.spark.sql.view_statements import CHANGED_BY, CREATED_BY, QUERY_COLUMNS
from frazil.values.types import NestedField
from frazil.wire.errors import NoSuchNamespace, NoSuchTable, NoSuchView

if TYPE_CHECKING:
    from frazil.spark.session import Session

S = TypeVar("S", sql.DescribeTable, sql.ShowCreateTable, sql.ShowProperties)
T = TypeVar("T", sql.DropTable, sql.AlterTable, sql.CommentOn)
A = TypeVar("A")
_OfTable: TypeAlias = "Callable[[Session, S], DataFrame]"
_OfView: TypeAlias = "Callable[[Session, View, S], DataFrame]"

_HIDDEN: Final = frozenset({"comment", CREATED_BY, CHANGED_BY, QUERY_COLUMNS})
"""Properties that stock Spark shows elsewhere."""


def or_of_view(
    of_table: _OfTable[S], of_view: Callable[[Session, View, S], DataFrame]
) -> _OfTable[S]:
    """Return what describes a table, or a view if there is no such table."""

    def run(session: Session, statement: S) -> DataFrame:
        try:
            return of_table(session, statement)
        except NoSuchTable as missing:
            try:
                view = session.client.load_view(identifier_of(session, statement.name))
            except (NoSuchView, NoSuchNamespace):
                raise missing from None
        return of_view(session, view, statement)

    return run


def refusing_views(run: Callable[[Session, T], A], advice: str) -> Callable[[Session, T], A]:
    """Return what changes a table, with a better error if it is a view."""

    def refusing(session: Session, statement: T) -> A:
        try:
            return run(session, statement)
        except NoSuchTable:
            refuse_view(session.client, identifier_of(session, statement.name), advice)
            raise

    return refusing


def describe_view(session: Session, view: View, statement: sql.DescribeTable) -> DataFrame:
    """Run DESCRIBE."""
    rows = [
        (field.name, field.dataType.simpleString(), field.metadata.get("comment", ""))
        for field in spark_schema(view.schema).fields
    ]
    if statement.extended:
        properties = _shown_properties(view)
        listed = ", ".join(_assigned(properties))
        columns = view.properties.get(QUERY_COLUMNS, "").split(",")
        catalog = catalog_name(session)
        rows += [
            ("", "", ""),
            ("# Detailed View Information", "", ""),
            ("Comment", view.properties.get("comment", ""), ""),
            ("View Catalog and Namespace", ".".join((catalog, *view.identifier.namespace)), ""),
            ("View Query Output Columns", f"[{', '.join(filter(None, columns))}]", ""),
            ("View Properties", f"[{listed}]", ""),
            ("Created By", view.properties.get(CREATED_BY, ""), ""),
        ]
    return literal_rows(session, "col_name string, data_type string, comment string", rows)


def show_create_view(session: Session, view: View, statement: sql.ShowCreateTable) -> DataFrame:
    """Run SHOW CREATE TABLE."""
    return literal_rows(session, "createtab_stmt string", [(create_text(view),)])


def create_text(view: View) -> str:
    """Return the CREATE VIEW statement of a view."""
    name = quoted(*view.identifier.namespace, view.identifier.name)
    columns = ",\n  ".join(_column(field) for field in view.schema.fields)
    parts = [f"CREATE VIEW {name} (\n  {columns})"]
    comment = view.properties.get("comment")
    if comment is not None:
        parts.append(f"COMMENT {string_literal(comment)}")
    own = {key: text for key, text in view.properties.items() if key not in _HIDDEN}
    if own:
        listed = ",\n  ".join(_assigned(own))
        parts.append(f"TBLPROPERTIES (\n  {listed})")
    return "\n".join([*parts, "AS", view.sql()])


def _column(field: NestedField) -> str:
    comment = "" if field.doc is None else f" COMMENT {string_literal(field.doc)}"
    return quoted(field.name) + comment


def show_view_properties(session: Session, view: View, statement: sql.ShowProperties) -> DataFrame:
    """Run SHOW TBLPROPERTIES."""
    properties = _shown_properties(view)
    if statement.key is None:
        rows = sorted(properties.items())
    else:
        missing = f"View {view} does not have property: {statement.key}"
        rows = [(statement.key, properties.get(statement.key, missing))]
    return literal_rows(session, "key string, value string", rows)


def _shown_properties(view: View) -> Mapping[str, str]:
    """Return the properties with those that Iceberg's Spark always shows."""
    own = {key: text for key, text in view.properties.items() if key not in _HIDDEN}
    return {
        "provider": "iceberg",
        "location": view.location,
        "format-version": str(view.metadata["format-version"]),
        **own,
    }


def _assigned(properties: Mapping[str, str]) -> list[str]:
    return [
        f"{string_literal(key)} = {string_literal(text)}"
        for key, text in sorted(properties.items())
    ]
