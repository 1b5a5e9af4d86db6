"""`frazil branch`, `tag`, `rollback` and `cherry-pick` against a real server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.shop import Shop


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
