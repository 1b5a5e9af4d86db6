"""Manifests roll over and merge: no file is lost, and a commit rewrites a limited number of
entries."""

from __future__ import annotations

import pytest

from tests.commit.finegrained.conftest import TableFactory
from tests.commit.finegrained.requests import append
from tests.commit.finegrained.tables import Table
from tests.commit.finegrained.trees import avro_records, check_tree
from tests.commit.finegrained.world import World, opened_world

MAX_REWRITTEN = 8_000
"""The limit of rewritten entries."""


def rewritten(table: Table) -> int:
    """Return the number of existing entries in the manifests that the head wrote."""
    head = table.load().head()
    assert head is not None
    listed, _ = avro_records(head["manifest-list"])
    return sum(
        manifest["existing_files_count"]
        for manifest in listed
        if manifest["added_snapshot_id"] == head["snapshot-id"]
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_large_append_rolls_at_the_target_size(new_table: TableFactory, version: int) -> None:
    table = new_table(version=version, properties={"commit.manifest.target-size-bytes": "16384"})
    names = [f"a-rather-long-name-{number:05}" for number in range(3000)]
    table.append(*(table.data(name, number % 16) for number, name in enumerate(names)))
    assert table.live() == set(names)
    manifests = table.tree().manifests
    assert len(manifests) > 1
    assert max(m["manifest_length"] for m in manifests) < 8 * 16384
    table.delete(*(table.data_path(name) for name in names[::7]))
    assert len(table.live()) == 3000 - len(names[::7])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_many_appends_keep_the_number_of_manifests_small(
    new_table: TableFactory, version: int
) -> None:
    table = new_table(version=version, properties={"commit.manifest.min-count-to-merge": "5"})
    most = 0
    for number in range(60):
        table.append(table.data(f"f{number}", number % 16))
        most = max(most, len(table.tree().manifests))
    assert table.live() == {f"f{number}" for number in range(60)}
    assert most <= 30


def test_one_commit_never_rewrites_more_than_a_few_thousand_entries(
    new_table: TableFactory,
) -> None:
    table = new_table(properties={"commit.manifest.min-count-to-merge": "2"})
    most = 0
    for part in range(5):
        files = [table.data(f"p{part}-{number}", 0) for number in range(2200)]
        assert table.post(append(*files)).status == 200
        most = max(most, rewritten(table))
    for number in range(6):
        assert table.post(append(table.data(f"single{number}", 0))).status == 200
        most = max(most, rewritten(table))
    assert 0 < most <= MAX_REWRITTEN
    check_tree(table.metadata, table.head_id)
    assert len(table.live()) == 5 * 2200 + 6


@pytest.mark.parametrize("version", [2, 3])
def test_delete_manifests_are_merged_apart_from_data(new_table: TableFactory, version: int) -> None:
    table = new_table(version=version, properties={"commit.manifest.min-count-to-merge": "3"})
    files = [table.data(f"f{number}", 0) for number in range(9)]
    table.append(*files)
    for number, file in enumerate(files):
        table.overwrite(
            add_deletes=[table.deletes(f"d{number}", file, refer=True)]
            if version == 2
            else [table.vector(f"d{number}", file)]
        )
    end = "@4" if version == 3 else ""
    assert table.live() == {f"f{n}" for n in range(9)} | {f"d{n}{end}" for n in range(9)}
    deletes = [m for m in table.tree().manifests if m["content"] == 1]
    assert len(deletes) < 9
    numbers = {n: s for n, s in table.sequence_numbers().items() if n.startswith("d")}
    assert sorted(numbers.values()) == list(range(2, 11))


@pytest.mark.parametrize(
    ("properties", "codec"),
    [
        ({}, "deflate"),
        ({"manifest.compression-codec": "Uncompressed"}, "null"),
        ({"avro.compression-codec": "null"}, "null"),
        ({"avro.compression-codec": "bzip2"}, "bzip2"),
        ({"avro.compression-codec": "null", "manifest.compression-codec": "gzip"}, "deflate"),
    ],
)
def test_manifests_and_lists_have_the_codec_of_the_table(
    new_table: TableFactory, properties: dict[str, str], codec: str
) -> None:
    """The manifest that is merged had another codec."""
    table = new_table(properties={"commit.manifest.min-count-to-merge": "2"})
    table.append(table.data("a", 0))
    table.commit(
        {
            "action": "set-properties",
            "updates": {f"write.{name}": value for name, value in properties.items()},
        }
    )
    table.append(table.data("b", 0))
    assert codecs(table) == {codec}
    table.delete(table.data_path("a"))
    assert codecs(table) == {codec}


def codecs(table: Table) -> set[str]:
    """Return the codecs of the head's manifest list and of its manifests."""
    head = table.load().head()
    assert head is not None
    listed, header = avro_records(head["manifest-list"])
    headers = [header, *(avro_records(one["manifest_path"])[1] for one in listed)]
    return {header["avro.codec"] for header in headers}


def test_the_level_of_the_codec(new_table: TableFactory) -> None:
    sizes = []
    for level in ("1", "9"):
        properties = {"write.avro.compression-level": level}
        table = new_table(properties=properties)
        table.append(*(table.data(f"f{number}", number % 16) for number in range(400)))
        sizes.append(sum(manifest["manifest_length"] for manifest in table.tree().manifests))
    assert sizes[1] < sizes[0]


def test_files_of_a_commit_lie_in_the_metadata_folder(new_table: TableFactory) -> None:
    table = new_table()
    table.append(table.data("a", 0))
    head = table.head()
    assert head is not None
    folder = f"{table.location}/metadata/"
    assert head["manifest-list"].startswith(f"{folder}snap-{head['snapshot-id']}-")
    (manifest,) = table.tree().manifests
    assert manifest["manifest_path"].startswith(folder)
    assert manifest["manifest_path"].endswith(".avro")


def test_a_metadata_path_of_its_own(new_table: TableFactory, world: World) -> None:
    folder = f"file://{world.warehouse}/elsewhere-metadata"
    table = new_table(properties={"write.metadata.path": folder})
    answer = table.post(append(table.data("a", 0)))
    assert answer.status == 200, answer.body
    table.accept(answer)
    (manifest,) = table.tree().manifests
    assert manifest["manifest_path"].startswith(folder)


def test_what_was_written_before_a_restart_is_found_again(
    new_table: TableFactory, world: World
) -> None:
    """A second catalog on the same database has empty caches."""
    table = new_table(version=3)
    files = [table.data(f"f{number}", number % 4, rows=3) for number in range(40)]
    for start in range(0, 40, 10):
        table.append(*files[start : start + 10])
    with opened_world(world.database, world.warehouse) as another:
        table.call = another
        assert table.conflict(append(files[7])).clause == "duplicate-file"
        table.delete(files[13])
        table.append(table.data("new", 0))
    assert len(table.live()) == 40
