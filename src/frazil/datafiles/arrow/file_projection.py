"""Reads the columns of a data file as those of a schema, whatever schema the file was written with.

Columns are found by field id at every level (spec, "Column Projection"): renamed, reordered and
promoted ones, and later ones, which have their initial default or null. What depends on the file's
schema alone is computed once for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from frazil.datafiles.arrow.array_conversion import (
    Convert,
    batch_of,
    constant,
    convert_leaf,
    list_of,
    map_of,
    misfit,
    struct_of,
    well_known_binary,
)
from frazil.datafiles.arrow.arrow_types import is_variant, is_well_known_binary
from frazil.values.name_mapping import NameMapping, apply_name_mapping
from frazil.values.parquet_columns import (
    FileColumn,
    columns_of_schema,
    field_id_of,
    has_field_ids,
    is_list,
)
from frazil.values.types import StructType, fields_by_id
from frazil.wire.errors import BadRequest

_NO_CONSTANTS: Final[Mapping[int, Any]] = {}
Fill = Callable[[int], pa.Array]
"""Makes a column with that many rows."""


class Projection:
    """Turns the columns of one file into those of `target` (an `arrow_schema`).

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
        self._fields = {field_id: named.field for field_id, named in fields_by_id(schema).items()}
        self._constants = constants
        columns = _with_ids(columns_of_schema(file_schema), name_mapping)
        self._target = target
        self._sources = [self._resolve(field, columns, "") for field in target]
        self.columns = tuple(source.name for source in self._sources if isinstance(source, _Stored))
        """The top-level columns of the file that are needed."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch that has at least the file's columns `columns`."""
        arrays = []
        for field, source in zip(self._target, self._sources, strict=True):
            if isinstance(source, _Stored):
                array = source.convert(batch.column(source.name))
                _refuse_nulls(field, array)
            else:
                array = source(len(batch))
            arrays.append(array)
        return batch_of(arrays, self._target, len(batch))

    # --- sources of the columns -----------------------------------------------------------------

    def _resolve(
        self, target: pa.Field, columns: Sequence[FileColumn], prefix: str
    ) -> _Stored | Fill:
        path = f"{prefix}{target.name}"
        field_id = field_id_of(target)
        for column in columns:
            if column.field_id == field_id and field_id is not None:
                return _Stored(column.name, self._converter(column, target.type, path))
        return self._fill(target, field_id, path)

    def _fill(self, target: pa.Field, field_id: int | None, path: str) -> Fill:
        field = None if field_id is None else self._fields.get(field_id)
        value = None
        if field_id is not None and field_id in self._constants:
            value = self._constants[field_id]
        elif field is not None:
            value = field.initial_default
        if value is None and not target.nullable:
            raise BadRequest(
                f"column {path} is required, but the file has no column with field id {field_id}, "
                "and there is no initial default"
            )
        if value is None or field is None:
            return lambda rows: pa.nulls(rows, target.type)
        if pa.types.is_struct(target.type):
            fills = [
                self._fill(child, field_id_of(child), f"{path}.{child.name}")
                for child in target.type
            ]
            return lambda rows: pa.StructArray.from_arrays(
                [fill(rows) for fill in fills], fields=list(target.type)
            )
        return constant(value, target.type)

    def _converter(self, column: FileColumn, target: Any, path: str) -> Convert:
        types, stored = pa.types, column.arrow_type
        if types.is_null(stored):
            # Written while the column's type was unknown, by a writer that stores such columns.
            return lambda array: pa.nulls(len(array), target)
        if is_variant(target):
            return _variant_converter(column, target, path)
        if types.is_struct(target):
            return self._struct_converter(column, target, path)
        if types.is_map(target):
            if not types.is_map(stored):
                raise misfit(stored, target, path)
            key = self._converter(column.parts[0], target.key_field.type, f"{path}.key")
            value = self._converter(column.parts[1], target.item_field.type, f"{path}.value")
            if stored == target and key is value is _unchanged:
                return _unchanged
            return lambda array: map_of(array, key, value, target, path)
        if types.is_list(target):
            if not is_list(stored):
                raise misfit(stored, target, path)
            element = self._converter(column.parts[0], target.value_field.type, f"{path}.element")
            if stored == target and element is _unchanged:
                return _unchanged
            return lambda array: list_of(array, element, target, path)
        if stored == target:
            return _unchanged
        if is_well_known_binary(target):
            return lambda array: well_known_binary(array, target, path)
        return lambda array: convert_leaf(array, target, path)

    def _struct_converter(self, column: FileColumn, target: Any, path: str) -> Convert:
        if not pa.types.is_struct(column.arrow_type):
            raise misfit(column.arrow_type, target, path)
        sources = [self._resolve(field, column.parts, f"{path}.") for field in target]
        if column.arrow_type == target and all(
            isinstance(source, _Stored)
            and source.name == field.name
            and source.convert is _unchanged
            for source, field in zip(sources, target, strict=True)
        ):
            return _unchanged

        def convert(array: pa.Array) -> pa.Array:
            children = [
                source.convert(array.field(source.name))
                if isinstance(source, _Stored)
                else source(len(array))
                for source in sources
            ]
            return struct_of(array, children, target, path)

        return convert


@dataclass(frozen=True, slots=True)
class _Stored:
    """A column, or a field of a struct, that the file has."""

    name: str
    convert: Convert


def _with_ids(columns: Sequence[FileColumn], mapping: NameMapping | None) -> Sequence[FileColumn]:
    if has_field_ids(columns):
        return columns
    if mapping is not None:
        return apply_name_mapping(columns, mapping)
    # As Java's `ParquetSchemaUtil.addFallbackIds`: the first columns are those of the first schema.
    return [replace(column, field_id=number) for number, column in enumerate(columns, start=1)]


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _variant_converter(column: FileColumn, target: Any, path: str) -> Convert:
    names = {part.name for part in column.parts}
    if not pa.types.is_struct(column.arrow_type) or not {"metadata", "value"} <= names:
        raise misfit(column.arrow_type, target, path)
    if "typed_value" in names:
        raise BadRequest(
            f"column {path}: the file has its variants shredded into typed columns, which only "
            "Iceberg's runtime jar can read: put it on Spark's classpath"
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
