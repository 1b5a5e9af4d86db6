"""The client's commands against a real server, with real Parquet files."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import HourTransform, IdentityTransform
from pyiceberg.types import NestedField, StringType, TimestampType
from typer.testing import CliRunner, Result

from frazil import Client, DataFile, PositionDeleteFile, Table
from frazil.cli.app import app
from frazil.cli.partition_values import partition_of
from tests.support.proxy import DropAnswer, running_proxy
from tests.support.readme import free_port
from tests.support.s3 import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server
from tests.support.server import RunningServer, ServerFactory, running_server

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
        {"id": 3, "name": "item", "required": False, "type": "string"},
    ],
}
BY_DAY = {
    "spec-id": 0,
    "fields": [{"source-id": 2, "field-id": 1000, "name": "day", "transform": "identity"}],
}
BY_BUCKET = {
    "spec-id": 0,
    "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}],
}
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("day", pa.date32(), metadata={"PARQUET:field_id": "2"}),
        pa.field("item", pa.string(), metadata={"PARQUET:field_id": "3"}),
    ]
)
FIRST, SECOND = date(2026, 5, 1), date(2026, 5, 2)
_numbers = itertools.count()


@dataclass(frozen=True)
class Shop:
    """A server, and a table of this test's own in it."""

    server: RunningServer
    client: Client
    name: str

    @property
    def table(self) -> Table:
        return self.client.load_table(self.name)

    def write(self, name: str, ids: list[int], day: date = FIRST) -> str:
        """A Parquet file in the table's location; its path as the table will have it."""
        location = self.table.location
        folder = Path(location.removeprefix("file://")) / "data"
        folder.mkdir(parents=True, exist_ok=True)
        rows = {"id": ids, "day": [day] * len(ids), "item": [f"item {one}" for one in ids]}
        pq.write_table(pa.table(rows, schema=ARROW), folder / name)
        return f"{location}/data/{name}"

    def append(self, name: str, ids: list[int], day: date = FIRST) -> int:
        done = self.table.append_files([self.write(name, ids, day)])
        assert done.snapshot_id is not None
        return done.snapshot_id

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--uri", self.server.url])

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))

    def files(self, *arguments: str) -> list[str]:
        found = self.json("ls", self.name, *arguments)["files"]
        return sorted(file["file-path"].rsplit("/", 1)[1] for file in found)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("catalog")) as started:
        yield started


def make_shop(
    server: RunningServer,
    spec: dict[str, Any] | None = BY_DAY,
    properties: dict[str, str] | None = None,
) -> Shop:
    client = Client(server.url)
    if not client.namespace_exists("shop"):
        client.create_namespace("shop")
    name = f"shop.orders{next(_numbers)}"
    client.create_table(name, SCHEMA, partition_spec=spec, properties=properties)
    return Shop(server, client, name)


@pytest.fixture
def shop(catalog: RunningServer) -> Iterator[Shop]:
    made = make_shop(catalog)
    yield made
    made.client.close()


# --- commit ---------------------------------------------------------------------------------------


def test_only_added_files_are_an_append(shop: Shop) -> None:
    a, b = shop.write("a.parquet", [1, 2]), shop.write("b.parquet", [3], SECOND)
    done = shop.json("commit", shop.name, "--add", a, b, "--summary", "wap.id=load-1")
    assert done["operation"] == "append"
    assert done["added"]["data-files"] == 2
    assert done["added"]["records"] == 3
    snapshot = shop.table.snapshot("main")
    assert done["snapshot-id"] == snapshot.snapshot_id
    assert snapshot.summary["wap.id"] == "load-1"
    assert shop.files() == ["a.parquet", "b.parquet"]


def test_files_may_be_local_paths_and_the_table_may_come_last(shop: Shop) -> None:
    path = shop.write("a.parquet", [1]).removeprefix("file://")
    said = shop.ok("commit", "--add", path, shop.name)
    assert "(append), on main" in said
    assert "+ 1 data file, 1 row" in said
    assert shop.files() == ["a.parquet"]


def test_only_removed_files_are_a_delete(shop: Shop) -> None:
    shop.append("a.parquet", [1])
    shop.append("b.parquet", [2])
    path = f"{shop.table.location}/data/a.parquet"
    assert shop.json("commit", shop.name, "--remove", path)["operation"] == "delete"
    assert shop.files() == ["b.parquet"]


def test_files_are_removed_by_a_filter(shop: Shop) -> None:
    shop.append("a.parquet", [1], FIRST)
    shop.append("b.parquet", [2], SECOND)
    done = shop.json("commit", shop.name, "--remove-where", "day = '2026-05-01'")
    assert done["operation"] == "delete"
    assert shop.files() == ["b.parquet"]


def test_both_are_an_overwrite(shop: Shop) -> None:
    shop.append("a.parquet", [1])
    new = shop.write("c.parquet", [1])
    old = f"{shop.table.location}/data/a.parquet"
    done = shop.json("commit", shop.name, "--remove", old, "--add", new, "--isolation", "snapshot")
    assert done["operation"] == "overwrite"
    assert shop.files() == ["c.parquet"]


def test_partitions_are_replaced(shop: Shop) -> None:
    shop.append("a.parquet", [1], FIRST)
    shop.append("b.parquet", [2], SECOND)
    new = shop.write("c.parquet", [3], FIRST)
    assert shop.json("commit", shop.name, "--add", new, "--replace-partitions")["operation"] == (
        "overwrite"
    )
    assert shop.files() == ["b.parquet", "c.parquet"]


def test_a_partition_that_the_footer_cannot_prove_is_given(catalog: RunningServer) -> None:
    shop = make_shop(catalog, BY_BUCKET)
    with shop.client:
        path = shop.write("a.parquet", [1, 2])
        refused = shop.run("commit", shop.name, "--add", path)
        assert refused.exit_code == 1
        assert "a.parquet" in refused.stderr
        done = shop.run("commit", shop.name, "--add", path, "--partition", "b=x")
        assert done.exit_code == 2
        shop.ok("commit", shop.name, "--add", path, "--partition", "b=0")
        (file,) = shop.json("ls", shop.name)["files"]
        assert file["partition"] == "b=0"


def test_a_branch_is_committed_to(shop: Shop) -> None:
    head = shop.append("a.parquet", [1])
    shop.ok("commit", shop.name, "--add", shop.write("b.parquet", [2]), "--branch", "audit")
    assert shop.table.head() == head
    found = shop.json("ls", f"{shop.name}@audit")["files"]
    assert len(found) == 2
    assert shop.files() == ["a.parquet"]


def test_a_dry_run_shows_the_request_and_sends_nothing(shop: Shop) -> None:
    head = shop.append("a.parquet", [1])
    old, new = f"{shop.table.location}/data/a.parquet", shop.write("b.parquet", [2])
    arguments = ("commit", shop.name, "--add", new, "--remove", old, "--dry-run")
    kept = shop.json(*arguments)
    assert shop.table.head() == head
    namespace, _, table = shop.name.partition(".")
    assert kept["method"] == "POST"
    assert kept["path"] == f"/v1/namespaces/{namespace}/tables/{table}"
    assert kept["headers"]["Prefer"] == "return=minimal"
    assert "Idempotency-Key" in kept["headers"]
    (update,) = kept["body"]["updates"]
    assert update["action"] == "overwrite"
    assert update["base-snapshot-id"] == head
    assert update["remove-data-files"] == [old]
    assert [file["file-path"] for file in update["add-data-files"]] == [new]
    assert [clause["type"] for clause in update["commit-validations"]] == [
        "not-allowed-added-data-files",
        "required-data-files",
        "not-allowed-new-deletes-for-data-files",
    ]
    text = shop.run(*arguments)
    assert text.exit_code == 0
    first, *rest = text.stdout.splitlines()
    assert first == f"POST {kept['path']}"
    body = json.loads("\n".join(rest[rest.index("") :]))
    assert body == kept["body"]
    assert "nothing was sent" in text.stderr
    # What is shown is what is sent: the server takes it as it is.
    request = urllib.request.Request(
        f"{shop.server.url}{kept['path']}",
        json.dumps(kept["body"]).encode(),
        {**kept["headers"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["committed"][0]["operation"] == "overwrite"
    assert shop.files() == ["b.parquet"]


def test_a_conflict_has_its_exit_code_and_is_explained(shop: Shop, tmp_path: Path) -> None:
    base = shop.append("a.parquet", [1])
    later = shop.append("b.parquet", [2])
    old, new = f"{shop.table.location}/data/a.parquet", shop.write("c.parquet", [1])
    saved = tmp_path / "conflict.json"
    arguments = ("commit", shop.name, "--add", new, "--remove", old, "--base", str(base))
    refused = shop.run(*arguments, "--save-conflict", str(saved))
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "data files were added since the base" in refused.stderr
    assert f"{later} (append)" in refused.stderr
    assert "b.parquet" in refused.stderr
    assert shop.table.head() == later

    explained = CliRunner().invoke(app, ["explain", str(saved)])
    assert explained.exit_code == 0
    assert explained.stdout.strip() in refused.stderr

    as_json = shop.run(*arguments, "--output", "json")
    assert (as_json.exit_code, as_json.stdout) == (3, "")
    error = json.loads(as_json.stderr)["error"]
    assert error == json.loads(saved.read_text())["error"]
    assert error["conflicts"][0]["snapshots"][0]["snapshot-id"] == later

    narrowed = ("--conflict-filter", "day = '2026-05-02'")
    shop.ok(*arguments, *narrowed)
    assert shop.files() == ["b.parquet", "c.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to do"),
        (("--add", "x", "--base", "main"), "--base means nothing for an append"),
        (("--add", "x", "--isolation", "snapshot"), "--isolation means nothing"),
        (("--add", "x", "--conflict-filter", "id = 1"), "--conflict-filter means nothing"),
        (("--remove", "x", "--replace-partitions"), "takes --add alone"),
        (("--remove", "x", "--partition", "day=2026-05-01"), "give --add"),
        (("--remove-where", "id ="), "--remove-where: "),
        (("--remove", "x", "--conflict-filter", "id"), "--conflict-filter: "),
        (("--add", "x", "--summary", "k"), "write it as key=value"),
        (("--add", "x", "--summary", "k=1", "--summary", "k=2"), "k is given twice"),
    ],
)
def test_wrong_usage_of_commit_is_named(
    shop: Shop, arguments: tuple[str, ...], message: str
) -> None:
    done = shop.run("commit", shop.name, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_file_that_does_not_fit_is_named(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "no.parquet"
    path.write_bytes(b"nothing")
    done = shop.run("commit", shop.name, "--add", str(path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no.parquet" in done.stderr


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
    """A delete rewrites the manifest of all its neighbours."""
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
        name = f"shop.events{next(_numbers)}"
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
    # Of two ways that history went only the totals can be compared.
    apart = shop.json("diff", shop.name, "side", "main")
    assert apart["source"] == "totals"
    assert (apart["difference"]["data-files"], apart["difference"]["records"]) == (-1, -2)
    assert "-1 data-files, -2 records" in shop.ok("diff", shop.name, "side", "main")


def test_without_the_server_extra_it_is_said_how_to_get_it(shop: Shop) -> None:
    shop.append("a.parquet", [1])
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        f"sys.argv = ['frazil', 'diff', {shop.name!r}, 'main^', '--uri', {shop.server.url!r}]\n"
        "from frazil.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert "+ 1 data file, 1 row" in done.stdout
    assert "numpy, which is not installed" in done.stderr
    assert "pip install 'frazil[server]'" in done.stderr


def test_namespaces_tables_and_views_are_listed(catalog: RunningServer) -> None:
    shop = make_shop(catalog)
    with shop.client as client:
        level = f"l{next(_numbers)}"
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


# --- refs -----------------------------------------------------------------------------------------


def test_branches_and_tags_are_made_listed_and_removed(shop: Shop) -> None:
    first = shop.append("a.parquet", [1])
    second = shop.append("b.parquet", [2])
    made = shop.json("branch", shop.name, "dev", "--at", "main^", "--min-snapshots-to-keep", "3")
    assert made == {
        "table": shop.name,
        "type": "branch",
        "name": "dev",
        "snapshot-id": first,
        "previous-snapshot-id": None,
    }
    assert (
        shop.json("tag", shop.name, "v1", "--max-ref-age-ms", "86400000")["snapshot-id"] == second
    )
    branches = shop.json("branch", shop.name)["refs"]
    assert [(one["name"], one["snapshot-id"]) for one in branches] == [
        ("dev", first),
        ("main", second),
    ]
    assert branches[0]["min-snapshots-to-keep"] == 3
    (tag,) = shop.json("tag", shop.name)["refs"]
    assert (tag["name"], tag["max-ref-age-ms"]) == ("v1", 86_400_000)
    assert "min snapshots to keep 3" in shop.ok("branch", shop.name)

    exists = shop.run("branch", shop.name, "dev")
    assert exists.exit_code == 1
    assert shop.json("branch", shop.name, "dev", "--replace")["previous-snapshot-id"] == first

    kept = shop.json("tag", shop.name, "v1", "--delete", "--dry-run")
    assert kept["body"]["updates"] == [{"action": "remove-snapshot-ref", "ref-name": "v1"}]
    assert "v1" in shop.table.refs
    assert shop.run("branch", shop.name, "v1", "--delete").exit_code == 1
    assert shop.json("tag", shop.name, "v1", "--delete")["snapshot-id"] is None
    assert f"is removed; it was at {second}" in shop.ok("branch", shop.name, "dev", "--delete")
    assert set(shop.table.refs) == {"main"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("branch", "--delete"),
        ("branch", "--at", "main"),
        ("tag", "--dry-run"),
        ("branch", "x", "--delete", "--at", "main"),
        ("branch", "x", "--min-snapshots-to-keep", "0"),
        ("rollback",),
        ("rollback", "main", "--to-timestamp", "2026-05-01"),
        ("rollback", "--to-timestamp", "yesterday"),
    ],
    ids=" ".join,
)
def test_wrong_usage_of_refs_is_named(shop: Shop, arguments: tuple[str, ...]) -> None:
    done = shop.run(arguments[0], shop.name, *arguments[1:])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr


def test_a_branch_is_rolled_back(shop: Shop) -> None:
    first = shop.append("a.parquet", [1])
    second = shop.append("b.parquet", [2])
    kept = shop.json("rollback", shop.name, "main^", "--dry-run")
    assert kept["body"]["updates"][0]["snapshot-id"] == first
    assert shop.table.head() == second
    done = shop.json("rollback", shop.name, str(first))
    assert (done["snapshot-id"], done["previous-snapshot-id"]) == (first, second)
    assert shop.files() == ["a.parquet"]
    other = shop.run("rollback", shop.name, str(second))
    assert other.exit_code == 1
    assert "not an ancestor" in other.stderr


def test_a_branch_is_rolled_back_to_a_time(shop: Shop) -> None:
    first = shop.append("a.parquet", [1])
    shop.append("b.parquet", [2])
    when = shop.table.snapshot(first).timestamp_ms
    text = datetime.fromtimestamp(when / 1000, UTC).isoformat(timespec="milliseconds")
    assert shop.json("rollback", shop.name, "--to-timestamp", text)["snapshot-id"] == first
    too_old = shop.run("rollback", shop.name, "--to-timestamp", "2000-01-01T00:00:00Z")
    assert too_old.exit_code == 1


def test_a_staged_snapshot_is_published(shop: Shop, tmp_path: Path) -> None:
    shop.append("a.parquet", [1])
    path = shop.write("b.parquet", [2])
    staged = shop.json("commit", shop.name, "--add", path, "--stage-only", "--summary", "wap.id=w")
    snapshot = str(staged["snapshot-id"])
    kept = shop.json("cherry-pick", shop.name, snapshot, "--dry-run")
    assert kept["body"]["updates"][0]["action"] == "cherry-pick"
    assert shop.files() == ["a.parquet"]
    assert shop.json("cherry-pick", shop.name, snapshot)["name"] == "main"
    assert shop.files() == ["a.parquet", "b.parquet"]
    saved = tmp_path / "again.json"
    again = shop.run("cherry-pick", shop.name, snapshot, "--save-conflict", str(saved))
    assert again.exit_code == 3
    assert "(cherry-pick)" in again.stderr
    assert json.loads(saved.read_text())["error"]["conflicts"][0]["clause"] == "cherry-pick"


# --- which catalog, and how it ends ---------------------------------------------------------------


def test_the_catalog_comes_from_the_configuration(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    file = tmp_path / ".pyiceberg.yaml"
    file.write_text(f"catalog:\n  default:\n    uri: {shop.server.url}\n  other:\n    uri: gone\n")
    assert CliRunner().invoke(app, ["show", shop.name]).exit_code == 0
    wrong = CliRunner().invoke(app, ["show", shop.name, "--catalog", "other"])
    assert wrong.exit_code == 2
    assert "'gone' must begin with http" in wrong.stderr
    unknown = CliRunner().invoke(app, ["show", shop.name, "--catalog", "third", "-o", "json"])
    assert unknown.exit_code == 2
    assert "known are default, other" in json.loads(unknown.stderr)["error"]["message"]
    environ = {"PYICEBERG_CATALOG__THIRD__URI": shop.server.url}
    done = CliRunner().invoke(app, ["show", shop.name, "--catalog", "third"], env=environ)
    assert done.exit_code == 0


def test_a_configured_token_is_sent_to_its_own_server_alone(
    server: ServerFactory, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = json.loads(CliRunner().invoke(app, ["token", "new", "etl", "-o", "json"]).stdout)
    closed = server(env={"FRAZIL_TOKENS": made["entry"]})
    environ = {
        "PYICEBERG_CATALOG__DEFAULT__URI": closed.url,
        "PYICEBERG_CATALOG__DEFAULT__TOKEN": made["token"],
    }
    for arguments, code in (
        (["ls"], 0),
        (["ls", "--uri", closed.url], 1),
        (["ls", "--uri", closed.url, "--token", made["token"]], 0),
        (["ls", "--uri", closed.url, "--catalog", "default"], 0),
    ):
        done = CliRunner().invoke(app, arguments, env=environ)
        assert done.exit_code == code, (arguments, done.output)


def test_an_outcome_that_nobody_knows_has_its_exit_code(shop: Shop) -> None:
    patience = {"commit.retry.num-retries": "0", "commit.status-check.num-retries": "0"}
    shop.table.set_properties(patience)
    path = shop.write("a.parquet", [1])
    with running_proxy(shop.server.url, [DropAnswer()]) as proxy:
        arguments = ["commit", shop.name, "--add", path, "--uri", proxy.url, "-o", "json"]
        done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (4, "")
    assert json.loads(done.stderr)["error"]["type"] == "CommitStateUnknownException"
    # This one has taken place.
    assert shop.files() == ["a.parquet"]


def test_a_server_that_is_not_there_is_one_message() -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    done = CliRunner().invoke(app, ["ls", "--uri", uri])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("frazil: ")
    assert uri in done.stderr


def test_a_table_that_is_not_there_is_one_message(shop: Shop) -> None:
    for arguments in (("show",), ("log",), ("branch",), ("diff", "main")):
        done = shop.run(arguments[0], "shop.none", *arguments[1:])
        assert (done.exit_code, done.stdout) == (1, "")
        assert "shop.none" in done.stderr
    missing = shop.run("show", f"{shop.name}@nothing")
    assert missing.exit_code == 1
    assert "nothing" in missing.stderr
    assert shop.run("show", "orders").exit_code == 2


def test_as_a_user_types_it(shop: Shop, tmp_path: Path) -> None:
    path = shop.write("a.parquet", [1])
    environ = {**os.environ, "PYICEBERG_CATALOG__DEFAULT__URI": shop.server.url}
    command = [sys.executable, "-m", "frazil"]
    for arguments in (["commit", shop.name, "--add", path], ["log", shop.name, "-o", "json"]):
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environ, capture_output=True, timeout=50
        )
        assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["snapshots"]) == 1


def test_manifests_are_read_from_s3(
    server: ServerFactory, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = server("--warehouse", f"{s3_bucket}/warehouse", env=s3_server.environ())
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with Client(started.url) as client:
        client.create_namespace("shop")
        table = client.create_table("shop.orders", SCHEMA)
        file = DataFile(
            spec_id=0,
            partition=(),
            file_path=f"{table.location}/data/a.parquet",
            file_format="parquet",
            file_size_in_bytes=10,
            record_count=1,
        )
        table.append_files([file])
    environ = {
        "PYICEBERG_CATALOG__DEFAULT__URI": started.url,
        "PYICEBERG_CATALOG__DEFAULT__S3__ACCESS_KEY_ID": ACCESS_KEY_ID,
        "PYICEBERG_CATALOG__DEFAULT__S3__SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
    }
    done = CliRunner().invoke(app, ["ls", "shop.orders", "-o", "json"], env=environ)
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["files"]
    assert found["file-path"] == file.file_path
