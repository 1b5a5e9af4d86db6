"""Two spellings of one file are equal, and two files are different."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.housekeeping.path_set import PathSet
from frazil.values.path_keys import PathKey, PathKeys, is_below

SAME = [
    ("s3://b/t/data/f.parquet", "s3a://b/t/data/f.parquet"),  # iceberg#4194, #4346
    ("s3://b/t/data/f.parquet", "s3n://b/t/data/f.parquet"),  # iceberg#4652
    ("s3://b/t/data/f.parquet", "S3://b/t/data/f.parquet"),
    ("s3://b/t/data/f.parquet", "s3://b/t//data/f.parquet"),
    ("s3://b/t/data/f.parquet", "s3://b//t/./data/f.parquet"),
    ("s3://b/t/d=a b/f.parquet", "s3://b/t/d=a%20b/f.parquet"),
    ("s3://b/t/d=a%2Fb/f.parquet", "s3://b/t/d=a/b/f.parquet"),
    ("/wh/t/f", "file:/wh/t/f"),
    ("/wh/t/f", "file:///wh/t/f"),
    ("/wh/t/f", "file://localhost/wh/t/f"),
    ("/wh/t/f", "/wh//t/x/../f"),
    ("/wh/t/d=ü/f", "/wh/t/d=%C3%BC/f"),
]
DIFFERENT = [
    ("s3://b/t/data/f", "s3://c/t/data/f"),
    ("s3://b/t/data/f", "file:///t/data/f"),
    ("s3://b/t/data/f", "s3://b/t/data/F"),
    ("s3://b/t/data/f", "s3://b/t/data/g"),
    ("s3://b/t/d=a%2520b/f", "s3://b/t/d=a b/f"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_spellings_of_a_file_are_equal(one: str, other: str) -> None:
    assert PathKeys(decode=True).of(one) == PathKeys(decode=True).of(other)
    files = PathSet()
    files.add([PathKeys(decode=True).of(one)])
    assert files.holds([PathKeys(decode=True).of(other)]).tolist() == [True]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_files_are_different(one: str, other: str) -> None:
    files = PathSet()
    files.add([PathKeys(decode=True).of(one)])
    assert files.holds([PathKeys(decode=True).of(other)]).tolist() == [False]


def test_percent_escapes_are_literal_if_they_are_not_decoded() -> None:
    keys = PathKeys(decode=False)
    assert str(keys.of("s3a://b/t//d=a%20b/f")) == "s3://b/t/d=a%20b/f"
    assert str(keys.of("/wh/t/d=a%20b/f%2F")) == "file:///wh/t/d=a%20b/f%2F"


ODD = ["", "/", "x", "s3:", "s3://b", "a:b:c", "file:///\0", "/\ud800/x"]


@pytest.mark.parametrize("text", ODD)
def test_every_text_has_a_key(text: str) -> None:
    assert PathKeys(decode=True).of(text) == PathKeys(decode=True).of(text)


def test_links_of_folders_and_files_are_resolved(tmp_path: Path) -> None:
    data = tmp_path / "t" / "data"
    data.mkdir(parents=True)
    (data / "real.parquet").touch()
    (data / "link.parquet").symlink_to(data / "real.parquet")
    (tmp_path / "other").symlink_to(tmp_path / "t")
    keys = PathKeys(decode=True)
    real = keys.of(f"{data}/real.parquet")
    assert keys.of(f"{tmp_path}/other/data/real.parquet") == real
    assert keys.of(f"file://{data}/link.parquet") == real


def test_a_folder_is_the_same_with_and_without_a_slash_ducklake_815() -> None:
    keys = PathKeys(decode=True)
    assert keys.of_folder("s3://b/t/") == keys.of_folder("s3a://b/t") == PathKey("s3://b", "/t")
    assert is_below(keys.of("s3://b/t/data/f"), keys.of_folder("s3://b/t/"))
    assert not is_below(keys.of("s3://b/table/data/f"), keys.of_folder("s3://b/t"))


def test_schemes_and_authorities_can_be_declared_equal() -> None:
    keys = PathKeys(
        decode=True, equal_schemes={"gs": "s3", "s3a": "s3"}, equal_authorities={"alias": "b"}
    )
    assert keys.of("gs://alias/t/f") == keys.of("s3a://b/t/f") == PathKey("s3://b", "/t/f")


def test_the_prefix_of_a_path_that_differs_is_found() -> None:
    keys, files = PathKeys(decode=True), PathSet()
    files.add([keys.of("s3://one/t/f"), keys.of("s3://two/t/g")])
    assert files.other_prefix(keys.of("s3://two/t/f")) == "s3://one"
    assert files.other_prefix(keys.of("s3://one/t/f")) is None
    assert files.holds([keys.of("s3://two/t/f"), keys.of("s3://two/t/g")]).tolist() == [False, True]


def test_a_set_has_what_was_added_in_many_batches() -> None:
    keys, files = PathKeys(decode=True), PathSet()
    paths = [keys.of(f"s3://b/t/{number}") for number in range(200_000)]
    for start in range(0, len(paths), 1000):
        files.add(paths[start : start + 2000])
    assert len(files) == len(paths)
    assert files.holds(paths).all()
    assert not files.holds([keys.of(f"s3://b/u/{number}") for number in range(1000)]).any()
