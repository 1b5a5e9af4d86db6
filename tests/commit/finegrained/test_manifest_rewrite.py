"""A rewrite of manifests changes where entries are, and nothing else."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from frazil.commit.catalog.manifest_maintenance import RewrittenManifests
from frazil.commit.snapshot.manifest_rewrite import rewritten_manifests
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier
from tests.commit.finegrained.conftest import WITH_DELETES, TableFactory, places
from tests.commit.finegrained.requests import delete
from tests.commit.finegrained.tables import DATES, Table
from tests.commit.finegrained.trees import DELETED, check_tree, local
from tests.commit.finegrained.world import World
from tests.commit.requests import context

VERSIONS = pytest.mark.parametrize("place", places(1, 2, 3))
NO_MERGE = {"commit.manifest-merge.enabled": "false"}
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", None]


def identifier(table: Table) -> Identifier:
    return Identifier((table.namespace,), table.name)


def rewrite(world: World, table: Table, **options: Any) -> RewrittenManifests:
    before = table.load().head()
    result = world.catalog.rewrite_manifests(
        context(), identifier(table), branch=table.branch, **options
    )
    if result.added_manifests_count and not result.dry_run:
        assert table.load().head() != before
        assert table.operation == "replace"
        # This compares all live entries with those of the parent.
        check_tree(table.metadata, table.head_id)
    return result


def by_day(
    new_table: TableFactory, place: tuple[int, str], *, appends: int = 8, **properties: str
) -> Table:
    """Create a table whose every commit adds one file for each day, in a manifest of its own."""
    version, branch = place
    properties = {**NO_MERGE, **properties}
    table = new_table(version=version, branch=branch, spec=DATES, properties=properties)
    for number in range(appends):
        table.append(*(table.data(f"f{number}-{day}", day, rows=3) for day in DAYS))
    return table


def days_of(table: Table) -> list[set[Any]]:
    """Return the days of each data manifest."""
    tree = table.tree()
    return [
        {entry.partition[0] for entry in tree.of(manifest)}
        for manifest in tree.manifests
        if manifest.get("content", 0) == 0
    ]


@VERSIONS
def test_entries_are_clustered_by_partition(
    world: World, new_table: TableFactory, place: tuple[int, str]
) -> None:
    table = by_day(new_table, place, appends=40)
    sizes = [manifest["manifest_length"] for manifest in table.tree().manifests]
    target = sum(sizes) // 4
    target_size = {"commit.manifest.target-size-bytes": str(target)}
    table.commit({"action": "set-properties", "updates": target_size})
    expected = RewrittenManifests(rewritten_manifests_count=40, added_manifests_count=4)
    planned = rewrite(world, table, dry_run=True)
    assert (planned.rewritten_manifests_count, planned.dry_run) == (40, True)
    assert len(days_of(table)) == 40
    result = rewrite(world, table)
    assert result.rewritten_manifests_count == expected.rewritten_manifests_count
    assert 1 <= result.added_manifests_count <= 6
    assert len(days_of(table)) == result.added_manifests_count
    # The new manifests are smaller than was estimated, but no day is in more than two of them.
    for day in DAYS:
        assert sum(day in days for days in days_of(table)) <= 2
    assert table.summary()["entries-processed"] == "160"
    assert table.summary()["manifests-replaced"] == "40"
    assert rewrite(world, table).added_manifests_count <= 1


def test_large_manifests_that_overlap_with_no_other_stay(
    world: World, new_table: TableFactory
) -> None:
    table = by_day(new_table, (2, "main"), appends=40)
    sizes = [manifest["manifest_length"] for manifest in table.tree().manifests]

    def set_target(size: int) -> None:
        updates = {"commit.manifest.target-size-bytes": str(size)}
        table.commit({"action": "set-properties", "updates": updates})

    set_target(sum(sizes) // 4)
    rewrite(world, table)
    large = {m["manifest_path"]: m["manifest_length"] for m in table.tree().manifests}
    assert len(large) > 1
    set_target(min(large.values()) * 4 // 3)
    for number in range(9):
        table.append(table.data(f"late{number}", "2024-03-01"))
    assert rewrite(world, table).rewritten_manifests_count == 9
    assert large.keys() < {m["manifest_path"] for m in table.tree().manifests}
    # The files of an early day are in a large manifest, which is rewritten with theirs.
    table.append(table.data("early0", DAYS[0]), table.data("early1", DAYS[1]))
    assert rewrite(world, table).rewritten_manifests_count > 1
    assert not large.keys() <= {m["manifest_path"] for m in table.tree().manifests}


@VERSIONS
def test_unpartitioned_manifests_become_one(
    world: World, new_table: TableFactory, place: tuple[int, str]
) -> None:
    version, branch = place
    table = new_table(version=version, branch=branch, spec={"fields": []}, properties=NO_MERGE)
    assert rewrite(world, table) == RewrittenManifests()
    table.append(table.data("f0"))
    assert rewrite(world, table) == RewrittenManifests()
    for number in range(1, 5):
        table.append(table.data(f"f{number}"))
    result = rewrite(world, table)
    assert result == RewrittenManifests(rewritten_manifests_count=5, added_manifests_count=1)
    table.append(table.data("f5"))
    table.delete(table.data_path("f1"), table.data_path("f5"))
    assert table.live() == {"f0", "f2", "f3", "f4"}
    rewrite(world, table)


@WITH_DELETES
def test_a_rewrite_revives_no_deleted_entries(
    world: World, new_table: TableFactory, place: tuple[int, str]
) -> None:
    """iceberg-rust#2203: DELETED entries came back, so a file had two deletion vectors."""
    table = by_day(new_table, place)
    files = [table.data(f"f{number}-{DAYS[0]}", DAYS[0], rows=3) for number in range(8)]
    for number, file in enumerate(files):
        table.overwrite(add_deletes=[table.deletes(f"old{number}", file)])
    for number, file in enumerate(files[:5]):
        (old,) = (
            {"file-path": entry.file_path}
            | ({"content-offset": entry.content_offset} if entry.content_offset else {})
            for name, entry in table.entries().items()
            if name.startswith(f"old{number}")
        )
        table.overwrite(
            base=table.head_id,
            add_deletes=[table.deletes(f"new{number}", file)],
            remove_deletes=[old],
        )
    table.delete(table.data_path(f"f7-{DAYS[1]}"))
    assert any(entry.status == DELETED for entry in table.tree().entries)
    live = table.live()
    result = rewrite(world, table)
    assert result.rewritten_manifests_count >= 8 + 8
    assert not any(entry.status == DELETED for entry in table.tree().entries)
    assert table.live() == live
    vectors = [entry.referenced_data_file for entry in table.tree().live.values()]
    named = [path for path in vectors if path is not None]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("version", [2, 3])
def test_manifests_of_another_spec_stay(
    world: World, new_table: TableFactory, version: int
) -> None:
    table = by_day(new_table, (version, "main"), appends=3)
    table.commit(
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    for number in range(3):
        table.append(table.data(f"g{number}", spec_id=1))
    old = {m["manifest_path"] for m in table.tree().manifests if m["partition_spec_id"] == 0}
    assert rewrite(world, table).rewritten_manifests_count == 3
    assert old <= {m["manifest_path"] for m in table.tree().manifests}
    assert rewrite(world, table, spec_id=0).rewritten_manifests_count == 3
    assert len(table.tree().manifests) == 2
    with pytest.raises(BadRequest, match="spec_id: the table has no partition spec 7"):
        rewrite(world, table, spec_id=7)


def test_sort_by_names_fields_of_the_spec(world: World, new_table: TableFactory) -> None:
    spec = {
        "fields": [
            {"source-id": 3, "field-id": 1000, "name": "day", "transform": "identity"},
            {"source-id": 1, "field-id": 1001, "name": "bucket", "transform": "bucket[4]"},
        ]
    }
    properties = {**NO_MERGE, "commit.manifest.target-size-bytes": "9000"}
    table = new_table(spec=spec, properties=properties)
    for number in range(8):
        files = [
            table.data(f"f{number}-{day}-{bucket}", day, bucket)
            for day in DAYS
            for bucket in range(4)
        ]
        table.append(*files)
    with pytest.raises(BadRequest, match="sort_by: hour is not a field of partition spec 0"):
        rewrite(world, table, sort_by=["hour"])

    def overlap(position: int) -> int:
        tree = table.tree()
        return sum(
            len({entry.partition[position] for entry in tree.of(manifest)})
            for manifest in tree.manifests
        )

    assert rewrite(world, table, sort_by=["bucket", "day"]).added_manifests_count > 1
    by_bucket = overlap(1)
    assert rewrite(world, table, sort_by=["day"]).added_manifests_count > 1
    assert overlap(1) > by_bucket


def test_whole_blocks_are_copied(world: World, new_table: TableFactory) -> None:
    """Entries that a rewrite has written before are copied in their compressed form."""
    table = by_day(
        new_table, (3, "main"), appends=1, **{"commit.manifest.target-size-bytes": "12000"}
    )
    for number in range(2):
        names = [f"g{number}-{at:04}" for at in range(1500)]
        table.append(*(table.data(name, f"2024-01-{at % 20:02}") for at, name in enumerate(names)))
        assert rewrite(world, table).added_manifests_count >= 1
    table.delete(table.data_path("g0-0700"))
    table.append(*(table.data(f"h{at:04}", "2024-01-07") for at in range(700)))
    live = table.live()
    assert rewrite(world, table).added_manifests_count > 1
    assert table.live() == live


# --- beside other commits --------------------------------------------------------------------


def during_the_rewrite(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[], object], rounds: int = 1
) -> None:
    """Let another commit happen after the new manifests were built, in the first rounds."""
    left = [rounds]

    def built(*args: Any) -> Any:
        written = rewritten_manifests(*args)
        if left[0]:
            left[0] -= 1
            other()
        return written

    monkeypatch.setattr("frazil.commit.catalog.manifest_maintenance.rewritten_manifests", built)


@VERSIONS
def test_a_concurrent_append_stays(
    world: World,
    new_table: TableFactory,
    place: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = by_day(new_table, place)
    during_the_rewrite(monkeypatch, lambda: table.append(table.data("late", DAYS[0])))
    live = table.live()
    assert rewrite(world, table).rewritten_manifests_count == 8
    assert table.live() == live | {"late"}


@VERSIONS
def test_a_concurrent_delete_is_not_lost(
    world: World,
    new_table: TableFactory,
    place: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = by_day(new_table, place)
    gone = f"f3-{DAYS[1]}"
    during_the_rewrite(monkeypatch, lambda: table.delete(table.data_path(gone)))
    live = table.live()
    # The manifest that lost a file stays, and the others are rewritten again.
    assert rewrite(world, table).rewritten_manifests_count == 7
    assert table.live() == live - {gone}


def test_a_rewrite_that_always_loses_gives_up(
    world: World, new_table: TableFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = by_day(new_table, (2, "main"))
    numbers = iter(range(8))
    during_the_rewrite(
        monkeypatch,
        lambda: table.delete(table.data_path(f"f{next(numbers)}-{DAYS[1]}")),
        rounds=8,
    )
    live = table.live()
    assert rewrite(world, table) == RewrittenManifests()
    assert table.load().live() == live - {f"f{number}-{DAYS[1]}" for number in range(5)}
    listed = {local(m["manifest_path"]).name for m in table.tree().manifests}
    stored = {path.name for path in (local(table.location) / "metadata").glob("*-r*.avro")}
    assert not stored - listed


@pytest.mark.parametrize("version", [2, 3])
def test_rewrites_beside_writers(world: World, new_table: TableFactory, version: int) -> None:
    """Appends, deletes and rewrites at once: in the end exactly the expected files are live."""
    table = by_day(new_table, (version, "main"))
    expected = table.live()
    lock = threading.Lock()
    errors: list[BaseException] = []

    def write(seed: int) -> None:
        chance = random.Random(seed)
        own: list[str] = []
        try:
            for number in range(12):
                if own and chance.random() < 0.4:
                    name = own.pop(chance.randrange(len(own)))
                    assert table.post(delete(table.data_path(name))).status == 200
                    with lock:
                        expected.remove(name)
                else:
                    name = f"w{seed}-{number}"
                    body = {
                        "action": "append",
                        "add-data-files": [table.data(name, chance.choice(DAYS))],
                    }
                    assert table.post(body).status == 200
                    own.append(name)
                    with lock:
                        expected.add(name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        world.catalog.rewrite_manifests(context(), identifier(table))
    for thread in threads:
        thread.join()
    assert not errors
    assert table.load().live() == expected
    for snapshot in table.metadata["snapshots"]:
        check_tree(table.metadata, snapshot["snapshot-id"])
