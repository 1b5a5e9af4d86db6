"""Hostile metadata files that are registered and then committed to."""

from __future__ import annotations

import gzip
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.format.metadata.metadata_files import decode_metadata_file
from tests.hostile.bodies import encoded, number
from tests.hostile.world import SCHEMA, SPEC, World, assert_refused, set_ref, snapshot

NOW_MS = 1_700_000_000_000
INT, LONG = 2**31 - 1, 2**63 - 1


@pytest.fixture
def folder(world: World) -> Path:
    """Provide the folder of a new table in an allowed location."""
    made = world.allowed / str(uuid.uuid4())
    (made / "metadata").mkdir(parents=True)
    return made


def metadata(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the metadata of a valid table without snapshots, with changes. In their names `_`
    stands for `-`."""
    return {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": str(folder),
        "last-sequence-number": 0,
        "last-updated-ms": NOW_MS,
        "last-column-id": 3,
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [SPEC],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    } | {name.replace("_", "-"): value for name, value in changes.items()}


def old(snapshot_id: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    sequence_number = more.pop("sequence_number", 0)
    made = snapshot("/nowhere", snapshot_id, sequence_number, **more) | {"timestamp-ms": NOW_MS}
    return made if parent is None else made | {"parent-snapshot-id": parent}


def register(world: World, folder: Path, content: bytes | dict[str, Any]) -> httpx.Response:
    file = folder / "metadata" / "00000-a.metadata.json"
    file.write_bytes(content if isinstance(content, bytes) else encoded(content))
    body = {"name": folder.name, "metadata-location": str(file)}
    return world.send("POST", f"{world.path}/register", body)


REFUSED: dict[str, dict[str, Any]] = {
    "format version 0": {"format-version": 0},
    "format version 4": {"format-version": 4},
    "no uuid": {"table-uuid": None},
    "no UUID": {"table-uuid": "x"},
    "endless uuid": {"table-uuid": "x" * 100_000},
    "uuid with a nul": {"table-uuid": "\x00" * 36},
    "no location": {"location": None},
    "empty location": {"location": ""},
    "ref without its snapshot": {"refs": {"main": {"snapshot-id": 9, "type": "branch"}}},
    "current snapshot missing": {"current-snapshot-id": 9},
    "main is a tag": {
        "snapshots": [old(1)],
        "current-snapshot-id": 1,
        "refs": {"main": {"snapshot-id": 1, "type": "tag"}},
    },
    "ref of no kind": {"snapshots": [old(1)], "refs": {"x": {"snapshot-id": 1, "type": "y"}}},
    "main is not current": {
        "snapshots": [old(1), old(2)],
        "current-snapshot-id": 1,
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
    },
    "snapshot twice": {"snapshots": [old(1), old(1)]},
    "snapshot id too wide": {"snapshots": [old(LONG + 1)]},
    "snapshot without manifests": {"snapshots": [{"snapshot-id": 1, "timestamp-ms": NOW_MS}]},
    "sequence number above the last": {"snapshots": [old(1, sequence_number=7)]},
    "summary of numbers": {"snapshots": [old(1, summary={"operation": "append", "x": 1})]},
    "summary of lists": {"snapshots": [old(1, summary=[])]},
    "column id too wide": {"last-column-id": INT + 1},
    "huge column id": {"last-column-id": number("9" * 400)},
    "column id with a fraction": {"last-column-id": 1.5},
    "columns twice": {"schemas": [{**SCHEMA, "fields": SCHEMA["fields"] * 2}]},
    "schema twice": {"schemas": [SCHEMA, SCHEMA]},
    "current schema missing": {"current-schema-id": 5},
    "no schemas": {"schemas": []},
    "spec twice": {"partition-specs": [SPEC, SPEC]},
    "default spec missing": {"default-spec-id": 5},
    "spec of a missing column": {
        "partition-specs": [
            {
                "spec-id": 0,
                "fields": [
                    {"source-id": 99, "field-id": 1000, "name": "x", "transform": "identity"}
                ],
            }
        ]
    },
    "order missing": {"default-sort-order-id": 5},
    "times backwards": {
        "snapshot-log": [
            {"timestamp-ms": NOW_MS, "snapshot-id": 1},
            {"timestamp-ms": NOW_MS - 3_600_000, "snapshot-id": 1},
        ]
    },
    "time after the last update": {"metadata-log": [{"timestamp-ms": LONG, "metadata-file": "/x"}]},
    "properties of numbers": {"properties": {"a": 1}},
    "statistics of text": {"statistics": ["x"]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_metadata_that_is_refused(world: World, folder: Path, name: str) -> None:
    file = folder / "metadata" / "00000-a.metadata.json"
    file.touch()
    with world.unchanged():
        message = assert_refused(register(world, folder, metadata(folder) | REFUSED[name]), 400)
    assert any(key.removesuffix("s") in message for key in REFUSED[name]), message


@pytest.mark.parametrize("field", metadata(Path("/x")))
def test_metadata_with_another_type(world: World, folder: Path, field: str) -> None:
    good = metadata(folder)
    (folder / "metadata" / "00000-a.metadata.json").touch()
    wrong = [True, 1.5, "x", [1], {"a": 1}, number("1e400"), number("1e99999999999999999999")]
    with world.unchanged():
        for value in wrong:
            if isinstance(value, type(good[field])) and "@" not in str(value):
                continue
            message = assert_refused(register(world, folder, good | {field: value}), 400)
            assert field in message, (value, message)


NOT_METADATA: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "cut": json.dumps(metadata(Path("/x"))).encode()[:-10],
    "NaN": json.dumps(metadata(Path("/x"), last_updated_ms=float("nan"))).encode(),
    "not UTF-8": b'{"\xff":1}',
    "UTF-16": json.dumps(metadata(Path("/x"))).encode("utf-16"),
    "lone surrogate": b'{"a":"\\ud800"}',
    "deep": b'{"a":' * 200_000,
    "deep and closed": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "gzip cut short": gzip.compress(b"{}" * 1000)[:-5],
    "gzip of rubbish": gzip.compress(b"\x00" * 1000),
    "gzip of gzip": gzip.compress(gzip.compress(b"{}")),
    "many empty members": gzip.compress(b"") * 50_000 + gzip.compress(b"{}"),
    "zip": b"PK\x03\x04" + b"\x00" * 100,
    "avro": b"Obj\x01" + b"\x00" * 100,
}


@pytest.mark.parametrize("name", NOT_METADATA)
@pytest.mark.parametrize("route", ["register", "register-view"])
def test_a_file_that_is_not_metadata(world: World, folder: Path, route: str, name: str) -> None:
    file = folder / "metadata" / "00000-a.metadata.json"
    file.write_bytes(NOT_METADATA[name])
    with world.unchanged():
        body = {"name": "new", "metadata-location": str(file)}
        assert_refused(world.send("POST", f"{world.path}/{route}", body), 400)


def test_no_file_at_all(world: World, folder: Path) -> None:
    with world.unchanged():
        for location in (f"{folder}/missing", str(folder), f"{folder}/metadata/"):
            for route in ("register", "register-view"):
                body = {"name": "new", "metadata-location": location}
                assert_refused(world.send("POST", f"{world.path}/{route}", body), 400, 404)


@pytest.mark.parametrize("route", ["register", "register-view"])
def test_a_gigabyte_in_a_small_file(world: World, folder: Path, route: str) -> None:
    """A compressed megabyte that expands to a gigabyte must cost the server neither time nor
    memory."""
    bomb = gzip.compress(b" " * (16 << 20), 9) * 64
    file = folder / "metadata" / "00000-a.gz.metadata.json"
    file.write_bytes(bomb)
    assert len(bomb) < 2 << 20
    before = _memory_bytes(world)
    with world.unchanged():
        body = {"name": "new", "metadata-location": str(file)}
        assert_refused(world.send("POST", f"{world.path}/{route}", body), 400)
    assert _memory_bytes(world) - before < 400 << 20


def _memory_bytes(world: World) -> int:
    """Return the peak memory of the server."""
    status = Path(f"/proc/{world.server.process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmHWM" in line)


def test_special_files(world: World, folder: Path) -> None:
    """A FIFO without a writer must not block the server, and a device must not be read forever."""
    os.mkfifo(folder / "fifo")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "null").symlink_to("/dev/null")
    with world.unchanged():
        for name in ("fifo", "zero", "null"):
            body = {"name": "new", "metadata-location": f"{folder}/{name}"}
            assert_refused(world.send("POST", f"{world.path}/register", body), 400, 404)


# --- accepted, and committed to -------------------------------------------------------------------

ODD: dict[str, dict[str, Any]] = {
    "cycle of parents": {
        "snapshots": [old(1, 2), old(2, 1)],
        "current-snapshot-id": 2,
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
    },
    "parent of itself": {
        "snapshots": [old(1, 1)],
        "current-snapshot-id": 1,
        "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
    },
    "long cycle": {
        "snapshots": [old(n, n % 500 + 1) for n in range(1, 501)],
        "current-snapshot-id": 1,
    },
    "parent that is gone": {"snapshots": [old(1, 99)], "current-snapshot-id": 1},
    "negative ids": {"snapshots": [old(-5), old(-6, -5)], "current-snapshot-id": -6},
    "widest ids": {"snapshots": [old(LONG), old(-LONG - 1)], "current-snapshot-id": LONG},
    "highest column id": {"last-column-id": INT},
    "highest partition id": {"last-partition-id": INT},
    "negative partition id": {"last-partition-id": -INT},
    "highest schema id": {
        "schemas": [{**SCHEMA, "schema-id": INT}],
        "current-schema-id": INT,
    },
    "negative schema id": {"schemas": [{**SCHEMA, "schema-id": -7}], "current-schema-id": -7},
    "highest spec id": {"partition-specs": [{**SPEC, "spec-id": INT}], "default-spec-id": INT},
    "highest order id": {
        "sort-orders": [
            {"order-id": 0, "fields": []},
            {
                "order-id": INT,
                "fields": [
                    {
                        "source-id": 2,
                        "transform": "identity",
                        "direction": "asc",
                        "null-order": "nulls-first",
                    }
                ],
            },
        ]
    },
    "highest sequence number": {"last-sequence-number": LONG},
    "negative sequence number": {"last-sequence-number": -5},
    "far future": {"last-updated-ms": LONG},
    "far past": {"last-updated-ms": -LONG},
    "log of files elsewhere": {
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": "/etc/hostname"}],
        "properties": {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        },
    },
    "log of missing snapshots": {"snapshot-log": [{"timestamp-ms": 1, "snapshot-id": 99}]},
    "properties without sense": {
        "properties": {
            "write.metadata.previous-versions-max": "many",
            "write.metadata.compression-codec": "lz4",
            "frazil.commit.rebase-appends": "TRUE",
            "commit.retry.num-retries": "-1",
        }
    },
    "statistics elsewhere": {
        "statistics": [
            {
                "snapshot-id": 99,
                "statistics-path": "/etc/hostname",
                "file-size-in-bytes": LONG,
                "file-footer-size-in-bytes": LONG,
                "blob-metadata": [],
            }
        ]
    },
    "fields nobody knows": {"frobnicate": {"a": [1, number("1e400"), number("9" * 400)]}},
    "row ids at their end": {"format-version": 3, "next-row-id": LONG},
}


def commits(location: str) -> Iterator[list[dict[str, Any]]]:
    wider = [*SCHEMA["fields"], {"id": 77, "name": "z", "required": False, "type": "int"}]
    order = {
        "source-id": 1,
        "transform": "identity",
        "direction": "desc",
        "null-order": "nulls-last",
    }
    part = {"source-id": 1, "name": "b", "transform": "bucket[3]"}
    new = snapshot(location, 12345, 50, first_row_id=7, added_rows=5)
    yield [{"action": "set-properties", "updates": {"x": "y"}}]
    yield [
        {"action": "add-schema", "schema": {**SCHEMA, "fields": wider}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    yield [
        {"action": "add-spec", "spec": {"fields": [part]}},
        {"action": "set-default-spec", "spec-id": -1},
    ]
    yield [
        {"action": "add-sort-order", "sort-order": {"fields": [order]}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    yield [{"action": "add-snapshot", "snapshot": new}, set_ref(12345)]
    # The same commit again: the server checks the history of main for whether it already happened.
    yield [{"action": "add-snapshot", "snapshot": new}, set_ref(12345)]
    yield [{"action": "add-snapshot", "snapshot": {**new, "snapshot-id": 1}}, set_ref(1)]
    yield [{"action": "add-snapshot", "snapshot": {**new, "parent-snapshot-id": 9}}, set_ref(9)]
    yield [{"action": "remove-snapshots", "snapshot-ids": [1, -5, LONG]}]
    yield [{"action": "remove-schemas", "schema-ids": [0, INT]}]
    yield [{"action": "upgrade-format-version", "format-version": 3}]
    yield [{"action": "remove-snapshot-ref", "ref-name": "main"}]


@pytest.mark.parametrize("name", ODD)
def test_commits_on_odd_metadata(world: World, folder: Path, name: str) -> None:
    """Each commit is soon applied or refused, and the metadata that it writes is readable."""
    answer = register(world, folder, metadata(folder) | ODD[name])
    assert answer.status_code == 200, answer.text
    path = f"{world.path}/tables/{folder.name}"
    for updates in commits(str(folder)):
        answer = world.send("POST", path, {"requirements": [], "updates": updates})
        if answer.status_code != 200:
            assert_refused(answer)
            continue
        written = Path(answer.json()["metadata-location"].removeprefix("file://"))
        decode_metadata_file(written.read_bytes(), 1 << 30, summaries=True)
    world.ok("GET", f"{path}?snapshots=refs")
    requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}
    stale = world.send("POST", path, {"requirements": [requirement], "updates": []})
    assert stale.status_code in (200, 409)
    world.ok("DELETE", f"{path}?purgeRequested=true&frazil-now=true")
    assert Path("/etc/hostname").exists()


def test_a_table_cannot_be_registered_over_another(world: World, folder: Path) -> None:
    """A table is in the catalog once, whether it is recognized by its uuid, its location or its
    file."""
    copied = metadata(folder, table_uuid=world.uuid)
    above = world.location.rpartition("/")[0]
    (folder / "metadata" / "00000-a.metadata.json").touch()
    with world.unchanged():
        assert_refused(register(world, folder, copied), 409)
        for location in (world.location, f"{world.location}/data", above):
            assert_refused(register(world, folder, metadata(folder, location=location)), 400, 403)
        body = {"name": "twin", "metadata-location": world.pointer("tables", "t")}
        assert_refused(world.send("POST", f"{world.path}/register", body), 403, 409)
        view = {"name": "twin", "metadata-location": world.pointer("tables", "t")}
        assert_refused(world.send("POST", f"{world.path}/register-view", view), 400)


def test_a_long_history_is_walked_once(world: World, folder: Path) -> None:
    """A walk for each ancestor would exceed the time limit of this test."""
    length = 20_000
    history = [old(n, n - 1 if n > 1 else None) for n in range(1, length + 1)]
    changes = {"snapshots": history, "current_snapshot_id": length}
    assert register(world, folder, metadata(folder, **changes)).status_code == 200
    path = f"{world.path}/tables/{folder.name}"
    again = snapshot(str(folder), 1, 0)
    body = {
        "requirements": [],
        "updates": [{"action": "add-snapshot", "snapshot": again}, set_ref(1)],
    }
    assert world.send("POST", path, body).status_code == 200
    world.ok("DELETE", path)
