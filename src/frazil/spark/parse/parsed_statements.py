"""Parsed statements: what the parser returns and what `sql.dispatch` runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from frazil.client.declare.column_definitions import ColumnDefinition
from frazil.spark.parse.sql_tokens import Name

Assignments: TypeAlias = tuple[tuple[Name, str], ...]
"""Columns and the texts of the expressions assigned to them."""


# --- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryStatement:
    """A query; Spark runs it."""

    text: str


@dataclass(frozen=True, kw_only=True)
class InsertStatement:
    """INSERT INTO, INSERT OVERWRITE or INSERT INTO … REPLACE WHERE."""

    target: Name
    query: str
    columns: tuple[str, ...] = ()
    by_name: bool = False
    overwrite: bool = False
    partition: tuple[tuple[str, str | None], ...] = ()
    """The columns of PARTITION (…), with the text of a value if there is one."""
    replace_where: str | None = None
    merge_schema: bool = False


@dataclass(frozen=True)
class DeleteStatement:
    """DELETE FROM."""

    target: Name
    alias: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class UpdateStatement:
    """UPDATE."""

    target: Name
    assignments: Assignments
    alias: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class MergeClause:
    """A WHEN clause of a MERGE."""

    kind: str
    """`matched`, `not matched` or `not matched by source`."""
    action: str
    """`update`, `delete` or `insert`."""
    condition: str | None = None
    assignments: Assignments | None = None
    """None if all columns are assigned by name, and for DELETE."""


@dataclass(frozen=True)
class MergeStatement:
    """MERGE INTO."""

    target: Name
    source: str
    """The text after USING: a table or a query in parentheses, with its alias."""
    source_alias: str
    on: str
    clauses: tuple[MergeClause, ...]
    alias: str | None = None
    merge_schema: bool = False


@dataclass(frozen=True)
class TruncateStatement:
    """TRUNCATE TABLE."""

    target: Name


# --- definitions --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CreateTable:
    """CREATE TABLE or REPLACE TABLE, perhaps with AS SELECT."""

    name: Name
    columns: tuple[ColumnDefinition, ...] = ()
    query: str | None = None
    partitioned_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    replace: bool = False
    create: bool = True
    """False for REPLACE TABLE, which fails if the table does not exist."""


@dataclass(frozen=True)
class DropTable:
    """DROP TABLE."""

    name: Name
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True)
class CreateNamespace:
    """CREATE NAMESPACE."""

    name: Name
    if_not_exists: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DropNamespace:
    """DROP NAMESPACE."""

    name: Name
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class AlterNamespace:
    """ALTER NAMESPACE … SET or UNSET."""

    name: Name
    updates: Mapping[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()


@dataclass(frozen=True)
class UseStatement:
    """USE, with the name of a namespace."""

    name: Name


@dataclass(frozen=True)
class ShowTables:
    """SHOW TABLES."""

    namespace: Name | None = None
    pattern: str | None = None
    extended: bool = False
    """Whether it is SHOW TABLE EXTENDED, which also describes each table."""


@dataclass(frozen=True)
class ShowNamespaces:
    """SHOW NAMESPACES."""

    parent: Name | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class ShowProperties:
    """SHOW TBLPROPERTIES."""

    name: Name
    key: str | None = None


@dataclass(frozen=True)
class ShowCreateTable:
    """SHOW CREATE TABLE."""

    name: Name


@dataclass(frozen=True)
class DescribeTable:
    """DESCRIBE TABLE."""

    name: Name
    extended: bool = False


@dataclass(frozen=True)
class DescribeColumn:
    """DESCRIBE TABLE with a column."""

    name: Name
    column: Name


@dataclass(frozen=True)
class ShowColumns:
    """SHOW COLUMNS."""

    name: Name


@dataclass(frozen=True)
class ShowCurrentNamespace:
    """SHOW CURRENT NAMESPACE."""


@dataclass(frozen=True)
class CommentOn:
    """COMMENT ON TABLE or NAMESPACE."""

    kind: str
    """`table` or `namespace`."""
    name: Name
    comment: str


@dataclass(frozen=True)
class TableCommand:
    """A statement about how Spark stores or caches a table, such as ANALYZE TABLE."""

    command: str
    name: Name


@dataclass(frozen=True)
class SparkStatement:
    """A statement that Spark runs unchanged."""

    text: str


@dataclass(frozen=True)
class DescribeNamespace:
    """DESCRIBE NAMESPACE."""

    name: Name


# --- ALTER TABLE --------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddColumns:
    """ADD COLUMNS."""

    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True)
class DropColumns:
    """DROP COLUMNS."""

    columns: tuple[Name, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    """RENAME COLUMN."""

    column: Name
    new_name: str


@dataclass(frozen=True)
class AlterColumn:
    """ALTER COLUMN or CHANGE COLUMN; what is None does not change."""

    column: Name
    type: str | None = None
    comment: str | None = None
    required: bool | None = None
    position: tuple[str, str | None] | None = None
    default: str | None = None
    drop_default: bool = False


@dataclass(frozen=True)
class SetProperties:
    """SET TBLPROPERTIES."""

    properties: Mapping[str, str]


@dataclass(frozen=True)
class UnsetProperties:
    """UNSET TBLPROPERTIES, with or without IF EXISTS."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class SetLocation:
    """SET LOCATION."""

    location: str


@dataclass(frozen=True)
class RenameTable:
    """RENAME TO."""

    new_name: Name


@dataclass(frozen=True)
class PartitionChange:
    """ADD, DROP or REPLACE PARTITION FIELD."""

    dropped: str | None = None
    """A column, a transform of a column, or the name of the partition field."""
    added: str | None = None
    """A column or a transform of a column."""
    name: str | None = None
    """The name of the added field."""


@dataclass(frozen=True)
class WriteOrder:
    """WRITE ORDERED BY, DISTRIBUTED BY or UNORDERED."""

    ordered_by: tuple[str, ...] = ()
    distribution: str | None = None
    """`hash`, `range` or `none`; None leaves the table's mode unchanged."""


@dataclass(frozen=True)
class IdentifierFields:
    """SET or DROP IDENTIFIER FIELDS."""

    columns: tuple[Name, ...]
    drop: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateRef:
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


@dataclass(frozen=True)
class DropRef:
    """DROP BRANCH or TAG."""

    kind: str
    name: str
    if_exists: bool = False


SchemaChange: TypeAlias = AddColumns | DropColumns | RenameColumn | AlterColumn
MetadataChange: TypeAlias = (
    SchemaChange
    | PartitionChange
    | WriteOrder
    | SetProperties
    | UnsetProperties
    | SetLocation
    | IdentifierFields
    | CreateRef
    | DropRef
)
TableChange: TypeAlias = MetadataChange | RenameTable


@dataclass(frozen=True)
class AlterTable:
    """ALTER TABLE with one change."""

    name: Name
    change: TableChange


# --- views --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ViewColumn:
    """A column in the list after the name of a view."""

    name: str
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class CreateView:
    """CREATE VIEW."""

    name: Name
    query: str
    columns: tuple[ViewColumn, ...] = ()
    """Empty if the query names the columns."""
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateTemporaryView:
    """CREATE TEMPORARY VIEW over a query."""

    name: str
    query: str
    columns: tuple[ViewColumn, ...] = ()
    replace: bool = False
    is_global: bool = False


@dataclass(frozen=True)
class DropView:
    """DROP VIEW."""

    name: Name
    if_exists: bool = False


@dataclass(frozen=True)
class ShowViews:
    """SHOW VIEWS."""

    namespace: Name | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class ViewQuery:
    """AS, with the new query of a view."""

    query: str


@dataclass(frozen=True)
class UnsetViewProperties:
    """UNSET TBLPROPERTIES of a view."""

    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class AlterView:
    """ALTER VIEW with one change."""

    name: Name
    change: ViewQuery | RenameTable | SetProperties | UnsetViewProperties


@dataclass(frozen=True)
class CallStatement:
    """CALL of a procedure."""

    procedure: str
    positional: tuple[str, ...] = ()
    """The text of each argument."""
    named: Mapping[str, str] = field(default_factory=dict)


ParsedStatement: TypeAlias = (
    QueryStatement
    | InsertStatement
    | DeleteStatement
    | UpdateStatement
    | MergeStatement
    | TruncateStatement
    | CreateTable
    | DropTable
    | CreateNamespace
    | DropNamespace
    | AlterNamespace
    | AlterTable
    | UseStatement
    | ShowTables
    | ShowNamespaces
    | ShowProperties
    | ShowCreateTable
    | DescribeTable
    | DescribeNamespace
    | DescribeColumn
    | ShowColumns
    | ShowCurrentNamespace
    | CommentOn
    | TableCommand
    | SparkStatement
    | CreateView
    | CreateTemporaryView
    | DropView
    | ShowViews
    | AlterView
    | CallStatement
)
