"""Routes each location to the store of its scheme."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor

from frazil.extras import install_command, is_missing
from frazil.store.local_store import LocalStore
from frazil.store.locations import parse_location
from frazil.store.object_store import ListedObject, Store, StoreError
from frazil.store.s3_settings import S3Settings
from frazil.wire.errors import BadRequest


class RoutingStore(Store):
    """Implements `Store` with one store for each scheme, opened when it is first used."""

    def __init__(self, openers: Mapping[str, Callable[[], Store]]) -> None:
        self._openers = dict(openers)
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}

    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        self._store_of(location).put_new(location, chunks)

    def put_many(
        self, files: Mapping[str, Sequence[bytes]], executor: Executor
    ) -> dict[str, Exception]:
        failed: dict[str, Exception] = {}
        for scheme, of_scheme in _by_scheme(files).items():
            try:
                store = self._store(scheme)
            except (BadRequest, StoreError) as error:
                failed.update(dict.fromkeys(of_scheme, error))
                continue
            contents = {location: files[location] for location in of_scheme}
            failed.update(store.put_many(contents, executor))
        return failed

    def put_unsynced(self, location: str, chunks: Sequence[bytes]) -> None:
        self._store_of(location).put_unsynced(location, chunks)

    def sync(self, locations: Iterable[str]) -> None:
        for scheme, of_scheme in _by_scheme(locations).items():
            self._store(scheme).sync(of_scheme)

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        return self._store_of(location).get(location, max_bytes)

    def get_range(self, location: str, offset: int, length: int) -> bytes:
        return self._store_of(location).get_range(location, offset, length)

    def size(self, location: str) -> int | None:
        return self._store_of(location).size(location)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        return self._store_of(prefix).list(prefix)

    def delete(self, locations: Iterable[str]) -> None:
        for scheme, of_scheme in _by_scheme(locations).items():
            self._store(scheme).delete(of_scheme)

    def make_folders(self, locations: Iterable[str]) -> None:
        for scheme, of_scheme in _by_scheme(locations).items():
            self._store(scheme).make_folders(of_scheme)

    def remove_empty_folders(self, location: str) -> None:
        self._store_of(location).remove_empty_folders(location)

    def close(self) -> None:
        with self._lock:
            stores = list(self._stores.values())
            self._stores.clear()
        for store in stores:
            store.close()

    def _store_of(self, location: str) -> Store:
        return self._store(parse_location(location).scheme)

    def _store(self, scheme: str) -> Store:
        store = self._stores.get(scheme)
        if store is not None:
            return store
        if scheme not in self._openers:
            raise BadRequest(
                f"this server has no store for {scheme}: locations: "
                f"use one of {', '.join(sorted(self._openers))}"
            )
        with self._lock:
            if scheme not in self._stores:
                self._stores[scheme] = self._openers[scheme]()
            return self._stores[scheme]


def open_store(
    s3: S3Settings | None = None, environ: Mapping[str, str] = os.environ
) -> RoutingStore:
    """Return the store of the server for local files and S3. Connect only at the first use."""
    return RoutingStore({"file": LocalStore, "s3": lambda: _open_s3(s3, environ)})


def _open_s3(settings: S3Settings | None, environ: Mapping[str, str]) -> Store:
    try:
        from frazil.store.s3_store import S3Store
    except ModuleNotFoundError as error:
        if not is_missing(error, "s3"):
            raise
        raise StoreError(
            f"S3 locations need obstore, which is not installed. Type: {install_command('s3')}"
        ) from error
    return S3Store(settings, environ)


def _by_scheme(locations: Iterable[str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for location in locations:
        grouped.setdefault(parse_location(location).scheme, []).append(location)
    return grouped
