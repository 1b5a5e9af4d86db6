"""Stale appends of stock clients are rebased on the head, with real trees and stock readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from frazil.commit.snapshot.rebase import NotRebasable, RebasedAppend, rebase_append
from frazil.format.manifest.manifest_list import ManifestList, read_manifest_list
from frazil.format.metadata.table_metadata_json import encode_table_metadata
from frazil.read.manifest_cache import ManifestCache
from frazil.store.local_store import LocalStore
from frazil.store.object_store import StoreError
from frazil.wire.errors import Forbidden
from frazil.wire.rest_updates import AddSnapshot, SetSnapshotRef, UpgradeFormatVersion
from tests.support.memory_store import MemoryStore
from tests.support.tables import apply_updates
from tests.support.trees import (
    Commit,
    Tree,
    avro_records,
    entry,
    list_bytes,
    listed,
    manifest_bytes,
    now_ms,
    rows,
)

MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def format_version(request: pytest.FixtureRequest) -> int:
    assert isinstance(request.param, int)
    return request.param


def manifests(tree: Tree) -> list[Any]:
    """Read the head's manifest list with fastavro."""
    assert tree.head.manifest_list is not None
    return avro_records(tree.store.get(tree.head.manifest_list))


def sequence_numbers(tree: Tree) -> dict[int, int]:
    """Read the data sequence number of each file with PyIceberg, by the id of its only row."""
    found: dict[int, int] = {}
    for task in tree.table().scan().plan_files():
        bound = (task.file.lower_bounds or {})[1]
        found[int.from_bytes(bound, "little")] = 0
    snapshot = tree.table().current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(tree.table().io):
        for item in manifest.fetch_manifest_entry(tree.table().io):
            bound = item.data_file.lower_bounds[1]
            assert item.sequence_number is not None
            found[int.from_bytes(bound, "little")] = item.sequence_number
    return found


def by_duckdb(tree: Tree) -> list[int]:
    from tests.support.duck import connect

    location = f"{tree.metadata.location}/metadata/v1.metadata.json"
    document = b"".join(encode_table_metadata(tree.metadata))
    tree.store.put_new(location, [document])
    path = location.removeprefix("file://")
    with connect() as connection:
        found = connection.execute(f"SELECT id FROM iceberg_scan('{path}') ORDER BY id").fetchall()
    return [row[0] for row in found]


def test_a_stale_append_lands(tmp_path: Path, format_version: int) -> None:
    tree = Tree.create(tmp_path / "t", format_version=format_version)
    tree.apply(tree.append(1))
    stale = [tree.append(2), tree.append(3)]
    tree.apply(tree.append(4))
    head = tree.head
    for commit in stale:
        (file,) = tree.land(commit).files
        assert Path(file[0]).name.startswith(f"snap-{commit.snapshot.snapshot_id}-1-")
    assert tree.ids() == [1, 2, 3, 4]
    assert by_duckdb(tree) == [1, 2, 3, 4]
    # The list has the client's own manifests, and each snapshot is the child of the previous one.
    assert len(manifests(tree)) == 4
    second = tree.metadata.snapshot(stale[0].snapshot.snapshot_id)
    assert second is not None
    assert second.parent_snapshot_id == head.snapshot_id
    assert tree.head.parent_snapshot_id == second.snapshot_id
    assert tree.head.summary["total-records"] == "4"
    assert tree.head.summary["total-data-files"] == "4"
    expected = {1: 1, 4: 2, 2: 3, 3: 4} if format_version > 1 else dict.fromkeys((1, 2, 3, 4), 0)
    assert sequence_numbers(tree) == expected
    if format_version > 1:
        assert [m["sequence_number"] for m in manifests(tree)] == [4, 3, 2, 1]
        assert [m["min_sequence_number"] for m in manifests(tree)] == [4, 3, 2, 1]


def test_a_stale_append_that_merged_manifests_lands(tmp_path: Path, format_version: int) -> None:
    tree = Tree.create(tmp_path / "t", format_version=format_version, properties=MERGING)
    tree.apply(tree.append(1))
    tree.apply(tree.append(2))
    stale = [tree.append(3), tree.append(4)]
    tree.apply(tree.append(5))
    for commit in stale:
        (manifest, _), _ = tree.land(commit).files
        assert Path(manifest).name.endswith("-m0.avro")
        (record,) = avro_records(tree.store.get(manifest))
        assert record["status"] == 1
        assert record["snapshot_id"] == commit.snapshot.snapshot_id
    assert tree.ids() == [1, 2, 3, 4, 5]
    assert by_duckdb(tree) == [1, 2, 3, 4, 5]
    counts = [(m["added_files_count"], m["existing_files_count"]) for m in manifests(tree)]
    assert counts == [(1, 0), (1, 0), (1, 2)]
    if format_version > 1:
        assert sequence_numbers(tree) == {1: 1, 2: 2, 5: 3, 3: 4, 4: 5}
    # A later client with a current base can merge these manifests again.
    tree.apply(tree.append(6))
    assert tree.ids() == [1, 2, 3, 4, 5, 6]


def test_a_merge_of_a_partitioned_table_gets_summaries_of_its_own_files(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t", spec=BY_NAME, properties=MERGING)
    tree.apply(tree.append(1))
    stale = tree.append(5, 7)
    tree.apply(tree.append(2))
    tree.land(stale)
    assert tree.ids() == [1, 2, 5, 7]
    (summary,) = manifests(tree)[0]["partitions"]
    assert (summary["lower_bound"], summary["upper_bound"]) == (b"name-5", b"name-7")
    pruned = tree.table().scan(row_filter="name = 'name-7'").to_arrow()
    assert pruned["id"].to_pylist() == [7]


def test_a_first_append_lands_after_another_was_first(tmp_path: Path, format_version: int) -> None:
    tree = Tree.create(tmp_path / "t", format_version=format_version)
    stale = tree.append(1)
    assert stale.snapshot.parent_snapshot_id is None
    tree.apply(tree.append(2))
    tree.land(stale)
    assert tree.ids() == [1, 2]


def test_only_the_number_is_stale_when_another_branch_moved(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t")
    tree.apply(tree.append(1))
    head = tree.head
    branch = SetSnapshotRef(ref_name="audit", type="branch", snapshot_id=head.snapshot_id)
    tree.metadata = apply_updates(tree.metadata, (branch,), now_ms=now_ms())
    stale = tree.append(2)
    tree.apply(tree.build(lambda table: table.append(rows(3), branch="audit")))
    tree.land(stale)
    assert tree.ids() == [1, 2]
    assert tree.ids("audit") == [1, 3]
    assert tree.head.parent_snapshot_id == head.snapshot_id
    assert tree.head.sequence_number == 3


def test_an_append_to_a_branch_lands_on_that_branch(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t")
    tree.apply(tree.append(1))
    head = tree.head.snapshot_id
    branch = SetSnapshotRef(ref_name="audit", type="branch", snapshot_id=head)
    tree.metadata = apply_updates(tree.metadata, (branch,), now_ms=now_ms())
    stale = tree.build(lambda table: table.append(rows(2), branch="audit"))
    tree.apply(tree.build(lambda table: table.append(rows(3), branch="audit")))
    tree.apply(tree.append(4))
    tree.land(stale, "audit")
    assert tree.ids("audit") == [1, 2, 3]
    assert tree.ids() == [1, 4]


def test_an_append_lands_on_a_head_that_removed_files(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t", properties=MERGING)
    tree.apply(tree.append(1))
    tree.apply(tree.append(2))
    stale = tree.append(3)
    tree.apply(tree.build(lambda table: table.delete("id = 1")))
    tree.land(stale)
    assert tree.ids() == [2, 3]
    assert tree.head.summary["total-records"] == "2"


def test_a_head_of_version_1_goes_on_in_version_2(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t", format_version=1)
    tree.apply(tree.append(1))
    late = tree.append(9)
    tree.metadata = apply_updates(tree.metadata, (UpgradeFormatVersion(2),), now_ms=now_ms())
    stale = tree.append(2)
    tree.apply(tree.append(3))
    refused = tree.rebase(late)
    assert isinstance(refused, NotRebasable)
    assert "before the table's upgrade" in refused.reason
    tree.land(stale)
    assert tree.ids() == [1, 2, 3]
    assert sequence_numbers(tree) == {1: 0, 3: 1, 2: 2}


# --- what is no append -----------------------------------------------------------------------


def overwrite_by_files(table: Table) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        for task in table.scan().plan_files():
            update.delete_data_file(task.file)


@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.delete("id = 1"),
        lambda table: table.delete("name = 'name-1'"),
        overwrite_by_files,
    ],
)
def test_what_removes_files_is_not_rebased(tmp_path: Path, write: Callable[[Table], None]) -> None:
    tree = Tree.create(tmp_path / "t")
    tree.apply(tree.append(1))
    stale = tree.build(write)
    tree.apply(tree.append(2))
    before = tree.metadata
    assert isinstance(tree.rebase(stale), NotRebasable)
    # A client cannot hide this with the operation `append`: the manifests decide.
    document = json.loads(stale.snapshot.raw)
    document["summary"]["operation"] = "append"
    refused = tree.rebase(stale.with_snapshot(json.dumps(document).encode()))
    assert isinstance(refused, NotRebasable)
    assert "it deletes" in refused.reason or "are gone" in refused.reason
    assert tree.metadata is before


def test_an_overwrite_that_found_nothing_to_remove_is_not_rebased(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t")
    tree.apply(tree.append(1))
    stale = tree.append(8)
    document = json.loads(stale.snapshot.raw)
    document["summary"]["operation"] = "overwrite"
    tree.apply(tree.append(2))
    refused = tree.rebase(stale.with_snapshot(json.dumps(document).encode()))
    assert refused == NotRebasable("its operation is overwrite, not append")


def test_files_that_cannot_be_read_are_a_refusal(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t")
    tree.apply(tree.append(1))
    stale = tree.append(2)
    tree.apply(tree.append(3))
    location = stale.snapshot.manifest_list
    assert location is not None
    (manifest,) = (
        found.manifest_path
        for found in read_manifest_list(tree.store.get(location)).manifests
        if found.added_snapshot_id == stale.snapshot.snapshot_id
    )
    Path(manifest.removeprefix("file://")).write_bytes(b"Obj\x01 no manifest")
    refused = tree.rebase(stale)
    assert isinstance(refused, NotRebasable)
    assert manifest in refused.reason
    tree.store.delete([manifest])
    assert tree.rebase(stale) == NotRebasable(f"no object at {manifest}")


def test_every_location_is_allowed_before_it_is_read(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t", properties=MERGING)
    tree.apply(tree.append(1))
    tree.apply(tree.append(2))
    stale = tree.append(3)
    tree.apply(tree.append(4))
    read: list[str] = []
    asked: list[str] = []

    class Watched(LocalStore):
        def get(self, location: str, max_bytes: int | None = None) -> bytes:
            assert max_bytes is not None
            assert location in asked
            read.append(location)
            return super().get(location, max_bytes)

    tree.store = Watched()
    outcome = rebase_append(
        tree.metadata, stale.snapshot, "main", tree.store, asked.append, ManifestCache()
    )
    assert isinstance(outcome, RebasedAppend)
    assert read

    def refuse(location: str) -> None:
        if location.endswith("-m1.avro"):
            raise Forbidden(f"not {location}")

    with pytest.raises(Forbidden):
        rebase_append(tree.metadata, stale.snapshot, "main", tree.store, refuse, ManifestCache())


def test_a_store_that_is_down_is_no_refusal(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t")
    tree.apply(tree.append(1))
    stale = tree.append(2)
    tree.apply(tree.append(3))

    class Down(LocalStore):
        def get(self, location: str, max_bytes: int | None = None) -> bytes:
            raise StoreError("the store is down")

    tree.store = Down()
    with pytest.raises(StoreError, match="down"):
        tree.rebase(stale)


def test_parsed_files_are_remembered_within_a_budget(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t")
    tree.apply(tree.append(1))
    stale = tree.append(2)
    tree.apply(tree.append(3))
    reads: list[str] = []

    class Counting(LocalStore):
        def get(self, location: str, max_bytes: int | None = None) -> bytes:
            reads.append(location)
            return super().get(location, max_bytes)

    tree.store = Counting()
    cache = ManifestCache()

    def rebase(cache: ManifestCache) -> None:
        outcome = rebase_append(
            tree.metadata, stale.snapshot, "main", tree.store, lambda _: None, cache
        )
        assert isinstance(outcome, RebasedAppend)

    rebase(cache)
    assert len(reads) == 4  # the three lists and the client's manifest
    rebase(cache)
    assert len(reads) == 4
    assert 0 < cache.size_bytes < 64 << 10
    nothing = ManifestCache(max_bytes=0)
    rebase(nothing)
    rebase(nothing)
    assert len(reads) == 12
    assert nothing.size_bytes == 0


def test_the_list_of_one_rebase_is_not_read_by_the_next(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t")
    tree.apply(tree.append(1))
    stale = [tree.append(2), tree.append(3)]
    tree.apply(tree.append(4))
    reads: list[str] = []

    class Counting(LocalStore):
        def get(self, location: str, max_bytes: int | None = None) -> bytes:
            reads.append(location)
            return super().get(location, max_bytes)

    tree.store, tree.cache = Counting(), ManifestCache()
    tree.land(stale[0])
    made = tree.head.manifest_list
    reads.clear()
    tree.land(stale[1])
    assert made not in reads
    assert len(reads) == 2  # the client's own list and manifest
    assert tree.ids() == [1, 2, 3, 4]


def test_the_least_recently_used_goes_first() -> None:
    parsed = read_manifest_list(list_bytes([listed("m", 1)], 2))
    cache = ManifestCache(max_bytes=8_000)
    for number in range(20):
        cache.put(f"list-{number}", parsed)
        assert cache.get("list-0", ManifestList) is parsed
    assert cache.get("list-1", ManifestList) is None
    assert cache.get("list-19", ManifestList) is parsed
    assert 4_000 < cache.size_bytes <= 8_000


# --- version 3, which PyIceberg does not write ------------------------------------------------


class V3:
    """A version 3 table in memory, built by hand: each snapshot appends the given manifests."""

    def __init__(self, tmp_path: Path) -> None:
        self.tree = Tree.create(tmp_path / "t", format_version=3)
        self.tree.store = MemoryStore()
        self.tree.metadata = msgspec.structs.replace(self.tree.metadata, location="memory://w/t")
        self._names = iter(range(1_000))

    def put(self, content: bytes) -> str:
        location = f"memory://w/t/metadata/{next(self._names)}.avro"
        self.tree.store.put_new(location, [content])
        return location

    def commit(
        self, snapshot_id: int, new: list[dict[str, Any]], kept: list[dict[str, Any]]
    ) -> Commit:
        """Build a commit on the current head as a client does; `new` are records without row
        ids."""
        metadata = self.tree.metadata
        next_row_id = metadata.next_row_id
        for record in new:
            record["first_row_id"] = next_row_id
            next_row_id += record["added_rows_count"] + record["existing_rows_count"]
            record["sequence_number"] = metadata.last_sequence_number + 1
        head = metadata.refs.get("main")
        document = {
            "snapshot-id": snapshot_id,
            **({} if head is None else {"parent-snapshot-id": head.snapshot_id}),
            "sequence-number": metadata.last_sequence_number + 1,
            "timestamp-ms": now_ms(),
            "manifest-list": self.put(list_bytes([*new, *kept], 3)),
            "summary": {"operation": "append"},
            "first-row-id": metadata.next_row_id,
            "added-rows": next_row_id - metadata.next_row_id,
        }
        raw = msgspec.Raw(json.dumps(document).encode())
        ref = SetSnapshotRef(ref_name="main", type="branch", snapshot_id=snapshot_id)
        return Commit((AddSnapshot(raw), ref))

    def added(self, snapshot_id: int, path: str, count: int, **fields: Any) -> dict[str, Any]:
        manifest = self.put(manifest_bytes([entry(path, count, **fields)], 3))
        return listed(manifest, snapshot_id, added_rows_count=count)


@pytest.fixture
def v3(tmp_path: Path) -> V3:
    return V3(tmp_path)


def test_row_ids_are_taken_from_the_head(v3: V3) -> None:
    tree = v3.tree
    base = v3.added(1, "a", 10)
    tree.apply(v3.commit(1, [base], []))
    stale = v3.commit(2, [v3.added(2, "b", 5)], [base])
    winner = v3.added(3, "c", 7)
    tree.apply(v3.commit(3, [winner], [base]))
    assert tree.metadata.next_row_id == 17
    (file,) = tree.land(stale).files
    assert [m["first_row_id"] for m in avro_records(file[1])] == [17, 10, 0]
    assert [m["sequence_number"] for m in avro_records(file[1])] == [3, 2, 1]
    assert (tree.head.first_row_id, tree.head.added_rows) == (17, 5)
    assert tree.metadata.next_row_id == 22


def test_row_ids_that_the_client_assigned_are_cleared(v3: V3) -> None:
    tree = v3.tree
    base = v3.added(1, "a", 10)
    tree.apply(v3.commit(1, [base], []))
    own = v3.added(2, "b", 5, first_row_id=10, sequence_number=2, file_sequence_number=2)
    stale = v3.commit(2, [own], [base])
    tree.apply(v3.commit(3, [v3.added(3, "c", 7)], [base]))
    (path, content), (_, new_list) = tree.land(stale).files
    assert avro_records(content) == [entry("b", 5)]
    first = avro_records(new_list)[0]
    assert (first["manifest_path"], first["manifest_length"]) == (path, len(content))
    assert (first["first_row_id"], first["min_sequence_number"]) == (17, 3)


def test_a_merge_keeps_the_row_ids_of_the_head(v3: V3) -> None:
    tree = v3.tree
    base = v3.added(1, "a", 10)
    tree.apply(v3.commit(1, [base], []))
    carried = entry(
        "a", 10, status=0, snapshot_id=1, sequence_number=1, file_sequence_number=1, first_row_id=0
    )
    merged = v3.put(manifest_bytes([entry("b", 5), carried], 3))
    record = listed(merged, 2, added_rows_count=5, existing_files_count=1, existing_rows_count=10)
    stale = v3.commit(2, [record], [])
    tree.apply(v3.commit(3, [v3.added(3, "c", 7)], [base]))
    (_, content), (_, new_list) = tree.land(stale).files
    assert avro_records(content) == [entry("b", 5)]
    assert [m["first_row_id"] for m in avro_records(new_list)] == [17, 10, 0]
    assert tree.head.added_rows == 5


def test_manifests_from_before_the_upgrade_get_row_ids(tmp_path: Path) -> None:
    tree = Tree.create(tmp_path / "t", format_version=2)
    tree.apply(tree.append(1, 2, 3))
    stale = tree.append(4)
    tree.apply(tree.append(5, 6))
    tree.metadata = apply_updates(tree.metadata, (UpgradeFormatVersion(3),), now_ms=now_ms())
    tree.land(stale)
    assert [m["first_row_id"] for m in manifests(tree)] == [0, 1, 3]
    assert (tree.head.first_row_id, tree.head.added_rows) == (0, 6)
    assert tree.metadata.next_row_id == 6
    assert tree.ids() == [1, 2, 3, 4, 5, 6]
