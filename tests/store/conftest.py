from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from frazil.store.local_store import LocalStore
from frazil.store.object_store import Store
from frazil.store.s3_store import S3Store
from tests.support.memory_store import MemoryStore
from tests.support.s3 import S3Server, start_s3


@dataclass(frozen=True)
class Place:
    """A store and an empty folder in it."""

    kind: str
    store: Store
    root: str


@pytest.fixture(autouse=True)
def _no_keys_from_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide this machine's S3 keys, so that a test without keys fails on a closed port."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "FRAZIL_S3_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-aws-credentials"))


@pytest.fixture(scope="session")
def s3_server(processes: None) -> Iterator[S3Server]:
    server = start_s3()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_bucket(s3_server: S3Server) -> str:
    return s3_server.create_bucket(f"store-{uuid.uuid4().hex[:12]}")


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.process)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    store: Store
    match request.param:
        case "local":
            store, root = LocalStore(), f"file://{tmp_path}"
        case "memory":
            store, root = MemoryStore(), "memory://store"
        case _:
            server: S3Server = request.getfixturevalue("s3_server")
            bucket: str = request.getfixturevalue("s3_bucket")
            store, root = S3Store(environ=server.environ()), f"{bucket}/{uuid.uuid4()}"
    yield Place(request.param, store, root)
    store.close()
