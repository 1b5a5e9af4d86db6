"""Iceberg's types: primitives, `variant`, and the nested struct, list and map.

Spec: "Schemas and Data Types". Types compare by value as Java's `Types` do: the CRS of a geometry
is compared without case, everything else exactly. `type_json` reads and writes their JSON.

Everywhere in Frazil, Python values of a type are Iceberg's internal values, without time zones and
calendar objects:

    boolean                          bool
    int, long                        int
    float, double                    float
    decimal                          decimal.Decimal, with exactly the type's scale
    date                             int, days from 1970-01-01
    time                             int, microseconds from midnight
    timestamp, timestamptz           int, microseconds from 1970-01-01T00:00:00 (UTC)
    timestamp_ns, timestamptz_ns     int, nanoseconds from the same instant
    string                           str
    uuid                             uuid.UUID
    fixed, binary                    bytes
    geometry, geography              bytes, well-known binary (WKB)
    struct                           dict of field id to value
    list                             list
    map                              list of (key, value) pairs
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

MAX_DECIMAL_PRECISION: Final = 38
MAX_FIXED_LENGTH: Final = 2**31 - 1
DEFAULT_CRS: Final = "OGC:CRS84"
DEFAULT_VALUES_MIN_FORMAT_VERSION: Final = 3


class InvalidType(ValueError):
    """A declaration of a type or field that is not valid."""


class TypeId(StrEnum):
    """The kind of a type; the value is its name in JSON."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP_NS = "timestamp_ns"
    TIMESTAMPTZ_NS = "timestamptz_ns"
    STRING = "string"
    UUID = "uuid"
    FIXED = "fixed"
    BINARY = "binary"
    UNKNOWN = "unknown"
    VARIANT = "variant"
    GEOMETRY = "geometry"
    GEOGRAPHY = "geography"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"


class EdgeAlgorithm(StrEnum):
    """How the edges between two points of a geography are interpolated."""

    SPHERICAL = "spherical"
    VINCENTY = "vincenty"
    THOMAS = "thomas"
    ANDOYER = "andoyer"
    KARNEY = "karney"


@dataclass(frozen=True, slots=True)
class Type:
    """Any Iceberg type."""

    type_id: TypeId

    @property
    def is_primitive(self) -> bool:
        """Return whether the type is primitive. As in Java, `variant` is neither primitive nor
        nested."""
        return False

    @property
    def is_nested(self) -> bool:
        return False

    @property
    def short_name(self) -> str:
        """The type as text, without the parts of a nested type."""
        return self.type_id.value if self.is_nested else str(self)

    def __str__(self) -> str:
        return self.type_id.value


@dataclass(frozen=True, slots=True)
class PrimitiveType(Type):
    """A type without parameters, or the base of one that has them."""

    @property
    def is_primitive(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class DecimalType(PrimitiveType):
    type_id: TypeId = field(default=TypeId.DECIMAL, init=False)
    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= MAX_DECIMAL_PRECISION:
            raise InvalidType(f"{self}: precision must be between 1 and {MAX_DECIMAL_PRECISION}")

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class FixedType(PrimitiveType):
    type_id: TypeId = field(default=TypeId.FIXED, init=False)
    length: int

    def __post_init__(self) -> None:
        if not 0 <= self.length <= MAX_FIXED_LENGTH:
            raise InvalidType(f"{self}: length must be between 0 and {MAX_FIXED_LENGTH}")

    def __str__(self) -> str:
        return f"fixed[{self.length}]"


@dataclass(frozen=True, slots=True)
class _SpatialType(PrimitiveType):
    """A geometry or a geography."""

    crs: str = field(default=DEFAULT_CRS, compare=False)
    _crs_key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.crs:
            raise InvalidType("the CRS is empty: name one, or leave the parentheses out")
        object.__setattr__(self, "_crs_key", self.crs.upper())


@dataclass(frozen=True, slots=True)
class GeometryType(_SpatialType):
    type_id: TypeId = field(default=TypeId.GEOMETRY, init=False)

    def __str__(self) -> str:
        return f"geometry({self.crs})"


@dataclass(frozen=True, slots=True)
class GeographyType(_SpatialType):
    type_id: TypeId = field(default=TypeId.GEOGRAPHY, init=False)
    algorithm: EdgeAlgorithm = EdgeAlgorithm.SPHERICAL

    def __str__(self) -> str:
        return f"geography({self.crs}, {self.algorithm.value})"


@dataclass(frozen=True, slots=True)
class NestedField:
    """A field of a struct, or the element, key or value of a list or map."""

    field_id: int
    name: str
    type: Type
    required: bool
    doc: str | None = None
    initial_default: Any = None
    write_default: Any = None

    def __post_init__(self) -> None:
        if self.required and self.type.type_id is TypeId.UNKNOWN:
            raise InvalidType(f"field {self.name} of type unknown must be optional")

    def __str__(self) -> str:
        requirement = "required" if self.required else "optional"
        return f"{self.field_id}: {self.name}: {requirement} {self.type}"


@dataclass(frozen=True, slots=True)
class NestedType(Type):
    """A type with fields: struct, list or map."""

    @property
    def is_nested(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class StructType(NestedType):
    type_id: TypeId = field(default=TypeId.STRUCT, init=False)
    fields: tuple[NestedField, ...] = ()

    def __str__(self) -> str:
        return f"struct<{', '.join(str(child) for child in self.fields)}>"


@dataclass(frozen=True, slots=True)
class ListType(NestedType):
    type_id: TypeId = field(default=TypeId.LIST, init=False)
    element: NestedField

    def __str__(self) -> str:
        return f"list<{self.element.type}>"


@dataclass(frozen=True, slots=True)
class MapType(NestedType):
    type_id: TypeId = field(default=TypeId.MAP, init=False)
    key: NestedField
    value: NestedField

    def __str__(self) -> str:
        return f"map<{self.key.type}, {self.value.type}>"


BOOLEAN: Final = PrimitiveType(TypeId.BOOLEAN)
INT: Final = PrimitiveType(TypeId.INT)
LONG: Final = PrimitiveType(TypeId.LONG)
FLOAT: Final = PrimitiveType(TypeId.FLOAT)
DOUBLE: Final = PrimitiveType(TypeId.DOUBLE)
DATE: Final = PrimitiveType(TypeId.DATE)
TIME: Final = PrimitiveType(TypeId.TIME)
TIMESTAMP: Final = PrimitiveType(TypeId.TIMESTAMP)
TIMESTAMPTZ: Final = PrimitiveType(TypeId.TIMESTAMPTZ)
TIMESTAMP_NS: Final = PrimitiveType(TypeId.TIMESTAMP_NS)
TIMESTAMPTZ_NS: Final = PrimitiveType(TypeId.TIMESTAMPTZ_NS)
STRING: Final = PrimitiveType(TypeId.STRING)
UUID: Final = PrimitiveType(TypeId.UUID)
BINARY: Final = PrimitiveType(TypeId.BINARY)
UNKNOWN: Final = PrimitiveType(TypeId.UNKNOWN)
VARIANT: Final = Type(TypeId.VARIANT)

_UNPARAMETERIZED: Final[dict[str, Type]] = {
    str(known): known
    for known in (
        BOOLEAN,
        INT,
        LONG,
        FLOAT,
        DOUBLE,
        DATE,
        TIME,
        TIMESTAMP,
        TIMESTAMPTZ,
        TIMESTAMP_NS,
        TIMESTAMPTZ_NS,
        STRING,
        UUID,
        BINARY,
        UNKNOWN,
        VARIANT,
    )
}

_V3_TYPES: Final = frozenset(
    {
        TypeId.TIMESTAMP_NS,
        TypeId.TIMESTAMPTZ_NS,
        TypeId.UNKNOWN,
        TypeId.VARIANT,
        TypeId.GEOMETRY,
        TypeId.GEOGRAPHY,
    }
)

_FIXED = re.compile(r"fixed\[\s*([0-9]{1,10})\s*\]")
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,10})\s*,\s*([0-9]{1,10})\s*\)")
_GEOMETRY = re.compile(r"geometry\s*(?:\(([^)]*)\))?", re.IGNORECASE)
_GEOGRAPHY = re.compile(r"geography\s*(?:\(([^,)]*)(?:,([^,)]*))?\))?", re.IGNORECASE)


def min_format_version(type_: Type) -> int:
    """Return the first format version that has this type, not counting the fields of nested
    types."""
    return 3 if type_.type_id in _V3_TYPES else 1


def type_from_name(text: str) -> Type:
    """Parse a type that JSON writes as a string, in any case and with inner blanks, as Java
    does."""
    lowered = text.lower()
    known = _UNPARAMETERIZED.get(lowered)
    if known is not None:
        return known
    if matched := _FIXED.fullmatch(lowered):
        return FixedType(int(matched[1]))
    if matched := _DECIMAL.fullmatch(lowered):
        return DecimalType(int(matched[1]), int(matched[2]))
    if matched := _GEOMETRY.fullmatch(text):
        return GeometryType(DEFAULT_CRS if matched[1] is None else matched[1].strip())
    if matched := _GEOGRAPHY.fullmatch(text):
        return _geography(matched[1], matched[2])
    raise InvalidType(f"{text!r} is not an Iceberg type")


def _geography(crs: str | None, algorithm: str | None) -> GeographyType:
    try:
        edges = EdgeAlgorithm((algorithm or EdgeAlgorithm.SPHERICAL).strip().lower())
    except ValueError:
        known = ", ".join(EdgeAlgorithm)
        raise InvalidType(f"edge algorithm {algorithm!r} is not one of: {known}") from None
    return GeographyType(DEFAULT_CRS if crs is None else crs.strip(), edges)


def child_fields(type_: Type) -> tuple[NestedField, ...]:
    """Return the direct fields of a type; none for a primitive."""
    if isinstance(type_, StructType):
        return type_.fields
    if isinstance(type_, ListType):
        return (type_.element,)
    if isinstance(type_, MapType):
        return (type_.key, type_.value)
    return ()


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field at any level of a schema, with its full name."""

    name: str
    """From the root, such as `points.element.x`: Java's `Schema.findColumnName`."""
    field: NestedField


def fields_by_id(schema: StructType) -> Mapping[int, SchemaField]:
    """Return all fields at every level, a parent before its children."""
    return {found.field.field_id: found for found in _nested_fields(schema, "")}


def _nested_fields(type_: Type, prefix: str) -> Iterator[SchemaField]:
    for child in child_fields(type_):
        name = f"{prefix}{child.name}"
        yield SchemaField(name, child)
        yield from _nested_fields(child.type, f"{name}.")
