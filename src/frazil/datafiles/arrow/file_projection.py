"""The columns of a data file read as the columns of a schema, whatever the table's was when the
file was written.

Columns are found by field id at every level (spec, "Column Projection"): renamed, reordered and
promoted ones, and those that came later, which have their initial default or null. What depends on
the file's schema alone is worked out once a file. Runs on executors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from frazil.datafiles.arrow.arrow_constants import constant
from frazil.datafiles.arrow.arrow_spatial import is_well_known_binary, to_file
from frazil.datafiles.arrow.arrow_types import field_id_of, is_variant
from frazil.datafiles.arrow.leaf_conversion import convert_leaf, misfit
from frazil.datafiles.arrow.nested_arrays import batch_of, is_list, list_of, map_of, struct_of
from frazil.datafiles.footers.parquet_schema import fields_by_id
from frazil.values.name_mapping import MappedField, NameMapping
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest

_NO_CONSTANTS: Final[Mapping[int, Any]] = {}
_NO_NAMES: Final = MappedField(None, {})
Fill = Callable[[int], pa.Array]
"""Makes a column of so many rows."""


def project(
    batch: pa.RecordBatch,
    file_schema: pa.Schema,
    schema: StructType,
    target: pa.Schema,
    name_mapping: NameMapping | None = None,
    constants: Mapping[int, Any] = _NO_CONSTANTS,
) -> pa.RecordBatch:
    """A batch of a file in the columns of `target`; see `Projection`, which many batches share."""
    return Projection(file_schema, schema, target, name_mapping, constants).apply(batch)


class Projection:
    """How the columns of one file become those of `target` (an `arrow_schema`).

    `schema` has the initial defaults. `constants` are values by field id for columns that the file
    does not have although it was written with them: those of identity partition fields.
    """

    def __init__(
        self,
        file_schema: pa.Schema,
        schema: StructType,
        target: pa.Schema,
        name_mapping: NameMapping | None = None,
        constants: Mapping[int, Any] = _NO_CONSTANTS,
    ) -> None:
        resolver = _Resolver(
            {field_id: found.field for field_id, found in fields_by_id(schema).items()}, constants
        )
        columns = _file_columns(file_schema, name_mapping)
        self._target = target
        self._columns = [resolver.resolve(field, columns, "") for field in target]
        self.columns = tuple(one.name for one in self._columns if isinstance(one, _Found))
        """The top-level columns of the file that are needed."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` has at least the file's columns `columns`."""
        arrays = []
        for field, column in zip(self._target, self._columns, strict=True):
            if isinstance(column, _Found):
                array = column.convert(batch.column(column.name))
                _refuse_nulls(field, array)
            else:
                array = column(len(batch))
            arrays.append(array)
        return batch_of(arrays, self._target, len(batch))


@dataclass(frozen=True, slots=True)
class _Found:
    """A column, or a field of a struct, that the file has."""

    name: str
    convert: Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class _FileColumn:
    """A column of the file or a part of one, with its id: its own or the name mapping's."""

    name: str
    field_id: int | None
    type: pa.DataType
    parts: tuple[_FileColumn, ...]


# --- the file's columns ----------------------------------------------------------------------


def _file_columns(schema: pa.Schema, mapping: NameMapping | None) -> tuple[_FileColumn, ...]:
    columns = tuple(_file_column(field.name, field) for field in schema)
    if any(_has_ids(column) for column in columns):
        return columns
    if mapping is not None:
        return tuple(_mapped(column, mapping) for column in columns)
    # As Java's `ParquetSchemaUtil.addFallbackIds`: the first columns are those of the first schema.
    return tuple(
        _FileColumn(column.name, place, column.type, column.parts)
        for place, column in enumerate(columns, start=1)
    )


def _file_column(name: str, field: pa.Field) -> _FileColumn:
    parts = tuple(_file_column(part, child) for part, child in _parts(field.type))
    return _FileColumn(name, field_id_of(field), field.type, parts)


def _parts(type_: Any) -> Sequence[tuple[str, pa.Field]]:
    if pa.types.is_struct(type_):
        return [(field.name, field) for field in type_]
    if pa.types.is_map(type_):
        return [("key", type_.key_field), ("value", type_.item_field)]
    return [("element", type_.value_field)] if is_list(type_) else []


def _has_ids(column: _FileColumn) -> bool:
    return column.field_id is not None or any(_has_ids(part) for part in column.parts)


def _mapped(column: _FileColumn, mapping: NameMapping) -> _FileColumn:
    field = mapping.get(column.name, _NO_NAMES)
    parts = tuple(_mapped(part, field.fields) for part in column.parts)
    return _FileColumn(column.name, field.field_id, column.type, parts)


# --- how they become the target's ------------------------------------------------------------


class _Resolver:
    def __init__(self, fields: Mapping[int, NestedField], constants: Mapping[int, Any]) -> None:
        self._fields = fields
        self._constants = constants

    def resolve(
        self, target: pa.Field, columns: Sequence[_FileColumn], prefix: str
    ) -> _Found | Fill:
        path = f"{prefix}{target.name}"
        wanted = field_id_of(target)
        for column in columns:
            if column.field_id == wanted and wanted is not None:
                return _Found(column.name, self._converter(column, target.type, path))
        return self._fill(target, wanted, path)

    def _fill(self, target: pa.Field, wanted: int | None, path: str) -> Fill:
        field = None if wanted is None else self._fields.get(wanted)
        value = None
        if wanted is not None and wanted in self._constants:
            value = self._constants[wanted]
        elif field is not None:
            value = field.initial_default
        if value is None and not target.nullable:
            raise BadRequest(
                f"column {path} is required, but the file has no column with field id {wanted}, "
                "and there is no initial default"
            )
        if value is None or field is None:
            return lambda rows: pa.nulls(rows, target.type)
        if pa.types.is_struct(target.type):
            fills = [self._part_fill(child, f"{path}.") for child in target.type]
            return lambda rows: pa.StructArray.from_arrays(
                [fill(rows) for fill in fills], fields=list(target.type)
            )
        made = constant(value, target.type)
        return lambda rows: made(rows)

    def _part_fill(self, child: pa.Field, prefix: str) -> Fill:
        return self._fill(child, field_id_of(child), f"{prefix}{child.name}")

    def _converter(
        self, column: _FileColumn, target: Any, path: str
    ) -> Callable[[pa.Array], pa.Array]:
        types = pa.types
        if types.is_null(column.type):
            # Written while the column's type was unknown, by a writer that stores such columns.
            return lambda array: pa.nulls(len(array), target)
        if is_variant(target):
            return _variant_converter(column, target, path)
        if types.is_struct(target):
            return self._struct_converter(column, target, path)
        if types.is_map(target):
            if not types.is_map(column.type):
                raise misfit(column.type, target, path)
            key = self._converter(column.parts[0], target.key_field.type, f"{path}.key")
            value = self._converter(column.parts[1], target.item_field.type, f"{path}.value")
            if column.type == target and key is value is _as_it_is:
                return _as_it_is
            return lambda array: map_of(array, key, value, target, path)
        if types.is_list(target):
            if not is_list(column.type):
                raise misfit(column.type, target, path)
            element = self._converter(column.parts[0], target.value_field.type, f"{path}.element")
            if column.type == target and element is _as_it_is:
                return _as_it_is
            return lambda array: list_of(array, element, target, path)
        if column.type == target:
            return _as_it_is
        if is_well_known_binary(target):
            return lambda array: to_file(array, target, path)
        return lambda array: convert_leaf(array, target, path)

    def _struct_converter(
        self, column: _FileColumn, target: Any, path: str
    ) -> Callable[[pa.Array], pa.Array]:
        if not pa.types.is_struct(column.type):
            raise misfit(column.type, target, path)
        parts = [self.resolve(field, column.parts, f"{path}.") for field in target]
        if column.type == target and all(
            isinstance(part, _Found) and part.name == field.name and part.convert is _as_it_is
            for part, field in zip(parts, target, strict=True)
        ):
            return _as_it_is

        def convert(array: pa.Array) -> pa.Array:
            children = [
                part.convert(array.field(part.name))
                if isinstance(part, _Found)
                else part(len(array))
                for part in parts
            ]
            return struct_of(array, children, target, path)

        return convert


def _as_it_is(array: pa.Array) -> pa.Array:
    return array


def _variant_converter(
    column: _FileColumn, target: Any, path: str
) -> Callable[[pa.Array], pa.Array]:
    names = {part.name for part in column.parts}
    if not {"metadata", "value"} <= names:
        raise misfit(column.type, target, path)
    if "typed_value" in names:
        raise BadRequest(
            f"column {path}: the file has its variants shredded into typed columns, which is read "
            "by Iceberg's runtime jar alone: put it on Spark's classpath"
        )

    def convert(array: pa.Array) -> pa.Array:
        children = [
            convert_leaf(array.field(field.name), field.type, f"{path}.{field.name}")
            for field in target
        ]
        return struct_of(array, children, target, path)

    return convert


def _refuse_nulls(field: pa.Field, array: pa.Array) -> None:
    if not field.nullable and array.null_count:
        raise BadRequest(
            f"column {field.name} is required, but the file has {array.null_count} nulls in it"
        )
