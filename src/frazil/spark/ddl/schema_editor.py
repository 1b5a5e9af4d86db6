"""A schema with one column more, less or otherwise: ALTER TABLE on the types alone.

Columns are named by paths; in lists and maps they go on through `element`, `key` and `value`. The
rules are those of Java's `SchemaUpdate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from frazil.spark.schema.spark_types import field_with_ids
from frazil.values.types import (
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    DecimalType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
    TypeId,
    child_fields,
)
from frazil.wire.errors import BadRequest

Path: TypeAlias = tuple[str, ...]
Position: TypeAlias = tuple[str, str | None]
"""`("first", None)` or `("after", name)`."""
Fields: TypeAlias = tuple[NestedField, ...]


@dataclass(frozen=True)
class SchemaEditor:
    case_sensitive: bool = False

    def add(
        self,
        schema: StructType,
        path: Path,
        field: NestedField,
        ids: Iterator[int],
        position: Position | None = None,
    ) -> StructType:
        """`field` has no ids yet; its name is the last part of the path."""

        def with_field(fields: Fields) -> Fields:
            if self._find(fields, path[-1]) is not None:
                raise BadRequest(f"column {'.'.join(path)} is there already")
            if field.required and field.initial_default is None:
                raise BadRequest(
                    f"column {'.'.join(path)}: rows that are there already have no value for it, "
                    "so it must not be NOT NULL without a DEFAULT"
                )
            added = (*fields, field_with_ids(field, ids))
            return self._moved(added, len(fields), position, path)

        found = self._in_struct(schema, path[:-1], with_field, path)
        assert isinstance(found, StructType)
        return found

    def drop(self, schema: StructType, path: Path) -> StructType:
        def without(fields: Fields, place: int) -> Fields:
            if len(fields) == 1:
                raise BadRequest(f"column {'.'.join(path)} is the last one: it cannot be dropped")
            return (*fields[:place], *fields[place + 1 :])

        return self._edit(schema, path, without)

    def rename(self, schema: StructType, path: Path, new_name: str) -> StructType:
        def renamed(fields: Fields, place: int) -> Fields:
            other = self._find(fields, new_name)
            if other is not None and other != place:
                raise BadRequest(f"column {'.'.join((*path[:-1], new_name))} is there already")
            return _put(fields, place, replace(fields[place], name=new_name))

        return self._edit(schema, path, renamed)

    def move(self, schema: StructType, path: Path, position: Position) -> StructType:
        return self._edit(
            schema, path, lambda fields, place: self._moved(fields, place, position, path)
        )

    def change(
        self, schema: StructType, path: Path, change: Callable[[NestedField], NestedField]
    ) -> StructType:
        """The column's type, documentation, default or whether it is required."""
        return self._edit(
            schema, path, lambda fields, place: _put(fields, place, change(fields[place]))
        )

    def field(self, schema: StructType, path: Path) -> NestedField | None:
        """The column, if there is one."""
        fields: Fields = schema.fields
        found: NestedField | None = None
        for name in path:
            place = self._find(fields, name)
            if place is None:
                return None
            found = fields[place]
            fields = child_fields(found.type)
        return found

    # --- how --------------------------------------------------------------------------------------

    def _edit(
        self, schema: StructType, path: Path, edit: Callable[[Fields, int], Fields]
    ) -> StructType:
        def edited(fields: Fields) -> Fields:
            return edit(fields, self._place(fields, path[-1], path))

        found = self._in_fields(schema, path[:-1], edited, path)
        assert isinstance(found, StructType)
        return found

    def _in_fields(
        self, type_: Type, parents: Path, edit: Callable[[Fields], Fields], path: Path
    ) -> Type:
        """The type with the fields of one of its parts edited."""
        fields = child_fields(type_)
        if not parents:
            if not fields:
                raise BadRequest(f"column {'.'.join(path)}: {type_} has no fields")
            return _with_fields(type_, edit(fields), path)
        place = self._place(fields, parents[0], path)
        inner = self._in_fields(fields[place].type, parents[1:], edit, path)
        return _with_fields(type_, _put(fields, place, replace(fields[place], type=inner)), path)

    def _in_struct(
        self, type_: Type, parents: Path, edit: Callable[[Fields], Fields], path: Path
    ) -> Type:
        """As above; a list or map at the end stands for the struct inside of it, as in Java."""
        if parents:
            fields = child_fields(type_)
            place = self._place(fields, parents[0], path)
            inner = self._in_struct(fields[place].type, parents[1:], edit, path)
            changed = _put(fields, place, replace(fields[place], type=inner))
            return _with_fields(type_, changed, path)
        if isinstance(type_, StructType):
            return StructType(edit(type_.fields))
        if isinstance(type_, ListType):
            return self._in_struct(type_, ("element",), edit, path)
        if isinstance(type_, MapType):
            return self._in_struct(type_, ("value",), edit, path)
        raise BadRequest(f"column {'.'.join(path)}: {'.'.join(path[:-1])} is a {type_}, no struct")

    def _moved(self, fields: Fields, place: int, position: Position | None, path: Path) -> Fields:
        if position is None:
            return fields
        moved, others = fields[place], (*fields[:place], *fields[place + 1 :])
        where, name = position
        if where == "first":
            return (moved, *others)
        assert name is not None
        after = self._find(others, name)
        if after is None:
            raise BadRequest(f"column {'.'.join(path)}: there is no {name} beside it")
        return (*others[: after + 1], moved, *others[after + 1 :])

    def _place(self, fields: Fields, name: str, path: Path) -> int:
        place = self._find(fields, name)
        if place is None:
            known = ", ".join(field.name for field in fields) or "none"
            raise BadRequest(f"there is no column {'.'.join(path)}: no {name} among {known}")
        return place

    def _find(self, fields: Fields, name: str) -> int | None:
        exact = [place for place, field in enumerate(fields) if field.name == name]
        if exact or self.case_sensitive:
            return exact[0] if exact else None
        wanted = name.lower()
        alike = [place for place, field in enumerate(fields) if field.name.lower() == wanted]
        if len(alike) > 1:
            raise BadRequest(f"column {name} is ambiguous: write it as the table does")
        return alike[0] if alike else None


def promoted(field: NestedField, to: Type, path: Path) -> NestedField:
    """The column with a wider type (spec, "Schema evolution"); Spark's texts cannot say uuid or
    fixed, so that a type which reads the same stays."""
    if field.type == to:
        return field
    if not _is_promotion(field.type, to):
        raise BadRequest(
            f"column {'.'.join(path)}: {field.type} cannot become {to}; Iceberg widens int to "
            "long, float to double, and the precision of a decimal"
        )
    return replace(field, type=to)


def _is_promotion(old: Type, new: Type) -> bool:
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    if old.type_id is TypeId.UNKNOWN:
        return not new.is_nested
    return (old, new) in ((INT, LONG), (FLOAT, DOUBLE))


def _put(fields: Fields, place: int, field: NestedField) -> Fields:
    return (*fields[:place], field, *fields[place + 1 :])


def _with_fields(type_: Type, fields: Fields, path: Path) -> Type:
    if isinstance(type_, StructType):
        return StructType(fields)
    names = tuple(field.name for field in fields)
    if names != tuple(field.name for field in child_fields(type_)):
        raise BadRequest(f"column {'.'.join(path)}: the parts of a list or map stay as they are")
    if isinstance(type_, ListType):
        return ListType(fields[0])
    if fields[0].type != child_fields(type_)[0].type:
        raise BadRequest(f"column {'.'.join(path)}: the key of a map stays as it is")
    return MapType(fields[0], fields[1])
