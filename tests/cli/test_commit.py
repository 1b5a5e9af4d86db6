"""`frazil commit` against a real server, with real Parquet files."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from frazil.cli.app import app
from tests.cli.shop import BY_BUCKET, FIRST, SECOND, Shop, make_shop
from tests.support.server import RunningServer


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
    newer = shop.write("d.parquet", [4], FIRST)
    shown = shop.ok("commit", shop.name, "--add", newer, "--replace-partitions")
    assert "  - all other files of their partitions\n" in shown


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
    # The printed request is complete: the server accepts it unchanged.
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
        (("--add", "x", "--base", "main"), "--base has no effect on an append"),
        (("--add", "x", "--isolation", "snapshot"), "--isolation has no effect"),
        (("--add", "x", "--conflict-filter", "id = 1"), "--conflict-filter has no effect"),
        (("--remove", "x", "--replace-partitions"), "needs only --add"),
        (("--remove", "x", "--partition", "day=2026-05-01"), "give --add"),
        (("--remove-where", "id ="), "--remove-where: "),
        (("--remove", "x", "--conflict-filter", "id"), "--conflict-filter: "),
        (("--add", "x", "--summary", "k"), "write it as key=value"),
        (("--add", "x", "--summary", "k=1", "--summary", "k=2"), "k appears twice"),
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
