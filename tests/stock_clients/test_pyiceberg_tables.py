"""Stock PyIceberg: namespaces, tables and changes of schema, spec and properties."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from tests.stock_clients.stock import ID_NAME, id_name, operations, pyiceberg_ids, sequence_numbers

A_UUID = uuid.UUID("6f1ed5a2-1a1d-4f9a-8f2e-0d6a3a1f3a10")

VALUES: dict[str, tuple[IcebergType, Any]] = {
    "boolean": (BooleanType(), True),
    "int": (IntegerType(), -(2**31)),
    "long": (LongType(), 2**63 - 1),
    "float": (FloatType(), 1.5),
    "double": (DoubleType(), -2.25),
    "decimal": (DecimalType(38, 9), Decimal("12345678901234567890123456789.123456789")),
    "date": (DateType(), date(1969, 12, 31)),
    "time": (TimeType(), time(23, 59, 59, 999999)),
    "timestamp": (TimestampType(), datetime(2024, 2, 29, 12, 30, 0, 1)),
    "timestamptz": (TimestamptzType(), datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
    "string": (StringType(), "fräzil ❄"),
    "uuid": (UUIDType(), A_UUID),
    "fixed": (FixedType(4), b"\x00\x01\x02\xff"),
    "binary": (BinaryType(), b"\x00\xff"),
}
NESTED = (
    NestedField(101, "tags", ListType(102, StringType(), element_required=False), required=False),
    NestedField(
        103,
        "scores",
        MapType(104, StringType(), 105, DoubleType(), value_required=False),
        required=False,
    ),
    NestedField(
        106,
        "place",
        StructType(
            NestedField(107, "city", StringType(), required=True),
            NestedField(
                108,
                "stops",
                ListType(109, StructType(NestedField(110, "at", TimestampType(), required=False))),
                required=False,
            ),
        ),
        required=False,
    ),
)


def test_every_type_of_version_2_is_written_and_read_back(iceberg: Catalog, namespace: str) -> None:
    primitives = [
        NestedField(number, name, kind, required=False, doc=f"a {name}")
        for number, (name, (kind, _)) in enumerate(VALUES.items(), 1)
    ]
    table = iceberg.create_table((namespace, "types"), Schema(*primitives, *NESTED))
    row = {name: value for name, (_, value) in VALUES.items()}
    row |= {
        "tags": ["a", None],
        "scores": [("x", 1.0), ("y", None)],
        "place": {"city": "Turku", "stops": [{"at": datetime(2024, 1, 1)}]},
    }
    empty = dict.fromkeys(row)
    table.append(pa.Table.from_pylist([row, empty], schema=table.schema().as_arrow()))

    loaded = iceberg.load_table((namespace, "types"))
    assert loaded.schema() == table.schema()
    assert [field.doc for field in loaded.schema().fields[: len(VALUES)]] == [
        f"a {name}" for name in VALUES
    ]
    found = loaded.scan().to_arrow().to_pylist()
    assert found == [row, empty]


def test_types_of_version_3_are_kept(iceberg: Catalog, namespace: str) -> None:
    kinds: tuple[IcebergType, ...] = (
        TimestampNanoType(),
        TimestamptzNanoType(),
        UnknownType(),
        GeometryType(),
        GeographyType(),
    )
    fields = [
        NestedField(number, f"c{number}", kind, required=False)
        for number, kind in enumerate(kinds, 1)
    ]
    table = iceberg.create_table(
        (namespace, "v3"), Schema(*fields), properties={"format-version": "3"}
    )
    # PyIceberg sends no defaults when it creates a table, but it does when it adds a column.
    with table.update_schema() as update:
        update.add_column("n", LongType(), default_value=4, required=True)
    with table.update_schema() as update:
        update.set_default_value("n", 5)

    loaded = iceberg.load_table((namespace, "v3"))
    assert loaded.format_version == 3
    assert tuple(field.field_type for field in loaded.schema().fields[:-1]) == kinds
    assert loaded.schema().find_field("n").initial_default == 4
    assert loaded.schema().find_field("n").write_default == 5
    assert loaded.metadata.next_row_id == 0  # type: ignore[union-attr]


def test_version_3_is_read_but_not_written_by_pyiceberg(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "v3"), ID_NAME, properties={"format-version": "3"})
    assert table.scan().to_arrow().num_rows == 0
    with pytest.raises(ValueError, match="Cannot write manifest for table version: 3"):
        table.append(id_name(1))
    assert iceberg.load_table((namespace, "v3")).metadata.snapshots == []


def test_version_1_is_written_then_upgraded(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "v1"), ID_NAME, properties={"format-version": "1"})
    table.append(id_name(1, 2))
    table.append(id_name(3))
    assert table.format_version == 1
    assert pyiceberg_ids(table) == [1, 2, 3]

    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    table.append(id_name(4))
    loaded = iceberg.load_table((namespace, "v1"))
    assert loaded.format_version == 2
    assert loaded.metadata.last_sequence_number == 1  # type: ignore[union-attr]
    assert list(sequence_numbers(loaded)) == [0, 0, 1]
    assert pyiceberg_ids(loaded) == [1, 2, 3, 4]


def test_schema_evolves(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table(
        (namespace, "t"),
        Schema(
            NestedField(1, "id", IntegerType(), required=True),
            NestedField(2, "name", StringType(), required=False),
            NestedField(3, "gone", FloatType(), required=False),
            identifier_field_ids=[1],
        ),
    )
    first = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])
    table.append(pa.Table.from_pylist([{"id": 1, "name": "one"}], schema=first))

    with table.update_schema() as update:
        update.add_column("place", StructType(NestedField(1, "city", StringType())))
        update.rename_column("name", "title")
        update.update_column("id", LongType())
        update.delete_column("gone")
        update.move_first("name")
    with table.update_schema() as update:
        update.add_column("n", IntegerType())
        update.add_column(("place", "zip"), StringType(), doc="postal code")

    loaded = iceberg.load_table((namespace, "t"))
    assert [field.name for field in loaded.schema().fields] == ["title", "id", "place", "n"]
    assert [field.field_id for field in loaded.schema().fields] == [2, 1, 4, 6]
    assert loaded.schema().find_type("id") == LongType()
    assert loaded.schema().identifier_field_ids == [1]
    assert sorted(loaded.schemas()) == [0, 1, 2]
    assert loaded.metadata.last_column_id == 7
    assert loaded.scan().to_arrow().to_pylist() == [
        {"title": "one", "id": 1, "place": None, "n": None}
    ]

    # A change back to an earlier schema reuses that schema instead of adding a fourth.
    with loaded.update_schema() as update:
        update.delete_column("n")
        update.delete_column(("place", "zip"))
    assert loaded.schema().schema_id == 1
    assert sorted(loaded.schemas()) == [0, 1, 2]


def test_schemas_are_united_by_name(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    wider = pa.schema([("id", pa.int64()), ("name", pa.string()), ("size", pa.float64())])
    with table.update_schema() as update:
        update.union_by_name(wider)
    table.append(pa.Table.from_pylist([{"id": 1, "name": "a", "size": 2.5}], schema=wider))
    assert iceberg.load_table((namespace, "t")).scan().to_arrow().to_pylist() == [
        {"id": 1, "name": "a", "size": 2.5}
    ]


def test_partition_spec_evolves(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table(
        (namespace, "t"),
        ID_NAME,
        partition_spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b")),
    )
    table.append(id_name(1, 2, 3))
    with table.update_spec() as update:
        update.remove_field("b")
        update.add_field("name", TruncateTransform(3), "name_3")
    table.append(id_name(4, 5))
    with table.update_spec() as update:
        update.rename_field("name_3", "prefix")

    loaded = iceberg.load_table((namespace, "t"))
    assert [field.name for field in loaded.spec().fields] == ["prefix"]
    assert sorted(loaded.specs()) == [0, 1, 2]
    assert loaded.metadata.last_partition_id == 1001
    assert {file["spec_id"] for file in loaded.inspect.files().to_pylist()} == {0, 1}
    assert pyiceberg_ids(loaded, row_filter="id >= 3") == [3, 4, 5]
    assert pyiceberg_ids(loaded, row_filter="name = 'row-4'") == [4]


def test_sort_order_evolves(iceberg: Catalog, namespace: str) -> None:
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    table = iceberg.create_table((namespace, "t"), ID_NAME, sort_order=order)
    assert table.sort_order().order_id == 1
    with table.update_sort_order() as update:
        update.asc("name", IdentityTransform(), NullOrder.NULLS_FIRST)
    loaded = iceberg.load_table((namespace, "t"))
    assert loaded.sort_order().order_id == 2
    assert [field.source_id for field in loaded.sort_order().fields] == [2]
    assert sorted(loaded.sort_orders()) == [1, 2]


def test_properties_are_set_and_removed(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME, properties={"a": "1", "b": "2"})
    with table.transaction() as transaction:
        transaction.set_properties({"c": "3", "a": "one"})
        transaction.remove_properties("b")
    loaded = iceberg.load_table((namespace, "t"))
    assert {name: loaded.properties.get(name) for name in "abc"} == {
        "a": "one",
        "b": None,
        "c": "3",
    }
    assert loaded.metadata_location != table.location()
    assert len(loaded.metadata.metadata_log) == 1


def test_create_transaction_makes_the_table_with_its_first_rows(
    iceberg: Catalog, namespace: str
) -> None:
    transaction = iceberg.create_table_transaction((namespace, "t"), ID_NAME)
    transaction.append(id_name(1, 2))
    assert not iceberg.table_exists((namespace, "t")), "staged, but already visible"
    with transaction.update_schema() as update:
        update.add_column("size", IntegerType())
    transaction.set_properties(owner="tests")
    transaction.commit_transaction()

    loaded = iceberg.load_table((namespace, "t"))
    assert pyiceberg_ids(loaded) == [1, 2]
    assert loaded.schema().column_names == ["id", "name", "size"]
    assert loaded.properties["owner"] == "tests"
    assert len(loaded.metadata.snapshots) == 1

    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table((namespace, "t"), ID_NAME)
    assert iceberg.create_table_if_not_exists((namespace, "t"), ID_NAME).metadata.table_uuid == (
        loaded.metadata.table_uuid
    )


def test_namespaces_nest(iceberg: Catalog, namespace: str) -> None:
    inner = (namespace, "inner", "with.dot and ünïcode/slash")
    # The namespace between them is created too.
    iceberg.create_namespace(inner, {"owner": "tests", "comment": "three levels"})
    assert iceberg.list_namespaces(namespace) == [(namespace, "inner")]
    assert iceberg.list_namespaces((namespace, "inner")) == [inner]
    assert iceberg.namespace_exists(inner)
    assert not iceberg.namespace_exists((namespace, "other"))

    iceberg.create_table((*inner, "table.with/slash"), ID_NAME).append(id_name(7))
    assert iceberg.list_tables(inner) == [(*inner, "table.with/slash")]
    assert pyiceberg_ids(iceberg.load_table((*inner, "table.with/slash"))) == [7]

    summary = iceberg.update_namespace_properties(inner, {"owner"}, {"comment": "new", "x": "y"})
    assert (summary.removed, sorted(summary.updated), summary.missing) == (
        ["owner"],
        ["comment", "x"],
        [],
    )
    properties = iceberg.load_namespace_properties(inner)
    assert (properties.get("owner"), properties["comment"], properties["x"]) == (None, "new", "y")

    with pytest.raises(NamespaceNotEmptyError):
        iceberg.drop_namespace(inner)
    iceberg.drop_table((*inner, "table.with/slash"))
    iceberg.drop_namespace(inner)
    with pytest.raises(NoSuchNamespaceError):
        iceberg.load_namespace_properties(inner)


def test_table_is_renamed_across_namespaces(iceberg: Catalog, namespace: str) -> None:
    other = f"{namespace}_other"
    iceberg.create_namespace(other)
    before = iceberg.create_table((namespace, "old"), ID_NAME)
    before.append(id_name(1))
    renamed = iceberg.rename_table((namespace, "old"), (other, "new"))
    assert renamed.metadata.table_uuid == before.metadata.table_uuid
    assert not iceberg.table_exists((namespace, "old"))
    renamed.append(id_name(2))
    assert pyiceberg_ids(iceberg.load_table((other, "new"))) == [1, 2]

    iceberg.create_table((namespace, "old"), ID_NAME)
    with pytest.raises(TableAlreadyExistsError):
        iceberg.rename_table((namespace, "old"), (other, "new"))


def test_table_is_dropped_purged_and_registered_again(iceberg: Catalog, namespace: str) -> None:
    table = iceberg.create_table((namespace, "t"), ID_NAME)
    table.append(id_name(1))
    older = table.metadata_location
    table.append(id_name(2))
    iceberg.drop_table((namespace, "t"))
    with pytest.raises(NoSuchTableError):
        iceberg.load_table((namespace, "t"))

    registered = iceberg.register_table((namespace, "again"), table.metadata_location)
    assert registered.metadata.table_uuid == table.metadata.table_uuid
    assert pyiceberg_ids(registered) == [1, 2]
    with pytest.raises(TableAlreadyExistsError):
        iceberg.register_table((namespace, "again"), older)
    assert pyiceberg_ids(iceberg.register_table((namespace, "again"), older, overwrite=True)) == [1]


def test_purge_deletes_the_files_of_the_table(iceberg: Catalog, namespace: str) -> None:
    at_once = {"frazil.gc.quarantine-ms": "0"}
    table = iceberg.create_table((namespace, "t"), ID_NAME, properties=at_once)
    table.append(id_name(1))
    table.overwrite(id_name(2))
    folder = Path(table.location().removeprefix("file://"))
    assert len(list(folder.rglob("*.parquet"))) == 2
    iceberg.purge_table((namespace, "t"))
    assert not iceberg.table_exists((namespace, "t"))
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_day_identity_and_truncate_partitions(iceberg: Catalog, namespace: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "at", TimestamptzType(), required=False),
        NestedField(3, "kind", StringType(), required=False),
        NestedField(4, "word", StringType(), required=False),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "at_day"),
        PartitionField(3, 1001, IdentityTransform(), "kind"),
        PartitionField(4, 1002, TruncateTransform(1), "word_1"),
        PartitionField(1, 1003, BucketTransform(2), "id_bucket"),
    )
    table = iceberg.create_table((namespace, "t"), schema, partition_spec=spec)
    rows = [
        {
            "id": number,
            "at": datetime(2024, 1, 1 + number % 2, tzinfo=UTC),
            "kind": word,
            "word": word,
        }
        for number, word in enumerate(("ab", "ac", "b", None))
    ]
    table.append(pa.Table.from_pylist(rows, schema=schema.as_arrow()))

    loaded = iceberg.load_table((namespace, "t"))
    assert pyiceberg_ids(loaded) == [0, 1, 2, 3]
    assert pyiceberg_ids(loaded, row_filter="at >= '2024-01-02T00:00:00+00:00'") == [1, 3]
    assert pyiceberg_ids(loaded, row_filter="kind = 'ab'") == [0]
    assert len(list(loaded.scan(row_filter="kind = 'ab'").plan_files())) == 1
    partitions = [found["partition"] for found in loaded.inspect.partitions().to_pylist()]
    assert {found["word_1"] for found in partitions} == {"a", "b", None}
    assert {str(found["at_day"]) for found in partitions} == {"2024-01-01", "2024-01-02"}
    assert operations(loaded) == ["append"]
