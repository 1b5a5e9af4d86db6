"""Dynamic overwrites, `replace-partitions`: based on Java's TestReplacePartitions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import ALL_VERSIONS, WITH_DELETES, WITH_VECTORS, TableFactory
from tests.commit.finegrained.requests import (
    TRUE,
    Json,
    data_exists,
    no_new_data,
    no_new_deletes,
    replace_partitions,
)
from tests.commit.finegrained.tables import UNPARTITIONED, Table

VOID = {
    "fields": [
        {"source-id": 1, "field-id": 1000, "name": "id_null", "transform": "void"},
        {"source-id": 2, "field-id": 1001, "name": "data_bucket", "transform": "bucket[16]"},
    ]
}
ALL_VOID = {"fields": [{"source-id": 1, "field-id": 1000, "name": "id_null", "transform": "void"}]}


def javas_clauses() -> list[Json]:
    """Return the clauses of `validateNoConflictingData` and `validateNoConflictingDeletes`.
    Without filters they apply to the replaced partitions."""
    return [no_new_data(), no_new_deletes(), data_exists()]


@pytest.fixture
def flat(new_table: TableFactory, place: tuple[int, str]) -> Table:
    """Create a table without partitions."""
    return new_table(version=place[0], branch=place[1], spec=UNPARTITIONED)


# --- what is replaced -----------------------------------------------------------------------------


@ALL_VERSIONS
def test_one_partition_is_replaced(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 1))
    snapshot = table.replace_partitions(table.data("e", 0))
    assert table.live() == {"b", "e"}
    assert table.removed() == {"a"}
    assert table.operation == "overwrite"
    summary = snapshot["summary"]
    assert summary["replace-partitions"] == "true"
    assert (summary["added-data-files"], summary["deleted-data-files"]) == ("1", "1")


@ALL_VERSIONS
def test_several_partitions_are_replaced(table: Table) -> None:
    table.append(*(table.data(f"f{number}", number % 4) for number in range(12)))
    table.replace_partitions(table.data("x", 0), table.data("y", 3), table.data("y2", 3))
    kept = {f"f{number}" for number in range(12) if number % 4 in (1, 2)}
    assert table.live() == kept | {"x", "y", "y2"}


@ALL_VERSIONS
def test_an_empty_partition_is_only_filled(table: Table) -> None:
    table.append(table.data("a", 0))
    table.replace_partitions(table.data("g", 9))
    assert table.live() == {"a", "g"}
    assert table.operation == "overwrite"


@ALL_VERSIONS
def test_the_first_snapshot_may_replace(table: Table) -> None:
    table.replace_partitions(table.data("a", 0))
    assert table.live() == {"a"}
    assert table.operation == "overwrite"


@ALL_VERSIONS
def test_the_partition_null_is_a_partition(table: Table) -> None:
    table.append(table.data("a", 0), table.data("n", None))
    table.replace_partitions(table.data("n2", None))
    assert table.live() == {"a", "n2"}


@ALL_VERSIONS
def test_an_unpartitioned_table_is_replaced_whole(flat: Table) -> None:
    flat.append(flat.data("a"), flat.data("b"))
    flat.append(flat.data("c"))
    flat.replace_partitions(flat.data("d"))
    assert flat.live() == {"d"}


@ALL_VERSIONS
def test_a_table_of_void_transforms_is_replaced_whole(new_table: TableFactory, place: Any) -> None:
    table = new_table(version=place[0], branch=place[1], spec=ALL_VOID)
    table.append(table.data("a", None), table.data("b", None))
    table.replace_partitions(table.data("c", None))
    assert table.live() == {"c"}


@ALL_VERSIONS
def test_replacing_and_merging(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="1"))
    table.append(table.data("a", 0), table.data("b", 1))
    table.replace_partitions(table.data("e", 0))
    table.append(table.data("f", 2))
    assert table.live() == {"b", "e", "f"}


@WITH_DELETES
def test_delete_files_of_the_partition_go(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.overwrite(
        add=[a, b],
        add_deletes=[
            table.deletes("da", a),
            table.deletes("db", b),
            table.equality_deletes("ea", 0),
        ],
    )
    table.replace_partitions(table.data("a2", 0))
    end = "@4" if table.version == 3 else ""
    assert table.live() == {"a2", "b", f"db{end}"}
    assert table.removed() == {"a", f"da{end}", "ea"}


@WITH_VECTORS
def test_a_vector_goes_when_partitions_are_replaced_and_merged(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="1"))
    a, b = table.data("a", 0), table.data("b", 1)
    table.overwrite(add=[a, b], add_deletes=[table.vector("va", a), table.vector("vb", b)])
    table.replace_partitions(table.data("a2", 0))
    assert table.live() == {"a2", "b", "vb@4"}
    assert table.summary()["removed-dvs"] == "1"


@ALL_VERSIONS
def test_partitions_of_another_spec_are_not_touched(table: Table) -> None:
    table.append(table.data("old", 0))
    fields = [
        {"source-id": 2, "field-id": 1000, "name": "data_bucket", "transform": "bucket[16]"},
        {"source-id": 3, "field-id": 1001, "name": "date", "transform": "identity"},
    ]
    table.commit(
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": fields}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    spec_id = table.metadata["default-spec-id"]
    table.append(table.data("new", 0, "d", spec_id=spec_id))
    table.replace_partitions(table.data("newer", 0, "d", spec_id=spec_id))
    assert table.live() == {"old", "newer"}


# --- neighbours -----------------------------------------------------------------------------------


@ALL_VERSIONS
def test_without_clauses_neighbours_do_not_matter(table: Table) -> None:
    base = table.append(table.data("a", 0))["snapshot-id"]
    table.replace_partitions(table.data("e", 0), base=base)
    table.replace_partitions(table.data("a3", 0), table.data("b", 1), base=base)
    assert table.live() == {"a3", "b"}


@ALL_VERSIONS
def test_without_a_base_all_of_history_counts(table: Table) -> None:
    first = table.replace_partitions(table.data("a", 0))["snapshot-id"]
    update = replace_partitions(
        table.data("a2", 0), table.data("b", 1), validations=javas_clauses()
    )
    conflict = table.conflict(update)
    assert conflict.clause == "not-allowed-added-data-files"
    assert (conflict.files, conflict.snapshots) == ({"a"}, [first])
    assert conflict.message.startswith("Found conflicting files")


@ALL_VERSIONS
def test_the_partition_null_is_judged(table: Table) -> None:
    table.replace_partitions(table.data("n", None))
    update = replace_partitions(
        table.data("n2", None), table.data("b", 1), validations=javas_clauses()
    )
    assert table.conflict(update).files == {"n"}


@ALL_VERSIONS
def test_a_void_field_is_judged(new_table: TableFactory, place: Any) -> None:
    table = new_table(version=place[0], branch=place[1], spec=VOID)
    table.replace_partitions(table.data("a", None, 0))
    update = replace_partitions(
        table.data("a2", None, 0), table.data("b", None, 1), validations=javas_clauses()
    )
    assert table.conflict(update).files == {"a"}
    table.replace_partitions(table.data("c", None, 2), validations=javas_clauses())


@ALL_VERSIONS
def test_two_that_replace_one_partition(table: Table) -> None:
    base = table.append(table.data("a", 0), table.data("b", 1))["snapshot-id"]
    first = table.replace_partitions(table.data("a2", 0))["snapshot-id"]
    update = replace_partitions(
        table.data("a3", 0), table.data("b3", 1), base=base, validations=javas_clauses()
    )
    found = {c.clause: c for c in table.conflicts(update)}
    assert found.keys() == {"not-allowed-added-data-files", "required-data-files"}
    assert found["not-allowed-added-data-files"].files == {"a2"}
    assert found["required-data-files"].files == {"a"}
    assert all(c.snapshots == [first] for c in found.values())


@ALL_VERSIONS
def test_two_that_replace_different_partitions(table: Table) -> None:
    base = table.append(table.data("a", 0))["snapshot-id"]
    table.replace_partitions(table.data("a2", 0))
    table.replace_partitions(table.data("b", 1), base=base, validations=javas_clauses())
    assert table.live() == {"a2", "b"}


@ALL_VERSIONS
def test_two_that_replace_an_unpartitioned_table(flat: Table) -> None:
    base = flat.append(flat.data("a"))["snapshot-id"]
    flat.replace_partitions(flat.data("a2"))
    update = replace_partitions(flat.data("a3"), base=base, validations=javas_clauses())
    assert {c.clause for c in flat.conflicts(update)} == {
        "not-allowed-added-data-files",
        "required-data-files",
    }


@ALL_VERSIONS
def test_an_append_to_the_partition(table: Table) -> None:
    base = table.append(table.data("a", 0))["snapshot-id"]
    new = table.append(table.data("b", 1))["snapshot-id"]
    update = replace_partitions(
        table.data("a2", 0), table.data("b2", 1), base=base, validations=javas_clauses()
    )
    conflict = table.conflict(update)
    assert (conflict.files, conflict.snapshots) == ({"b"}, [new])


@ALL_VERSIONS
def test_an_append_to_another_partition(table: Table) -> None:
    base = table.append(table.data("a", 0))["snapshot-id"]
    table.append(table.data("b", 1))
    table.replace_partitions(table.data("a2", 0), base=base, validations=javas_clauses())
    assert table.live() == {"a2", "b"}


@ALL_VERSIONS
def test_an_append_to_an_unpartitioned_table(flat: Table) -> None:
    base = flat.append(flat.data("a"))["snapshot-id"]
    flat.append(flat.data("b"))
    update = replace_partitions(flat.data("c"), base=base, validations=javas_clauses())
    assert flat.conflict(update).files == {"b"}


@WITH_DELETES
def test_new_deletes_of_the_partition(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    new = table.overwrite(add_deletes=[table.deletes("da", a)], base=base)["snapshot-id"]
    update = replace_partitions(table.data("a2", 0), base=base, validations=javas_clauses())
    conflict = table.conflict(update)
    assert conflict.clause == "not-allowed-added-delete-files"
    assert conflict.snapshots == [new]
    assert conflict.message.startswith("Found new conflicting delete files")


@WITH_DELETES
def test_new_deletes_of_another_partition(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    table.overwrite(add_deletes=[table.deletes("da", a)], base=base)
    table.replace_partitions(table.data("b", 1), base=base, validations=javas_clauses())
    end = "@4" if table.version == 3 else ""
    assert table.live() == {"a", "b", f"da{end}"}


@WITH_DELETES
def test_new_deletes_of_an_unpartitioned_table(flat: Table) -> None:
    a = flat.data("a")
    base = flat.append(a)["snapshot-id"]
    flat.overwrite(add_deletes=[flat.deletes("da", a)])
    update = replace_partitions(flat.data("b"), base=base, validations=javas_clauses())
    assert flat.conflict(update).clause == "not-allowed-added-delete-files"


@ALL_VERSIONS
def test_a_file_of_the_partition_was_removed(table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a, table.data("b", 1))["snapshot-id"]
    gone = table.overwrite(remove=[a])["snapshot-id"]
    update = replace_partitions(table.data("a2", 0), base=base, validations=javas_clauses())
    conflict = table.conflict(update)
    assert conflict.clause == "required-data-files"
    assert (conflict.files, conflict.snapshots) == ({"a"}, [gone])
    table.replace_partitions(table.data("b2", 1), base=base, validations=javas_clauses())
    assert table.live() == {"b2"}


@ALL_VERSIONS
def test_a_file_of_an_unpartitioned_table_was_removed(flat: Table) -> None:
    a = flat.data("a")
    base = flat.append(a)["snapshot-id"]
    flat.overwrite(remove=[a])
    update = replace_partitions(flat.data("b"), base=base, validations=javas_clauses())
    assert flat.conflict(update).clause == "required-data-files"


@ALL_VERSIONS
def test_only_deletes_are_asked_for(table: Table) -> None:
    base = table.append(table.data("a", 0))["snapshot-id"]
    table.append(table.data("b", 1))
    table.replace_partitions(
        table.data("b2", 1), base=base, validations=[no_new_deletes(), data_exists()]
    )
    assert table.live() == {"a", "b2"}


@ALL_VERSIONS
def test_a_filter_of_its_own_is_taken_as_it_is(table: Table) -> None:
    base = table.append(table.data("a", 0))["snapshot-id"]
    table.append(table.data("b", 1))
    update = replace_partitions(table.data("a2", 0), base=base, validations=[no_new_data(TRUE)])
    assert table.conflict(update).files == {"b"}


@pytest.mark.parametrize(
    ("transform", "partition", "other"),
    [
        ("day", "2026-03-01", "2026-03-02"),
        ("month", 674, 675),
        ("hour", 490_000, 490_001),
        ("year", 56, 57),
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_partitions_of_time_transforms(
    new_table: TableFactory, version: int, transform: str, partition: Any, other: Any
) -> None:
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "at", "required": False, "type": "timestamptz"}],
    }
    spec = {
        "fields": [{"source-id": 1, "field-id": 1000, "name": "at_part", "transform": transform}]
    }
    table = new_table(version=version, schema=schema, spec=spec)
    table.append(table.data("a", partition), table.data("b", other))
    table.replace_partitions(table.data("a2", partition))
    assert table.live() == {"a2", "b"}


def test_a_day_is_a_date_or_a_number(new_table: TableFactory) -> None:
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "at", "required": False, "type": "timestamptz"}],
    }
    spec = {"fields": [{"source-id": 1, "field-id": 1000, "name": "day", "transform": "day"}]}
    table = new_table(schema=schema, spec=spec)
    table.append(table.data("a", "1970-01-11"), table.data("b", 11))
    table.replace_partitions(table.data("a2", 10))
    assert table.live() == {"a2", "b"}
