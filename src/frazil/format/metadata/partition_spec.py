"""Partition specs: parsed, bound to a schema and compared as Java's `PartitionSpec` does."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec

from frazil.format.metadata import json_object
from frazil.format.metadata.schema import Schema, is_nested_in_list_or_map
from frazil.values import temporal
from frazil.values.transforms import (
    TRANSFORM_NAMES,
    VOID,
    InvalidTransform,
    Transform,
    Unknown,
    calendar_text,
    nearest_transform,
    parse_transform,
)
from frazil.values.types import UNKNOWN, NestedField, StructType, Type, TypeId
from frazil.wire.errors import BadRequest

INITIAL_SPEC_ID: Final = 0
PARTITION_DATA_ID_START: Final = 1000
NO_FIELD_ID: Final = PARTITION_DATA_ID_START - 1
"""The last assigned field id of a table that never had partition fields."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    source_ids: tuple[int, ...]
    """One id for `source-id`, several for the `source-ids` of a multi-argument transform."""
    field_id: int
    name: str
    transform: Transform

    @property
    def source_id(self) -> int:
        """Return the first source column, which is nearly always the only one."""
        return self.source_ids[0]

    def __str__(self) -> str:
        sources = ", ".join(map(str, self.source_ids))
        return f"{self.field_id}: {self.name}: {self.transform}({sources})"


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition spec of a table. Specs are equal if their JSON is."""

    raw: bytes
    """The compact JSON to write again, with `spec-id` and all `field-id`s."""
    spec_id: int
    fields: tuple[PartitionField, ...] = field(compare=False)

    @property
    def is_unpartitioned(self) -> bool:
        return all(part.transform == VOID for part in self.fields)

    @property
    def last_assigned_field_id(self) -> int:
        """Return the highest field id, or 999 without fields."""
        return max((part.field_id for part in self.fields), default=NO_FIELD_ID)

    @property
    def has_sequential_ids(self) -> bool:
        """Return whether the ids are 1000, 1001, ..., which format version 1 requires."""
        return all(
            part.field_id == expected
            for part, expected in zip(self.fields, count(PARTITION_DATA_ID_START), strict=False)
        )


UNPARTITIONED: Final = PartitionSpec(b'{"spec-id":0,"fields":[]}', INITIAL_SPEC_ID, ())


def parse_partition_spec(
    raw: bytes | msgspec.Raw,
    *,
    known_specs: Sequence[PartitionSpec] = (),
    last_assigned_field_id: int = NO_FIELD_ID,
) -> PartitionSpec:
    """Parse a spec. A missing `spec-id` is 0.

    Either all fields have ids or none. Missing ids are assigned (spec, "Partition Evolution"): the
    id of a field of a known spec with the same source and transform, or the next id after the last
    assigned one. Without known specs they are 1000, 1001, ... as in Java.
    """
    value = json_object.decode_object(raw, "partition-spec")
    spec_id = json_object.get_int(value, "spec-id", "partition-spec", INITIAL_SPEC_ID)
    items = json_object.get_list(value, "fields", "partition-spec")
    return _build(value, spec_id, items, known_specs, last_assigned_field_id)


def parse_partition_fields(raw: bytes | msgspec.Raw, spec_id: int) -> PartitionSpec:
    """Parse the list of fields in the deprecated `partition-spec` of v1 metadata."""
    items = json_object.decode(raw, "partition-spec")
    if not isinstance(items, list):
        raise BadRequest("partition-spec must be a list of partition fields")
    return _build({}, spec_id, items, (), NO_FIELD_ID)


def _build(
    value: dict[str, Any],
    spec_id: int,
    items: list[Any],
    known_specs: Sequence[PartitionSpec],
    last_assigned_field_id: int,
) -> PartitionSpec:
    objects = [
        _field_object(item, f"partition-spec.fields[{position}]")
        for position, item in enumerate(items)
    ]
    _assign_missing_ids(objects, known_specs, last_assigned_field_id)
    fields = tuple(
        _parse_field(item, f"partition-spec.fields[{position}]")
        for position, item in enumerate(objects)
    )
    _check_unique(fields)
    raw = json_object.encode({"spec-id": spec_id} | value | {"spec-id": spec_id, "fields": objects})
    return PartitionSpec(raw, spec_id, fields)


def _field_object(item: object, path: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise BadRequest(f"{path} must be an object with source-id, name and transform")
    return item


def _assign_missing_ids(
    items: list[dict[str, Any]], known_specs: Sequence[PartitionSpec], last_assigned: int
) -> None:
    missing = [item for item in items if item.get("field-id") is None]
    if not missing:
        return
    if len(missing) != len(items):
        raise BadRequest(
            f"partition-spec: field-id is missing on {len(missing)} of {len(items)} fields: "
            "give it on all of them or on none"
        )
    known = {
        (part.source_ids, str(part.transform)): part.field_id
        for spec in known_specs
        for part in spec.fields
    }
    next_id = count(last_assigned + 1)
    for position, item in enumerate(items):
        path = f"partition-spec.fields[{position}]"
        key = (source_ids_of(item, path), str(transform_of(item, path)))
        known_id = known.get(key)
        item["field-id"] = next(next_id) if known_id is None else known_id


def _parse_field(item: dict[str, Any], path: str) -> PartitionField:
    part = PartitionField(
        source_ids_of(item, path),
        json_object.get_int(item, "field-id", path),
        json_object.get_str(item, "name", path),
        transform_of(item, path),
    )
    # Write the canonical case, because only Java reads any case.
    item["transform"] = str(part.transform)
    return part


def source_ids_of(item: Mapping[str, Any], path: str) -> tuple[int, ...]:
    """Return the source columns of a partition or sort field: `source-id`, or in v3
    `source-ids`."""
    several = json_object.get_ints(item, "source-ids", path)
    if item.get("source-id") is None:
        if not several:
            raise BadRequest(f"{path}: 'source-id' is missing: give the id of a column")
        return several
    single = json_object.get_int(item, "source-id", path)
    if several and several != (single,):
        raise BadRequest(f"{path}: give either 'source-id' or 'source-ids', not both")
    return (single,)


def transform_of(item: Mapping[str, Any], path: str) -> Transform:
    try:
        return parse_transform(json_object.get_str(item, "transform", path))
    except InvalidTransform as error:
        raise BadRequest(f"{path}.transform: {error}") from None


def _check_unique(fields: tuple[PartitionField, ...]) -> None:
    ids: set[int] = set()
    names: set[str] = set()
    for part in fields:
        if part.field_id in ids:
            raise BadRequest(f"Cannot use partition field id more than once: {part.field_id}")
        if not part.name:
            raise BadRequest(f"Cannot use empty partition name: {part}")
        if part.name in names:
            raise BadRequest(f"Cannot use partition name more than once: {part.name}")
        ids.add(part.field_id)
        names.add(part.name)


def compatible_specs(left: PartitionSpec, right: PartitionSpec) -> bool:
    """Check whether two specs partition alike, as Java's `compatibleWith` does.

    Field ids are ignored. Names are compared, because they are directories and columns of metadata
    tables.
    """
    return len(left.fields) == len(right.fields) and all(
        mine.source_ids == theirs.source_ids
        and mine.name == theirs.name
        and str(mine.transform) == str(theirs.transform)
        for mine, theirs in zip(left.fields, right.fields, strict=True)
    )


def with_spec_id(spec: PartitionSpec, spec_id: int) -> PartitionSpec:
    if spec.spec_id == spec_id:
        return spec
    return PartitionSpec(json_object.with_field(spec.raw, "spec-id", spec_id), spec_id, spec.fields)


def check_partition_spec(spec: PartitionSpec, schema: Schema) -> None:
    """Refuse a new spec that cannot be used with a schema, as Java's `bind` does.

    Equal fields are refused too, which Java leaves to its clients. Several time transforms of one
    column are accepted, because existing tables have them.
    """
    seen: dict[tuple[tuple[int, ...], str], PartitionField] = {}
    for part in spec.fields:
        _check_name(part, schema)
        if part.transform == VOID:
            continue
        for source_id in part.source_ids:
            check_source("partition", part, source_id, part.transform, schema)
            if is_nested_in_list_or_map(schema, source_id):
                raise BadRequest(
                    f"Invalid partition field parent: {part} is inside a list or a map"
                )
        key = (part.source_ids, str(part.transform))
        if key in seen:
            raise BadRequest(f"Cannot add redundant partition: {seen[key]} conflicts with {part}")
        seen[key] = part


def _check_name(part: PartitionField, schema: Schema) -> None:
    """Refuse a partition field with the name of a column that is not its source."""
    if schema.find_field(part.source_id) is None:
        return
    column = schema.find_by_name(part.name)
    if column is not None and column.field_id not in part.source_ids:
        raise BadRequest(
            f"Cannot create identity partition sourced from different field in schema: {part.name}"
        )


def check_source(
    verb: str, part: object, source_id: int, transform: Transform, schema: Schema
) -> None:
    """Refuse a new partition or sort field whose transform cannot take a source column. `verb` is
    "partition" or "sort"."""
    source = schema.find_type(source_id)
    if source is None:
        raise BadRequest(f"Cannot find source column for {verb} field: {part}")
    if not source.is_primitive:
        raise BadRequest(f"Cannot {verb} by non-primitive source field: {source}")
    if not transform.accepts(source):
        raise BadRequest(f"Invalid source type {source} for transform: {transform}")


def check_known_transforms(
    transforms: Iterable[Transform], what: str, allowed: Collection[Transform] = ()
) -> None:
    """Refuse the transforms of a new spec or sort order that nobody can apply.

    Readers must accept them (spec, "Partition Transforms"), so metadata that exists may have them.
    """
    for position, transform in enumerate(transforms):
        if isinstance(transform, Unknown) and transform not in allowed:
            near = nearest_transform(transform.text)
            known = f"known are {', '.join(TRANSFORM_NAMES)}"
            hint = known if near is None else f"did you mean {near!r}?"
            path = f"{what}.fields[{position}].transform"
            raise BadRequest(f"{path}: {transform.text[:100]!r} is not a transform; {hint}")


@lru_cache(maxsize=256)
def spec_problem(spec: PartitionSpec, schema: Schema) -> str | None:
    """Return why a spec that a table already has does not fit its schema, or None if it does.

    Mirrors Java's `PartitionSpec.checkCompatibility`.
    """
    for part in spec.fields:
        # A void field stays behind in v1 specs when its source column is dropped.
        if part.transform == VOID:
            continue
        problem = source_problem(part.source_ids, part.transform, schema)
        if problem is not None:
            return f"partition field {part.name!r}: {problem}"
    return None


def source_problem(source_ids: tuple[int, ...], transform: Transform, schema: Schema) -> str | None:
    """Return why a transform cannot take its source columns, or None if it can."""
    for source_id in source_ids:
        source = schema.find_type(source_id)
        if source is None:
            return f"source column {source_id} is not in schema {schema.schema_id}"
        if not source.is_primitive:
            return f"source column {source_id} is not of a primitive type"
        if not transform.accepts(source):
            return f"transform {transform} does not take source type {source}"
    return None


def freshen_partition_spec(spec: PartitionSpec, new_ids: Mapping[int, int]) -> PartitionSpec:
    """Return the spec of a new table: spec id 0, field ids from 1000, source ids of the new
    schema."""
    value = json_object.decode_object(spec.raw, "partition-spec")
    for field_id, part, item in zip(
        count(PARTITION_DATA_ID_START), spec.fields, value["fields"], strict=False
    ):
        remap_sources(item, part.source_ids, new_ids, f"partition field: {part}")
        item["field-id"] = field_id
    value["spec-id"] = INITIAL_SPEC_ID
    return parse_partition_spec(json_object.encode(value))


def remap_sources(
    item: dict[str, Any], source_ids: tuple[int, ...], new_ids: Mapping[int, int], what: str
) -> None:
    """Write the new ids of the source columns into the JSON of a partition or sort field."""
    missing = [source_id for source_id in source_ids if source_id not in new_ids]
    if missing:
        raise BadRequest(f"Cannot find source column for {what}")
    renamed = [new_ids[source_id] for source_id in source_ids]
    if item.get("source-id") is not None:
        item["source-id"] = renamed[0]
    if item.get("source-ids") is not None:
        item["source-ids"] = renamed


@lru_cache(maxsize=256)
def partition_type(spec: PartitionSpec, schema: Schema) -> StructType:
    """Return the struct of partition tuples: optional fields with the ids of the partition fields.

    The type of a dropped source column is unknown, unless the transform has a fixed result type.
    """
    return StructType(
        tuple(
            NestedField(
                part.field_id,
                part.name,
                part.transform.result_type(schema.find_type(part.source_id) or UNKNOWN),
                required=False,
            )
            for part in spec.fields
        )
    )


def has_unknown_transform(spec: PartitionSpec) -> bool:
    """Check whether a spec has a transform whose values cannot be computed here."""
    return any(isinstance(part.transform, Unknown) for part in spec.fields)


# --- partitions as text ----------------------------------------------------------------------


def partition_path(spec: PartitionSpec, partition_type: StructType, values: Sequence[Any]) -> str:
    """Return the path of a partition tuple, such as `day=2024-05-01/region=eu`, as Java writes it.

    It is empty for an unpartitioned spec.
    """
    return "/".join(
        f"{_escaped(part.name)}={_escaped(partition_text(part.transform, field.type, value))}"
        for part, field, value in zip(spec.fields, partition_type.fields, values, strict=True)
    )


def _escaped(text: str) -> str:
    """Escape text as Java's URLEncoder does, which escapes tildes but not asterisks."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def partition_text(transform: Transform, type_: Type, value: Any) -> str:
    """Return a partition value as Java's `Transform.toHumanString` does."""
    if value is None:
        return "null"
    return calendar_text(transform, value) or _value_text(type_, value)


def _value_text(type_: Type, value: Any) -> str:
    match type_.type_id:
        case TypeId.BOOLEAN:
            return "true" if value else "false"
        case TypeId.DATE:
            return temporal.date_from_days(value)
        case TypeId.TIME:
            return _short_time(temporal.time_from_micros(value))
        case TypeId.TIMESTAMP | TypeId.TIMESTAMPTZ:
            text = temporal.timestamp_from_micros(value, with_zone=False)
            return _trimmed(text) + ("+00:00" if type_.type_id is TypeId.TIMESTAMPTZ else "")
        case TypeId.TIMESTAMP_NS | TypeId.TIMESTAMPTZ_NS:
            text = temporal.timestamp_from_nanos(value, with_zone=False)
            return _trimmed(text) + ("+00:00" if type_.type_id is TypeId.TIMESTAMPTZ_NS else "")
        case TypeId.BINARY | TypeId.FIXED:
            return b64encode(value).decode()
    return str(value)


def _trimmed(text: str) -> str:
    """Remove zeros at the end of a fraction, as Java's ISO_LOCAL_DATE_TIME does."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _short_time(text: str) -> str:
    """Return a time as Java's LocalTime: without zero seconds, fractions in groups of three
    digits."""
    whole, _, fraction = text.partition(".")
    digits = fraction.rstrip("0")
    if not digits:
        return whole.removesuffix(":00")
    return f"{whole}.{digits.ljust(-(-len(digits) // 3) * 3, '0')}"
