"""Where files of a Spark write lie: storage that travels, and a folder for each write."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from frazil.spark.folders import WriteFolder, data_location
from frazil.spark.storage import Storage, is_local, storage_of
from tests.support.spark_facts import facts


@pytest.fixture(params=["plain", "file-uri"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "plain" else tmp_path.as_uri()


def test_files_are_written_read_listed_and_deleted_in_the_style_of_their_folder(root: str) -> None:
    storage = pickle.loads(pickle.dumps(storage_of({"s3.region": "x"}, {"s3.region": "y"})))
    assert storage.config == (("s3.region", "y"),)
    storage.write(f"{root}/a/day=1/x%20y.bin", b"0123456789")
    storage.write(f"{root}/a/z.bin", b"")
    assert storage.list(f"{root}/a/") == [f"{root}/a/day=1/x%20y.bin", f"{root}/a/z.bin"]
    assert storage.read(f"{root}/a/day=1/x%20y.bin") == b"0123456789"
    assert storage.read(f"{root}/a/day=1/x%20y.bin", 3, 4) == b"3456"
    assert storage.size(f"{root}/a/day=1/x%20y.bin") == 10
    storage.delete([f"{root}/a/z.bin", f"{root}/a/never-there.bin"])
    assert storage.list(f"{root}/a") == [f"{root}/a/day=1/x%20y.bin"]
    storage.delete_folder(f"{root}/a")
    assert storage.list(f"{root}/a") == []
    storage.delete_folder(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        storage.size(f"{root}/a/z.bin")


def test_after_a_commit_only_committed_files_and_their_folders_are_left(tmp_path: Path) -> None:
    folder = WriteFolder(str(tmp_path / "write"), Storage())
    kept, lost = f"{folder.location}/day=1/kept.parquet", f"{folder.location}/day=2/lost.parquet"
    for path in (kept, lost, f"{folder.location}/day=1/.kept.parquet.crc"):
        folder.storage.write(path, b"x")
    folder.keep_only([kept])
    assert folder.storage.list(folder.location) == [kept]
    assert sorted(path.name for path in (tmp_path / "write").iterdir()) == ["day=1"]
    folder.keep_only([])
    assert not (tmp_path / "write").exists()


def test_after_a_failure_everything_goes_but_what_is_named(tmp_path: Path) -> None:
    folder = WriteFolder(str(tmp_path / "write"), Storage())
    one, other = f"{folder.location}/one", f"{folder.location}/other"
    folder.storage.write(one, b"x")
    folder.storage.write(other, b"x")
    folder.discard(keep=[one])
    assert folder.storage.list(folder.location) == [one]
    folder.discard()
    assert not (tmp_path / "write").exists()
    folder.discard()


def test_data_lies_where_the_table_says() -> None:
    columns = {"id": "long"}
    assert data_location(facts("s3://b/t/", columns)) == "s3://b/t/data"
    elsewhere = facts("s3://b/t", columns, properties={"write.data.path": "s3://c/d/"})
    assert data_location(elsewhere) == "s3://c/d"


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/b", True), ("file:///a", True), ("file:/a", True), ("s3://b/k", False)],
)
def test_local_places_are_known(path: str, expected: bool) -> None:
    assert is_local(path) is expected
