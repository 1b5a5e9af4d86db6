"""What a statement asks for: the forms that parsing gives and dispatch carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from frazil.spark.parse.sql_tokens import Name

Assignments: TypeAlias = tuple[tuple[Name, str], ...]
"""Columns and the text of what they are set to."""


# --- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryStatement:
    text: str


@dataclass(frozen=True, kw_only=True)
class InsertStatement:
    target: Name
    query: str
    columns: tuple[str, ...] = ()
    by_name: bool = False
    overwrite: bool = False
    partition: tuple[tuple[str, str | None], ...] = ()
    """Of PARTITION (…): columns, and the text of their values where they have one."""
    replace_where: str | None = None
    merge_schema: bool = False


@dataclass(frozen=True)
class DeleteStatement:
    target: Name
    alias: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class UpdateStatement:
    target: Name
    assignments: Assignments
    alias: str | None = None
    where: str | None = None


@dataclass(frozen=True)
class MergeClause:
    kind: str
    """`matched`, `not matched` or `not matched by source`."""
    action: str
    """`update`, `delete` or `insert`."""
    condition: str | None = None
    assignments: Assignments | None = None
    """None for all columns by name, and for DELETE."""


@dataclass(frozen=True)
class MergeStatement:
    target: Name
    source: str
    """A table's name or a query in parentheses, with its alias, as it stands behind USING."""
    source_alias: str
    on: str
    clauses: tuple[MergeClause, ...]
    alias: str | None = None
    merge_schema: bool = False


@dataclass(frozen=True)
class TruncateStatement:
    target: Name


# --- definitions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnDefinition:
    name: Name
    type: str
    """Its text."""
    required: bool = False
    comment: str | None = None
    default: str | None = None
    position: tuple[str, str | None] | None = None
    """`("first", None)` or `("after", name)`."""


@dataclass(frozen=True, kw_only=True)
class CreateTable:
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
    """False: REPLACE TABLE, which must be there already."""


@dataclass(frozen=True)
class DropTable:
    name: Name
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True)
class CreateNamespace:
    name: Name
    if_not_exists: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DropNamespace:
    name: Name
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class AlterNamespace:
    name: Name
    updates: Mapping[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()


@dataclass(frozen=True)
class UseStatement:
    name: Name


@dataclass(frozen=True)
class ShowTables:
    namespace: Name | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class ShowNamespaces:
    parent: Name | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class ShowProperties:
    name: Name
    key: str | None = None


@dataclass(frozen=True)
class ShowCreateTable:
    name: Name


@dataclass(frozen=True)
class DescribeTable:
    name: Name
    extended: bool = False


@dataclass(frozen=True)
class DescribeNamespace:
    name: Name


# --- ALTER TABLE --------------------------------------------------------------------------------


@dataclass(frozen=True)
class AddColumns:
    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True)
class DropColumns:
    columns: tuple[Name, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    column: Name
    new_name: str


@dataclass(frozen=True)
class AlterColumn:
    """One change or several of one column; what is None stays as it is."""

    column: Name
    type: str | None = None
    comment: str | None = None
    required: bool | None = None
    position: tuple[str, str | None] | None = None
    default: str | None = None
    drop_default: bool = False


@dataclass(frozen=True)
class SetProperties:
    properties: Mapping[str, str]


@dataclass(frozen=True)
class UnsetProperties:
    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class SetLocation:
    location: str


@dataclass(frozen=True)
class RenameTable:
    new_name: Name


@dataclass(frozen=True)
class AddPartitionField:
    term: str
    name: str | None = None


@dataclass(frozen=True)
class DropPartitionField:
    term: str
    """A transform of a column, or the field's own name."""


@dataclass(frozen=True)
class ReplacePartitionField:
    old: str
    term: str
    name: str | None = None


@dataclass(frozen=True)
class WriteOrder:
    ordered_by: tuple[str, ...] = ()
    distribution: str | None = None
    """`hash`, `range` or `none`; None leaves it as it is."""


@dataclass(frozen=True)
class SetIdentifierFields:
    columns: tuple[Name, ...]


@dataclass(frozen=True)
class DropIdentifierFields:
    columns: tuple[Name, ...]


@dataclass(frozen=True, kw_only=True)
class CreateRef:
    kind: str
    """`branch` or `tag`."""
    name: str
    snapshot_id: int | None = None
    if_not_exists: bool = False
    replace: bool = False
    create: bool = True
    """False: REPLACE, which must be there already."""
    max_ref_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None


@dataclass(frozen=True)
class DropRef:
    kind: str
    name: str
    if_exists: bool = False


SchemaChange: TypeAlias = AddColumns | DropColumns | RenameColumn | AlterColumn
PartitionChange: TypeAlias = AddPartitionField | DropPartitionField | ReplacePartitionField
MetadataChange: TypeAlias = (
    SchemaChange
    | PartitionChange
    | WriteOrder
    | SetProperties
    | UnsetProperties
    | SetLocation
    | SetIdentifierFields
    | DropIdentifierFields
    | CreateRef
    | DropRef
)
TableChange: TypeAlias = MetadataChange | RenameTable


@dataclass(frozen=True)
class AlterTable:
    name: Name
    change: TableChange


@dataclass(frozen=True)
class CallStatement:
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
    | CallStatement
)
