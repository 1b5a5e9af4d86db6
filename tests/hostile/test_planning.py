"""Scans of manifest trees that a client has built, and hostile filters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import scans
from tests.hostile.world import World, assert_refused, set_ref, snapshot


def _planned(world: World, **request: Any) -> Any:
    body = {name.replace("_", "-"): value for name, value in request.items()}
    return world.send("POST", f"{world.table_path}/plan", body)


def _listed(world: World, manifest_list: str) -> None:
    """Commit a snapshot with this manifest list and make it the table's current one."""
    world.committed(
        {
            "action": "add-snapshot",
            "snapshot": snapshot(
                world.location, 7, 3, parent_snapshot_id=2, manifest_list=manifest_list
            ),
        },
        set_ref(7),
    )


HARM: dict[str, Callable[[Path], object]] = {
    "gone": lambda file: None,
    "folder": Path.mkdir,
    "fifo": lambda file: os.mkfifo(file),
    "device": lambda file: file.symlink_to("/dev/zero"),
    "empty": Path.touch,
    "rubbish": lambda file: file.write_bytes(b"\x00\xff" * 1000),
    "cut": lambda file: file.write_bytes(b"Obj\x01"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_manifest_list_that_cannot_be_read(world: World, harm: str) -> None:
    file = Path(world.location.removeprefix("file://")) / "metadata" / f"{harm}.avro"
    file.parent.mkdir(parents=True, exist_ok=True)
    HARM[harm](file)
    _listed(world, f"file://{file}")
    answer = _planned(world)
    assert answer.status_code in (400, 404, 503), answer.text
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "/etc/hostname", "file:///proc/self/environ", "../../x.avro"]
)
def test_nothing_is_read_outside_of_what_is_allowed(world: World, place: str) -> None:
    _listed(world, place)
    message = assert_refused(_planned(world), 400, 403, 404)
    assert "root:" not in message


def test_deep_filters_are_refused(world: World) -> None:
    scans.scanned(world)
    leaf = '{"type":"eq","term":"id","value":1}'
    for depth in (50, 10_000):
        nested = '{"type":"not","child":' * depth + leaf + "}" * depth
        answer = world.send("POST", f"{scans.path(world)}/plan", f'{{"filter":{nested}}}'.encode())
        assert answer.status_code == (200 if depth == 50 else 400), answer.text[:300]


def test_large_filters_are_planned(world: World) -> None:
    """These filters do not fit into plan ids and tokens, so the answer contains the whole plan."""
    scans.scanned(world)
    values = [f"{number:09}-{'x' * 60}" for number in range(30_000)]
    request = {"filter": {"type": "not-in", "term": "note", "values": values}}
    answer = world.ok("POST", f"{scans.path(world)}/plan", request).json()
    assert len(answer["file-scan-tasks"]) == len(scans.DAYS)
    assert not {"plan-id", "plan-tasks"} & set(answer)


@pytest.mark.parametrize(
    "path",
    ["plan/", "plan/%00", "plan/..", "plan/" + "A" * 30_000, "plan/a/b", "plan//", "tasks/x"],
)
def test_paths_beside_the_routes(world: World, path: str) -> None:
    for method in ("GET", "DELETE"):
        assert_refused(world.send(method, f"{world.table_path}/{path}"), 400, 404, 405, 431)
