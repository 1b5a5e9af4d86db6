"""Where names are not enough: columns that were called otherwise before, or as another one is now.

Readers of the JVM find columns by field id when they read rows, but by name when they look whether
a file or a row group can be left out. A name that has changed its column since would leave out
rows that match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F

from frazil.values.types import NestedField, StructType, child_fields


def unpushable(column: Column, name: str) -> Column:
    """The same values, in an expression that filters are not pushed through.

    Spark moves no filter below a projection that is not deterministic; this one only says so.
    """
    return F.when(F.spark_partition_id() >= 0, column).alias(name)


def is_named_so(field: NestedField, schema: StructType) -> bool:
    """Whether a schema calls a column, and all that is in it, by the same names.

    Iceberg's runtime plans a scan of an old snapshot in the names of that snapshot's schema, but
    looks them up in the table's present one.
    """
    known = dict(_names((*schema.fields,), ""))
    return all(known.get(name) == field_id for name, field_id in _names((field,), ""))


def is_always_named_so(field: NestedField, schemas: Iterable[StructType]) -> bool:
    """Whether a column's names, at every level, were never another column's in these schemas.

    Files keep the names that they were written with.
    """
    wanted = dict(_names((field,), ""))
    return all(
        wanted.get(name, field_id) == field_id
        for schema in schemas
        for name, field_id in _names((*schema.fields,), "")
    )


def _names(fields: tuple[NestedField, ...], prefix: str) -> Iterator[tuple[str, int]]:
    for field in fields:
        name = f"{prefix}{field.name}"
        yield name, field.field_id
        yield from _names(child_fields(field.type), f"{name}.")
