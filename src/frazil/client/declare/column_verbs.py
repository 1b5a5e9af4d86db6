"""The methods that change a table's columns, partition fields, sort order and identifier fields.

Each checks its arguments at once, and is built again on fresh metadata if somebody else changed the
same part of the table first. Names are case-sensitive. A column inside another one is named with
dots, such as `place.city`, or as a tuple of names if a name itself has dots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

from frazil.client.declare import column_changes
from frazil.client.declare.column_definitions import (
    column_type,
    default_of_value,
    definition_of,
    definitions_of,
    field_of,
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

R = TypeVar("R")

ColumnName: TypeAlias = str | tuple[str, ...]
Distribution: TypeAlias = Literal["none", "hash", "range"]
Part: TypeAlias = Literal["schema", "partition spec", "sort order"]

_EDITOR: Final = SchemaEditor(case_sensitive=True)


class ColumnVerbs(ABC, Generic[R]):
    """The methods that change the definition of a table; each returns `R`."""

    @abstractmethod
    def _change_part(self, part: Part, build: Callable[[Table], MetadataUpdates]) -> R:
        """Apply updates of one part of the metadata, which are built for the table as it is."""

    # --- columns -------------------------------------------------------------------------------

    def add_column(
        self,
        name: ColumnName,
        type: str,
        *,
        doc: str | None = None,
        default: Value | None = None,
        required: bool = False,
        first: bool = False,
        after: str | None = None,
    ) -> R:
        """Add a column of a type such as `"long"` or `"struct<x: double, y: double>"`.

        Existing rows have the `default`, or null. So a required column needs a default, and
        defaults need format version 3.
        """
        path = _path(name)
        definition = replace(definition_of(type), name=path)
        field = field_of(definition)
        if doc is not None:
            field = replace(field, doc=doc)
        if default is not None:
            field = with_default(field, default_of_value(".".join(path), field.type, default))
        field = replace(field, required=required or field.required)
        return self._add([(path, field, _position(first, after) or definition.position)])

    def add_columns(self, columns: str | Mapping[str, str]) -> R:
        """Add columns, as text or by name: `"size int, note string"`, `{"size": "int"}`."""
        return self._add(
            [(each.name, field_of(each), each.position) for each in definitions_of(columns)]
        )

    def _add(self, columns: list[tuple[Path, NestedField, Position | None]]) -> R:
        return self._edit(lambda table: column_changes.with_columns(table, _EDITOR, columns))

    def rename_column(self, name: ColumnName, new_name: str) -> R:
        """Rename a column; rows, filters on older files and other columns stay as they are."""
        path = _path(name)
        return self._edit(lambda table: _EDITOR.rename(table.schema, path, new_name))

    def drop_column(self, name: ColumnName) -> R:
        """Drop a column; files keep its values, but nothing reads them."""
        path = _path(name)
        return self._edit(lambda table: _EDITOR.drop(table.schema, path))

    def update_column(
        self,
        name: ColumnName,
        *,
        type: str | None = None,
        required: bool | None = None,
        doc: str | None = None,
        default: Value | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> R:
        """Change a column; what is left out stays.

        A type can only be widened: int to long, float to double, and the precision of a decimal.
        `required=False` allows nulls. `default` is for new rows without a value. `first` and
        `after` move the column among its neighbors.
        """
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

        return self._edit(edit)

    def move_column(self, name: ColumnName, *, first: bool = False, after: str | None = None) -> R:
        """Move a column to the first place, or after another one beside it."""
        if _position(first, after) is None:
            raise BadRequest("move_column: give first=True or after='a column'")
        return self.update_column(name, first=first, after=after)

    def set_identifier_fields(self, *names: ColumnName) -> R:
        """Make required columns the ones that identify a row; without names, none do."""
        paths = [_path(name) for name in names]
        return self._change_part(
            "schema", lambda table: column_changes.identifier_fields(table, _EDITOR, paths)
        )

    def _edit(self, edit: Callable[[Table], StructType]) -> R:
        return self._change_part(
            "schema", lambda table: column_changes.changed_schema(table, edit(table))
        )

    # --- partitions and order ------------------------------------------------------------------

    def add_partition_field(self, term: PartitionTerm, *, name: str | None = None) -> R:
        """Partition new files also by a term such as `"day(at)"`; older files stay as they are."""
        return self._change_spec(added=partition_term(term), name=name)

    def drop_partition_field(self, term: PartitionTerm) -> R:
        """Stop partitioning by a term; the field may also be given by its name."""
        return self._change_spec(dropped=partition_term(term))

    def replace_partition_field(
        self, term: PartitionTerm, by: PartitionTerm, *, name: str | None = None
    ) -> R:
        """Partition new files by another term than before."""
        return self._change_spec(dropped=partition_term(term), added=partition_term(by), name=name)

    def _change_spec(self, **change: str | None) -> R:
        return self._change_part(
            "partition spec", lambda table: column_changes.partition_fields(table, **change)
        )

    def set_sort_order(self, *terms: str, distribution: Distribution | None = None) -> R:
        """Sort new files by terms such as `"day(at) desc nulls last"`; without terms, by none.

        `distribution` tells engines such as Spark how to divide rows among their tasks.
        """
        return self._change_part(
            "sort order",
            lambda table: column_changes.write_order(
                table, terms, distribution, option="set_sort_order"
            ),
        )


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
