"""Manifests are verified and read once; errors name the manifest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.format.manifest.manifest_columns import ManifestColumns, decode_columns
from frazil.format.manifest.manifest_encoder import manifest_encoder
from frazil.format.manifest.manifest_list import (
    DATA,
    ListedManifest,
    ManifestFile,
    ManifestList,
    manifest_list_schema,
    write_manifest_list,
)
from frazil.format.manifest.manifest_writer import RollingManifestWriter
from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.partition_spec import parse_partition_spec
from frazil.format.metadata.schema import parse_schema
from frazil.format.metadata.snapshots import Snapshot, parse_snapshot
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.store.local_store import LocalStore
from frazil.store.object_store import StoreError
from frazil.wire.errors import Forbidden, FrazilError
from tests.support.patience import HANG_S

SCHEMA = parse_schema(b'{"type": "struct", "schema-id": 0, "fields": []}')
SPEC = parse_partition_spec(b'{"spec-id": 0, "fields": []}')


def manifest(*numbers: int, version: int = 2) -> bytes:
    encoder = manifest_encoder(SCHEMA, SPEC, version, DATA)
    writer = RollingManifestWriter(encoder, new_path=lambda: "m", snapshot_id=4)
    for number in numbers:
        writer.add(
            DataFile(
                file_path=f"file:///data/{number}.parquet",
                file_format="PARQUET",
                record_count=number,
                file_size_in_bytes=1,
            )
        )
    return writer.finish()[0].file


def listed(path: str, encrypted: bool = False) -> ManifestFile:
    return ManifestFile(
        path, 1, 0, DATA, 3, 3, 4, None, None, None, None, None, None, None, encrypted, b""
    )


class CountingStore(LocalStore):
    """A real store that counts its reads and can be made to fail or to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.before: Callable[[], None] = lambda: None

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        self.reads.append(location)
        self.before()
        return super().get(location, max_bytes)


@pytest.fixture
def store() -> Iterator[CountingStore]:
    opened = CountingStore()
    yield opened
    opened.close()


def allow(location: str) -> None:
    pass


def put(store: LocalStore, folder: Path, name: str, content: bytes) -> str:
    location = f"file://{folder}/{name}"
    store.put_new(location, [content])
    return location


def snapshot(**fields: Any) -> Snapshot:
    given = {"snapshot-id": 4, "timestamp-ms": 1, **fields}
    return parse_snapshot(json.dumps(given).encode())


def test_a_manifest_is_read_and_decoded_once(store: CountingStore, tmp_path: Path) -> None:
    content = manifest(1, 2)
    path = put(store, tmp_path, "m.avro", content)
    cache = ManifestCache()
    reader = ManifestReader(cache, store, allow)
    columns = reader.columns(listed(path))
    assert columns.find("file:///data/2.parquet") == [1]
    assert ManifestReader(cache, store, allow).columns(listed(path)) is columns
    assert reader.content(listed(path)) == content
    assert store.reads == [path]


def test_several_are_read_at_the_same_time(store: CountingStore, tmp_path: Path) -> None:
    paths = [put(store, tmp_path, f"m{n}.avro", manifest(n)) for n in range(4)]
    meeting = threading.Barrier(4, timeout=HANG_S)

    def meet() -> None:
        meeting.wait()

    store.before = meet
    reader = ManifestReader(ManifestCache(), store, allow)
    found = reader.columns_of([listed(path) for path in paths])
    assert [columns.record_count.tolist() for columns in found] == [[0], [1], [2], [3]]
    assert sorted(store.reads) == paths


def test_two_threads_do_not_decode_the_same_manifest(store: CountingStore, tmp_path: Path) -> None:
    path = put(store, tmp_path, "m.avro", manifest(1))
    cache = ManifestCache()
    others: list[threading.Thread] = []
    found: list[ManifestColumns] = []

    def read() -> None:
        found.append(ManifestReader(cache, store, allow).columns(listed(path)))

    def start_another() -> None:
        if not others:
            others.append(threading.Thread(target=read))
            others[0].start()

    store.before = start_another
    read()
    others[0].join()
    assert found[0] is found[1]
    assert store.reads == [path]


def test_a_thread_that_waited_for_a_failure_tries_by_itself(
    store: CountingStore, tmp_path: Path
) -> None:
    """Its own store may see files that the store of the failed thread does not."""
    cache = ManifestCache()
    path = f"file://{tmp_path}/m.avro"
    others: list[threading.Thread] = []
    found: list[bytes] = []

    def read_pending() -> None:
        pending = CountingStore()
        pending.before = lambda: pending.put_new(path, [manifest(1)])
        found.append(ManifestReader(cache, pending, allow).content(listed(path)))

    def start_another() -> None:
        others.append(threading.Thread(target=read_pending))
        others[0].start()

    def read_missing() -> bytes:
        start_another()
        raise FrazilError("missing")

    with pytest.raises(FrazilError):
        cache.once(path, bytes, read_missing)
    others[0].join()
    assert len(found) == 1
    assert cache.get(path, bytes) == found[0]


def test_every_location_is_checked_before_it_is_read(store: CountingStore, tmp_path: Path) -> None:
    path = put(store, tmp_path, "m.avro", manifest(1))

    def forbid(location: str) -> None:
        raise Forbidden(location)

    reader = ManifestReader(ManifestCache(), store, forbid)
    for ask in (reader.columns, reader.content):
        with pytest.raises(Forbidden, match=path):
            ask(listed(path))
    with pytest.raises(Forbidden):
        reader.manifest_list(snapshot(**{"manifest-list": path}))
    with pytest.raises(Forbidden):
        reader.manifest_list(snapshot(manifests=[path]))
    assert store.reads == []


def test_what_is_wrong_with_a_manifest_is_said_by_name(
    store: CountingStore, tmp_path: Path
) -> None:
    reader = ManifestReader(ManifestCache(), store, allow)
    broken = put(store, tmp_path, "broken.avro", b"Obj\x01nonsense")
    missing = f"file://{tmp_path}/missing.avro"
    with pytest.raises(FrazilError, match=f"{broken} of this table cannot be read"):
        reader.columns(listed(broken))
    with pytest.raises(FrazilError, match=f"{missing} of this table is missing"):
        reader.columns(listed(missing))
    with pytest.raises(FrazilError, match=f"{missing} of this table is missing"):
        reader.content(listed(missing))
    with pytest.raises(FrazilError, match=f"manifest list {broken} of this table cannot"):
        reader.manifest_list(snapshot(**{"manifest-list": broken}))
    with pytest.raises(FrazilError, match="encrypted"):
        reader.columns(listed(broken, encrypted=True))


def test_a_store_that_fails_may_be_asked_again(store: CountingStore, tmp_path: Path) -> None:
    path = put(store, tmp_path, "m.avro", manifest(1))
    reader = ManifestReader(ManifestCache(), store, allow)

    def fail() -> None:
        raise StoreError("slow down")

    store.before = fail
    with pytest.raises(StoreError, match="slow down"):
        reader.columns_of([listed(path)])
    store.before = lambda: None
    assert len(reader.columns(listed(path))) == 1


def written_list(*entries: ManifestFile) -> tuple[bytes, ManifestList]:
    schema = manifest_list_schema(2)
    written = write_manifest_list(
        [ListedManifest(entry, manifest_list_schema(1)) for entry in entries],
        like=ManifestList(schema, {}, "deflate", ()),
        format_version=2,
        snapshot_id=4,
        parent_snapshot_id=None,
        sequence_number=3,
        first_row_id=None,
        codec="deflate",
    )
    return written.content, written.parsed


def test_lists_and_manifests_just_made_are_not_read(store: CountingStore, tmp_path: Path) -> None:
    content, parsed = written_list()
    path, place = f"file://{tmp_path}/m.avro", f"file://{tmp_path}/list.avro"
    reader = ManifestReader(ManifestCache(), store, allow)
    made = manifest(1)
    columns = decode_columns(made)
    reader.remember(path, columns, made)
    reader.remember_list(place, parsed)
    assert reader.columns(listed(path)) is columns
    assert reader.content(listed(path)) is made
    assert reader.manifest_list(snapshot(**{"manifest-list": place})) is parsed
    assert store.reads == []
    other = put(store, tmp_path, "other.avro", content)
    assert reader.manifest_list(snapshot(**{"manifest-list": other})).manifests == ()
    assert store.reads == [other]


def test_manifests_named_in_the_snapshot_make_a_list(store: CountingStore, tmp_path: Path) -> None:
    contents = [manifest(1, 2, version=1), manifest(3, version=1)]
    paths = [put(store, tmp_path, f"m{n}.avro", made) for n, made in enumerate(contents)]
    reader = ManifestReader(ManifestCache(), store, allow)
    found = reader.manifest_list(snapshot(manifests=paths)).manifests
    assert [one.manifest_path for one in found] == paths
    assert [one.manifest_length for one in found] == [len(made) for made in contents]
    assert [one.added_files_count for one in found] == [2, 1]
    assert [one.added_rows_count for one in found] == [3, 3]
    assert [one.added_snapshot_id for one in found] == [4, 4]
    content, parsed = written_list(*found)
    place = put(store, tmp_path, "list.avro", content)
    again = reader.manifest_list(snapshot(**{"manifest-list": place})).manifests
    assert again == parsed.manifests
    assert [one.added_rows_count for one in again] == [3, 3]
    assert reader.manifest_list(snapshot(manifests=[])).manifests == ()


def test_the_cache_stays_within_its_budget(store: CountingStore, tmp_path: Path) -> None:
    cache = ManifestCache(max_bytes=64 << 10)
    reader = ManifestReader(cache, store, allow)
    paths = [put(store, tmp_path, f"m{n}.avro", manifest(*range(50))) for n in range(12)]
    for path in paths:
        reader.columns(listed(path))
    assert 0 < cache.size_bytes <= 64 << 10
    assert cache.get(paths[-1], ManifestColumns) is not None
    assert cache.get(paths[0], ManifestColumns) is None
