"""Run SHOW and DESCRIBE, with the columns that Spark returns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.client.declare.partition_terms import spec_terms
from frazil.client.declare.text_cursor import quoted, string_literal
from frazil.client.declare.type_text import type_text
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.sql_literals import default_literal
from frazil.spark.schema.spark_types import spark_type
from frazil.spark.sql import result_frames
from frazil.spark.sql.table_names import (
    catalog_name,
    current_namespace,
    identifier_of,
    namespace_of,
)
from frazil.values.types import NestedField
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.spark.session import Session

DESCRIBED: Final = "col_name string, data_type string, comment string"


def show_tables(session: Session, statement: sql.ShowTables) -> DataFrame:
    """Run SHOW TABLES and SHOW TABLE EXTENDED."""
    if statement.namespace is not None:
        namespace = namespace_of(session, statement.namespace)
    else:
        namespace = current_namespace(session)
    if not namespace:
        raise BadRequest("SHOW TABLES: name a namespace, as in SHOW TABLES IN ns, or run USE ns")
    tables = [
        (".".join(table.namespace), table.name, False)
        for table in session.client.list_tables(namespace)
        if matches(table.name, statement.pattern)
    ]
    columns = "namespace string, tableName string, isTemporary boolean"
    if not statement.extended:
        return result_frames.literal_rows(session, columns, sorted(tables))
    rows = [(*row, _information(session, Identifier(namespace, row[1]))) for row in sorted(tables)]
    return result_frames.literal_rows(session, f"{columns}, information string", rows)


def _information(session: Session, identifier: Identifier) -> str:
    """Return what SHOW TABLE EXTENDED says about a table."""
    table = session.client.load_table(identifier)
    lines = {
        "Catalog": catalog_name(session),
        "Namespace": ".".join(identifier.namespace),
        "Table": identifier.name,
        "Location": table.location,
        "Provider": "iceberg",
        "Table Properties": _listed(_properties(table)),
    }
    columns = [f" |-- {field.name}: {_shown_type(field)}" for field in table.schema.fields]
    texts = [f"{name}: {text}" for name, text in lines.items()]
    return "\n".join((*texts, "Schema: root", *columns, ""))


def show_namespaces(session: Session, statement: sql.ShowNamespaces) -> DataFrame:
    """Run SHOW NAMESPACES."""
    parent = None if statement.namespace is None else namespace_of(session, statement.namespace)
    names = [".".join(levels) for levels in session.client.list_namespaces(parent)]
    rows = [(name,) for name in sorted(names) if matches(name, statement.pattern)]
    return result_frames.literal_rows(session, "namespace string", rows)


def matches(name: str, pattern: str | None) -> bool:
    """Match a name with Spark's patterns: `*` is any text, `|` separates alternatives."""
    if pattern is None:
        return True
    choices = [
        ".*".join(re.escape(part) for part in choice.strip().split("*"))
        for choice in pattern.split("|")
    ]
    return re.fullmatch("|".join(choices), name, re.IGNORECASE) is not None


def show_properties(session: Session, statement: sql.ShowProperties) -> DataFrame:
    """Run SHOW TBLPROPERTIES."""
    table = session.client.load_table(identifier_of(session, statement.name))
    properties = _properties(table)
    if statement.key is None:
        rows = sorted(properties.items())
    else:
        missing = f"Table {table} does not have property: {statement.key}"
        rows = [(statement.key, properties.get(statement.key, missing))]
    return result_frames.literal_rows(session, "key string, value string", rows)


def _properties(table: Table) -> dict[str, str]:
    """Return the properties with those that Iceberg always shows."""
    head = table.head()
    return {
        **table.properties,
        "format-version": str(table.format_version),
        "current-snapshot-id": "none" if head is None else str(head),
    }


def describe_table(session: Session, statement: sql.DescribeTable) -> DataFrame:
    """Run DESCRIBE TABLE."""
    table = session.client.load_table(identifier_of(session, statement.name))
    rows: list[tuple[str, str, str | None]] = [
        (field.name, _shown_type(field), field.doc) for field in table.schema.fields
    ]
    terms = spec_terms(table)
    if terms:
        rows += [("", "", ""), ("# Partitioning", "", "")]
        rows += [(f"Part {index}", text, "") for index, text in enumerate(terms)]
    if statement.extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [
            ("Name", str(table), ""),
            ("Location", table.location, ""),
            ("Provider", "iceberg", ""),
            ("Table UUID", table.uuid, ""),
            ("Table Properties", _listed(_properties(table)), ""),
        ]
    return result_frames.literal_rows(session, DESCRIBED, rows)


def _shown_type(field: NestedField) -> str:
    """Return Spark's name of the type, or Iceberg's if this Spark does not have it."""
    try:
        return spark_type(field.type).simpleString()
    except BadRequest:
        return type_text(field.type).lower()


def _listed(properties: Mapping[str, str]) -> str:
    return "[" + ",".join(f"{key}={value}" for key, value in sorted(properties.items())) + "]"


def describe_namespace(session: Session, statement: sql.DescribeNamespace) -> DataFrame:
    """Run DESCRIBE NAMESPACE."""
    namespace = namespace_of(session, statement.name)
    properties = session.client.load_namespace(namespace)
    rows = [("Namespace Name", ".".join(namespace)), *sorted(properties.items())]
    return result_frames.literal_rows(session, "info_name string, info_value string", rows)


def show_create_table(session: Session, statement: sql.ShowCreateTable) -> DataFrame:
    """Run SHOW CREATE TABLE."""
    table = session.client.load_table(identifier_of(session, statement.name))
    return result_frames.literal_rows(session, "createtab_stmt string", [(create_text(table),)])


def create_text(table: Table) -> str:
    """Return the CREATE TABLE statement of a table."""
    name = ".".join(quoted(part) for part in (*table.identifier.namespace, table.identifier.name))
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
    listed = ",\n  ".join(
        f"{string_literal(key)} = {string_literal(value)}"
        for key, value in sorted(properties.items())
    )
    parts.append(f"TBLPROPERTIES (\n  {listed})")
    return "\n".join(parts)


def _column(field: NestedField) -> str:
    parts = [quoted(field.name), type_text(field.type)]
    if field.required:
        parts.append("NOT NULL")
    if field.write_default is not None:
        parts.append(f"DEFAULT {default_literal(field)}")
    if field.doc is not None:
        parts.append(f"COMMENT {string_literal(field.doc)}")
    return " ".join(parts)
