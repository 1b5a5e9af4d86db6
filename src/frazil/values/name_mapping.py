"""Name mappings: the field ids of columns in files that were written without ids.

Spec, "Name Mapping Serialization". Readers find columns of such a file by the table's property
alone, never by the names of the schema: a column may have been renamed since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.values.parquet_columns import FileColumn
from frazil.values.types import StructType, Type, child_fields

NAME_MAPPING_PROPERTY: Final = "schema.name-mapping.default"


class InvalidNameMapping(ValueError):
    """The property's text is no name mapping."""


@dataclass(frozen=True, slots=True)
class MappedField:
    field_id: int | None
    fields: Mapping[str, MappedField]


NameMapping = Mapping[str, MappedField]


def name_mapping_of(schema: StructType) -> str:
    """Return the JSON text for `schema.name-mapping.default` that maps the schema's own names."""
    return json.dumps(_mapping_of(schema), ensure_ascii=False)


def _mapping_of(type_: Type) -> list[dict[str, Any]]:
    mapped = []
    for field in child_fields(type_):
        item: dict[str, Any] = {"field-id": field.field_id, "names": [field.name]}
        nested = _mapping_of(field.type)
        if nested:
            item["fields"] = nested
        mapped.append(item)
    return mapped


def parse_name_mapping(text: str) -> NameMapping:
    """Read the property's text, or raise InvalidNameMapping."""
    try:
        return _parse_fields(json.loads(text))
    except json.JSONDecodeError as error:
        raise _invalid(f"JSON, but it is not ({error})") from None
    except RecursionError:
        raise _invalid("fields of a few levels, but they are nested too deeply") from None


def apply_name_mapping(
    columns: Iterable[FileColumn], mapping: NameMapping
) -> tuple[FileColumn, ...]:
    """Return the columns with the ids of their names; a name that is not mapped has no id."""
    mapped = []
    for column in columns:
        field = mapping.get(column.name)
        parts = apply_name_mapping(column.parts, {} if field is None else field.fields)
        field_id = None if field is None else field.field_id
        mapped.append(replace(column, field_id=field_id, parts=parts))
    return tuple(mapped)


def _parse_fields(value: object) -> NameMapping:
    if not isinstance(value, list):
        raise _invalid("a list of objects with field-id and names")
    fields: dict[str, MappedField] = {}
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("names"), list):
            raise _invalid("a list of objects with field-id and names")
        field_id = item.get("field-id")
        if field_id is not None and (isinstance(field_id, bool) or not isinstance(field_id, int)):
            raise _invalid("numbers in field-id")
        field = MappedField(field_id, _parse_fields(item.get("fields") or []))
        for name in item["names"]:
            if not isinstance(name, str) or name in fields:
                raise _invalid(f"each name once, but {name!r} is not text or occurs twice")
            fields[name] = field
    return fields


def _invalid(expected: str) -> InvalidNameMapping:
    return InvalidNameMapping(
        f"the table's property {NAME_MAPPING_PROPERTY} must contain {expected}"
    )
