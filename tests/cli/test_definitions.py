"""The whole life of a table and a namespace without Spark."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.shop import Shop

FILE = "file://"
NAME_MAPPING = "schema.name-mapping.default"
numbers = itertools.count()
COLUMNS = "id bigint not null comment 'the key', place struct<city: string>, at timestamptz"


@pytest.fixture
def name() -> str:
    """Return the name of a table that does not exist yet."""
    return f"shop.made{next(numbers)}"


@pytest.fixture
def made(shop: Shop, name: str) -> str:
    """Create a table of format version 3 without files."""
    shop.ok("create", name, "--schema", COLUMNS, "--format-version", "3")
    return name


def columns(shop: Shop, table: str) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in shop.json("show", table)["schema"]["fields"]}


# --- tables ---------------------------------------------------------------------------------------


def test_an_error_of_several_lines_is_printed_as_lines(shop: Shop, name: str) -> None:
    shop.ok("create", name, "--schema", "id long", "--format-version", "2")
    done = shop.run("add-column", name, "size", "int not null default 0")
    assert "Invalid schema for v2:\n- Invalid initial default for size" in done.stderr


def test_a_table_is_created_with_all_its_parts(shop: Shop, name: str) -> None:
    created = shop.json(
        *("create", name, "--schema", COLUMNS, "--partition-by", "day(at)"),
        *("--partition-by", "bucket(4, id)", "--sort-by", "at desc nulls last", "--sort-by", "id"),
        *("--identifier", "id", "--property", "owner=ann", "--format-version", "3"),
    )
    shown = shop.json("show", name)
    assert created == {
        "table": name,
        "table-uuid": shown["table-uuid"],
        "format-version": 3,
        "location": shown["location"],
        "metadata-location": shown["metadata-location"],
        "created": True,
    }
    assert [field["type"] for field in shown["schema"]["fields"]][::2] == ["long", "timestamptz"]
    assert shown["schema"]["identifier-field-ids"] == [1]
    assert [field["transform"] for field in shown["partition-spec"]["fields"]] == [
        "day",
        "bucket[4]",
    ]
    assert [field["direction"] for field in shown["sort-order"]["fields"]] == ["desc", "asc"]
    assert shown["properties"]["owner"] == "ann"
    again = shop.run("create", name, "--schema", "x int", "-o", "json")
    assert again.exit_code == 1
    assert json.loads(again.stderr)["error"]["type"] == "AlreadyExistsException"
    there = shop.json("create", name, "--schema", "x int", "--if-not-exists")
    assert there == {**created, "created": False}


def test_a_table_like_a_parquet_file(shop: Shop, name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("day", pa.date32())])
    pq.write_table(pa.table({"id": [1], "day": [None]}, schema), file)
    location = f"{shop.table.location}-of-mine"
    shop.ok("create", name, "--like", str(file), "--location", location, "--partition-by", "day")
    shown = shop.json("show", name)
    assert shown["location"] == location
    assert [(each["name"], each["type"]) for each in shown["schema"]["fields"]] == [
        ("id", "int"),
        ("day", "date"),
    ]
    for path in (str(tmp_path / "none.parquet"), str(tmp_path)):
        done = shop.run("create", "shop.other", "--like", path)
        assert done.exit_code == 1
        assert f"--like {path}" in done.stderr


def test_a_table_like_a_file_takes_the_file(shop: Shop, name: str) -> None:
    """A file without field ids is found by its names, also inside of its columns."""
    path = shop.write("ids.parquet", [1]).removeprefix(FILE)
    shop.ok("create", f"{name}_of_ids", "--like", path)
    assert NAME_MAPPING not in shop.client.load_table(f"{name}_of_ids").properties
    folder = Path(shop.table.location.removeprefix(FILE)).with_name("of_names")
    folder.mkdir()
    file = folder / "a.parquet"
    row = {"id": 1, "place": {"city": "Oslo", "at": [1.5]}, "tags": [("a", 1)], "note": "x"}
    inner = pa.struct([("city", pa.string()), ("at", pa.list_(pa.float64()))])
    tags = pa.map_(pa.string(), pa.int64())
    schema = [("id", pa.int64()), ("place", inner), ("tags", tags), ("note", pa.string())]
    pq.write_table(pa.Table.from_pylist([row], pa.schema(schema)), file)
    shop.ok("create", name, "--like", str(file), "--location", folder.as_uri())
    shop.ok("commit", name, "--add", str(file))
    assert shop.client.scan(name).to_pylist() == [row]
    shop.ok("create", f"{name}_own", "--like", str(file), "--property", f"{NAME_MAPPING}=[]")
    assert shop.client.load_table(f"{name}_own").properties[NAME_MAPPING] == "[]"


def test_a_table_from_json(shop: Shop, name: str) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "a", "required": True, "type": "int"}]}
    shop.ok("create", name, "--schema", json.dumps(schema))
    assert columns(shop, name) == {"a": schema["fields"][0]}
    wrong = shop.run("create", "shop.other", "--schema", "{x")
    assert (wrong.exit_code, wrong.stderr.count("JSON")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "give either --schema or --like"),
        (("--schema", "a int", "--like", "f"), 2, "give either --schema or --like"),
        (("--schema", "a wrong"), 1, "wrong"),
        (("--schema", "a int", "--partition-by", "b"), 1, "b"),
        (("--schema", "a int", "--property", "x"), 2, "--property x: write it as key=value"),
    ],
)
def test_a_wrong_definition_names_the_fix(
    shop: Shop, name: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = shop.run("create", name, *arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert not shop.client.table_exists(name)


def test_rename_and_drop(shop: Shop, made: str, name: str) -> None:
    folder = Path(shop.client.load_table(made).location.removeprefix("file://"))
    assert shop.json("rename", made, f"{name}_new") == {
        "table": f"{name}_new",
        "previous-name": made,
    }
    assert shop.json("drop", f"{name}_new") == {
        "table": f"{name}_new",
        "dropped": True,
        "purged": False,
    }
    assert list(folder.glob("metadata/*.json"))
    assert shop.run("drop", made).exit_code == 1
    assert shop.json("drop", made, "--if-exists")["dropped"] is False
    assert "does not exist" in shop.ok("drop", made, "--if-exists")
    shop.ok("create", made, "--schema", "a int")
    folder = Path(shop.client.load_table(made).location.removeprefix("file://"))
    assert shop.json("drop", made, "--purge", "--now")["purged"] is True
    assert not list(folder.glob("metadata/*.json"))


def test_unregister_and_register(shop: Shop, made: str) -> None:
    uuid = shop.json("show", made)["table-uuid"]
    location = shop.json("unregister", made)["metadata-location"]
    assert not shop.client.table_exists(made)
    assert shop.json("register", made, location)["table-uuid"] == uuid
    assert shop.run("register", made, location).exit_code == 1
    assert shop.json("register", made, location, "--overwrite")["table-uuid"] == uuid


def test_properties(shop: Shop, made: str) -> None:
    shop.ok("set", made, "owner=ann", "write.format.default=parquet", "note=a=b")
    properties = shop.json("show", made)["properties"]
    assert (properties["owner"], properties["note"]) == ("ann", "a=b")
    answer = shop.json("unset", made, "owner", "note")
    assert answer["metadata-location"] == shop.client.load_table(made).metadata_location
    assert not {"owner", "note"} & shop.json("show", made)["properties"].keys()
    shop.ok("set", made, "note=a")
    assert f"{made}: unset note; was not set: owner, nope" in shop.ok(
        "unset", made, "note", "owner", "nope"
    )
    assert shop.run("set", made, "owner").exit_code == 2
    assert shop.run("set", made).exit_code == 2


# --- columns --------------------------------------------------------------------------------------


def test_columns(shop: Shop, made: str) -> None:
    shop.ok("add-column", made, "size", "int not null default 3", "--doc", "how big", "--first")
    shop.ok("add-column", made, "place.zip", "string", "--after", "city")
    shop.ok("rename-column", made, "at", "seen")
    shop.ok("alter-column", made, "size", "--type", "long", "--after", "id", "--default", "5")
    shop.ok("alter-column", made, "id", "--doc", "key", "--optional")
    assert "dropped the column seen" in shop.ok("drop-column", made, "seen")
    now = columns(shop, made)
    assert list(now) == ["id", "size", "place"]
    assert (now["size"]["type"], now["size"]["required"], now["size"]["doc"]) == (
        "long",
        True,
        "how big",
    )
    assert (now["size"]["initial-default"], now["size"]["write-default"]) == (3, 5)
    assert (now["id"]["doc"], now["id"]["required"]) == ("key", False)
    assert [field["name"] for field in now["place"]["type"]["fields"]] == ["city", "zip"]
    for arguments, message in (
        (("alter-column", made, "size", "--type", "int"), "int"),
        (("alter-column", made, "size"), "nothing to change"),
        (("add-column", made, "size", "int"), "size"),
        (("drop-column", made, "none"), "none"),
    ):
        done = shop.run(*arguments)
        assert done.exit_code == 1
        assert message in done.stderr
    assert shop.run("alter-column", made, "size", "--default", "a b").exit_code in (1, 2)


def test_partitions_order_and_keys(shop: Shop, made: str) -> None:
    shop.ok("add-partition-field", made, "day(at)")
    shop.ok("add-partition-field", made, "bucket(8, id)", "--name", "shard")
    shop.ok("drop-partition-field", made, "day(at)")
    shop.ok("set-sort-order", made, "id desc", "at")
    shop.ok("set-identifier-fields", made, "id")
    shown = shop.json("show", made)
    assert [field["name"] for field in shown["partition-spec"]["fields"]] == ["shard"]
    assert len(shown["sort-order"]["fields"]) == 2
    assert shown["schema"]["identifier-field-ids"] == [1]
    shop.ok("drop-partition-field", made, "shard")
    shop.ok("set-sort-order", made)
    shop.ok("set-identifier-fields", made)
    shown = shop.json("show", made)
    assert shown["partition-spec"]["fields"] == shown["sort-order"]["fields"] == []
    assert shown["schema"].get("identifier-field-ids", []) == []


# --- namespaces -----------------------------------------------------------------------------------


def test_namespaces(shop: Shop) -> None:
    assert shop.json("ns", "create", "depot", "--property", "owner=ann") == {
        "namespace": ["depot"],
        "created": True,
    }
    shop.ok("ns", "create", "depot.north")
    assert shop.json("ns", "create", "depot", "--if-not-exists")["created"] is False
    assert shop.run("ns", "create", "depot").exit_code == 1
    assert shop.json("ns", "ls", "depot")["namespaces"] == [["depot", "north"]]
    assert ["depot"] in shop.json("ns", "ls")["namespaces"]
    shop.ok("ns", "set", "depot", "owner=bob", "floor=2")
    assert shop.json("ns", "unset", "depot", "floor", "roof") == {
        "namespace": ["depot"],
        "removed": ["floor"],
        "missing": ["roof"],
    }
    assert "depot: was not set: floor" in shop.ok("ns", "unset", "depot", "floor")
    assert shop.json("ns", "show", "depot")["properties"]["owner"] == "bob"
    assert "bob" in shop.ok("ns", "show", "depot")
    assert "floor" not in shop.ok("ns", "show", "depot")
    assert shop.run("ns", "drop", "depot").exit_code == 1
    shop.ok("ns", "drop", "depot.north")
    assert shop.json("ns", "drop", "depot") == {"namespace": ["depot"], "dropped": True}
    assert shop.json("ns", "drop", "depot", "--if-exists")["dropped"] is False


# --- dry runs -------------------------------------------------------------------------------------


def test_a_dry_run_sends_nothing(shop: Shop, made: str) -> None:
    before = shop.client.load_table(made).metadata_location
    for arguments in (
        ("create", "shop.other", "--schema", "a int"),
        ("drop", made, "--purge"),
        ("rename", made, "shop.other"),
        ("set", made, "a=b"),
        ("unset", made, "a"),
        ("register", "shop.other", before),
        ("unregister", made),
        ("add-column", made, "x", "int"),
        ("drop-column", made, "at"),
        ("rename-column", made, "at", "x"),
        ("alter-column", made, "at", "--doc", "x"),
        ("set-identifier-fields", made, "id"),
        ("add-partition-field", made, "id"),
        ("set-sort-order", made, "id"),
        ("ns", "create", "other"),
        ("ns", "drop", "shop"),
        ("ns", "set", "shop", "a=b"),
        ("ns", "unset", "shop", "a"),
    ):
        request = shop.json(*arguments, "--dry-run")
        assert request["method"] in ("POST", "DELETE"), arguments
        assert request["path"].startswith("/v1/"), arguments
    assert shop.ok("drop", made, "--dry-run").splitlines()[-1].startswith("Idempotency-Key: ")
    assert shop.client.load_table(made).metadata_location == before
    assert not shop.client.table_exists("shop.other")
    assert not shop.client.namespace_exists("other")
