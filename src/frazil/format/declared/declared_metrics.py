"""Column metrics of declared files: checked against the table's schemas, bounds made bytes.

Files of one request nearly always have metrics for the same columns. What depends on the columns
alone is worked out once for each list of field ids; a file then costs a look-up and its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import gt
from typing import Any, Final

from frazil.format.declared.declared_bounds import BoundsPlan
from frazil.format.declared.declared_values import (
    CONVERSION_ERRORS,
    Misfit,
    hex_bound,
    is_above,
    typed_bound,
)
from frazil.format.metadata.content_files import EncodedBounds
from frazil.format.metadata.schema import Schema
from frazil.values.types import BOOLEAN, INT, LONG, STRING, UNKNOWN, Type, TypeId
from frazil.wire.content_files import ContentFile, CountMap, ValueMap

FIRST_RESERVED_ID: Final = 2**31 - 1 - 200
"""Spec, "Reserved Field IDs": no column of a table has this id or a higher one."""

_RESERVED: Final[Mapping[int, tuple[str, Type]]] = {
    2147483646: ("_file", STRING),
    2147483645: ("_pos", LONG),
    2147483644: ("_deleted", BOOLEAN),
    2147483643: ("_spec_id", INT),
    2147483546: ("file_path", STRING),
    2147483545: ("pos", LONG),
    2147483543: ("_change_type", STRING),
    2147483542: ("_change_ordinal", INT),
    2147483541: ("_commit_snapshot_id", LONG),
    2147483540: ("_row_id", LONG),
    2147483539: ("_last_updated_sequence_number", LONG),
}
_REMEMBERED_PLANS: Final = 64

_LOWER: Final = "lower-bounds"
_UPPER: Final = "upper-bounds"


class Columns:
    """Every column that a file of the table may have: those of all schemas, and reserved ones.

    A file may be older than the current schema. Where a column's type was promoted the newest one
    counts, since readers read bounds by it.
    """

    def __init__(self, schemas: Sequence[Schema], current: Schema) -> None:
        self._types: dict[int, tuple[str, Type]] = dict(_RESERVED)
        for schema in (*sorted(schemas, key=lambda one: one.schema_id), current):
            for field_id, field in schema.fields_by_id.items():
                self._types[field_id] = schema.full_names[field_id], field.type
        self.required_ids = frozenset(_required_ids(current))
        """Top-level columns; a nested one is null where what it is nested in is."""

    def check(self, name: str, field_ids: Sequence[int]) -> None:
        for field_id in field_ids:
            if field_id not in self._types and field_id < FIRST_RESERVED_ID:
                raise Misfit(name, f"{field_id} is not the id of a column in a schema of the table")

    def type(self, field_id: int) -> Type:
        return self._types.get(field_id, ("", UNKNOWN))[1]

    def shown(self, field_id: int) -> str:
        name, type_ = self._types.get(field_id, ("reserved", UNKNOWN))
        return f"field {field_id} ({name}, {type_})"


def _required_ids(schema: Schema) -> list[int]:
    return [field.field_id for field in schema.struct.fields if field.required]


@lru_cache(maxsize=64)
def metrics_reader(schemas: tuple[Schema, ...], current: Schema) -> MetricsReader:
    """One for all requests while a table's schemas stay as they are."""
    return MetricsReader(schemas, current)


class MetricsReader:
    """Reads the metrics of content files of one table. What it remembers is never wrong, so that
    several threads may use it."""

    def __init__(self, schemas: Sequence[Schema], current: Schema) -> None:
        self._columns = Columns(schemas, current)
        self._known_ids: set[tuple[int, ...]] = set()
        self._plans: dict[tuple[tuple[int, ...], bool], BoundsPlan] = {}

    # --- counts -----------------------------------------------------------------------------

    def check_ids(self, name: str, counts: CountMap | None) -> None:
        """Refuses counts of columns that the table never had."""
        if counts is None or counts.keys in self._known_ids:
            return
        self._columns.check(name, counts.keys)
        if len(self._known_ids) >= _REMEMBERED_PLANS:
            self._known_ids.clear()
        self._known_ids.add(counts.keys)

    def check_counts(self, file: ContentFile, *, is_data: bool) -> None:
        """Refuses counts that no file can have, and nulls where the schema allows none."""
        nulls, nans, totals = file.null_value_counts, file.nan_value_counts, file.value_counts
        if nulls is not None and any(nulls.values):
            self._check_part("null-value-counts", nulls, totals)
            if is_data and self._columns.required_ids:
                self._check_required(nulls)
        if nans is not None and any(nans.values):
            self._check_part("nan-value-counts", nans, totals)

    def _check_part(self, name: str, part: CountMap, whole: CountMap | None) -> None:
        if whole is None:
            return
        if part.keys == whole.keys and not any(map(gt, part.values, whole.values)):
            return
        for field_id, count in part.items():
            total = whole.get(field_id)
            if total is not None and count > total:
                raise Misfit(
                    name,
                    f"{self._columns.shown(field_id)} has {count}, more than the {total} of "
                    "value-counts",
                )

    def _check_required(self, nulls: CountMap) -> None:
        for field_id, count in zip(nulls.keys, nulls.values, strict=True):
            if count and field_id in self._columns.required_ids:
                raise Misfit(
                    "null-value-counts",
                    f"{self._columns.shown(field_id)} is required, but the file has {count} nulls "
                    "in it",
                )

    # --- bounds -----------------------------------------------------------------------------

    def bounds(self, file: ContentFile) -> tuple[EncodedBounds | None, EncodedBounds | None]:
        """The lower and the upper bounds."""
        lower, upper = file.lower_bounds, file.upper_bounds
        is_hex = file.bounds_encoding is not None
        lows = None if lower is None else self._encode(_LOWER, lower, is_hex)
        highs = None if upper is None else self._encode(_UPPER, upper, is_hex)
        if lows is not None and highs is not None:
            assert lower is not None
            assert upper is not None
            plan = self._plans.get((lower.keys, is_hex)) if lower.keys == upper.keys else None
            if plan is None or not plan.is_in_order(lower.values, upper.values):
                self._check_order(lows, highs)
        return lows, highs

    def _encode(self, name: str, bounds: ValueMap, is_hex: bool) -> EncodedBounds:
        plan = self._plans.get((bounds.keys, is_hex)) or self._plan(name, bounds.keys, is_hex)
        try:
            return EncodedBounds(plan.encode(bounds.values))
        except CONVERSION_ERRORS:
            raise self._misfit(name, bounds, is_hex) from None

    def _plan(self, name: str, field_ids: tuple[int, ...], is_hex: bool) -> BoundsPlan:
        self._columns.check(name, field_ids)
        types = tuple(self._columns.type(field_id) for field_id in field_ids)
        for field_id, type_ in zip(field_ids, types, strict=True):
            if not type_.is_primitive and type_.type_id is not TypeId.VARIANT:
                raise Misfit(
                    name,
                    f"{self._columns.shown(field_id)} is not primitive, it has no bounds: "
                    "remove it",
                )
        plan = BoundsPlan(field_ids, types, is_hex=is_hex)
        if len(self._plans) >= _REMEMBERED_PLANS:
            self._plans.clear()
        self._plans[field_ids, is_hex] = plan
        return plan

    def _misfit(self, name: str, bounds: ValueMap, is_hex: bool) -> Misfit:
        """Which value it was, once it is known that there is one."""
        convert: Callable[[Type, Any], bytes] = hex_bound if is_hex else typed_bound
        for field_id, value in zip(bounds.keys, bounds.values, strict=True):
            try:
                convert(self._columns.type(field_id), value)
            except CONVERSION_ERRORS as error:
                return Misfit(name, f"{self._columns.shown(field_id)}: {error}")
        raise AssertionError("every bound can be converted")

    def _check_order(self, lower: EncodedBounds, upper: EncodedBounds) -> None:
        """A lower bound above the upper one would hide every row of the file."""
        highs = dict(upper.items())
        for field_id, low in lower.items():
            high = highs.get(field_id)
            if high is not None and is_above(self._columns.type(field_id), low, high):
                raise Misfit(_LOWER, f"{self._columns.shown(field_id)} lies above its upper bound")
