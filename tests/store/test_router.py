"""One store serves all URI schemes."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.store.local_store import LocalStore
from frazil.store.object_store import (
    ObjectExists,
    PutIfAbsentUnsupported,
    Store,
    StoreError,
    prove_put_if_absent,
)
from frazil.store.s3_settings import S3Settings
from frazil.store.store_router import RoutingStore, open_store
from frazil.wire.errors import BadRequest
from tests.support.memory_store import MemoryStore
from tests.support.s3 import S3Server


def test_the_scheme_decides(tmp_path: Path) -> None:
    memory = MemoryStore()
    store = RoutingStore({"file": LocalStore, "memory": lambda: memory})
    locations = [f"file:{tmp_path}/a", "memory://x/a", f"{tmp_path}/b"]

    for location in locations:
        store.put_new(location, [location.encode()])
        with pytest.raises(ObjectExists):
            store.put_new(location, [b"again"])

    assert [store.get(location) for location in locations] == [
        location.encode() for location in locations
    ]
    assert store.size(locations[1]) == len(locations[1])
    assert [store.get_range(location, 1, 3) for location in locations] == [
        location.encode()[1:4] for location in locations
    ]
    assert memory.get("memory://x/a") == b"memory://x/a"
    assert (tmp_path / "b").read_bytes() == locations[2].encode()
    assert [info.location for info in store.list("memory://x")] == ["memory://x/a"]
    assert len(list(store.list(f"file://{tmp_path}"))) == 2
    store.make_folders([f"{tmp_path}/folder", "memory://x/folder"])
    assert (tmp_path / "folder").is_dir()
    store.delete(iter(locations))
    assert [store.size(location) for location in locations] == [None, None, None]
    store.close()


def test_one_store_for_each_scheme_is_opened_when_it_is_needed() -> None:
    opened: list[str] = []

    def open_memory() -> Store:
        opened.append("memory")
        return MemoryStore()

    store = RoutingStore({"file": LocalStore, "memory": open_memory})
    store.size("/none")
    assert opened == []
    store.size("memory://x/a")
    store.size("memory://y/a")
    assert opened == ["memory"]


@pytest.mark.parametrize("location", ["memory://x/a", "gs://bucket/a", "hdfs://host/a", "a"])
def test_a_scheme_without_a_store_is_named_with_those_that_have_one(location: str) -> None:
    store = open_store(environ={})

    with pytest.raises(BadRequest, match="file") as raised:
        store.get(location)
    with pytest.raises(BadRequest):
        list(store.list(location))
    with pytest.raises(BadRequest):
        store.delete([location])
    assert location.partition(":")[0] in raised.value.message


def test_the_servers_store_has_files_and_s3(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    environ = s3_server.environ()
    settings = S3Settings(s3_server.endpoint, path_style=True)
    with_settings = open_store(settings, environ={k: v for k, v in environ.items() if "KEY" in k})

    for store in (open_store(environ=environ), with_settings):
        for root in (f"{s3_bucket}/router", str(tmp_path)):
            prove_put_if_absent(store, root)
        store.close()


def test_a_store_that_changes_what_it_refuses_to_write_is_found_out() -> None:
    class Careless(MemoryStore):
        def put_new(self, location: str, chunks: object) -> None:
            if self.size(location) is not None:
                self.delete([location])
                super().put_new(location, [b"overwritten"])
                raise ObjectExists(location)
            super().put_new(location, [b"first"])

    with pytest.raises(PutIfAbsentUnsupported, match="changed the object"):
        prove_put_if_absent(Careless(), "memory://x")


def test_the_proof_passes_on_what_is_really_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError, match="Not a directory") as raised:
        prove_put_if_absent(LocalStore(), f"{tmp_path}/file")
    assert not isinstance(raised.value, PutIfAbsentUnsupported)
