"""Edit the schema of a table: add, drop, rename, move and change columns.

A column is named by its path, which goes through `element`, `key` and `value` in lists and maps.
The rules are those of Java's `SchemaUpdate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from frazil.values import types
from frazil.values.field_ids import fresh_ids, with_ids
from frazil.wire.errors import BadRequest
from frazil.wire.near_names import no_column

Path: TypeAlias = tuple[str, ...]
Position: TypeAlias = tuple[str, str | None]
"""`("first", None)` or `("after", name)`."""
Fields: TypeAlias = tuple[types.NestedField, ...]


@dataclass(frozen=True)
class SchemaEditor:
    """Returns schemas with one column added, dropped, renamed, moved or changed."""

    case_sensitive: bool = False

    def add(
        self,
        schema: types.StructType,
        path: Path,
        field: types.NestedField,
        ids: Iterator[int],
        position: Position | None = None,
    ) -> types.StructType:
        """Add a column without IDs, whose name is the last part of the path."""

        def with_field(parent: types.Type) -> types.Type:
            # Like Java, take a list or map as the struct inside it.
            if isinstance(parent, types.ListType):
                return self._replaced(parent, ("element",), with_field, path)
            if isinstance(parent, types.MapType):
                return self._replaced(parent, ("value",), with_field, path)
            if not isinstance(parent, types.StructType):
                raise BadRequest(
                    f"column {'.'.join(path)}: {'.'.join(path[:-1])} is a {parent}, no struct"
                )
            if self._find(parent.fields, path[-1]) is not None:
                raise BadRequest(f"column {'.'.join(path)} is there already")
            if field.required and field.initial_default is None:
                raise BadRequest(
                    f"column {'.'.join(path)}: rows that are there already have no value for it, "
                    "so it must not be NOT NULL without a DEFAULT"
                )
            id_of = fresh_ids(ids)
            new = replace(field, field_id=id_of(field.name), type=with_ids(field.type, id_of))
            fields = (*parent.fields, new)
            if position is not None:
                fields = self._moved(fields, len(parent.fields), position, path)
            return types.StructType(fields)

        edited = self._replaced(schema, path[:-1], with_field, path)
        assert isinstance(edited, types.StructType)
        return edited

    def drop(self, schema: types.StructType, path: Path) -> types.StructType:
        """Drop a column."""

        def without(fields: Fields, index: int) -> Fields:
            if len(fields) == 1:
                raise BadRequest(f"column {'.'.join(path)} is the last one: it cannot be dropped")
            return (*fields[:index], *fields[index + 1 :])

        return self._edit(schema, path, without)

    def rename(self, schema: types.StructType, path: Path, new_name: str) -> types.StructType:
        """Rename a column."""

        def renamed(fields: Fields, index: int) -> Fields:
            other = self._find(fields, new_name)
            if other is not None and other != index:
                raise BadRequest(f"column {'.'.join((*path[:-1], new_name))} is there already")
            return _put(fields, index, replace(fields[index], name=new_name))

        return self._edit(schema, path, renamed)

    def move(self, schema: types.StructType, path: Path, position: Position) -> types.StructType:
        """Move a column to the first position or after another one."""
        return self._edit(
            schema, path, lambda fields, index: self._moved(fields, index, position, path)
        )

    def change(
        self,
        schema: types.StructType,
        path: Path,
        change: Callable[[types.NestedField], types.NestedField],
    ) -> types.StructType:
        """Change a column's type, doc, default or whether it is required."""
        return self._edit(
            schema, path, lambda fields, index: _put(fields, index, change(fields[index]))
        )

    def field(self, schema: types.StructType, path: Path) -> types.NestedField | None:
        """Return the column of a path; None if there is none."""
        fields: Fields = schema.fields
        field: types.NestedField | None = None
        for name in path:
            index = self._find(fields, name)
            if index is None:
                return None
            field = fields[index]
            fields = types.child_fields(field.type)
        return field

    def _edit(
        self, schema: types.StructType, path: Path, edit: Callable[[Fields, int], Fields]
    ) -> types.StructType:
        def edited(parent: types.Type) -> types.Type:
            fields = types.child_fields(parent)
            if not fields:
                raise BadRequest(f"column {'.'.join(path)}: {parent} has no fields")
            return _with_fields(parent, edit(fields, self._index(fields, path[-1], path)), path)

        struct = self._replaced(schema, path[:-1], edited, path)
        assert isinstance(struct, types.StructType)
        return struct

    def _replaced(
        self,
        type_: types.Type,
        parents: Path,
        edit: Callable[[types.Type], types.Type],
        path: Path,
    ) -> types.Type:
        """Return a type with the part of it replaced that `parents` names."""
        if not parents:
            return edit(type_)
        fields = types.child_fields(type_)
        index = self._index(fields, parents[0], path)
        inner = self._replaced(fields[index].type, parents[1:], edit, path)
        return _with_fields(type_, _put(fields, index, replace(fields[index], type=inner)), path)

    def _moved(self, fields: Fields, index: int, position: Position, path: Path) -> Fields:
        moved, others = fields[index], (*fields[:index], *fields[index + 1 :])
        kind, name = position
        if kind == "first":
            return (moved, *others)
        assert name is not None
        after = self._find(others, name)
        if after is None:
            names = [field.name for field in others]
            raise BadRequest(f"column {'.'.join(path)}: beside it {no_column(name, names)}")
        return (*others[: after + 1], moved, *others[after + 1 :])

    def _index(self, fields: Fields, name: str, path: Path) -> int:
        index = self._find(fields, name)
        if index is None:
            # The columns beside it, by their whole paths.
            beside = [".".join((*path[: path.index(name)], field.name)) for field in fields]
            raise BadRequest(no_column(".".join(path), beside))
        return index

    def _find(self, fields: Fields, name: str) -> int | None:
        exact = [index for index, field in enumerate(fields) if field.name == name]
        if exact or self.case_sensitive:
            return exact[0] if exact else None
        wanted = name.lower()
        alike = [index for index, field in enumerate(fields) if field.name.lower() == wanted]
        if len(alike) > 1:
            raise BadRequest(f"column {name} is ambiguous: write it as the table does")
        return alike[0] if alike else None


def promoted(field: types.NestedField, to: types.Type, path: Path) -> types.NestedField:
    """Return the column with a wider type (spec, "Schema evolution")."""
    if field.type == to:
        return field
    if not _is_promotion(field.type, to):
        raise BadRequest(
            f"column {'.'.join(path)}: {field.type} cannot become {to}; Iceberg widens int to "
            "long, float to double, and the precision of a decimal"
        )
    return replace(field, type=to)


def _is_promotion(old: types.Type, new: types.Type) -> bool:
    if isinstance(old, types.DecimalType) and isinstance(new, types.DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    if old.type_id is types.TypeId.UNKNOWN:
        return not new.is_nested
    return (old, new) in ((types.INT, types.LONG), (types.FLOAT, types.DOUBLE))


def _put(fields: Fields, index: int, field: types.NestedField) -> Fields:
    return (*fields[:index], field, *fields[index + 1 :])


def _with_fields(type_: types.Type, fields: Fields, path: Path) -> types.Type:
    if isinstance(type_, types.StructType):
        return types.StructType(fields)
    names = tuple(field.name for field in fields)
    if names != tuple(field.name for field in types.child_fields(type_)):
        raise BadRequest(f"column {'.'.join(path)}: the parts of a list or map cannot change")
    if isinstance(type_, types.ListType):
        return types.ListType(fields[0])
    if fields[0].type != types.child_fields(type_)[0].type:
        raise BadRequest(f"column {'.'.join(path)}: the key of a map cannot change")
    return types.MapType(fields[0], fields[1])
