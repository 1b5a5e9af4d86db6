"""The files that removed snapshots reach, and nothing else, compared with PyIceberg's reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from frazil.commit.snapshot.table_locations import TableLocations
from frazil.format.manifest.manifest_list import read_manifest_list
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.housekeeping.own_files import OwnFiles
from frazil.housekeeping.reachability import (
    FileKind,
    FoundFile,
    KeptFiles,
    Named,
    Stopped,
    TreeReader,
    Watch,
    kept_paths,
    named_by_table,
    unreachable_files,
)
from frazil.store.local_store import LocalStore
from frazil.store.locations import AllowedLocations
from frazil.wire.errors import ValidationError
from frazil.wire.rest_updates import RemoveSnapshots
from tests.support.tables import apply_updates
from tests.support.trees import Tree, now_ms


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Create a table with two appends, a delete that rewrites a file, and two more appends."""
    tree = Tree.create(tmp_path / "t")
    for number in (1, 2):
        tree.apply(tree.append(number, number + 10))
    tree.apply(tree.build(lambda table: table.delete("id = 11")))
    for number in (3, 4):
        tree.apply(tree.append(number))
    return tree


def own_files(metadata: TableMetadata) -> OwnFiles:
    root = metadata.location.rpartition("/")[0]
    locations = TableLocations(AllowedLocations(root))
    return OwnFiles(lambda path: locations.belongs_to(metadata, path))


def reader(tree: Tree, check: Callable[[str], None] = lambda location: None) -> TreeReader:
    return TreeReader(tree.store, check)


def difference(
    tree: Tree,
    removed: Iterable[Snapshot],
    problems: list[str] | None = None,
    kept: Named | None = None,
) -> list[FoundFile]:
    """Return what is unreachable after these snapshots are removed from the table."""
    own = reader(tree)
    keeps = KeptFiles(own)
    gone = tuple(removed)
    after = without(tree.metadata, gone)
    keeps.add(kept or named_by_table(after))
    is_own = own_files(tree.metadata)
    report = (problems if problems is not None else []).append
    return list(unreachable_files(own, Named(gone), keeps, is_own, problem=report))


def without(metadata: TableMetadata, snapshots: Iterable[Snapshot]) -> TableMetadata:
    ids = tuple(snapshot.snapshot_id for snapshot in snapshots)
    return apply_updates(metadata, (RemoveSnapshots(snapshot_ids=ids),), now_ms=now_ms())


def snapshots(tree: Tree) -> list[Snapshot]:
    return list(tree.metadata.snapshots)


def read_by_pyiceberg(tree: Tree, kept: Iterable[Snapshot]) -> set[str]:
    """Return every file that these snapshots reach, as PyIceberg sees it."""
    table = tree.table()
    found: set[str] = set()
    for snapshot in kept:
        own = table.metadata.snapshot_by_id(snapshot.snapshot_id)
        assert own is not None
        assert own.manifest_list is not None
        found.add(own.manifest_list)
        for manifest in own.manifests(table.io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found |= {entry.data_file.file_path for entry in entries}
    return found


def on_disk(tree: Tree) -> set[str]:
    root = Path(tree.metadata.location.removeprefix("file://"))
    return {path.as_uri() for path in root.rglob("*") if path.is_file()}


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def test_every_set_of_removed_snapshots_leaves_what_the_others_reach(tree: Tree) -> None:
    everything = snapshots(tree)
    for bits in range(1, 2 ** len(everything) - 1):
        gone = [own for at, own in enumerate(everything) if bits >> at & 1]
        kept = [own for own in everything if own not in gone]
        if tree.head in gone:
            continue
        found = difference(tree, gone)
        paths = [file.path for file in found]
        assert len(set(paths)) == len(paths)
        reached = read_by_pyiceberg(tree, kept)
        assert set(paths) == read_by_pyiceberg(tree, gone) - reached
        ranks = [list(FileKind).index(file.kind) for file in found]
        assert ranks == sorted(ranks)


def test_all_kept_files_are_in_the_set(tree: Tree) -> None:
    kept = KeptFiles(reader(tree))
    kept.add(named_by_table(tree.metadata))
    files = sorted(on_disk(tree))
    assert kept.has_paths(files).all()
    assert len(kept) == len(files)
    assert kept.has_paths([path.replace("file:///", "/") for path in files]).all()
    assert not kept.has_paths([f"{path}x" for path in files]).any()


def test_the_paths_of_all_kept_files_come_as_they_are_written(tree: Tree) -> None:
    batches = list(kept_paths(reader(tree), named_by_table(tree.metadata)))
    paths = [path for batch in batches for path in batch]
    assert set(paths) == on_disk(tree)
    spoil(str(tree.head.manifest_list), "missing")
    with pytest.raises(ValidationError, match="nothing was deleted"):
        list(kept_paths(reader(tree), named_by_table(tree.metadata)))


def test_snapshots_that_come_later_are_added_without_reading_the_others_again(tree: Tree) -> None:
    read: list[str] = []
    kept = KeptFiles(reader(tree, read.append))
    kept.add(named_by_table(tree.metadata))
    assert kept.has_paths(list(on_disk(tree))).all()
    before = len(read)
    tree.apply(tree.append(5))
    kept.add(named_by_table(tree.metadata))
    assert kept.has_paths(sorted(on_disk(tree))).all()
    assert len(read) == before + 2  # one list, one manifest
    assert len(read) == len(set(read))


def test_no_manifest_is_read_where_all_of_them_stay(tree: Tree) -> None:
    read: list[str] = []
    own = reader(tree, read.append)
    kept = KeptFiles(own)
    last, head = snapshots(tree)[-2:]
    kept.add(Named((head,)))
    found = list(unreachable_files(own, Named((last,)), kept, own_files(tree.metadata)))
    assert found == [FoundFile(str(last.manifest_list), FileKind.MANIFEST_LIST)]
    assert set(read) == {last.manifest_list, head.manifest_list}


@pytest.mark.parametrize(
    ("what", "broken"),
    [
        ("list", "missing"),
        ("list", "damaged"),
        ("list", "encrypted"),
        ("manifest", "missing"),
        ("manifest", "damaged"),
    ],
)
def test_iceberg_17715_an_unreadable_file_of_a_kept_snapshot_stops_everything(
    tree: Tree, what: str, broken: str
) -> None:
    """A manifest was missing, and its snapshot was expired as if it had no files."""
    first, *_ = snapshots(tree)
    head = tree.head
    if broken == "encrypted":
        head = msgspec.structs.replace(head, key_id="k")
    else:
        lists = [str(head.manifest_list)]
        spoil((lists if what == "list" else manifests(tree, head))[0], broken)
    with pytest.raises(ValidationError, match="a snapshot that is kept reaches it"):
        difference(tree, [first, *snapshots(tree)[1:3]], kept=Named((head,)))


@pytest.mark.parametrize("broken", ["missing", "damaged"])
def test_iceberg_17715_an_unreadable_file_of_a_removed_snapshot_is_passed_over(
    tree: Tree, broken: str
) -> None:
    gone = snapshots(tree)[:3]
    everything = {file.path for file in difference(tree, gone)}
    only_old = set(manifests(tree, gone[0])) & everything
    (manifest,) = only_old
    spoil(manifest, broken)
    problems: list[str] = []
    found = {file.path for file in difference(tree, gone, problems)}
    assert manifest in found
    # The later manifest that deleted the file names it too.
    assert found == everything
    assert any(manifest in problem for problem in problems)
    spoil(str(gone[1].manifest_list), broken)
    problems.clear()
    assert str(gone[1].manifest_list) in {file.path for file in difference(tree, gone, problems)}
    assert any(str(gone[1].manifest_list) in problem for problem in problems)


def test_files_outside_of_the_table_are_not_found(tree: Tree) -> None:
    gone = tuple(snapshots(tree)[:3])
    own = reader(tree)
    kept = KeptFiles(own)
    kept.add(Named((tree.head,)))
    found = unreachable_files(own, Named(gone), kept, lambda path: "/data/" not in path)
    assert {file.kind for file in found} == {FileKind.MANIFEST, FileKind.MANIFEST_LIST}


def test_amoro_1959_statistics_are_found_unless_they_are_kept(tree: Tree) -> None:
    """Statistics files were deleted as orphans, or never."""
    location = tree.metadata.location
    names = tuple(f"{location}/metadata/{name}.stats" for name in "abc")
    own = reader(tree)
    kept = KeptFiles(own)
    kept.add(Named((), (names[0],)))
    found = list(unreachable_files(own, Named((), names), kept, own_files(tree.metadata)))
    assert found == [FoundFile(name, FileKind.STATISTICS) for name in names[1:]]


def test_a_cancelled_walk_stops(tree: Tree) -> None:
    own = reader(tree)
    kept = KeptFiles(own, Watch(cancelled=lambda: True))
    with pytest.raises(Stopped):
        kept.add(Named((tree.head,)))


def test_nothing_is_read_that_may_not_be_read(tree: Tree) -> None:
    def refuse(location: str) -> None:
        raise ValidationError(f"{location} is not allowed")

    problems: list[str] = []
    own = reader(tree, refuse)
    gone = Named(tuple(snapshots(tree)[:1]))
    found = list(
        unreachable_files(
            own, gone, KeptFiles(own), own_files(tree.metadata), problem=problems.append
        )
    )
    assert [file.kind for file in found] == [FileKind.MANIFEST_LIST]
    assert "is not allowed" in problems[0]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("data/a.parquet", True),
        ("data/x=1/a b.parquet", True),
        ("data/x=%2F/a.parquet", True),
        ("data/a%20b.parquet", True),
        ("data/../../other/a.parquet", False),
        ("data/", False),
        ("../other/a.parquet", False),
        ("../t_2/a.parquet", False),
    ],
)
def test_only_files_inside_the_table_are_its_own(tree: Tree, name: str, own: bool) -> None:
    assert own_files(tree.metadata)(f"{tree.metadata.location}/{name}") is own


def manifests(tree: Tree, snapshot: Snapshot) -> list[str]:
    own: Any = tree.table().metadata.snapshot_by_id(snapshot.snapshot_id)
    return [manifest.manifest_path for manifest in own.manifests(tree.table().io)]


def spoil(path: str, how: str) -> None:
    if how == "missing":
        local(path).unlink()
    else:
        local(path).write_bytes(local(path).read_bytes()[:-20])


def test_the_store_may_not_fail_in_between(tree: Tree) -> None:
    class Down(LocalStore):
        def get(self, location: str, max_bytes: int | None = None) -> bytes:
            raise ConnectionError(location)

    tree.store = Down()
    with pytest.raises(ConnectionError):
        difference(tree, snapshots(tree)[:1], kept=Named())


# --- what is missing ------------------------------------------------------------------------------


def manifests_of(tree: Tree, snapshot: Snapshot) -> list[str]:
    assert snapshot.manifest_list is not None
    listed = read_manifest_list(tree.store.get(snapshot.manifest_list)).manifests
    return [manifest.manifest_path for manifest in listed]


def test_what_only_snapshots_in_quarantine_name_may_be_missing(tree: Tree) -> None:
    """A stock client that expires snapshots deletes their files by itself."""
    first, second, *others = snapshots(tree)
    kept_manifests = {path for own in others for path in manifests_of(tree, own)}
    alone = [path for path in manifests_of(tree, second) if path not in kept_manifests]
    assert first.manifest_list is not None
    for gone in (alone, [first.manifest_list]):
        assert gone
        tree.store.delete(gone)
        kept = KeptFiles(reader(tree))
        kept.add(Named(tuple(others)))
        kept.add(Named((first, second)), in_quarantine=True)
        assert len(kept) > len(others)
        # Somebody has brought them back.
        with pytest.raises(ValidationError, match="is missing"):
            kept.add(Named((first, second)))
            len(kept)


def test_what_a_kept_snapshot_names_too_must_be_there(tree: Tree) -> None:
    first, *others = snapshots(tree)
    shared = set(manifests_of(tree, first)).intersection(
        path for own in others for path in manifests_of(tree, own)
    )
    for named in ([(first, True), *((own, False) for own in others)], [(first, False)]):
        kept = KeptFiles(reader(tree))
        for own, in_quarantine in named:
            kept.add(Named((own,)), in_quarantine=in_quarantine)
        assert len(kept)
    tree.store.delete(sorted(shared)[:1])
    kept = KeptFiles(reader(tree))
    kept.add(Named((first,)), in_quarantine=True)
    assert len(kept)
    kept.add(Named(tuple(others)))
    with pytest.raises(ValidationError, match="is missing"):
        len(kept)
