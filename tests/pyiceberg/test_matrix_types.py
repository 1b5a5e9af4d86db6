"""Partition values and bounds of every type, declared in JSON, mean the same to stock PyIceberg."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, IsNull, Or
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.pyiceberg.audit import audit
from tests.pyiceberg.tables import read

UTC = datetime.UTC
IDENTITY: Transform[Any, Any] = IdentityTransform()
VOID: Transform[Any, Any] = VoidTransform()
# PyIceberg's models hide the arguments of their constructors.
equal: Any = EqualTo
at_least: Any = GreaterThanOrEqual
is_null: Any = IsNull
BY_TEN: Transform[Any, Any] = TruncateTransform(10)
DAYS: tuple[Transform[Any, Any], ...] = (YearTransform(), MonthTransform(), DayTransform())


@dataclass(frozen=True)
class Kind:
    iceberg: IcebergType
    arrow: pa.DataType
    values: tuple[Any, ...]
    """Values in ascending order; the first and the last are edge cases."""
    transforms: tuple[Transform[Any, Any], ...] = ()
    upserts: bool = True
    """Whether Arrow can compare such values, as PyIceberg's upsert requires."""


KINDS: Mapping[str, Kind] = {
    "boolean": Kind(BooleanType(), pa.bool_(), (False, True)),
    "int": Kind(
        IntegerType(),
        pa.int32(),
        (-(2**31) + 8, -1, 0, 2**31 - 1),
        (BucketTransform(5), TruncateTransform(10)),
    ),
    "long": Kind(
        LongType(),
        pa.int64(),
        (-(2**63) + 8, -1, 2**53 + 1, 2**63 - 1),
        (BucketTransform(5), TruncateTransform(10)),
    ),
    "float": Kind(FloatType(), pa.float32(), (-2.5, -0.5, 1.5, 2.0**120)),
    "double": Kind(DoubleType(), pa.float64(), (-2.5, -1e-300, 0.1, 1.7e308)),
    "decimal": Kind(
        DecimalType(12, 3),
        pa.decimal128(12, 3),
        (Decimal("-999999999.900"), Decimal("-0.001"), Decimal("0.000"), Decimal("999999999.999")),
        (BucketTransform(5), TruncateTransform(100)),
    ),
    "date": Kind(
        DateType(),
        pa.date32(),
        (datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)),
        (*DAYS, BucketTransform(5)),
    ),
    "time": Kind(
        TimeType(),
        pa.time64("us"),
        (datetime.time(0), datetime.time(12, 30, 0, 1), datetime.time(23, 59, 59, 999999)),
    ),
    "timestamp": Kind(
        TimestampType(),
        pa.timestamp("us"),
        (
            datetime.datetime(1, 1, 1),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
            datetime.datetime(2026, 5, 1, 12),
            datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
        ),
        (*DAYS, HourTransform(), BucketTransform(5)),
    ),
    "timestamptz": Kind(
        TimestamptzType(),
        pa.timestamp("us", tz="UTC"),
        (
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime.datetime(2026, 5, 1, 12, tzinfo=UTC),
        ),
        (*DAYS, HourTransform(), BucketTransform(5)),
    ),
    "string": Kind(
        StringType(),
        pa.string(),
        ("", "a/b=c %25 ?&", "long " * 20 + "\U0010ffff", "\U0010ffff" * 20),
        (BucketTransform(5), TruncateTransform(3)),
    ),
    "uuid": Kind(
        UUIDType(),
        pa.binary(16),
        # All UUIDs have the same first bit: Java orders UUIDs as signed numbers, PyIceberg as
        # bytes.
        (uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=2**127 - 1)),
        (BucketTransform(5),),
        upserts=False,
    ),
    "fixed": Kind(FixedType(4), pa.binary(4), (b"\0\0\0\0", b"ab\xffd", b"\xff\xff\xff\xff")),
    "binary": Kind(
        BinaryType(),
        pa.large_binary(),
        (b"", b"\x00\xff", b"x" * 40, b"\xff" * 20),
        (BucketTransform(5),),
    ),
}


def _cases() -> list[Any]:
    cases = []
    for place, (name, kind) in enumerate(KINDS.items()):
        for transform in (IDENTITY, *kind.transforms, *((None, VOID) if kind.upserts else ())):
            marks = () if transform is IDENTITY else (pytest.mark.full,)
            version = place % 3 + 1
            cases.append(
                pytest.param(
                    name, transform, version, marks=marks, id=f"{name}-{transform}-v{version}"
                )
            )
    return cases


@pytest.mark.parametrize(("name", "transform", "version"), _cases())
def test_values_mean_the_same_to_both(
    frazil: Catalog,
    stock: Catalog,
    namespace: str,
    name: str,
    transform: Transform[Any, Any] | None,
    version: int,
) -> None:
    kind = KINDS[name]
    spec = UNPARTITIONED_PARTITION_SPEC
    if transform is not None:
        spec = PartitionSpec(PartitionField(2, 1000, transform, "part"))
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "value", kind.iceberg, required=False),
        identifier_field_ids=[1],
    )
    made = [
        catalog.create_table(
            where, schema, partition_spec=spec, properties={"format-version": str(number)}
        )
        for catalog, where, number in ((frazil, f"{namespace}.t", version), (stock, "ns.t", 2))
    ]
    for step in (0, 1, 2, 3, 4) if kind.upserts else (0, 1, 3, 4):
        for table in made:
            _step(table, kind, step)
        assert read(made[0]) == read(made[1]), step
    audit(made[0])


def _step(table: Table, kind: Kind, step: int) -> None:
    values: list[Any] = [None, *kind.values, None, *kind.values]
    middle = kind.values[len(kind.values) // 2]
    match step:
        case 0:
            table.append(_rows(kind, values))
        case 1:
            table.delete(equal("value", middle))
        case 2:
            table.upsert(_rows(kind, [kind.values[-1], None, kind.values[0], middle]))
        case 3:
            matching = Or(is_null("value"), at_least("value", kind.values[-1]))
            table.overwrite(_rows(kind, [middle], first=100), overwrite_filter=matching)
        case _:
            table.delete(equal("value", kind.values[0]))


def _rows(kind: Kind, values: list[Any], first: int = 0) -> pa.Table:
    plain = [value.bytes if isinstance(value, uuid.UUID) else value for value in values]
    numbers = pa.array(range(first, first + len(values)), pa.int64())
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", kind.arrow)])
    return pa.Table.from_arrays([numbers, pa.array(plain, kind.arrow)], schema=schema)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("float", float("-inf")),
        pytest.param("float", float("nan"), marks=pytest.mark.full),
        pytest.param("double", float("inf"), marks=pytest.mark.full),
        pytest.param("double", float("nan")),
    ],
)
def test_numbers_that_json_has_not(
    frazil: Catalog, stock: Catalog, namespace: str, name: str, value: float
) -> None:
    """Such numbers do no harm as bounds. As a partition value they are refused before the
    request is sent."""
    kind = KINDS[name]
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "value", kind.iceberg, required=False),
        identifier_field_ids=[1],
    )
    ours = frazil.create_table(f"{namespace}.t", schema)
    theirs = stock.create_table("ns.t", schema)
    for table in (ours, theirs):
        table.append(_rows(kind, [value, 1.5, None, value]))
        table.append(_rows(kind, [1.5, 2.5], first=10))
        table.delete(equal("value", 1.5))
        table.upsert(_rows(kind, [0.5, value, value]))
    assert str(read(ours)) == str(read(theirs))
    audit(ours)

    spec = PartitionSpec(PartitionField(2, 1000, IDENTITY, "part"))
    if value != value:
        return  # stock PyIceberg's writer fails too
    parted = frazil.create_table(f"{namespace}.parted", schema, partition_spec=spec)
    with pytest.raises(ValueError, match=r"(inf|nan) cannot be written as a JSON number"):
        parted.append(_rows(kind, [1.5, value]))
    parted.append(_rows(kind, [1.5]))
    assert len(read(parted)) == 1
    audit(parted)
