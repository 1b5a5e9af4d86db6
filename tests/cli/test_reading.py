"""`frazil log`, `show`, `diff` and `ls` against a real server."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import HourTransform, IdentityTransform
from pyiceberg.types import NestedField, StringType, TimestampType

from frazil import PositionDeleteFile
from frazil.cli.tables.commit_command import partition_of
from tests.cli.shop import FIRST, SCHEMA, SECOND, Shop, make_shop, numbers
from tests.support.server import RunningServer

# --- log and show ---------------------------------------------------------------------------------


def test_the_log_is_newest_first_with_refs(shop: Shop) -> None:
    first = shop.append("a.parquet", [1, 2])
    shop.table.create_tag("v1")
    second = shop.append("b.parquet", [3])
    found = shop.json("log", shop.name)
    assert [one["snapshot-id"] for one in found["snapshots"]] == [second, first]
    assert [one["refs"] for one in found["snapshots"]] == [["main"], ["v1"]]
    assert found["snapshots"][0]["parent-snapshot-id"] == first
    assert found["snapshots"][1]["summary"]["added-records"] == "2"
    said = shop.ok("log", shop.name).splitlines()
    assert said[0] == f"snapshot {second} (main)"
    assert f"snapshot {first} (tag: v1)" in said
    assert "  = 2 data files, 3 rows" in said[3]
    assert [one["snapshot-id"] for one in shop.json("log", shop.name, "-n", "1")["snapshots"]] == [
        second
    ]
    assert [one["snapshot-id"] for one in shop.json("log", f"{shop.name}@v1")["snapshots"]] == [
        first
    ]


def test_staged_snapshots_are_in_the_whole_log_alone(shop: Shop) -> None:
    shop.append("a.parquet", [1])
    path = shop.write("b.parquet", [2])
    staged = shop.json("commit", shop.name, "--add", path, "--stage-only")
    assert staged["staged"] is True
    assert len(shop.json("log", shop.name)["snapshots"]) == 1
    everything = shop.json("log", shop.name, "--all")["snapshots"]
    assert everything[0]["snapshot-id"] == staged["snapshot-id"]
    assert everything[0]["refs"] == []


def test_a_table_without_snapshots(shop: Shop) -> None:
    assert shop.json("log", shop.name)["snapshots"] == []
    assert "no snapshot yet" in shop.ok("log", shop.name)
    assert shop.json("show", shop.name)["snapshot"] is None
    assert "no snapshot yet" in shop.ok("show", shop.name)
    assert shop.json("ls", shop.name)["files"] == []
    assert shop.run("tag", shop.name, "v1").exit_code == 1


def test_a_table_is_shown(shop: Shop) -> None:
    shop.table.set_properties({"owner": "ice [team]"})
    head = shop.append("a.parquet", [1])
    found = shop.json("show", shop.name)
    assert found["table"] == shop.name
    assert found["location"] == shop.table.location
    assert found["schema"]["fields"] == SCHEMA["fields"]
    assert found["partition-spec"]["fields"][0]["name"] == "day"
    assert found["properties"]["owner"] == "ice [team]"
    assert found["snapshot"]["snapshot-id"] == head == found["refs"]["main"]["snapshot-id"]
    said = shop.ok("show", shop.name)
    for words in ("id", "long", "unsorted", "owner", "ice [team]", f"Snapshot {head}"):
        assert words in said


def test_an_older_snapshot_is_shown_with_its_own_schema(shop: Shop) -> None:
    first = shop.append("a.parquet", [1])
    stock = load_catalog("stock", type="rest", uri=shop.server.url).load_table(shop.name)
    with stock.update_schema() as update:
        update.add_column("note", StringType())
        update.rename_column("item", "thing")
    shop.append("b.parquet", [2])
    names = [
        field["name"] for field in shop.json("show", f"{shop.name}@{first}")["schema"]["fields"]
    ]
    assert names == ["id", "day", "item"]
    names = [field["name"] for field in shop.json("show", shop.name)["schema"]["fields"]]
    assert names == ["id", "day", "thing", "note"]
    changes = shop.json("diff", shop.name, str(first), "main")["schema-changes"]
    assert [(one["change"], one["id"]) for one in changes] == [("changed", 3), ("added", 4)]
    assert (changes[0]["from"]["column"], changes[0]["to"]["column"]) == ("item", "thing")
    said = shop.ok("diff", shop.name, str(first))
    assert "~ column item: string is now thing: string" in said
    assert "+ column note: string (id 4)" in said


# --- diff and ls ----------------------------------------------------------------------------------


def test_two_snapshots_are_compared_by_their_live_files(shop: Shop) -> None:
    shop.append("a.parquet", [1, 2], FIRST)
    first = shop.append("b.parquet", [3], SECOND)
    shop.append("c.parquet", [4, 5, 6], SECOND)
    shop.table.delete_files([f"{shop.table.location}/data/a.parquet"])
    found = shop.json("diff", shop.name, str(first), "main")
    assert [file["file-path"][-9:] for file in found["files"]["added"]] == ["c.parquet"]
    assert [file["file-path"][-9:] for file in found["files"]["removed"]] == ["a.parquet"]
    assert found["added"]["records"] == 3
    assert found["removed"] == {
        "data-files": 1,
        "delete-files": 0,
        "records": 2,
        "size-in-bytes": found["files"]["removed"][0]["size-in-bytes"],
    }
    assert [one["partition"] for one in found["partitions"]] == ["day=2026-05-01", "day=2026-05-02"]
    back = shop.json("diff", shop.name, "main", str(first))
    assert back["files"]["added"] == found["files"]["removed"]
    assert back["removed"] == found["added"]
    same = shop.json("diff", shop.name, "main", "main")
    assert same["files"] == {"added": [], "removed": []}
    said = shop.ok("diff", shop.name, str(first))
    assert "+ 1 data file, 3 rows" in said
    assert "- 1 data file, 2 rows" in said
    assert "day=2026-05-02       1      3       0      0" in said


def test_a_file_that_was_only_rewritten_into_another_manifest_is_no_change(shop: Shop) -> None:
    """A delete rewrites the manifest, which also contains the other files."""
    paths = [shop.write(f"{name}.parquet", [1]) for name in "abc"]
    shop.table.append_files(paths)
    shop.table.delete_files([paths[0]])
    found = shop.json("diff", shop.name, "main^", "main")
    assert found["files"]["added"] == []
    assert [file["file-path"] for file in found["files"]["removed"]] == [paths[0]]


def test_a_diff_from_before_the_first_snapshot(shop: Shop) -> None:
    shop.append("a.parquet", [1])
    found = shop.json("diff", shop.name, "main^", "main")
    assert found["from"]["snapshot-id"] is None
    assert found["added"]["data-files"] == 1
    beyond = shop.run("diff", shop.name, "main^^")
    assert beyond.exit_code == 1
    assert "goes back beyond the first snapshot" in beyond.stderr


def test_delete_files_and_their_kind_are_listed(shop: Shop) -> None:
    shop.append("a.parquet", [1, 2])
    data = f"{shop.table.location}/data/a.parquet"
    folder = Path(shop.table.location.removeprefix("file://")) / "data"
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
    rows = pa.table({"file_path": [data], "pos": [0]}, schema=pa.schema(fields))
    pq.write_table(rows, folder / "d.parquet")
    delete = PositionDeleteFile(
        spec_id=0,
        partition=("2026-05-01",),
        file_path=f"{shop.table.location}/data/d.parquet",
        file_format="parquet",
        file_size_in_bytes=(folder / "d.parquet").stat().st_size,
        record_count=1,
        referenced_data_file=data,
    )
    shop.table.row_delta(add_deletes=[delete])
    found = {file["content"]: file for file in shop.json("ls", shop.name)["files"]}
    assert set(found) == {"data", "position-deletes"}
    assert found["position-deletes"]["referenced-data-file"] == data
    changes = shop.json("diff", shop.name, "main^", "main")
    assert (changes["added"]["data-files"], changes["added"]["delete-files"]) == (0, 1)
    assert "1 delete file" in shop.ok("log", shop.name, "-n", "1")


def test_deletion_vectors_are_told_apart_by_their_offset(catalog: RunningServer) -> None:
    shop = make_shop(catalog, properties={"format-version": "3"})
    with shop.client:
        paths = [shop.write(f"{name}.parquet", [1, 2]) for name in "ab"]
        shop.table.append_files(paths)
        vectors = [
            PositionDeleteFile(
                spec_id=0,
                partition=("2026-05-01",),
                file_path=f"{shop.table.location}/data/v.puffin",
                file_format="puffin",
                file_size_in_bytes=200,
                record_count=1,
                referenced_data_file=path,
                content_offset=offset,
                content_size_in_bytes=40 + offset,
            )
            for path, offset in zip(paths, (4, 50), strict=True)
        ]
        shop.table.row_delta(add_deletes=vectors[:1])
        shop.table.row_delta(add_deletes=vectors[1:])
        (added,) = shop.json("diff", shop.name, "main^")["files"]["added"]
        assert (added["content"], added["content-offset"]) == ("deletion-vector", 50)
        assert added["size-in-bytes"] == 90
        assert added["referenced-data-file"] == paths[1]
        assert "v.puffin at 4" in shop.ok("ls", shop.name)


def test_files_of_stock_writers_are_listed_with_their_partitions(catalog: RunningServer) -> None:
    shop = make_shop(catalog)
    with shop.client:
        name = f"shop.events{next(numbers)}"
        stock = load_catalog("stock", type="rest", uri=catalog.url)
        schema = Schema(
            NestedField(1, "at", TimestampType()), NestedField(2, "region", StringType())
        )
        spec = PartitionSpec(
            PartitionField(1, 1000, HourTransform(), "at_hour"),
            PartitionField(2, 1001, IdentityTransform(), "region"),
        )
        table = stock.create_table(name, schema, partition_spec=spec)
        rows = {"at": [datetime(2026, 5, 1, 12, 30), None], "region": ["a/b", None]}
        table.append(pa.table(rows))
        found = sorted(file["partition"] for file in shop.json("ls", name)["files"])
        assert found == ["at_hour=2026-05-01-12/region=a%2Fb", "at_hour=null/region=null"]
        assert partition_of(
            shop.client.load_table(name), ["at_hour=2026-05-01-12", "region=a/b"]
        ) == {"at_hour": 493_788, "region": "a/b"}


def test_without_the_manifests_the_summaries_speak(shop: Shop) -> None:
    first = shop.append("a.parquet", [1, 2])
    shop.append("b.parquet", [3])
    shop.table.delete_files([f"{shop.table.location}/data/a.parquet"])
    shop.ok("branch", shop.name, "side", "--at", str(first))
    shop.ok("commit", shop.name, "--add", shop.write("s.parquet", [9]), "--branch", "side")
    metadata = Path(shop.table.location.removeprefix("file://")) / "metadata"
    for manifest in metadata.glob("*.avro"):
        manifest.unlink()
    found = shop.json("diff", shop.name, str(first), "main")
    assert found["files"] is None
    assert found["source"] == "summaries"
    assert (found["added"]["data-files"], found["added"]["records"]) == (1, 1)
    assert (found["removed"]["data-files"], found["removed"]["records"]) == (1, 2)
    assert "is missing" in found["files-unavailable"]["reason"]
    back = shop.json("diff", shop.name, "main", str(first))
    assert (back["added"], back["removed"]) == (found["removed"], found["added"])
    said = shop.run("diff", shop.name, str(first))
    assert said.exit_code == 0
    assert "+ 1 data file, 1 row" in said.stdout
    assert "for the lists of files: run this where" in said.stderr
    listed = shop.run("ls", shop.name)
    assert listed.exit_code == 1
    assert "By its summary the snapshot has 1 data file, 1 row" in listed.stderr
    # When the histories have diverged, only totals can be compared.
    apart = shop.json("diff", shop.name, "side", "main")
    assert apart["source"] == "totals"
    assert (apart["difference"]["data-files"], apart["difference"]["records"]) == (-1, -2)
    assert "-1 data-files, -2 records" in shop.ok("diff", shop.name, "side", "main")


def test_namespaces_tables_and_views_are_listed(catalog: RunningServer) -> None:
    shop = make_shop(catalog)
    with shop.client as client:
        level = f"l{next(numbers)}"
        client.create_namespace((level,))
        client.create_namespace((level, "in.ner"))
        client.create_table((level, "in.ner", "t"), SCHEMA)
        client.create_table((level, "in.ner"), SCHEMA)
        everything = shop.json("ls")["namespaces"]
        assert [level] in everything
        assert [level, "in.ner"] in everything
        found = shop.json("ls", level)
        assert found["namespaces"] == [[level, "in.ner"]]
        assert found["tables"] == [{"namespace": [level], "name": "in.ner"}]
        assert found["views"] == []
        inner = json.dumps([level, "in.ner"])
        assert shop.json("ls", inner)["files"] == []
        assert shop.json("ls", f"{inner}.")["tables"][0]["name"] == "t"
        assert shop.json("show", json.dumps([level, "in.ner", "t"]))["identifier"] == {
            "namespace": [level, "in.ner"],
            "name": "t",
        }
        assert f"table      {level}.in.ner" in shop.ok("ls", level)
        assert shop.run("ls", "no.such").exit_code == 1


def test_a_mistyped_name_is_answered_with_the_nearest(shop: Shop) -> None:
    near = shop.name[:-1] + "x"
    parent, _, table = shop.name.partition(".")
    suggestion = f"did you mean '{parent}."
    for command in ("show", "log", "drop", "ls", "view drop"):
        refused = shop.run(*command.split(), near)
        assert refused.exit_code == 1
        assert (suggestion in refused.stderr) == (command != "view drop")
    assert "did you mean 'shop'?" in shop.run("show", f"shopp.{table}").stderr
    for command in ("ls", "ns show", "ns ls", "ns drop", "ns unset shopp x"):
        words = command.split() if "shopp" in command else [*command.split(), "shopp"]
        assert "did you mean 'shop'?" in shop.run(*words).stderr
    assert "it is a table" in shop.run("view", "show", shop.name).stderr
