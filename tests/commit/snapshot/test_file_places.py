"""Declared files must be in the table's own locations or outside every table's."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from frazil.commit.snapshot.table_locations import TableLocations, check_paths
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.store.locations import AllowedLocations
from frazil.wire.errors import BadRequest
from tests.support.tables import LOCATION, UUID, table

PLACE = "updates[0].add-data-files"
OTHER = "s3://bucket/warehouse/db/other"


class Owners:
    """The owners of locations in the database, with a count of the lookups."""

    def __init__(self, **owners: str) -> None:
        self._owners = {location: uuid for uuid, location in owners.items()}
        self.asked: list[str] = []

    def __call__(self, location: str) -> str | None:
        self.asked.append(location)
        for owned, uuid in self._owners.items():
            if location == owned or location.startswith(f"{owned}/"):
                return uuid
        return None


def check(
    *paths: str,
    metadata: TableMetadata | None = None,
    owners: Owners | None = None,
    warehouse: str = "s3://bucket/warehouse",
) -> None:
    locations = TableLocations(AllowedLocations(warehouse, ["s3://imports"]))
    owners = Owners(other=OTHER) if owners is None else owners
    check_paths(metadata or table(), paths, PLACE, locations, owners)


@pytest.mark.parametrize(
    "path",
    [
        f"{LOCATION}/data/a.parquet",
        f"{LOCATION}/a.parquet",
        f"{LOCATION}/data/day=2024-01-01/name=a%20b/.hidden",
        f"{LOCATION}/data/ø.parquet",
        f"{LOCATION}/data/...",
        f"s3a://{LOCATION.removeprefix('s3://')}/data/a.parquet",
    ],
)
def test_files_in_the_tables_location_are_its_own(path: str) -> None:
    owners = Owners()
    check(path, owners=owners)
    assert owners.asked == [], "what lies in the table's own place needs no look-up"


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_files_in_the_tables_other_places_are_its_own(name: str) -> None:
    owners = Owners()
    metadata = table(2, **{name: "s3://imports/fast/"})
    check("s3://imports/fast/0101/a.parquet", metadata=metadata, owners=owners)
    assert owners.asked == []


def test_imported_files_lie_outside_every_table() -> None:
    owners = Owners(other=OTHER)
    check(*(f"s3://imports/2024/{n}.parquet" for n in range(50)), owners=owners)
    assert len(owners.asked) == 1, "a folder is looked up once"


def test_files_of_another_table_are_refused() -> None:
    mine = f"{LOCATION}/data/a.parquet"
    with pytest.raises(BadRequest) as caught:
        check(mine, f"{OTHER}/data/b.parquet")
    assert caught.value.message.startswith(f"{PLACE}[1].file-path '{OTHER}/data/b.parquet' lies in")
    assert LOCATION in caught.value.message, "the message says where to write instead"
    with pytest.raises(BadRequest, match="another table"):
        check(f"s3n://{OTHER.removeprefix('s3://')}/data/b.parquet")


def test_a_place_that_the_table_is_about_to_leave_is_its_own() -> None:
    metadata = msgspec.structs.replace(table(), location="s3://bucket/warehouse/db/new")
    owners = Owners(**{UUID: LOCATION})
    check(f"{LOCATION}/data/a.parquet", metadata=metadata, owners=owners)


def test_a_location_is_not_its_neighbour() -> None:
    owners = Owners(other=f"{LOCATION}_other")
    with pytest.raises(BadRequest, match="another table"):
        check(f"{LOCATION}_other/a.parquet", owners=owners)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("s3://elsewhere/a.parquet", f"write the file below {LOCATION}, or start the server with "),
        ("", "names a folder"),
        (f"{LOCATION}/data/", "names a folder"),
        (f"{LOCATION}/../other/a.parquet", r"'\.\.' segment"),
        (f"{LOCATION}/data/..", r"'\.\.' segment"),
        (f"{LOCATION}/./a.parquet", r"'\.\.' segment"),
        (f"{LOCATION}/a\nb.parquet", "control character"),
        (f"{LOCATION}/a.parquet\n", "control character"),
        (f"{LOCATION}//a.parquet", "empty path segment"),
        (f"{LOCATION}/a?b.parquet", "'\\?'"),
        (f"{LOCATION}/a#b.parquet", "'#'"),
        (f"{LOCATION}/a\\b.parquet", "remove it"),
        (f"{LOCATION}/\ud800.parquet", "Unicode"),
        (f"{LOCATION}/{'a' * 1024}.parquet", "bytes long"),
        ("data/a.parquet", "not an absolute location"),
        ("gs://bucket/a.parquet", "not supported"),
    ],
)
def test_paths_that_clients_read_differently_are_refused(path: str, problem: str) -> None:
    """Paths are also checked after a valid file of the same folder, which is then cached."""
    for before in ([], [f"{LOCATION}/good.parquet", f"{LOCATION}/data/good.parquet"]):
        with pytest.raises(BadRequest, match=problem) as caught:
            check(*before, path)
        assert caught.value.message.startswith(f"{PLACE}[{len(before)}].file-path ")


# --- local files --------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path: Path) -> TableMetadata:
    (tmp_path / "wh/mine/data").mkdir(parents=True)
    (tmp_path / "wh/theirs/data").mkdir(parents=True)
    return msgspec.structs.replace(table(), location=f"file://{tmp_path}/wh/mine")


def test_local_files_are_judged_by_where_links_lead(local: TableMetadata, tmp_path: Path) -> None:
    warehouse, theirs = f"{tmp_path}/wh", f"file://{tmp_path}/wh/theirs"
    owners = Owners(other=theirs)
    for name in ("a", "b"):
        (tmp_path / "wh/mine/data" / name).write_bytes(b"")
    good = [f"file://{tmp_path}/wh/mine/data/a", f"{tmp_path}/wh/mine/data/b"]
    check(*good, metadata=local, warehouse=warehouse, owners=owners)
    assert owners.asked == []
    os.symlink(tmp_path / "wh/theirs/data/x", tmp_path / "wh/mine/data/linked")
    os.symlink(tmp_path / "wh/theirs/data", tmp_path / "wh/mine/folder")
    os.symlink(tmp_path, tmp_path / "wh/mine/outside")
    for path, problem in (
        (f"{tmp_path}/wh/mine/data/linked", "another table"),
        (f"{tmp_path}/wh/mine/folder/x", "another table"),
        (f"{tmp_path}/wh/mine/outside/x", "outside the warehouse"),
    ):
        with pytest.raises(BadRequest, match=problem):
            check(*good, path, metadata=local, warehouse=warehouse, owners=owners)


def test_a_link_among_many_files_of_a_folder_is_found(local: TableMetadata, tmp_path: Path) -> None:
    """After some files of a folder it is listed once, and its links are checked from the
    listing."""
    folder = tmp_path / "wh/mine/data"
    owners = Owners(other=f"file://{tmp_path}/wh/theirs")
    os.symlink(tmp_path / "wh/theirs/data/x", folder / "linked")
    os.symlink(folder / "0", folder / "harmless")
    many = [f"{folder}/{number}" for number in range(2_500)]
    check(*many, f"{folder}/harmless", metadata=local, warehouse=f"{tmp_path}/wh", owners=owners)
    for before in (10, 999, 1_000, 1_001, 2_500):
        with pytest.raises(BadRequest, match="another table") as caught:
            check(
                *many[:before],
                f"{folder}/linked",
                metadata=local,
                warehouse=f"{tmp_path}/wh",
                owners=owners,
            )
        assert caught.value.message.startswith(f"{PLACE}[{before}].")


def test_local_escapes_are_judged_in_both_readings(local: TableMetadata, tmp_path: Path) -> None:
    warehouse, theirs = f"{tmp_path}/wh", f"file://{tmp_path}/wh/theirs"
    good = f"file://{tmp_path}/wh/mine/data/a"
    check(good, f"{good}%20b", metadata=local, warehouse=warehouse)
    for path in (f"{good}%2F..%2F..%2F..%2Ftheirs%2Fx", f"{good}%00"):
        with pytest.raises(BadRequest):
            check(good, path, metadata=local, warehouse=warehouse, owners=Owners(other=theirs))


def test_files_that_are_not_there_are_judged_by_their_text(
    local: TableMetadata, tmp_path: Path
) -> None:
    folder = f"{tmp_path}/wh/mine/never/made"
    check(*(f"{folder}/{n}" for n in range(5)), metadata=local, warehouse=f"{tmp_path}/wh")
    with pytest.raises(BadRequest):
        check(f"{folder}/a", f"{folder}/%2E%2E", metadata=local, warehouse=f"{tmp_path}/wh")
