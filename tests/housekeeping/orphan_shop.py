"""A catalog with tables whose folders also have files that nothing names."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from frazil.commit.catalog.operations import Catalog
from frazil.db.housekeeping_rows import doomed_files
from frazil.db.rows import Database
from frazil.housekeeping.file_lists import ListedFile
from frazil.housekeeping.orphan_files import remove_orphans
from frazil.housekeeping.orphan_options import OrphanFilesResult, OrphanOptions
from frazil.housekeeping.reachability import Watch
from frazil.housekeeping.server_operations import ServerTools
from frazil.store.locations import AllowedLocations
from frazil.store.object_store import ListedObject, ObjectInfo, Store
from tests.commit.requests import Driver, name

HOUR_MS = 3_600_000
QUARANTINE_MS = 72 * HOUR_MS


class WatchedStore(Store):
    """A store that calls back in the middle of a listing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.during_list: Callable[[], object] = lambda: None
        self.before_list: Callable[[], object] = lambda: None
        self.listing: Iterable[ListedObject] | None = None
        """What every listing shows, if it is not the store's own."""
        self.rename_listed: Callable[[str], str] | None = None
        self.listed = 0

    def list(self, prefix: str) -> Iterator[ListedObject]:
        self.before_list()
        listing = self._store.list(prefix) if self.listing is None else self.listing
        for number, info in enumerate(listing):
            if number == 1:
                self.during_list()
            self.listed += 1
            if self.rename_listed is not None:
                location = self.rename_listed(info.location)
                yield ObjectInfo(location, info.size, info.modified_ms)
            else:
                yield info

    def put_new(self, location: str, chunks: Any) -> None:
        self._store.put_new(location, chunks)

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        return self._store.get(location, max_bytes)

    def get_range(self, location: str, offset: int, length: int) -> bytes:
        return self._store.get_range(location, offset, length)

    def size(self, location: str) -> int | None:
        return self._store.size(location)

    def delete(self, locations: Iterable[str]) -> None:
        self._store.delete(locations)

    def make_folders(self, locations: Iterable[str]) -> None:
        self._store.make_folders(locations)


@dataclass
class Shop:
    """A catalog in one place, and searches for orphans in it."""

    database: Database
    store: WatchedStore
    root: str
    catalog: Catalog

    @property
    def tools(self) -> ServerTools:
        return ServerTools(self.database, self.store, self.catalog)

    @property
    def driver(self) -> Driver:
        return Driver(self.catalog, self.database, Path(self.root.removeprefix("file://")))

    def create(self, table: str = "t", **fields: Any) -> str:
        """Create a table; return its location."""
        self.driver.create_table(table, **fields)
        return self.location(table)

    def location(self, table: str = "t") -> str:
        return self.driver.load(table).metadata.location

    def uuid(self, table: str = "t") -> str:
        row = self.database.relation(name(table))
        assert row is not None
        return row.uuid

    def write(self, path: str, size: int = 10, age_ms: int | None = None) -> str:
        """Write a file that no commit names; return its path."""
        self.store.put_new(path, [b"x" * size])
        if age_ms is not None:
            seconds = time.time() - age_ms / 1000
            os.utime(path.removeprefix("file://"), (seconds, seconds))
        return path

    def new_path(self, table: str = "t", folder: str = "data") -> str:
        return f"{self.location(table)}/{folder}/{uuid.uuid4()}.parquet"

    def orphan(self, table: str = "t", folder: str = "data") -> str:
        return self.write(self.new_path(table, folder))

    def commit(self, *paths: str, table: str = "t") -> None:
        """Append files, which need not exist."""
        files = [
            {
                "content": "data",
                "file-path": path,
                "file-format": "parquet",
                "spec-id": 0,
                "partition": [],
                "record-count": 1,
                "file-size-in-bytes": 10,
            }
            for path in paths
        ]
        self.driver.commit(table, [{"action": "append", "add-data-files": files}])

    def append(self, count: int = 1, table: str = "t") -> list[str]:
        """Write files and commit them."""
        paths = [self.orphan(table) for _ in range(count)]
        self.commit(*paths, table=table)
        return paths

    def set_properties(self, table: str = "t", **properties: str) -> None:
        updates = {
            key.replace("__", "-").replace("_", "."): text for key, text in properties.items()
        }
        self.driver.commit(table, [{"action": "set-properties", "updates": updates}])

    def search(
        self,
        table: str = "t",
        *,
        dry_run: bool = False,
        watch: Watch | None = None,
        file_list: Iterable[ListedFile] | None = None,
        stored_list: str | None = None,
        **options: Any,
    ) -> OrphanFilesResult:
        """Search for files of any age."""
        soon_ms = time.time_ns() // 1_000_000 + HOUR_MS
        options = {"older_than_ms": soon_ms, "allow_recent_files": True, **options}
        if file_list is not None:
            stored_list = self.stored(file_list, table)
        options["file_list"] = stored_list
        return remove_orphans(
            self.tools,
            self.uuid(table),
            OrphanOptions(**options),
            dry_run=dry_run,
            watch=watch or Watch(),
        )

    def stored(self, files: Iterable[ListedFile], table: str = "t") -> str:
        """Store a list of files as clients do; return its folder."""
        folder = f"{self.location(table)}/data/list-{uuid.uuid4()}"
        lines = [msgspec.json.encode(file) for file in files]
        for start in range(0, len(lines), 4000):
            content = b"\n".join(lines[start : start + 4000])
            self.store.put_new(f"{folder}/{start:08}.jsonl", [content])
        return folder

    def found(self, table: str = "t", **options: Any) -> set[str]:
        """Return the orphans of a dry run."""
        return set(self.search(table, dry_run=True, **options).orphan_file_locations)

    def recorded(self, table: str = "t") -> set[str]:
        return {file.path for file in doomed_files(self.database, self.uuid(table))}


def open_shop(
    database: Database, store: Store, root: str, cache_folder: Path | None = None
) -> Shop:
    watched = WatchedStore(store)
    watched.make_folders([root])
    catalog = Catalog(
        db=database,
        store=watched,
        warehouse=root,
        allowed_locations=AllowedLocations(root),
        manifest_cache_folder=cache_folder,
    )
    shop = Shop(database, watched, root, catalog)
    shop.driver.create_namespace("ns")
    return shop
