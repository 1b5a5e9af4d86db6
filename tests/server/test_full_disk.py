"""A full disk: what clients and operators see, and that the server goes on by itself."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import HANG_S, wait_until
from tests.support.server import RunningServer, running_server
from tests.support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.process

TABLE = "/v1/namespaces/ns/tables/t"
SCHEMA = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "type": "long", "required": False}],
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("this system allows no user namespaces")
        yield disk


@contextmanager
def serving(tmp_path: Path, disk: SmallDisk, part: str) -> Iterator[RunningServer]:
    """Run a server whose database or warehouse is on the small disk."""
    folder = tmp_path / "server"
    folder.mkdir(exist_ok=True)
    flags = {
        "database": ("--database", f"sqlite:///{disk.mount_point}/frazil.db"),
        "warehouse": ("--warehouse", f"{disk.mount_point}/warehouse"),
    }[part]
    command = disk.command(sys.executable, "-m", "frazil", directory=folder)
    with running_server(folder, *flags, command=command) as server:
        yield server


def call(server: RunningServer, method: str, path: str, body: object = None) -> Answer:
    request = urllib.request.Request(
        f"{server.url}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return Answer(answer.status, dict(answer.headers), json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, dict(error.headers), json.loads(error.read()))


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: dict[str, Any]) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def message(self) -> str:
        return str(self.body["error"]["message"])


def make_table(server: RunningServer) -> None:
    assert call(server, "POST", "/v1/namespaces", {"namespace": ["ns"]}).status == 200
    created = call(server, "POST", "/v1/namespaces/ns/tables", {"name": "t", "schema": SCHEMA})
    assert created.status == 200


def commit(server: RunningServer, value: str) -> Answer:
    update = {"action": "set-properties", "updates": {"value": value}}
    return call(server, "POST", TABLE, {"requirements": [], "updates": [update]})


def metadata_files(tmp_path: Path, disk: SmallDisk) -> set[str]:
    folders = (tmp_path / "server", disk.folder)
    return {
        path.name
        for folder in folders
        for path in folder.rglob("*")
        if path.name.endswith(".metadata.json") or "probe" in path.name
    }


def table_folders(tmp_path: Path, disk: SmallDisk) -> set[Path]:
    folders = (tmp_path / "server" / "warehouse", disk.folder / "warehouse")
    return {path for folder in folders for path in folder.rglob("*") if path.is_dir()}


def health_lines(server: RunningServer) -> list[str]:
    return [line for line in server.log.splitlines() if "frazil.health" in line]


@pytest.mark.parametrize("part", ["database", "warehouse"])
def test_a_full_disk_is_a_proven_failure_and_one_episode(
    tmp_path: Path, disk: SmallDisk, part: str
) -> None:
    with serving(tmp_path, disk, part) as server:
        make_table(server)
        assert commit(server, "before").status == 200
        files = metadata_files(tmp_path, disk)
        folders = table_folders(tmp_path, disk)
        disk.fill()

        created = call(server, "POST", "/v1/namespaces/ns/tables", {"name": "p", "schema": SCHEMA})
        assert created.status == 429
        wait_until(
            lambda: table_folders(tmp_path, disk) == folders, "a refused table left its folders"
        )
        for number in range(20):
            refused = commit(server, f"full-{number}")
            assert refused.status == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert "full" in refused.message or "No space left" in refused.message
        wait_until(lambda: call(server, "GET", "/readyz").status == 503, "the server stayed ready")
        ready = call(server, "GET", "/readyz")
        assert ready.message == f"the {part} cannot be written: its disk is full"
        assert commit(server, "red").status == 429
        assert metadata_files(tmp_path, disk) == files
        assert call(server, "GET", TABLE).status == 200
        assert [f"the {part} cannot be written" in line for line in health_lines(server)] == [True]
        assert "WARNING" in health_lines(server)[0]

        disk.free()
        wait_until(lambda: commit(server, "after").status == 200, "commits did not resume")
        wait_until(lambda: call(server, "GET", "/readyz").status == 200, "it stayed red")
        assert len(health_lines(server)) == 2
        assert "can be written again" in health_lines(server)[1]


@pytest.mark.parametrize("leaving_bytes", [0, 4 << 10])
def test_a_server_does_not_start_on_a_disk_without_room_for_a_commit(
    tmp_path: Path, disk: SmallDisk, leaving_bytes: int
) -> None:
    """A start needs less room than a commit, so that such a server would say that it is ready."""
    with serving(tmp_path, disk, "database") as server:
        make_table(server)
        for number in range(100):
            assert commit(server, f"{number}" * 1000).status == 200
        disk.fill(leaving_bytes=leaving_bytes)
        for number in range(100):
            if commit(server, f"full-{number}").status == 429:
                break
        else:
            pytest.fail("the disk has room for many commits")
    with (
        pytest.raises(AssertionError, match=r"disk is full|No space left"),
        serving(tmp_path, disk, "database"),
    ):
        pass
    disk.free()
    with serving(tmp_path, disk, "database") as server:
        assert commit(server, "after").status == 200
