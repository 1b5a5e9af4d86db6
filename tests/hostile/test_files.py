"""Metadata files that were changed without the server's knowledge."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.hostile.world import SCHEMA, World, assert_refused, error_message
from tests.support.patience import HANG_S
from tests.support.server import ServerFactory


def _loop(file: Path) -> None:
    file.symlink_to(file)


def _fifo(file: Path) -> None:
    os.mkfifo(file)


HARM: dict[str, Callable[[Path], object]] = {
    "gone": lambda file: None,
    "folder": Path.mkdir,
    "loop": _loop,
    "fifo": _fifo,
    "device": lambda file: file.symlink_to("/dev/zero"),
    "empty": Path.touch,
    "rubbish": lambda file: file.write_bytes(b"\x00\xff" * 1000),
    "cut": lambda file: file.write_bytes(b'{"format-version":2,'),
    "nothing-in-it": lambda file: file.write_text("{}"),
}


def test_a_table_whose_metadata_was_harmed(server: ServerFactory, tmp_path: Path) -> None:
    """Commits are refused with a clear outcome, only this table's reads fail, and it can be
    dropped."""
    directory = tmp_path / "server"
    first = server(directory=directory)
    with httpx.Client(base_url=first.url, timeout=HANG_S) as client:
        world = World(first, client, "n", tmp_path / "allowed")
        world.build()
        for name in HARM:
            created = world.ok("POST", f"{world.path}/tables", {"name": name, "schema": SCHEMA})
            file = Path(created.json()["metadata-location"].removeprefix("file://"))
            file.unlink()
            HARM[name](file)
    assert first.stop() == 0
    again = server(directory=directory)
    with httpx.Client(base_url=again.url, timeout=HANG_S) as client:
        world = World(again, client, "n", tmp_path / "allowed")
        for name in HARM:
            path = f"{world.path}/tables/{name}"
            update = {"action": "set-properties", "updates": {"a": "b"}}
            body = {"requirements": [], "updates": [update]}
            message = assert_refused(world.send("POST", path, body), 400, 404, 429)
            assert "metadata" in message
            loaded = world.send("GET", path)
            assert loaded.status_code in (400, 404, 429, 503), name
            assert error_message(loaded)
            world.ok("DELETE", f"{path}?purgeRequested=true")
        world.ok("POST", world.table_path, body)
    assert "CommitStateUnknown" not in again.log
