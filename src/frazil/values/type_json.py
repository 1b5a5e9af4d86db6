"""Reads and writes the JSON of types and fields (spec, Appendix C).

The input is decoded JSON: str, dict, list, bool, int, float or Decimal. Every error is an
`InvalidType` whose message begins with the JSON path of the wrong value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from frazil.values import types
from frazil.values.single_value import InvalidValue, from_json, to_json

MAX_NESTING: Final = 100
"""Deeper types are refused: no engine can use them, and recursion must be bounded."""

_T = TypeVar("_T")
_JSON_NAMES: Final[dict[type, str]] = {str: "a string", bool: "true or false", list: "a list"}


def parse_type(value: object, path: str = "type", depth: int = 0) -> types.Type:
    """Return the type that a JSON value declares."""
    if isinstance(value, str):
        return _named(value, path)
    if not isinstance(value, dict):
        raise types.InvalidType(f"{path}: expected a type name or an object, got {_kind(value)}")
    if depth > MAX_NESTING:
        raise types.InvalidType(f"{path}: types are nested more than {MAX_NESTING} levels deep")
    kind = value.get("type")
    if kind == "struct":
        return parse_struct(value, path, depth)
    if kind == "list":
        return _parse_list(value, path, depth)
    if kind == "map":
        return _parse_map(value, path, depth)
    if kind is None:
        raise types.InvalidType(f"{path}: 'type' is missing: give struct, list or map")
    raise types.InvalidType(f"{path}.type: {kind!r} is not one of struct, list, map")


def _named(text: str, path: str) -> types.Type:
    try:
        return types.type_from_name(text)
    except types.InvalidType as error:
        raise types.InvalidType(f"{path}: {error}") from None


def parse_struct(value: Mapping[str, Any], path: str, depth: int = 0) -> types.StructType:
    """Return the struct of an object that has `fields`. Other keys are ignored."""
    items = _get(value, "fields", list, path)
    return types.StructType(
        tuple(
            _parse_field(item, f"{path}.fields[{position}]", depth)
            for position, item in enumerate(items)
        )
    )


def _parse_field(value: object, path: str, depth: int) -> types.NestedField:
    if not isinstance(value, dict):
        raise types.InvalidType(f"{path}: expected an object, got {_kind(value)}")
    field_id = get_int(value, "id", path)
    name = _get(value, "name", str, path)
    required = _get(value, "required", bool, path)
    type_ = parse_type(_member(value, "type", path), f"{path}.type", depth + 1)
    doc = value.get("doc")
    if doc is not None and not isinstance(doc, str):
        raise types.InvalidType(f"{path}.doc: expected a string, got {_kind(doc)}")
    return _field(
        path,
        field_id,
        name,
        type_,
        required,
        doc,
        _default(value.get("initial-default"), type_, f"{path}.initial-default"),
        _default(value.get("write-default"), type_, f"{path}.write-default"),
    )


def _field(path: str, *args: Any) -> types.NestedField:
    try:
        return types.NestedField(*args)
    except types.InvalidType as error:
        raise types.InvalidType(f"{path}: {error}") from None


def _default(value: object, type_: types.Type, path: str) -> Any:
    """Return a default as an internal value.

    Spec, "Default values": the default of a struct is null or empty, because its fields have their
    own. Unknown, variant, geometry and geography have no defaults; in Java lists and maps have none
    either.
    """
    if value is None:
        return None
    if type_.type_id is types.TypeId.STRUCT:
        if value != {}:
            raise types.InvalidType(f"{path}: the default of a struct must be null or {{}}")
        return {}
    if type_.is_nested or type_.type_id in _NO_DEFAULT:
        raise types.InvalidType(f"{path}: the default of a {type_.type_id.value} must be null")
    try:
        return from_json(type_, value)
    except InvalidValue as error:
        raise types.InvalidType(f"{path}: {error}") from None


_NO_DEFAULT: Final = frozenset(
    {types.TypeId.UNKNOWN, types.TypeId.VARIANT, types.TypeId.GEOMETRY, types.TypeId.GEOGRAPHY}
)


def _parse_list(value: Mapping[str, Any], path: str, depth: int) -> types.ListType:
    return types.ListType(_parse_part(value, "element", path, depth))


def _parse_map(value: Mapping[str, Any], path: str, depth: int) -> types.MapType:
    return types.MapType(
        _parse_part(value, "key", path, depth, required=True),
        _parse_part(value, "value", path, depth),
    )


def _parse_part(
    value: Mapping[str, Any], name: str, path: str, depth: int, required: bool | None = None
) -> types.NestedField:
    field_id = get_int(value, f"{name}-id", path)
    type_ = parse_type(_member(value, name, path), f"{path}.{name}", depth + 1)
    if required is None:
        required = _get(value, f"{name}-required", bool, path)
    return _field(f"{path}.{name}", field_id, name, type_, required)


def _member(value: Mapping[str, Any], key: str, path: str) -> Any:
    if key not in value:
        raise types.InvalidType(f"{path}: '{key}' is missing")
    return value[key]


def _get(value: Mapping[str, Any], key: str, kind: type[_T], path: str) -> _T:
    member = _member(value, key, path)
    if not isinstance(member, kind):
        raise types.InvalidType(f"{path}.{key}: expected {_JSON_NAMES[kind]}, got {_kind(member)}")
    return member


def get_int(value: Mapping[str, Any], key: str, path: str) -> int:
    """Return a required 32-bit integer of a JSON object."""
    member = _member(value, key, path)
    if isinstance(member, bool) or not isinstance(member, int):
        raise types.InvalidType(f"{path}.{key}: expected an integer, got {_kind(member)}")
    if not -(2**31) <= member < 2**31:
        raise types.InvalidType(f"{path}.{key}: {member} does not fit in 32 bits")
    return member


def _kind(value: object) -> str:
    """Return the kind of a JSON value for a message; its content may be long or secret."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else "a number"


# --- writing ------------------------------------------------------------------------------------


def struct_to_json(struct: types.StructType) -> dict[str, Any]:
    """Return the object that `parse_struct` reads."""
    return {"type": "struct", "fields": [_field_to_json(field) for field in struct.fields]}


def type_to_json(type_: types.Type) -> str | dict[str, Any]:
    if isinstance(type_, types.StructType):
        return struct_to_json(type_)
    if isinstance(type_, types.ListType):
        return {"type": "list", **_part_to_json("element", type_.element)}
    if isinstance(type_, types.MapType):
        key = {"key-id": type_.key.field_id, "key": type_to_json(type_.key.type)}
        return {"type": "map", **key, **_part_to_json("value", type_.value)}
    return str(type_)


def _part_to_json(name: str, part: types.NestedField) -> dict[str, Any]:
    return {
        f"{name}-id": part.field_id,
        name: type_to_json(part.type),
        f"{name}-required": part.required,
    }


def _field_to_json(field: types.NestedField) -> dict[str, Any]:
    document = {
        "id": field.field_id,
        "name": field.name,
        "required": field.required,
        "type": type_to_json(field.type),
    }
    if field.doc is not None:
        document["doc"] = field.doc
    for key, value in (
        ("initial-default", field.initial_default),
        ("write-default", field.write_default),
    ):
        if value is not None:
            document[key] = (
                {} if isinstance(field.type, types.StructType) else to_json(field.type, value)
            )
    return document
