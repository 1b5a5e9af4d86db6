"""Fine-grained commits that the REST layer refuses with 400, and the JSON path in the message."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from frazil.wire.file_actions import Delete
from frazil.wire.json_bodies import decode
from frazil.wire.rest_messages import CommitTableRequest
from tests.rest.stand_in import Client, dumped

TABLE = "/v1/namespaces/a/tables/t"
TRANSACTION = "/v1/transactions/commit"


def file(**more: Any) -> dict[str, Any]:
    document = {
        "content": "data",
        "spec-id": 0,
        "partition": [],
        "file-path": "s3://b/f",
        "file-format": "parquet",
        "file-size-in-bytes": 1,
        "record-count": 1,
    }
    return document | {name.replace("_", "-"): value for name, value in more.items()}


def append(*files: dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = files or (file(),)
    fields = {name.replace("_", "-"): value for name, value in more.items()}
    return {"action": "append", "add-data-files": list(listed)} | fields


def delete(**fields: Any) -> dict[str, Any]:
    return {"action": "delete"} | {name.replace("_", "-"): fields[name] for name in fields}


def fourth(**more: Any) -> dict[str, Any]:
    """Return an append in which only the fourth file is wrong."""
    return append(*(file(file_path=f"s3://b/{n}") for n in range(3)), file(**more))


def clause(**fields: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): fields[name] for name in fields}
    return append(commit_validations=[{"type": "not-allowed-added-data-files"} | named])


FILE = "updates[0].add-data-files[3]"
CLAUSE = "updates[0].commit-validations[0]"

REFUSED: list[tuple[dict[str, Any], str]] = [
    # The action and its own fields.
    ({"action": "upsert"}, "updates[0].action: unknown update 'upsert'; known are add-encryption-"),
    (append(nope=1), "updates[0].nope: unknown field, remove it"),
    (append(delete_row_filter="x"), "updates[0].delete-row-filter: unknown field, remove it"),
    (append(stage_only="yes"), "updates[0].stage-only: expected bool, got str"),
    (append(branch=""), "updates[0].branch: expected str of length >= 1"),
    (append(base_snapshot_id="7"), "updates[0].base-snapshot-id: expected int | null, got str"),
    (append(summary={"a": "1", "b": 2}), "updates[0].summary['b']: expected str, got int"),
    (append(summary={"total-records": "1"}), "updates[0].summary: total-records is computed by"),
    ({"action": "append"}, "updates[0]: this append would change nothing, send add-data-files"),
    ({"action": "cherry-pick"}, "updates[0].snapshot-id: required, but missing"),
    # Added files.
    (fourth(lower_bounds=[1]), f"{FILE}.lower-bounds: expected object | null, got array"),
    (fourth(lower_bounds={"keys": [1]}), f"{FILE}.lower-bounds.values: required, but missing"),
    (
        fourth(lower_bounds={"keys": [1, "2"], "values": [1, 2]}),
        f"{FILE}.lower-bounds.keys[1]: expected int, got str",
    ),
    (
        fourth(lower_bounds={"keys": [1], "values": [{}]}),
        f"{FILE}.lower-bounds.values[0]: expected bool | int | float | str, got object",
    ),
    (
        fourth(lower_bounds={"keys": [1], "values": [1, 2]}),
        f"{FILE}.lower-bounds: keys and values must be of one length",
    ),
    (
        fourth(value_counts={"keys": [1, 1], "values": [1, 2]}),
        f"{FILE}.value-counts.keys: field id 1 stands twice",
    ),
    (fourth(content="rows"), f"{FILE}.content: unknown content 'rows'; known are DATA, data"),
    (fourth(content="position-deletes"), f"{FILE}.content: unknown content 'position-deletes'"),
    (fourth(file_format="csv"), f"{FILE}.file-format: unknown value 'csv'; known are AVRO, ORC"),
    (fourth(file_size_in_bytes=-1), f"{FILE}.file-size-in-bytes: expected int >= 0"),
    (fourth(file_path=None), f"{FILE}.file-path: expected str, got null"),
    (fourth(partition={"x": 1}), f"{FILE}.partition: wrong key, expected int, got str"),
    (fourth(partition={"-1": 1}), f"{FILE}.partition: wrong key, expected int >= 0"),
    (fourth(partition={"1000": []}), f"{FILE}.partition: the value of field 1000 must be a"),
    (fourth(partition=[1, []]), f"{FILE}.partition[1]: expected bool | int | float | str | null"),
    (fourth(split_offsets=[4, 2]), f"{FILE}.split-offsets: must be in ascending order"),
    (fourth(key_metadata="0g"), f"{FILE}.key-metadata: expected str matching regex"),
    (fourth(equality_ids=[1]), f"{FILE}.equality-ids: unknown field, remove it"),
    (append(file(), file()), "updates[0].add-data-files: s3://b/f stands there more than once"),
    # Removed files.
    (
        delete(remove_data_files=[{"file-path": "p", "content": "rows"}]),
        "updates[0].remove-data-files[0].content: unknown value 'rows'; known are DATA, data",
    ),
    (
        delete(remove_data_files=["p", 7]),
        "updates[0].remove-data-files[1]: expected str | object, got int",
    ),
    (
        delete(remove_delete_files=[{"file-path": "p", "content-size-in-bytes": 4}]),
        "updates[0].remove-delete-files[0].content-offset: required where",
    ),
    # Clauses.
    (
        append(commit_validations=[{"type": "no-conflicts"}]),
        f"{CLAUSE}.type: unknown clause 'no-conflicts'; known are not-allowed-added-data-files, "
        "not-allowed-added-delete-files, not-allowed-new-deletes-for-data-files, "
        "required-data-files, required-delete-files",
    ),
    (
        append(commit_validations={"type": "no-conflicts"}),
        "updates[0].commit-validations.type: unknown clause 'no-conflicts'; known are not-allowed-",
    ),
    (append(commit_validations=[{}]), f"{CLAUSE}.type: required, but missing"),
    (append(commit_validations=[1]), f"{CLAUSE}: expected object, got int"),
    (clause(file_paths=["p"]), f"{CLAUSE}.file-paths: unknown field, remove it"),
    (
        clause(type="required-data-files", file_paths=["p"], allowed_remove_operations=["append"]),
        f"{CLAUSE}.allowed-remove-operations[0]: unknown value 'append'; known are DELETE, OVERWR",
    ),
    (
        clause(type="required-delete-files", file_paths=[{"file-path": "p", "content-offset": ""}]),
        f"{CLAUSE}.file-paths[0].content-offset: expected int | null, got str",
    ),
    (
        clause(type="required-delete-files"),
        f"{CLAUSE}.file-paths: required in required-delete-files without a filter",
    ),
]


@pytest.mark.parametrize(("update", "message"), REFUSED)
def test_a_commit_that_is_wrong_by_its_own_text_is_refused_before_it_is_queued(
    client: Client, update: dict[str, Any], message: str
) -> None:
    got = client("POST", TABLE, {"requirements": [], "updates": [update]})
    assert (got.status, got.error["type"]) == (400, "BadRequestException")
    assert got.error["message"].startswith(message)
    assert not client.catalog.calls


@pytest.mark.parametrize(("update", "message"), REFUSED)
def test_a_transaction_says_which_table_change_is_wrong(
    client: Client, update: dict[str, Any], message: str
) -> None:
    changes = [
        {"identifier": {"namespace": ["a"], "name": name}, "requirements": [], "updates": updates}
        for name, updates in (("t", [append()]), ("u", [update]))
    ]
    got = client("POST", TRANSACTION, {"table-changes": changes})
    assert got.status == 400
    assert got.error["message"].startswith(f"table-changes[1].{message}")
    assert not client.catalog.calls


@pytest.mark.parametrize(
    ("once", "message"),
    [
        ({}, "once.id: required, but missing"),
        ({"id": "q"}, "once.epoch: required, but missing"),
        ({"id": "", "epoch": 1}, "once.id: expected str of length >= 1"),
        ({"id": "q", "epoch": -1}, "once.epoch: expected int >= 0"),
        ({"id": "q", "epoch": 1, "branch": "b"}, "once.branch: unknown field, remove it"),
        ({"id": "q", "epoch": 1}, "updates[1].branch: under once all updates must name one branch"),
    ],
)
def test_once_is_checked_beside_the_updates(
    client: Client, once: dict[str, Any], message: str
) -> None:
    updates = [append(), append(file(file_path="s3://b/g"), branch="other")]
    got = client("POST", TABLE, {"requirements": [], "updates": updates, "once": once})
    assert got.status == 400
    assert got.error["message"].startswith(message)
    assert not client.catalog.calls


@pytest.mark.parametrize(
    ("stream_id", "branch", "message"),
    [
        ("q" * 1025, "main", "once: the id must be at most 1024 bytes of UTF-8"),
        ("é" * 513, "main", "once: the id must be at most 1024 bytes of UTF-8"),
        ("a\0", "main", "once: the id must be at most 1024 bytes of UTF-8, without the NUL"),
        ("q", "b" * 1025, "once: the branch must be at most 1024 bytes of UTF-8"),
    ],
)
def test_a_stream_that_no_index_can_hold_is_refused(
    client: Client, stream_id: str, branch: str, message: str
) -> None:
    once = {"id": stream_id, "epoch": 1}
    body = {"requirements": [], "updates": [append(branch=branch)], "once": once}
    got = client("POST", TABLE, body)
    assert got.status == 400
    assert got.error["message"].startswith(message)


def test_a_snapshot_of_the_client_cannot_stand_beside_one_of_the_server(client: Client) -> None:
    updates = [append(), {"action": "add-snapshot", "snapshot": {}}]
    got = client("POST", TABLE, {"requirements": [], "updates": updates})
    assert got.status == 400
    assert got.error["message"].startswith("updates[1].action: add-snapshot cannot stand beside")


def test_a_large_body_is_checked_like_a_small_one(client: Client) -> None:
    """A large body is decoded and checked on a worker thread. The answer must be the same."""
    files = [file(file_path=f"s3://b/{n}") for n in range(2000)]
    got = client("POST", TABLE, {"requirements": [], "updates": [append(*files, files[7])]})
    assert got.status == 400
    message = "updates[0].add-data-files: s3://b/7 stands there more than once"
    assert got.error["message"].startswith(message)


def test_a_filter_outlives_the_body_it_was_read_from() -> None:
    """The filter stays undecoded while the request is queued, so it must keep its bytes alive."""
    body = dumped(
        {
            "requirements": [],
            "updates": [delete(delete_row_filter={"type": "eq", "term": "x", "value": 1})],
        }
    )
    request = decode(CommitTableRequest, body)
    expected = bytes(body)[body.index(b'{"type"') : -3]
    del body
    gc.collect()
    held = [b"\xff" * len(expected) for _ in range(1000)]
    (update,) = request.updates
    assert isinstance(update, Delete)
    assert update.delete_row_filter is not None
    assert bytes(update.delete_row_filter) == expected
    assert len(held) == 1000
