"""Check a frame against a table's schema and convert it before any file is written.

Everything is an expression on the frame's plan; no job runs. Wrong columns raise an error here. A
wrong value, such as a null in a required column, fails the write job with the column's name. The
rows of a Python data source have no plan, and Spark cannot cast them: they are only checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyspark.sql.types as st
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from frazil.client.declare.client_table import Table
from frazil.spark.core.name_matching import NameMatcher, column, names_of
from frazil.spark.executor.file_tasks import Conform
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
from frazil.values.types import NestedField, StructType, Type, TypeId, fields_by_id
from frazil.wire.errors import BadRequest


@dataclass(frozen=True)
class Fitted:
    """A frame whose columns are those of the table."""

    frame: DataFrame
    """The frame with exactly the table's columns, in their order and types."""
    evolution: Evolution
    """The table's schema with the columns that `mergeSchema` adds, for the commit of the rows."""


def fit(frame: DataFrame, table: Table, *, merge_schema: bool = False) -> Fitted:
    """Convert a frame to the table's schema; raise BadRequest if it does not fit."""
    spark = frame.sparkSession
    names = names_of(spark)
    policy = parse_policy(str(spark.conf.get(POLICY_SETTING, "ANSI")))
    source_type = frame.schema
    evolution = evolve(table, source_type, names) if merge_schema else Evolution(table.schema)
    rules = _ByName(names, policy)
    columns, changed = rules.fields(_sources(source_type), source_type, evolution.schema, "")
    _raise(rules.problems, str(table))
    fitted = frame.select(*columns) if changed else frame
    return Fitted(fitted, evolution)


def mapped(frame: DataFrame, from_schema: StructType, to_schema: StructType) -> DataFrame:
    """Convert columns that were read with one schema of a table to those of another schema.

    Fields are matched by ID at every level. A missing field is its initial default or null. Columns
    that are not the table's, such as `_file`, follow.
    """
    if from_schema == to_schema:
        return frame
    source_type = spark_schema(from_schema, field_ids=True)
    rules = _ById()
    columns, changed = rules.fields(_sources(source_type), source_type, to_schema, "")
    _raise(rules.problems, "the table's schema")
    if not changed:
        return frame
    of_table = set(source_type.names)
    others = [column(name) for name in frame.columns if name not in of_table]
    return frame.select(*columns, *others)


def _sources(source_type: st.StructType) -> list[Source]:
    return [
        Source(column(field.name), field.dataType, field.nullable, field.name)
        for field in source_type.fields
    ]


def _raise(problems: list[str], where: str) -> None:
    if problems:
        raise BadRequest(f"{where}: {'; '.join(problems)}")


# --- match fields ----------------------------------------------------------------------------


class _ByName(ColumnFitter):
    """Rules for writes: match fields by name; a missing field is its write default."""

    def __init__(self, names: NameMatcher, policy: Policy) -> None:
        super().__init__()
        self._names = names
        self._policy = policy

    def match(self, source_type: st.StructType, target: StructType, path: str) -> list[int | None]:
        positions = self._names.positions(source_type.names, path)
        matched = [positions.pop(self._names.key(field.name), None) for field in target.fields]
        prefix = f"{path}." if path else ""
        for position in sorted(positions.values()):
            self.problems.append(
                f"column {prefix}{source_type.names[position]} is not in the table, which has "
                f"{', '.join(field.name for field in target.fields)}: drop it, or add it with "
                "merge_schema=True (option mergeSchema)"
            )
        return matched

    def default(self, target: NestedField) -> Any:
        return target.write_default

    def assign(self, source_type: st.DataType, target: Type) -> Assignment:
        wanted = _ONLY_FROM.get(target.type_id)
        if wanted is not None and not isinstance(source_type, wanted | st.NullType):
            return Assignment.REFUSED
        return assignment(source_type, spark_type(target), self._policy)


_ONLY_FROM: Final[dict[TypeId, type[st.DataType]]] = {
    TypeId.UUID: st.StringType,
    TypeId.FIXED: st.BinaryType,
    TypeId.UNKNOWN: st.NullType,
}
"""Spark's types for these have more values: Spark stores a number as text, but it is no UUID."""


class _ById(ColumnFitter):
    """Rules for scans: match fields by ID and promote them to a wider type."""

    def match(self, source_type: st.StructType, target: StructType, path: str) -> list[int | None]:
        positions = {
            field.metadata[FIELD_ID_METADATA]: index
            for index, field in enumerate(source_type.fields)
        }
        return [positions.get(field.field_id) for field in target.fields]

    def default(self, target: NestedField) -> Any:
        return target.initial_default

    def assign(self, source_type: st.DataType, target: Type) -> Assignment:
        return assignment(source_type, spark_type(target), "strict")


# --- rows of a data source ------------------------------------------------------------------------

_INTEGERS: Final[Sequence[type[st.DataType]]] = (
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
)


def conform(source_type: st.StructType, schema: StructType, table: str) -> Conform:
    """Match the columns of a data source by name; raise BadRequest if they do not fit the table."""
    unmatched = {name.lower(): index for index, name in enumerate(source_type.names)}
    positions, problems = [], []
    for field in schema.fields:
        index = unmatched.pop(field.name.lower(), None)
        positions.append(index)
        if index is None:
            problem = _missing(field)
        else:
            problem = _misfit(source_type.fields[index].dataType, field)
        if problem is not None:
            problems.append(problem)
    problems += [
        f"column {source_type.names[index]} is not in the table" for index in unmatched.values()
    ]
    if len(source_type.names) != len({name.lower() for name in source_type.names}):
        problems.append("the frame has a column twice")
    if problems:
        known = ", ".join(field.name for field in schema.fields)
        raise BadRequest(f"{table}, which has {known}: {'; '.join(problems)}")
    return Conform(schema, tuple(positions))


def _missing(field: NestedField) -> str | None:
    if field.required and field.write_default is None:
        return f"column {field.name} is missing; it is required and has no default"
    return None


def _misfit(source_type: st.DataType, field: NestedField) -> str | None:
    target = spark_type(field.type)
    if isinstance(source_type, st.NullType) or source_type.simpleString() == target.simpleString():
        return None
    if _is_wider(source_type, target):
        return None
    return (
        f"column {field.name} has the type {source_type.simpleString()}, but the table has "
        f"{target.simpleString()}: cast it"
    )


def _is_wider(source_type: st.DataType, target: st.DataType) -> bool:
    if type(source_type) in _INTEGERS and type(target) in _INTEGERS:
        return _INTEGERS.index(type(source_type)) < _INTEGERS.index(type(target))
    if isinstance(source_type, st.DecimalType) and isinstance(target, st.DecimalType):
        return source_type.scale == target.scale and source_type.precision < target.precision
    return isinstance(source_type, st.FloatType) and isinstance(target, st.DoubleType)


# --- names in files -------------------------------------------------------------------------------
# Spark's Parquet readers find the columns of rows by field ID, but find the statistics that skip
# files and row groups by name. If a name now belongs to another column, they would skip rows that
# match.


def unpushable(column: Column, name: str) -> Column:
    """Return the column in an expression that Spark pushes no filter through.

    Spark does not push filters below nondeterministic projections. This one only looks like one.
    """
    return F.when(F.spark_partition_id() >= 0, column).alias(name)


def is_named_so(field: NestedField, schema: StructType) -> bool:
    """Return whether a schema has the same names for a column and all fields inside it.

    Iceberg's runtime plans a scan of an old snapshot with the names of that snapshot's schema, but
    looks them up in the current schema.
    """
    known = _ids_by_name(schema.fields)
    return all(known.get(name) == field_id for name, field_id in _ids_by_name((field,)).items())


def is_always_named_so(field: NestedField, schemas: Iterable[StructType]) -> bool:
    """Return whether no schema gives one of the column's names, at any level, to another field.

    Files keep the names that they were written with.
    """
    wanted = _ids_by_name((field,))
    return all(
        wanted.get(name, field_id) == field_id
        for schema in schemas
        for name, field_id in _ids_by_name(schema.fields).items()
    )


def _ids_by_name(fields: tuple[NestedField, ...]) -> dict[str, int]:
    known = fields_by_id(StructType(fields))
    return {field.name: field_id for field_id, field in known.items()}
