"""Tables are created from Arrow schemas, text and terms, and their definition can be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil import Client, Table, bucket, col, day
from frazil.client.declare import column_changes
from frazil.client.declare.schema_updates import schema_updates
from frazil.wire.errors import AlreadyExists, BadRequest
from tests.support.server import RunningServer

COLUMNS = "id bigint not null comment 'the key', name string, at timestamptz"


@pytest.fixture
def table(client: Client, namespace: str) -> Table:
    return client.create_table(f"{namespace}.t", COLUMNS, partition_by=["day(at)"])


def columns(table: Table) -> list[str]:
    return [str(field) for field in table.schema.fields]


def partition_names(table: Table) -> list[str]:
    return [field["name"] for field in table.spec()["fields"]]


def reloaded(client: Client, table: Table) -> Table:
    return client.load_table(table.identifier)


# --- new tables -----------------------------------------------------------------------------------

IN_ALL_FORMS: list[Any] = [
    pytest.param("id long not null, tags list<string>, place struct<x: double>", id="text"),
    pytest.param("(id LONG NOT NULL, tags ARRAY<STRING>, `place` STRUCT<x: DOUBLE>)", id="sql"),
    pytest.param(
        {"id": "long not null", "tags": "list<string>", "place": "struct<x double>"}, id="mapping"
    ),
    pytest.param(
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("tags", pa.large_list(pa.string_view())),
                pa.field("place", pa.struct([("x", pa.float64())])),
            ]
        ),
        id="arrow",
    ),
]


@pytest.mark.parametrize("schema", IN_ALL_FORMS)
def test_a_schema_in_any_form(client: Client, namespace: str, schema: Any) -> None:
    created = client.create_table(f"{namespace}.t", schema)
    assert columns(created) == [
        "1: id: required long",
        "2: tags: optional list<string>",
        "3: place: optional struct<5: x: optional double>",
    ]


def test_arrow_types_make_the_table_that_pyiceberg_reads_back(
    client: Client, namespace: str, catalog: RunningServer
) -> None:
    schema = pa.schema(
        [
            pa.field("i8", pa.int8()),
            pa.field("u32", pa.uint32()),
            pa.field("price", pa.decimal128(9, 2)),
            pa.field("d", pa.date32()),
            pa.field("t", pa.time64("us")),
            pa.field("at", pa.timestamp("ns", "Europe/Berlin")),
            pa.field("local", pa.timestamp("ms")),
            pa.field("key", pa.uuid()),
            pa.field("raw", pa.binary(4)),
            pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
            pa.field("m", pa.map_(pa.string(), pa.int32()), metadata={"doc": "a map"}),
        ]
    )
    created = client.create_table(f"{namespace}.t", schema, format_version=2)
    assert [line.partition(" optional ")[2] for line in columns(created)] == [
        "int",
        "long",
        "decimal(9, 2)",
        "date",
        "time",
        "timestamptz",
        "timestamp",
        "uuid",
        "fixed[4]",
        "string",
        "map<string, int>",
    ]
    assert created.schema.fields[-1].doc == "a map"
    stock = RestCatalog("stock", uri=catalog.url).load_table((namespace, "t"))
    assert schema_to_pyarrow(stock.schema()).names == schema.names


def test_nanoseconds_stay_in_version_3(client: Client, namespace: str) -> None:
    schema = pa.schema([("at", pa.timestamp("ns")), ("nothing", pa.null())])
    created = client.create_table(f"{namespace}.t", schema, format_version=3)
    assert columns(created) == [
        "1: at: optional timestamp_ns",
        "2: nothing: optional unknown",
    ]


def test_partition_and_sort_terms(client: Client, namespace: str) -> None:
    created = client.create_table(
        f"{namespace}.t",
        COLUMNS,
        partition_by=["day(at)", bucket(16, "id"), col("name")],
        sort_by=["name desc", "id"],
        identifier_fields=["id"],
        properties={"owner": "docs"},
    )
    assert [field["transform"] for field in created.spec()["fields"]] == [
        "day",
        "bucket[16]",
        "identity",
    ]
    assert [field["direction"] for field in created.sort_order()["fields"]] == ["desc", "asc"]
    assert created.metadata["schemas"][0]["identifier-field-ids"] == [1]
    assert created.schema.fields[0].doc == "the key"
    assert created.properties["owner"] == "docs"


def test_a_table_that_exists(client: Client, table: Table) -> None:
    with pytest.raises(AlreadyExists):
        client.create_table(table.identifier, COLUMNS)
    assert client.create_table(table.identifier, "x int", if_not_exists=True).uuid == table.uuid


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (["id"], {}, "schema: give a pyarrow schema"),
        ("", {}, "text ends where a column should be"),
        ("id", {}, "text ends where a type should be"),
        ("id wat", {}, "wat is not a type; the types are boolean, "),
        ("id strng", {}, "strng is not a type; did you mean 'string'"),
        ("id long, 'x' int", {}, "expected a column, found \"'x' int\""),
        ("id long 'x", {}, "a quote is not closed"),
        ("a.b long", {}, "column a.b: write the struct as a type"),
        ("id long after x", {}, "in the order of the text"),
        ({"id": 1}, {}, "column id: give the type as a str"),
        ("id long default 'x'", {}, "column id: the default does not fit long"),
        (pa.schema([("id", pa.uint64())]), {}, "no type for Arrow's uint64; cast it to int64"),
        (pa.schema([("x", pa.null())]), {}, "needs a table of format version 3"),
        (COLUMNS, {"partition_by": "day(at)"}, "partition_by: give a list"),
        (COLUMNS, {"partition_by": ["dayz(at)"]}, "partition_by: .* did you mean 'day'"),
        (COLUMNS, {"partition_by": ["nope"]}, "partition_by: there is no column 'nope'"),
        (COLUMNS, {"partition_by": ["dayz"]}, r"partition_by: .*with its column: day\(column\)"),
        (COLUMNS, {"sort_by": ["nope"]}, "sort_by: there is no column 'nope'"),
        (COLUMNS, {"identifier_fields": ["name"]}, "column name may be null"),
        (COLUMNS, {"identifier_fields": ["nope"]}, "there is no column 'nope'; the columns are"),
    ],
)
def test_bad_definitions_name_the_field(
    client: Client, namespace: str, schema: Any, options: Any, message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        client.create_table(f"{namespace}.t", schema, **options)


# --- columns --------------------------------------------------------------------------------------


def test_a_life_of_columns(client: Client, table: Table) -> None:
    name = table.identifier
    client.add_column(name, "place", "struct<city: string>", doc="where")
    client.add_column(name, "place.zip", "int", first=True)
    client.add_columns(name, "size int after id, note string comment 'free'")
    client.rename_column(name, "place.city", "town")
    client.update_column(name, "size", type="long", doc="in bytes")
    client.update_column(name, "id", required=False)
    client.drop_column(name, "note")
    client.move_column(name, "at", first=True)
    changed = reloaded(client, table)
    assert columns(changed) == [
        "3: at: optional timestamptz",
        "1: id: optional long",
        "7: size: optional long",
        "2: name: optional string",
        "4: place: optional struct<6: zip: optional int, 5: town: optional string>",
    ]
    assert [field.doc for field in changed.schema.fields] == [
        None,
        "the key",
        "in bytes",
        None,
        "where",
    ]


def test_a_required_column_needs_a_default(client: Client, namespace: str) -> None:
    table = client.create_table(f"{namespace}.t", "id long", format_version=3)
    with pytest.raises(BadRequest, match=r"column n: .*no value for it.*DEFAULT"):
        table.add_column("n", "int not null")
    table.add_column("n", "int", required=True, default=7)
    table.add_column("day", "date default DATE '2026-05-01'")
    number, date = reloaded(client, table).schema.fields[1:]
    assert (number.required, number.initial_default, number.write_default) == (True, 7, 7)
    assert date.initial_default == 20574


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.add_column("name", "int"), "column name is there already"),
        (lambda table: table.add_column("name.x", "int"), "name is a string, no struct"),
        (lambda table: table.add_column("x", "int", first=True, after="id"), "give one of them"),
        (
            lambda table: table.add_column("x", "int", after="nope"),
            "beside it there is no column 'nope'",
        ),
        (lambda table: table.drop_column("nope"), "there is no column 'nope'; the columns are id"),
        (lambda table: table.rename_column("nam", "x"), "no column 'nam'; did you mean 'name'"),
        (lambda table: table.drop_column("at"), "first drop the partition field at_day"),
        (lambda table: table.add_partition_field("dayz(at)"), "partition field: .* mean 'day'"),
        (lambda table: table.rename_column("id", "name"), "column name is there already"),
        (lambda table: table.update_column("id", type="int"), "long cannot become int"),
        (lambda table: table.update_column("id"), "there is nothing to change"),
        (lambda table: table.move_column("id"), "move_column: give first=True or after"),
        (lambda table: table.set_identifier_fields("name"), "column name may be null"),
        (lambda table: table.drop_partition_field("id"), "not partitioned by id; it has at_day"),
        (lambda table: table.set_sort_order("nope"), "set_sort_order: there is no column 'nope'"),
    ],
)
def test_refused_changes_name_the_column(
    client: Client, table: Table, change: Callable[[Table], Any], message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        change(table)
    assert reloaded(client, table).metadata == table.metadata


def test_partition_fields_sort_order_and_identifiers(client: Client, table: Table) -> None:
    table.add_partition_field(bucket(4, "id"), name="shard")
    table.replace_partition_field(day("at"), "month(at)")
    assert partition_names(reloaded(client, table)) == ["shard", "at_month"]
    table.drop_partition_field("shard")
    table.set_sort_order("name desc nulls last", distribution="hash")
    table.set_identifier_fields("id")
    changed = reloaded(client, table)
    assert partition_names(changed) == ["at_month"]
    assert changed.sort_order()["fields"][0]["null-order"] == "nulls-last"
    assert changed.properties["write.distribution-mode"] == "hash"
    assert changed.metadata["schemas"][-1]["identifier-field-ids"] == [1]
    table.set_sort_order()
    table.set_identifier_fields()
    changed = reloaded(client, table)
    assert changed.sort_order()["fields"] == []


def test_a_change_that_lost_a_race_is_applied_again(
    client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = schema_updates

    def after_another(*args: Any) -> Any:
        monkeypatch.setattr(column_changes, "schema_updates", build)
        built = build(*args)
        client.add_column(table.identifier, "theirs", "int")
        return built

    monkeypatch.setattr(column_changes, "schema_updates", after_another)
    commit = table.add_column("ours", "string")
    assert commit.attempts == 2
    assert columns(reloaded(client, table))[3:] == [
        "4: theirs: optional int",
        "5: ours: optional string",
    ]


def test_a_transaction_changes_each_part_once(client: Client, table: Table) -> None:
    with client.transaction() as tx:
        tx.add_columns(table.identifier, {"x": "int", "y": "int"})
        tx.add_partition_field(table.identifier, "id")
        tx.set_properties(table.identifier, {"owner": "docs"})
        with pytest.raises(BadRequest, match="changes its schema already"):
            tx.drop_column(table.identifier, "name")
    changed = reloaded(client, table)
    assert [field.name for field in changed.schema.fields] == ["id", "name", "at", "x", "y"]
    assert partition_names(changed) == ["at_day", "id"]
