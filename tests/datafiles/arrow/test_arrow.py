"""Arrow conversion: from Spark to files, from files of any schema, and back to Spark."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.datafiles.arrow.arrow_types import arrow_schema, spark_arrow_schema
from frazil.datafiles.arrow.file_projection import Projection
from frazil.datafiles.arrow.metadata_columns import METADATA_FIELDS
from frazil.datafiles.arrow.spark_batches import to_spark, to_table
from frazil.spark.schema.spark_types import spark_schema
from frazil.values import types as it
from frazil.values.name_mapping import name_mapping_of, parse_name_mapping
from frazil.values.parquet_columns import columns_of_footer, field_id_of
from frazil.values.types import (
    DecimalType,
    FixedType,
    GeographyType,
    GeometryType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
)
from frazil.wire.errors import BadRequest
from tests.support.patience import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batches: TypeAlias = Iterable[pa.RecordBatch]
TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
POINT = b"\x01\x01\x00\x00\x00" + struct.pack("<dd", 1.0, 2.0)

VALUES: list[tuple[Type, Any]] = [
    (it.BOOLEAN, True),
    (it.INT, -7),
    (it.LONG, 2**40),
    (it.FLOAT, 1.5),
    (it.DOUBLE, -2.25),
    (DecimalType(9, 2), Decimal("1.25")),
    (DecimalType(38, 10), Decimal("1234567890.0987654321")),
    (it.DATE, date(1960, 2, 29)),
    (it.TIME, time(1, 2, 3, 4)),
    (it.TIMESTAMP, datetime(1960, 1, 1, 0, 0, 0, 1)),
    (it.TIMESTAMPTZ, datetime(2024, 1, 1, tzinfo=UTC)),
    (it.TIMESTAMP_NS, datetime(1960, 1, 1, 0, 0, 0, 1)),
    (it.TIMESTAMPTZ_NS, datetime(2024, 1, 1, tzinfo=UTC)),
    (it.STRING, "žluťoučký"),
    (it.UUID, TEXT),
    (FixedType(3), b"\x00\xff\x01"),
    (it.BINARY, b""),
    (it.VARIANT, {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}),
    (GeometryType(), {"srid": 4326, "wkb": POINT}),
    (GeographyType(), {"srid": 4326, "wkb": POINT}),
]
"""Each type with a value in the form that Spark exchanges."""


def struct_of(*fields: tuple[int, str, Type], **changes: Any) -> StructType:
    return StructType(tuple(NestedField(*field, required=False, **changes) for field in fields))


def file_of(batch: pa.RecordBatch) -> pq.ParquetFile:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def read(
    file: pq.ParquetFile, schema: StructType, batch_rows: int = 100, **options: Any
) -> list[dict[str, Any]]:
    """Return the rows of a file under a schema, as Spark receives them."""
    projection = Projection(file.schema_arrow, schema, arrow_schema(schema), **options)
    return [
        row
        for batch in file.iter_batches(batch_rows, columns=list(projection.columns))
        for row in to_spark(projection.apply(batch), schema).to_pylist()
    ]


# --- the schema of files ---------------------------------------------------------------------


@pytest.mark.parametrize(("type_", "value"), VALUES, ids=lambda value: str(value)[:20])
def test_files_have_the_type_that_their_table_has(type_: Type, value: Any) -> None:
    schema = struct_of((1, "a", type_))
    rows = pa.RecordBatch.from_pylist([{"a": value}, {}], schema=spark_arrow_schema(schema))
    file = file_of(to_table(rows, arrow_schema(schema)))
    (column,) = columns_of_footer(file.metadata)
    assert column.field_id == 1
    if type_ is it.VARIANT:
        assert [part.name for part in column.parts] == ["metadata", "value"]
        return
    assert column.leaf is not None
    if isinstance(type_, GeometryType | GeographyType):
        assert column.leaf.logical_type == type_.type_id.value.capitalize()
    else:
        assert type_ in column.leaf.readable_as


def test_field_ids_stand_at_every_level() -> None:
    element = NestedField(3, "element", struct_of((4, "x", it.INT)), True)
    tags = MapType(NestedField(6, "key", it.STRING, True), NestedField(7, "value", it.UUID, False))
    schema = struct_of((1, "id", it.LONG), (2, "points", ListType(element)), (5, "tags", tags))
    found = arrow_schema(schema, lineage=True)
    assert [field_id_of(field) for field in found] == [1, 2, 5, 2147483540, 2147483539]
    assert found.names[-2:] == ["_row_id", "_last_updated_sequence_number"]
    points, tags_type = found.field("points").type, found.field("tags").type
    assert field_id_of(points.value_field) == 3
    assert not points.value_field.nullable
    assert field_id_of(points.value_type.field(0)) == 4
    assert (field_id_of(tags_type.key_field), field_id_of(tags_type.item_field)) == (6, 7)
    assert field_id_of(pa.field("a", pa.int32())) is None
    assert field_id_of(pa.field("a", pa.int32(), metadata={"PARQUET:field_id": "-1"})) is None


def test_unknown_is_in_no_file_and_null_for_spark() -> None:
    schema = struct_of(
        (1, "a", it.INT),
        (2, "b", it.UNKNOWN),
        (3, "c", struct_of((4, "d", it.UNKNOWN), (5, "e", it.INT))),
    )
    target = arrow_schema(schema)
    assert target.names == ["a", "c"]
    rows = [{"a": 1, "b": None, "c": {"d": None, "e": 2}}, {"a": None, "b": None, "c": None}]
    batch = pa.RecordBatch.from_pylist(rows, schema=spark_arrow_schema(schema))
    assert read(file_of(to_table(batch, target)), schema) == rows


@pytest.mark.parametrize(
    "type_",
    [
        struct_of((2, "b", it.UNKNOWN)),
        ListType(NestedField(2, "element", it.UNKNOWN, False)),
        FixedType(0),
    ],
    ids=["struct", "list", "fixed"],
)
def test_what_parquet_cannot_store_names_the_column(type_: Type) -> None:
    with pytest.raises(BadRequest, match=r"column a[:.]"):
        arrow_schema(struct_of((1, "a", type_)))


# --- from Spark and back ---------------------------------------------------------------------


def everything() -> StructType:
    """Return a schema with all types at the top level, in a struct, in a list and in a map."""
    ids = iter(range(1, 1000))
    tops = [NestedField(next(ids), f"t{n}", type_, False) for n, (type_, _) in enumerate(VALUES)]
    parts = [NestedField(next(ids), f"s{n}", type_, False) for n, (type_, _) in enumerate(VALUES)]
    lists = [
        NestedField(
            next(ids), f"l{n}", ListType(NestedField(next(ids), "element", type_, False)), False
        )
        for n, (type_, _) in enumerate(VALUES)
    ]
    maps = [
        NestedField(
            next(ids),
            f"m{n}",
            MapType(
                NestedField(next(ids), "key", it.UUID, True),
                NestedField(next(ids), "value", type_, False),
            ),
            False,
        )
        for n, (type_, _) in enumerate(VALUES)
    ]
    whole = NestedField(next(ids), "s", StructType(tuple(parts)), False)
    deep = NestedField(
        next(ids),
        "d",
        ListType(
            NestedField(
                next(ids),
                "element",
                StructType(
                    (
                        NestedField(next(ids), "u", it.UUID, True),
                        NestedField(
                            next(ids),
                            "in",
                            StructType((NestedField(next(ids), "f", FixedType(2), True),)),
                            True,
                        ),
                        NestedField(
                            next(ids),
                            "l",
                            ListType(NestedField(next(ids), "element", it.UUID, True)),
                            True,
                        ),
                    )
                ),
                False,
            )
        ),
        False,
    )
    return StructType((*tops, whole, *lists, *maps, deep))


def rows_of_everything() -> list[dict[str, Any]]:
    row: dict[str, Any] = {f"t{n}": value for n, (_, value) in enumerate(VALUES)}
    row["s"] = {f"s{n}": value for n, (_, value) in enumerate(VALUES)}
    row |= {f"l{n}": [value, None, value] for n, (_, value) in enumerate(VALUES)}
    row |= {f"m{n}": [(TEXT, value)] for n, (_, value) in enumerate(VALUES)}
    row["d"] = [{"u": TEXT, "in": {"f": b"ab"}, "l": [TEXT, TEXT]}, None]
    nothing = dict.fromkeys(row)
    hollow = nothing | {
        "s": dict.fromkeys(row["s"]),
        **{f"l{n}": [] for n in range(len(VALUES))},
        **{f"m{n}": [(TEXT, None)] for n in range(len(VALUES))},
        "d": [],
    }
    return [row, nothing, row, hollow, nothing, row]


@pytest.mark.parametrize("batch_rows", [100, 2, 4], ids=["whole", "two", "four"])
def test_every_type_comes_back_from_a_file_as_it_went_in(batch_rows: int) -> None:
    schema, rows = everything(), rows_of_everything()
    batch = pa.RecordBatch.from_pylist(rows, schema=spark_arrow_schema(schema))
    assert read(file_of(to_table(batch, arrow_schema(schema))), schema, batch_rows) == rows


def test_slices_are_taken_for_themselves() -> None:
    schema = everything()
    target = arrow_schema(schema)
    batch = pa.RecordBatch.from_pylist(rows_of_everything(), schema=spark_arrow_schema(schema))
    whole = to_table(batch, target).to_pylist()
    for start in range(4):
        part = to_table(batch.slice(start, 3), target)
        assert part.to_pylist() == whole[start : start + 3]
        assert to_spark(part, schema).to_pylist() == batch.slice(start, 3).to_pylist()
    assert to_table(batch.slice(0, 0), target).num_rows == 0


def test_nothing_is_copied_where_types_are_equal() -> None:
    schema = struct_of((1, "a", it.LONG), (2, "b", it.STRING), (3, "c", it.TIMESTAMPTZ))
    given = pa.record_batch(
        [
            pa.array([1, None], pa.int64()),
            pa.array(["x", "y"]),
            # Spark's batches use the time zone of the session.
            pa.array([1, 2], pa.int64()).view(pa.timestamp("us", "Europe/Prague")),
        ],
        names=["a", "b", "c"],
    )
    made = to_table(given, arrow_schema(schema))
    assert made.schema.equals(arrow_schema(schema), check_metadata=True)
    for name in ("a", "b", "c"):
        before, after = given.column(name).buffers()[-1], made.column(name).buffers()[-1]
        assert before.address == after.address
    again = Projection(made.schema, schema, arrow_schema(schema)).apply(made)
    assert again.column("b").buffers()[-1].address == given.column("b").buffers()[-1].address


def test_columns_are_found_by_name_and_others_left_out() -> None:
    schema = struct_of((1, "a", it.INT), (2, "b", it.INT))
    given = pa.record_batch(
        [pa.array([9]), pa.array([2], pa.int32()), pa.array([1], pa.int32())],
        names=["_partition_0", "b", "a"],
    )
    assert to_table(given, arrow_schema(schema)).to_pylist() == [{"a": 1, "b": 2}]
    with pytest.raises(BadRequest, match="column b is missing"):
        to_table(given.select(["a"]), arrow_schema(schema))


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (it.UUID, pa.array(["f79c3e09-677c-4bbd-a479-3f349cb785eg"])),
        (it.UUID, pa.array(["f79c3e09x677c-4bbd-a479-3f349cb785e7"])),
        (it.UUID, pa.array([None, "no"])),
        (it.UUID, pa.array([1])),
        (FixedType(3), pa.array([b"abcd"])),
        (it.TIMESTAMP_NS, pa.array([datetime(2300, 1, 1)])),
        (it.TIME, pa.array([1], pa.time64("ns"))),
        (it.INT, pa.array([1], pa.int64())),
        (it.INT, pa.array(["1"])),
        (it.FLOAT, pa.array([1.5], pa.float64())),
        (DecimalType(5, 2), pa.array([Decimal("1.2")], pa.decimal128(5, 1))),
        (it.DATE, pa.array([1], pa.int32())),
        (it.TIMESTAMP, pa.array([1], pa.int64())),
        (GeometryType(), pa.array(["x"])),
        (ListType(NestedField(2, "element", it.INT, False)), pa.array([1])),
        (struct_of((2, "b", it.INT)), pa.array([1])),
        (struct_of((2, "b", it.INT)), pa.array([{"c": 1}])),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value)[:20],
)
def test_a_value_that_is_none_of_the_type_names_the_column(type_: Type, given: pa.Array) -> None:
    with pytest.raises(BadRequest, match=r"column a[: .]"):
        to_table(pa.record_batch([given], names=["a"]), arrow_schema(struct_of((1, "a", type_))))


def test_nulls_in_required_columns_are_refused() -> None:
    inner = StructType((NestedField(2, "b", it.INT, True),))
    schema = StructType((NestedField(1, "a", inner, False), NestedField(3, "c", it.INT, True)))
    target = arrow_schema(schema)

    def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
        loose = pa.schema([("a", pa.struct([("b", pa.int32())])), ("c", pa.int32())])
        return to_table(pa.RecordBatch.from_pylist(rows, schema=loose), target)

    with pytest.raises(BadRequest, match="column c is required"):
        batch([{"a": {"b": 1}, "c": None}])
    with pytest.raises(BadRequest, match=r"column a\.b is required"):
        batch([{"a": {"b": None}, "c": 1}])
    # If a struct is null, its required fields need no values.
    rows: list[dict[str, Any]] = [{"a": None, "c": 1}, {"a": {"b": 2}, "c": 3}]
    assert read(file_of(batch(rows)), schema) == rows


def test_uuids_are_taken_in_any_case_and_given_in_lower_case() -> None:
    schema = struct_of((1, "a", it.UUID))
    given = pa.record_batch([pa.array([TEXT.upper(), None, TEXT])], names=["a"])
    made = to_table(given, arrow_schema(schema))
    assert made.column(0).to_pylist() == [UUID(TEXT), None, UUID(TEXT)]
    assert to_spark(made.slice(1), schema).column(0).to_pylist() == [None, TEXT]


def test_nanoseconds_become_the_earlier_microsecond() -> None:
    schema = struct_of((1, "a", it.TIMESTAMP_NS))
    nanos = pa.array([-1, 1_999, None, -1_000], pa.int64()).view(pa.timestamp("ns"))
    made = to_spark(pa.record_batch([nanos], schema=arrow_schema(schema)), schema)
    assert made.column(0).view(pa.int64()).to_pylist() == [-1, 1, None, -1]


# --- from files of other schemas -------------------------------------------------------------

OLD = StructType(
    (
        NestedField(1, "id", it.INT, False),
        NestedField(2, "gone", it.STRING, False),
        NestedField(
            3,
            "place",
            struct_of((4, "x", it.FLOAT), (5, "note", it.STRING)),
            False,
        ),
        NestedField(
            6,
            "tags",
            ListType(NestedField(7, "element", struct_of((8, "k", it.INT)), False)),
            False,
        ),
        NestedField(
            9,
            "sums",
            MapType(
                NestedField(10, "key", it.STRING, True),
                NestedField(11, "value", DecimalType(5, 2), False),
            ),
            False,
        ),
    )
)
NEW = StructType(
    (
        NestedField(
            9,
            "totals",
            MapType(
                NestedField(10, "key", it.STRING, True),
                NestedField(11, "value", DecimalType(12, 2), False),
            ),
            False,
        ),
        NestedField(
            3,
            "place",
            StructType(
                (
                    NestedField(20, "z", it.INT, False, initial_default=5),
                    NestedField(4, "lon", it.DOUBLE, False),
                )
            ),
            False,
        ),
        NestedField(
            6,
            "tags",
            ListType(
                NestedField(
                    7, "element", struct_of((21, "new", it.UUID), (8, "key", it.LONG)), False
                )
            ),
            False,
        ),
        NestedField(22, "gone", it.STRING, False),
        NestedField(1, "ident", it.LONG, False),
    )
)
OLD_ROWS = [
    {
        "id": 1,
        "gone": "g",
        "place": {"x": 1.5, "note": "n"},
        "tags": [{"k": 3}, None],
        "sums": [("a", Decimal("1.25"))],
    },
    {"id": None, "gone": None, "place": None, "tags": None, "sums": None},
]
NEW_ROWS = [
    {
        "totals": [("a", Decimal("1.25"))],
        "place": {"z": 5, "lon": 1.5},
        "tags": [{"new": None, "key": 3}, None],
        "gone": None,
        "ident": 1,
    },
    {"totals": None, "place": None, "tags": None, "gone": None, "ident": None},
]


def old_batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(OLD_ROWS, schema=arrow_schema(OLD))


@pytest.mark.parametrize("batch_rows", [100, 1], ids=["whole", "one"])
def test_columns_are_found_by_id_at_every_level(batch_rows: int) -> None:
    assert read(file_of(old_batch()), NEW, batch_rows) == NEW_ROWS


def without_ids(field: pa.Field) -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_):
        type_ = pa.struct([without_ids(part) for part in type_])
    elif pa.types.is_map(type_):
        type_ = pa.map_(without_ids(type_.key_field), without_ids(type_.item_field))
    elif pa.types.is_list(type_):
        type_ = pa.list_(without_ids(type_.value_field))
    return pa.field(field.name, type_, field.nullable)


def test_a_file_without_ids_is_read_by_the_name_mapping() -> None:
    plain = pa.schema([without_ids(field) for field in arrow_schema(OLD)])
    file = file_of(pa.RecordBatch.from_pylist(OLD_ROWS, schema=plain))
    mapping = parse_name_mapping(name_mapping_of(OLD))
    assert read(file, NEW, name_mapping=mapping) == NEW_ROWS


def test_a_file_without_ids_and_without_a_mapping_is_read_by_position() -> None:
    plain = pa.schema([("a", pa.int32()), ("b", pa.string())])
    file = file_of(pa.RecordBatch.from_pylist([{"a": 1, "b": "x"}], schema=plain))
    schema = struct_of((2, "text", it.STRING), (3, "later", it.INT), (1, "number", it.LONG))
    assert read(file, schema) == [{"text": "x", "later": None, "number": 1}]


def test_a_mapping_is_not_asked_where_the_file_has_ids() -> None:
    mapping: Mapping[str, Any] = parse_name_mapping('[{"field-id": 22, "names": ["gone"]}]')
    assert read(file_of(old_batch()), NEW, name_mapping=mapping) == NEW_ROWS


DEFAULTS: list[tuple[Type, Any, Any]] = [
    (it.BOOLEAN, False, False),
    (it.INT, 3, 3),
    (it.LONG, -3, -3),
    (it.FLOAT, 1.5, 1.5),
    (it.DOUBLE, 2.5, 2.5),
    (DecimalType(5, 2), Decimal("1.20"), Decimal("1.20")),
    (it.DATE, -1, date(1969, 12, 31)),
    (it.TIME, 1_000_000, time(0, 0, 1)),
    (it.TIMESTAMP, -1, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    (it.TIMESTAMPTZ, 0, datetime(1970, 1, 1, tzinfo=UTC)),
    (it.TIMESTAMP_NS, 1_000, datetime(1970, 1, 1, 0, 0, 0, 1)),
    (it.TIMESTAMPTZ_NS, 1_000, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    (it.STRING, "d", "d"),
    (it.UUID, UUID(TEXT), TEXT),
    (FixedType(2), b"ab", b"ab"),
    (it.BINARY, b"", b""),
]


@pytest.mark.parametrize(("type_", "value", "seen"), DEFAULTS, ids=lambda value: str(value)[:24])
def test_what_a_file_does_not_have_is_its_initial_default(
    type_: Type, value: Any, seen: Any
) -> None:
    late = NestedField(40, "late", type_, True, initial_default=value)
    inner = NestedField(41, "place", StructType((late,)), False, initial_default={})
    for field, expected in ((late, seen), (inner, {"late": seen})):
        schema = StructType((NestedField(1, "id", it.INT, False), field))
        rows = read(file_of(old_batch()), schema)
        assert rows == [{"id": 1, field.name: expected}, {"id": None, field.name: expected}]


def test_a_missing_struct_without_a_default_is_null_whatever_its_fields_have() -> None:
    late = NestedField(40, "late", it.INT, False, initial_default=1)
    schema = StructType((NestedField(41, "place", StructType((late,)), False),))
    assert read(file_of(old_batch()), schema) == [{"place": None}] * 2


def test_a_required_column_that_is_missing_is_an_error() -> None:
    schema = StructType((NestedField(30, "must", it.INT, True),))
    with pytest.raises(BadRequest, match=r"column must is required.* field id 30"):
        read(file_of(old_batch()), schema)
    nested = StructType((NestedField(3, "place", schema, False),))
    with pytest.raises(BadRequest, match=r"column place\.must is required"):
        read(file_of(old_batch()), nested)


def test_nulls_in_a_required_column_of_a_file_are_an_error() -> None:
    with pytest.raises(BadRequest, match=r"column id is required.* 1 nulls"):
        read(file_of(old_batch()), StructType((NestedField(1, "id", it.INT, True),)))


def test_partition_values_stand_in_for_columns_that_a_file_lacks() -> None:
    schema = struct_of((1, "id", it.INT), (30, "day", it.DATE), initial_default=7)
    file = file_of(old_batch())
    assert read(file, schema, constants={1: 99, 30: 1}) == [
        {"id": 1, "day": date(1970, 1, 2)},
        {"id": None, "day": date(1970, 1, 2)},
    ]


def test_dates_are_promoted_to_timestamps_and_fail_beyond_their_range() -> None:
    file = file_of(
        pa.RecordBatch.from_pylist(
            [{"a": date(2024, 2, 29)}, {"a": None}],
            schema=arrow_schema(struct_of((1, "a", it.DATE))),
        )
    )
    for type_ in (it.TIMESTAMP, it.TIMESTAMP_NS):
        rows = read(file, struct_of((1, "a", type_)))
        assert rows == [{"a": datetime(2024, 2, 29)}, {"a": None}]
    far = pa.record_batch(
        [pa.array([date(2300, 1, 1)])], schema=arrow_schema(struct_of((1, "a", it.DATE)))
    )
    with pytest.raises(BadRequest, match="column a: "):
        read(file_of(far), struct_of((1, "a", it.TIMESTAMP_NS)))
    with pytest.raises(BadRequest, match="column a: "):
        read(file, struct_of((1, "a", it.TIMESTAMPTZ)))


def test_other_layouts_of_the_same_values_are_read() -> None:
    """Arrow writers store their own layouts in a file's schema."""
    columns = {
        "text": pa.array(["a", "b"]).dictionary_encode(),
        "large": pa.array(["a", "b"], pa.large_string()),
        "bytes": pa.array([b"a", b"b"], pa.large_binary()),
        "list": pa.array([[1], [2, 3]], pa.large_list(pa.int16())),
        "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
        "milli": pa.array([1, 2], pa.int64()).view(pa.timestamp("ms")),
        "plain": pa.array([b"a", b"b"]),
        "narrow": pa.array([1, 2], pa.uint8()),
    }
    fields = [
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(place)})
        for place, (name, column) in enumerate(columns.items(), start=1)
    ]
    file = file_of(pa.record_batch(list(columns.values()), schema=pa.schema(fields)))
    numbers = ListType(NestedField(20, "element", it.INT, False))
    schema = struct_of(
        (1, "text", it.STRING),
        (2, "large", it.STRING),
        (3, "bytes", it.BINARY),
        (4, "list", numbers),
        (5, "pair", ListType(NestedField(21, "element", it.LONG, False))),
        (6, "milli", it.TIMESTAMP),
        (7, "plain", it.STRING),
        (8, "narrow", it.INT),
    )
    assert read(file, schema, 1) == [
        {
            "text": "a",
            "large": "a",
            "bytes": b"a",
            "list": [1],
            "pair": [1, 2],
            "milli": datetime(1970, 1, 1, 0, 0, 0, 1_000),
            "plain": "a",
            "narrow": 1,
        },
        {
            "text": "b",
            "large": "b",
            "bytes": b"b",
            "list": [2, 3],
            "pair": [3, 4],
            "milli": datetime(1970, 1, 1, 0, 0, 0, 2_000),
            "plain": "b",
            "narrow": 2,
        },
    ]


def test_a_column_that_was_unknown_is_null_under_any_type() -> None:
    field = pa.field("a", pa.null(), metadata={"PARQUET:field_id": "1"})
    file = file_of(pa.record_batch([pa.nulls(2)], schema=pa.schema([field])))
    for type_ in (it.UUID, it.VARIANT, struct_of((2, "b", it.INT)), GeometryType(), it.UNKNOWN):
        assert read(file, struct_of((1, "a", type_))) == [{"a": None}] * 2


def test_timestamps_of_96_bits_are_read_with_and_without_a_zone() -> None:
    sink = io.BytesIO()
    nanos = pa.array([1_999, -1], pa.int64()).view(pa.timestamp("ns"))
    schema = pa.schema([pa.field("a", nanos.type)])
    with pq.ParquetWriter(sink, schema, use_deprecated_int96_timestamps=True) as writer:
        writer.write_batch(pa.record_batch([nanos], schema=schema))
    file = pq.ParquetFile(io.BytesIO(sink.getvalue()))
    early = datetime(1969, 12, 31, 23, 59, 59, 999_999)
    assert read(file, struct_of((1, "a", it.TIMESTAMP))) == [
        {"a": datetime(1970, 1, 1, 0, 0, 0, 1)},
        {"a": early},
    ]
    assert read(file, struct_of((1, "a", it.TIMESTAMPTZ)))[1] == {"a": early.replace(tzinfo=UTC)}


@pytest.mark.parametrize(
    "type_",
    [
        it.STRING,
        it.UUID,
        struct_of((2, "b", it.INT)),
        ListType(NestedField(2, "element", it.INT, False)),
        MapType(NestedField(2, "key", it.INT, True), NestedField(3, "value", it.INT, False)),
        it.VARIANT,
    ],
    ids=lambda type_: type_.type_id.value,
)
def test_a_column_of_another_kind_is_an_error(type_: Type) -> None:
    with pytest.raises(BadRequest, match="column a: int32 cannot be read as"):
        read(file_of(old_batch()), struct_of((1, "a", type_)))


def test_shredded_variants_are_refused() -> None:
    shredded = pa.struct(
        [("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int32())]
    )
    field = pa.field("v", shredded, metadata={"PARQUET:field_id": "1"})
    row = {"v": {"metadata": b"\x01\x00\x00", "value": None, "typed_value": 42}}
    file = file_of(pa.RecordBatch.from_pylist([row], schema=pa.schema([field])))
    with pytest.raises(BadRequest, match=r"column v: .*shredded"):
        read(file, struct_of((1, "v", it.VARIANT)))


def test_lineage_is_read_where_a_file_has_it() -> None:
    schema = struct_of((1, "id", it.INT))
    target = arrow_schema(schema, lineage=True)
    carried = pa.RecordBatch.from_pylist(
        [{"id": 1, "_row_id": 7, "_last_updated_sequence_number": None}], schema=target
    )
    assert Projection(target, schema, target).apply(carried).equals(carried)
    first = Projection(arrow_schema(OLD), schema, target).apply(old_batch()).to_pylist()
    assert first[0] == {"id": 1, "_row_id": None, "_last_updated_sequence_number": None}


def test_metadata_columns_are_columns_for_spark() -> None:
    schema = StructType((METADATA_FIELDS["_file"], METADATA_FIELDS["_pos"]))
    batch = pa.record_batch([pa.array(["f"]), pa.array([3])], names=["_file", "_pos"])
    assert to_spark(batch, schema).to_pylist() == [{"_file": "f", "_pos": 3}]


def test_rows_are_counted_where_no_column_is_asked_for() -> None:
    empty = StructType()
    projection = Projection(arrow_schema(OLD), empty, arrow_schema(empty))
    assert projection.columns == ()
    rows = projection.apply(file_of(old_batch()).read(columns=[]).to_batches()[0])
    assert rows.num_rows == 2
    assert to_spark(rows, empty).num_rows == 2


@pytest.mark.process
def test_no_pyspark_is_imported() -> None:
    script = (
        "import sys, frazil.datafiles.arrow.file_projection;"
        "import frazil.datafiles.writing.variant_annotation;"
        "sys.exit('pyspark' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG_S)


# --- through Spark ---------------------------------------------------------------------------

QUERY = """
SELECT true AS b, 1 AS i, 2L AS l, CAST(1.5 AS FLOAT) AS f, 2.5D AS d, 1.25BD AS dec,
  DATE'1960-02-29' AS day, TIME'01:02:03.000004' AS at,
  TIMESTAMP_NTZ'1960-01-01 00:00:00.000001' AS ntz, TIMESTAMP'2024-03-31 02:30:00' AS tz,
  TIMESTAMP_NTZ'1960-01-01 00:00:00.000001' AS ntz_ns, TIMESTAMP'2024-03-31 02:30:00' AS tz_ns,
  'text' AS s, '{text}' AS u, X'0001' AS fixed, X'FF' AS bin, null AS nothing,
  parse_json('{{"a": [1, "x"]}}') AS v,
  named_struct('u', '{text}', 'v', parse_json('1'), 'l', array('{text}', null)) AS st,
  array(named_struct('f', X'0001'), null) AS ls, map('k', TIMESTAMP'2024-03-31 02:30:00') AS m
UNION ALL
SELECT null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
  null, null, null, null, null, null
"""
THROUGH_SPARK = struct_of(
    (1, "b", it.BOOLEAN),
    (2, "i", it.INT),
    (3, "l", it.LONG),
    (4, "f", it.FLOAT),
    (5, "d", it.DOUBLE),
    (6, "dec", DecimalType(3, 2)),
    (7, "day", it.DATE),
    (8, "at", it.TIME),
    (9, "ntz", it.TIMESTAMP),
    (10, "tz", it.TIMESTAMPTZ),
    (11, "ntz_ns", it.TIMESTAMP_NS),
    (12, "tz_ns", it.TIMESTAMPTZ_NS),
    (13, "s", it.STRING),
    (14, "u", it.UUID),
    (15, "fixed", FixedType(2)),
    (16, "bin", it.BINARY),
    (17, "nothing", it.UNKNOWN),
    (18, "v", it.VARIANT),
    (
        19,
        "st",
        struct_of(
            (20, "u", it.UUID),
            (21, "v", it.VARIANT),
            (22, "l", ListType(NestedField(23, "element", it.UUID, False))),
        ),
    ),
    (
        24,
        "ls",
        ListType(NestedField(25, "element", struct_of((26, "f", FixedType(2))), False)),
    ),
    (
        27,
        "m",
        MapType(
            NestedField(28, "key", it.STRING, True),
            NestedField(29, "value", it.TIMESTAMPTZ_NS, False),
        ),
    ),
)


def through_a_file(schema: StructType) -> Callable[[Batches], Batches]:
    """Return a function that writes rows from Spark to a file and reads them back."""

    def converted(batches: Batches) -> Batches:
        target = arrow_schema(schema)
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, target) as writer:
            for batch in batches:
                writer.write_batch(to_table(batch, target))
        file = pq.ParquetFile(io.BytesIO(sink.getvalue()))
        projection = Projection(file.schema_arrow, schema, target)
        for batch in file.iter_batches(columns=list(projection.columns)):
            yield to_spark(projection.apply(batch), schema)

    return converted


def test_every_type_goes_from_spark_to_a_file_and_back(spark: SparkSession) -> None:
    with settings(spark, {"spark.sql.timeType.enabled": "true"}):
        frame = spark.sql(QUERY.format(text=TEXT))
        schema = THROUGH_SPARK
        found = frame.mapInArrow(through_a_file(schema), spark_schema(schema))
        assert found.schema == spark_schema(schema)
        assert sorted(map(str, found.collect())) == sorted(map(str, frame.collect()))


def test_places_go_from_spark_to_a_file_and_back(spark: SparkSession) -> None:
    schema = struct_of((1, "g", GeometryType("SRID:0")), (2, "w", GeographyType()))
    point = f"X'{POINT.hex()}'"
    with settings(spark, {"spark.sql.geospatial.enabled": "true"}):
        frame = spark.sql(
            f"SELECT st_geomfromwkb({point}) AS g, st_geogfromwkb({point}) AS w"
            " UNION ALL SELECT null, null"
        )
        found = frame.mapInArrow(through_a_file(schema), spark_schema(schema))
        assert sorted(map(str, found.collect())) == sorted(map(str, frame.collect()))


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Change Spark settings for a while, such as features that are off by default."""
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
