"""Builds the changes of a table's definition that the client's methods make.

Each function checks its arguments at once and returns what builds the updates for a table as it is,
again if somebody else was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from frazil.client.declare import column_changes
from frazil.client.declare.column_definitions import (
    column_type,
    default_of_value,
    definition_of,
    field_of,
    parse_columns,
    with_default,
)
from frazil.client.declare.metadata_updates import MetadataUpdates
from frazil.client.declare.schema_editor import Path, Position, SchemaEditor
from frazil.client.declare.table_definition import PartitionTerm, partition_term
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest
from frazil.wire.filter_builders import Value

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table
    from frazil.client.declare.column_verbs import ColumnName

Build: TypeAlias = "Callable[[Table], MetadataUpdates]"

_EDITOR: Final = SchemaEditor(case_sensitive=True)


def add_column(
    name: ColumnName,
    type: str,
    *,
    doc: str | None,
    default: Value | None,
    required: bool,
    first: bool,
    after: str | None,
) -> Build:
    path = _path(name)
    definition = replace(definition_of(type), name=path)
    field = field_of(definition)
    if doc is not None:
        field = replace(field, doc=doc)
    if default is not None:
        field = with_default(field, default_of_value(".".join(path), field.type, default))
    field = replace(field, required=required or field.required)
    position = _position(first, after) or definition.position
    return _edited(
        lambda table: column_changes.with_columns(table, _EDITOR, [(path, field, position)])
    )


def add_columns(columns: str | Mapping[str, str]) -> Build:
    if isinstance(columns, str):
        definitions = parse_columns(columns)
    else:
        definitions = tuple(
            replace(definition_of(text), name=(name,)) for name, text in columns.items()
        )
    added = [(each.name, field_of(each), each.position) for each in definitions]
    return _edited(lambda table: column_changes.with_columns(table, _EDITOR, added))


def rename_column(name: ColumnName, new_name: str) -> Build:
    path = _path(name)
    return _edited(lambda table: _EDITOR.rename(table.schema, path, new_name))


def drop_column(name: ColumnName) -> Build:
    path = _path(name)
    return _edited(lambda table: _EDITOR.drop(table.schema, path))


def update_column(
    name: ColumnName,
    *,
    type: str | None = None,
    required: bool | None = None,
    doc: str | None = None,
    default: Value | None = None,
    first: bool = False,
    after: str | None = None,
) -> Build:
    path = _path(name)
    new_type = None if type is None else column_type(type)
    position = _position(first, after)
    if all(option is None for option in (new_type, required, doc, default, position)):
        raise BadRequest(f"column {'.'.join(path)}: there is nothing to change")

    def edit(table: Table) -> StructType:
        def change(field: NestedField) -> NestedField:
            field = column_changes.with_type(field, new_type, path)
            if doc is not None:
                field = replace(field, doc=doc)
            if default is not None:
                value = default_of_value(".".join(path), field.type, default)
                field = replace(field, write_default=value)
            return column_changes.with_requirement(table, field, required, path)

        return column_changes.altered_schema(table, _EDITOR, path, change, position)

    return _edited(edit)


def move_column(name: ColumnName, first: bool, after: str | None) -> Build:
    if _position(first, after) is None:
        raise BadRequest("move_column: give first=True or after='a column'")
    return update_column(name, first=first, after=after)


def set_identifier_fields(names: Sequence[ColumnName]) -> Build:
    paths = [_path(name) for name in names]
    return lambda table: column_changes.identifier_fields(table, _EDITOR, paths)


def change_partition_fields(
    *,
    dropped: PartitionTerm | None = None,
    added: PartitionTerm | None = None,
    name: str | None = None,
) -> Build:
    old = None if dropped is None else partition_term(dropped)
    new = None if added is None else partition_term(added)
    return lambda table: column_changes.partition_fields(table, dropped=old, added=new, name=name)


def set_sort_order(terms: Sequence[str], distribution: str | None) -> Build:
    return lambda table: column_changes.write_order(
        table, terms, distribution, option="set_sort_order"
    )


def _edited(edit: Callable[[Table], StructType]) -> Build:
    return lambda table: column_changes.changed_schema(table, edit(table))


def _path(name: ColumnName) -> Path:
    path = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    if not path or not all(isinstance(part, str) and part for part in path):
        raise BadRequest(f"column {name!r}: give a name such as 'place.city' or ('place', 'city')")
    return path


def _position(first: bool, after: str | None) -> Position | None:
    if first and after is not None:
        raise BadRequest("first and after: give one of them")
    if first:
        return ("first", None)
    return None if after is None else ("after", after)
