"""`frazil plan` against a real server: the manifest walk, the files, and the residual filter."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.cli.tables.plan_command import _share, partition_text, residual_text
from frazil.wire.declared_content import EqualityDeleteFile, PositionDeleteFile
from frazil.wire.filter_builders import filter_json
from tests.cli.shop import FIRST, SECOND, Shop, make_shop
from tests.support.server import RunningServer


@pytest.fixture
def sold(shop: Shop) -> Shop:
    """Provide two manifests: one with a file for each day, one with another file for the first
    day."""
    files = [shop.write("a.parquet", [1, 2], FIRST), shop.write("b.parquet", [8, 9], SECOND)]
    shop.table.append_files(files)
    shop.append("c.parquet", [5], FIRST)
    return shop


def names(document: Any) -> list[str]:
    return sorted(file["file-path"].rsplit("/", 1)[1] for file in document["files"])


def test_the_walk_says_what_was_skipped_and_why(sold: Shop) -> None:
    said = sold.ok("plan", sold.name, "--filter", "day = DATE '2026-05-02' and id > 9")
    head = sold.table.head()
    lines = [line.rstrip() for line in said.splitlines()]
    assert lines == [
        f"{sold.name}, snapshot {head}, where day = DATE '2026-05-02' and id > 9",
        "2 data manifests",
        "├── 0 without live files (0.0%)",
        "├── 1 skipped by partition summaries (50.0%)",
        "└── 1 read, with 2 data files (50.0%)",
        "    ├── 1 skipped by partition values (50.0%)",
        "    ├── 1 skipped by column statistics (50.0%)",
        "    └── 0 planned (0.0%)",
        "0 files, 0 rows, 0 B",
    ]


def test_the_files_that_are_left(sold: Shop) -> None:
    said = sold.ok("plan", sold.name, "--filter", "day = '2026-05-01' and id >= 2")
    (a,) = [line for line in said.splitlines() if "a.parquet" in line]
    (c,) = [line for line in said.splitlines() if "c.parquet" in line]
    assert a.split()[:2] == ["day=2026-05-01", "2"]
    assert "id >= 2" in a
    assert "id >= 2" in c
    assert "b.parquet" not in said
    assert "2 files, 3 rows" in said
    whole = sold.ok("plan", sold.name)
    assert "3 planned (100.0%)" in whole
    assert "id" not in next(line for line in whole.splitlines() if "b.parquet" in line).split()


def test_json_has_everything(sold: Shop) -> None:
    found = sold.json("plan", sold.name, "--filter", "day = '2026-05-02' and id > 8")
    assert found["table"] == sold.name
    assert found["snapshot-id"] == sold.table.head()
    assert found["filter"] == filter_json("day = '2026-05-02' and id > 8")
    assert found["is-whole"] is True
    assert found["walk"]["data-manifests-skipped-by-partition"] == 1
    assert found["walk"]["data-files-planned"] == 1
    (file,) = found["files"]
    assert file.pop("size-in-bytes") > 0
    assert file == {
        "file-path": f"{sold.table.location}/data/b.parquet",
        "file-format": "parquet",
        "spec-id": 0,
        "partition": "day=2026-05-02",
        "record-count": 2,
        "delete-files": [],
        "residual-filter": {"type": "gt", "term": "id", "value": 8},
    }


def test_only_the_first_files_are_shown(sold: Shop) -> None:
    found = sold.json("plan", sold.name, "--limit", "1")
    assert (len(found["files"]), found["is-whole"]) == (1, False)
    assert "the first 1 of 3 files" in sold.ok("plan", sold.name, "-n", "1")
    only = sold.ok("plan", sold.name, "-n", "0")
    assert "parquet" not in only
    assert "3 planned" in only


def test_snapshots_refs_and_increments(sold: Shop) -> None:
    sold.table.create_tag("v1")
    sold.append("d.parquet", [7], SECOND)
    name = sold.name
    assert names(sold.json("plan", f"{name}@v1")) == ["a.parquet", "b.parquet", "c.parquet"]
    assert names(sold.json("plan", f"{name}@main^^")) == ["a.parquet", "b.parquet"]
    since = sold.json("plan", name, "--from", "v1")
    assert names(since) == ["d.parquet"]
    assert since["from-snapshot-id"] == sold.table.snapshot("v1").snapshot_id
    assert since["to-snapshot-id"] == sold.table.head()
    assert names(sold.json("plan", name, "--to", "main^")) == [
        "a.parquet",
        "b.parquet",
        "c.parquet",
    ]
    # `main^^^` is before the first snapshot and means the beginning of the history.
    assert names(sold.json("plan", name, "--from", "main^^^", "--to", "main^^")) == [
        "a.parquet",
        "b.parquet",
    ]
    said = sold.ok("plan", name, "--from", "v1")
    assert f"appended after snapshot {since['from-snapshot-id']}, up to snapshot" in said
    assert "without added files" in said


def test_deletes_are_shown_with_their_files(sold: Shop) -> None:
    table = sold.table
    shared: dict[str, Any] = {
        "spec_id": 0,
        "file_format": "parquet",
        "file_size_in_bytes": 9,
        "record_count": 1,
        "partition": ("2026-05-01",),
    }
    place = f"{table.location}/data"
    table.row_delta(
        add_deletes=[
            PositionDeleteFile(file_path=f"{place}/p.parquet", **shared),
            EqualityDeleteFile(file_path=f"{place}/e.parquet", equality_ids=(1,), **shared),
        ]
    )
    found = sold.json("plan", sold.name)
    deletes = {
        file["file-path"].rsplit("/", 1)[1]: [one["content"] for one in file["delete-files"]]
        for file in found["files"]
    }
    assert {name: sorted(kinds) for name, kinds in deletes.items()} == {
        "a.parquet": ["equality-deletes", "position-deletes"],
        "b.parquet": [],
        "c.parquet": ["equality-deletes", "position-deletes"],
    }
    said = sold.ok("plan", sold.name)
    (line,) = [line for line in said.splitlines() if "a.parquet" in line]
    assert "1 equality-delete, 1 position-delete" in line
    assert "1 delete manifest\n" in said
    assert "2 matched with data files (100.0%)" in said


def test_a_table_without_snapshots(shop: Shop) -> None:
    said = shop.ok("plan", shop.name, "--filter", "id = 1")
    assert "no snapshot yet" in said
    assert "0 data manifests" in said
    done = shop.run("plan", shop.name, "--to", "main")
    assert done.exit_code == 1
    assert "no snapshot for --to" in done.stderr


def test_wrong_usage_is_said(sold: Shop) -> None:
    both = sold.run("plan", f"{sold.name}@main", "--from", "main^")
    assert both.exit_code == 2
    assert "leave @ out" in both.stderr
    for arguments, message in (
        (("--filter", "id ="), "filter"),
        (("--filter", "nothing = 1"), "nothing"),
        (("--select", "nothing"), "select[0]: the table has no column 'nothing'; the columns are "),
        (("--from", "nowhere"), "has no snapshot, branch or tag nowhere"),
    ):
        done = sold.run("plan", sold.name, *arguments)
        assert done.exit_code == 1, done.output
        assert message in done.stderr


def test_partitions_are_written_as_people_do(catalog: RunningServer) -> None:
    transforms = ("year", "month", "hour", "bucket[4]", "identity")
    fields = [
        {"source-id": 1, "field-id": 1000 + n, "name": one.split("[")[0], "transform": one}
        for n, one in enumerate(transforms)
    ]
    table = make_shop(catalog).table
    table.metadata["partition-specs"].append({"spec-id": 7, "fields": fields})
    assert partition_text(table, 7, (56, 676, 493_860, 3, None)) == (
        "year=2026/month=2026-05/hour=2026-05-04-12/bucket=3/identity=null"
    )
    assert partition_text(table, 7, (-1, -1, -1, 0, True)) == (
        "year=1969/month=1969-12/hour=1969-12-31-23/bucket=0/identity=true"
    )


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, ""),
        (0, 7, " (0.0%)"),
        (1, 9_999, " (<0.1%)"),
        (9_998, 9_999, " (>99.9%)"),
        (7, 7, " (100.0%)"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_all(part: int, whole: int, text: str) -> None:
    assert _share(part, whole) == text


@pytest.mark.parametrize(
    "text",
    [
        "id = 1",
        "id != -1.5 and item is not null",
        "(id < 1 or id >= 7) and not (item = 'it''s')",
        "id > 1 and item like '50\\%\\_\\\\%' or id is null",
        "item not like 'a%'",
        "id in (1, 2) and \"or\" not in ('a', 'b') and \"a b\".c <= 3",
        "bucket(4, id) = 1 and day(day) = '2026-05-01' and truncate(2, item) = 'ab'",
        "ratio is nan and ratio is not nan and ok = true",
        "true",
    ],
)
def test_filters_come_back_as_they_were_typed(text: str) -> None:
    document = filter_json(text)
    assert filter_json(residual_text(document)) == document


def test_bare_booleans_are_filters_too() -> None:
    assert residual_text(False) == "FALSE"
    both = {"type": "and", "left": True, "right": {"type": "is-null", "term": "a"}}
    assert residual_text(both) == "a IS NULL"
