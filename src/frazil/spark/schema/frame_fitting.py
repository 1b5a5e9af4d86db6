"""Frames held against a table's schema before any file is written.

All is done on the plan: what is wrong with the columns is an error here, and what depends on values
(a null in a required column, a number that does not fit) fails the job that writes, naming the
column. No job is run for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyspark.sql.types as st
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from frazil.client.declare.client_table import Table
from frazil.spark.core.name_matching import NameMatcher, column, names_of
from frazil.spark.schema.column_fitting import (
    POLICY_SETTING,
    Assignment,
    ColumnFitter,
    Policy,
    Source,
    assignment,
    parse_policy,
)
from frazil.spark.schema.schema_evolution import Evolution, evolve
from frazil.spark.schema.spark_types import FIELD_ID_METADATA, spark_schema, spark_type
from frazil.values.types import NestedField, StructType, Type, TypeId, child_fields
from frazil.wire.errors import BadRequest


@dataclass(frozen=True)
class Fitted:
    """A frame that can be written."""

    frame: DataFrame
    """Exactly the table's columns, in its order and types."""
    schema: StructType
    """The table's, or what it becomes."""
    updates: tuple[Mapping[str, Any], ...] = ()
    """What makes the schema the table's: for the commit that brings the rows."""
    requirements: tuple[Mapping[str, Any], ...] = ()


def fit(
    frame: DataFrame,
    table: Table,
    *,
    merge_schema: bool = False,
    by_name: bool = True,
    store_assignment: Policy | None = None,
) -> Fitted:
    """Without `store_assignment` the session's policy holds."""
    spark = frame.sparkSession
    names = names_of(spark)
    if store_assignment is None:
        store_assignment = parse_policy(str(spark.conf.get(POLICY_SETTING, "ANSI")))
    if merge_schema and not by_name:
        raise BadRequest("mergeSchema finds columns by name: write the frame by name")
    found = frame.schema
    evolution = evolve(table, found, names) if merge_schema else Evolution(table.schema)
    rules = _ByName(names, store_assignment) if by_name else _ByPosition(store_assignment)
    if not by_name and len(set(map(str.lower, found.names))) < len(found.names):
        # A query may yield a name twice; by position both are meant.
        frame = frame.toDF(*(f"_{place}" for place in range(len(found.names))))
        found = st.StructType(
            [
                st.StructField(name, field.dataType, field.nullable)
                for name, field in zip(frame.columns, found.fields, strict=True)
            ]
        )
    columns, changed = rules.fields(_sources(found), found, evolution.schema, "")
    _raise(rules.problems, str(table))
    fitted = frame.select(*columns) if changed else frame
    return Fitted(fitted, evolution.schema, evolution.updates, evolution.requirements)


def mapped(frame: DataFrame, from_schema: StructType, to_schema: StructType) -> DataFrame:
    """Columns that were read under one schema of a table as those of another, by field id at every
    level; what is missing has its initial default or is null. Columns of the frame that are none of
    the table's, such as `_file`, stay behind them."""
    if from_schema == to_schema:
        return frame
    found = spark_schema(from_schema, field_ids=True)
    rules = _ById()
    columns, changed = rules.fields(_sources(found), found, to_schema, "")
    _raise(rules.problems, "the table's schema")
    if not changed:
        return frame
    of_table = set(found.names)
    others = [column(name) for name in frame.columns if name not in of_table]
    return frame.select(*columns, *others)


def _sources(found: st.StructType) -> list[Source]:
    return [
        Source(column(field.name), field.dataType, field.nullable, field.name)
        for field in found.fields
    ]


def _raise(problems: list[str], where: str) -> None:
    if problems:
        raise BadRequest(f"{where}: {'; '.join(problems)}")


# --- how fields find each other --------------------------------------------------------------


class _Writing(ColumnFitter):
    """What a frame does not have is written with its write default."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    def default(self, target: NestedField) -> Any:
        return target.write_default

    def assign(self, found: st.DataType, target: Type) -> Assignment:
        wanted = _ONLY_FROM.get(target.type_id)
        if wanted is not None and not isinstance(found, wanted | st.NullType):
            return Assignment.REFUSED
        return assignment(found, spark_type(target), self._policy)


_ONLY_FROM: Final[dict[TypeId, type[st.DataType]]] = {
    TypeId.UUID: st.StringType,
    TypeId.FIXED: st.BinaryType,
    TypeId.UNKNOWN: st.NullType,
}
"""Spark's type for these holds more than they do: a number is text, but no uuid."""


class _ByName(_Writing):
    def __init__(self, names: NameMatcher, policy: Policy) -> None:
        super().__init__(policy)
        self._names = names

    def match(self, found: st.StructType, target: StructType, path: str) -> list[int | None]:
        places = self._names.places(found.names, path)
        matched = [places.pop(self._names.key(field.name), None) for field in target.fields]
        prefix = f"{path}." if path else ""
        for place in sorted(places.values()):
            self.problems.append(
                f"column {prefix}{found.names[place]} is not in the table, which has "
                f"{', '.join(field.name for field in target.fields)}: drop it, or write with "
                "mergeSchema"
            )
        return matched


class _ByPosition(_Writing):
    def match(self, found: st.StructType, target: StructType, path: str) -> list[int | None]:
        wanted = len(target.fields)
        if len(found.names) != wanted:
            where = f"column {path}: " if path else ""
            self.problems.append(
                f"{where}{len(found.names)} columns ({', '.join(found.names)}) cannot be written "
                f"by position to {wanted} ({', '.join(field.name for field in target.fields)})"
            )
        return [place if place < len(found.names) else None for place in range(wanted)]


class _ById(ColumnFitter):
    """Columns of a scan: promoted where the newer schema has a wider type."""

    def match(self, found: st.StructType, target: StructType, path: str) -> list[int | None]:
        places = {
            field.metadata[FIELD_ID_METADATA]: place for place, field in enumerate(found.fields)
        }
        return [places.get(field.field_id) for field in target.fields]

    def default(self, target: NestedField) -> Any:
        return target.initial_default

    def assign(self, found: st.DataType, target: Type) -> Assignment:
        return assignment(found, spark_type(target), "strict")


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
