"""Filters that Spark hands down to a Python source, as filters that the catalog prunes files by.

They leave files out and nothing else: Spark looks at every row again. So a filter that the catalog
would understand in another way than Spark is simply not handed on: texts of uuids are ordered in
another way, and of floating numbers NaN and the two zeros are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from frazil.client.expressions import Expression, col
from frazil.values.types import NestedField, StructType, TypeId

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_COMPARED: Final = frozenset(
    {
        TypeId.BOOLEAN,
        TypeId.INT,
        TypeId.LONG,
        TypeId.DECIMAL,
        TypeId.DATE,
        TypeId.TIMESTAMP,
        TypeId.TIMESTAMPTZ,
        TypeId.STRING,
    }
)
_MAX_VALUES: Final = 1_000


def pruning_filter(filter: Filter, schema: StructType) -> Expression | None:
    """Matches at least the rows that the filter does; None: nothing can be left out by it."""
    from pyspark.sql import datasource as source

    if isinstance(filter, source.Not):
        return _negated(filter.child, schema)
    found = _column(getattr(filter, "attribute", ()), schema)
    if found is None:
        return None
    name, field = found
    if isinstance(filter, source.IsNull):
        return col(name).is_null()
    if isinstance(filter, source.IsNotNull):
        return col(name).not_null()
    if field.type.type_id not in _COMPARED:
        return None
    pruned: Expression | None = _compared(filter, name)
    return pruned


def _compared(filter: Any, name: str) -> Any:
    from pyspark.sql import datasource as source

    value = filter.value
    if isinstance(filter, source.EqualNullSafe) and value is None:
        return col(name).is_null()
    if value is None:
        return None
    if isinstance(filter, source.EqualTo | source.EqualNullSafe):
        return col(name) == value
    if isinstance(filter, source.GreaterThan):
        return col(name) > value
    if isinstance(filter, source.GreaterThanOrEqual):
        return col(name) >= value
    if isinstance(filter, source.LessThan):
        return col(name) < value
    if isinstance(filter, source.LessThanOrEqual):
        return col(name) <= value
    if isinstance(filter, source.In):
        values = [one for one in value if one is not None]
        return col(name).is_in(values) if 0 < len(values) <= _MAX_VALUES else None
    if isinstance(filter, source.StringStartsWith):
        return col(name).starts_with(value)
    return None


def _negated(filter: Filter, schema: StructType) -> Expression | None:
    """Only where the negation holds for no null."""
    from pyspark.sql import datasource as source

    if isinstance(filter, source.EqualTo | source.In | source.StringStartsWith):
        found = pruning_filter(filter, schema)
        return None if found is None else ~found
    return None


def _column(path: tuple[str, ...], schema: StructType) -> tuple[str, NestedField] | None:
    """The full name and the field; names with dots in them could mean another column."""
    if not path or any("." in name for name in path):
        return None
    fields = schema.fields
    found: NestedField | None = None
    for name in path:
        found = next((field for field in fields if field.name == name), None)
        if found is None:
            return None
        fields = found.type.fields if isinstance(found.type, StructType) else ()
    return None if found is None or found.type.is_nested else (".".join(path), found)
