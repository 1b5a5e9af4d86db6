"""Types and values of a table's columns and partitions, as its metadata tables show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from frazil.client.declare.client_table import Table
from frazil.datafiles.arrow.arrow_types import spark_arrow_schema
from frazil.spark.schema.spark_types import NANOS, spark_type
from frazil.values.single_value import InvalidValue, from_binary, to_json
from frazil.values.transforms import Transform, Void, parse_transform
from frazil.values.types import (
    STRING,
    UNKNOWN,
    NestedField,
    SchemaField,
    StructType,
    Type,
    TypeId,
    fields_by_id,
)
from frazil.wire.errors import BadRequest

_WITHOUT_BOUNDS: Final = frozenset(
    {TypeId.VARIANT, TypeId.GEOMETRY, TypeId.GEOGRAPHY, TypeId.UNKNOWN}
)


_TYPES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "counts": pa.map_(pa.int32(), pa.field("value", pa.int64(), nullable=False)),
    "bounds": pa.map_(pa.int32(), pa.field("value", pa.binary(), nullable=False)),
    "texts": pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)),
    "ints": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    "longs": pa.list_(pa.field("element", pa.int64(), nullable=False)),
}


def columns(text: str) -> list[pa.Field]:
    """Return the columns of a text such as `id long!, parent long`; `!` marks required ones."""
    pairs = [column.split() for column in text.split(",")]
    return [
        pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!"))
        for name, kind in pairs
    ]


@dataclass(frozen=True, slots=True)
class PartField:
    """A field of partition tuples."""

    field_id: int
    name: str
    transform: Transform
    type: Type


@dataclass(frozen=True)
class ShownTypes:
    """The types of one table."""

    table: Table

    @cached_property
    def columns(self) -> Mapping[int, SchemaField]:
        """The columns and nested fields of the schema."""
        return fields_by_id(self.table.schema)

    @cached_property
    def specs(self) -> Mapping[int, tuple[PartField, ...]]:
        """The fields of each partition spec."""
        return {
            int(spec["spec-id"]): tuple(self._part(part) for part in spec["fields"])
            for spec in self.table.metadata["partition-specs"]
        }

    @cached_property
    def partition(self) -> tuple[PartField, ...]:
        """The partition fields of all specs, like Java's `Partitioning.partitionType`.

        Fields of dropped columns are left out. Names are the newest ones.
        """
        united: dict[int, PartField] = {}
        for spec_id in sorted(self.specs, reverse=True):
            for part in self.specs[spec_id]:
                known = united.get(part.field_id)
                if known is None:
                    united[part.field_id] = part
                elif isinstance(known.transform, Void):
                    # A table of version 1 keeps dropped fields, whose values are null since.
                    united[part.field_id] = PartField(
                        part.field_id, known.name, part.transform, part.type
                    )
        return tuple(
            united[field_id]
            for field_id in sorted(united)
            if united[field_id].type.type_id is not TypeId.UNKNOWN
        )

    @cached_property
    def partition_type(self) -> pa.DataType:
        return pa.struct([pa.field(part.name, arrow_type(part.type)) for part in self.partition])

    def partition_row(self, values: Mapping[int, Any]) -> dict[str, Any]:
        """Return a partition's row from its internal values by field id."""
        return {part.name: shown(part.type, values.get(part.field_id)) for part in self.partition}

    @cached_property
    def leaves(self) -> tuple[SchemaField, ...]:
        """The columns that have readable metrics, by their names."""
        leaves = (
            column
            for column in self.columns.values()
            if column.field.type.is_primitive and column.field.type.type_id not in _WITHOUT_BOUNDS
        )
        return tuple(sorted(leaves, key=lambda column: column.name))

    def _part(self, part: Mapping[str, Any]) -> PartField:
        source_id = part.get("source-id")
        if source_id is None:
            source_id = part["source-ids"][0]
        transform = parse_transform(part["transform"])
        source = self.columns.get(source_id)
        type_ = UNKNOWN if source is None else transform.result_type(source.field.type)
        return PartField(int(part["field-id"]), part["name"], transform, type_)


def arrow_type(type_: Type) -> pa.DataType:
    """Return the Arrow type for Spark; text for types that this Spark does not have."""
    kind = type_ if _is_spark_type(type_) else STRING
    return spark_arrow_schema(StructType((NestedField(1, "value", kind, False),))).field(0).type


def shown(type_: Type, value: Any) -> Any:
    """Return an internal value as pyarrow takes it for `arrow_type`."""
    if value is None:
        return None
    if type_.type_id in NANOS:
        return value // 1000
    if isinstance(value, UUID):
        return str(value)
    return value if _is_spark_type(type_) else str(to_json(type_, value))


def shown_bound(type_: Type, bound: bytes | None) -> Any:
    """Return a lower or upper bound; None if it cannot be decoded."""
    try:
        return None if bound is None else shown(type_, from_binary(type_, bound))
    except InvalidValue:
        return None


def _is_spark_type(type_: Type) -> bool:
    try:
        spark_type(type_)
    except BadRequest:
        return False
    return True
