"""A search whose result cannot be right is refused, and then nothing is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import fastavro
import pytest

from frazil.db.base import CreateRelation, DropRelation, Kind, Relation
from frazil.db.connect import connect
from frazil.housekeeping.file_lists import ListedFile
from frazil.housekeeping.orphan_guards import FEW_FILES, files_of_catalog
from frazil.housekeeping.orphan_options import OrphanOptions, PrefixMismatchMode
from frazil.store.local_store import LocalStore
from frazil.wire.errors import BadRequest, Conflict, ValidationError
from frazil.wire.maintenance_operations import OPERATIONS, REMOVE_ORPHAN_FILES, check_options
from tests.commit.requests import name
from tests.db.helpers import must
from tests.housekeeping.orphan_shop import Shop, open_shop


@pytest.fixture(autouse=True)
def _nothing_is_recorded(shop: Shop) -> Iterator[None]:
    yield
    assert not shop.database.fetch("tables_with_work", {"now_ms": 2**62})


# --- the share ------------------------------------------------------------------------------------


def test_a_large_share_of_orphans_is_refused(shop: Shop) -> None:
    shop.create()
    shop.append(2)
    for _ in range(FEW_FILES + 1):
        shop.orphan()
    with pytest.raises(Conflict, match=r"max_orphan_share=0\.5"):
        shop.search()
    result = shop.search(dry_run=True)
    assert result.orphan_files_count == FEW_FILES + 1
    assert "max_orphan_share" in str(result.refusal)
    assert shop.search(dry_run=True, max_orphan_share=1.0).refusal is None


def test_a_large_share_of_the_bytes_is_refused(shop: Shop) -> None:
    shop.create()
    shop.append(60)
    for _ in range(FEW_FILES):
        shop.orphan()
    shop.write(shop.new_path(), size=1_000_000)
    with pytest.raises(Conflict, match="bytes"):
        shop.search()


# --- what lies in the place -----------------------------------------------------------------------


def test_the_database_of_the_catalog_is_never_an_orphan_ducklake_813(tmp_path: Path) -> None:
    place = tmp_path / "wh" / "place"
    (place / "data").mkdir(parents=True)
    database = connect(f"sqlite:///{place}/data/catalog.db")
    database.migrate()
    shop = open_shop(database, LocalStore(), f"file://{tmp_path}/wh")
    shop.create(location=f"file://{place}")
    shop.append()
    shop.create("u")
    orphan = shop.orphan("u")
    with pytest.raises(Conflict, match=r"catalog\.db, which belongs to the catalog itself"):
        shop.search()
    assert shop.found("u") == {orphan}
    shop.catalog.close()
    database.close()


def test_the_cache_of_the_catalog_is_never_an_orphan(tmp_path: Path) -> None:
    place = tmp_path / "wh" / "place"
    database = connect(f"sqlite:///{tmp_path}/other.db")
    database.migrate()
    shop = open_shop(database, LocalStore(), f"file://{tmp_path}/wh", place / "data" / "cache")
    shop.create(location=f"file://{place}")
    with pytest.raises(Conflict, match="cache, which belongs to the catalog itself"):
        shop.search()
    shop.catalog.close()
    database.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", ".lock"])
def test_the_files_of_the_database_are_files_of_the_catalog(shop: Shop, suffix: str) -> None:
    names = {Path(path).name for path in files_of_catalog(shop.tools)}
    assert f"catalog.db{suffix}" in names


def test_the_location_of_another_table_is_refused(shop: Shop) -> None:
    """The catalog keeps locations apart; a row that breaks this must not cost a table."""
    location = shop.create()
    shop.append()
    for nested in (f"{location}/data/inner", location.rpartition("/")[0]):
        other = Relation(Kind.TABLE, name("other"), str(uuid4()), "s3://b/m.json", 1)
        must(shop.database, CreateRelation(other))
        shop.database.execute("create_location", {"location": nested, "uuid": other.uuid})
        with pytest.raises(Conflict, match="another table"):
            shop.search()
        must(shop.database, DropRelation(other))


def test_a_view_in_the_location_of_the_table_is_refused(shop: Shop) -> None:
    location = shop.create()
    shop.append()
    shop.driver.create_view("v", location=f"{location}/views")
    with pytest.raises(Conflict, match=r"ns\.v has its metadata"):
        shop.search()


# --- what the listing shows -----------------------------------------------------------------------


def test_a_listing_without_the_files_of_the_table_is_refused(shop: Shop) -> None:
    """The store shows other names than those that clients write."""
    shop.create()
    shop.append(3)
    shop.store.rename_listed = lambda path: f"{path}-renamed"
    with pytest.raises(Conflict, match="none of those"):
        shop.search(max_orphan_share=1.0)


def test_a_listing_that_shows_nothing_is_refused(shop: Shop) -> None:
    location = shop.create()
    live = shop.append(3)
    shop.store.delete(live)
    with pytest.raises(Conflict, match="none of those"):
        shop.search(location=f"{location}/data")


def test_a_table_that_has_lost_most_of_its_files_is_refused(shop: Shop) -> None:
    shop.create()
    live = shop.append(30)
    orphan = shop.orphan()
    shop.store.delete(live[:20])
    with pytest.raises(Conflict, match="restore the missing files"):
        shop.search()
    shop.store.delete([orphan])


def test_a_missing_manifest_is_refused(shop: Shop) -> None:
    location = shop.create()
    shop.append()
    shop.orphan()
    (manifest,) = manifests(location)
    manifest.unlink()
    with pytest.raises(ValidationError, match="repair the table"):
        shop.search()


# --- schemes and authorities ----------------------------------------------------------------------


@pytest.fixture
def mismatched(shop: Shop) -> ListedFile:
    """Return a file of the table, whose metadata names it under another host."""
    location = shop.create()
    path = shop.append()[0]
    (manifest,) = manifests(location)
    # The server refuses such a path, but not such a manifest of a stock client.
    _respell(manifest, path, path.replace("file://", "file://nas"))
    return ListedFile(path, 10, 1)


def manifests(location: str) -> list[Path]:
    folder = Path(location.removeprefix("file://")) / "metadata"
    return [path for path in folder.glob("*.avro") if not path.name.startswith("snap-")]


def _respell(manifest: Path, before: str, after: str) -> None:
    with manifest.open("rb") as file:
        reader = fastavro.reader(file)
        schema, metadata = reader.writer_schema, reader.metadata
        records = cast("list[dict[str, Any]]", list(reader))
    assert schema is not None
    for record in records:
        if record["data_file"]["file_path"] == before:
            record["data_file"]["file_path"] = after
    kept = {key: text for key, text in metadata.items() if not key.startswith("avro.")}
    with manifest.open("wb") as file:
        fastavro.writer(file, schema, records, metadata=kept)


def test_another_authority_is_an_error(shop: Shop, mismatched: ListedFile) -> None:
    with pytest.raises(BadRequest, match="prefix_mismatch_mode: 1 files"):
        shop.search()
    with pytest.raises(BadRequest, match="file://nas"):
        shop.search(dry_run=True, file_list=[mismatched])


def test_another_authority_can_be_ignored_or_equal(shop: Shop, mismatched: ListedFile) -> None:
    assert not shop.found(prefix_mismatch_mode=PrefixMismatchMode.IGNORE)
    assert not shop.found(equal_authorities={"nas": ""})
    assert shop.found(prefix_mismatch_mode=PrefixMismatchMode.DELETE) == {mismatched.location}


def test_options_are_texts() -> None:
    options = OrphanOptions.from_texts(
        {
            "older_than": "2026-05-01T12:00:00Z",
            "equal_schemes": "s3n,s3a=s3; gs = s3",
            "equal_authorities": "",
            "prefix_mismatch_mode": "ignore",
            "max_orphan_share": "0.9",
            "allow_recent_files": "TRUE",
        }
    )
    assert options == OrphanOptions(
        older_than_ms=1_777_636_800_000,
        equal_schemes={"s3n": "s3", "s3a": "s3", "gs": "s3"},
        prefix_mismatch_mode=PrefixMismatchMode.IGNORE,
        max_orphan_share=0.9,
        allow_recent_files=True,
    )
    assert OrphanOptions.from_texts({}) == OrphanOptions()
    for wrong in ("s3a", "=s3", "s3a="):
        with pytest.raises(BadRequest, match=r"options\.equal_schemes.*must be names"):
            check_options(OPERATIONS[REMOVE_ORPHAN_FILES], {"equal_schemes": wrong})
