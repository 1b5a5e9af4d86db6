"""Columns outlive the process in a folder that may be lost, full, damaged or shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.format.manifest.manifest_columns import ManifestColumns, decode_columns
from frazil.read.column_files import ColumnFiles
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.wire.errors import Forbidden
from tests.read.test_manifest_cache import allow, listed, manifest
from tests.support.memory_store import MemoryStore

MANIFEST = manifest(*range(1_500))


def columns_of(entries: int = 1_500) -> ManifestColumns:
    return decode_columns(MANIFEST if entries == 1_500 else manifest(*range(entries)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "not" / "there" / "yet"


@pytest.fixture
def files(folder: Path) -> Iterator[ColumnFiles]:
    opened = ColumnFiles(folder)
    yield opened
    opened.close()


def test_columns_are_kept_for_the_next_process(files: ColumnFiles, folder: Path) -> None:
    columns = columns_of()
    files.put("s3://m.avro", 77, columns)
    files.close()
    found = ColumnFiles(folder).get("s3://m.avro", 77)
    assert found is not None
    assert found.find("file:///data/7.parquet") == columns.find("file:///data/7.parquet")
    assert ColumnFiles(folder).get("s3://m.avro", 78) is None
    assert ColumnFiles(folder).get("s3://n.avro", 77) is None
    assert folder.stat().st_mode & 0o077 == 0


def test_small_manifests_are_not_kept(files: ColumnFiles, folder: Path) -> None:
    files.put("s3://m.avro", 77, columns_of(999))
    files.close()
    assert not folder.exists()


def test_a_damaged_file_is_removed(files: ColumnFiles, folder: Path) -> None:
    files.put("s3://m.avro", 77, columns_of())
    files.close()
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert files.get("s3://m.avro", 77) is None
    assert not path.exists()


def test_the_oldest_are_removed_and_nothing_that_is_not_ours(folder: Path) -> None:
    size = len_of_file(folder.with_name("first"))
    folder.mkdir()
    (folder / "notes.txt").write_bytes(bytes(size * 9))
    files = ColumnFiles(folder, max_bytes=size * 4)
    for number in range(3):
        files.put(f"s3://m{number}.avro", 77, columns_of())
        files.close()
    for number, name in enumerate(f"s3://m{n}.avro" for n in (1, 0, 2)):
        os.utime(files._path(name, 77), (number, number))
    assert files.get("s3://m1.avro", 77) is not None, "used last, so it stays"
    again = ColumnFiles(folder, max_bytes=size * 4)
    for number in (3, 4):
        again.put(f"s3://m{number}.avro", 77, columns_of())
        again.close()
    kept = [n for n in range(5) if again.get(f"s3://m{n}.avro", 77) is not None]
    assert kept == [1, 3, 4]
    assert (folder / "notes.txt").exists()


def len_of_file(folder: Path) -> int:
    files = ColumnFiles(folder)
    files.put("s3://m0.avro", 77, columns_of())
    files.close()
    (path,) = folder.iterdir()
    return path.stat().st_size


def test_a_folder_that_cannot_be_written_costs_nothing_but_speed(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    files = ColumnFiles(blocked / "below")
    files.put("s3://m.avro", 77, columns_of())
    files.close()
    assert files.get("s3://m.avro", 77) is None


def test_a_cache_with_a_folder_reads_nothing_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    store.put_new("memory://m.avro", [MANIFEST])
    first = ManifestCache(folder=tmp_path)
    columns = ManifestReader(first, store, allow).columns(listed("memory://m.avro"))
    first.close()
    store.delete(["memory://m.avro"])
    second = ManifestCache(folder=tmp_path)
    reader = ManifestReader(second, store, allow)
    found = reader.columns(listed("memory://m.avro"))
    assert found is not columns
    assert found.path_bytes == columns.path_bytes
    assert reader.columns(listed("memory://m.avro")) is found, "in memory from now on"


def test_what_was_just_made_is_kept_too_and_the_place_is_checked(tmp_path: Path) -> None:
    first = ManifestCache(folder=tmp_path)
    reader = ManifestReader(first, MemoryStore(), allow)
    reader.remember("memory://m.avro", columns_of(), b"x")
    first.close()

    def forbid(location: str) -> None:
        raise Forbidden(location)

    cold = ManifestCache(folder=tmp_path)
    with pytest.raises(Forbidden):
        ManifestReader(cold, MemoryStore(), forbid).columns(listed("memory://m.avro"))
    found = ManifestReader(cold, MemoryStore(), allow).columns(listed("memory://m.avro"))
    assert len(found) == 1_500
