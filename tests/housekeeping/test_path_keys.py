"""Two spellings of one file are equal, and two files are different."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_files_are_different(one: str, other: str) -> None:
    assert PathKeys(decode=True).of(one) != PathKeys(decode=True).of(other)


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
