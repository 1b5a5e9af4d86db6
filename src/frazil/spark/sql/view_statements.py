"""Run CREATE, ALTER, DROP and SHOW of views, with the metadata that Iceberg's Spark writes."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

import pyspark.sql.types as st
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from frazil.client.declare.client_view import SPARK_DIALECT, ViewVersion
from frazil.spark.core.name_matching import names_of, quoted
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.sql_tokens import Edit, Name, apply_edits, tokens_of
from frazil.spark.parse.table_references import references
from frazil.spark.schema.spark_types import COMMENT_METADATA, iceberg_schema
from frazil.spark.sql import temporary_views
from frazil.spark.sql.statement_tables import StatementTables
from frazil.spark.sql.table_names import (
    SqlSession,
    has_catalog,
    identifier_of,
    possible_identifier,
    renamed,
)
from frazil.spark.sql.temporary_views import GLOBAL, TemporaryView, is_temporary
from frazil.values.types import StructType
from frazil.wire.errors import AlreadyExists, BadRequest, NoSuchNamespace, NoSuchView
from frazil.wire.identifiers import Identifier

QUERY_COLUMNS: Final = "spark.query-column-names"
CREATED_BY: Final = "create_engine_version"
CHANGED_BY: Final = "engine_version"
RESERVED: Final = frozenset({"provider", "location", "format-version", QUERY_COLUMNS})
"""Properties that ALTER VIEW cannot change, as in Iceberg's Spark."""


# --- CREATE ---------------------------------------------------------------------------------------


def create_view(session: SqlSession, statement: sql.CreateView) -> None:
    """Run CREATE VIEW."""
    identifier = identifier_of(session, statement.name)
    client = session.client
    if statement.if_not_exists and client.view_exists(identifier):
        return
    text, schema, names = _analyzed(session, identifier, statement.query, statement.columns)
    engine = f"Spark {session.spark.version}"
    properties = dict(statement.properties)
    if statement.comment is not None:
        properties["comment"] = statement.comment
    properties |= {CREATED_BY: engine, CHANGED_BY: engine, QUERY_COLUMNS: names}
    location = properties.pop("location", None)
    properties.pop("provider", None)
    options: dict[str, Any] = {
        "default_namespace": session.current_namespace,
        "location": location,
        "properties": properties,
        "summary": _summary(session),
    }
    if statement.replace:
        client.replace_view(identifier, schema, text, or_create=True, **options)
        return
    with suppress(*((AlreadyExists,) if statement.if_not_exists else ())):
        client.create_view(identifier, schema, text, **options)


def _analyzed(
    session: SqlSession,
    identifier: Identifier,
    query: str,
    columns: tuple[sql.ViewColumn, ...] = (),
) -> tuple[str, StructType, str]:
    """Return the text, the columns and the names of the query's columns that a view stores.

    Raise BadRequest if others could not read it.
    """
    text = _stored_text(session, identifier, query)
    version = ViewVersion(
        version_id=0,
        schema_id=0,
        timestamp_ms=time.time_ns() // 1_000_000,
        default_namespace=session.current_namespace,
        representations=({"type": "sql", "dialect": SPARK_DIALECT, "sql": text},),
    )
    with StatementTables(session) as tables:
        frame = tables.query_of_view(text, version, identifier)
    fields = _columns(session, str(identifier), frame, columns)
    return text, iceberg_schema(st.StructType(fields)), ",".join(frame.columns)


def _columns(
    session: SqlSession, view: str, frame: DataFrame, columns: tuple[sql.ViewColumn, ...]
) -> list[st.StructField]:
    """Return the fields of a view; the list in parentheses names them anew."""
    fields = list(frame.schema.fields)
    if columns and len(columns) != len(fields):
        names = ", ".join(column.name for column in columns)
        raise BadRequest(
            f"{view} names {len(columns)} columns ({names}), but the query has {len(fields)} "
            f"({', '.join(frame.columns)})"
        )
    if columns:
        fields = [
            st.StructField(
                column.name,
                field.dataType,
                field.nullable,
                {} if column.comment is None else {COMMENT_METADATA: column.comment},
            )
            for column, field in zip(columns, fields, strict=True)
        ]
    key = names_of(session.spark).key
    keys = [key(field.name) for field in fields]
    for position, name in enumerate(keys):
        if name in keys[:position]:
            raise BadRequest(f"{view} would have two columns {name}: rename one, as in v (a, b)")
    return fields


def _stored_text(session: SqlSession, view: Identifier, query: str) -> str:
    """Return the text without this catalog's name, which other sessions may not know."""
    names = {reference.name for reference in references(query)}
    temporary = sorted(".".join(name) for name in names if is_temporary(session, name))
    if temporary:
        raise BadRequest(
            f"the view {view} cannot read the temporary view {', '.join(temporary)}, which ends "
            "with this session: write its query instead, or create a temporary view"
        )
    functions = _own_functions(session, query)
    if functions:
        raise BadRequest(
            f"the view {view} cannot use {', '.join(functions)}: readers have only the functions "
            "that Spark brings along; create a temporary view instead"
        )
    return _without_catalog(session, query, names)


def _without_catalog(session: SqlSession, query: str, tables: Collection[Name]) -> str:
    """Remove the catalog from the names of tables, also where they qualify columns."""
    known = {tuple(part.lower() for part in name) for name in tables if has_catalog(session, name)}
    tokens = tokens_of(query)
    edits: list[Edit] = []
    for position, token in enumerate(tokens):
        for name in known:
            dotted = tokens[position : position + 2 * len(name) - 1]
            parts = tuple(part.value.lower() for part in dotted[::2])
            is_dotted = token.is_name and all(dot.word == "." for dot in dotted[1::2])
            if parts == name and is_dotted and (not position or tokens[position - 1].word != "."):
                edits.append((token.start, tokens[position + 2].start, ""))
                break
    return apply_edits(query, edits)


def _own_functions(session: SqlSession, query: str) -> list[str]:
    """Return the functions in a query that the user has registered."""
    tokens = tokens_of(query)
    called = {
        token.value.lower()
        for token, following in pairwise(tokens)
        if token.is_name and following.word == "("
    }
    try:
        rows = session.spark.sql("SHOW USER FUNCTIONS IN spark_catalog.default").collect()
    except AnalysisException:
        return []  # A session catalog of another kind may have no namespace of this name.
    return sorted(called & {row[0].rpartition(".")[2].lower() for row in rows})


def _summary(session: SqlSession) -> dict[str, str]:
    summary = {"engine-name": "spark", "engine-version": session.spark.version}
    application = session.spark.conf.get("spark.app.id", None)
    return summary if application is None else {**summary, "app-id": application}


# --- temporary views ------------------------------------------------------------------------------


def create_temporary_view(session: SqlSession, statement: sql.CreateTemporaryView) -> None:
    """Run CREATE TEMPORARY VIEW; the view belongs to Spark."""
    name = (GLOBAL, statement.name) if statement.is_global else (statement.name,)
    with StatementTables(session) as tables:
        if tables.reads_temporary(name, statement.query):
            raise BadRequest(f"the temporary view {statement.name} would read itself")
        frame = tables.query(statement.query)
        text = tables.complete(statement.query)
    fields: list[st.StructField] = []
    if statement.columns:
        fields = _columns(session, statement.name, frame, statement.columns)
    view = TemporaryView(name, text, fields)
    temporary_views.create(session, view, view.with_columns(frame), replace=statement.replace)


# --- ALTER, DROP ----------------------------------------------------------------------------------


def alter_view(session: SqlSession, statement: sql.AlterView) -> None:
    """Run ALTER VIEW."""
    identifier = identifier_of(session, statement.name)
    change, client = statement.change, session.client
    if isinstance(change, sql.ViewQuery):
        text, schema, names = _analyzed(session, identifier, change.query)
        changed = {CHANGED_BY: f"Spark {session.spark.version}", QUERY_COLUMNS: names}
        client.replace_view(
            identifier,
            schema,
            text,
            default_namespace=session.current_namespace,
            properties=changed,
            summary=_summary(session),
        )
    elif isinstance(change, sql.RenameTable):
        client.rename_view(identifier, renamed(session, identifier, change.new_name))
    elif isinstance(change, sql.SetProperties):
        _check_unreserved(identifier, change.properties)
        client.update_view(identifier, change.properties)
    else:
        _check_unreserved(identifier, dict.fromkeys(change.names, ""))
        known = client.load_view(identifier).properties
        missing = [name for name in change.names if name not in known]
        if missing and not change.if_exists:
            raise BadRequest(f"{identifier} has no property {', '.join(missing)}: add IF EXISTS")
        client.update_view(identifier, removals=change.names)


def _check_unreserved(identifier: Identifier, properties: Mapping[str, str]) -> None:
    reserved = sorted(RESERVED & properties.keys())
    if reserved:
        raise BadRequest(f"{identifier}: {', '.join(reserved)} cannot be set or removed")


def drop_view(session: SqlSession, statement: sql.DropView) -> None:
    """Run DROP VIEW, which also drops temporary views."""
    name = statement.name
    identifier = possible_identifier(session, name)
    if identifier is None or is_temporary(session, name):
        condition = "IF EXISTS " if statement.if_exists else ""
        session.spark.sql(f"DROP VIEW {condition}{quoted(*name)}")
        return
    try:
        session.client.drop_view(identifier)
    except (NoSuchView, NoSuchNamespace):
        if session.client.table_exists(identifier):
            raise BadRequest(f"{identifier} is a table: use DROP TABLE") from None
        if not statement.if_exists:
            raise
