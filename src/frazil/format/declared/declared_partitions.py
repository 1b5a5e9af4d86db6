"""Partition tuples of declared files: from JSON to Iceberg's values, by the types of the spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from frazil.format.declared.declared_values import Misfit
from frazil.format.metadata.partition_spec import PartitionField, PartitionSpec, partition_type
from frazil.format.metadata.schema import Schema
from frazil.values.single_value import InvalidValue, check_value, from_json
from frazil.values.transforms import Bucket, Day, Truncate, Void, apply
from frazil.values.types import INT, Type, TypeId

WirePartition: TypeAlias = tuple[Any, ...] | Mapping[int, Any]
_Reader: TypeAlias = Callable[[Any], Any]

_FIELD: Final = "partition"
_REMEMBERED_TUPLES: Final = 1 << 10


@lru_cache(maxsize=64)
def partition_reader(spec: PartitionSpec, schema: Schema) -> PartitionReader:
    """One for all requests; schema is the table's current one."""
    return PartitionReader(spec, schema)


class PartitionReader:
    """Reads the partition tuples of one spec.

    Files of one partition come together, so that a tuple is read once. Floating point values are
    not remembered: 0.0 and -0.0 are one key, but two partitions.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._spec = spec
        types = [field.type for field in partition_type(spec, schema).fields]
        self._readers = [
            _reader(part, type_) for part, type_ in zip(spec.fields, types, strict=True)
        ]
        self._positions = {part.field_id: at for at, part in enumerate(spec.fields)}
        self._known: dict[Any, tuple[Any, ...]] | None = {}
        if any(type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE) for type_ in types):
            self._known = None

    def read(self, partition: WirePartition) -> tuple[Any, ...]:
        """The tuple in the order of the spec's fields; Misfit where it does not fit."""
        if not isinstance(partition, tuple):
            partition = self._in_order(partition)
        if self._known is None:
            return self._read(partition)
        # True, 1 and 1.0 are one key of a dict, but only one of them is an int.
        key = (partition, *map(type, partition))
        known = self._known.get(key)
        if known is None:
            known = self._read(partition)
            if len(self._known) >= _REMEMBERED_TUPLES:
                self._known.clear()
            self._known[key] = known
        return known

    def _in_order(self, partition: Mapping[int, Any]) -> tuple[Any, ...]:
        """Java's older form, an object by field id, leaves null values out."""
        values: list[Any] = [None] * len(self._readers)
        for field_id, value in partition.items():
            at = self._positions.get(field_id)
            if at is None:
                raise Misfit(
                    _FIELD,
                    f"{field_id} is not the id of a field of {self._shown()}",
                )
            values[at] = value
        return tuple(values)

    def _read(self, partition: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(partition) != len(self._readers):
            raise Misfit(
                _FIELD,
                f"there are {len(partition)} values, but {len(self._readers)} fields in "
                f"{self._shown()}: send one value, or null, for each field in their order",
            )
        values = []
        for read, part, value in zip(self._readers, self._spec.fields, partition, strict=True):
            try:
                values.append(None if value is None else read(value))
            except InvalidValue as error:
                raise Misfit(f"{_FIELD}.{part.name}", str(error)) from None
        return tuple(values)

    def _shown(self) -> str:
        fields = ", ".join(f"{part.field_id}: {part.name}" for part in self._spec.fields)
        return f"spec-id {self._spec.spec_id}" + (f" ({fields})" if fields else ", unpartitioned")


def _reader(part: PartitionField, type_: Type) -> _Reader:
    """Reads the values of one field that are not null."""
    transform = part.transform
    match transform:
        case Void():
            return _refuses("a void transform has no other value than null")
        case Day():
            return _read_day
        case Bucket():
            return _bucket_reader(transform)
        case Truncate():
            return _truncated_reader(transform, type_)
    if type_.type_id is TypeId.UNKNOWN:
        return _refuses("the source column is not in the current schema: only null can be kept")
    return lambda value: from_json(type_, value)


def _refuses(why: str) -> _Reader:
    def refuse(value: Any) -> Any:
        raise InvalidValue(f"{value!r} is not allowed: {why}")

    return refuse


def _read_day(value: Any) -> Any:
    """The result of `day` is a date in Java and an int in the specification: both are accepted."""
    if isinstance(value, int) and not isinstance(value, bool):
        check_value(INT, value)
        return value
    return from_json(Day().result_type(INT), value)


def _bucket_reader(transform: Bucket) -> _Reader:
    def read(value: Any) -> Any:
        bucket = from_json(INT, value)
        if not 0 <= bucket < transform.num_buckets:
            raise InvalidValue(
                f"{bucket} is not one of the buckets 0 to {transform.num_buckets - 1}"
            )
        return bucket

    return read


def _truncated_reader(transform: Truncate, type_: Type) -> _Reader:
    if type_.type_id is TypeId.UNKNOWN:
        return _refuses("the source column is not in the current schema: only null can be kept")

    def read(value: Any) -> Any:
        truncated = from_json(type_, value)
        if apply(transform, type_, truncated) != truncated:
            raise InvalidValue(f"{value!r} is not a result of {transform}")
        return truncated

    return read
