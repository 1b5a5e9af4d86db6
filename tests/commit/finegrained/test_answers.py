"""Responses to commits: `committed`, minimal responses, transactions, and mixed requests."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import ALL_VERSIONS, TableFactory
from tests.commit.finegrained.requests import (
    TRUE,
    Json,
    append,
    delete,
    head_is,
    no_new_data,
    overwrite,
    set_ref,
)
from tests.commit.finegrained.tables import BUCKETS, SCHEMA, Answer, Refusal, Table
from tests.commit.finegrained.world import World

MINIMAL = {"Prefer": "return=minimal"}


def transact(
    world: World, *changes: tuple[Table, list[Json]], headers: Any = None, **more: Any
) -> Answer:
    """Commit one transaction on these tables."""
    body = {
        "table-changes": [
            {
                "identifier": {"namespace": [table.namespace], "name": table.name},
                "requirements": more.get("requirements", []),
                "updates": updates,
            }
            | more.get("fields", {})
            for table, updates in changes
        ]
    }
    return world("POST", "/v1/transactions/commit", body, headers)


# --- committed ------------------------------------------------------------------------------------


@ALL_VERSIONS
def test_the_answer_names_the_snapshot_of_each_update(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    table.commit(
        table._update(append(a, b)),
        send.set_properties(some="property"),
        table._update(delete(a)),
        table._update(overwrite(remove=[b], add=[table.data("c", 0)])),
    )
    made = table.last["committed"]
    assert [(entry["update"], entry["operation"]) for entry in made] == [
        (0, "append"),
        (2, "delete"),
        (3, "overwrite"),
    ]
    numbers = [entry["sequence-number"] for entry in made]
    assert numbers == ([0, 0, 0] if table.version == 1 else [1, 2, 3])
    ids = [entry["snapshot-id"] for entry in made]
    parents = [table.snapshot(number).get("parent-snapshot-id") for number in ids]
    assert parents == [None, *ids[:-1]]
    assert table.live() == {"c"}
    assert table.metadata["properties"]["some"] == "property"


def test_only_the_last_head_of_a_request_is_in_the_snapshot_log(table: Table) -> None:
    table.commit(append(table.data("a", 0)), append(table.data("b", 0)))
    log = [entry["snapshot-id"] for entry in table.metadata["snapshot-log"]]
    assert log == [table.head_id]
    assert len(table.metadata["snapshots"]) == 2


def test_the_answer_has_the_standard_shape(table: Table) -> None:
    answer = table.post(append(table.data("a", 0)))
    assert answer.status == 200
    assert answer.body.keys() == {"metadata-location", "metadata", "committed"}
    assert answer.headers["etag"]
    loaded = table.call("GET", table.path)
    assert loaded.body["metadata-location"] == answer.body["metadata-location"]
    assert loaded.body["metadata"] == answer.body["metadata"]
    assert loaded.headers["etag"] == answer.headers["etag"]
    again = table.call("GET", table.path, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status == 304


def test_a_minimal_answer(table: Table) -> None:
    answer = table.post(append(table.data("a", 0)), headers=MINIMAL)
    assert answer.status == 200
    assert answer.headers["preference-applied"] == "return=minimal"
    assert answer.body.keys() == {"metadata-location", "committed"}
    table.load()
    assert answer.body["metadata-location"] == table.metadata_location
    (made,) = answer.body["committed"]
    assert made == {
        "update": 0,
        "snapshot-id": table.head_id,
        "sequence-number": 1,
        "operation": "append",
    }


def test_a_minimal_answer_stays_small(table: Table) -> None:
    sizes = set()
    for number in range(12):
        answer = table.post(append(table.data(f"f{number}", 0)), headers=MINIMAL)
        sizes.add(len(json.dumps(answer.body)) // 100)
    assert len(sizes) == 1


def test_a_refusal_is_not_minimal(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    refusal = table.refused(append(a), status=409, headers=MINIMAL)
    assert refusal.conflicts[0]["clause"] == "duplicate-file"


def test_the_shape_of_a_rejection(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    new = table.append(table.data("b", 0))["snapshot-id"]
    update = delete(a, base=base, validations=[no_new_data(TRUE)])
    answer = table.post(send.set_properties(x="y"), update)
    error = answer.body["error"]
    assert (answer.status, error["code"], error["type"]) == (409, 409, "ValidationException")
    (conflict,) = error["conflicts"]
    assert conflict.pop("message")
    assert conflict == {
        "update": 1,
        "validation": 0,
        "clause": "not-allowed-added-data-files",
        "snapshots": [{"snapshot-id": new, "operation": "append"}],
        "file-count": 1,
        "files": [{"file-path": table.data_path("b")}],
    }


# --- requirements ---------------------------------------------------------------------------------


@ALL_VERSIONS
def test_a_failed_requirement_is_worth_a_retry(table: Table) -> None:
    first = table.append(table.data("a", 0))
    answer = table.post(
        append(table.data("b", 0), branch=table.branch),
        requirements=[head_is(4711, table.branch)],
    )
    assert answer.status == 409
    assert answer.body["error"]["type"] == "CommitFailedException"
    assert "conflicts" not in answer.body["error"]
    table.commit(
        append(table.data("b", 0), branch=table.branch),
        requirements=[head_is(first["snapshot-id"], table.branch)],
    )
    assert table.live() == {"a", "b"}


def test_requirements_are_judged_before_the_update(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    answer = table.post(append(a), requirements=[head_is(None)])
    assert answer.body["error"]["type"] == "CommitFailedException"


# --- mixed with Iceberg's own updates -------------------------------------------------------------


@ALL_VERSIONS
def test_a_column_is_added_with_a_file_that_uses_it(table: Table) -> None:
    table.append(table.data("a", 0))
    wider = SCHEMA | {
        "schema-id": 1,
        "fields": [
            *SCHEMA["fields"],
            {"id": 4, "name": "size", "required": False, "type": "int"},
        ],
    }
    file = table.data(
        "b",
        0,
        rows=2,
        value_counts={"keys": [4], "values": [2]},
        lower_bounds={"keys": [4], "values": [-1]},
        upper_bounds={"keys": [4], "values": [7]},
    )
    assert "4" in table.bad(append(file))
    table.commit(
        {"action": "add-schema", "schema": wider},
        {"action": "set-current-schema", "schema-id": -1},
        table._update(append(file)),
    )
    head = table.head()
    assert head is not None
    assert head["schema-id"] == table.metadata["current-schema-id"] == 1
    bounds = table.entries()["b"].data_file["lower_bounds"]
    assert bounds == [{"key": 4, "value": b"\xff\xff\xff\xff"}]


@ALL_VERSIONS
def test_a_spec_is_added_with_a_file_of_it(table: Table) -> None:
    fields = [
        *BUCKETS["fields"],
        {"source-id": 3, "field-id": 1001, "name": "date", "transform": "identity"},
    ]
    table.commit(
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": fields}},
        {"action": "set-default-spec", "spec-id": -1},
        table._update(append(table.data("a", 0, "2026-01-01", spec_id=1))),
    )
    assert table.entries()["a"].spec_id == 1


def test_an_upgrade_and_a_vector_in_one_request(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    vector = table.vector("v", a)
    assert table.bad(overwrite(add_deletes=[vector]))
    table.commit(
        {"action": "upgrade-format-version", "format-version": 3},
        overwrite(add_deletes=[vector]),
    )
    assert table.live() == {"a", "v@4"}


def test_a_branch_is_made_and_written_in_one_request(table: Table) -> None:
    first = table.append(table.data("a", 0))
    table.append(table.data("b", 0))
    table.commit(set_ref(first["snapshot-id"], "old"), append(table.data("c", 0), branch="old"))
    assert table.live(table.head("old")) == {"a", "c"}


def test_properties_of_the_request_hold_for_its_updates(table: Table) -> None:
    table.append(table.data("a", 0))
    table.commit(
        send.set_properties(frazil_commit_ignore__missing__removals="true"),
        delete(table.data_path("never")),
    )
    assert table.live() == {"a"}


# --- several updates ------------------------------------------------------------------------------


@ALL_VERSIONS
def test_live_means_after_the_updates_before(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    table.append(a)
    table.commit(
        table._update(delete(a)),
        table._update(append(b)),
        table._update(append(a)),
        table._update(delete(b)),
    )
    assert table.live() == {"a"}
    conflict = table.conflict(append(b), append(b))
    assert (conflict.clause, conflict.update) == ("duplicate-file", 1)
    conflict = table.conflict(delete(a), delete(a))
    assert (conflict.clause, conflict.update) == ("removed-file-not-live", 1)


def test_updates_of_several_branches_in_one_request(table: Table) -> None:
    table.append(table.data("a", 0))
    table.commit(
        append(table.data("b", 0), branch="one"),
        append(table.data("c", 0), branch="two"),
        append(table.data("d", 0)),
        append(table.data("e", 0), branch="one"),
    )
    heads = {name: table.live(table.head(name)) for name in ("main", "one", "two")}
    assert heads == {"main": {"a", "d"}, "one": {"a", "b", "e"}, "two": {"a", "c"}}


def test_a_branch_that_a_request_begins_starts_at_mains_new_head(table: Table) -> None:
    table.append(table.data("a", 0))
    table.commit(append(table.data("b", 0)), append(table.data("c", 0), branch="new"))
    assert table.live(table.head("new")) == {"a", "b", "c"}


# --- transactions ---------------------------------------------------------------------------------


def test_a_transaction_of_several_tables(new_table: TableFactory, world: World) -> None:
    one, two = new_table(version=2), new_table(version=3)
    two.append(two.data("old", 0))
    answer = transact(
        world,
        (one, [append(one.data("a", 0))]),
        (two, [delete(two.data_path("old")), append(two.data("b", 0))]),
    )
    assert answer.status == 204
    assert one.load().live() == {"a"}
    assert two.load().live() == {"b"}


def test_a_transaction_with_a_minimal_answer(new_table: TableFactory, world: World) -> None:
    one, two = new_table(), new_table()
    answer = transact(
        world,
        (one, [append(one.data("a", 0))]),
        (two, [append(two.data("b", 0))]),
        headers=MINIMAL,
    )
    assert answer.status == 200
    assert answer.headers["preference-applied"] == "return=minimal"
    for told, table in zip(answer.body["tables"], (one, two), strict=True):
        assert told["identifier"] == {"namespace": [table.namespace], "name": table.name}
        table.load()
        assert told["metadata-location"] == table.metadata_location
        (made,) = told["committed"]
        assert made["snapshot-id"] == table.head_id


def test_a_transaction_of_which_one_table_is_refused(new_table: TableFactory, world: World) -> None:
    one, two = new_table(), new_table()
    two.append(two.data("b", 0))
    before = one.state(), two.state()
    answer = transact(world, (one, [append(one.data("a", 0))]), (two, [append(two.data("b", 0))]))
    refusal = Refusal.of(answer)
    assert (refusal.status, refusal.type) == (409, "ValidationException")
    assert refusal.conflicts[0]["clause"] == "duplicate-file"
    assert (one.state(), two.state()) == before


def test_a_transaction_of_which_one_table_is_bad(new_table: TableFactory, world: World) -> None:
    one, two = new_table(), new_table()
    before = one.state(), two.state()
    answer = transact(world, (one, [append(one.data("a", 0))]), (two, [append(two.data("b", "x"))]))
    assert answer.status == 400
    assert "table-changes[1]" in answer.body["error"]["message"]
    assert (one.state(), two.state()) == before


def test_a_transaction_of_one_table_is_a_commit(new_table: TableFactory, world: World) -> None:
    table = new_table()
    assert transact(world, (table, [append(table.data("a", 0))])).status == 204
    answer = transact(world, (table, [append(table.data("b", 0))]), headers=MINIMAL)
    assert answer.body["tables"][0]["committed"][0]["operation"] == "append"
    assert table.load().live() == {"a", "b"}


@pytest.mark.parametrize("writers", [8])
def test_transactions_at_once_all_land(new_table: TableFactory, world: World, writers: int) -> None:
    """Appends to several tables in different orders do not deadlock."""
    tables = [new_table() for _ in range(3)]

    def write(number: int) -> int:
        chosen = tables[number % 3 :] + tables[: number % 3]
        changes = [(table, [append(table.data(f"w{number}", 0))]) for table in chosen]
        return transact(world, *changes).status

    with ThreadPoolExecutor(writers) as pool:
        assert list(pool.map(write, range(writers))) == [204] * writers
    for table in tables:
        assert table.load().live() == {f"w{number}" for number in range(writers)}


# --- what survives --------------------------------------------------------------------------------


def test_encryption_keys_and_unknown_fields_survive(new_table: TableFactory, world: World) -> None:
    """Encryption keys and unknown fields of another writer's table remain after registration."""
    table = new_table(version=3)
    key = {"key-id": "k1", "encrypted-key-metadata": "c2VjcmV0", "properties": {"a": "b"}}
    table.commit({"action": "add-encryption-key", "encryption-key": key})
    table.append(table.data("a", 0))
    assert table.metadata["encryption-keys"][0].items() >= key.items()
    table.append(table.data("b", 0, key_metadata="0102"))
    table.delete(table.data_path("a"))
    assert table.entries()["b"].data_file["key_metadata"] == b"\x01\x02"
    assert table.metadata["encryption-keys"][0].items() >= key.items()


def test_statistics_and_refs_survive(table: Table) -> None:
    first = table.append(table.data("a", 0))
    table.commit(
        {
            "action": "set-statistics",
            "snapshot-id": first["snapshot-id"],
            "statistics": {
                "snapshot-id": first["snapshot-id"],
                "statistics-path": f"{table.location}/metadata/s.puffin",
                "file-size-in-bytes": 10,
                "file-footer-size-in-bytes": 5,
                "blob-metadata": [],
            },
        },
        set_ref(first["snapshot-id"], "v1", "tag"),
    )
    table.append(table.data("b", 0))
    assert table.metadata["statistics"][0]["snapshot-id"] == first["snapshot-id"]
    assert table.metadata["refs"]["v1"]["type"] == "tag"
