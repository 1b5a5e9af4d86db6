"""Requests that do not fit the table get 400 with a message that names the file and the field.

Errors that are visible in the request alone are tested with `wire`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import ALL_VERSIONS, TableFactory
from tests.commit.finegrained.requests import (
    TRUE,
    Json,
    append,
    compare,
    data_exists,
    delete,
    eq,
    in_bucket,
    no_new_data,
    no_new_deletes,
    no_new_deletes_for,
    overwrite,
    replace,
    replace_partitions,
    set_ref,
)
from tests.commit.finegrained.tables import UNPARTITIONED, Table
from tests.commit.finegrained.world import World

# --- files that do not fit ------------------------------------------------------------------------

MISFITS: list[tuple[str, dict[str, Any], str]] = [
    ("an unknown spec", {"spec-id": 7}, "spec-id"),
    ("too many partition values", {"partition": [0, 1]}, "partition"),
    ("too few partition values", {"partition": []}, "partition"),
    ("a partition value of another type", {"partition": ["zero"]}, "partition"),
    ("a bucket that is no int", {"partition": [1.5]}, "partition"),
    ("a bucket below 0", {"partition": [-1]}, "partition"),
    ("a bucket that the transform cannot give", {"partition": [16]}, "partition"),
    ("a partition of an unknown field", {"partition": {"1001": 0}}, "partition"),
    ("bounds of another type", {"lower-bounds": {"keys": [1], "values": ["x"]}}, "lower-bounds"),
    ("an unknown sort order", {"sort-order-id": 9}, "sort-order-id"),
    ("split offsets outside the file", {"split-offsets": [4, 500]}, "split-offsets"),
]


@ALL_VERSIONS
@pytest.mark.parametrize(("what", "wrong", "named"), MISFITS, ids=[m[0] for m in MISFITS])
def test_a_data_file_that_does_not_fit(
    table: Table, what: str, wrong: dict[str, Any], named: str
) -> None:
    file = table.data("a", 0) | wrong
    message = table.bad(append(table.data("fits", 0), file))
    assert named in message, what
    assert "updates[0].add-data-files[1]" in message
    assert file["file-path"] in message


def test_a_partition_of_an_unpartitioned_table(new_table: TableFactory) -> None:
    table = new_table(spec=UNPARTITIONED)
    assert "partition" in table.bad(append(table.data("a", 0)))


@pytest.mark.parametrize("kind", ["position", "equality", "vector"])
def test_format_version_1_takes_no_delete_files(new_table: TableFactory, kind: str) -> None:
    table = new_table(version=1)
    a = table.data("a", 0)
    table.append(a)
    made = {
        "position": table.position_deletes("d", a),
        "equality": table.equality_deletes("d", 0),
        "vector": table.vector("d", a),
    }[kind]
    message = table.bad(overwrite(add_deletes=[made]))
    assert "version 1" in message
    assert made["file-path"] in message


def test_format_version_2_takes_no_vectors(new_table: TableFactory) -> None:
    table = new_table(version=2)
    a = table.data("a", 0)
    table.append(a)
    assert "version 3" in table.bad(overwrite(add_deletes=[table.vector("v", a)]))


def test_format_version_3_takes_no_new_position_deletes(new_table: TableFactory) -> None:
    table = new_table(version=3)
    a = table.data("a", 0)
    table.append(a)
    assert "deletion vector" in table.bad(overwrite(add_deletes=[table.position_deletes("p", a)]))


@pytest.mark.parametrize("version", [2, 3])
def test_equality_deletes_on_a_column_that_is_not_there(
    new_table: TableFactory, version: int
) -> None:
    table = new_table(version=version)
    assert "equality-ids" in table.bad(
        overwrite(add_deletes=[table.equality_deletes("e", 0, on=(99,))])
    )


def test_a_vector_past_the_end_of_its_file(new_table: TableFactory) -> None:
    table = new_table(version=3)
    vector = table.vector("v", table.data("a", 0), offset=198, size=10)
    assert "content-size-in-bytes" in table.bad(overwrite(add_deletes=[vector]))


# --- places ---------------------------------------------------------------------------------------


@ALL_VERSIONS
@pytest.mark.parametrize(
    "path",
    [
        "file:///etc/passwd.parquet",
        "s3://bucket/a.parquet",
        "{location}/../other/a.parquet",
        "{location}/data/../../../x.parquet",
        "relative/a.parquet",
    ],
)
def test_a_file_outside_the_table(table: Table, path: str) -> None:
    file = table.data("a", 0) | {"file-path": path.format(location=table.location)}
    message = table.bad(append(file))
    assert "file-path" in message or "location" in message or "outside" in message


def test_a_file_inside_another_table(new_table: TableFactory) -> None:
    table, other = new_table(), new_table()
    assert table.bad(append(other.data("a", 0)))
    assert table.bad(append(table.data("a", 0) | {"file-path": other.location + "/x.parquet"}))


def test_a_file_of_the_warehouse_outside_every_table(new_table: TableFactory, world: World) -> None:
    """Such imported files are accepted, and the server never deletes them."""
    table = new_table()
    path = f"file://{world.warehouse}/imports/a.parquet"
    table.commit(append(table.data("a", 0) | {"file-path": path}))
    assert {entry.file_path for entry in table.tree().live.values()} == {path}


def test_a_file_in_the_tables_own_data_path(new_table: TableFactory, world: World) -> None:
    folder = f"file://{world.warehouse}/elsewhere-data"
    table = new_table(properties={"write.data.path": folder})
    table.commit(append(table.data("a", 0) | {"file-path": f"{folder}/a.parquet"}))
    assert len(table.live()) == 1


def test_a_delete_file_outside_the_table(new_table: TableFactory) -> None:
    table = new_table()
    deletes = table.equality_deletes("e", 0) | {"file-path": "file:///tmp/e.parquet"}
    assert table.bad(overwrite(add_deletes=[deletes]))


# --- filters that do not bind ---------------------------------------------------------------------

FILTERS: list[tuple[str, Any]] = [
    ("an unknown column", eq("nope", 1)),
    ("a value of another type", eq("id", "abc")),
    (
        "an unknown transform",
        compare("eq", {"type": "transform", "transform": "x", "term": "id"}, 1),
    ),
    (
        "a transform that cannot be applied",
        {
            "type": "eq",
            "term": {"type": "transform", "transform": "day", "term": "data"},
            "value": 1,
        },
    ),
    ("starts-with on a number", compare("starts-with", "id", "a")),
    ("an unknown operator", compare("almost", "id", 1)),
    ("no expression", {"hello": "world"}),
]


@ALL_VERSIONS
@pytest.mark.parametrize(("what", "wrong"), FILTERS, ids=[f[0] for f in FILTERS])
def test_a_filter_that_does_not_bind(table: Table, what: str, wrong: Json) -> None:
    table.append(table.data("a", 0))
    for update in (
        delete(row_filter=wrong),
        overwrite(row_filter=wrong, add=[table.data("b", 0)]),
        append(table.data("b", 0), validations=[no_new_data(wrong)]),
        append(table.data("b", 0), validations=[no_new_deletes(wrong)]),
        append(table.data("b", 0), validations=[data_exists(filter=wrong)]),
        append(table.data("b", 0), validations=[no_new_deletes_for("x", filter=wrong)]),
    ):
        message = table.bad(update)
        assert "filter" in message, what


@ALL_VERSIONS
def test_a_filter_is_bound_before_anything_is_judged(table: Table) -> None:
    """A conflicting clause does not hide an invalid filter in another clause."""
    base = table.append(table.data("a", 0))["snapshot-id"]
    table.append(table.data("b", 0))
    clauses = [no_new_data(TRUE), no_new_data(eq("nope", 1))]
    assert "commit-validations[1]" in table.bad(
        append(table.data("c", 0), base=base, validations=clauses)
    )


# --- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["append", "delete", "overwrite", "replace", "replace-partitions"])
def test_a_tag_is_never_a_target(new_table: TableFactory, kind: str) -> None:
    table = new_table()
    a, b = table.data("a", 0), table.data("b", 0)
    first = table.append(a)
    table.commit(set_ref(first["snapshot-id"], "v1", "tag"))
    update = {
        "append": append(b),
        "delete": delete(a),
        "overwrite": overwrite(add=[b], remove=[a]),
        "replace": replace(add=[b], remove=[a]),
        "replace-partitions": replace_partitions(b),
    }[kind]
    message = table.bad({**update, "branch": "v1"})
    assert "v1" in message
    assert "tag" in message


def test_a_table_that_is_not_there(new_table: TableFactory) -> None:
    table = new_table()
    table.name = "nowhere"
    answer = table.post(append(table.data("a", 0)))
    assert answer.status == 404
    assert answer.body["error"]["type"] == "NoSuchTableException"


def test_an_unknown_action_is_refused(table: Table) -> None:
    assert "action" in table.bad({"action": "truncate"})


def test_add_snapshot_does_not_stand_beside_an_action(table: Table) -> None:
    snapshot = {
        "snapshot-id": 1,
        "sequence-number": 1,
        "timestamp-ms": 1,
        "manifest-list": f"{table.location}/metadata/x.avro",
        "summary": {"operation": "append"},
    }
    message = table.bad(
        {"action": "add-snapshot", "snapshot": snapshot}, append(table.data("a", 0))
    )
    assert "add-snapshot" in message


@pytest.mark.parametrize(
    "update",
    [
        {"action": "append", "add-data-files": []},
        {"action": "delete"},
        {"action": "overwrite"},
        {"action": "replace"},
        {"action": "append", "add-data-files": [], "remove-data-files": ["x"]},
        {"action": "delete", "remove-data-files": ["x"], "replace-partitions": True},
        {"action": "delete", "remove-data-files": ["x", "x"]},
    ],
)
def test_what_the_text_alone_shows_is_refused_over_http(table: Table, update: Json) -> None:
    table.bad(update)


@pytest.mark.parametrize("key", ["total-records", "added-data-files", "replace-partitions"])
def test_a_computed_key_in_the_summary(table: Table, key: str) -> None:
    assert key in table.bad(append(table.data("a", 0), summary={key: "1"}))


@ALL_VERSIONS
def test_an_update_that_is_bad_takes_the_whole_request_with_it(table: Table) -> None:
    table.append(table.data("a", 0))
    message = table.bad(
        send.set_properties(x="y"), append(table.data("b", 0)), append(table.data("c", 99))
    )
    assert "updates[2]" in message
    assert "x" not in table.metadata["properties"]
    assert table.live() == {"a"}


@ALL_VERSIONS
def test_a_bad_request_comes_before_a_conflict(table: Table) -> None:
    """A request that no table could accept gets 400, even if it also conflicts with this table."""
    a = table.data("a", 0)
    table.append(a)
    assert table.bad(append(a, table.data("b", "x")))


@ALL_VERSIONS
def test_a_row_filter_on_a_bucket_binds(table: Table) -> None:
    table.append(table.data("a", 0))
    table.delete(row_filter=in_bucket("data", 0))
    assert table.live() == set()
