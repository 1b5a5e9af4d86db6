"""Deletes of whole files, by path and by row filter: based on Java's TestDeleteFiles."""

from __future__ import annotations

import pytest

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import ALL_VERSIONS, WITH_DELETES, WITH_VECTORS, TableFactory
from tests.commit.finegrained.requests import (
    TRUE,
    at_least,
    at_most,
    both,
    compare,
    data_exists,
    delete,
    deletes_exist,
    eq,
    in_bucket,
    no_new_data,
    no_new_deletes,
    no_new_deletes_for,
)
from tests.commit.finegrained.tables import DATES, UNPARTITIONED, Table
from tests.commit.finegrained.trees import DELETED, EXISTING

TRUNCATED = {
    "fields": [{"source-id": 2, "field-id": 1000, "name": "data_trunc", "transform": "truncate[2]"}]
}


# --- by path --------------------------------------------------------------------------------------


@ALL_VERSIONS
def test_files_are_removed_one_commit_after_the_other(table: Table) -> None:
    appended = table.append(table.data("a", 0), table.data("b", 1), table.data("c", 2))
    first = table.delete(table.data_path("a"))
    assert table.operation == "delete"
    assert table.live() == {"b", "c"}
    assert table.removed() == {"a"}
    summary = first["summary"]
    assert summary["deleted-data-files"] == "1"
    assert summary["deleted-records"] == "1"
    assert summary["removed-files-size"] == "10"
    assert summary["manifests-created"] == summary["manifests-replaced"] == "1"
    table.delete(table.data_path("b"))
    # The rewritten manifest omits files that an earlier snapshot removed.
    statuses = {table.short(e.file_path): e.status for e in table.tree().entries}
    assert statuses == {"b": DELETED, "c": EXISTING}
    assert table.entries()["c"].snapshot_id == appended["snapshot-id"]


@ALL_VERSIONS
def test_only_the_manifest_of_the_file_is_rewritten(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 0))
    table.append(table.data("c", 0))
    kept = [m["manifest_path"] for m in table.tree().manifests if m["added_files_count"] == 1]
    table.delete(table.data_path("b"))
    paths = [manifest["manifest_path"] for manifest in table.tree().manifests]
    assert kept[0] in paths
    assert table.summary()["manifests-kept"] == "1"


@ALL_VERSIONS
def test_the_last_file_of_a_table_may_go(table: Table) -> None:
    table.append(table.data("a", 0))
    table.delete(table.data_path("a"))
    assert table.live() == set()
    table.append(table.data("b", 0))
    assert table.live() == {"b"}
    assert [table.short(e.file_path) for e in table.tree().entries if e.is_live] == ["b"]


@ALL_VERSIONS
def test_a_removed_file_is_found_by_its_path_alone(table: Table) -> None:
    """Java prunes manifests by the partition in the request and silently misses the file if it
    is wrong."""
    table.append(table.data("a", 0))
    wrong = table.data("a", 9) | {"spec-id": 7}
    table.commit(table._update({"action": "delete", "remove-data-files": [wrong]}))
    assert table.live() == set()


@ALL_VERSIONS
def test_a_file_that_is_not_live_is_refused(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 0))
    removed = table.delete(table.data_path("a"))
    conflict = table.conflict(delete(table.data_path("a"), table.data_path("never")))
    assert conflict.clause == "removed-file-not-live"
    assert conflict.files == {"a", "never"}
    assert conflict.file_count == 2
    assert conflict.validation is None
    assert set(conflict.snapshots) <= {removed["snapshot-id"]}


@ALL_VERSIONS
def test_the_property_ignores_removals_that_are_missing(table: Table) -> None:
    table.commit(send.set_properties(frazil_commit_ignore__missing__removals="true"))
    table.append(table.data("a", 0), table.data("b", 0))
    table.delete(table.data_path("a"))
    table.delete(table.data_path("a"), table.data_path("b"))
    assert table.live() == set()
    snapshot = table.delete(table.data_path("b"))
    assert table.operation == "delete"
    assert "deleted-data-files" not in snapshot["summary"]


@ALL_VERSIONS
def test_a_clause_about_existence_holds_even_where_missing_is_ignored(table: Table) -> None:
    table.commit(send.set_properties(frazil_commit_ignore__missing__removals="true"))
    snapshot = table.append(table.data("a", 0), table.data("b", 0))
    gone = table.delete(table.data_path("b"))
    update = delete(
        table.data_path("b"),
        base=snapshot["snapshot-id"],
        validations=[data_exists(table.data_path("b"))],
    )
    conflict = table.conflict(update)
    assert conflict.clause == "required-data-files"
    assert (conflict.files, conflict.snapshots) == ({"b"}, [gone["snapshot-id"]])
    never = delete(table.data_path("x"), validations=[data_exists(table.data_path("x"))])
    assert table.conflict(never).clause == "required-data-files"


def test_deletes_on_independent_branches(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 1), table.data("c", 2))
    table.delete(table.data_path("a"), branch="side")
    table.delete(table.data_path("b"), table.data_path("c"))
    assert table.live(table.head("side")) == {"b", "c"}
    assert table.live(table.head("main")) == {"a"}


@ALL_VERSIONS
def test_hundreds_of_files_go_at_once(table: Table) -> None:
    for part in range(4):
        table.append(*(table.data(f"f{part}-{number}", number % 5) for number in range(60)))
    gone = [table.data_path(f"f{part}-{number}") for part in range(4) for number in range(0, 60, 2)]
    table.delete(*gone)
    assert len(table.live()) == 120
    assert table.summary()["deleted-data-files"] == "120"


# --- by row filter --------------------------------------------------------------------------------


@ALL_VERSIONS
def test_a_row_filter_removes_files_whose_rows_all_match(table: Table) -> None:
    table.append(
        table.data("low", 0, rows=3, ids=(0, 2)), table.data("high", 0, rows=3, ids=(8, 10))
    )
    table.delete(row_filter=compare("gt", "id", 5))
    assert table.live() == {"low"}
    assert table.operation == "delete"
    assert table.summary()["deleted-records"] == "3"


@ALL_VERSIONS
def test_a_row_filter_of_partition_and_rows(table: Table) -> None:
    table.append(
        table.data("low", 0, ids=(0, 2)),
        table.data("high", 0, ids=(8, 10)),
        table.data("other", 1, ids=(8, 10)),
    )
    table.delete(row_filter=both(in_bucket("data", 0), compare("gt", "id", 5)))
    assert table.live() == {"low", "other"}


@ALL_VERSIONS
def test_a_row_filter_that_matches_some_rows_of_a_file_is_refused(table: Table) -> None:
    table.append(table.data("low", 0, ids=(0, 2)), table.data("both", 0, ids=(2, 10)))
    conflict = table.conflict(delete(row_filter=at_most("id", 5)))
    assert conflict.clause == "partial-row-filter"
    assert conflict.files == {"both"}
    assert conflict.message.startswith("Cannot delete file where some, but not all, rows match")


@ALL_VERSIONS
def test_nulls_keep_a_file_from_matching_whole(table: Table) -> None:
    table.append(
        table.data("a", 0, rows=3, ids=(8, 10))
        | {"null-value-counts": {"keys": [1], "values": [1]}}
    )
    assert table.conflict(delete(row_filter=compare("gt", "id", 5))).clause == "partial-row-filter"


@ALL_VERSIONS
def test_without_metrics_only_the_partition_can_prove_a_match(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 1))
    assert table.conflict(delete(row_filter=compare("gt", "id", 5))).files == {"a", "b"}
    table.delete(row_filter=in_bucket("data", 1))
    assert table.live() == {"a"}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_partition_of_a_transform_is_not_the_rows(new_table: TableFactory, version: int) -> None:
    """A file with truncate[2](data) = aa may contain rows whose data is not aa."""
    table = new_table(version=version, spec=TRUNCATED)
    table.append(table.data("a", "aa", rows=10))
    conflict = table.conflict(delete(row_filter=eq("data", "aa")))
    assert (conflict.clause, conflict.files) == ("partial-row-filter", {"a"})
    table.delete(row_filter=compare("starts-with", "data", "aa"))
    assert table.live() == set()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_partitions_with_one_hash_are_not_one_partition(
    new_table: TableFactory, version: int
) -> None:
    """ "Aa" and "BB" have the same hash in Java."""
    table = new_table(version=version, spec=DATES)
    table.append(table.data("one", "Aa"), table.data("two", "BB"))
    table.delete(row_filter=eq("date", "BB"))
    assert table.live() == {"one"}


@ALL_VERSIONS
def test_files_that_are_gone_are_not_judged_by_a_row_filter(table: Table) -> None:
    table.append(table.data("wide", 0, ids=(0, 10)), table.data("narrow", 0, ids=(0, 4)))
    table.delete(table.data_path("wide"))
    table.delete(row_filter=compare("lt", "id", 7))
    assert table.live() == set()


@ALL_VERSIONS
def test_the_case_of_names_in_a_row_filter(table: Table) -> None:
    table.append(table.data("a", 0, ids=(0, 2)))
    row_filter = compare("lt", "iD", 5)
    assert "iD" in table.bad(delete(row_filter=row_filter))
    assert "iD" in table.bad(delete(row_filter=row_filter, case_sensitive=True))
    table.delete(row_filter=row_filter, case_sensitive=False)
    assert table.live() == set()


@ALL_VERSIONS
def test_a_row_filter_that_matches_nothing_still_makes_a_delete(table: Table) -> None:
    table.append(table.data("a", 0, ids=(0, 2)))
    snapshot = table.delete(row_filter=compare("gt", "id", 100))
    assert table.operation == "delete"
    assert table.live() == {"a"}
    assert "deleted-data-files" not in snapshot["summary"]


@ALL_VERSIONS
def test_a_row_filter_and_paths_in_one_delete(table: Table) -> None:
    table.append(
        table.data("a", 0, ids=(0, 2)), table.data("b", 0, ids=(8, 10)), table.data("c", 0)
    )
    table.delete(table.data_path("c"), table.data_path("a"), row_filter=at_least("id", 8))
    assert table.live() == set()


@ALL_VERSIONS
def test_true_empties_the_table(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", None))
    table.append(table.data("c", 3))
    table.delete(row_filter=TRUE)
    assert table.live() == set()
    assert table.removed() == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("row_filter", "left"),
    [
        ({"type": "is-null", "term": "date"}, {"a", "b"}),
        ({"type": "not-null", "term": "date"}, {"null"}),
        ({"type": "in", "term": "date", "values": ["x", "y", "z"]}, {"null"}),
        ({"type": "not-in", "term": "date", "values": ["x"]}, {"a"}),
        (send.negation(eq("date", "x")), {"a"}),
        (send.either(eq("date", "x"), eq("date", "y")), {"null"}),
        (send.FALSE, {"a", "b", "null"}),
    ],
)
def test_filters_over_an_identity_partition(
    new_table: TableFactory, row_filter: send.Json, left: set[str]
) -> None:
    table = new_table(spec=DATES)
    table.append(table.data("a", "x"), table.data("b", "y"), table.data("null", None))
    table.delete(row_filter=row_filter)
    assert table.live() == left


# --- delete files go with what they apply to ------------------------------------------------------


@WITH_VECTORS
def test_a_vector_goes_with_its_file_by_row_filter(table: Table) -> None:
    low, high = table.data("low", 0, ids=(0, 2), rows=3), table.data("high", 0, ids=(8, 10), rows=3)
    table.overwrite(
        add=[low, high], add_deletes=[table.vector("v1", low), table.vector("v2", high)]
    )
    table.delete(row_filter=compare("lt", "id", 5))
    assert table.live() == {"high", "v2@4"}
    assert table.summary()["removed-dvs"] == "1"
    assert table.summary()["removed-delete-files"] == "1"


@WITH_VECTORS
def test_a_vector_goes_with_its_file_by_path(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.overwrite(add=[a, b], add_deletes=[table.vector("va", a), table.vector("vb", b)])
    table.delete(a)
    assert table.live() == {"b", "vb@4"}
    assert table.removed() == {"a", "va@4"}
    assert table.summary()["removed-dvs"] == "1"


@WITH_VECTORS
def test_one_vector_of_a_puffin_file_goes_and_its_neighbour_stays(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    vectors = [table.vector("v", a, offset=4), table.vector("v", b, offset=10)]
    table.overwrite(add=[a, b], add_deletes=vectors)
    table.delete(a)
    assert table.live() == {"b", "v@10"}


@WITH_VECTORS
def test_emptying_a_table_takes_all_vectors(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    table.overwrite(add=[a, b], add_deletes=[table.vector("va", a), table.vector("vb", b)])
    table.delete(row_filter=TRUE)
    assert table.live() == set()
    assert table.summary()["removed-dvs"] == "2"


@WITH_DELETES
def test_a_row_filter_takes_the_delete_files_of_its_partitions(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    deletes = [table.deletes("da", a), table.deletes("db", b)]
    table.overwrite(add=[a, b], add_deletes=deletes)
    table.delete(row_filter=in_bucket("data", 0))
    end = "@4" if table.version == 3 else ""
    assert table.live() == {"b", f"db{end}"}


@WITH_DELETES
def test_delete_files_older_than_all_data_go(table: Table) -> None:
    """An equality delete that is older than every live data file applies to none of them."""
    table.append(table.data("a", 0))
    table.overwrite(add_deletes=[table.equality_deletes("eq", 0)])
    table.append(table.data("b", 0), table.data("c", 0))
    table.delete(table.data_path("a"))
    # As in Java, this or the next commit that reads the delete manifests drops it.
    table.delete(table.data_path("b"))
    assert table.live() == {"c"}


@WITH_DELETES
def test_delete_files_that_still_apply_stay(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 0))
    table.overwrite(add_deletes=[table.equality_deletes("eq", 0)])
    table.append(table.data("c", 0))
    table.delete(table.data_path("a"))
    table.delete(table.data_path("c"))
    assert table.live() == {"b", "eq"}


@WITH_DELETES
def test_delete_files_are_removed_by_name(table: Table) -> None:
    a = table.data("a", 0)
    deletes = table.deletes("da", a)
    table.overwrite(add=[a], add_deletes=[deletes, table.equality_deletes("eq", 0)])
    table.delete(remove_deletes=[deletes])
    assert table.live() == {"a", "eq"}
    assert table.operation == "delete"
    assert table.summary()["removed-delete-files"] == "1"


@WITH_DELETES
def test_a_delete_file_that_is_not_live_is_refused(table: Table) -> None:
    a = table.data("a", 0)
    deletes = table.deletes("da", a)
    table.overwrite(add=[a], add_deletes=[deletes])
    table.delete(remove_deletes=[deletes])
    conflict = table.conflict(delete(remove_deletes=[deletes]))
    assert conflict.clause == "removed-file-not-live"
    assert conflict.files == ({"da@4"} if table.version == 3 else {"da"})


@WITH_VECTORS
def test_the_wrong_offset_is_another_vector(table: Table) -> None:
    a = table.data("a", 0)
    vector = table.vector("v", a)
    table.overwrite(add=[a], add_deletes=[vector])
    conflict = table.conflict(delete(remove_deletes=[vector | {"content-offset": 5}]))
    assert (conflict.clause, conflict.files) == ("removed-file-not-live", {"v@5"})


@WITH_VECTORS
def test_a_bare_puffin_path_is_refused(table: Table) -> None:
    a = table.data("a", 0)
    vector = table.vector("v", a)
    table.overwrite(add=[a], add_deletes=[vector])
    message = table.bad(delete(remove_deletes=[vector["file-path"]]))
    assert "content-offset" in message
    assert vector["file-path"] in message


# --- clauses on a delete --------------------------------------------------------------------------


@ALL_VERSIONS
def test_no_new_data_under_a_delete(table: Table) -> None:
    base = table.append(table.data("a", 0, ids=(0, 4)))
    new = table.append(table.data("b", 0, ids=(0, 4)))
    update = delete(
        table.data_path("a"),
        base=base["snapshot-id"],
        validations=[no_new_data(at_most("id", 4))],
    )
    conflict = table.conflict(update)
    assert (conflict.clause, conflict.files) == ("not-allowed-added-data-files", {"b"})
    assert conflict.snapshots == [new["snapshot-id"]]
    table.commit(table._update(update | {"commit-validations": [no_new_data(at_least("id", 5))]}))
    assert table.live() == {"b"}


@WITH_DELETES
def test_no_new_deletes_under_a_delete(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 1)
    base = table.append(a, b)
    deleted = table.overwrite(add_deletes=[table.deletes("da", a)])
    clauses = [no_new_deletes(in_bucket("data", 0)), no_new_deletes_for(a), no_new_deletes_for(b)]
    update = delete(a, b, base=base["snapshot-id"], validations=clauses)
    found = table.conflicts(update)
    name = "da@4" if table.version == 3 else "da"
    assert [(c.clause, c.validation) for c in found] == [
        ("not-allowed-added-delete-files", 0),
        ("not-allowed-new-deletes-for-data-files", 1),
    ]
    assert found[0].files == {name}
    assert all(c.snapshots == [deleted["snapshot-id"]] for c in found)
    table.delete(b, base=base["snapshot-id"], validations=[no_new_deletes_for(b)])


@WITH_DELETES
def test_required_delete_files_under_a_delete(table: Table) -> None:
    a = table.data("a", 0)
    first, second = table.equality_deletes("e1", 0), table.equality_deletes("e2", 0)
    table.append(a)
    base = table.overwrite(add_deletes=[first, second])
    table.delete(remove_deletes=[first])
    update = delete(a, base=base["snapshot-id"], validations=[deletes_exist(first, second)])
    conflict = table.conflict(update)
    assert (conflict.clause, conflict.files) == ("required-delete-files", {"e1"})
    table.delete(a, base=base["snapshot-id"], validations=[deletes_exist(second)])


def test_an_unpartitioned_table_is_one_partition(new_table: TableFactory) -> None:
    table = new_table(spec=UNPARTITIONED)
    table.append(table.data("a", ids=(0, 4)), table.data("b", ids=(5, 9)))
    table.delete(row_filter=at_least("id", 5))
    assert table.live() == {"a"}
