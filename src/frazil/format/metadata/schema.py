"""Schemas: read, checked and compared as Java's `Schema`, kept as the JSON they came as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, Final

import msgspec

from frazil.format.metadata import json_object
from frazil.values.type_json import parse_struct
from frazil.values.types import (
    DEFAULT_VALUES_MIN_FORMAT_VERSION,
    InvalidType,
    NestedField,
    StructType,
    Type,
    TypeId,
    child_fields,
    min_format_version,
)
from frazil.wire.errors import BadRequest

INITIAL_SCHEMA_ID: Final = 0

_MAX_CACHED_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class Schema:
    """One schema of a table or view; equal when its JSON is equal."""

    raw: bytes
    """The compact JSON, always with a `schema-id`, as it will be written again."""
    schema_id: int
    struct: StructType = field(compare=False, repr=False)
    identifier_field_ids: tuple[int, ...] = field(compare=False)

    @cached_property
    def _index(self) -> _Index:
        return _Index.of(self.struct)

    @cached_property
    def highest_field_id(self) -> int:
        """The largest field id, nested ones included; 0 when there are no fields."""
        return max(self._index.by_id, default=0)

    @property
    def fields_by_id(self) -> Mapping[int, NestedField]:
        return self._index.by_id

    @property
    def parent_ids(self) -> Mapping[int, int]:
        """Field id to the id of the field it is nested in; top-level fields are not there."""
        return self._index.parents

    @property
    def full_names(self) -> Mapping[int, str]:
        """Field id to dotted name, with `element`, `key` and `value` as parts."""
        return self._index.names

    def find_field(self, field_id: int) -> NestedField | None:
        return self._index.by_id.get(field_id)

    def find_type(self, field_id: int) -> Type | None:
        found = self._index.by_id.get(field_id)
        return None if found is None else found.type

    def find_by_name(self, name: str, case_sensitive: bool = True) -> NestedField | None:
        """The field of a dotted name; `list.x` also finds `list.element.x`, as in Java."""
        if case_sensitive:
            field_id = self._index.by_name.get(name)
            return None if field_id is None else self._index.by_id[field_id]
        found = self._lowered_names.get(name.lower(), frozenset())
        if len(found) > 1:
            raise BadRequest(f"column name {name!r} is ambiguous when case does not matter")
        return next((self._index.by_id[field_id] for field_id in found), None)

    @cached_property
    def _lowered_names(self) -> Mapping[str, frozenset[int]]:
        lowered: dict[str, frozenset[int]] = {}
        for name, field_id in self._index.by_name.items():
            key = name.lower()
            lowered[key] = lowered.get(key, frozenset()) | {field_id}
        return lowered


@dataclass(frozen=True, slots=True)
class _Index:
    """Every field of a struct by id, by name and by parent; built once, refusing duplicates."""

    by_id: dict[int, NestedField] = field(default_factory=dict)
    by_name: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, struct: StructType) -> _Index:
        index = cls()
        short_names: dict[str, int] = {}
        index._add_children(struct, None, "", "", short_names)
        for name, field_id in short_names.items():
            index.by_name.setdefault(name, field_id)
        return index

    def _add_children(
        self,
        type_: Type,
        parent: int | None,
        prefix: str,
        short_prefix: str,
        short_names: dict[str, int],
    ) -> None:
        in_struct = type_.type_id is TypeId.STRUCT
        for child in child_fields(type_):
            name = f"{prefix}{child.name}"
            short_name = f"{short_prefix}{child.name}"
            self._add(child, name, parent)
            short_names.setdefault(short_name, child.field_id)
            # Java's IndexByName leaves `element` and `value` out of the short name of a struct
            # inside a list or map, so that users can write locations.latitude.
            skipped = not in_struct and child.name != "key" and _is_struct(child.type)
            deeper = short_prefix if skipped else f"{short_name}."
            self._add_children(child.type, child.field_id, f"{name}.", deeper, short_names)

    def _add(self, child: NestedField, name: str, parent: int | None) -> None:
        taken = self.names.get(child.field_id)
        if taken is not None:
            raise BadRequest(
                f"Invalid schema: field id {child.field_id} is used by both {taken} and {name}"
            )
        if name in self.by_name:
            raise BadRequest(
                f"Invalid schema: multiple fields for name {name}: "
                f"{self.by_name[name]} and {child.field_id}"
            )
        self.by_id[child.field_id] = child
        self.by_name[name] = child.field_id
        self.names[child.field_id] = name
        if parent is not None:
            self.parents[child.field_id] = parent


def _is_struct(type_: Type) -> bool:
    return type_.type_id is TypeId.STRUCT


def parse_schema(raw: bytes | msgspec.Raw) -> Schema:
    """Reads and checks a schema; a missing `schema-id` is 0, as in Java."""
    text = bytes(raw)
    return _parse_once(text) if len(text) <= _MAX_CACHED_BYTES else _parse(text)


def _parse(raw: bytes) -> Schema:
    return _from_json(json_object.decode_object(raw, "schema"))


# Schemas are immutable, and the same bytes come again with many commits and loads. The bounds keep
# the parsed ones, about ten times their bytes, small beside the metadata caches.
_parse_once = lru_cache(maxsize=256)(_parse)


def _from_json(value: dict[str, Any]) -> Schema:
    if value.get("type") != "struct":
        raise BadRequest("schema: 'type' must be \"struct\"")
    try:
        struct = parse_struct(value, "schema")
    except InvalidType as error:
        raise BadRequest(f"Invalid schema: {error}") from None
    schema_id = json_object.get_int(value, "schema-id", "schema", INITIAL_SCHEMA_ID)
    identifiers = tuple(
        dict.fromkeys(json_object.get_ints(value, "identifier-field-ids", "schema"))
    )
    value = _with_schema_id(value, schema_id)
    _drop_nulls(value)
    schema = Schema(json_object.encode(value), schema_id, struct, identifiers)
    for field_id in identifiers:
        _check_identifier_field(schema, field_id)
    # Touching the index finds duplicate ids and names even where there are no identifier fields.
    _ = schema.fields_by_id
    return schema


def _with_schema_id(value: dict[str, Any], schema_id: int) -> dict[str, Any]:
    if value.get("schema-id") == schema_id:
        return value
    return {"type": "struct", "schema-id": schema_id} | {
        key: item for key, item in value.items() if key != "schema-id"
    }


def _drop_nulls(value: object) -> None:
    """Takes out optional members that are null: other readers accept only their absence."""
    if isinstance(value, list):
        for item in value:
            _drop_nulls(item)
    elif isinstance(value, dict):
        for key in _NOT_NULL.intersection(value):
            if value[key] is None:
                del value[key]
        for key in _TYPE_MEMBERS.intersection(value):
            _drop_nulls(value[key])


_NOT_NULL: Final = frozenset({"identifier-field-ids", "doc", "initial-default", "write-default"})
_TYPE_MEMBERS: Final = frozenset({"fields", "type", "element", "key", "value"})


def _check_identifier_field(schema: Schema, field_id: int) -> None:
    """The rules of Java's `Schema.validateIdentifierField`."""
    found = schema.find_field(field_id)
    if found is None:
        raise BadRequest(
            f"Cannot add field id {field_id} as an identifier field: field does not exist"
        )
    problem = _identifier_problem(schema, found)
    if problem is not None:
        raise BadRequest(f"Cannot add field {found.name} as an identifier field: {problem}")


def _identifier_problem(schema: Schema, found: NestedField) -> str | None:
    if not found.type.is_primitive:
        return "not a primitive type field"
    if not found.required:
        return "not a required field"
    if found.type.type_id in (TypeId.FLOAT, TypeId.DOUBLE):
        return "must not be float or double field"
    for ancestor in _ancestors(schema, found.field_id):
        if not _is_struct(ancestor.type):
            return f"must not be nested in {ancestor}"
        if not ancestor.required:
            return f"must not be nested in an optional field {ancestor}"
    return None


def _ancestors(schema: Schema, field_id: int) -> list[NestedField]:
    """The fields that a field is nested in, outermost first."""
    found: list[NestedField] = []
    parent = schema.parent_ids.get(field_id)
    while parent is not None:
        found.append(schema.fields_by_id[parent])
        parent = schema.parent_ids.get(parent)
    return found[::-1]


def is_nested_in_list_or_map(schema: Schema, field_id: int) -> bool:
    return any(not _is_struct(ancestor.type) for ancestor in _ancestors(schema, field_id))


def same_schema(one: Schema, other: Schema) -> bool:
    """Whether two schemas differ in nothing but their id, as Java's `Schema.sameSchema`.

    Docs and default values count; fields that we do not know do not.
    """
    return one.struct == other.struct and set(one.identifier_field_ids) == set(
        other.identifier_field_ids
    )


def with_schema_id(schema: Schema, schema_id: int) -> Schema:
    if schema.schema_id == schema_id:
        return schema
    raw = json_object.with_field(schema.raw, "schema-id", schema_id)
    return Schema(raw, schema_id, schema.struct, schema.identifier_field_ids)


def check_schema_for_version(schema: Schema, format_version: int) -> None:
    """Refuses types and defaults that a format version does not have yet, all of them at once.

    Mirrors Java's `Schema.checkCompatibility`: only a non-null initial default counts.
    """
    problems = []
    for field_id, found in sorted(schema.fields_by_id.items()):
        name = schema.full_names[field_id]
        since = min_format_version(found.type)
        if format_version < since:
            problems.append(
                f"Invalid type for {name}: {found.type} is not supported until v{since}"
            )
        if found.initial_default is not None and format_version < DEFAULT_VALUES_MIN_FORMAT_VERSION:
            problems.append(
                f"Invalid initial default for {name}: a non-null default is not supported "
                f"until v{DEFAULT_VALUES_MIN_FORMAT_VERSION}"
            )
    if problems:
        raise BadRequest(f"Invalid schema for v{format_version}:\n- " + "\n- ".join(problems))


def assign_fresh_ids(schema: Schema | bytes | msgspec.Raw) -> tuple[Schema, dict[int, int]]:
    """The schema of a new table: schema id 0 and field ids from 1, with old to new ids.

    The order is the one of Java's `AssignFreshIds`: all fields of a struct, then what is inside
    them, field by field; for a map the key, the value, then what is inside them.
    """
    if not isinstance(schema, Schema):
        schema = parse_schema(schema)
    value = json_object.decode_object(schema.raw, "schema")
    fresh = _FreshIds()
    fresh.renumber(value)
    if "identifier-field-ids" in value:
        value["identifier-field-ids"] = [fresh.new_ids[old] for old in schema.identifier_field_ids]
    return _from_json(_with_schema_id(value, INITIAL_SCHEMA_ID)), fresh.new_ids


class _FreshIds:
    """Hands out ids from 1 while it rewrites them in the JSON of a schema."""

    def __init__(self) -> None:
        self.new_ids: dict[int, int] = {}
        self._next = count(1)

    def renumber(self, type_: object) -> None:
        """Rewrites the ids of one type of a schema that has been checked already."""
        if not isinstance(type_, dict):
            return
        if type_["type"] == "struct":
            for child in type_["fields"]:
                self._assign(child, "id")
            for child in type_["fields"]:
                self.renumber(child["type"])
            return
        parts = ("element",) if type_["type"] == "list" else ("key", "value")
        for part in parts:
            self._assign(type_, f"{part}-id")
        for part in parts:
            self.renumber(type_[part])

    def _assign(self, holder: dict[str, Any], key: str) -> None:
        new_id = next(self._next)
        self.new_ids[holder[key]] = new_id
        holder[key] = new_id
