"""The storage of a Spark write can be pickled, and each write has its own folder."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.file_storage import Storage, is_local, storage_of
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.write_properties import file_options
from frazil.spark.writing.write_commit import WriteFolder, data_location
from tests.support.s3 import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from tests.support.spark_facts import facts


@dataclass(frozen=True)
class Place:
    root: str
    storage: Storage


@pytest.fixture(params=["plain", "file-uri", pytest.param("s3", marks=pytest.mark.process)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "s3":
        server = request.getfixturevalue("s3_server")
        config = {
            "s3.endpoint": server.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": ACCESS_KEY_ID,
            "s3.secret-access-key": SECRET_ACCESS_KEY,
        }
        return Place(f"{request.getfixturevalue('s3_bucket')}/table", storage_of(config))
    return Place(str(tmp_path) if request.param == "plain" else tmp_path.as_uri(), Storage())


def test_a_later_config_wins_and_it_travels() -> None:
    storage = storage_of({"s3.region": "x", "s3.endpoint": "e"}, {"s3.region": "y"})
    storage.filesystem("/tmp")
    assert pickle.loads(pickle.dumps(storage)) == storage
    assert storage.config == (("s3.endpoint", "e"), ("s3.region", "y"))


def test_files_are_written_read_listed_and_deleted_in_the_style_of_their_folder(
    place: Place,
) -> None:
    root, storage = place.root, place.storage
    storage.write(f"{root}/a/day=1/x%20y.bin", b"0123456789")
    storage.write(f"{root}/a/z.bin", b"")
    assert storage.list(f"{root}/a/") == [f"{root}/a/day=1/x%20y.bin", f"{root}/a/z.bin"]
    assert storage.read(f"{root}/a/day=1/x%20y.bin") == b"0123456789"
    assert storage.read(f"{root}/a/day=1/x%20y.bin", 3, 4) == b"3456"
    storage.delete([f"{root}/a/z.bin", f"{root}/a/never-there.bin"])
    assert storage.list(f"{root}/a") == [f"{root}/a/day=1/x%20y.bin"]
    storage.delete_folder(f"{root}/a")
    assert storage.list(f"{root}/a") == []
    storage.delete_folder(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        storage.read(f"{root}/a/z.bin")


def test_after_a_commit_only_committed_files_are_left(place: Place) -> None:
    folder = WriteFolder(f"{place.root}/write", place.storage)
    kept, lost = f"{folder.location}/day=1/kept.parquet", f"{folder.location}/day=2/lost.parquet"
    for path in (kept, lost, f"{folder.location}/day=1/.kept.parquet.crc"):
        folder.storage.write(path, b"x")
    folder.keep_only([kept])
    assert folder.storage.list(folder.location) == [kept]
    folder.keep_only([])
    assert folder.storage.list(folder.location) == []


def test_no_empty_folders_are_left(tmp_path: Path) -> None:
    folder = WriteFolder(str(tmp_path / "write"), Storage())
    kept = f"{folder.location}/day=1/hour=2/kept.parquet"
    for path in (kept, f"{folder.location}/day=2/hour=1/lost.parquet"):
        folder.storage.write(path, b"x")
    folder.keep_only([kept])
    assert sorted(path.name for path in (tmp_path / "write").rglob("*")) == [
        "day=1",
        "hour=2",
        "kept.parquet",
    ]
    folder.keep_only([])
    assert not (tmp_path / "write").exists()


def test_after_a_failure_everything_goes_but_what_is_named(place: Place) -> None:
    folder = WriteFolder(f"{place.root}/write", place.storage)
    one, other = f"{folder.location}/one", f"{folder.location}/other"
    folder.storage.write(one, b"x")
    folder.storage.write(other, b"x")
    folder.discard(keep=[one])
    assert folder.storage.list(folder.location) == [one]
    folder.discard()
    assert folder.storage.list(folder.location) == []
    folder.discard()


def test_the_arrow_writer_writes_to_every_place_and_leaves_nothing_when_aborted(
    place: Place,
) -> None:
    table = facts(place.root, {"id": "long", "day": "date"}, [(2, "identity", "day")])
    folder = f"{place.root}/data/w"

    def writer() -> ArrowFileWriter:
        small = file_options({}, target_file_size_bytes=2000)
        return ArrowFileWriter(table, place.storage, folder, "00000-0-x", options=small)

    rows = pa.record_batch(
        {
            "id": pa.array([number * 2_654_435_761 % 2**40 for number in range(1000)]),
            "day": pa.array([0] * 1000, pa.date32()),
            "_partition_0": pa.array([0] * 1000, pa.date32()),
        }
    )
    aborted = writer()
    aborted.write(rows)
    assert place.storage.list(folder) != []
    aborted.abort()
    assert place.storage.list(folder) == []
    ended = writer()
    ended.write(rows)
    files = [msgspec.json.decode(one, type=DataFile) for one in ended.close()]
    assert len(files) > 1
    assert [file.file_path for file in files] == place.storage.list(folder)
    for file in files:
        assert file.file_size_in_bytes == len(place.storage.read(file.file_path))
        assert file.partition == ("1970-01-01",)
        with place.storage.open_input(file.file_path) as source:
            assert pq.read_metadata(source).num_rows == file.record_count


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
