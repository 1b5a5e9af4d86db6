"""Random fine-grained commits, mostly valid. Each is applied or refused as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.format.metadata.metadata_files import decode_metadata_file
from frazil.format.metadata.snapshots import Snapshot
from tests.hostile.bodies import encoded, filled
from tests.hostile.strategies import spoiled
from tests.hostile.test_commits import file_of
from tests.hostile.world import SCHEMA, SPEC, TABLE, World, assert_refused

EXAMPLES = 40
FULL_EXAMPLES = 2000

_COUNTS = {"keys": [1, 2, 3], "values": [10, 10, 10]}
_DAY = {"type": "eq", "term": "day", "value": "2024-05-01"}


def _data(name: str, **more: Any) -> dict[str, Any]:
    return {
        "content": "data",
        "spec-id": 0,
        "partition": ["2024-05-01"],
        "file-path": f"@location/data/{name}.parquet",
        "file-format": "parquet",
        "file-size-in-bytes": 1000,
        "record-count": 10,
        "value-counts": _COUNTS,
        "null-value-counts": {"keys": [1], "values": [0]},
        "lower-bounds": {"keys": [1, 2, 3], "values": [1, "2024-05-01", "a"]},
        "upper-bounds": {"keys": [1, 2, 3], "values": [9, "2024-05-01", "z"]},
        "split-offsets": [4],
        "sort-order-id": 0,
    } | {field.replace("_", "-"): value for field, value in more.items()}


_OLD = ["@location/data/old-1.parquet", "@location/data/old-2.parquet"]
_DELETES = {
    **_data("deletes"),
    "content": "position-deletes",
    "referenced-data-file": _OLD[0],
}
_EQUALITY = {**_data("equality"), "content": "equality-deletes", "equality-ids": [1]}
_VECTOR = {
    **_data("vector", file_format="puffin", content_offset=4, content_size_in_bytes=40),
    "file-path": "@location/data/vectors.puffin",
    "content": "position-deletes",
    "referenced-data-file": _OLD[1],
}
_CLAUSES: list[dict[str, Any]] = [
    {"type": "not-allowed-added-data-files", "filter": _DAY},
    {"type": "not-allowed-added-delete-files"},
    {"type": "required-data-files", "file-paths": _OLD, "allowed-remove-operations": ["delete"]},
    {
        "type": "required-delete-files",
        "file-paths": [{"file-path": "@location/data/vectors.puffin", "content-offset": 4}],
    },
    {"type": "not-allowed-new-deletes-for-data-files", "file-paths": _OLD},
]
_FILTERS: list[Any] = [
    _DAY,
    True,
    {"type": "or", "left": _DAY, "right": {"type": "in", "term": "id", "values": [1, 2, 3]}},
]
_PARTIAL: list[Any] = [
    {"type": "not", "child": {"type": "is-null", "child": {"type": "reference", "name": "note"}}},
    {
        "type": "eq",
        "term": {"type": "transform", "transform": "bucket[4]", "term": "id"},
        "value": 1,
    },
    {"type": "starts-with", "term": "note", "value": "a"},
]

ACTIONS: list[dict[str, Any]] = [
    {
        "action": "append",
        "add-data-files": [_data("new-1"), _data("new-2", partition=["2024-05-02"])],
    },
    {"action": "append", "add-data-files": [_data("new-3", partition={"1000": None})]},
    {"action": "append", "add-data-files": [_data("new-4")], "branch": "side"},
    {
        "action": "append",
        "add-data-files": [_data("new-5")],
        "stage-only": True,
        "summary": {"wap.id": "w"},
    },
    {
        "action": "append",
        "add-data-files": [
            _data(
                "new-6",
                bounds_encoding="hex",
                lower_bounds={"keys": [1], "values": ["0100000000000000"]},
                upper_bounds={"keys": [1], "values": ["0900000000000000"]},
            )
        ],
    },
    {"action": "delete", "remove-data-files": [_OLD[0]]},
    {"action": "delete", "remove-data-files": [_data("old-2")]},
    *({"action": "delete", "delete-row-filter": chosen} for chosen in (*_FILTERS, *_PARTIAL)),
    {
        "action": "overwrite",
        "add-data-files": [_data("new-7")],
        "remove-data-files": _OLD,
        "base-snapshot-id": "@head",
    },
    {
        "action": "overwrite",
        "add-data-files": [_data("new-8")],
        "delete-row-filter": _DAY,
        "case-sensitive": False,
    },
    {"action": "overwrite", "add-data-files": [_data("new-9")], "replace-partitions": True},
    {"action": "overwrite", "add-delete-files": [_DELETES, _EQUALITY]},
    {"action": "overwrite", "add-delete-files": [_VECTOR]},
    {
        "action": "replace",
        "add-data-files": [_data("new-10")],
        "remove-data-files": _OLD,
        "base-snapshot-id": "@head",
        "data-sequence-number": 1,
    },
    {"action": "cherry-pick", "snapshot-id": "@staged"},
    {"action": "set-properties", "updates": {"frazil.commit.reject-duplicate-files": "false"}},
    {"action": "set-properties", "updates": {"write.summary.partition-limit": "10"}},
]


@st.composite
def _updates(draw: st.DrawFn) -> list[Any]:
    updates = draw(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=3))
    clauses = draw(st.lists(st.sampled_from(_CLAUSES), max_size=3))
    if clauses and updates[0]["action"] not in ("cherry-pick", "set-properties"):
        updates = [{**updates[0], "commit-validations": clauses}, *updates[1:]]
    return updates


_valid = st.fixed_dictionaries(
    {"requirements": st.just([]), "updates": _updates()},
    optional={"once": st.builds(lambda epoch: {"id": "q", "epoch": epoch}, st.integers(0, 3))},
)
fine_grained_commits = _valid | _valid.flatmap(spoiled)


def build_table(world: World, version: int) -> None:
    """Create a table with two live files and a staged snapshot, all written by the server."""
    body = {
        "name": TABLE,
        "schema": SCHEMA,
        "partition-spec": SPEC,
        "properties": {"format-version": str(version)},
    }
    metadata = world.ok("POST", f"{world.path}/tables", body).json()["metadata"]
    world.location, world.uuid = metadata["location"], metadata["table-uuid"]
    world.known |= {"@head": 0, "@staged": 0}
    marks = ("@head", "@staged")
    files: list[dict[str, Any]] = [
        {"action": "append", "add-data-files": [_data("old-1"), _data("old-2")]},
        {"action": "append", "add-data-files": [_data("staged")], "stage-only": True},
    ]
    for mark, update in zip(marks, files, strict=True):
        committed = world.committed(filled(update, world))["committed"]
        world.known[mark] = committed[0]["snapshot-id"]


def check(world: World, body: Any, version: int) -> None:
    before = world.pointer("tables", TABLE)
    answer = world.send("POST", world.table_path, encoded(filled(body, world)))
    if answer.status_code != 200:
        # 403 is for a path outside the allowed locations.
        assert_refused(answer, 400, 403, 409)
        assert world.pointer("tables", TABLE) == before
        return
    metadata = decode_metadata_file(file_of(answer), 1 << 30, summaries=True)
    assert answer.json()["metadata"] == world.table()["metadata"]
    committed = [metadata.snapshot(entry["snapshot-id"]) for entry in answer.json()["committed"]]
    assert all(isinstance(snapshot, Snapshot) for snapshot in committed)
    if world.pointer("tables", TABLE) != before:
        world.ok("DELETE", world.table_path)
        build_table(world, version)


@pytest.mark.parametrize(
    "max_examples", [EXAMPLES, pytest.param(FULL_EXAMPLES, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.timeout(900)
def test_random_fine_grained_commits(new_world: World, version: int, max_examples: int) -> None:
    new_world.ok("DELETE", new_world.table_path)
    build_table(new_world, version)

    @settings(max_examples=max_examples)
    @given(fine_grained_commits)
    def run(body: Any) -> None:
        check(new_world, body, version)

    run()
    assert "Traceback" not in new_world.server.log


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_action_alone_is_taken(new_world: World, version: int) -> None:
    """Every action is valid alone where the format allows it. Otherwise random commits would
    prove nothing."""
    new_world.ok("DELETE", new_world.table_path)
    build_table(new_world, version)
    for update in ACTIONS:
        formats = {file["file-format"] for file in update.get("add-delete-files", ())}
        allowed = {1: not formats, 2: "puffin" not in formats, 3: "parquet" not in formats}
        body = {"requirements": [], "updates": [update]}
        if update["action"] == "replace" and version == 1:
            continue  # A version 1 table has no data-sequence-number.
        answer = new_world.send("POST", new_world.table_path, encoded(filled(body, new_world)))
        if allowed[version] and update.get("delete-row-filter") not in _PARTIAL:
            assert answer.status_code == 200, (update, answer.text)
            new_world.ok("DELETE", new_world.table_path)
            build_table(new_world, version)
        else:
            assert_refused(answer, 400, 409)
