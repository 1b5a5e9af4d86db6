"""Resolve names in statements to tables, branches, snapshots and namespaces of the catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import SparkSession

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.spark.core.context import Context
from frazil.spark.core.statement_runs import Target
from frazil.spark.inspection.metadata_tables import METADATA_TABLES
from frazil.spark.parse.sql_tokens import Cursor, Name
from frazil.wire.errors import BadRequest, NoSuchNamespace, NoSuchTable
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier, Namespace

METADATA: Final = "metadata"
"""The kind of a selector that names a metadata table."""
_SELECTOR: Final = re.compile(r"(branch|tag|snapshot_id|at_timestamp)_(.+)")
_NUMBERED: Final = {"snapshot_id": "snapshot", "at_timestamp": "timestamp"}
"""Options of a scan by the kind of a selector whose value is a number."""
_DOES_NOT_EXIST: Final = (NoSuchTable, NoSuchNamespace)


@dataclass(eq=False)
class SqlSession:
    """What SQL statements share: the context, and the namespace that USE has set."""

    context: Context
    current_namespace: Namespace = ()
    """The namespace of the last USE; empty if there was none."""

    @property
    def spark(self) -> SparkSession:
        return self.context.spark

    @property
    def client(self) -> Client:
        return self.context.client

    @property
    def catalog_name(self) -> str:
        """The catalog's name, which every table name may begin with, as in Spark."""
        return self.context.settings.catalog_name


@dataclass(frozen=True)
class Selector:
    """The last part of a name such as `ns.t.branch_audit` or `ns.t.snapshots`.

    A metadata table may have a part of its own after it, as in `ns.t.files.branch_audit`.
    """

    kind: str
    value: str
    moment: Selector | None = None

    @property
    def scan_option(self) -> dict[str, Any]:
        """Return the option of a scan that chooses the snapshot."""
        option = _NUMBERED.get(self.kind)
        return {"ref": self.value} if option is None else {option: int(self.value)}


def name_of(text: str) -> Name:
    """Parse a table's name with dots, whose parts may be in backticks."""
    cursor = Cursor(text)
    name = cursor.name("a table's name")
    cursor.end()
    return name


def use_namespace(session: SqlSession, namespace: Namespace) -> None:
    """Set the current namespace; an empty one clears it."""
    if namespace:
        session.client.load_namespace(namespace)
    session.current_namespace = namespace


def namespace_of(session: SqlSession, name: Name) -> Namespace:
    """Return the name of a namespace without the catalog's name."""
    return name[1:] if has_catalog(session, name) else name


def identifier_of(session: SqlSession, name: Name) -> Identifier:
    """Return the table that a name means; raise BadRequest if its namespace is unknown."""
    identifier = possible_identifier(session, name)
    if identifier is None:
        raise BadRequest(f"{name[0]}: name its namespace too, as in ns.{name[0]}, or run USE ns")
    return identifier


def possible_identifier(session: SqlSession, name: Name) -> Identifier | None:
    """Return the table that a name means; None for a single name without a current namespace."""
    current = session.current_namespace
    if has_catalog(session, name) and (len(name) > 2 or current):
        name = name[1:]
    if len(name) == 1:
        return Identifier(current, name[0]) if current else None
    return Identifier(name[:-1], name[-1])


def renamed(session: SqlSession, identifier: Identifier, name: Name) -> Identifier:
    """Return what RENAME TO means; a single name stays in the namespace."""
    if len(name) == 1:
        return Identifier(identifier.namespace, name[0])
    return identifier_of(session, name)


def has_catalog(session: SqlSession, name: Name) -> bool:
    """Return whether a name begins with the catalog's name."""
    return len(name) > 1 and name[0].lower() == session.catalog_name.lower()


def selector_of(name: Name) -> Selector | None:
    """Return the selector that a name ends with, if it ends with one."""
    if len(name) > 1 and name[-1].lower() in METADATA_TABLES:
        return Selector(METADATA, name[-1].lower())
    matched = _SELECTOR.fullmatch(name[-1])
    if len(name) == 1 or matched is None:
        return None
    if matched[1] in _NUMBERED and not matched[2].isdigit():
        return None
    return Selector(matched[1], matched[2])


def load(session: SqlSession, name: Name) -> tuple[Table, Selector | None] | None:
    """Load the table of a name, and return the selector at the end of the name.

    Return None if the catalog has no such table. Like in Iceberg's own catalog, a table whose name
    looks like a selector takes precedence.
    """
    identifier = possible_identifier(session, name)
    if identifier is None:
        return None
    try:
        return session.client.load_table(identifier), None
    except _DOES_NOT_EXIST:
        selector = selector_of(name)
        parent = None if selector is None else possible_identifier(session, name[:-1])
        if parent is None:
            return None
    try:
        return session.client.load_table(parent), selector
    except _DOES_NOT_EXIST:
        metadata = selector_of(name[:-1])
        if selector is None or metadata is None or metadata.kind != METADATA:
            return None
    table = possible_identifier(session, name[:-2])
    try:
        moment = replace(metadata, moment=selector)
        return None if table is None else (session.client.load_table(table), moment)
    except _DOES_NOT_EXIST:
        return None


def target_of(session: SqlSession, name: Name) -> Target:
    """Return the table or branch that a statement writes to."""
    identifier = identifier_of(session, name)
    selector = selector_of(name)
    if selector is None or session.client.table_exists(identifier):
        return Target(identifier)
    if selector.kind != "branch":
        raise BadRequest(f"{'.'.join(name)}: only a table or a branch can be written to")
    return Target(identifier_of(session, name[:-1]), selector.value or MAIN)
