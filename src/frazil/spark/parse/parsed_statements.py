"""Parsed statements: what the parser returns and what `sql.dispatch` runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from frazil.client.declare.column_definitions import ColumnDefinition
from frazil.spark.parse.sql_tokens import Name

Assignments: TypeAlias = tuple[tuple[Name, str], ...]
"""Columns and the texts of the expressions assigned to them."""
MATCHED: Final = "matched"
NOT_MATCHED: Final = "not matched"
BY_SOURCE: Final = "not matched by source"


class ParsedStatement(Struct, frozen=True):
    """A statement."""


class _OfName(ParsedStatement, frozen=True):
    """A statement about a table, a view or a namespace."""

    name: Name


class _OfRows(ParsedStatement, frozen=True):
    """A statement that changes rows of a table."""

    target: Name


# --- rows ---------------------------------------------------------------------------------------


class QueryStatement(ParsedStatement, frozen=True):
    """A query; Spark runs it."""

    text: str


class InsertStatement(_OfRows, frozen=True, kw_only=True):
    """INSERT INTO, INSERT OVERWRITE or INSERT INTO … REPLACE WHERE."""

    query: str
    columns: tuple[str, ...] = ()
    by_name: bool = False
    overwrite: bool = False
    partition: tuple[tuple[str, str | None], ...] = ()
    """The columns of PARTITION (…), with the text of a value if there is one."""
    replace_where: str | None = None
    merge_schema: bool = False


class DeleteStatement(_OfRows, frozen=True):
    """DELETE FROM."""

    alias: str | None = None
    where: str | None = None


class UpdateStatement(_OfRows, frozen=True):
    """UPDATE."""

    assignments: Assignments
    alias: str | None = None
    where: str | None = None


class MergeClause(Struct, frozen=True):
    """A WHEN clause of a MERGE."""

    kind: str
    """`matched`, `not matched` or `not matched by source`."""
    action: str
    """`update`, `delete` or `insert`."""
    condition: str | None = None
    assignments: Assignments | None = None
    """None if all columns are assigned by name, and for DELETE."""


class MergeStatement(_OfRows, frozen=True):
    """MERGE INTO."""

    source: str
    """The text after USING: a table or a query in parentheses, with its alias."""
    source_alias: str
    on: str
    clauses: tuple[MergeClause, ...]
    alias: str | None = None
    merge_schema: bool = False


class TruncateStatement(_OfRows, frozen=True):
    """TRUNCATE TABLE."""


# --- definitions --------------------------------------------------------------------------------


class CreateTable(_OfName, frozen=True, kw_only=True):
    """CREATE TABLE or REPLACE TABLE, perhaps with AS SELECT."""

    columns: tuple[ColumnDefinition, ...] = ()
    query: str | None = None
    partitioned_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = {}
    if_not_exists: bool = False
    replace: bool = False
    create: bool = True
    """False for REPLACE TABLE, which fails if the table does not exist."""


class DropTable(_OfName, frozen=True):
    """DROP TABLE."""

    if_exists: bool = False
    purge: bool = False


class CreateNamespace(_OfName, frozen=True):
    """CREATE NAMESPACE."""

    if_not_exists: bool = False
    properties: Mapping[str, str] = {}


class DropNamespace(_OfName, frozen=True):
    """DROP NAMESPACE."""

    if_exists: bool = False
    cascade: bool = False


class AlterNamespace(_OfName, frozen=True):
    """ALTER NAMESPACE … SET or UNSET."""

    updates: Mapping[str, str] = {}
    removals: tuple[str, ...] = ()


class UseStatement(_OfName, frozen=True):
    """USE, with the name of a namespace."""


class _Listing(ParsedStatement, frozen=True):
    """A statement that lists what a namespace has."""

    namespace: Name | None = None
    pattern: str | None = None


class ShowTables(_Listing, frozen=True):
    """SHOW TABLES."""

    extended: bool = False
    """Whether it is SHOW TABLE EXTENDED, which also describes each table."""


class ShowNamespaces(_Listing, frozen=True):
    """SHOW NAMESPACES; the namespace is the parent."""


class ShowProperties(_OfName, frozen=True):
    """SHOW TBLPROPERTIES."""

    key: str | None = None


class ShowCreateTable(_OfName, frozen=True):
    """SHOW CREATE TABLE."""


class DescribeTable(_OfName, frozen=True):
    """DESCRIBE TABLE."""

    extended: bool = False


class DescribeColumn(_OfName, frozen=True):
    """DESCRIBE TABLE with a column."""

    column: Name


class ShowColumns(_OfName, frozen=True):
    """SHOW COLUMNS."""


class ShowCurrentNamespace(ParsedStatement, frozen=True):
    """SHOW CURRENT NAMESPACE."""


class CommentOn(ParsedStatement, frozen=True):
    """COMMENT ON TABLE or NAMESPACE."""

    kind: str
    """`table` or `namespace`."""
    name: Name
    comment: str


class TableCommand(ParsedStatement, frozen=True):
    """A statement about how Spark stores or caches a table, such as ANALYZE TABLE."""

    command: str
    name: Name


class SparkStatement(ParsedStatement, frozen=True):
    """A statement that Spark runs unchanged."""

    text: str


class DescribeNamespace(_OfName, frozen=True):
    """DESCRIBE NAMESPACE."""


# --- ALTER TABLE --------------------------------------------------------------------------------


class TableChange(Struct, frozen=True):
    """What ALTER changes."""


class SchemaChange(TableChange, frozen=True):
    """A change of columns."""


class AddColumns(SchemaChange, frozen=True):
    """ADD COLUMNS."""

    columns: tuple[ColumnDefinition, ...]


class DropColumns(SchemaChange, frozen=True):
    """DROP COLUMNS."""

    columns: tuple[Name, ...]
    if_exists: bool = False


class RenameColumn(SchemaChange, frozen=True):
    """RENAME COLUMN."""

    column: Name
    new_name: str


class AlterColumn(SchemaChange, frozen=True):
    """ALTER COLUMN or CHANGE COLUMN; what is None does not change."""

    column: Name
    type: str | None = None
    comment: str | None = None
    required: bool | None = None
    position: tuple[str, str | None] | None = None
    default: str | None = None
    drop_default: bool = False


class SetProperties(TableChange, frozen=True):
    """SET TBLPROPERTIES."""

    properties: Mapping[str, str]


class UnsetProperties(TableChange, frozen=True):
    """UNSET TBLPROPERTIES; for a table with or without IF EXISTS."""

    names: tuple[str, ...]
    if_exists: bool = False


class SetLocation(TableChange, frozen=True):
    """SET LOCATION."""

    location: str


class RenameTable(TableChange, frozen=True):
    """RENAME TO."""

    new_name: Name


class PartitionChange(TableChange, frozen=True):
    """ADD, DROP or REPLACE PARTITION FIELD."""

    dropped: str | None = None
    """A column, a transform of a column, or the name of the partition field."""
    added: str | None = None
    """A column or a transform of a column."""
    name: str | None = None
    """The name of the added field."""


class WriteOrder(TableChange, frozen=True):
    """WRITE ORDERED BY, DISTRIBUTED BY or UNORDERED."""

    ordered_by: tuple[str, ...] = ()
    distribution: str | None = None
    """`hash`, `range` or `none`; None leaves the table's mode unchanged."""


class IdentifierFields(TableChange, frozen=True):
    """SET or DROP IDENTIFIER FIELDS."""

    columns: tuple[Name, ...]
    drop: bool = False


class CreateRef(TableChange, frozen=True, kw_only=True):
    """CREATE or REPLACE BRANCH or TAG."""

    kind: str
    """`branch` or `tag`."""
    name: str
    snapshot_id: int | None = None
    if_not_exists: bool = False
    replace: bool = False
    create: bool = True
    """False for REPLACE, which fails if the branch or tag does not exist."""
    max_ref_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None


class DropRef(TableChange, frozen=True):
    """DROP BRANCH or TAG."""

    kind: str
    name: str
    if_exists: bool = False


class AlterTable(_OfName, frozen=True):
    """ALTER TABLE with one change."""

    change: TableChange


# --- views --------------------------------------------------------------------------------------


class ViewColumn(Struct, frozen=True):
    """A column in the list after the name of a view."""

    name: str
    comment: str | None = None


class CreateView(_OfName, frozen=True, kw_only=True):
    """CREATE VIEW."""

    query: str
    columns: tuple[ViewColumn, ...] = ()
    """Empty if the query names the columns."""
    comment: str | None = None
    properties: Mapping[str, str] = {}
    if_not_exists: bool = False
    replace: bool = False


class CreateTemporaryView(ParsedStatement, frozen=True, kw_only=True):
    """CREATE TEMPORARY VIEW over a query."""

    name: str
    query: str
    columns: tuple[ViewColumn, ...] = ()
    replace: bool = False
    is_global: bool = False


class DropView(_OfName, frozen=True):
    """DROP VIEW."""

    if_exists: bool = False


class ShowViews(_Listing, frozen=True):
    """SHOW VIEWS."""


class ViewQuery(TableChange, frozen=True):
    """AS, with the new query of a view."""

    query: str


class AlterView(_OfName, frozen=True):
    """ALTER VIEW with one change."""

    change: ViewQuery | RenameTable | SetProperties | UnsetProperties


class CallStatement(ParsedStatement, frozen=True):
    """CALL of a procedure."""

    procedure: str
    positional: tuple[str, ...] = ()
    """The text of each argument."""
    named: Mapping[str, str] = {}
