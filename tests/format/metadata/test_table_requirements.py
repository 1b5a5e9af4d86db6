"""Requirements, with the messages that clients and the compatibility kit expect."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from frazil.format.metadata.table_builder import check_requirements
from frazil.wire.errors import BadRequest, CommitFailed
from frazil.wire.rest_updates import TableRequirement
from tests.support.tables import UUID, apply, history, set_ref, table

_REQUIREMENT: msgspec.json.Decoder[TableRequirement] = msgspec.json.Decoder(TableRequirement)


def requirement(kind: str, **fields: Any) -> TableRequirement:
    members = {name.replace("_", "-"): value for name, value in fields.items()}
    return _REQUIREMENT.decode(json.dumps({"type": kind} | members))


HOLDING = [
    requirement("assert-table-uuid", uuid=UUID),
    requirement("assert-table-uuid", uuid=UUID.upper()),
    requirement("assert-ref-snapshot-id", ref="main", snapshot_id=2),
    requirement("assert-ref-snapshot-id", ref="v1", snapshot_id=1),
    requirement("assert-ref-snapshot-id", ref="absent", snapshot_id=None),
    requirement("assert-last-assigned-field-id", last_assigned_field_id=3),
    requirement("assert-current-schema-id", current_schema_id=0),
    requirement("assert-last-assigned-partition-id", last_assigned_partition_id=1000),
    requirement("assert-default-spec-id", default_spec_id=0),
    requirement("assert-default-sort-order-id", default_sort_order_id=1),
]


def test_all_that_hold_pass() -> None:
    metadata = apply(history(2), set_ref(1, "v1", "tag"))
    check_requirements(metadata, HOLDING)


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (
            requirement("assert-table-uuid", uuid="00000000-0000-0000-0000-000000000001"),
            f"UUID does not match: expected {UUID} != 00000000-0000-0000-0000-000000000001",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="main", snapshot_id=1),
            "branch main has changed: expected id 1 != 2",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="v1", snapshot_id=2),
            "tag v1 has changed: expected id 2 != 1",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="main"),
            "branch main was created concurrently",
        ),
        (
            requirement("assert-ref-snapshot-id", ref="absent", snapshot_id=7),
            "branch or tag absent is missing, expected 7",
        ),
        (
            requirement("assert-last-assigned-field-id", last_assigned_field_id=2),
            "last assigned field id changed: expected id 2 != 3",
        ),
        (
            requirement("assert-current-schema-id", current_schema_id=4),
            "current schema changed: expected id 4 != 0",
        ),
        (
            requirement("assert-last-assigned-partition-id", last_assigned_partition_id=999),
            "last assigned partition id changed: expected id 999 != 1000",
        ),
        (
            requirement("assert-default-spec-id", default_spec_id=1),
            "default partition spec changed: expected id 1 != 0",
        ),
        (
            requirement("assert-default-sort-order-id", default_sort_order_id=0),
            "default sort order changed: expected id 0 != 1",
        ),
        (requirement("assert-create"), "table already exists"),
    ],
)
def test_one_that_does_not_hold_fails_the_commit(failing: TableRequirement, message: str) -> None:
    metadata = apply(history(2), set_ref(1, "v1", "tag"))
    with pytest.raises(CommitFailed) as failed:
        check_requirements(metadata, [failing])
    assert failed.value.message == f"Requirement failed: {message}"
    assert failed.value.retryable


def test_a_table_that_is_not_there() -> None:
    check_requirements(None, [requirement("assert-create")])
    check_requirements(None, [])
    with pytest.raises(CommitFailed, match="Requirement failed: table does not exist"):
        check_requirements(None, [requirement("assert-table-uuid", uuid=UUID)])


def test_assert_create_stands_alone() -> None:
    both = [requirement("assert-create"), requirement("assert-table-uuid", uuid=UUID)]
    for metadata in (None, table()):
        with pytest.raises(BadRequest, match="assert-create"):
            check_requirements(metadata, both)
