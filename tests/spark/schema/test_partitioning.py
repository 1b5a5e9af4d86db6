"""Partition transforms in Spark give Iceberg's values; folders and batches preserve them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.datafiles.footers.footer_partitions import partition_fields
from frazil.datafiles.writing.row_partitions import partition_folder, partition_value, split
from frazil.spark.schema.partition_transforms import partition_columns, transform_column
from frazil.spark.writing.partition_folders import IN_FILE, folder_columns, folder_values
from frazil.values import temporal
from frazil.values.partition_proof import PartitionField
from frazil.values.transforms import Transform, apply, parse_transform
from frazil.values.types import (
    BINARY,
    BOOLEAN,
    DATE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    DecimalType,
    FixedType,
    NestedField,
    Type,
    TypeId,
    fields_by_id,
)
from frazil.values.types import UUID as UUID_TYPE
from frazil.wire.errors import BadRequest
from tests.support.spark_facts import facts

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

MICROS = [
    0,
    1,
    -1,
    1_510_871_468_000_123,
    -temporal.MICROS_PER_DAY,
    -temporal.MICROS_PER_DAY - 1,
    temporal.MICROS_PER_DAY - 1,
    -62_135_596_800_000_000,
    300_000_000_000_000_000,
    -3_600_000_001,
]
VALUES: dict[Type, list[Any]] = {
    BOOLEAN: [True, False],
    INT: [0, 34, 1, -1, -10, -11, 2**31 - 1, -(2**31) + 8],
    LONG: [0, 34, -1, 2**62, -(2**62), 2**63 - 1, -(2**63) + 8],
    DATE: [0, 17_486, -1, -719_162, 2_932_896, 3_000_000, -141_428],
    TIMESTAMP: MICROS,
    TIMESTAMPTZ: MICROS,
    TIMESTAMP_NS: [micros * 1000 for micros in MICROS[:8] if abs(micros) < 2**53],
    STRING: ["", "iceberg", "a", "ab", "abc", "abcd", "żółć", "🧊🧊ice", "x" * 300],
    BINARY: [b"", b"\0", b"\x00\x01\x02\x03", b"\xff" * 17],
    FixedType(4): [b"abcd", b"\0\0\0\0"],
    FixedType(5): [b"abcde"],
    UUID_TYPE: [UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), UUID(int=0), UUID(int=2**128 - 1)],
    DecimalType(9, 2): [
        Decimal("14.20"),
        Decimal("-14.21"),
        Decimal("0.00"),
        Decimal("9999999.99"),
    ],
    DecimalType(18, 0): [Decimal(10**18 - 1), Decimal(-5)],
    DecimalType(38, 10): [
        Decimal("1.0000000001"),
        Decimal("-1.0000000001"),
        Decimal("1234567890123456789012345678.0123456789"),
    ],
}
TRANSFORMS = [
    parse_transform(text)
    for text in (
        "identity",
        "void",
        "bucket[16]",
        "bucket[2147483647]",
        "truncate[10]",
        "truncate[3]",
        "year",
        "month",
        "day",
        "hour",
    )
]
CASES = [(type_, one) for type_ in VALUES for one in TRANSFORMS if one.accepts(type_)]


def _field(type_: Type, transform: Transform) -> PartitionField:
    return PartitionField("p", transform, 1, "c", NestedField(1, "c", type_, required=False))


def _of_text(type_: Type, text: Column) -> Column:
    """Build a Spark value from its text in a way that no time zone can affect."""
    from pyspark.sql import functions as fn

    if type_.type_id is TypeId.DATE:
        return fn.date_from_unix_date(text.cast("int"))
    if type_.type_id is TypeId.TIMESTAMPTZ:
        return fn.timestamp_micros(text.cast("long"))
    if type_.type_id in (TypeId.TIMESTAMP, TypeId.TIMESTAMP_NS):
        return text.cast("timestamp_ntz")
    if type_.type_id in (TypeId.BINARY, TypeId.FIXED):
        return fn.unhex(text)
    if type_.type_id in (TypeId.STRING, TypeId.UUID):
        return text
    if isinstance(type_, DecimalType):
        return text.cast(f"decimal({type_.precision},{type_.scale})")
    return text.cast({"int": "int", "long": "long", "boolean": "boolean"}[str(type_)])


def _text(type_: Type, value: Any) -> str | None:
    if value is None:
        return None
    if type_.type_id is TypeId.TIMESTAMP:
        return temporal.timestamp_from_micros(value, with_zone=False)
    if type_.type_id is TypeId.TIMESTAMP_NS:
        return temporal.timestamp_from_micros(value // 1000, with_zone=False)
    return value.hex() if isinstance(value, bytes) else str(value)


@pytest.fixture
def far_away(spark: SparkSession) -> Any:
    """Return a session whose time zone has summer time and is not UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", before)


def test_every_transform_of_every_type_is_exact(far_away: SparkSession) -> None:
    from pyspark.sql import functions as fn

    longest = max(map(len, VALUES.values())) + 1
    padded = {one: values + [None] * (longest - len(values)) for one, values in VALUES.items()}
    names = {type_: f"c{at}" for at, type_ in enumerate(VALUES)}
    texts = pa.table(
        {names[one]: [_text(one, value) for value in padded[one]] for one in VALUES},
        pa.schema([(name, pa.string()) for name in names.values()]),
    )
    columns = {one: _of_text(one, fn.col(names[one])) for one in VALUES}
    found = (
        far_away.createDataFrame(texts)
        .coalesce(1)
        .select(
            *(
                transform_column(transform, type_, columns[type_]).alias(f"r{at}")
                for at, (type_, transform) in enumerate(CASES)
            )
        )
        .toArrow()
    )
    for at, (type_, transform) in enumerate(CASES):
        expected = [apply(transform, type_, value) for value in padded[type_]]
        field = _field(type_, transform)
        assert [partition_value(field, one) for one in found.column(at)] == expected, (
            f"{transform} of {type_}"
        )


@pytest.mark.process
def test_a_transform_that_does_not_fit_is_refused() -> None:
    from pyspark.sql import functions as fn

    with pytest.raises(BadRequest, match=r"hour does not accept the type date"):
        transform_column(parse_transform("hour"), DATE, fn.lit(None))
    with pytest.raises(BadRequest, match="not known"):
        transform_column(parse_transform("future[3]"), DATE, fn.lit(None))


def test_partitions_of_nested_dropped_and_void_columns(spark: SparkSession) -> None:
    inner = {
        "type": "struct",
        "fields": [{"id": 9, "name": "a.b", "required": False, "type": "int"}],
    }
    table = facts(
        "/t",
        {"s": inner, "x": "string"},
        [(9, "identity", "nested"), (77, "identity", "dropped"), (2, "void", "gone")],
    )
    frame = spark.sql("SELECT named_struct('a.b', 5) AS s, 'x' AS x UNION ALL SELECT null, 'y'")
    rows = frame.select("x", *partition_columns(table).values()).collect()
    assert sorted(map(tuple, rows)) == [("x", 5, None, None), ("y", None, None, None)]


# --- batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [[0, 0, 1, 1, 2], [0, 1, 0, 1, 2]], ids=["sorted", "mixed"])
def test_a_batch_is_split_by_all_its_keys(order: list[int]) -> None:
    rows = pa.record_batch({"n": list(range(5))})
    keys = [pa.array(["a", "b", None])[one] for one in order]
    numbers = [pa.array([1.5, -0.0, 0.0])[one] for one in order]
    found = {
        (text.as_py(), str(number.as_py())): part.column("n").to_pylist()
        for (text, number), part in split(
            rows,
            [
                pa.array([key.as_py() for key in keys], pa.string()),
                pa.array([number.as_py() for number in numbers]),
            ],
        )
    }
    expected: dict[tuple[str | None, str], list[int]] = {}
    for row, one in enumerate(order):
        key = [("a", "1.5"), ("b", "-0.0"), (None, "0.0")][one]
        expected.setdefault(key, []).append(row)
    assert found == expected


def test_zeros_of_two_signs_and_nulls_are_partitions_of_their_own() -> None:
    rows = pa.record_batch({"n": [0, 1, 2, 3]})
    keys = [pa.array([0.0, -0.0, math.nan, None], pa.float32())]
    assert [part.num_rows for _, part in split(rows, keys)] == [1, 1, 1, 1]
    assert list(split(rows.slice(0, 0), [keys[0].slice(0, 0)])) == []


def test_a_value_that_its_type_cannot_have_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match=r"partition field p: .*32 bits"):
        partition_value(_field(INT, parse_transform("truncate[10]")), pa.scalar(-(2**31) - 2))


@pytest.mark.parametrize(
    ("type_", "transform", "value", "expected"),
    [
        (DATE, "day", 20_574, "p=2026-05-01"),
        (DATE, "year", -1, "p=1969"),
        (DATE, "month", -1, "p=1969-12"),
        (TIMESTAMP, "hour", -1, "p=1969-12-31-23"),
        (STRING, "identity", "a/b c=d", "p=a%2Fb+c%3Dd"),
        (STRING, "identity", None, "p=null"),
        (BOOLEAN, "identity", True, "p=true"),
        (STRING, "identity", "é" * 500, "p=" + "%C3%A9" * 26 + "%C3%"),
    ],
)
def test_folders_look_like_icebergs(type_: Type, transform: str, value: Any, expected: str) -> None:
    assert partition_folder([_field(type_, parse_transform(transform))], [value]) == expected


# --- folders of Spark's own writer ----------------------------------------------------------------


def test_folders_of_sparks_writer_keep_every_value(far_away: SparkSession) -> None:
    """Partition values can be read back without loss from folder names that Spark has escaped."""
    from urllib.parse import quote

    from pyspark.sql import functions as fn

    texts: list[Any] = [
        "plain",
        "",
        "__HIVE_DEFAULT_PARTITION__",
        "~tilde",
        "~x",
        "nul\0",
        "ż=/%",
        "a=b/c%20 d:e",
        None,
    ]
    values: dict[str, list[Any]] = {
        "string": texts,
        "binary": [b"", b"\0\xff", None],
        "boolean": [True, False, None],
        "date": [0, -719_162, 3_000_000, None],
        "timestamp": MICROS,
        "timestamptz": MICROS,
        "decimal(38, 10)": [
            Decimal("-0.0000000001"),
            Decimal("12345678901234567890.5000000000"),
            None,
        ],
        "double": [0.1, -0.0, 1e300, -1.5e-300, None],
        "long": [2**63 - 1, -5, None],
    }
    longest = max(map(len, values.values()))
    table = facts(
        "/t",
        {f"c{at}": type_ for at, type_ in enumerate(values)},
        [(at, "identity", f"c{at - 1}") for at in range(1, len(values) + 1)],
    )
    fields = partition_fields(table.spec(), fields_by_id(table.schema))
    types = [field.type for field in table.schema.fields]
    padded = [one + [None] * (longest - len(one)) for one in values.values()]
    columns = pa.table(
        [
            pa.array([_text(type_, value) for value in column], pa.string())
            for type_, column in zip(types, padded, strict=True)
        ],
        names=[f"c{at}" for at in range(len(values))],
    )
    source = far_away.createDataFrame(columns).coalesce(1)
    typed = source.select(
        *(
            (
                fn.col(f"c{at}").cast("double")
                if type_.type_id is TypeId.DOUBLE
                else _of_text(type_, fn.col(f"c{at}"))
            ).alias(f"c{at}")
            for at, type_ in enumerate(types)
        )
    )
    folders = folder_columns(fields, table.schema, taken=["C0"])
    assert list(folders)[:2] == ["c0_", "c1"]
    rows = typed.select(*(one.cast("string").alias(name) for name, one in folders.items()))
    found = []
    for row in rows.collect():
        assert "" not in row, "Spark would write it as it writes null"
        path = "/".join(
            f"{name}=" + ("__HIVE_DEFAULT_PARTITION__" if one is None else quote(one, safe=""))
            for name, one in row.asDict().items()
        )
        found.append(folder_values(fields, f"/{path}/part-0.parquet"))
    expected = [tuple(column[row] for column in padded) for row in range(longest)]
    assert [tuple(map(repr, one or ())) for one in found] == [
        tuple(map(repr, one)) for one in expected
    ]


def test_values_too_long_for_a_folder_are_left_to_the_file(spark: SparkSession) -> None:
    table = facts(
        "/t", {"s": "string", "b": "binary"}, [(1, "identity", "p"), (2, "identity", "q")]
    )
    fields = partition_fields(table.spec(), fields_by_id(table.schema))
    columns = folder_columns(fields, table.schema, taken=["s", "b"])
    frame = spark.sql("SELECT repeat('é', 200) AS s, unhex(repeat('ff', 200)) AS b")
    (row,) = frame.select(*(one.alias(name) for name, one in columns.items())).collect()
    assert max(map(len, row)) < 80
    assert folder_values(fields, f"p={row[0]}/q={row[1]}/x.parquet") == (IN_FILE, IN_FILE)
    assert folder_values(fields, "x.parquet") is None
