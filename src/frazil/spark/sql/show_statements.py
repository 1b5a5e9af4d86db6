"""Run SHOW and DESCRIBE, with the columns that Spark returns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.client.declare.client_view import View
from frazil.client.declare.partition_terms import spec_terms
from frazil.client.declare.text_cursor import quoted, string_literal
from frazil.client.declare.type_text import type_text
from frazil.spark.builders import FrameReader
from frazil.spark.core.name_matching import names_of
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.sql_literals import default_literal
from frazil.spark.parse.sql_tokens import Name
from frazil.spark.schema.spark_types import spark_schema, spark_type
from frazil.spark.sql.result_frames import literal_rows
from frazil.spark.sql.table_names import METADATA, SqlSession, identifier_of, load, namespace_of
from frazil.spark.sql.temporary_views import GLOBAL
from frazil.spark.sql.view_statements import CHANGED_BY, CREATED_BY, QUERY_COLUMNS
from frazil.values.types import NestedField
from frazil.wire.errors import BadRequest, NoSuchNamespace, NoSuchTable, NoSuchView
from frazil.wire.identifiers import Identifier, Namespace

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

_COLUMNS: Final = "col_name string, data_type string, comment string"
_INFO: Final = "info_name string, info_value string"
_SHOWN_ELSEWHERE: Final = frozenset({"comment", CREATED_BY, CHANGED_BY, QUERY_COLUMNS})
"""Properties of views that stock Spark does not show as such."""


# --- lists ----------------------------------------------------------------------------------------


def show_tables(session: SqlSession, statement: sql.ShowTables) -> DataFrame:
    """Run SHOW TABLES and SHOW TABLE EXTENDED."""
    namespace = _listed_namespace(session, statement.namespace, "SHOW TABLES")
    tables = [
        (".".join(table.namespace), table.name, False)
        for table in session.client.list_tables(namespace)
        if _matches(table.name, statement.pattern)
    ]
    columns = "namespace string, tableName string, isTemporary boolean"
    if not statement.extended:
        return literal_rows(session, columns, sorted(tables))
    rows = [(*row, _information(session, Identifier(namespace, row[1]))) for row in sorted(tables)]
    return literal_rows(session, f"{columns}, information string", rows)


def _information(session: SqlSession, identifier: Identifier) -> str:
    """Return what SHOW TABLE EXTENDED says about a table."""
    table = session.client.load_table(identifier)
    lines = {
        "Catalog": session.catalog_name,
        "Namespace": ".".join(identifier.namespace),
        "Table": identifier.name,
        "Location": table.location,
        "Provider": "iceberg",
        "Table Properties": _listed(_properties(table)),
    }
    columns = [f" |-- {field.name}: {_shown_type(field)}" for field in table.schema.fields]
    texts = [f"{name}: {text}" for name, text in lines.items()]
    return "\n".join((*texts, "Schema: root", *columns, ""))


def show_views(session: SqlSession, statement: sql.ShowViews) -> DataFrame:
    """Run SHOW VIEWS, which also lists temporary views."""
    namespace = _listed_namespace(session, statement.namespace, "SHOW VIEWS")
    of_spark = session.spark.sql(f"SHOW VIEWS IN spark_catalog.{GLOBAL}").collect()
    rows = [tuple(row) for row in of_spark if not row[0] or namespace == (GLOBAL,)]
    if namespace != (GLOBAL,):
        views = session.client.list_views(namespace)
        rows += [(".".join(view.namespace), view.name, False) for view in views]
    return literal_rows(
        session,
        "namespace string, viewName string, isTemporary boolean",
        sorted(row for row in rows if _matches(row[1], statement.pattern)),
    )


def _listed_namespace(session: SqlSession, name: Name | None, command: str) -> Namespace:
    namespace = session.current_namespace if name is None else namespace_of(session, name)
    if not namespace:
        raise BadRequest(f"{command}: name a namespace, as in {command} IN ns, or run USE ns")
    return namespace


def show_namespaces(session: SqlSession, statement: sql.ShowNamespaces) -> DataFrame:
    """Run SHOW NAMESPACES."""
    parent = None if statement.namespace is None else namespace_of(session, statement.namespace)
    names = [".".join(levels) for levels in session.client.list_namespaces(parent)]
    rows = [(name,) for name in sorted(names) if _matches(name, statement.pattern)]
    return literal_rows(session, "namespace string", rows)


def _matches(name: str, pattern: str | None) -> bool:
    """Match a name with Spark's patterns: `*` is any text, `|` separates alternatives."""
    if pattern is None:
        return True
    choices = [
        ".*".join(re.escape(part) for part in choice.strip().split("*"))
        for choice in pattern.split("|")
    ]
    return re.fullmatch("|".join(choices), name, re.IGNORECASE) is not None


def show_current_namespace(session: SqlSession, _: sql.ShowCurrentNamespace) -> DataFrame:
    """Run SHOW CURRENT NAMESPACE."""
    row = (session.catalog_name, ".".join(session.current_namespace))
    return literal_rows(session, "catalog string, namespace string", [row])


# --- one table or view ----------------------------------------------------------------------------


def show_columns(session: SqlSession, statement: sql.ShowColumns) -> DataFrame:
    """Run SHOW COLUMNS."""
    columns = columns_of(session, statement.name)
    return literal_rows(session, "col_name string", [(name,) for name in columns.names])


def show_properties(session: SqlSession, statement: sql.ShowProperties) -> DataFrame:
    """Run SHOW TBLPROPERTIES."""
    shown = _table_or_view(session, statement.name)
    properties = _properties(shown)
    if statement.key is None:
        rows = sorted(properties.items())
    else:
        kind = "View" if isinstance(shown, View) else "Table"
        missing = f"{kind} {shown} does not have property: {statement.key}"
        rows = [(statement.key, properties.get(statement.key, missing))]
    return literal_rows(session, "key string, value string", rows)


def describe_table(session: SqlSession, statement: sql.DescribeTable) -> DataFrame:
    """Run DESCRIBE of a table, a view or a metadata table."""
    loaded = load(session, statement.name)
    if loaded is not None and loaded[1] is not None and loaded[1].kind == METADATA:
        columns = columns_of(session, statement.name)
        rows = [(field.name, field.dataType.simpleString(), None) for field in columns.fields]
        return literal_rows(session, _COLUMNS, rows)
    shown = _table_or_view(session, statement.name)
    if isinstance(shown, View):
        return literal_rows(session, _COLUMNS, _view_rows(session, shown, statement.extended))
    return literal_rows(session, _COLUMNS, _table_rows(shown, statement.extended))


def _table_rows(table: Table, extended: bool) -> list[tuple[str, str, str | None]]:
    rows: list[tuple[str, str, str | None]] = [
        (field.name, _shown_type(field), field.doc) for field in table.schema.fields
    ]
    terms = spec_terms(table)
    if terms:
        rows += [("", "", ""), ("# Partitioning", "", "")]
        rows += [(f"Part {index}", text, "") for index, text in enumerate(terms)]
    if extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [
            ("Name", str(table), ""),
            ("Location", table.location, ""),
            ("Provider", "iceberg", ""),
            ("Table UUID", table.uuid, ""),
            ("Table Properties", _listed(_properties(table)), ""),
        ]
    return rows


def _view_rows(session: SqlSession, view: View, extended: bool) -> list[tuple[str, str, str]]:
    rows = [
        (field.name, field.dataType.simpleString(), field.metadata.get("comment", ""))
        for field in spark_schema(view.schema).fields
    ]
    if extended:
        properties = _properties(view)
        listed = ", ".join(_assigned(properties))
        columns = view.properties.get(QUERY_COLUMNS, "").split(",")
        catalog = session.catalog_name
        rows += [
            ("", "", ""),
            ("# Detailed View Information", "", ""),
            ("Comment", view.properties.get("comment", ""), ""),
            ("View Catalog and Namespace", ".".join((catalog, *view.identifier.namespace)), ""),
            ("View Query Output Columns", f"[{', '.join(filter(None, columns))}]", ""),
            ("View Properties", f"[{listed}]", ""),
            ("Created By", view.properties.get(CREATED_BY, ""), ""),
        ]
    return rows


def describe_namespace(session: SqlSession, statement: sql.DescribeNamespace) -> DataFrame:
    """Run DESCRIBE NAMESPACE."""
    namespace = namespace_of(session, statement.name)
    properties = session.client.load_namespace(namespace)
    rows = [("Namespace Name", ".".join(namespace)), *sorted(properties.items())]
    return literal_rows(session, _INFO, rows)


def describe_column(session: SqlSession, statement: sql.DescribeColumn) -> DataFrame:
    """Run DESCRIBE with a column."""
    columns = columns_of(session, statement.name)
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
            return literal_rows(session, _INFO, rows)
    raise BadRequest(
        f"{'.'.join(statement.name)} has no column {statement.column[0]}; it has "
        f"{', '.join(columns.names)}"
    )


def show_create_table(session: SqlSession, statement: sql.ShowCreateTable) -> DataFrame:
    """Run SHOW CREATE TABLE."""
    shown = _table_or_view(session, statement.name)
    text = _view_text(shown) if isinstance(shown, View) else _table_text(shown)
    return literal_rows(session, "createtab_stmt string", [(text,)])


def _table_text(table: Table) -> str:
    """Return the CREATE TABLE statement of a table."""
    name = quoted(*table.identifier.namespace, table.identifier.name)
    columns = ",\n  ".join(_column(field) for field in table.schema.fields)
    parts = [f"CREATE TABLE {name} (\n  {columns})", "USING iceberg"]
    terms = spec_terms(table)
    if terms:
        parts.append(f"PARTITIONED BY ({', '.join(terms)})")
    properties = dict(table.properties)
    comment = properties.pop("comment", None)
    if comment is not None:
        parts.append(f"COMMENT {string_literal(comment)}")
    parts.append(f"LOCATION {string_literal(table.location)}")
    properties["format-version"] = str(table.format_version)
    return "\n".join([*parts, _properties_clause(properties)])


def _view_text(view: View) -> str:
    """Return the CREATE VIEW statement of a view."""
    name = quoted(*view.identifier.namespace, view.identifier.name)
    columns = ",\n  ".join(quoted(field.name) + _comment(field) for field in view.schema.fields)
    parts = [f"CREATE VIEW {name} (\n  {columns})"]
    comment = view.properties.get("comment")
    if comment is not None:
        parts.append(f"COMMENT {string_literal(comment)}")
    own = _own_properties(view)
    if own:
        parts.append(_properties_clause(own))
    return "\n".join([*parts, "AS", view.sql()])


def _column(field: NestedField) -> str:
    parts = [quoted(field.name), type_text(field.type)]
    if field.required:
        parts.append("NOT NULL")
    if field.write_default is not None:
        parts.append(f"DEFAULT {default_literal(field)}")
    return " ".join(parts) + _comment(field)


def _comment(field: NestedField) -> str:
    return "" if field.doc is None else f" COMMENT {string_literal(field.doc)}"


def _properties_clause(properties: Mapping[str, str]) -> str:
    listed = ",\n  ".join(_assigned(properties))
    return f"TBLPROPERTIES (\n  {listed})"


# --- parts ----------------------------------------------------------------------------------------


def _table_or_view(session: SqlSession, name: Name) -> Table | View:
    identifier = identifier_of(session, name)
    try:
        return session.client.load_table(identifier)
    except NoSuchTable as missing:
        try:
            return session.client.load_view(identifier)
        except (NoSuchView, NoSuchNamespace):
            raise missing from None


def columns_of(session: SqlSession, name: Name) -> SparkStruct:
    """Return the columns of a table, a metadata table or a view."""
    loaded = load(session, name)
    if loaded is not None and (loaded[1] is None or loaded[1].kind != METADATA):
        return spark_schema(loaded[0].schema)
    try:
        return FrameReader(session).table(quoted(*name)).schema
    except NoSuchTable:
        raise NoSuchTable(f"Table does not exist: {'.'.join(name)}") from None


def _properties(shown: Table | View) -> dict[str, str]:
    """Return the properties with those that Iceberg always shows."""
    if isinstance(shown, View):
        return {
            "provider": "iceberg",
            "location": shown.location,
            "format-version": str(shown.metadata["format-version"]),
            **_own_properties(shown),
        }
    head = shown.head()
    return {
        **shown.properties,
        "format-version": str(shown.format_version),
        "current-snapshot-id": "none" if head is None else str(head),
    }


def _own_properties(view: View) -> dict[str, str]:
    return {key: text for key, text in view.properties.items() if key not in _SHOWN_ELSEWHERE}


def _shown_type(field: NestedField) -> str:
    """Return Spark's name of the type, or Iceberg's if this Spark does not have it."""
    try:
        return spark_type(field.type).simpleString()
    except BadRequest:
        return type_text(field.type).lower()


def _listed(properties: Mapping[str, str]) -> str:
    return "[" + ",".join(f"{key}={value}" for key, value in sorted(properties.items())) + "]"


def _assigned(properties: Mapping[str, str]) -> list[str]:
    return [
        f"{string_literal(key)} = {string_literal(text)}"
        for key, text in sorted(properties.items())
    ]
