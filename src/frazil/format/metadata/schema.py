"""Schemas: parsed, checked and compared as Java's `Schema` does. They keep their original JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, Final

import msgspec

from frazil.format.metadata import json_object
from frazil.values import types
from frazil.values.type_json import parse_struct
from frazil.wire.errors import BadRequest

INITIAL_SCHEMA_ID: Final = 0

_MAX_CACHED_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class Schema:
    """A schema of a table or view. Schemas are equal if their JSON is."""

    raw: bytes
    """The compact JSON to write again, always with a `schema-id`."""
    schema_id: int
    struct: types.StructType = field(compare=False, repr=False)
    identifier_field_ids: tuple[int, ...] = field(compare=False)

    @cached_property
    def _index(self) -> _Index:
        return _Index.of(self.struct)

    @cached_property
    def highest_field_id(self) -> int:
        """The highest field id, including nested fields; 0 without fields."""
        return max(self._index.by_id, default=0)

    @property
    def fields_by_id(self) -> Mapping[int, types.NestedField]:
        return self._index.by_id

    @property
    def parent_ids(self) -> Mapping[int, int]:
        """The id of the parent of each nested field, by field id."""
        return self._index.parents

    @property
    def full_names(self) -> Mapping[int, str]:
        """The dotted name of each field by its id, with `element`, `key` and `value` as parts."""
        return self._index.names

    def find_field(self, field_id: int) -> types.NestedField | None:
        return self._index.by_id.get(field_id)

    def find_type(self, field_id: int) -> types.Type | None:
        field = self._index.by_id.get(field_id)
        return None if field is None else field.type

    def find_by_name(self, name: str, case_sensitive: bool = True) -> types.NestedField | None:
        """Find a field by its dotted name. As in Java, `list.x` also finds `list.element.x`."""
        if case_sensitive:
            field_id = self._index.by_name.get(name)
            return None if field_id is None else self._index.by_id[field_id]
        field_ids = self._lowered_names.get(name.lower(), frozenset())
        if len(field_ids) > 1:
            raise BadRequest(f"column name {name!r} is ambiguous when case does not matter")
        return next((self._index.by_id[field_id] for field_id in field_ids), None)

    @cached_property
    def _lowered_names(self) -> Mapping[str, frozenset[int]]:
        lowered: dict[str, frozenset[int]] = {}
        for name, field_id in self._index.by_name.items():
            key = name.lower()
            lowered[key] = lowered.get(key, frozenset()) | {field_id}
        return lowered


@dataclass(frozen=True, slots=True)
class _Index:
    """All fields of a struct by id, name and parent. Duplicates are refused."""

    by_id: dict[int, types.NestedField] = field(default_factory=dict)
    by_name: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, struct: types.StructType) -> _Index:
        index = cls()
        short_names: dict[str, int] = {}
        index._add_children(struct, None, "", "", short_names)
        for name, field_id in short_names.items():
            index.by_name.setdefault(name, field_id)
        return index

    def _add_children(
        self,
        type_: types.Type,
        parent: int | None,
        prefix: str,
        short_prefix: str,
        short_names: dict[str, int],
    ) -> None:
        in_struct = type_.type_id is types.TypeId.STRUCT
        for child in types.child_fields(type_):
            name = f"{prefix}{child.name}"
            short_name = f"{short_prefix}{child.name}"
            self._add(child, name, parent)
            short_names.setdefault(short_name, child.field_id)
            # As Java's IndexByName, the short name of a struct inside a list or map has no
            # `element` or `value`, so that users can write locations.latitude.
            skipped = not in_struct and child.name != "key" and _is_struct(child.type)
            deeper = short_prefix if skipped else f"{short_name}."
            self._add_children(child.type, child.field_id, f"{name}.", deeper, short_names)

    def _add(self, child: types.NestedField, name: str, parent: int | None) -> None:
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


def _is_struct(type_: types.Type) -> bool:
    return type_.type_id is types.TypeId.STRUCT


def parse_schema(raw: bytes | msgspec.Raw) -> Schema:
    """Parse and check a schema. As in Java, a missing `schema-id` is 0."""
    text = bytes(raw)
    return _parse_cached(text) if len(text) <= _MAX_CACHED_BYTES else _parse(text)


def _parse(raw: bytes) -> Schema:
    return _from_json(json_object.decode_object(raw, "schema"))


# Schemas are immutable, and many commits and loads have the same bytes. With these bounds the
# parsed schemas, about ten times their bytes, are small compared to the metadata caches.
_parse_cached = lru_cache(maxsize=256)(_parse)


def _from_json(value: dict[str, Any]) -> Schema:
    if value.get("type") != "struct":
        raise BadRequest("schema: 'type' must be \"struct\"")
    try:
        struct = parse_struct(value, "schema")
    except types.InvalidType as error:
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
    # Building the index finds duplicate ids and names even without identifier fields.
    _ = schema.fields_by_id
    return schema


def _with_schema_id(value: dict[str, Any], schema_id: int) -> dict[str, Any]:
    if value.get("schema-id") == schema_id:
        return value
    return {"type": "struct", "schema-id": schema_id} | {
        key: item for key, item in value.items() if key != "schema-id"
    }


def _drop_nulls(value: object) -> None:
    """Remove optional members that are null, because other readers accept only missing ones."""
    if isinstance(value, list):
        for item in value:
            _drop_nulls(item)
    elif isinstance(value, dict):
        for key in _OPTIONAL_MEMBERS.intersection(value):
            if value[key] is None:
                del value[key]
        for key in _TYPE_MEMBERS.intersection(value):
            _drop_nulls(value[key])


_OPTIONAL_MEMBERS: Final = frozenset(
    {"identifier-field-ids", "doc", "initial-default", "write-default"}
)
_TYPE_MEMBERS: Final = frozenset({"fields", "type", "element", "key", "value"})


def _check_identifier_field(schema: Schema, field_id: int) -> None:
    """Check an identifier field as Java's `Schema.validateIdentifierField` does."""
    identifier = schema.find_field(field_id)
    if identifier is None:
        raise BadRequest(
            f"Cannot add field id {field_id} as an identifier field: field does not exist"
        )
    problem = _identifier_problem(schema, identifier)
    if problem is not None:
        raise BadRequest(f"Cannot add field {identifier.name} as an identifier field: {problem}")


def _identifier_problem(schema: Schema, identifier: types.NestedField) -> str | None:
    if not identifier.type.is_primitive:
        return "not a primitive type field"
    if not identifier.required:
        return "not a required field"
    if identifier.type.type_id in (types.TypeId.FLOAT, types.TypeId.DOUBLE):
        return "must not be float or double field"
    for ancestor in _ancestors(schema, identifier.field_id):
        if not _is_struct(ancestor.type):
            return f"must not be nested in {ancestor}"
        if not ancestor.required:
            return f"must not be nested in an optional field {ancestor}"
    return None


def _ancestors(schema: Schema, field_id: int) -> list[types.NestedField]:
    """Return the fields that contain a field, outermost first."""
    ancestors: list[types.NestedField] = []
    parent = schema.parent_ids.get(field_id)
    while parent is not None:
        ancestors.append(schema.fields_by_id[parent])
        parent = schema.parent_ids.get(parent)
    return ancestors[::-1]


def is_nested_in_list_or_map(schema: Schema, field_id: int) -> bool:
    """Check whether a field is inside a list or a map."""
    return any(not _is_struct(ancestor.type) for ancestor in _ancestors(schema, field_id))


def same_schema(left: Schema, right: Schema) -> bool:
    """Check whether two schemas differ only in their id, as Java's `Schema.sameSchema` does.

    Docs and default values are compared, unknown members are not.
    """
    return left.struct == right.struct and set(left.identifier_field_ids) == set(
        right.identifier_field_ids
    )


def with_schema_id(schema: Schema, schema_id: int) -> Schema:
    if schema.schema_id == schema_id:
        return schema
    raw = json_object.with_field(schema.raw, "schema-id", schema_id)
    return Schema(raw, schema_id, schema.struct, schema.identifier_field_ids)


def check_schema_for_version(schema: Schema, format_version: int) -> None:
    """Refuse types and defaults that a format version does not have. Report all of them.

    Mirrors Java's `Schema.checkCompatibility`, which checks only initial defaults that are not
    null.
    """
    problems = []
    for field_id, nested in sorted(schema.fields_by_id.items()):
        name = schema.full_names[field_id]
        since = types.min_format_version(nested.type)
        if format_version < since:
            problems.append(
                f"Invalid type for {name}: {nested.type} is not supported until v{since}"
            )
        if (
            nested.initial_default is not None
            and format_version < types.DEFAULT_VALUES_MIN_FORMAT_VERSION
        ):
            problems.append(
                f"Invalid initial default for {name}: a non-null default is not supported "
                f"until v{types.DEFAULT_VALUES_MIN_FORMAT_VERSION}"
            )
    if problems:
        raise BadRequest(f"Invalid schema for v{format_version}:\n- " + "\n- ".join(problems))


def assign_fresh_ids(schema: Schema | bytes | msgspec.Raw) -> tuple[Schema, dict[int, int]]:
    """Return the schema of a new table, with schema id 0 and field ids from 1, and the new ids by
    old.

    The order is that of Java's `AssignFreshIds`: first all fields of a struct, then the fields
    inside each of them; for a map the key and the value first.
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
    """Assigns ids from 1 in the JSON of a schema."""

    def __init__(self) -> None:
        self.new_ids: dict[int, int] = {}
        self._next = count(1)

    def renumber(self, type_: object) -> None:
        """Replace the ids of a type. The schema must be checked already."""
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

    def _assign(self, item: dict[str, Any], key: str) -> None:
        new_id = next(self._next)
        self.new_ids[item[key]] = new_id
        item[key] = new_id
